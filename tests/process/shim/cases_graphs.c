/* SPDX-License-Identifier: MIT */
/* Cases about what captures and graphs teach, use and keep; a part of cases_events. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/shim/lessons.h"

static CUgraphExec
recording_graph(CUevent event)
{
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

/* The launch records the event anew, on another stream: its completion says nothing about the
 * block. */
static void
event_of_a_graph_teaches_nothing(void)
{
	CUgraphExec exec;
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	exec = recording_graph(event);
	block = used_and_recorded(event);
	OK(cuGraphLaunch(exec, two));
	OK(cuEventSynchronize(event));
	OK(cuStreamSynchronize(two)); /* or it would be the block's user itself */
	EXPECT(!comes_back(block));
}

static CUgraphExec
captured(CUevent event, CUhostFn function)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_RELAXED));
	case_fill(elsewhere, WORDS, 1, 0, two);
	if (event)
		OK(cuEventRecord(event, two));
	if (function)
		OK(cuLaunchHostFunc(two, function, NULL));
	OK(cuStreamEndCapture(two, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

static void
captured_event_teaches_nothing(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	block = used_and_recorded(event);
	(void)captured(event, NULL);
	EXPECT(cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT);
	EXPECT(!comes_back(block));
}

static void
do_nothing(void *argument)
{
}

/* Nobody used the block; but what may have to wait for somebody counts as a user of everything. */
static void
harmless_graph_uses_nothing(void)
{
	start();
	OK(cuGraphLaunch(captured(NULL, NULL), two));
	EXPECT(comes_back(take()));
}

static void
graph_with_a_host_function_uses_everything(void)
{
	start();
	OK(cuGraphLaunch(captured(NULL, do_nothing), two));
	EXPECT(!comes_back(take()));
}

/* SIMCUDA_FAIL=cuGraphGetNodes:1+:...: what is in it is not known. */
static void
unknown_graph_uses_everything(void)
{
	start();
	OK(cuGraphLaunch(captured(NULL, NULL), two));
	EXPECT(!comes_back(take()));
}

/* A launch uses what it names, on every stream it is launched to. */
static void
launched_graph_uses_its_memory(void)
{
	CUdeviceptr block;
	CUgraphExec exec;
	CUgraph graph;

	start();
	block = take();
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	case_fill(block, WORDS, 1, 0, one);
	OK(cuStreamEndCapture(one, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, one));
	OK(cuGraphLaunch(exec, two)); /* after the first, as launches of one executable are */
	OK(cuGraphExecDestroy(exec));
	OK(cuStreamSynchronize(one));
	EXPECT(!comes_back(block));
}

/* Memory handed out and freed while a graph was captured that uses it. */
static CUdeviceptr
born_in_capture(CUgraph *ret_graph)
{
	CUdeviceptr block;

	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	block = take();
	case_fill(block, WORDS, 1, 0, one);
	OK(cuMemFree_v2(block));
	OK(cuStreamEndCapture(one, ret_graph));
	return block;
}

/* The destructor of a user object runs some time after the last graph is gone, and it is looked for
 * when memory is needed. */
static void
wait_until_handed_out(CUdeviceptr block)
{
	enum { MOST = 500 };
	CUdeviceptr taken[MOST];
	int n = 0;

	do {
		EXPECT(n < MOST);
		OK(cuCtxSynchronize());
		usleep(1000);
		taken[n] = take();
	} while (taken[n++] != block);
	while (n)
		OK(cuMemFree_v2(taken[--n]));
}

static void
memory_of_a_graph_stays(void)
{
	CUgraphExec first, second;
	CUgraph graph, clone;
	CUdeviceptr block;

	start();
	block = born_in_capture(&graph);
	EXPECT(!is_handed_out(block));
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphInstantiateWithFlags(&first, graph, 0));
	OK(cuGraphInstantiateWithFlags(&second, clone, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(clone));
	for (int i = 0; i < 10; i++) {
		CUdeviceptr other = take();

		EXPECT(other != block);
		case_fill(other, WORDS, 3, 0, two);
		OK(cuGraphLaunch(i & 1 ? first : second, one));
		OK(cuMemFree_v2(other));
		OK(cuCtxSynchronize());
	}
	OK(cuGraphExecDestroy(first));
	EXPECT(!is_handed_out(block));
	OK(cuGraphLaunch(second, one));
	OK(cuGraphExecDestroy(second));
	EXPECT(!is_handed_out(block));
	wait_until_handed_out(block);
}

/* SIMCUDA_FAIL=cuUserObjectCreate:1:...: as natively, the memory goes back to the driver. */
static void
memory_of_a_graph_without_an_object(void)
{
	CUdeviceptr block;
	CUgraph graph;

	start();
	block = born_in_capture(&graph);
	for (int i = 0; i < 10; i++) {
		OK(cuCtxSynchronize());
		(void)is_handed_out(block);
	}
	OK(cuGraphDestroy(graph));
}

/* A capture that fails leaves nothing behind. */
static void
memory_of_no_graph_is_ordinary(void)
{
	CUdeviceptr block;
	CUgraph graph;

	start();
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	block = take();
	case_fill(block, WORDS, 1, 0, one);
	OK(cuMemFree_v2(block));
	EXPECT(cuStreamQuery(one) != CUDA_SUCCESS); /* invalidates it */
	EXPECT(cuStreamEndCapture(one, &graph) != CUDA_SUCCESS);
	wait_until_handed_out(block);
}

const struct test_case more_test_cases[] = {
#define CASE(name)                                                                                 \
	{                                                                                          \
#name, name                                                                        \
	}
	CASE(event_of_a_graph_teaches_nothing), CASE(captured_event_teaches_nothing),
	CASE(harmless_graph_uses_nothing),      CASE(graph_with_a_host_function_uses_everything),
	CASE(unknown_graph_uses_everything),    CASE(launched_graph_uses_its_memory),
	CASE(memory_of_a_graph_stays),          CASE(memory_of_a_graph_without_an_object),
	CASE(memory_of_no_graph_is_ordinary),   { NULL, NULL },
#undef CASE
};
