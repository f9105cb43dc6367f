/* SPDX-License-Identifier: MIT */
/* Segments that grow and shrink by mapping (expandable_segments:True): `order_extents CASE`. */
#include "tests/process/order/order.h"

#include <dlfcn.h>

enum {
	HANDLE = 20 * MIB, /* made from 512 MiB in use on; they begin on its multiples */
	BEFORE = 26 * HANDLE,
};

uint64_t cachealloc_trim(uint64_t keep_bytes) __attribute__((weak));
size_t simcuda_stats(char *buffer, size_t n) __attribute__((weak));

/* Memory that beside its own work nobody uses goes back in a free, and the next one takes its
 * place.
 */
static void
freed_while_work_uses_it(void)
{
	CUstream s, r;
	CUdeviceptr x, y;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	for (unsigned i = 0; i < 8; i++) {
		x = order_take(BIG);
		y = order_take(PART);
		order_fill(x, i, LONG, s);
		order_give(x);
		order_use(y, i, r);
		order_give(y);
	}
	order_end();
}

/* Of a large handle the lower part is in use, and the upper one is free. */
static void
part_of_a_handle_in_use(void)
{
	CUdeviceptr before, x;

	order_start();
	before = order_take(BEFORE);
	x = order_again(order_take(HANDLE), PART);
	order_fill(x, 7, 0, NULL);
	OK(cuCtxSynchronize());
	if (cachealloc_trim)
		cachealloc_trim(0);
	order_check(x, 7, NULL);
	order_end();
	order_give(x);
	order_give(before);
}

static int
attribute(int which, CUdeviceptr memory)
{
	int value = -1;

	OK(cuPointerGetAttribute(&value, (CUpointer_attribute)which, memory));
	return value;
}

/* A device reads and writes memory of another by copies at any time, and by kernels while that is
 * enabled, whether the memory was there before or not. */
static void
another_device(void)
{
	CUcontext here = order_start(), there;
	CUdeviceptr x = order_take(BIG), y, z;
	CUstream s;

	order_fill(x, 1, 0, NULL);
	OK(cuCtxSynchronize());
	there = order_context(1);
	z = order_take(BIG);
	s = order_stream(NONBLOCKING);
	OK(cuMemcpyDtoD_v2(z, x, (size_t)WORDS * 4));
	OK(cuCtxSynchronize());
	order_check(z, 1, s);
	for (uint32_t i = 0; i < 3; i++) {
		OK(cuCtxEnablePeerAccess(here, 0));
		order_use(x, 10 + i, s);
		order_enter(here);
		y = order_take(3 * BIG);
		order_enter(there);
		order_use(y, 20 + i, s);
		OK(cuStreamSynchronize(s));
		OK(cuCtxDisablePeerAccess(here));
		order_give(y);
	}
	order_end();
	OK(cuMemcpyDtoD_v2(x, z, (size_t)WORDS * 4));
	OK(cuCtxSynchronize());
	order_enter(here);
	order_check(x, 1, NULL);
	order_end();
}

/* Prints whether mapped memory says that other cards reach it. */
static void
other_cards(void)
{
	order_start();
	printf("%d\n", attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, order_take(BIG)));
}

/* Memory that cannot be exported says so, and the next can be. */
static void export(void)
{
	CUdeviceptr x, y;
	CUipcMemHandle handle;

	order_start();
	x = order_take(BIG);
	order_give(order_take(2 * BIG));
	EXPECT(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, x) == 0);
	EXPECT(cuIpcGetMemHandle(&handle, x) == CUDA_ERROR_INVALID_VALUE);
	y = order_take(BIG);
	EXPECT(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, y) == 1);
	OK(cuIpcGetMemHandle(&handle, y));
	EXPECT(cuIpcGetMemHandle(&handle, x) == CUDA_ERROR_INVALID_VALUE);
	order_use(x, 1, NULL);
	order_use(y, 2, NULL);
	order_end();
}

static void
expect_exportable(CUdeviceptr memory)
{
	CUipcMemHandle handle;

	EXPECT(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory) == 1);
	OK(cuIpcGetMemHandle(&handle, memory));
}

/* Mapped memory that is free by then, or is freed later: whole handles, parts of them, and
 * blocks of the size that the next request has. What cannot be had otherwise is had there. */
static void
export_again(void)
{
	CUdeviceptr before, x, gap, part, y[3];
	CUipcMemHandle handle;

	order_start();
	before = order_take(BEFORE);
	x = order_take(8 * MIB);
	gap = order_take(2 * HANDLE);
	part = order_take(12 * MIB);
	order_give(gap);
	if (cachealloc_trim)
		cachealloc_trim(0);       /* it is in another extent than x now */
	for (unsigned i = 0; i < 20; i++) /* the thread comes to keep it */
		part = order_again(part, 12 * MIB);
	EXPECT(cuIpcGetMemHandle(&handle, x) == CUDA_ERROR_INVALID_VALUE);
	order_give(part);
	for (unsigned i = 0; i < 3; i++) {
		y[i] = order_take(12 * MIB);
		expect_exportable(y[i]);
	}
	order_give(x);
	expect_exportable(order_take(8 * MIB + HANDLE));
	order_give(before);
	order_use(order_take(BEFORE), 3, NULL); /* there is memory for one */
	order_end();
}

/* There is no other memory than the part of a handle that is free. */
static void
export_at_the_end(void)
{
	CUdeviceptr x, part;
	CUipcMemHandle handle;

	order_start();
	(void)order_take(BEFORE);
	x = order_take(8 * MIB);
	part = order_take(12 * MIB);
	EXPECT(cuIpcGetMemHandle(&handle, x) == CUDA_ERROR_INVALID_VALUE);
	order_give(part);
	order_use(order_take(12 * MIB), 1, NULL);
	order_end();
}

static void *
take_80(void *context)
{
	OK(cuCtxSetCurrent(context));
	order_give(order_take(80 * MIB));
	return NULL;
}

static size_t
unmapped(void)
{
	char text[16384];
	const char *at;

	EXPECT(simcuda_stats && simcuda_stats(text, sizeof(text)) < sizeof(text));
	at = strstr(text, "\"cuMemUnmap\":");
	return at ? strtoull(strchr(at, ':') + 1, NULL, 10) : 0;
}

/* Free memory moves for the request of one thread, and its old addresses are unmapped one by one.
 * Meanwhile the driver has none for another call, but the cache has. */
static void
another_thread_unmaps(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at[8];
	CUcontext context;
	pthread_t thread;
	size_t before;

	order_start();
	OK(cuCtxGetCurrent(&context));
	for (unsigned i = 0; i < 8; i++)
		at[i] = order_take(40 * MIB);
	for (unsigned i = 0; i < 8; i += 2)
		order_give(at[i]);
	before = unmapped();
	EXPECT(!pthread_create(&thread, NULL, take_80, context));
	while (unmapped() == before)
		;
	OK(cuMemCreate(&handle, 64 * MIB, &prop, 0));
	EXPECT(!pthread_join(thread, NULL));
	OK(cuMemRelease(handle));
	order_end();
}

/* Takes memory, loads the library that ORDER_LOAD names, and takes more. */
static void
library_comes(void)
{
	const char *name = getenv("ORDER_LOAD");
	CUdeviceptr x;

	order_start();
	x = order_take(BIG);
	EXPECT(!name || dlopen(name, RTLD_NOW));
	order_use(order_take(BIG), 3, NULL);
	order_use(x, 4, NULL);
	order_end();
}

/* Cached memory of a device makes room for memory that names it, whatever context is current. */
static void
room_on_another_device(void)
{
	const CUmemAllocationProp on_it = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
							  .id = 1 } };
	CUmemGenericAllocationHandle handle;
	CUcontext first;

	order_start();
	OK(cuCtxGetCurrent(&first));
	(void)order_context(1);
	order_give(order_take(200 * MIB));
	order_enter(first);
	OK(cuMemCreate(&handle, 180 * MIB, &on_it, 0));
	OK(cuMemRelease(handle));
	order_end();
}

static const struct order_case cases[] = {
	{ "freed_while_work_uses_it", freed_while_work_uses_it },
	{ "part_of_a_handle_in_use", part_of_a_handle_in_use },
	{ "another_device", another_device },
	{ "other_cards", other_cards },
	{ "export", export },
	{ "export_again", export_again },
	{ "export_at_the_end", export_at_the_end },
	{ "another_thread_unmaps", another_thread_unmaps },
	{ "library_comes", library_comes },
	{ "room_on_another_device", room_on_another_device },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, NULL };
