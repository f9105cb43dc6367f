/* SPDX-License-Identifier: MIT */
/* Captures: cases whose every line must be the same with and without the preload; a part of
 * cases_native. */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>
#include <sys/wait.h>

#include "tests/process/shim/cases.h"

/* Capture modes: what is refused, what is not, and whether the capture survives. */
static void
capture(CUstreamCaptureMode mode, CUstreamCaptureMode thread_mode, bool freeing)
{
	CUdeviceptr before, during = 0, freed;
	CUstreamCaptureMode previous = thread_mode;
	CUstream stream;
	CUgraph graph = NULL;

	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&before, 4096));
	OK(cuMemAlloc_v2(&freed, 4096));
	OK(cuThreadExchangeStreamCaptureMode(&previous));
	OK(cuStreamBeginCapture_v2(stream, mode));
	case_fill(before, 1024, 6, 0, stream);
	printf("mode %d, thread %d: alloc %d\n", mode, thread_mode,
	       (int)cuMemAlloc_v2(&during, 8192));
	if (freeing)
		printf("free %d\n", (int)cuMemFree_v2(before));
	printf("end %d, graph %s\n", (int)cuStreamEndCapture(stream, &graph),
	       graph ? "made" : "none");
	OK(cuThreadExchangeStreamCaptureMode(&previous));
	SHOW(cuMemFree_v2(freed));
	SHOW(cuMemFree_v2(before));
	if (during)
		SHOW(cuMemFree_v2(during));
	OK(cuStreamDestroy_v2(stream));
}

static void
captures(void)
{
	case_start();
	for (int mode = 0; mode < 3; mode++)
		for (int thread_mode = 0; thread_mode < 3; thread_mode++)
			for (int freeing = 0; freeing < 2; freeing++)
				capture((CUstreamCaptureMode)mode, (CUstreamCaptureMode)thread_mode,
					freeing);
}

/* A free that a capture prohibits: its code, and what it does to the capture. */
static void
prohibited_free(void)
{
	CUcontext context = case_start();
	CUdeviceptr pointer;
	CUstream stream;

	OK(cuMemAlloc_v2(&pointer, 4096));
	OK(cuStreamCreate(&stream, 1));
	for (int mode = 0; mode < 3; mode++) {
		CUgraph graph = NULL;

		OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
		SHOW(cuMemFree_v2(pointer + 16));
		OK(cuCtxSetCurrent(mode == 1 ? NULL : context)); /* a free needs none */
		printf("mode %d: free %d\n", mode, (int)cuMemFree_v2(pointer));
		OK(cuCtxSetCurrent(context));
		SHOW(cuStreamEndCapture(stream, &graph));
	}
	SHOW(cuMemFree_v2(pointer));
}

/* A thread's capture mode after waits and frees of ours,
 * of which one exchange was refused (SIMCUDA_FAIL). */
static void
capture_mode_stays(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUdeviceptr pointer;

	case_start();
	for (int i = 0; i < 8; i++) {
		OK(cuMemAlloc_v2(&pointer, (size_t)(20 + 2 * i) * MIB));
		OK(cuMemFree_v2(pointer));
	}
	(void)cuThreadExchangeStreamCaptureMode(&mode);
	printf("mode %d\n", (int)mode);
}

/* In a capture that allows it, memory that is freed can be had again. */
static void
memory_in_a_capture(void)
{
	CUdeviceptr pointer;
	CUstream stream;
	CUgraph graph;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (int i = 0; i < 12; i++) {
		OK(cuMemAlloc_v2(&pointer, 10 * MIB));
		OK(cuMemFree_v2(pointer));
	}
	SHOW(cuStreamEndCapture(stream, &graph));
}

/* One capture after the other, each with an allocation for its time. Figures in test_shim.py. */
static void
many_captures(void)
{
	CUdeviceptr pointer;
	CUstream stream;
	CUgraph graph;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < 50; i++) {
		OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuMemAlloc_v2(&pointer, (size_t)(4 + i % 2) * MIB));
		OK(cuMemFree_v2(pointer));
		OK(cuStreamEndCapture(stream, &graph));
		OK(cuGraphDestroy(graph));
		usleep(2000); /* a thread of the driver tells of the graph's end */
	}
}

static CUcontext waiting_context;

/* A kernel of this context waits for the host; natively the first free here waits too. */
static void *
allocate_behind_a_kernel(void *arg)
{
	CUdeviceptr pointer;

	OK(cuCtxSetCurrent(waiting_context));
	for (int i = 0; i < 6; i++) {
		OK(cuMemAlloc_v2(&pointer, (size_t)(10 + 2 * i) * MIB));
		OK(cuMemFree_v2(pointer));
	}
	return NULL;
}

/* A thread waits for a kernel; the one that lets the kernel end captures before it does. */
static void
capture_behind_a_wait(void)
{
	CUstream stream;
	CUgraph graph;
	pthread_t thread;
	void *word;

	waiting_context = case_context(0);
	OK(cuMemHostAlloc(&word, 4096, 0));
	memset(word, 0, 4096);
	OK(cuStreamCreate(&stream, 1));

	uint64_t address = (uint64_t)(uintptr_t)word, value = 1;
	void *args[] = { &address, &value };

	OK(cuLaunchKernel(case_kernel("sim_wait"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	EXPECT(!pthread_create(&thread, NULL, allocate_behind_a_kernel, NULL));
	usleep(200 * 1000);
	case_context(0);
	OK(cuStreamCreate(&stream, 1));
	SHOW(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	SHOW(cuStreamEndCapture(stream, &graph));
	__atomic_store_n((unsigned *)word, 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
}

/* The legacy stream is unusable while a blocking stream captures; others go on. */
static void
legacy_stream_beside_a_capture(void)
{
	CUstream streams[2], beside;
	CUdeviceptr pointer;
	CUgraph graph;

	case_start();
	OK(cuMemAlloc_v2(&pointer, KIB));
	OK(cuStreamCreate(&beside, 1));
	for (unsigned flags = 0; flags < 2; flags++) {
		OK(cuStreamCreate(&streams[flags], flags));
		SHOW(cuMemsetD8Async(pointer, 1, KIB, NULL));
		SHOW(cuStreamSynchronize(NULL));
		SHOW(cuStreamBeginCapture_v2(streams[flags], 2));
		SHOW(cuMemsetD8Async(pointer, 2, KIB, beside));
		SHOW(cuMemsetD8Async(pointer, 3, KIB, streams[flags]));
		SHOW(cuStreamSynchronize(beside));
		SHOW(cuMemsetD8Async(pointer, 4, KIB, NULL));
		graph = NULL;
		SHOW(cuStreamEndCapture(streams[flags], &graph));
		if (graph)
			SHOW(cuGraphDestroy(graph));
		SHOW(cuMemsetD8Async(pointer, 5, KIB, NULL));
		SHOW(cuStreamDestroy_v2(streams[flags]));
	}
	SHOW(cuStreamDestroy_v2(NULL));
	SHOW(cuStreamDestroy_v2(CU_STREAM_LEGACY));
	SHOW(cuMemsetD8Async(pointer, 6, KIB, CU_STREAM_LEGACY));
	SHOW(cuCtxSynchronize());
	OK(cuMemFree_v2(pointer));
}

const struct test_case more_test_cases[] = {
	{ "prohibited_free", prohibited_free },
	{ "capture_mode_stays", capture_mode_stays },
	{ "memory_in_a_capture", memory_in_a_capture },
	{ "many_captures", many_captures },
	{ "capture_behind_a_wait", capture_behind_a_wait },
	{ "captures", captures },
	{ "legacy_stream_beside_a_capture", legacy_stream_beside_a_capture },
	{ NULL, NULL },
};
