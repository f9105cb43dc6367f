/* SPDX-License-Identifier: MIT */
/*
 * Calls every submitting entry point that the simulator builds, by its own name and its per-thread
 * twin's: submit_all legacy|twins. Prints each call's code and what the memory holds afterwards, so
 * that a run with the preload must print the same.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/bind/graphics_abi.h"
#include "tests/sim/abi.h"

#define CA_HOOK(symbol, base, version, flags, params, args) typedef CUresult fn_##symbol params;
#include "shim/bind/hooks.def"
typedef CUresult fn_cuInit(unsigned flags);
typedef CUresult fn_cuCtxSetCurrent(CUcontext context);
typedef CUresult fn_cuCtxSynchronize(void);
typedef CUresult fn_cuModuleLoadData(CUmodule *module, const void *image);
typedef CUresult fn_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
typedef CUresult fn_cuMemHostAlloc(void **pp, size_t bytes, unsigned flags);
typedef CUresult fn_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
						unsigned long long flags);
typedef CUresult fn_cuStreamCreate(CUstream *stream, unsigned flags);
typedef CUresult fn_cuImportExternalSemaphore(CUexternalSemaphore *semaphore,
					      const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc);

enum { WORDS = 256, BYTES = 4 * WORDS };

static bool twins;
static void *driver;
static CUdeviceptr a, b, flag;
static uint32_t *host;

static void *
find(const char *name, const char *suffix)
{
	char full[128];
	void *found;

	snprintf(full, sizeof(full), "%s%s", name, suffix);
	found = dlsym(driver, full);
	if (!found) {
		fprintf(stderr, "no %s\n", full);
		exit(2);
	}
	return found;
}

static CUresult
say(const char *name, CUresult rc)
{
	printf("%s = %d\n", name, (int)rc);
	return rc;
}

#define RAW(symbol, suffix, ...) ((fn_##symbol *)(uintptr_t)find(#symbol, suffix))(__VA_ARGS__)
/* Of what has no twin, `suffix` is empty. */
#define CALL(symbol, suffix, ...) say(#symbol, RAW(symbol, twins ? #suffix : "", __VA_ARGS__))
#define PLAIN(symbol, ...)                                                                         \
	do {                                                                                       \
		CUresult plain_rc = RAW(symbol, "", __VA_ARGS__);                                  \
		if (plain_rc) {                                                                    \
			fprintf(stderr, "%s = %d\n", #symbol, (int)plain_rc);                      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* What the first words of `from` are once everything is done. */
static void
show(CUdeviceptr from)
{
	uint32_t seen[4] = { 0 };

	PLAIN(cuCtxSynchronize, );
	CALL(cuMemcpyDtoH_v2, _ptds, seen, from, sizeof(seen));
	printf("  %08x %08x %08x %08x\n", seen[0], seen[1], seen[2], seen[3]);
}

static void
sets(void)
{
	CALL(cuMemsetD8_v2, _ptds, a, 0x11, BYTES);
	show(a);
	CALL(cuMemsetD8Async, _ptsz, a, 0x12, BYTES, NULL);
	show(a);
	CALL(cuMemsetD16_v2, _ptds, a, 0x1314, BYTES / 2);
	show(a);
	CALL(cuMemsetD16Async, _ptsz, a, 0x1516, BYTES / 2, NULL);
	show(a);
	CALL(cuMemsetD32_v2, _ptds, a, 0x17181920, WORDS);
	show(a);
	CALL(cuMemsetD32Async, _ptsz, a, 0x21222324, WORDS, NULL);
	show(a);
	CALL(cuMemsetD32Async, _ptsz, a, 1, 1ull << 62, NULL);
	CALL(cuMemsetD2D8_v2, _ptds, a, 8, 0x25, 4, 2);
	show(a);
	CALL(cuMemsetD2D8Async, _ptsz, a, 8, 0x26, 4, 2, NULL);
	show(a);
	CALL(cuMemsetD2D16_v2, _ptds, a, 8, 0x2728, 2, 2);
	show(a);
	CALL(cuMemsetD2D16Async, _ptsz, a, 8, 0x292a, 2, 2, NULL);
	show(a);
	CALL(cuMemsetD2D32_v2, _ptds, a, 8, 0x2b2c2d2e, 1, 2);
	show(a);
	CALL(cuMemsetD2D32Async, _ptsz, a, 8, 0x2f303132, 1, 2, NULL);
	show(a);
	CALL(cuMemsetD2D32_v2, _ptds, a, 2, 0, 1, 2);
}

static void
fill(CUdeviceptr target, uint32_t value)
{
	PLAIN(cuMemsetD32_v2, target, value, WORDS);
	PLAIN(cuCtxSynchronize, );
}

static void
copies(CUcontext context)
{
	static uint64_t attributes[16]; /* more than CUmemcpyAttributes has */
	uint32_t words[WORDS];

	memset(words, 0x31, sizeof(words));
	CALL(cuMemcpyHtoD_v2, _ptds, b, words, BYTES);
	show(b);
	memset(host, 0x32, BYTES);
	CALL(cuMemcpyHtoDAsync_v2, _ptsz, b, host, BYTES, NULL);
	show(b);
	fill(a, 0x33);
	CALL(cuMemcpyDtoD_v2, _ptds, b, a, BYTES);
	show(b);
	fill(a, 0x34);
	CALL(cuMemcpyDtoDAsync_v2, _ptsz, b, a, BYTES, NULL);
	show(b);
	fill(a, 0x35);
	CALL(cuMemcpy, _ptds, b, a, BYTES);
	show(b);
	fill(a, 0x36);
	CALL(cuMemcpyAsync, _ptsz, b, a, BYTES, NULL);
	show(b);
	fill(a, 0x3a);
	CALL(cuMemcpyWithAttributesAsync, _ptsz, b, a, BYTES, (void *)attributes, NULL);
	show(b);
	fill(a, 0x37);
	CALL(cuMemcpyPeer, _ptds, b, context, a, context, BYTES);
	show(b);
	fill(a, 0x38);
	CALL(cuMemcpyPeerAsync, _ptsz, b, context, a, context, BYTES, NULL);
	show(b);
	fill(a, 0x39);
	CALL(cuMemcpyDtoHAsync_v2, _ptsz, host, a, BYTES, NULL);
	PLAIN(cuCtxSynchronize, );
	printf("  %08x\n", host[1]);
	CALL(cuMemcpyDtoH_v2, _ptds, words, a, 0);
	CALL(cuMemcpyDtoH_v2, _ptds, words, 0, BYTES);
	CALL(cuMemcpyHtoD_v2, _ptds, a, words, (size_t)1 << 40);
}

/* Rows of one word, two words apart. */
static void
rows(CUcontext context)
{
	CUDA_MEMCPY2D flat = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = a,
		.srcPitch = 8,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = b,
		.dstPitch = 8,
		.WidthInBytes = 4,
		.Height = 2,
	};
	CUDA_MEMCPY3D deep = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = a,
		.srcPitch = 8,
		.srcHeight = 2,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = b,
		.dstPitch = 8,
		.dstHeight = 2,
		.WidthInBytes = 4,
		.Height = 2,
		.Depth = 2,
	};
	CUDA_MEMCPY3D_PEER peer;

	memcpy(&peer, &deep, sizeof(peer));
	peer.srcContext = peer.dstContext = context;
	fill(b, 0);
	fill(a, 0xa1);
	CALL(cuMemcpy2D_v2, _ptds, &flat);
	show(b);
	fill(a, 0xa2);
	CALL(cuMemcpy2DUnaligned_v2, _ptds, &flat);
	show(b);
	fill(a, 0xa3);
	CALL(cuMemcpy2DAsync_v2, _ptsz, &flat, NULL);
	show(b);
	fill(a, 0xa4);
	CALL(cuMemcpy3D_v2, _ptds, &deep);
	show(b);
	fill(a, 0xa5);
	CALL(cuMemcpy3DAsync_v2, _ptsz, &deep, NULL);
	show(b);
	fill(a, 0xa6);
	CALL(cuMemcpy3DPeer, _ptds, &peer);
	show(b);
	fill(a, 0xa7);
	CALL(cuMemcpy3DPeerAsync, _ptsz, &peer, NULL);
	show(b);
	flat.srcPitch = 2;
	CALL(cuMemcpy2D_v2, _ptds, &flat);
	flat.srcPitch = (size_t)1 << 40;
	CALL(cuMemcpy2DAsync_v2, _ptsz, &flat, NULL);
}

static void
batches(CUstream stream)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUDA_MEMCPY3D_BATCH_OP op = {
		.src = { CU_MEMCPY_OPERAND_TYPE_POINTER, { .ptr = { .ptr = a, .rowLength = 8 } } },
		.dst = { CU_MEMCPY_OPERAND_TYPE_POINTER, { .ptr = { .ptr = b, .rowLength = 8 } } },
		.extent = { 4, 2, 1 },
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};
	CUdeviceptr to[] = { b, b + 8 }, from[] = { a, a };
	size_t sizes[] = { 4, 4 }, index[] = { 0 }, failed = 7;

	fill(a, 0xb1);
	CALL(cuMemcpyBatchAsync, _ptsz, to, from, sizes, 2, &attributes, index, 1, &failed, stream);
	show(b);
	fill(a, 0xb2);
	CALL(cuMemcpyBatchAsync_v2, _ptsz, to, from, sizes, 2, &attributes, index, 1, stream);
	show(b);
	fill(a, 0xb3);
	CALL(cuMemcpy3DBatchAsync, _ptsz, 1, &op, &failed, 0, stream);
	show(b);
	fill(a, 0xb4);
	CALL(cuMemcpy3DBatchAsync_v2, _ptsz, 1, &op, 0, stream);
	show(b);
	fill(a, 0xb5);
	CALL(cuMemcpy3DWithAttributesAsync, _ptsz, &op, 0, stream);
	show(b);
	sizes[1] = (size_t)1 << 40;
	CALL(cuMemcpyBatchAsync, _ptsz, to, from, sizes, 2, &attributes, index, 1, &failed, stream);
	PLAIN(cuCtxSynchronize, ); /* the first of the two was submitted */
	printf("  failed %zu\n", failed);
}

static void
arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR desc = { WORDS, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1 };
	CUarray one, two;

	CALL(cuArrayCreate_v2, , &one, &desc);
	CALL(cuArrayCreate_v2, , &two, &desc);
	memset(host, 0x51, BYTES);
	CALL(cuMemcpyHtoA_v2, _ptds, one, 0, host, BYTES);
	CALL(cuMemcpyAtoD_v2, _ptds, b, one, 0, BYTES);
	show(b);
	PLAIN(cuCtxSynchronize, );
	memset(host, 0x52, BYTES);
	CALL(cuMemcpyHtoAAsync_v2, _ptsz, one, 0, host, BYTES, NULL);
	CALL(cuMemcpyAtoA_v2, _ptds, two, 4, one, 8, 4);
	CALL(cuMemcpyAtoH_v2, _ptds, host, two, 4, 4);
	printf("  %08x\n", host[0]);
	fill(a, 0x53);
	CALL(cuMemcpyDtoA_v2, _ptds, two, 0, a, BYTES);
	CALL(cuMemcpyAtoHAsync_v2, _ptsz, host, two, 0, BYTES, NULL);
	PLAIN(cuCtxSynchronize, );
	printf("  %08x\n", host[1]);
	CALL(cuMemcpyDtoA_v2, _ptds, two, 4, a, BYTES);
	CALL(cuArrayDestroy, , one);
	CALL(cuArrayDestroy, , two);
	CALL(cuArrayDestroy, , two);
}

static void
managed_memory(void)
{
	CUmemLocation location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	size_t size = BYTES, index = 0;
	CUdeviceptr managed;

	PLAIN(cuMemAllocManaged, &managed, BYTES, CU_MEM_ATTACH_GLOBAL);
	fill(managed, 0x62);
	CALL(cuMemPrefetchAsync, _ptsz, managed, BYTES, 0, NULL);
	CALL(cuMemPrefetchAsync_v2, _ptsz, managed, BYTES, location, 0, NULL);
	CALL(cuMemPrefetchBatchAsync, _ptsz, &managed, &size, 1, &location, &index, 1, 0, NULL);
	CALL(cuStreamAttachMemAsync, _ptsz, NULL, managed, 0, CU_MEM_ATTACH_GLOBAL);
	show(managed);
	CALL(cuMemDiscardBatchAsync, _ptsz, &managed, &size, 1, 0, NULL);
	CALL(cuMemDiscardAndPrefetchBatchAsync, _ptsz, &managed, &size, 1, &location, &index, 1, 0,
	     NULL);
	CALL(cuMemPrefetchAsync, _ptsz, a, BYTES, 0, NULL);
	CALL(cuStreamAttachMemAsync, _ptsz, NULL, a, 0, CU_MEM_ATTACH_GLOBAL);
	PLAIN(cuCtxSynchronize, );
	PLAIN(cuMemFree_v2, managed);
}

static void
semaphores(void)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
	};
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = { .params.fence.value = 4 };
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = { .params.fence.value = 3 };
	CUexternalSemaphore semaphore;

	desc.handle.fd = memfd_create("semaphore", MFD_CLOEXEC);
	PLAIN(cuImportExternalSemaphore, &semaphore, &desc);
	CALL(cuSignalExternalSemaphoresAsync, _ptsz, &semaphore, &signal, 1, NULL);
	CALL(cuWaitExternalSemaphoresAsync, _ptsz, &semaphore, &wait, 1, NULL);
	PLAIN(cuCtxSynchronize, );
	semaphore = NULL;
	CALL(cuSignalExternalSemaphoresAsync, _ptsz, &semaphore, &signal, 1, NULL);
}

static void
called(void *data)
{
	++*(int *)data;
}

static void
called_back(CUstream stream, CUresult status, void *data)
{
	*(int *)data += 10 + (int)status;
}

static void
kernels(CUstream stream)
{
	CUDA_LAUNCH_PARAMS one;
	static int calls;
	uint64_t words = WORDS, value = 0x41, spin_us = 10;
	void *args[] = { &a, &words, &value, &spin_us };
	CUmodule module;
	CUfunction function;
	CUlaunchAttribute list[40] = {
		{ .id = CU_LAUNCH_ATTRIBUTE_IGNORE },
		{ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		  .value.programmaticStreamSerializationAllowed = 1 },
	};
	CUlaunchConfig config = { .gridDimX = 1,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = 1,
				  .blockDimY = 1,
				  .blockDimZ = 1 };

	PLAIN(cuModuleLoadData, &module, "simcuda");
	PLAIN(cuModuleGetFunction, &function, module, "sim_fill");
	CALL(cuLaunchKernel, _ptsz, function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
	show(a);
	CALL(cuLaunchKernel, _ptsz, function, 0, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
	value = 0x42;
	CALL(cuLaunchCooperativeKernel, _ptsz, function, 1, 1, 1, 1, 1, 1, 0, NULL, args);
	show(a);
	value = 0x43;
	one = (CUDA_LAUNCH_PARAMS){ function, 1, 1, 1, 1, 1, 1, 0, stream, args };
	CALL(cuLaunchCooperativeKernelMultiDevice, , &one, 1, 3);
	show(a);
	for (unsigned n = 0; n <= 40; n += 20) {
		config.attrs = n ? list : NULL;
		config.numAttrs = n;
		value = 0x50 + n;
		CALL(cuLaunchKernelEx, _ptsz, &config, function, args, NULL);
		show(a);
	}
	config.attrs = NULL;
	CALL(cuLaunchKernelEx, _ptsz, &config, function, args, NULL);
	CALL(cuLaunchKernelEx, _ptsz, NULL, function, args, NULL);
	CALL(cuLaunchHostFunc, _ptsz, NULL, called, &calls);
	CALL(cuLaunchHostFunc_v2, _ptsz, NULL, called, &calls, 0);
	CALL(cuLaunchHostFunc_v2, _ptsz, NULL, called, &calls, 9);
	CALL(cuStreamAddCallback, _ptsz, NULL, called_back, &calls, 0);
	PLAIN(cuCtxSynchronize, );
	printf("  called %d\n", calls);
}

static void
values(void)
{
	CUstreamBatchMemOpParams ops[2] = {
		{ .waitValue = { CU_STREAM_MEM_OP_WAIT_VALUE_32, flag, { 7 }, 0, 0 } },
		{ .writeValue = { CU_STREAM_MEM_OP_WRITE_VALUE_32, flag, { 8 }, 0, 0 } },
	};

	CALL(cuStreamWriteValue32_v2, _ptsz, NULL, flag, 5, 0);
	CALL(cuStreamWaitValue32_v2, _ptsz, NULL, flag, 5, 0);
	CALL(cuStreamWriteValue64_v2, _ptsz, NULL, flag, 7, 0);
	CALL(cuStreamWaitValue64_v2, _ptsz, NULL, flag, 7, 0);
	show(flag);
	CALL(cuStreamBatchMemOp_v2, _ptsz, NULL, 2, ops, 0);
	show(flag);
	CALL(cuStreamBatchMemOp_v2, _ptsz, NULL, 2, NULL, 0);
}

static void
pools(void)
{
	CUdeviceptr made;

	if (CALL(cuMemAllocAsync, _ptsz, &made, BYTES, NULL))
		return;
	fill(made, 0x61);
	show(made);
	CALL(cuMemFreeAsync, _ptsz, made, NULL);
	CALL(cuMemFreeAsync, _ptsz, 12345, NULL);
}

static void
graphs(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;

	PLAIN(cuStreamCreate, &stream, 0);
	PLAIN(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	CALL(cuMemsetD32Async, _ptsz, a, 0x71, WORDS, stream);
	CALL(cuMemcpyDtoDAsync_v2, _ptsz, b, a, BYTES, stream);
	PLAIN(cuStreamEndCapture, stream, &graph);
	PLAIN(cuGraphInstantiateWithFlags, &exec, graph, 0);
	CALL(cuGraphUpload, _ptsz, exec, NULL);
	CALL(cuGraphLaunch, _ptsz, exec, NULL);
	show(b);
	CALL(cuGraphLaunch, _ptsz, NULL, NULL);
}

int
main(int argc, char **argv)
{
	CUcontext context;
	CUstream stream;

	twins = argc > 1 && !strcmp(argv[1], "twins");
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		return 2;
	PLAIN(cuInit, 0);
	PLAIN(cuDevicePrimaryCtxRetain, &context, 0);
	PLAIN(cuCtxSetCurrent, context);
	PLAIN(cuMemAlloc_v2, &a, BYTES);
	PLAIN(cuMemAlloc_v2, &b, BYTES);
	PLAIN(cuMemAlloc_v2, &flag, BYTES);
	PLAIN(cuMemHostAlloc, (void **)&host, BYTES, 0);
	fill(flag, 0);
	PLAIN(cuStreamCreate, &stream, 0);
	sets();
	copies(context);
	rows(context);
	batches(stream);
	arrays();
	kernels(stream);
	values();
	managed_memory();
	semaphores();
	pools();
	graphs();
	return 0;
}
