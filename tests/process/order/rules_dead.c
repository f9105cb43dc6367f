/* SPDX-License-Identifier: MIT */
/* Rule 15 (T14): streams and contexts that are gone while their work is not. */
#include "tests/process/order/rules.h"

static CUstream s, r;

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
}

/* When the stream dies: before the free, between free and allocation, after that. */
static void
destroyed_with_work_pending(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 9; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 3, s);
		if (i % 3 == 0)
			OK(cuStreamDestroy_v2(s));
		order_give(x);
		if (i % 3 == 1)
			OK(cuStreamDestroy_v2(s));
		x = order_take(BIG);
		if (i % 3 == 2)
			OK(cuStreamDestroy_v2(s));
		order_use(x, 2, r);
		s = order_stream(NONBLOCKING);
		order_give(x);
	}
	order_end();
}

/* Of two streams that used it the one is gone, and the other, which comes after it, is the only one
 * for a while. */
static void
one_of_two_users_is_gone(void)
{
	CUdeviceptr x;
	CUevent event;

	begin();
	event = order_event();
	x = order_take(PART);
	order_fill(x, 1, LONG, r);
	order_give(x);
	order_fill(order_take(PART), 1, 1, s);
	for (int i = 1; i <= 4; i++) /* most memory is asked for while s is in use */
		order_fill(order_take(BIG + i * MIB), 1, 1, s);
	x = order_take(BIG);
	order_fill(x, 1, LONG, r);
	OK(cuEventRecord(event, r));
	order_fill(x + MIB, 1, 1, s);
	order_give(x);
	OK(cuStreamWaitEvent(s, event, 0));
	order_take(2 * BIG); /* s comes after both by now */
	OK(cuStreamDestroy_v2(r));
	x = order_take(BIG);
	r = order_stream(NONBLOCKING);
	order_use(x, 3, r);
	order_end();
}

/* The new stream very likely has the handle of the old one, and is another all the same. */
static void
the_handle_comes_back(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 12; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 3, s);
		if (i % 2)
			x = order_again(x, BIG);
		OK(cuStreamDestroy_v2(s));
		s = order_stream(i % 3 ? NONBLOCKING : BLOCKING);
		if (i % 2 == 0)
			x = order_again(x, BIG);
		order_use(x, 2, s);
		order_give(x);
	}
	order_end();
}

/* While the first stream is the only one ever. */
static void
the_only_stream_is_replaced(void)
{
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	for (int i = 0; i < 12; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 3, s);
		if (i % 2)
			x = order_again(x, BIG);
		OK(cuStreamDestroy_v2(s));
		s = order_stream(NONBLOCKING);
		if (i % 2 == 0)
			x = order_again(x, BIG);
		order_use(x, 2, s);
		order_give(x);
	}
	order_end();
}

/* Many streams, each for one piece of work. */
static void
a_stream_for_every_kernel(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (int i = 0; i < 600; i++) {
		CUstream one = order_stream(NONBLOCKING);

		order_fill(x, 1, i % 8 ? 0 : 100, one);
		OK(cuStreamDestroy_v2(one));
		x = order_again(x, BIG);
	}
	order_use(x, 2, r);
	order_end();
}

/* More streams alive than any table holds. */
static void
four_hundred_streams_at_once(void)
{
	static CUstream many[400];
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (int i = 0; i < 400; i++)
		many[i] = order_stream(NONBLOCKING);
	for (int i = 0; i < 400; i++) {
		order_fill(x, 1, i % 8 ? 0 : 100, many[i * 7 % 400]);
		if (i % 2)
			x = order_again(x, BIG);
		else
			OK(cuCtxSynchronize());
		if (i % 5 == 0)
			OK(cuStreamDestroy_v2(many[i]));
		if (i % 5 == 0)
			many[i] = order_stream(NONBLOCKING);
	}
	order_use(x, 2, r);
	order_end();
}

static void
the_context_dies_with_work_pending(void)
{
	CUdeviceptr x;

	OK(cuInit(0));
	for (int i = 0; i < 6; i++) {
		CUcontext context = order_context(0);

		s = order_stream(NONBLOCKING);
		r = order_stream(NONBLOCKING);
		x = order_take(BIG);
		order_fill(x, 1, LONG / 3, s);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		if (i % 2)
			order_end();
		else
			order_fill(x, 3, LONG / 3, r);
		OK(cuCtxDestroy_v2(context));
	}
}

static void
the_primary_context_is_reset(void)
{
	CUcontext context;
	CUdeviceptr x;

	OK(cuInit(0));
	for (int i = 0; i < 4; i++) {
		OK(cuDevicePrimaryCtxRetain(&context, 0));
		order_enter(context);
		s = order_stream(NONBLOCKING);
		r = order_stream(NONBLOCKING);
		x = order_take(BIG);
		order_fill(x, 1, LONG / 3, s);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_end();
		order_fill(x, 3, LONG / 3, s);
		order_give(x);
		if (i % 2)
			OK(cuDevicePrimaryCtxReset_v2(0));
		else
			OK(cuDevicePrimaryCtxRelease_v2(0));
	}
}

/* An event outlives its stream, and goes on teaching what it taught. */
static void
events_of_dead_streams(void)
{
	CUdeviceptr x;
	CUevent event;

	begin();
	event = order_event();
	for (int i = 0; i < 6; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 3, s);
		OK(cuEventRecord(event, s));
		if (i % 2)
			order_fill(x, 1, LONG / 3, s);
		OK(cuStreamDestroy_v2(s));
		s = order_stream(NONBLOCKING);
		order_fill(x + MIB, 1, LONG / 3, s);
		OK(cuStreamWaitEvent(r, event, 0));
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_use(x + MIB, 2, r);
		order_give(x);
	}
	order_end();
}

const struct order_case rules_dead[] = {
	{ "t14_destroyed_with_work_pending", destroyed_with_work_pending },
	{ "t14_one_of_two_users_is_gone", one_of_two_users_is_gone },
	{ "t14_the_handle_comes_back", the_handle_comes_back },
	{ "t14_the_only_stream_is_replaced", the_only_stream_is_replaced },
	{ "t14_a_stream_for_every_kernel", a_stream_for_every_kernel },
	{ "t14_four_hundred_streams_at_once", four_hundred_streams_at_once },
	{ "t14_the_context_dies_with_work_pending", the_context_dies_with_work_pending },
	{ "t14_the_primary_context_is_reset", the_primary_context_is_reset },
	{ "t14_events_of_dead_streams", events_of_dead_streams },
	{ NULL, NULL },
};
