/* SPDX-License-Identifier: MIT */
/* Rules 7 and 17 (T6, T16): captures, launches of graphs, and memory that only a graph knows. */
#include "tests/process/order/rules.h"

#include <stdatomic.h>

static CUstream s, r, q;
static CUdeviceptr out;
static volatile bool stop;

static void
begin(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	out = order_take(BIG);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
}

static CUgraphExec
instantiate(CUgraph graph)
{
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* ---- frees and allocations while something captures */
static void
capture_or_churn(int number)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr x;

	OK(cuThreadExchangeStreamCaptureMode(&mode));
	x = order_take(BIG);
	for (int i = 0; number == 0 && i < 120; i++) {
		CUgraph graph = NULL;

		OK(cuStreamBeginCapture_v2(q, (CUstreamCaptureMode)(i % 3)));
		order_fill(out, (uint32_t)i, 0, q);
		OK(cuStreamEndCapture(q, &graph));
		if (i % 4 == 0) {
			CUgraphExec exec = instantiate(graph);

			OK(cuGraphLaunch(exec, q));
			order_check(out, (uint32_t)i, q);
			OK(cuGraphExecDestroy(exec));
		}
		OK(cuGraphDestroy(graph));
		stop = i == 119;
	}
	for (int i = 0; number && !stop; i++) {
		order_fill(x, 1, 30, s);
		x = order_again(x, BIG);
		order_use(x, 2, i % 2 ? r : s);
		x = order_again(x, BIG);
	}
	order_give(x);
}

static void
storm_of_captures_beside_frees(void)
{
	begin();
	order_threads(2, capture_or_churn);
	order_end();
}

/* Memory was handed out before the capture began; a stream that does not capture still waits. */
static void
guards_run_while_another_stream_captures(void)
{
	CUgraph graph;
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		x = order_again(x, BIG);
		OK(cuStreamBeginCapture_v2(q, (CUstreamCaptureMode)i));
		order_fill(out, 1, 0, q);
		order_use(x, 2, r);
		OK(cuStreamEndCapture(q, &graph));
		OK(cuGraphDestroy(graph));
		order_give(x);
	}
	order_end();
}

/* The old user itself captures when its memory is wanted: no mark can be recorded there. */
static void
the_old_user_captures(void)
{
	CUgraph graph;
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		if (i % 2)
			x = order_again(x, BIG);
		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		if (i % 2 == 0)
			x = order_again(x, BIG);
		order_fill(out, 1, 0, s);
		order_use(x, 2, r);
		OK(cuStreamEndCapture(s, &graph));
		OK(cuGraphDestroy(graph));
		order_give(x);
	}
	order_end();
}

/* The old user, the only stream so far, captures when a second one comes and wants its memory. */
static void
the_only_stream_captures(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph graph;
	CUdeviceptr x;

	order_start();
	s = order_stream(NONBLOCKING);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	out = order_take(BIG);
	x = order_take(BIG);
	order_fill(x, 1, 10 * LONG, s);
	x = order_again(x, BIG);
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_fill(out, 1, 0, s);
	r = order_stream(NONBLOCKING);
	order_use(x, 2, r);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphDestroy(graph));
	order_give(x);
	order_end();
}

static _Atomic CUdeviceptr handed;
static CUevent filled;

/* Number 1 hands out what its own stream, the only one so far, still fills, and stays. The stream
 * that captures comes after that by the program's event, the other one does not. */
static void
fill_or_capture(int number)
{
	CUgraph graph;
	CUdeviceptr x;

	if (number) {
		x = order_take(BIG);
		order_fill(x, 1, 40 * LONG, CU_STREAM_PER_THREAD);
		OK(cuEventRecord(filled, CU_STREAM_PER_THREAD));
		atomic_store(&handed, order_again(x, BIG));
		while (atomic_load(&handed))
			order_sleep(10);
		return;
	}
	while (!(x = atomic_load(&handed)))
		order_sleep(10);
	q = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	OK(cuStreamWaitEvent(q, filled, 0));
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_fill(out, 1, 0, q);
	order_use(x, 2, r);
	OK(cuStreamEndCapture(q, &graph));
	OK(cuGraphDestroy(graph));
	order_give(x);
	atomic_store(&handed, 0);
}

/* Nobody but the thread itself could mark its own stream before the capture, and in the capture
 * nobody can wait for it. */
static void
a_capture_beside_anothers_own_stream(void)
{
	order_start();
	out = order_take(BIG);
	filled = order_event();
	order_threads(2, fill_or_capture);
	order_end();
}

/* The old user joins the capture of another stream before anybody wanted its memory. */
static void
the_old_user_joins_a_capture(void)
{
	CUevent fork, join;
	CUgraph graph;
	CUdeviceptr x;

	begin();
	fork = order_event();
	join = order_event();
	x = order_take(BIG);
	order_fill(out, 1, 0, q);
	order_fill(out + MIB, 1, 0, r);
	order_fill(x, 1, 10 * LONG, s);
	x = order_again(x, BIG);
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(fork, q));
	OK(cuStreamWaitEvent(s, fork, 0));
	order_fill(out, 1, 0, s);
	order_use(x, 2, r);
	OK(cuEventRecord(join, s));
	OK(cuStreamWaitEvent(q, join, 0));
	OK(cuStreamEndCapture(q, &graph));
	OK(cuGraphDestroy(graph));
	order_give(x);
	order_end();
}

static void
free_and_take_while_capturing(void)
{
	CUgraph graph;
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		OK(cuStreamEndCapture(q, &graph));
		x = order_again(x, BIG);
		order_use(x, 3, s);
		OK(cuGraphDestroy(graph));
		x = order_again(x, BIG);
	}
	order_end();
}

static void
a_capture_ends_with_its_stream(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		OK(cuStreamBeginCapture_v2(q, (CUstreamCaptureMode)i));
		order_fill(out, 1, 0, q);
		OK(cuStreamDestroy_v2(q));
		q = order_stream(NONBLOCKING);
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		x = order_again(x, BIG);
		order_use(x, 2, q);
		order_give(x);
	}
	order_end();
}

/* A capture that joins a second stream, and gives it back. */
static void
a_capture_over_two_streams(void)
{
	CUevent event;
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr x;

	begin();
	event = order_event();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		x = order_again(x, BIG);
		OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		OK(cuEventRecord(event, q));
		OK(cuStreamWaitEvent(r, event, 0));
		order_fill(x, 2, 0, r);
		OK(cuEventRecord(event, r));
		OK(cuStreamWaitEvent(q, event, 0));
		order_check(x, 2, q);
		OK(cuStreamEndCapture(q, &graph));
		exec = instantiate(graph);
		OK(cuGraphLaunch(exec, r));
		order_use(x, 3, r);
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphDestroy(graph));
		x = order_again(x, BIG);
		order_use(x, 4, q);
		order_give(x);
	}
	order_end();
}

/* ---- launches */
static CUgraphExec
graph_that_fills(CUdeviceptr x, uint32_t value)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_fill(x, value, LONG / 2, q);
	order_check(x, value, q);
	OK(cuStreamEndCapture(q, &graph));
	exec = instantiate(graph);
	OK(cuGraphDestroy(graph));
	return exec;
}

/* What a graph touches it uses as a kernel does, also when its executable is gone. */
static void
a_launched_graph_is_a_user(void)
{
	CUgraphExec exec;
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		exec = graph_that_fills(x, 5);
		OK(cuGraphLaunch(exec, s));
		if (i % 2)
			OK(cuGraphLaunch(exec, i == 3 ? r : s));
		OK(cuGraphExecDestroy(exec));
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

static void
a_launched_graph_is_guarded(void)
{
	CUgraphExec exec;
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		x = order_again(x, BIG);
		exec = graph_that_fills(x, 5);
		OK(cuGraphLaunch(exec, i % 2 ? r : q));
		order_check(x, 5, i % 2 ? r : q);
		OK(cuGraphExecDestroy(exec));
		x = order_again(x, BIG);
		order_use(x, 2, s);
		order_give(x);
	}
	order_end();
}

/* A node of a graph built by hand, launched over and over between frees of its neighbours. */
static void
a_graph_launched_again_and_again(void)
{
	CUgraphExec exec;
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	exec = graph_that_fills(x, 5);
	y = order_take(BIG);
	for (int i = 0; i < 6; i++) {
		OK(cuGraphLaunch(exec, s));
		order_fill(y, 1, 100, i % 2 ? s : r);
		y = order_again(y, BIG);
		order_use(y, 2, i % 2 ? r : s);
		y = order_again(y, BIG);
	}
	OK(cuGraphExecDestroy(exec));
	x = order_again(x, BIG);
	order_use(x, 3, r);
	order_end();
}

/* ---- memory that only a graph knows: taken and freed while it was captured */
static CUgraph
graph_with_scratch(uint32_t value)
{
	CUdeviceptr scratch;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	scratch = order_take(BIG);
	order_fill(scratch, value, 100, q);
	order_copy(out, scratch, 100, q);
	order_give(scratch);
	OK(cuStreamEndCapture(q, &graph));
	return graph;
}

/* Launches on s beside memory of the same size on r, taken now. */
static void
launch_beside_others(CUgraphExec exec, uint32_t value)
{
	CUdeviceptr x[3];

	for (int i = 0; i < 3; i++)
		x[i] = order_take(BIG);
	for (int i = 0; i < 3; i++) {
		OK(cuGraphLaunch(exec, s));
		order_use(x[i], (uint32_t)i, r);
		order_check(out, value, s);
		order_check(x[i], (uint32_t)i, r);
	}
	for (int i = 0; i < 3; i++)
		order_give(x[i]);
}

static void
scratch_of_a_graph_stays(void)
{
	CUgraph graph;
	CUgraphExec first, second;

	begin();
	for (uint32_t i = 0; i < 3; i++) {
		graph = graph_with_scratch(i);
		first = instantiate(graph);
		second = instantiate(graph);
		OK(cuGraphDestroy(graph));
		launch_beside_others(first, i);
		OK(cuGraphExecDestroy(first)); /* runs, perhaps */
		launch_beside_others(second, i);
		OK(cuGraphExecDestroy(second));
		order_use(order_take(BIG), 9, r);
		OK(cuStreamSynchronize(s));
	}
	order_end();
}

static void
scratch_stays_for_a_clone(void)
{
	CUgraph graph, clone;
	CUgraphExec exec;

	begin();
	graph = graph_with_scratch(5);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphDestroy(graph));
	order_use(order_take(BIG), 9, r);
	exec = instantiate(clone);
	OK(cuGraphDestroy(clone));
	launch_beside_others(exec, 5);
	OK(cuGraphExecDestroy(exec));
	order_use(order_take(BIG), 9, r);
	order_end();
}

static void
scratch_stays_for_a_child(void)
{
	CUgraph graph, parent;
	CUgraphNode node;
	CUgraphExec exec;

	begin();
	graph = graph_with_scratch(6);
	OK(cuGraphCreate(&parent, 0));
	OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
	OK(cuGraphDestroy(graph));
	order_use(order_take(BIG), 9, r);
	exec = instantiate(parent);
	OK(cuGraphDestroy(parent));
	launch_beside_others(exec, 6);
	OK(cuGraphExecDestroy(exec));
	order_use(order_take(BIG), 9, r);
	order_end();
}

/* The graph was never instantiated, or its capture failed: nobody can run it. */
static void
scratch_of_a_graph_that_never_runs(void)
{
	CUdeviceptr x;

	begin();
	for (int i = 0; i < 6; i++) {
		OK(cuGraphDestroy(graph_with_scratch(1)));
		x = order_take(BIG);
		order_fill(x, 1, 100, s);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

const struct order_case rules_captures[] = {
	{ "t6_storm_of_captures_beside_frees", storm_of_captures_beside_frees },
	{ "t6_guards_run_while_another_stream_captures", guards_run_while_another_stream_captures },
	{ "t6_the_old_user_captures", the_old_user_captures },
	{ "t6_the_only_stream_captures", the_only_stream_captures },
	{ "t6_a_capture_beside_anothers_own_stream", a_capture_beside_anothers_own_stream },
	{ "t6_the_old_user_joins_a_capture", the_old_user_joins_a_capture },
	{ "t6_free_and_take_while_capturing", free_and_take_while_capturing },
	{ "t6_a_capture_ends_with_its_stream", a_capture_ends_with_its_stream },
	{ "t6_a_capture_over_two_streams", a_capture_over_two_streams },
	{ "t6_a_launched_graph_is_a_user", a_launched_graph_is_a_user },
	{ "t6_a_launched_graph_is_guarded", a_launched_graph_is_guarded },
	{ "t6_a_graph_launched_again_and_again", a_graph_launched_again_and_again },
	{ "t16_scratch_of_a_graph_stays", scratch_of_a_graph_stays },
	{ "t16_scratch_stays_for_a_clone", scratch_stays_for_a_clone },
	{ "t16_scratch_stays_for_a_child", scratch_stays_for_a_child },
	{ "t16_scratch_of_a_graph_that_never_runs", scratch_of_a_graph_that_never_runs },
	{ NULL, NULL },
};
