/* SPDX-License-Identifier: MIT */
/* Cases about streams that come and go; test_streams.py knows the knobs each is run with. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/process/shim/cases.h"

enum { THREADS = 8, ROUNDS = 12, BLOCK = 64 * KIB, WORDS = BLOCK / 4 };

static void
fill_per_thread(CUdeviceptr target, uint64_t words, uint64_t value, CUstream stream)
{
	uint64_t spin_us = 20;
	void *args[] = { &target, &words, &value, &spin_us };

	OK(cuLaunchKernel_ptsz(case_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/* A stream that has the handle of a destroyed one is ordered after nothing that went there. */
static void
a_handle_comes_back(void)
{
	const size_t size = 12 * MIB; /* a segment of its own: the same one again, or a new one */
	CUstream old, fresh, other;
	CUdeviceptr kept, first, second;
	unsigned same = 0;

	case_start();
	OK(cuStreamCreate(&other, 1));
	OK(cuMemAlloc_v2(&kept, BLOCK));
	case_fill(kept, WORDS, 1, 0,
		  other); /* whose stream it is, is known: memory may be exposed */
	OK(cuStreamSynchronize(other));
	for (int i = 0; i < 20; i++) {
		OK(cuStreamCreate(&old, 1));
		OK(cuMemAlloc_v2(&first, size));
		case_fill(first, WORDS, 1, 0, old);
		OK(cuMemFree_v2(first));
		case_fill(kept, WORDS, 1, 0, old); /* by now `first` is marked */
		OK(cuStreamDestroy_v2(old));
		OK(cuStreamCreate(&fresh, 1));
		same += fresh == old;
		OK(cuMemAlloc_v2(&second, size));
		case_fill(second, WORDS, 2, 0, fresh);
		OK(cuStreamSynchronize(fresh));
		OK(cuStreamDestroy_v2(fresh));
		OK(cuMemFree_v2(second));
		OK(cuCtxSynchronize());
	}
	EXPECT(same > 0);
}

/* The one stream of a process, made and destroyed around each step. */
static void
one_stream_at_a_time(void)
{
	CUdeviceptr pointer;
	CUstream stream;

	case_start();
	for (int i = 0; i < 500; i++) {
		OK(cuStreamCreate(&stream, i % 2 ? 1 : 0));
		OK(cuMemAlloc_v2(&pointer, BLOCK));
		case_fill(pointer, WORDS, (uint64_t)i, i % 7, stream);
		OK(cuMemFree_v2(pointer));
		if (i % 3 == 0)
			OK(cuStreamSynchronize(stream));
		OK(cuStreamDestroy_v2(stream));
	}
}

/* The driver refuses to destroy a stream: it goes on, with what it did not finish. */
static void
destroy_is_refused(void)
{
	const size_t size = 12 * MIB;
	CUdeviceptr first, second;
	CUstream stream, other;

	case_start();
	OK(cuStreamCreate(&other, 1));
	OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < 3; i++) {
		OK(cuMemAlloc_v2(&first, size));
		case_fill(first, WORDS, 1, 0, stream);
		OK(cuMemFree_v2(first));
		EXPECT((cuStreamDestroy_v2(stream) != 0) == (i < 2));
		OK(cuMemAlloc_v2(&second, size));
		case_fill(second, WORDS, 2, 0, i < 2 ? stream : other);
		OK(cuMemFree_v2(second));
	}
	OK(cuCtxSynchronize());
}

/* More streams at a time than are tracked. */
static void
very_many_streams(void)
{
	enum { MANY = 400 };
	CUstream streams[MANY];
	CUdeviceptr pointer;

	case_start();
	for (int i = 0; i < MANY; i++)
		OK(cuStreamCreate(&streams[i], 1));
	for (int i = 0; i < 3 * MANY; i++) {
		OK(cuMemAlloc_v2(&pointer, BLOCK));
		case_fill(pointer, WORDS, (uint64_t)i, 0, streams[i * 7 % MANY]);
		OK(cuMemFree_v2(pointer));
	}
	for (int i = 0; i < MANY; i++)
		OK(cuStreamDestroy_v2(streams[i]));
}

/* ---- threads that end */

static CUcontext shared;
static CUdeviceptr left[THREADS]; /* by the threads of the round before */

static void *
work_and_end(void *arg)
{
	CUdeviceptr *mine = arg;
	CUdeviceptr own;

	OK(cuCtxSetCurrent(shared));
	for (int i = 0; i < 10; i++) {
		OK(cuMemAlloc_v2(&own, BLOCK));
		fill_per_thread(own, WORDS, 7, i % 2 ? NULL : CU_STREAM_PER_THREAD);
		if (*mine)
			OK(cuMemFree_v2(*mine)); /* a thread that is gone may still use it */
		*mine = own;
	}
	return NULL;
}

static void
threads_end(void)
{
	pthread_t threads[THREADS];

	shared = case_start();
	case_kernel("sim_fill");
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < THREADS; i++)
			EXPECT(!pthread_create(&threads[i], NULL, work_and_end,
					       &left[(i + round) % THREADS]));
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	for (int i = 0; i < THREADS; i++)
		OK(cuMemFree_v2(left[i]));
	OK(cuCtxSynchronize());
}

/* Each thread's own streams, blocks freed by the next thread. */
static _Atomic CUdeviceptr passed[THREADS];

static void *
make_and_destroy(void *arg)
{
	uintptr_t self = (uintptr_t)arg;
	CUdeviceptr pointer;
	CUstream stream;

	OK(cuCtxSetCurrent(shared));
	for (int i = 0; i < 60; i++) {
		OK(cuStreamCreate(&stream, 1));
		OK(cuMemAlloc_v2(&pointer, BLOCK));
		case_fill(pointer, WORDS, self, 5, stream);
		pointer = atomic_exchange(&passed[(self + 1) % THREADS], pointer);
		if (pointer)
			OK(cuMemFree_v2(pointer));
		OK(cuStreamDestroy_v2(stream));
	}
	return NULL;
}

static void
threads_make_and_destroy(void)
{
	pthread_t threads[THREADS];

	shared = case_start();
	case_kernel("sim_fill");
	for (uintptr_t i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&threads[i], NULL, make_and_destroy, (void *)i)); // NOLINT
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		OK(cuMemFree_v2(passed[i]));
	OK(cuCtxSynchronize());
}

/* ---- contexts */

/* A created stream is its own context's, whatever is current; contexts die with their streams. */
static void
streams_of_contexts(void)
{
	CUcontext one = case_context(0), two;
	CUdeviceptr mine, theirs, copy;
	CUstream stream, inner;

	OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < 20; i++) {
		OK(cuMemAlloc_v2(&mine, BLOCK));
		two = case_context(i % 2);
		OK(cuStreamCreate(&inner, i % 3 ? 1 : 0));
		OK(cuMemAlloc_v2(&theirs, BLOCK));
		case_fill(theirs, WORDS, 1, 5, inner);
		OK(cuMemcpyDtoDAsync_v2(mine, theirs, BLOCK, inner)); /* across */
		OK(cuMemFree_v2(theirs));
		OK(cuMemAlloc_v2(&theirs, BLOCK));
		case_fill(theirs, WORDS, 2, 0, inner);
		OK(cuStreamSynchronize(inner));
		OK(cuMemsetD8Async(mine, 3, BLOCK, stream));
		OK(cuCtxSetCurrent(one));
		case_context_died();
		OK(cuMemFree_v2(mine));
		OK(cuMemAlloc_v2(&copy, BLOCK));
		OK(cuMemsetD8Async(copy, 4, BLOCK, stream));
		OK(cuMemFree_v2(copy));
		OK(cuCtxDestroy_v2(two));
	}
	OK(cuStreamSynchronize(stream));
}

/* ---- default streams */

/* One default stream has several names, which mean the same record. */
static void
names_of_default_streams(void)
{
	CUdeviceptr pointer;

	case_start();
	for (int i = 0; i < 200; i++) {
		OK(cuMemAlloc_v2(&pointer, BLOCK));
		if (i % 4 < 2)
			case_fill(pointer, WORDS, 1, 2, i % 2 ? NULL : CU_STREAM_LEGACY);
		else
			fill_per_thread(pointer, WORDS, 2, i % 2 ? NULL : CU_STREAM_PER_THREAD);
		if (i % 5 == 0)
			case_fill(pointer, WORDS, 3, 0, CU_STREAM_PER_THREAD);
		if (i % 7 == 0)
			fill_per_thread(pointer, WORDS, 4, CU_STREAM_LEGACY);
		OK(cuMemFree_v2(pointer));
	}
	OK(cuCtxSynchronize());
}

/*
 * The manual clock runs only what a wait needs. So if a mark of ours on the legacy stream were a
 * barrier for the blocking streams, waiting for one of them would run the other's work, too.
 */
static void
marks_are_no_barriers(void)
{
	CUdeviceptr used, kept, other;
	CUstream slow, quick;

	case_start();
	OK(cuStreamCreate(&slow, 0));
	OK(cuStreamCreate(&quick, 0));
	OK(cuMemAlloc_v2(&kept, BLOCK));
	OK(cuMemAlloc_v2(&used, BLOCK));
	case_fill(used, WORDS, 1, 0, NULL);
	case_fill(kept, WORDS, 1, 0, slow); /* behind the legacy stream's work */
	OK(cuMemFree_v2(used));
	OK(cuMemAlloc_v2(&other, BLOCK)); /* polls what waits */
	case_fill(other, WORDS, 1, 0, quick);
	OK(cuStreamSynchronize(quick));
	EXPECT(cuStreamQuery(slow) == CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(slow));
	OK(cuMemFree_v2(kept));
	OK(cuMemFree_v2(other));
}

/* ---- captures */

static _Atomic bool stop;

static void *
work_beside(void *arg)
{
	CUstreamCaptureMode mode = 2; /* relaxed: the driver allows everything */
	CUdeviceptr pointer;
	CUstream streams[2];

	OK(cuCtxSetCurrent(shared));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuStreamCreate(&streams[0], 1));
	OK(cuStreamCreate(&streams[1], 1));
	for (unsigned i = 0; !stop; i++) {
		OK(cuMemAlloc_v2(&pointer, BLOCK));
		case_fill(pointer, WORDS, i, i % 5, streams[i % 2]);
		OK(cuMemFree_v2(pointer));
	}
	OK(cuStreamDestroy_v2(streams[0]));
	OK(cuStreamDestroy_v2(streams[1]));
	return NULL;
}

/* Other streams go on, guarded, while captures begin and end. */
static void
captures_beside(void)
{
	pthread_t threads[2];
	CUdeviceptr pointer;
	CUstream stream;
	CUgraph graph;

	shared = case_start();
	OK(cuMemAlloc_v2(&pointer, BLOCK));
	OK(cuStreamCreate(&stream, 1));
	case_kernel("sim_fill");
	for (int i = 0; i < 2; i++)
		EXPECT(!pthread_create(&threads[i], NULL, work_beside, NULL));
	for (unsigned i = 0; i < 300; i++) {
		case_fill(pointer, WORDS, i, 0, stream);
		OK(cuStreamBeginCapture_v2(stream, i % 3));
		case_fill(pointer, WORDS, i, 0, stream);
		OK(cuStreamEndCapture(stream, &graph));
		EXPECT(graph);
		OK(cuGraphDestroy(graph));
	}
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
	OK(cuMemFree_v2(pointer));
}

const struct test_case test_cases[] = {
	{ "a_handle_comes_back", a_handle_comes_back },
	{ "one_stream_at_a_time", one_stream_at_a_time },
	{ "destroy_is_refused", destroy_is_refused },
	{ "very_many_streams", very_many_streams },
	{ "threads_end", threads_end },
	{ "threads_make_and_destroy", threads_make_and_destroy },
	{ "streams_of_contexts", streams_of_contexts },
	{ "names_of_default_streams", names_of_default_streams },
	{ "marks_are_no_barriers", marks_are_no_barriers },
	{ "captures_beside", captures_beside },
	{ NULL, NULL },
};
