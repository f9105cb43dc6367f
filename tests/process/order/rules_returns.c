/* SPDX-License-Identifier: MIT */
/* Rule 18 (T17): memory that may still be used, when the driver must get it back. */
#include "tests/process/order/rules.h"

enum { WANTED = 4 * BIG, ROOM = WANTED - MIB };

static CUstream s, r, q;
static CUdeviceptr rest;

/* All but ROOM bytes of the device are taken, so WANTED are there only when `x` is back. */
static void
begin(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t left, total;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	order_kernel("sim_fill");
	order_give(order_take(BIG)); /* where magazines are warm, the quick way */
	OK(cuMemGetInfo_v2(&left, &total));
	rest = order_take((left - ROOM) / (2 * MIB) * (2 * MIB));
}

static void
end(CUdeviceptr y)
{
	order_use(y, 2, r);
	order_give(y);
	order_give(rest);
	order_end();
}

static CUgraph
end_capture(CUstream stream)
{
	CUgraph graph;

	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

static void
while_captured(const CUstream *stream)
{
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	order_fill(x, 1, 4 * LONG, s);
	order_give(x);
	OK(cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	y = order_take(WANTED);
	OK(cuGraphDestroy(end_capture(*stream)));
	end(y);
}

static void
while_another_stream_captures(void)
{
	while_captured(&q);
}

static void
while_its_stream_captures(void)
{
	while_captured(&s);
}

/* Freed in the capture: no mark can be recorded any more. */
static void
freed_in_a_capture(void)
{
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_fill(x, 1, 4 * LONG, s);
	order_give(x);
	y = order_take(WANTED);
	OK(cuGraphDestroy(end_capture(q)));
	end(y);
}

/* The graph's own memory: nobody knows its users, and it is never reused while the graph lives. */
static CUgraphExec
run_graph_with_memory(CUdeviceptr *ret_x)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	*ret_x = order_take(BIG);
	order_fill(*ret_x, 1, 4 * LONG, q);
	graph = end_capture(q);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphLaunch(exec, s));
	return exec;
}

static void
of_a_graph_that_runs(void)
{
	CUgraphExec exec;
	CUdeviceptr x, y;

	begin();
	exec = run_graph_with_memory(&x);
	order_give(x);
	y = order_take(WANTED);
	end(y);
	OK(cuGraphExecDestroy(exec));
}

/* The same in a capture, by the same stream or another. */
static void
of_a_graph_that_runs_in_a_capture(void)
{
	CUgraphExec exec;
	CUdeviceptr x, y;

	begin();
	exec = run_graph_with_memory(&x);
	order_give(x);
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	y = order_take(WANTED);
	OK(cuGraphDestroy(end_capture(q)));
	end(y);
	OK(cuGraphExecDestroy(exec));
}

const struct order_case rules_returns[] = {
	{ "t17_memory_in_use_while_another_stream_captures", while_another_stream_captures },
	{ "t17_memory_in_use_while_its_stream_captures", while_its_stream_captures },
	{ "t17_memory_freed_in_a_capture", freed_in_a_capture },
	{ "t17_memory_of_a_graph_that_runs", of_a_graph_that_runs },
	{ "t17_memory_of_a_graph_that_runs_in_a_capture", of_a_graph_that_runs_in_a_capture },
	{ NULL, NULL },
};
