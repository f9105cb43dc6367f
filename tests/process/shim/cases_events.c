/* SPDX-License-Identifier: MIT */
/* Cases about what the program's events and synchronisation teach. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/shim/lessons.h"

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

/* The whole context waits: what is freed from now on needs more than marks on streams. */
static void
context_waits(void)
{
	CUcontext context;
	CUevent event;
	CUdeviceptr block;

	start();
	OK(cuCtxGetCurrent(&context));
	event = make_event();
	block = used_and_recorded(event);
	OK(cuCtxRecordEvent(context, event));
	OK(cuCtxWaitEvent(context, event));
	EXPECT(!comes_back(block));
	OK(cuCtxSynchronize());
	(void)take(); /* that was freed later */
	EXPECT(is_handed_out(block));
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
	CASE(destroyed_event_teaches_nothing),
	CASE(event_of_a_dead_context_teaches_nothing),
	CASE(ordinary_wait_uses_nothing),
	CASE(wait_for_another_process_uses_everything),
	CASE(event_of_another_process_teaches_nothing),
	CASE(context_waits),
	CASE(many_events),
	CASE(forked_with_events),
	CASE(shared_events),
	{ NULL, NULL },
#undef CASE
};
