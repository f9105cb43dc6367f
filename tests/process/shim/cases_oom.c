/* SPDX-License-Identifier: MIT */
/* Cases about the end of the memory, and the cached memory that goes back to the driver then. */
#include <pthread.h>
#include <unistd.h>

#include "tests/process/shim/cases.h"

/* SIMCUDA_MEM=256M: other allocation calls get the room that cuMemGetInfo says is there. */
static void
other_calls_get_room(void)
{
	CUdeviceptr cached, managed, pooled;
	size_t free_bytes, total;

	case_start();
	for (int round = 0; round < 2; round++) {
		OK(cuMemAlloc_v2(&cached, 200 * MIB));
		OK(cuMemFree_v2(cached));
		OK(cuMemGetInfo_v2(&free_bytes, &total));
		EXPECT(free_bytes == total);
		if (round == 0) {
			OK(cuMemAllocManaged(&managed, 240 * MIB, 1));
			OK(cuMemFree_v2(managed));
		} else {
			OK(cuMemAllocAsync(&pooled, 240 * MIB, NULL));
			OK(cuMemFreeAsync(pooled, NULL));
			OK(cuCtxSynchronize());
		}
	}
	EXPECT(cuMemAllocManaged(&managed, 300 * MIB, 1) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* A driver call that fails once for lack of memory (SIMCUDA_FAIL), while 64 MiB are cached. */
static void
calls_that_need_room(void)
{
	CUcontext context = case_start(), other;
	void *module, *function;
	CUdeviceptr cached;
	CUgraphExec exec;
	CUstream stream;
	CUevent event;
	CUgraph graph;

	OK(cuMemAlloc_v2(&cached, 64 * MIB));
	OK(cuMemFree_v2(cached));
	OK(cuModuleLoadData(&module, "simcuda"));
	OK(cuModuleGetFunction(&function, module, "sim_fill"));
	OK(cuStreamCreate(&stream, 1));
	OK(cuEventCreate(&event, 0));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphUpload(exec, stream));
	OK(cuGraphLaunch(exec, stream));
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuDevicePrimaryCtxRetain(&other, 0));
}

/* SIMCUDA_MEM=256M: memory of a graph's own nodes is made when it is launched or uploaded first. */
static void
graph_memory_gets_room(void)
{
	CUdeviceptr cached, made;
	CUgraphExec exec[2];
	CUstream stream;
	CUgraph graph;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < 2; i++) {
		OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuMemAllocAsync(&made, 120 * MIB, stream));
		OK(cuMemFreeAsync(made, stream));
		OK(cuStreamEndCapture(stream, &graph));
		OK(cuGraphInstantiateWithFlags(&exec[i], graph, 0));
	}
	for (int i = 0; i < 2; i++) {
		OK(cuMemAlloc_v2(&cached, 130 * MIB));
		case_fill(cached, 1000, 7, 1000, stream);
		OK(cuMemFree_v2(cached));
		if (i)
			OK(cuGraphUpload(exec[i], stream));
		OK(cuGraphLaunch(exec[i], stream));
		OK(cuStreamSynchronize(stream));
	}
}

/* SIMCUDA_MEM=256M: what a report has to tell: live, cached, and freed but used by a stream. */
static void
oom_report(void)
{
	CUdeviceptr live, cached[2], used, none;
	CUstream streams[2];

	case_start();
	for (int i = 0; i < 2; i++) {
		OK(cuStreamCreate(&streams[i], 1));
		OK(cuMemAlloc_v2(&cached[i], 4 * MIB)); /* one segment of 20 MiB */
	}
	OK(cuMemAlloc_v2(&live, 100 * MIB));
	OK(cuMemFree_v2(cached[0]));
	for (int i = 0; i < 3; i++)
		EXPECT(cuMemAlloc_v2(&none, 180 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	usleep(1100 * 1000);
	OK(cuMemAlloc_v2(&used, 1000));
	EXPECT(cuMemAlloc_v2(&none, 300 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAlloc_v2(&none, 600 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* too soon */
}

/* Prints how much of the device cuMemGetInfo calls used, in MiB, since the start. */
static void
used_segments(void)
{
	CUdeviceptr pieces[2];
	size_t at_start, now, total;

	case_start();
	OK(cuMemGetInfo_v2(&at_start, &total));
	OK(cuMemAlloc_v2(&pieces[0], 4 * MIB));
	OK(cuMemAlloc_v2(&pieces[1], 4 * MIB));
	for (int i = 0; i < 2; i++) {
		OK(cuMemFree_v2(pieces[i]));
		OK(cuMemGetInfo_v2(&now, &total));
		printf("%zu\n", (at_start - now) / MIB);
	}
}

/* SIMCUDA_MEM=256M: every other block of 9 MiB is freed, so that half of the memory is free in
 * pieces. */
static void
oom_pieces(void)
{
	CUdeviceptr pieces[24], none;

	case_start();
	for (int i = 0; i < 24; i++)
		OK(cuMemAlloc_v2(&pieces[i], 9 * MIB));
	for (int i = 0; i < 24; i += 2)
		OK(cuMemFree_v2(pieces[i]));
	EXPECT(cuMemAlloc_v2(&none, 100 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* SIMCUDA_MEM=256M: 56 MiB are free and 200 cached in ten segments; 14 MiB are missing. */
static void
oom_gives_back_little(void)
{
	CUdeviceptr pieces[10], large;

	case_start();
	for (int i = 0; i < 10; i++)
		OK(cuMemAlloc_v2(&pieces[i], 20 * MIB));
	for (int i = 0; i < 10; i++)
		OK(cuMemFree_v2(pieces[i]));
	OK(cuMemAlloc_v2(&large, 70 * MIB));
}

static CUcontext second_context;

static void *
use_in_second_context(void *arg)
{
	CUdeviceptr pointer;
	CUstream stream;

	OK(cuCtxSetCurrent(second_context));
	case_context_died();
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&pointer, 60 * MIB));
	case_fill(pointer, 1000, 7, 3000, stream);
	OK(cuMemFree_v2(pointer));
	return NULL;
}

/* SIMCUDA_MEM=256M: freed by two threads in two contexts on four streams, all of it still in use.
 */
static void
oom_takes_everything(void)
{
	CUcontext context;
	CUdeviceptr pieces[3], large;
	CUstream streams[3];
	pthread_t thread;

	second_context = case_context(0);
	context = case_context(0);
	EXPECT(!pthread_create(&thread, NULL, use_in_second_context, NULL));
	pthread_join(thread, NULL);
	OK(cuCtxSetCurrent(context));
	case_context_died();
	for (int i = 0; i < 3; i++) {
		OK(cuStreamCreate(&streams[i], 1));
		OK(cuMemAlloc_v2(&pieces[i], (size_t)(40 + i) * MIB));
	}
	for (int i = 0; i < 3; i++) {
		case_fill(pieces[i], 1000, 7, 3000, streams[i]);
		OK(cuMemFree_v2(pieces[i]));
	}
	OK(cuMemAlloc_v2(&large, 256 * MIB));
	case_fill(large, 1000, 8, 0, NULL);
	EXPECT(case_wrong_words(large, 1000, 8) == 0);
}

enum { PIECES = 100 };

/* SIMCUDA_MEM=256M: cached small pieces make room for one large request. */
static void
oom_flush(void)
{
	CUdeviceptr pieces[PIECES], large;

	case_start();
	for (int i = 0; i < PIECES; i++)
		OK(cuMemAlloc_v2(&pieces[i], 2 * MIB));
	for (int i = 0; i < PIECES; i++) {
		case_fill(pieces[i], 1000, 7, 100, NULL);
		OK(cuMemFree_v2(pieces[i]));
	}
	OK(cuMemAlloc_v2(&large, 240 * MIB));
	case_fill(large, MIB, 8, 0, NULL);
	EXPECT(case_wrong_words(large, MIB, 8) == 0);
	OK(cuMemFree_v2(large));
}

/* SIMCUDA_MEM=256M: out of memory is the driver's own code, and passes. */
static void
oom_is_native(void)
{
	CUdeviceptr pieces[PIECES], more = 77;
	size_t pitch = 78;
	int count = 0;

	case_start();
	while (count < PIECES && cuMemAlloc_v2(&pieces[count], 16 * MIB) == CUDA_SUCCESS)
		count++;
	EXPECT(count == 16);
	EXPECT(cuMemAlloc_v2(&more, 16 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAllocPitch_v2(&more, &pitch, 1 << 20, 16, 4) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(more == 77 && pitch == 78);
	OK(cuMemFree_v2(pieces[--count]));
	OK(cuMemAllocPitch_v2(&more, &pitch, 1 << 20, 16, 4));
	OK(cuMemFree_v2(more));
	OK(cuMemAlloc_v2(&more, 16 * MIB));
	OK(cuMemFree_v2(more));
	while (count)
		OK(cuMemFree_v2(pieces[--count]));
}

const struct test_case more_test_cases[] = {
	{ "other_calls_get_room", other_calls_get_room },
	{ "calls_that_need_room", calls_that_need_room },
	{ "graph_memory_gets_room", graph_memory_gets_room },
	{ "oom_report", oom_report },
	{ "used_segments", used_segments },
	{ "oom_pieces", oom_pieces },
	{ "oom_gives_back_little", oom_gives_back_little },
	{ "oom_takes_everything", oom_takes_everything },
	{ "oom_flush", oom_flush },
	{ "oom_is_native", oom_is_native },
	{ NULL, NULL },
};
