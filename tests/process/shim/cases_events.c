/* SPDX-License-Identifier: MIT */
/*
 * Cases about what the program's events, synchronisations and graphs teach. A lesson is seen by its
 * effect: a block whose work is known to have finished is handed out again at once, one whose work
 * is not known must stay away. Unless said otherwise the clock is manual: work runs only for a call
 * that waits for it. Two streams exist, so the space is never quiet.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/shim/cases.h"

enum {
	BLOCK = 12 * MIB, /* a segment of its own: the next of that size would be the same */
	WORDS = 1024,
};

static CUstream one, two;
static CUdeviceptr elsewhere; /* memory that is never freed */

static void
start(void)
{
	case_start();
	OK(cuStreamCreate(&one, 1));
	OK(cuStreamCreate(&two, 1));
	OK(cuMemAlloc_v2(&elsewhere, 4096));
	case_kernel("sim_fill");
}

static CUevent
make_event(void)
{
	CUevent event;

	OK(cuEventCreate(&event, 2));
	return event;
}

static CUdeviceptr
take(void)
{
	CUdeviceptr block;

	OK(cuMemAlloc_v2(&block, BLOCK));
	return block;
}

/* Frees `block`; is it the next that is handed out? */
static bool
comes_back(CUdeviceptr block)
{
	CUdeviceptr next;

	OK(cuMemFree_v2(block));
	next = take();
	OK(cuMemFree_v2(next));
	return next == block;
}

/* Work on `one` that uses a block, and an event behind it. */
static CUdeviceptr
used_and_recorded(CUevent event)
{
	CUdeviceptr block = take();

	case_fill(block, WORDS, 1, 0, one);
	OK(cuEventRecord(event, one));
	return block;
}

static void
synchronised_event_teaches(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	case_fill(elsewhere, WORDS, 2, 0, two); /* does not finish */
	block = used_and_recorded(event);
	OK(cuEventSynchronize(event));
	EXPECT(comes_back(block));
}

static void
queried_event_teaches(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	block = used_and_recorded(event);
	EXPECT(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(one));
	OK(cuEventQuery(event));
	EXPECT(comes_back(block));
}

/* What the recorded stream had waited for has finished, too. */
static void
events_teach_across_streams(void)
{
	CUevent first, second;
	CUdeviceptr block;

	start();
	first = make_event();
	second = make_event();
	block = used_and_recorded(first);
	OK(cuStreamWaitEvent(two, first, 0));
	case_fill(elsewhere, WORDS, 2, 0, two);
	OK(cuEventRecord(second, two));
	OK(cuEventSynchronize(second));
	EXPECT(comes_back(block));
}

static void
unfinished_work_is_not_reused(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	block = used_and_recorded(event);
	OK(cuStreamSynchronize(two));
	EXPECT(!comes_back(block));
}

static void
synchronised_stream_teaches(void)
{
	CUdeviceptr block;

	start();
	case_fill(elsewhere, WORDS, 2, 0, two);
	block = take();
	case_fill(block, WORDS, 1, 0, one);
	OK(cuStreamSynchronize(one));
	EXPECT(comes_back(block));
}

static void
queried_stream_teaches(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	block = used_and_recorded(event);
	EXPECT(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(two, event, 0));
	OK(cuStreamSynchronize(two));
	OK(cuStreamQuery(one));
	EXPECT(comes_back(block));
}

static void
refused_query_teaches_nothing(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	event = make_event();
	block = used_and_recorded(event);
	EXPECT(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
	EXPECT(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
	EXPECT(!comes_back(block));
}

static void
synchronised_context_teaches(void)
{
	CUdeviceptr block;

	start();
	block = take();
	case_fill(block, WORDS, 1, 0, one);
	OK(cuCtxSynchronize());
	EXPECT(comes_back(block));
}

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

/* A new event under the old name, never recorded, has completed. */
static void
destroyed_event_teaches_nothing(void)
{
	CUevent event, again;
	CUdeviceptr block;

	start();
	event = make_event();
	block = used_and_recorded(event);
	OK(cuEventDestroy_v2(event));
	again = make_event();
	EXPECT(again == event);
	OK(cuEventQuery(again));
	OK(cuEventSynchronize(again));
	EXPECT(!comes_back(block));
}

/* Events that died with their context, and those of the next under their names. */
static void
event_of_a_dead_context_teaches_nothing(void)
{
	enum { COUNT = 1000 };
	CUcontext context, next;
	CUevent event;
	CUdeviceptr block;

	start();
	OK(cuCtxGetCurrent(&next));
	context = case_context(0);
	for (int i = 0; i < COUNT; i++)
		OK(cuEventRecord(make_event(), NULL));
	OK(cuCtxDestroy_v2(context));
	OK(cuCtxSetCurrent(next));
	case_context_died();
	block = take();
	case_fill(block, WORDS, 1, 0, one);
	for (int i = 0; i < COUNT; i++) {
		event = make_event();
		OK(cuEventQuery(event));
	}
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

static void
ordinary_wait_uses_nothing(void)
{
	CUevent event;

	start();
	event = make_event();
	(void)used_and_recorded(event);
	OK(cuStreamWaitEvent(two, event, 0));
	EXPECT(comes_back(take()));
}

static void
wait_for_another_process_uses_everything(void)
{
	CUevent event;

	start();
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	(void)used_and_recorded(event);
	OK(cuStreamWaitEvent(two, event, 0));
	EXPECT(!comes_back(take()));
}

static void
event_of_another_process_teaches_nothing(void)
{
	CUevent event;
	CUdeviceptr block;

	start();
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	block = used_and_recorded(event);
	OK(cuEventSynchronize(event));
	case_fill(elsewhere, WORDS, 2, 0, one);
	OK(cuMemFree_v2(block));
	OK(cuEventQuery(event)); /* what we may know is by marks of ours alone */
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

static bool
is_handed_out(CUdeviceptr block)
{
	CUdeviceptr next = take();

	OK(cuMemFree_v2(next));
	return next == block;
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

static void
many_events(void)
{
	enum { COUNT = 100000 };
	CUevent *events = calloc(COUNT, sizeof(CUevent));

	start();
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < COUNT; i++) {
			OK(cuEventCreate(&events[i], 2));
			if (i % 16 == 0)
				OK(cuEventRecord(events[i], one));
		}
		for (int i = 0; i < COUNT; i++)
			OK(cuEventDestroy_v2(events[i * 7919LL % COUNT]));
	}
	free(events);
}

/* The child's driver answers nothing; the parent's goes on. */
static void
forked_with_events(void)
{
	CUevent event;
	CUdeviceptr block;
	int status;
	pid_t child;

	start();
	event = make_event();
	block = used_and_recorded(event);
	child = fork();
	if (!child) {
		CUevent other;
		bool refused = cuEventQuery(event) != CUDA_SUCCESS &&
			       cuEventRecord(event, one) != CUDA_SUCCESS &&
			       cuEventCreate(&other, 0) != CUDA_SUCCESS &&
			       cuEventDestroy_v2(event) != CUDA_SUCCESS &&
			       cuCtxSynchronize() != CUDA_SUCCESS;

		_exit(refused ? 0 : 1);
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(cuEventSynchronize(event));
	EXPECT(comes_back(block));
}

/* ---- threads that share events (real clock, race oracle) */

enum { THREADS = 4, SHARED = 6, STEPS = 2000 };

static CUevent shared[SHARED];
static CUcontext shared_context;
static unsigned seed;

static void
step(unsigned *random, CUstream stream, CUdeviceptr *block)
{
	CUevent event = shared[(unsigned)rand_r(random) % SHARED];
	CUevent own;
	CUresult rc;

	switch (rand_r(random) % 8) {
	case 0:
	case 1:
		OK(cuEventRecord(event, stream));
		break;
	case 2:
	case 3:
		OK(cuStreamWaitEvent(stream, event, 0));
		break;
	case 4:
		rc = cuEventQuery(event);
		EXPECT(rc == CUDA_SUCCESS || rc == CUDA_ERROR_NOT_READY);
		break;
	case 5:
		OK(cuEventCreate(&own, 2));
		OK(cuEventRecord(own, stream));
		OK(cuEventSynchronize(own));
		OK(cuEventDestroy_v2(own));
		break;
	case 6:
		OK(cuMemFree_v2(*block));
		OK(cuMemAlloc_v2(block, 64 * KIB));
		break;
	default:
		case_fill(*block, WORDS, 7, 20, stream);
	}
}

static void *
storm(void *argument)
{
	unsigned random = seed + (unsigned)(uintptr_t)argument;
	CUdeviceptr block;
	CUstream stream;

	OK(cuCtxSetCurrent(shared_context));
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&block, 64 * KIB));
	for (int i = 0; i < STEPS; i++)
		step(&random, stream, &block);
	OK(cuStreamSynchronize(stream));
	OK(cuMemFree_v2(block));
	OK(cuStreamDestroy_v2(stream));
	return NULL;
}

static void
shared_events(void)
{
	pthread_t threads[THREADS];

	seed = (unsigned)getpid();
	printf("seed %u\n", seed);
	shared_context = case_start();
	case_kernel("sim_fill");
	for (int i = 0; i < SHARED; i++)
		shared[i] = make_event();
	for (uintptr_t i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&threads[i], NULL, storm, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

const struct test_case test_cases[] = {
#define CASE(name)                                                                                 \
	{                                                                                          \
#name, name                                                                        \
	}
	CASE(synchronised_event_teaches),
	CASE(queried_event_teaches),
	CASE(events_teach_across_streams),
	CASE(unfinished_work_is_not_reused),
	CASE(synchronised_stream_teaches),
	CASE(queried_stream_teaches),
	CASE(refused_query_teaches_nothing),
	CASE(synchronised_context_teaches),
	CASE(event_of_a_graph_teaches_nothing),
	CASE(destroyed_event_teaches_nothing),
	CASE(event_of_a_dead_context_teaches_nothing),
	CASE(captured_event_teaches_nothing),
	CASE(harmless_graph_uses_nothing),
	CASE(graph_with_a_host_function_uses_everything),
	CASE(unknown_graph_uses_everything),
	CASE(ordinary_wait_uses_nothing),
	CASE(wait_for_another_process_uses_everything),
	CASE(event_of_another_process_teaches_nothing),
	CASE(launched_graph_uses_its_memory),
	CASE(memory_of_a_graph_stays),
	CASE(memory_of_a_graph_without_an_object),
	CASE(memory_of_no_graph_is_ordinary),
	CASE(many_events),
	CASE(forked_with_events),
	CASE(shared_events),
	{ NULL, NULL },
#undef CASE
};
