/* SPDX-License-Identifier: MIT */
/* Threads that end, calls without a context, memory that ends. */
#include "tests/process/told/told.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { THREADS = 40 };

static CUstream n, m;

static void
begin(void)
{
	told_start();
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
}

static _Atomic bool over;

static void
free_and_end(int number)
{
	CUdeviceptr x;

	OK(cuMemAllocAsync_ptsz(&x, 30 * MIB, NULL));
	order_fill_ptsz(x, (uint32_t)number, LONG, NULL);
	OK(cuMemFreeAsync_ptsz(x, NULL));
}

static void
work_or_threads(int number)
{
	CUdeviceptr x = number ? 0 : told_take(SMALL, n);
	CUevent event[2] = { order_event(), order_event() };

	for (unsigned i = 0; !number && !atomic_load(&over); i++) {
		order_fill(x, i, LONG, n);
		OK(cuEventSynchronize(event[i % 2]));
		OK(cuEventRecord(event[i % 2], n));
	}
	for (int i = 0; number && i < THREADS; i++)
		order_threads(1, free_and_end);
	if (number)
		atomic_store(&over, true);
}

static void
take_most(int number)
{
	CUdeviceptr x;

	OK(cuMemAllocAsync_ptsz(&x, 150 * MIB, NULL));
	order_fill_ptsz(x, (uint32_t)number, LONG, NULL);
	OK(cuMemFreeAsync_ptsz(x, NULL));
}

/* A thread that was alone with its stream ends while its work goes on, with most of the memory. */
static void
one_that_ended(void)
{
	order_start();
	order_threads(1, take_most);
	n = order_stream(NONBLOCKING);
	told_give(told_take(150 * MIB, n), n);
	order_end();
}

static void
take_when_ended(void)
{
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr x;

	for (int i = 0; rc && i < 100; i++) {
		order_sleep(10000);
		rc = cuMemAllocAsync_ptsz(&x, 150 * MIB, NULL);
	}
	OK(rc);
	OK(cuMemFreeAsync_ptsz(x, NULL));
}

static void
rest_or_take(int number)
{
	if (number) {
		while (!atomic_load(&over))
			order_sleep(100);
		take_when_ended();
		atomic_store(&over, false);
		return;
	}
	take_most(1);
	take_most(2);
	atomic_store(&over, true);
	while (atomic_load(&over))
		order_sleep(100);
}

/* A thread rests after a free whose work ends. Its pool lets nobody wait for that work, so that
 * its next submission would have marked nothing, either. */
static void
one_that_rests(void)
{
	begin();
	told_set(told_default(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	order_threads(2, rest_or_take);
	order_end();
}

/* Threads end while their work goes on, and another stream is never idle. */
static void
ended_threads(void)
{
	begin();
	order_threads(2, work_or_threads);
	order_end();
}

static void
show_codes(CUdeviceptr x, CUdeviceptr y)
{
	CUdeviceptr z = 0;

	SHOW(cuMemAllocAsync(&z, SMALL, NULL));
	SHOW(cuMemAllocAsync_ptsz(&z, SMALL, NULL));
	SHOW(cuMemAllocFromPoolAsync(&z, SMALL, told_default(), NULL));
	SHOW(cuMemFreeAsync(x, NULL));
	SHOW(cuMemFreeAsync_ptsz(x, NULL));
	SHOW(cuMemAllocAsync(NULL, SMALL, NULL));
	SHOW(cuMemAllocAsync(&z, SMALL, n));
	SHOW(cuMemFreeAsync(z, n));
	SHOW(cuMemFreeAsync(y, n));
}

static void
without(int number)
{
	CUdeviceptr x = told_take(SMALL, NULL), y = told_take(SMALL, n);

	OK(cuCtxSynchronize());
	OK(cuCtxSetCurrent(NULL));
	show_codes(x, y);
	SHOW(cuMemFreeAsync(x, n));
}

/* A created stream has its context, a default stream wants one. */
static void
no_context(void)
{
	begin();
	order_threads(1, without);
	without(0);
}

static CUcontext dying;
static _Atomic int turn;

static void
in_dead_context(int number)
{
	CUdeviceptr x, y;

	if (number) {
		order_enter(dying);
		x = told_take(SMALL, NULL);
		y = told_take(SMALL, NULL);
		OK(cuCtxSynchronize());
		told_give(y, NULL);
		atomic_store(&turn, 1);
		while (atomic_load(&turn) != 2)
			order_sleep(100);
		SHOW(cuMemAllocAsync(&y, SMALL, NULL));
		SHOW(cuMemFreeAsync(x, NULL));
		SHOW(cuMemFreeAsync(x, n));
		return;
	}
	while (atomic_load(&turn) != 1)
		order_sleep(100);
	OK(cuCtxDestroy_v2(dying));
	atomic_store(&turn, 2);
}

/* Another thread destroys the context that is current. */
static void
destroyed_context(void)
{
	CUcontext first;

	begin();
	OK(cuCtxGetCurrent(&first));
	dying = order_context(0);
	order_enter(first);
	order_threads(2, in_dead_context);
	order_end();
}

/* As the driver's pool has it from the start, but the program says so, before there is a context.
 */
static void
early_zero(void)
{
	CUmemoryPool pool;
	CUdeviceptr x;

	OK(cuInit(0));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	told_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
	begin();
	x = told_take(40 * MIB, n);
	told_give(x, n);
	OK(cuStreamSynchronize(n));
	printf("reserved %llu\n",
	       (unsigned long long)told_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	order_end();
}

/* Natively it is known at once that nothing is to be had: memory that works is taken neither behind
 * it nor waited for. A program that asks often gets its answers soon. */
static void
refused_at_once(void)
{
	volatile uint32_t *word;
	CUdeviceptr x, y = 0;
	int refused = 0;

	begin();
	word = order_word();
	for (int rule = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
	     rule <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; rule++)
		told_set(told_default(), (CUmemPool_attribute)rule, 0);
	x = told_take(200 * MIB, n);
	order_wait(word, 1, n);
	told_give(x, n);
	for (int i = 0; i < 100; i++)
		refused += cuMemAllocAsync(&y, 200 * MIB, m) == CUDA_ERROR_OUT_OF_MEMORY;
	printf("refused %d\n", refused);
	*word = 1;
	OK(cuStreamSynchronize(n));
	SHOW(cuMemAllocAsync(&y, 200 * MIB, m));
	order_end();
}

static void
churn_or_ask(int number)
{
	CUstream t[6];
	CUdeviceptr x;

	if (!number) {
		order_sleep(50000);
		SHOW(cuMemAllocAsync(&x, 100 * MIB, n));
		atomic_store(&over, true);
		return;
	}
	for (int i = 0; i < 6; i++)
		t[i] = order_stream(NONBLOCKING);
	for (unsigned i = 0; !atomic_load(&over); i++) {
		x = told_take(20 * MIB, t[i % 6]);
		order_fill(x, 1, 20 * LONG, t[i % 6]);
		told_give(x, t[i % 6]);
		order_sleep(5000);
	}
}

/* There is less than is asked for, and beside it work ends all the time. */
static void
answered(void)
{
	begin();
	(void)told_take(160 * MIB, n);
	order_threads(2, churn_or_ask);
	order_end();
}

static CUmemoryPool
pool_of(size_t max_bytes)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
				 .maxSize = max_bytes };
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &props));
	return pool;
}

/* Memory that is freed behind work goes with its pool, once that work has been waited for. */
static void
destroyed_pool(void)
{
	CUmemoryPool own;
	size_t free, total;
	CUdeviceptr x;

	begin();
	own = pool_of(0);
	OK(cuMemAllocFromPoolAsync(&x, 60 * MIB, own, n));
	order_fill(x, 1, 10 * LONG, n);
	told_give(x, n);
	OK(cuMemPoolDestroy(own));
	OK(cuCtxSynchronize());
	OK(cuMemPoolTrimTo(told_default(), 0));
	OK(cuMemGetInfo_v2(&free, &total));
	printf("back %d\n", total - free < 60 * MIB);
	order_end();
}

/* A pool of its own size holds that much of equal blocks. */
static void
filled_pool(void)
{
	CUmemoryPool own;
	CUdeviceptr x[40];
	int count;

	begin();
	own = pool_of(64 * MIB);
	for (int i = 0; i < ROUNDS; i++) {
		for (count = 0; count < 40; count++)
			if (cuMemAllocFromPoolAsync(&x[count], 8 * MIB, own, n))
				break;
		printf("%d\n", count);
		while (count--)
			told_give(x[count], n);
		OK(cuStreamSynchronize(n));
	}
	order_end();
}

static void
unasked_in(CUstream stream)
{
	volatile uint32_t *word = order_word();

	for (unsigned i = 1; i <= PAIRS; i++) {
		CUdeviceptr x = told_take(SMALL, stream);

		order_fill(x, i, 0, stream);
		told_give(x, stream);
		order_signal(word, i, stream);
		while (*word != i)
			order_sleep(1);
	}
}

/* A program that learns of the end of its work by memory: it asks the driver about nothing. */
static void
unasked(void)
{
	begin();
	unasked_in(n);
	unasked_in(NULL);
	order_end();
}

const struct order_case told_edges[] = {
	{ "ended_threads", ended_threads },
	{ "one_that_ended", one_that_ended },
	{ "one_that_rests", one_that_rests },
	{ "no_context", no_context },
	{ "destroyed_context", destroyed_context },
	{ "early_zero", early_zero },
	{ "refused_at_once", refused_at_once },
	{ "answered", answered },
	{ "destroyed_pool", destroyed_pool },
	{ "filled_pool", filled_pool },
	{ "unasked", unasked },
	{ 0 },
};
