/* SPDX-License-Identifier: MIT */
/*
 * The driver calls the program back in the midst of a call, as CUPTI and cuLogsRegisterCallback do,
 * and the program frees, launches or records there: `order_inside CASE`. Every case is right
 * natively. The simulator sleeps where SIMCUDA_LATENCY says so; nanosleep is the program's own, and
 * stands for the callback.
 */
#include <time.h>

#include "tests/process/order/order.h"

enum { SMALL = 1 << 16 }; /* many share a segment */

static void (*callback)(void); /* NULL: none is due */
static CUdeviceptr x;
static CUstream s, r;
static CUevent event;

int
nanosleep(const struct timespec *wanted, struct timespec *left)
{
	void (*due)(void) = callback;

	callback = NULL;
	if (due)
		due();
	return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
}

/* The call of SIMCUDA_LATENCY. */
static void
call_back(void (*function)(void))
{
	size_t free_bytes, total_bytes;

	callback = function;
	OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	EXPECT(!callback);
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
free_told(void)
{
	OK(cuMemFreeAsync(x, s));
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
		call_back(free_told);
		OK(cuMemAllocAsync(&z, SMALL, r));
		order_use(z, 2, r);
		order_check(y, 7, s);
		OK(cuMemFreeAsync(z, r));
		OK(cuMemFreeAsync(y, s));
	}
	order_end();
}

static void
launch(void)
{
	order_fill(x, 3, LONG, s);
}

static void
launch_cooperatively(void)
{
	uint64_t words = WORDS, value = 3, spin_us = LONG;
	void *args[] = { &x, &words, &value, &spin_us };

	OK(cuLaunchCooperativeKernel(order_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, s, args));
}

static void
set(void)
{
	order_fill(x, 3, LONG, s);
	OK(cuMemsetD32Async(x, 3, WORDS, s));
}

static void
launches(void (*function)(void))
{
	begin();
	x = order_take(BIG);
	order_use(x, 1, s);
	OK(cuCtxSynchronize());
	order_use(x, 1, r);
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < 4; i++) {
		call_back(function);
		x = order_again(x, BIG);
		order_use(x, 5, r);
		OK(cuStreamSynchronize(r));
	}
	order_end();
}

static void
launched_inside(void)
{
	launches(launch);
}

static void
launched_cooperatively_inside(void)
{
	launches(launch_cooperatively);
}

static void
set_inside(void)
{
	launches(set);
}

static void
record_elsewhere(void)
{
	OK(cuEventRecord(event, r));
}

/* The event stands for nothing of `s` any more. */
static void
recorded_inside(void)
{
	CUstream t;

	begin();
	t = order_stream(NONBLOCKING);
	event = order_event();
	x = order_take(BIG);
	for (unsigned i = 0; i < 4; i++) {
		order_fill(x, 1, LONG, s);
		OK(cuEventRecord(event, s));
		call_back(record_elsewhere);
		OK(cuStreamWaitEvent(t, event, 0));
		x = order_again(x, BIG);
		order_use(x, 2, t);
		x = order_again(x, BIG);
	}
	order_end();
}

/* In the midst of a call that the library makes, if it makes one: a mark or a wait. */
static void
freed_in_the_librarys_call(void)
{
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
		if (callback)
			callback();
		callback = NULL;
		x = order_take(SMALL);
		order_use(x, 3, r);
		order_give(x);
		order_give(y);
	}
	order_end();
}

static void *host;

static void
free_host(void)
{
	OK(cuMemFreeHost(host));
}

static void
page_locked_freed_inside(void)
{
	void *next;

	begin();
	for (unsigned i = 0; i < 4; i++) {
		OK(cuMemAllocHost_v2(&host, SMALL));
		order_fill((CUdeviceptr)(uintptr_t)host, 1, LONG, s);
		call_back(free_host);
		OK(cuMemAllocHost_v2(&next, SMALL));
		order_use((CUdeviceptr)(uintptr_t)next, 2, r);
		OK(cuStreamSynchronize(r));
		OK(cuMemFreeHost(next));
	}
	order_end();
}

static CUstream made;

static void
make_stream(void)
{
	made = order_stream(NONBLOCKING);
	order_fill(x, 3, LONG, made);
}

static void
stream_made_inside(void)
{
	begin();
	x = order_take(BIG);
	for (unsigned i = 0; i < 4; i++) {
		call_back(make_stream);
		x = order_again(x, BIG);
		order_use(x, 5, r);
		OK(cuStreamSynchronize(r));
	}
	order_end();
}

static CUcontext primary;

static void
retain(void)
{
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	order_enter(primary);
	order_use(order_take(BIG), 1, NULL);
}

/* In the midst of the same call: SIMCUDA_LATENCY names that one. */
static void
retained_inside(void)
{
	CUcontext same;

	OK(cuInit(0));
	callback = retain;
	OK(cuDevicePrimaryCtxRetain(&same, 0));
	EXPECT(!callback && same == primary);
	order_end();
}

static const struct order_case cases[] = {
	{ "freed_inside", freed_inside },
	{ "freed_async_inside", freed_async_inside },
	{ "told_freed_inside", told_freed_inside },
	{ "launched_inside", launched_inside },
	{ "launched_cooperatively_inside", launched_cooperatively_inside },
	{ "set_inside", set_inside },
	{ "recorded_inside", recorded_inside },
	{ "freed_in_the_librarys_call", freed_in_the_librarys_call },
	{ "page_locked_freed_inside", page_locked_freed_inside },
	{ "stream_made_inside", stream_made_inside },
	{ "retained_inside", retained_inside },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, NULL };
