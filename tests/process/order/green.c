/* SPDX-License-Identifier: MIT */
/*
 * Memory that streams of green contexts use, freed and handed out again: `order_green CASE`. Every
 * case is right natively, where cuMemFree waits for the primary context and its green contexts.
 */
#include "tests/process/order/order.h"

static CUdevResourceDesc
description(void)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	unsigned n = 1;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevSmResourceSplitByCount(&part, &n, &all, NULL, 0, 8));
	EXPECT(n == 1);
	OK(cuDevResourceGenerateDesc(&desc, &part, 1));
	return desc;
}

static CUgreenCtx
green_make(void)
{
	CUgreenCtx green;

	OK(cuGreenCtxCreate(&green, description(), 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

static CUstream
green_stream(CUgreenCtx green)
{
	CUstream stream;

	OK(cuGreenCtxStreamCreate(&stream, green, NONBLOCKING, 0));
	return stream;
}

static CUcontext
green_context(CUgreenCtx green)
{
	CUcontext context;

	OK(cuCtxFromGreenCtx(&context, green));
	return context;
}

/* --------------------------------------------------- streams of their own --- */
static void
old_user(void)
{
	CUdeviceptr memory;
	CUstream green, next;

	order_start();
	green = green_stream(green_make());
	next = order_stream(NONBLOCKING);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, green);
	memory = order_again(memory, BIG);
	order_use(memory, 2, next);
	order_end();
}

static void
next_user(void)
{
	CUdeviceptr memory;
	CUstream green, old;

	order_start();
	green = green_stream(green_make());
	old = order_stream(NONBLOCKING);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	memory = order_again(memory, BIG);
	order_use(memory, 2, green);
	order_end();
}

static void
one_after_another(void)
{
	CUdeviceptr memory;
	CUstream old, next;

	order_start();
	old = green_stream(green_make());
	next = green_stream(green_make());
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	memory = order_again(memory, BIG);
	order_use(memory, 2, next);
	order_end();
}

/* Memory handed out unfinished is there when the first green context comes. */
static void
made_after_the_memory(void)
{
	CUdeviceptr memory;
	CUstream old;

	order_start();
	old = order_stream(NONBLOCKING);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	memory = order_again(memory, BIG);
	order_use(memory, 2, green_stream(green_make()));
	order_end();
}

static void
made_after_the_free(void)
{
	CUdeviceptr memory;
	CUstream old, green;

	order_start();
	old = order_stream(NONBLOCKING);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	order_give(memory);
	green = green_stream(green_make());
	memory = order_take(BIG);
	order_use(memory, 2, green);
	order_end();
}

static void
launched_as_a_graph(void)
{
	CUdeviceptr memory;
	CUgraphExec exec;
	CUgraph graph;
	CUstream green;

	order_start();
	green = green_stream(green_make());
	memory = order_take(BIG);
	OK(cuStreamBeginCapture_v2(green, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	order_fill(memory, 1, LONG, green);
	OK(cuStreamEndCapture(green, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, green));
	memory = order_again(memory, BIG);
	order_use(memory, 2, order_stream(NONBLOCKING));
	order_end();
}

/* -------------------------------------------------------------- current --- */
static void
default_stream(void)
{
	CUcontext primary = order_start(), green = green_context(green_make());
	CUdeviceptr memory = order_take(BIG);
	CUstream next = order_stream(NONBLOCKING);

	order_enter(green);
	order_fill(memory, 1, LONG, NULL);
	order_enter(primary);
	memory = order_again(memory, BIG);
	order_use(memory, 2, next);
	order_end();
}

static void
next_on_the_default_stream(void)
{
	CUcontext primary = order_start(), green = green_context(green_make());
	CUdeviceptr memory = order_take(BIG);
	CUstream old = order_stream(BLOCKING);

	order_fill(memory, 1, LONG, old);
	memory = order_again(memory, BIG);
	order_enter(green);
	order_use(memory, 2, NULL);
	order_end();
	order_enter(primary);
	order_end();
}

/* Freed, and taken again, while the green context is current: the same memory, elsewhere used. */
static void
freed_in_it(void)
{
	CUcontext primary = order_start(), green = green_context(green_make());
	CUdeviceptr memory = order_take(BIG);
	CUstream old = order_stream(NONBLOCKING);

	order_fill(memory, 1, LONG, old);
	order_enter(green);
	order_give(memory);
	order_enter(primary);
	memory = order_take(BIG);
	order_use(memory, 2, order_stream(NONBLOCKING));
	order_end();
}

static void
taken_in_it(void)
{
	CUcontext primary = order_start(), green = green_context(green_make());
	CUstream old = order_stream(NONBLOCKING), next = order_stream(NONBLOCKING);
	CUdeviceptr memory;

	order_enter(green);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	memory = order_again(memory, BIG);
	order_use(memory, 2, next);
	order_enter(primary);
	order_end();
	order_give(memory);
}

/* A stream that the ordinary name makes while the green context is current. */
static void
stream_made_in_it(void)
{
	CUcontext primary = order_start(), green = green_context(green_make());
	CUdeviceptr memory = order_take(BIG);
	CUstream old, next = order_stream(NONBLOCKING);

	order_enter(green);
	old = order_stream(NONBLOCKING);
	order_enter(primary);
	order_fill(memory, 1, LONG, old);
	memory = order_again(memory, BIG);
	order_use(memory, 2, next);
	order_end();
}

/* ---------------------------------------------------------------- events --- */
static void
waits_for_an_event(void)
{
	CUdeviceptr memory;
	CUstream green, next;
	CUevent event;

	order_start();
	event = order_event();
	green = green_stream(green_make());
	next = order_stream(NONBLOCKING);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, green);
	OK(cuEventRecord(event, green));
	OK(cuStreamWaitEvent(next, event, 0));
	order_check(memory, 1, next);
	memory = order_again(memory, BIG);
	order_use(memory, 2, order_stream(NONBLOCKING));
	order_end();
}

static void
event_of_all_of_it(void)
{
	CUgreenCtx green;
	CUdeviceptr memory;
	CUevent event;

	order_start();
	green = green_make();
	event = order_event();
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, green_stream(green));
	OK(cuGreenCtxRecordEvent(green, event));
	OK(cuEventSynchronize(event));
	order_use(memory, 2, order_stream(NONBLOCKING));
	memory = order_again(memory, BIG);
	order_use(memory, 3, green_stream(green));
	order_end();
}

static void
all_of_it_waits(void)
{
	CUstream old, next;
	CUgreenCtx green;
	CUdeviceptr memory;
	CUevent event;

	order_start();
	green = green_make();
	event = order_event();
	old = order_stream(NONBLOCKING);
	next = green_stream(green);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	OK(cuEventRecord(event, old));
	OK(cuGreenCtxWaitEvent(green, event));
	order_use(memory, 2, next);
	memory = order_again(memory, BIG);
	order_use(memory, 3, old);
	order_end();
}

/* A wait for the primary context is one for its green ones. */
static void
synchronised_with_the_primary(void)
{
	CUdeviceptr memory;

	order_start();
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, green_stream(green_make()));
	OK(cuCtxSynchronize());
	order_use(memory, 2, order_stream(NONBLOCKING));
	memory = order_again(memory, BIG);
	order_use(memory, 3, order_stream(NONBLOCKING));
	order_end();
}

/* ----------------------------------------------------------------- ends --- */
static void
destroyed_meanwhile(void)
{
	CUgreenCtx green;
	CUdeviceptr memory;
	CUstream old;

	order_start();
	green = green_make();
	old = green_stream(green);
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	OK(cuGreenCtxDestroy(green));
	EXPECT((int)cuStreamQuery(old) == CUDA_ERROR_STREAM_DETACHED);
	memory = order_again(memory, BIG);
	order_use(memory, 2, order_stream(NONBLOCKING));
	OK(cuStreamDestroy_v2(old));
	order_end();
}

static void
stream_destroyed_meanwhile(void)
{
	CUdeviceptr memory;
	CUstream old;

	order_start();
	old = green_stream(green_make());
	memory = order_take(BIG);
	order_fill(memory, 1, LONG, old);
	OK(cuStreamDestroy_v2(old));
	memory = order_again(memory, BIG);
	order_use(memory, 2, order_stream(NONBLOCKING));
	order_end();
}

/* The green context holds the last usage of the primary one, which ends with it. */
static void
holds_the_primary(void)
{
	CUdeviceptr memory, before;
	CUgreenCtx green;
	CUcontext primary;

	primary = order_start();
	green = green_make();
	before = order_take(BIG);
	order_fill(before, 1, LONG, green_stream(green));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	order_use(order_take(BIG), 2, order_stream(NONBLOCKING));
	OK(cuGreenCtxDestroy(green));
	EXPECT(cuMemAlloc_v2(&memory, BIG) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	order_enter(primary);
	memory = order_take(BIG);
	order_use(memory, 3, order_stream(NONBLOCKING));
	memory = order_again(memory, BIG);
	order_use(memory, 4, order_stream(NONBLOCKING));
	order_end();
}

/* An ordinary context gets the handle of a green one that is gone. */
static void
the_handle_comes_back(void)
{
	CUgreenCtx green;
	CUcontext old;

	order_start();
	green = green_make();
	old = green_context(green);
	OK(cuGreenCtxDestroy(green));
	EXPECT(order_context(0) == old);
	for (unsigned i = 0; i < 100; i++)
		order_give(order_take(BIG));
	order_end();
}

#define CASES(X)                                                                                   \
	X(old_user)                                                                                \
	X(next_user)                                                                               \
	X(one_after_another)                                                                       \
	X(made_after_the_memory)                                                                   \
	X(made_after_the_free)                                                                     \
	X(launched_as_a_graph)                                                                     \
	X(default_stream)                                                                          \
	X(next_on_the_default_stream)                                                              \
	X(freed_in_it)                                                                             \
	X(taken_in_it)                                                                             \
	X(stream_made_in_it)                                                                       \
	X(waits_for_an_event)                                                                      \
	X(event_of_all_of_it)                                                                      \
	X(all_of_it_waits)                                                                         \
	X(synchronised_with_the_primary)                                                           \
	X(destroyed_meanwhile)                                                                     \
	X(stream_destroyed_meanwhile)                                                              \
	X(holds_the_primary)                                                                       \
	X(the_handle_comes_back)

static const struct order_case green[] = {
#define X(name) { #name, name },
	CASES(X)
#undef X
		{ NULL, NULL },
};

const struct order_case *const order_cases[] = { green, NULL };
