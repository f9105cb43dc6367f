/* SPDX-License-Identifier: MIT */
/*
 * As fault_program.c, with stream-ordered memory: what fails is skipped, what succeeded must be
 * right, every free that failed is tried again, and in the end nothing is lost.
 *
 * Memory comes from the device's pool, from one of its own and by cuMemAlloc, and is freed by
 * either road; pools are set, asked, trimmed and destroyed; a graph allocates and frees.
 *
 *     fault_async [OPERATIONS]
 *
 * Exit 0 all right; 1 wrong contents; 3 memory lost; 4 the first calls failed for good.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/process/driver_api.h"
#include "tests/sim/abi.h"
#include "tests/stress/rng.h"

enum { LIVE_MAX = 12, WORDS_CHECKED = 64 };

/* Again after a failure, three times in all; true: it has succeeded. */
#define TRIED(call) (!(call) || !(call) || !(call))

struct live {
	CUdeviceptr ptr; /* 0: none */
	uint64_t words;
	uint32_t value;
	bool told, filled;
};

static struct live live[LIVE_MAX];
static CUstream streams[2];
static CUmemoryPool own, of_device;
static void *fill;
static unsigned long wrong;
static struct rng rng = { 42 };

static CUresult (*pool_create)(CUmemoryPool *, const CUmemPoolProps *);
static CUresult (*pool_destroy)(CUmemoryPool);
static CUresult (*pool_alloc)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
static CUresult (*graph_trim)(CUdevice);

static void
look_up(void)
{
	*(void **)&pool_create = dlsym(RTLD_DEFAULT, "cuMemPoolCreate");
	*(void **)&pool_destroy = dlsym(RTLD_DEFAULT, "cuMemPoolDestroy");
	*(void **)&pool_alloc = dlsym(RTLD_DEFAULT, "cuMemAllocFromPoolAsync");
	*(void **)&graph_trim = dlsym(RTLD_DEFAULT, "cuDeviceGraphMemTrim");
}

static bool
fill_submit(CUdeviceptr ptr, uint64_t words, uint64_t value, CUstream stream)
{
	uint64_t n = words < WORDS_CHECKED ? words : WORDS_CHECKED, spin_us = 20;
	void *args[] = { &ptr, &n, &value, &spin_us };

	return fill && !cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

static void
take(struct live *one, CUstream stream)
{
	static const uint64_t words[] = { 1, 100, 1000, 30000, 300000, 1500000 };
	CUresult code;

	one->words = words[rng_below(&rng, 6)];
	one->told = rng_below(&rng, 4) != 0;
	if (!one->told)
		code = cuMemAlloc_v2(&one->ptr, one->words * 4);
	else if (own && rng_below(&rng, 2))
		code = pool_alloc(&one->ptr, one->words * 4, own, stream);
	else
		code = cuMemAllocAsync(&one->ptr, one->words * 4, stream);
	if (code) {
		one->ptr = 0;
		return;
	}
	one->value = (uint32_t)rng_next(&rng);
	one->filled = fill_submit(one->ptr, one->words, one->value, stream);
}

static void
check(struct live *one, CUstream stream)
{
	uint64_t n = one->words < WORDS_CHECKED ? one->words : WORDS_CHECKED;
	uint32_t copy[WORDS_CHECKED];

	if (!one->ptr || !one->filled || cuStreamSynchronize(stream) ||
	    cuMemcpyDtoH_v2(copy, one->ptr, n * 4))
		return;
	for (uint64_t i = 0; i < n; i++)
		wrong += copy[i] != one->value;
}

/* Told memory is freed by the host only when its stream is known to have finished. */
static void
put(struct live *one, CUstream stream)
{
	bool by_host =
		one->ptr && rng_below(&rng, 4) == 0 && (!one->told || !cuStreamSynchronize(stream));

	if (one->ptr &&
	    (by_host ? TRIED(cuMemFree_v2(one->ptr)) : TRIED(cuMemFreeAsync(one->ptr, stream))))
		one->ptr = 0;
}

static void
pools_change(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	cuuint64_t bytes = rng_below(&rng, 2) ? UINT64_MAX : 0;
	int rule = (int)rng_below(&rng, 2);

	if (!of_device && cuDeviceGetDefaultMemPool(&of_device, 0))
		return;
	if (!own && pool_create(&own, &props))
		own = NULL;
	else if (own && rng_below(&rng, 4) == 0 && TRIED(pool_destroy(own)))
		own = NULL;
	cuMemPoolSetAttribute(of_device, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
	cuMemPoolSetAttribute(of_device, (CUmemPool_attribute)(1 + rng_below(&rng, 3)), &rule);
	cuMemPoolGetAttribute(of_device, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
	cuMemPoolGetAttribute(of_device, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
	if (rng_below(&rng, 2))
		cuMemPoolTrimTo(of_device, 0);
}

static void
work(unsigned operations)
{
	for (unsigned i = 0; i < operations; i++) {
		unsigned slot = (unsigned)rng_below(&rng, LIVE_MAX);
		CUstream stream = streams[slot % 2];

		if (rng_below(&rng, 12) == 0) {
			pools_change();
		} else if (live[slot].ptr) {
			if (rng_below(&rng, 2))
				check(&live[slot], stream);
			put(&live[slot], stream);
		} else {
			take(&live[slot], stream);
		}
	}
}

/* What the graph has not freed is freed behind a launch. */
static void
capture(void)
{
	CUdeviceptr ptr = 0;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	bool freed = false, launched = false;

	if (cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED))
		return;
	if (cuMemAllocAsync(&ptr, 70000, streams[0]))
		ptr = 0;
	if (ptr) {
		fill_submit(ptr, 1000, 7, streams[0]);
		freed = TRIED(cuMemFreeAsync(ptr, streams[0]));
	}
	(void)TRIED(cuStreamEndCapture(streams[0], &graph));
	if (graph && !cuGraphInstantiateWithFlags(&exec, graph, 0))
		launched = TRIED(cuGraphLaunch(exec, streams[0]));
	if (launched && ptr && !freed)
		(void)TRIED(cuMemFreeAsync(ptr, streams[0]));
	cuCtxSynchronize();
	if (exec)
		(void)TRIED(cuGraphExecDestroy(exec));
	if (graph)
		(void)TRIED(cuGraphDestroy(graph));
}

static int
leave(size_t total)
{
	uint64_t (*trim)(uint64_t);
	size_t free_bytes = 0, now_total = 0;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "cachealloc_trim");
	for (int i = 0; i < 500; i++) {
		if (i > 2)
			usleep(2000);
		for (int s = 0; s < LIVE_MAX; s++)
			put(&live[s], streams[s % 2]);
		cuCtxSynchronize();
		if (own && TRIED(pool_destroy(own)))
			own = NULL;
		if (of_device || !cuDeviceGetDefaultMemPool(&of_device, 0))
			cuMemPoolTrimTo(of_device, 0);
		graph_trim(0);
		if (trim)
			trim(0);
		if (!cuMemGetInfo_v2(&free_bytes, &now_total) && free_bytes == total)
			break;
	}
	if (wrong)
		fprintf(stderr, "%lu wrong words\n", wrong);
	if (free_bytes != total)
		fprintf(stderr, "%zu bytes lost\n", total - free_bytes);
	return wrong ? 1 : (free_bytes == total ? 0 : 3);
}

int
main(int argc, char **argv)
{
	unsigned operations = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
	size_t free_bytes, total;
	CUcontext context = NULL;
	void *module = NULL;

	look_up();
	if (!TRIED(cuInit(0)) || !TRIED(cuDevicePrimaryCtxRetain(&context, 0)) ||
	    !TRIED(cuCtxSetCurrent(context)) || !TRIED(cuMemGetInfo_v2(&free_bytes, &total)))
		return 4;
	for (int i = 0; i < 2; i++)
		if (cuStreamCreate(&streams[i], 1))
			streams[i] = NULL;
	if (cuModuleLoadData(&module, "simcuda") || cuModuleGetFunction(&fill, module, "sim_fill"))
		fill = NULL;
	pools_change();
	work(operations / 2);
	if (streams[0])
		capture();
	work(operations / 2);
	for (int s = 0; s < LIVE_MAX; s++)
		check(&live[s], streams[s % 2]);
	return leave(free_bytes);
}
