/* SPDX-License-Identifier: MIT */
/*
 * The driver calls the program back in the midst of a call, as CUPTI and cuLogsRegisterCallback do,
 * and the program frees there: `order_inside CASE`. Every case is right natively. The simulator
 * sleeps where SIMCUDA_LATENCY says so; nanosleep is the program's own, and stands for the
 * callback.
 */
#include <time.h>

#include "tests/process/order/order.h"

enum { SMALL = 1 << 16 }; /* many share a segment */

static __thread void (*callback)(void); /* NULL: none is due */
static __thread CUdeviceptr x;
static CUstream s, r;
static pthread_barrier_t both;

int
nanosleep(const struct timespec *wanted, struct timespec *left)
{
	void (*due)(void) = callback;

	callback = NULL;
	if (due)
		due();
	return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
}

/* The call of SIMCUDA_LATENCY, which sleeps only where the machine left it time to. */
static void
call_back(void (*function)(void))
{
	size_t free_bytes, total_bytes;

	callback = function;
	do
		OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	while (callback);
}

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
}

static void
free_x(void)
{
	order_give(x);
}

static void
free_x_async(void)
{
	OK(cuMemFreeAsync(x, s));
}

/* Its neighbour stays as it is, and is freed as usual. */
static void
frees(void (*function)(void), size_t bytes)
{
	CUdeviceptr y;

	begin();
	for (unsigned i = 0; i < 4; i++) {
		x = order_take(bytes);
		y = order_take(bytes);
		order_fill(x, 1, LONG, s);
		order_fill(y, 7, 0, s);
		call_back(function);
		x = order_take(bytes);
		order_use(x, 2, r);
		order_check(y, 7, s);
		OK(cuStreamSynchronize(r));
		order_give(x);
		order_give(y);
	}
	order_end();
}

static void
freed_inside(void)
{
	frees(free_x, SMALL);
}

static void
freed_async_inside(void)
{
	frees(free_x_async, SMALL);
}

static void
told_freed_inside(void)
{
	CUdeviceptr y, z;

	begin();
	for (unsigned i = 0; i < 4; i++) {
		OK(cuMemAllocAsync(&x, SMALL, s));
		OK(cuMemAllocAsync(&y, SMALL, s));
		order_fill(x, 1, LONG, s);
		order_fill(y, 7, 0, s);
		call_back(free_x_async);
		OK(cuMemAllocAsync(&z, SMALL, r));
		order_use(z, 2, r);
		order_check(y, 7, s);
		OK(cuMemFreeAsync(z, r));
		OK(cuMemFreeAsync(y, s));
	}
	order_end();
}

/* In the midst of a call that the library makes, if it makes one: a mark or a wait. */
static void
freed_in_the_librarys_call(void)
{
	unsigned inside = 0;
	CUdeviceptr y;

	begin();
	for (unsigned i = 0; i < 4; i++) {
		x = order_take(SMALL);
		y = order_take(BIG);
		order_fill(x, 1, LONG, s);
		order_fill(y, 1, LONG, i % 2 ? s : r);
		callback = i < 2 ? free_x : free_x_async;
		y = order_again(y, BIG);
		order_use(y, 2, r);
		inside += !callback;
		if (callback)
			callback();
		callback = NULL;
		x = order_take(SMALL);
		order_use(x, 3, r);
		order_give(x);
		order_give(y);
	}
	printf("%u inside\n", inside);
	order_end();
}

/* More than the first notes hold. */
static CUdeviceptr many[300];

static void
free_many(void)
{
	for (unsigned i = 0; i < 300; i++)
		order_give(many[i]);
}

static void
many_freed_inside(void)
{
	begin();
	for (unsigned i = 0; i < 300; i++) {
		many[i] = order_take(SMALL);
		order_fill(many[i], i, 0, s);
	}
	call_back(free_many);
	for (unsigned i = 0; i < 300; i++) {
		many[i] = order_take(SMALL);
		order_use(many[i], i, r);
	}
	OK(cuStreamSynchronize(r));
	free_many();
	order_end();
}

/* The stream is gone before the free is done. */
static void
freed_for_a_stream_that_ends(void)
{
	begin();
	for (unsigned i = 0; i < 4; i++) {
		CUstream kept = s;

		x = order_take(SMALL);
		s = order_stream(NONBLOCKING);
		order_fill(x, 1, LONG, s);
		call_back(free_x_async);
		OK(cuStreamDestroy_v2(s));
		s = kept;
		x = order_take(SMALL);
		order_use(x, 2, r);
		OK(cuStreamSynchronize(r));
		order_give(x);
	}
	order_end();
}

/* An allocation that is allowed beside a capture looks around; a free is not allowed then. */
static void
freed_inside_before_a_capture(void)
{
	CUdeviceptr y;
	CUgraph graph;

	begin();
	x = order_take(SMALL);
	order_use(x, 1, s);
	OK(cuMemAllocAsync(&y, SMALL, r));
	OK(cuStreamSynchronize(s));
	call_back(free_x);
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemFreeAsync(y, r));
	OK(cuMemAllocAsync(&y, BIG, r));
	OK(cuStreamEndCapture(s, &graph));
	OK(cuMemFreeAsync(y, r));
	x = order_take(SMALL);
	order_use(x, 2, r);
	order_end();
}

/* The name of the free is that thread's own stream; another thread does it. */
static void
free_x_own(void)
{
	OK(cuMemFreeAsync_ptsz(x, NULL));
}

static void
free_inside_or_take(int number)
{
	CUdeviceptr y;

	OK(cuMemAllocAsync_ptsz(&y, SMALL, NULL));
	OK(cuMemFreeAsync_ptsz(y, NULL));
	pthread_barrier_wait(&both);
	if (!number) {
		OK(cuMemAllocAsync_ptsz(&x, BIG, NULL));
		OK(cuStreamSynchronize_ptsz(NULL));
		order_fill_ptsz(x, 1, LONG, NULL);
		call_back(free_x_own);
	}
	pthread_barrier_wait(&both);
	if (number) {
		OK(cuMemAllocAsync_ptsz(&y, BIG, NULL));
		order_fill_ptsz(y, 2, 0, NULL);
		OK(cuMemFreeAsync_ptsz(y, NULL));
	}
	pthread_barrier_wait(&both);
}

static void
told_freed_inside_by_another_thread(void)
{
	begin();
	pthread_barrier_init(&both, NULL, 2);
	order_threads(2, free_inside_or_take);
	order_end();
}

/* The name of the free is the legacy stream's of the context that was current then. */
static void
told_freed_inside_before_another_context(void)
{
	CUcontext first, second;
	CUdeviceptr y;

	begin();
	OK(cuCtxGetCurrent(&first));
	second = order_context(0);
	OK(cuMemAllocAsync(&y, SMALL, NULL));
	OK(cuMemFreeAsync(y, NULL));
	OK(cuCtxSynchronize());
	order_enter(first);
	s = NULL;
	OK(cuMemAllocAsync(&x, BIG, s));
	OK(cuCtxSynchronize());
	order_fill(x, 1, LONG, s);
	call_back(free_x_async);
	order_enter(second);
	OK(cuMemAllocAsync(&y, BIG, NULL));
	order_use(y, 2, NULL);
	OK(cuMemFreeAsync(y, NULL));
	order_enter(first);
	order_end();
}

/* The stream is gone, and a new one has its handle. */
static void
told_freed_inside_for_a_stream_that_ends(void)
{
	CUdeviceptr y;
	CUstream again;

	begin();
	OK(cuMemAllocAsync(&x, BIG, s));
	OK(cuCtxSynchronize());
	order_fill(x, 1, LONG, s);
	call_back(free_x_async);
	OK(cuStreamDestroy_v2(s));
	again = order_stream(NONBLOCKING);
	OK(cuMemAllocAsync(&y, BIG, again));
	order_use(y, 2, again);
	OK(cuMemFreeAsync(y, again));
	order_end();
}

/* More than can be noted, while all other calls are quick. */
static void
told_freed_inside_in_a_loop(void)
{
	uint64_t used = 0;
	CUmemoryPool pool;
	CUdeviceptr y;

	begin();
	for (unsigned i = 0; i < 300; i++)
		OK(cuMemAllocAsync(&many[i], SMALL, s));
	OK(cuMemAllocAsync(&y, SMALL, s));
	for (unsigned i = 0; i < 300; i++) {
		OK(cuMemFreeAsync(y, s));
		x = many[i];
		call_back(free_x_async);
		OK(cuMemAllocAsync(&y, SMALL, s));
	}
	OK(cuMemFreeAsync(y, s));
	OK(cuCtxSynchronize());
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	EXPECT(!used);
	order_end();
}

static _Atomic int over;

static void
free_inside_or_all_the_time(int number)
{
	CUdeviceptr y;

	if (!number) {
		for (int i = 0; i < 2000; i++) {
			OK(cuMemAllocAsync(&x, 200 * MIB, s));
			call_back(free_x_async);
		}
		over = 1;
	}
	while (!over) {
		OK(cuMemAllocAsync(&y, SMALL, r));
		OK(cuMemFreeAsync(y, r));
	}
}

/* There is memory for one of each. Another thread's frees look at what this one has to do. */
static void
told_freed_inside_beside_frees(void)
{
	begin();
	order_threads(2, free_inside_or_all_the_time);
	order_end();
}

static const struct order_case cases[] = {
	{ "told_freed_inside_beside_frees", told_freed_inside_beside_frees },
	{ "told_freed_inside_by_another_thread", told_freed_inside_by_another_thread },
	{ "told_freed_inside_before_another_context", told_freed_inside_before_another_context },
	{ "told_freed_inside_for_a_stream_that_ends", told_freed_inside_for_a_stream_that_ends },
	{ "told_freed_inside_in_a_loop", told_freed_inside_in_a_loop },
	{ "freed_inside", freed_inside },
	{ "freed_async_inside", freed_async_inside },
	{ "told_freed_inside", told_freed_inside },
	{ "freed_in_the_librarys_call", freed_in_the_librarys_call },
	{ "many_freed_inside", many_freed_inside },
	{ "freed_for_a_stream_that_ends", freed_for_a_stream_that_ends },
	{ "freed_inside_before_a_capture", freed_inside_before_a_capture },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, NULL };
