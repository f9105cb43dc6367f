/* SPDX-License-Identifier: MIT */
/* Pools as the program sees them: attributes, trims, its own pools, pointers. */
#include "tests/process/told/told.h"

static CUstream s;

static void
begin(void)
{
	told_start();
	s = order_stream(NONBLOCKING);
}

static void
show(CUmemoryPool pool)
{
	printf("used %llu high %llu\n",
	       (unsigned long long)told_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
	       (unsigned long long)told_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

static void
use_and_show(CUmemoryPool pool)
{
	CUdeviceptr x, y;

	told_set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
	show(pool);
	x = told_take(3 * MIB + 5, s);
	y = told_take(100, s);
	show(pool);
	told_give(x, s);
	show(pool);
	told_set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
	show(pool);
	told_give(y, s);
	show(pool);
}

static void
attributes(void)
{
	int rule = 7;

	begin();
	use_and_show(told_default());
	OK(cuMemPoolGetAttribute(told_default(), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &rule));
	printf("rule %d, threshold %llu\n", rule,
	       (unsigned long long)told_attribute(told_default(),
						  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
	EXPECT(told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >=
	       told_attribute(told_default(), CU_MEMPOOL_ATTR_USED_MEM_HIGH));
	order_end();
}

static CUmemoryPool
make_pool(size_t max_bytes, int handle_types)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = (CUmemAllocationHandleType)handle_types,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = max_bytes };
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &props));
	return pool;
}

/* A pool of the program's, by name and as the device's own. */
static void
own_pool(void)
{
	CUmemoryPool pool, current;
	CUdeviceptr x, y;

	begin();
	for (int handle_types = 0; handle_types < 2; handle_types++) {
		pool = make_pool(0, handle_types);
		OK(cuMemAllocFromPoolAsync(&x, PART, pool, s));
		order_use(x, 1, s);
		show(pool);
		OK(cuDeviceSetMemPool(0, pool));
		y = told_take(PART, s);
		order_use(y, 2, s);
		show(pool);
		OK(cuMemPoolDestroy(pool));
		OK(cuDeviceGetMemPool(&current, 0));
		printf("default %d\n", current == told_default());
		order_check(x, 1, s);
		order_check(y, 2, s);
		told_give(x, s);
		OK(cuStreamSynchronize(s));
		order_check(y, 2, s);
		told_give(y, s);
		x = told_take(PART, s);
		show(told_default());
		order_use(x, 3, s);
		told_give(x, s);
		OK(cuStreamSynchronize(s));
	}
	order_end();
}

/* Of a device whose default pool cannot be had: no pool is ours, and the driver serves. */
static void
no_pool_of_ours(void)
{
	CUmemoryPool pool;
	CUdeviceptr x;

	begin();
	pool = make_pool(0, 1);
	for (int i = 0; i < 3; i++) {
		OK(cuMemAllocFromPoolAsync(&x, PART, pool, s));
		order_use(x, (uint64_t)i + 1, s);
		order_check(x, (uint64_t)i + 1, s);
		OK(cuMemFreeAsync(x, s));
	}
	order_end();
}

static void
limited_pool(void)
{
	CUmemoryPool pool;
	CUdeviceptr x, y = 0;

	begin();
	pool = make_pool(32 * MIB, 0);
	OK(cuMemAllocFromPoolAsync(&x, 20 * MIB, pool, s));
	SHOW(cuMemAllocFromPoolAsync(&y, 20 * MIB, pool, s));
	SHOW(cuMemAllocFromPoolAsync(&y, 12 * MIB, pool, s));
	order_use(x, 1, s);
	order_use(y, 1, s);
	told_give(x, s);
	told_give(y, s);
	OK(cuStreamSynchronize(s));
	SHOW(cuMemAllocFromPoolAsync(&x, 32 * MIB, pool, s));
	order_use(x, 1, s);
	told_give(x, s);
	OK(cuMemPoolDestroy(pool));
	order_end();
}

/* Down to what is asked for, and no live memory. */
static void
trim(void)
{
	CUdeviceptr x, y;

	begin();
	x = told_take(40 * MIB, s);
	y = told_take(40 * MIB, s);
	order_fill(y, 5, 0, s);
	told_give(x, s);
	OK(cuStreamSynchronize(s));
	OK(cuMemPoolTrimTo(told_default(), 0));
	printf("%d\n",
	       told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 40 * MIB);
	order_check(y, 5, s);
	told_give(y, s);
	OK(cuStreamSynchronize(s));
	OK(cuMemPoolTrimTo(told_default(), 0));
	printf("%d\n", told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
	order_end();
}

/* What the program lets the pool keep across a synchronisation. */
static void
threshold(void)
{
	CUdeviceptr x, y;

	begin();
	told_set(told_default(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 50 * MIB);
	x = told_take(40 * MIB, s);
	y = told_take(40 * MIB, s);
	told_give(x, s);
	told_give(y, s);
	OK(cuStreamSynchronize(s));
	OK(cuStreamSynchronize(s));
	printf("%d %llu\n",
	       told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 50 * MIB,
	       (unsigned long long)told_attribute(told_default(),
						  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
	x = told_take(100 * MIB, s);
	order_use(x, 1, s);
	told_give(x, s);
	OK(cuCtxSynchronize());
	printf("%d\n",
	       told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 50 * MIB);
	order_end();
}

static void
pointers(void)
{
	unsigned long long a = 0, b = 0;
	CUdeviceptr x, y, base;
	CUmemoryPool pool;
	size_t bytes;

	begin();
	x = told_take(3 * MIB + 5, s);
	y = told_take(100, s);
	OK(cuStreamSynchronize(s));
	OK(cuMemGetAddressRange_v2(&base, &bytes, x + 77));
	printf("%d %zu\n", base == x, bytes);
	SHOW(cuMemGetAddressRange_v2(&base, &bytes, x + 3 * MIB + 5));
	OK(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_RANGE_SIZE, y));
	printf("%llu\n", a);
	OK(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_BUFFER_ID, x));
	OK(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_BUFFER_ID, y));
	printf("%d\n", a != b);
	SHOW(cuPointerGetAttribute(&pool, (CUpointer_attribute)17, x)); /* MEMPOOL_HANDLE */
	printf("%d\n", pool == told_default());
	told_give(y, s);
	OK(cuStreamSynchronize(s));
	SHOW(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_RANGE_SIZE, y));
	told_give(x, s);
	order_end();
}

/* All memory of the device, by turns of the two roads. */
static void
both_roads(void)
{
	begin();
	for (int i = 0; i < 3; i++) {
		CUdeviceptr x = told_take(200 * MIB, s), y;

		order_use(x, 1, s);
		told_give(x, s);
		OK(cuStreamSynchronize(s));
		y = order_take(200 * MIB);
		order_use(y, 2, s);
		OK(cuStreamSynchronize(s));
		order_give(y);
	}
	order_end();
}

static void
out_of_memory(void)
{
	CUdeviceptr x, y;

	begin();
	x = told_take(200 * MIB, s);
	SHOW(cuMemAllocAsync(&y, 100 * MIB, s));
	SHOW(cuMemAlloc_v2(&y, 100 * MIB));
	told_give(x, s);
	OK(cuStreamSynchronize(s));
	SHOW(cuMemAllocAsync(&y, 240 * MIB, s));
	told_give(y, s);
	OK(cuStreamSynchronize(s));
	SHOW(cuMemAllocAsync(&y, 257 * MIB, s));
	order_end();
}

/* A capture keeps idle memory of a large request from going back: a small one gets of it. */
static void
small_in_capture(void)
{
	CUdeviceptr x, y;
	CUgraph graph;
	CUstream c;

	begin();
	c = order_stream(NONBLOCKING);
	x = told_take(200 * MIB, s);
	while (!cuMemAllocAsync(&y, 2 * MIB, s))
		;
	told_give(x, s);
	OK(cuStreamSynchronize(s));
	OK(cuStreamBeginCapture_v2(c, 0));
	y = told_take(SMALL, s);
	order_use(y, 1, s);
	told_give(y, s);
	OK(cuStreamEndCapture(c, &graph));
	OK(cuGraphDestroy(graph));
	x = told_take(180 * MIB, s);
	order_use(x, 2, s);
	told_give(x, s);
	order_end();
}

/* All that is left is a part of a segment, which another stream still uses. */
static void
small_behind_large(void)
{
	CUdeviceptr x, y;
	CUstream m;

	begin();
	m = order_stream(NONBLOCKING);
	x = told_take(200 * MIB, s);
	told_give(x, s);
	OK(cuStreamSynchronize(s));
	(void)told_take(110 * MIB, s);
	x = told_take(80 * MIB, s);
	while (!cuMemAllocAsync(&y, 2 * MIB, s))
		;
	order_fill(x, 1, 20 * LONG, s);
	told_give(x, s);
	y = told_take(SMALL, m);
	order_use(y, 2, m);
	told_give(y, m);
	order_end();
}

static CUcontext context;

static void *
synchronize(void *stream)
{
	order_enter(context);
	OK(cuStreamSynchronize(stream));
	return NULL;
}

/* Another thread synchronises, which looks at all pools with a threshold. */
static void
destroyed_beside(void)
{
	pthread_t thread;

	begin();
	OK(cuCtxGetCurrent(&context));
	for (int i = 0; i < 3; i++) {
		CUmemoryPool pool = make_pool(0, 0);

		told_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, MIB);
		EXPECT(!pthread_create(&thread, NULL, synchronize, s));
		order_sleep(30000);
		OK(cuMemPoolDestroy(pool));
		pthread_join(thread, NULL);
	}
	order_end();
}

static void *
destroy(void *pool)
{
	OK(cuMemPoolDestroy(pool));
	return NULL;
}

/* Another thread's destruction of the current pool is under way. */
static void
taken_beside(void)
{
	CUmemoryPool pool;
	pthread_t thread;
	CUdeviceptr x;

	begin();
	pool = make_pool(0, 0);
	OK(cuDeviceSetMemPool(0, pool));
	told_give(told_take(PART, s), s);
	EXPECT(!pthread_create(&thread, NULL, destroy, pool));
	order_sleep(50000);
	x = told_take(PART, s);
	order_use(x, 1, s);
	told_give(x, s);
	pthread_join(thread, NULL);
	order_end();
}

static void *
work_first(void *none)
{
	CUdeviceptr x;

	order_enter(context);
	OK(cuMemAlloc_v2(&x, MIB));
	return none;
}

/* While another thread's first allocation has the library learn of the device. */
static void
current_beside(void)
{
	CUmemoryPool pool, current;
	pthread_t thread;
	CUdeviceptr x;

	context = order_start();
	pool = make_pool(0, 0);
	EXPECT(!pthread_create(&thread, NULL, work_first, NULL));
	order_sleep(60000);
	OK(cuDeviceSetMemPool(0, pool));
	pthread_join(thread, NULL);
	OK(cuDeviceGetMemPool(&current, 0));
	printf("its own %d\n", current == pool);
	s = order_stream(NONBLOCKING);
	x = told_take(PART, s);
	show(pool);
	show(told_default());
	told_give(x, s);
	order_end();
}

static void
no_pool_named(void)
{
	CUdeviceptr x;

	told_start();
	SHOW(cuMemAllocFromPoolAsync(&x, SMALL, NULL, order_stream(NONBLOCKING)));
	SHOW(cuMemAllocFromPoolAsync_ptsz(&x, SMALL, NULL, NULL));
}

/* It serves on. */
static void
refused_destroy(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUmemoryPool pool;
	CUdeviceptr x;

	told_start();
	s = order_stream(NONBLOCKING);
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&x, SMALL, pool, s));
	SHOW(cuMemPoolDestroy(pool));
	SHOW(told_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	told_give(x, s);
	OK(cuMemAllocFromPoolAsync(&x, SMALL, pool, s));
	SHOW(told_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	told_give(x, s);
	OK(cuStreamSynchronize(s));
	SHOW(told_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	SHOW(cuMemPoolDestroy(pool));
	order_end();
}

const struct order_case told_pools[] = {
	{ "no_pool_named", no_pool_named },
	{ "refused_destroy", refused_destroy },
	{ "attributes", attributes },
	{ "own_pool", own_pool },
	{ "no_pool_of_ours", no_pool_of_ours },
	{ "limited_pool", limited_pool },
	{ "trim", trim },
	{ "threshold", threshold },
	{ "pointers", pointers },
	{ "both_roads", both_roads },
	{ "out_of_memory", out_of_memory },
	{ "small_in_capture", small_in_capture },
	{ "small_behind_large", small_behind_large },
	{ "destroyed_beside", destroyed_beside },
	{ "taken_beside", taken_beside },
	{ "current_beside", current_beside },
	{ 0 },
};
