/* SPDX-License-Identifier: MIT */
/*
 * Rule 16 (T15): programs for test_failures.py, in which calls fail that the program does not make.
 * Where the program needs one of those itself, it uses another name for it.
 */
#include "tests/process/order/order.h"

static CUstream
make_stream(unsigned flags)
{
	CUstream stream;

	OK(cuStreamCreateWithPriority(&stream, flags, 0));
	return stream;
}

/* The only calls to the driver besides ours are launches. */
static void
streams_of_all_kinds(void)
{
	CUstream streams[5];
	CUdeviceptr x;

	order_start();
	streams[0] = make_stream(NONBLOCKING);
	streams[1] = make_stream(NONBLOCKING);
	streams[2] = make_stream(BLOCKING);
	streams[3] = NULL;
	streams[4] = CU_STREAM_PER_THREAD;
	x = order_take(BIG);
	for (unsigned i = 0; i < 30; i++) {
		order_fill(x, i, 200, streams[i % 5]);
		x = order_again(x, BIG);
		order_use(x, i, streams[i * 3 % 5]);
		x = order_again(x, BIG);
	}
	order_end();
}

/* The marks of a stream that dies, and of one whose handle comes back. */
static void
streams_that_die(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	r = make_stream(NONBLOCKING);
	x = order_take(BIG);
	for (unsigned i = 0; i < 8; i++) {
		s = make_stream(NONBLOCKING);
		order_fill(x, i, 300, s);
		x = order_again(x, BIG);
		OK(cuStreamDestroy(s));
		order_use(x, i, r);
		x = order_again(x, BIG);
	}
	order_end();
}

/* Memory whose user is a programmatic launch, a graph, a capturing stream. */
static void
captures_and_graphs(void)
{
	CUstream s, r, q;
	CUdeviceptr x, y;
	CUgraph graph;
	CUgraphExec exec;

	order_start();
	s = make_stream(NONBLOCKING);
	r = make_stream(NONBLOCKING);
	q = make_stream(NONBLOCKING);
	y = order_take(BIG);
	for (unsigned i = 0; i < 6; i++) {
		x = order_take(BIG);
		order_fill(x, 1, 300, s);
		x = order_again(x, BIG);
		OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		order_fill(y, 5, 0, q);
		order_use(x, 2, r);
		OK(cuStreamEndCapture(q, &graph));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, q));
		order_check(y, 5, q);
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphDestroy(graph));
		order_give(x);
	}
	order_end();
}

/* Little memory: the ladder waits for marks. */
static void
little_memory(void)
{
	CUdeviceptr x[4];
	CUstream s, r;

	order_start();
	s = make_stream(NONBLOCKING);
	r = make_stream(NONBLOCKING);
	for (unsigned i = 0; i < 8; i++) {
		for (unsigned n = 0; n < 4; n++)
			x[n] = order_take((size_t)(i % 2 ? BIG : BIG + 2 * MIB));
		for (unsigned n = 0; n < 4; n++)
			order_use(x[n], n, n % 2 ? s : r);
		for (unsigned n = 0; n < 4; n++)
			order_give(x[n]);
	}
	order_end();
}

static const struct order_case cases[] = {
	{ "streams_of_all_kinds", streams_of_all_kinds },
	{ "streams_that_die", streams_that_die },
	{ "captures_and_graphs", captures_and_graphs },
	{ "little_memory", little_memory },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, NULL };
