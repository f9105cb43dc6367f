/* SPDX-License-Identifier: MIT */
/* Cases about what only the preload does; test_shim.py knows the knobs each is run with. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/process/shim/cases.h"

/* With two streams, unfinished memory is not handed out; finished memory is.
 * Manual clock: nothing finishes by itself. */
static void
reuse_waits(void)
{
	CUdeviceptr first, second, third;
	CUstream stream, other;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamCreate(&other, 1));
	OK(cuMemAlloc_v2(&first, 4 * MIB));
	case_fill(first, MIB, 1, 1000, stream);
	OK(cuMemFree_v2(first));
	OK(cuMemAlloc_v2(&second, 4 * MIB));
	EXPECT(second != first);
	OK(cuCtxSynchronize());
	OK(cuMemAlloc_v2(&third, 4 * MIB));
	printf("%s\n", third == first ? "reused" : "new");
	OK(cuMemFree_v2(second));
	OK(cuMemFree_v2(third));
}

/* Unfinished memory of the one stream goes to that stream again. */
static void
reuse_on_the_only_stream(void)
{
	CUdeviceptr first, second;
	CUstream stream;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&first, 4 * MIB));
	case_fill(first, MIB, 1, 1000, stream);
	OK(cuMemFree_v2(first));
	OK(cuMemAlloc_v2(&second, 4 * MIB));
	EXPECT(second == first);
	case_fill(second, MIB, 2, 0, stream);
	OK(cuMemFree_v2(second));
	OK(cuCtxSynchronize());
}

/* A copy in another context, on another device, still reads the block when it is freed. */
static void
reuse_waits_for_other_contexts(void)
{
	const size_t size =
		12 * MIB; /* a segment of its own: the next one of that size would be the same */
	CUdeviceptr source, target, next;
	CUcontext here = case_context(0), there;
	CUstream stream;

	OK(cuMemAlloc_v2(&source, size));
	case_fill(source, size / 4, 0xabc, 0, NULL);
	OK(cuCtxSynchronize());
	there = case_context(1);
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&target, size));
	OK(cuMemcpyDtoDAsync_v2(target, source, size, stream));
	OK(cuCtxSetCurrent(here));
	OK(cuMemFree_v2(source));
	OK(cuMemAlloc_v2(&next, size));
	EXPECT(next != source);
	OK(cuMemsetD32_v2(next, 0xdef, size / 4));
	OK(cuCtxSynchronize());
	OK(cuCtxSetCurrent(there));
	OK(cuStreamSynchronize(stream));
	EXPECT(case_wrong_words(target, size / 4, 0xabc) == 0);
	OK(cuMemFree_v2(target));
	OK(cuMemFree_v2(next));
}

/*
 * Work of another device that started before the free and touches nothing of it, and that only the
 * end of this program can finish (manual clock). A free waits for it no more than the driver's own
 * would: with 64 MiB of memory too the next allocation succeeds, and the other device's work is
 * still not done.
 */
static void
other_devices_are_not_waited_for(void)
{
	const size_t size = 48 * MIB;
	CUdeviceptr first, second, elsewhere;
	CUcontext here = case_context(0);
	CUstream stream;

	OK(cuMemAlloc_v2(&first, size));
	case_context(1);
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&elsewhere, 4096));
	case_fill(elsewhere, 1024, 1, 0, stream);
	OK(cuCtxSetCurrent(here));
	OK(cuMemFree_v2(first));
	OK(cuMemAlloc_v2(&second, size));
	for (int i = 0; i < 50; i++) {
		OK(cuMemFree_v2(second));
		OK(cuMemAlloc_v2(&second, size));
	}
	EXPECT(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
	OK(cuMemFree_v2(second));
}

/* Export of a part of a segment is refused and nothing else happens to the block. */
static void
export_of_a_part(void)
{
	CUipcMemHandle handle;
	CUdeviceptr first, second;
	int capable = 1, fd = -1;

	case_start();
	OK(cuMemAlloc_v2(&first, 4096));
	OK(cuMemAlloc_v2(&second, 4096));
	EXPECT(cuIpcGetMemHandle(&handle, first) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuIpcGetMemHandle(&handle, second) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemGetHandleForAddressRange(&fd, first, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					     0) == CUDA_ERROR_NOT_SUPPORTED);
	EXPECT(fd == -1);
	OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, first));
	EXPECT(capable == 0);
	OK(cuMemFree_v2(first));
	OK(cuMemFree_v2(second));
}

/* A flag for a device that is no stream: finished memory is handed out again. */
static void
sync_memops(void)
{
	CUdeviceptr first, second, third;
	unsigned yes = 1;

	case_start();
	OK(cuMemAlloc_v2(&first, 4096));
	OK(cuMemAlloc_v2(&second, 4096));
	OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
	OK(cuMemFree_v2(second));
	OK(cuCtxSynchronize());
	OK(cuMemAlloc_v2(&third, 4096));
	EXPECT(third == second);
	OK(cuMemFree_v2(first));
	OK(cuMemFree_v2(third));
}

static _Atomic bool stop;

static void *
churn(void *context)
{
	CUdeviceptr pointers[8];

	OK(cuCtxSetCurrent(context));
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	while (!atomic_load(&stop)) {
		for (int i = 0; i < 8; i++)
			OK(cuMemAlloc_v2(&pointers[i], (size_t)(i + 1) * 3000));
		for (int i = 0; i < 8; i++)
			OK(cuMemFree_v2(pointers[i]));
	}
	return NULL;
}

/* Frees in one thread must not invalidate the captures of another, in any mode. */
static void
captures_survive(void)
{
	CUcontext context = case_start();
	CUdeviceptr target;
	CUstream stream;
	pthread_t thread;

	OK(cuMemAlloc_v2(&target, 4096));
	OK(cuStreamCreate(&stream, 1));
	case_kernel("sim_fill");
	EXPECT(pthread_create(&thread, NULL, churn, context) == 0);
	for (int i = 0; i < 300; i++) {
		CUgraph graph = NULL;

		OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)(i % 3)));
		case_fill(target, 1024, (uint64_t)i, 0, stream);
		OK(cuStreamEndCapture(stream, &graph));
		EXPECT(graph);
		OK(cuGraphDestroy(graph));
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	OK(cuMemFree_v2(target));
}

/* Whether the cache works: a freed, finished block of an odd size comes back. */
static bool
cache_works(void)
{
	CUdeviceptr first, second;

	OK(cuMemAlloc_v2(&first, 777777));
	OK(cuMemFree_v2(first));
	OK(cuCtxSynchronize());
	OK(cuMemAlloc_v2(&second, 777777));
	OK(cuMemFree_v2(second));
	OK(cuCtxSynchronize());
	return first == second;
}

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
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuDevicePrimaryCtxRetain(&other, 0));
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

/* 200 rounds of a millisecond or more. */
static void
slow(void)
{
	CUdeviceptr pointer;

	case_start();
	for (int i = 0; i < 200; i++) {
		OK(cuMemAlloc_v2(&pointer, 1000));
		OK(cuMemFree_v2(pointer));
		usleep(1000);
	}
}

/* A capture ends with its stream, its context, or its end: afterwards the cache works again. */
static void
captures_end(void)
{
	CUcontext context = case_context(0), other;
	CUstream stream;
	CUgraph graph;
	CUdeviceptr during;

	EXPECT(cache_works());
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAlloc_v2(&during, 777777));
	OK(cuMemFree_v2(during));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	EXPECT(cache_works());
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamDestroy_v2(stream));
	EXPECT(cache_works());
	other = case_context(0);
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(context));
	EXPECT(cache_works());
	EXPECT(cuStreamEndCapture(CU_STREAM_LEGACY, &graph) != CUDA_SUCCESS);
	EXPECT(cache_works());
}

/* In a capture memory is new, and a free is refused where the driver would refuse it. */
static void
capture_memory(void)
{
	CUdeviceptr cached, live, during;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream stream;
	CUgraph graph;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&cached, 5000));
	OK(cuMemAlloc_v2(&live, 5000));
	OK(cuMemFree_v2(cached));
	OK(cuCtxSynchronize());
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	EXPECT(cuMemFree_v2(live) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAlloc_v2(&during, 5000));
	EXPECT(during != cached);
	OK(cuMemFree_v2(during));
	OK(cuMemFree_v2(live));
	EXPECT(cuMemFreeAsync(live, stream) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamEndCapture(stream, &graph) ==
	       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED); /* by the refused call */
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	EXPECT(cuMemFree_v2(live) == CUDA_ERROR_INVALID_VALUE);
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

/* Ten allocations and frees of one size: the figures in test_shim.py. */
static void
ten(void)
{
	CUdeviceptr pointer;

	case_start();
	for (int i = 0; i < 10; i++) {
		OK(cuMemAlloc_v2(&pointer, 1000));
		OK(cuMemFree_v2(pointer));
		OK(cuCtxSynchronize());
	}
}

/* What the default pool of the driver holds is not ours,
 * and a bad stream is the driver's to refuse. */
static void
foreign(void)
{
	CUdeviceptr pool, ours;

	case_start();
	OK(cuMemAllocAsync(&pool, 1000, NULL));
	OK(cuMemFree_v2(pool));
	OK(cuMemAlloc_v2(&ours, 1000));
	EXPECT(cuMemFreeAsync(ours, (CUstream)(uintptr_t)0x1234560) != CUDA_SUCCESS);
	OK(cuMemFree_v2(ours));
}

static _Atomic int releasing;

static void *
release_often(void *arg)
{
	for (int i = 0; i < 15; i++) {
		CUcontext context;
		CUdeviceptr pointer;

		OK(cuDevicePrimaryCtxRetain(&context, 0));
		OK(cuCtxSetCurrent(context));
		OK(cuMemAlloc_v2(&pointer, 4096));
		OK(cuMemFree_v2(pointer));
		OK(cuCtxSetCurrent(NULL));
		OK(cuDevicePrimaryCtxRelease_v2(0));
	}
	releasing--;
	return NULL;
}

/* Three holders of a primary context come and go; another device's cache is none the worse. */
static void
two_releases(void)
{
	pthread_t threads[3];
	CUdeviceptr pointer;

	case_context(1);
	for (int i = 0; i < 3; i++) {
		releasing++;
		EXPECT(!pthread_create(&threads[i], NULL, release_often, NULL));
	}
	for (size_t n = 0; releasing; n++) {
		OK(cuMemAlloc_v2(&pointer, (1 + n % 64) * 4096));
		OK(cuMemFree_v2(pointer));
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 1000; i++) {
		OK(cuMemAlloc_v2(&pointer, 4096));
		OK(cuMemFree_v2(pointer));
	}
}

static void
leave(int signal_number)
{
	exit(7); /* NOLINT(bugprone-signal-handler): programs do it, and we must bear it */
}

/* The signal most likely interrupts a look-up. */
static void
exit_in_handler(void)
{
	CUdeviceptr pointers[2000], base;
	size_t size;

	case_start();
	for (int i = 0; i < 2000; i++)
		OK(cuMemAlloc_v2(&pointers[i], 512));
	signal(SIGALRM, leave);
	ualarm(20 * 1000, 0);
	for (unsigned i = 0;; i++)
		OK(cuMemGetAddressRange_v2(&base, &size, pointers[i * 7919 % 2000] + 5));
}

static sigjmp_buf from_fault;

static void
leave_fault(int number)
{
	(void)number;
	siglongjmp(from_fault, 1);
}

/* The program catches its own mistake, an output that cannot be written, and goes on. */
static void
bad_output(void)
{
	struct sigaction action = { .sa_handler = leave_fault, .sa_flags = SA_NODEFER };
	CUdeviceptr pointer, *nowhere = (CUdeviceptr *)(uintptr_t)64;
	volatile int faults = 0;

	case_start();
	EXPECT(!sigaction(SIGSEGV, &action, NULL) && !sigaction(SIGBUS, &action, NULL));
	for (int i = 0; i < 3; i++) {
		OK(cuMemAlloc_v2(&pointer, 4096));
		OK(cuMemFree_v2(pointer));
		if (!sigsetjmp(from_fault, 1))
			(void)cuMemAlloc_v2(nowhere, 4096);
		else
			faults++;
	}
	OK(cuMemAlloc_v2(&pointer, 4096));
	OK(cuMemFree_v2(pointer));
	printf("%d faults\n", faults);
}

const struct test_case test_cases[] = {
	{ "reuse_waits", reuse_waits },
	{ "reuse_on_the_only_stream", reuse_on_the_only_stream },
	{ "reuse_waits_for_other_contexts", reuse_waits_for_other_contexts },
	{ "other_devices_are_not_waited_for", other_devices_are_not_waited_for },
	{ "export_of_a_part", export_of_a_part },
	{ "sync_memops", sync_memops },
	{ "captures_survive", captures_survive },
	{ "captures_end", captures_end },
	{ "capture_memory", capture_memory },
	{ "oom_flush", oom_flush },
	{ "oom_is_native", oom_is_native },
	{ "oom_report", oom_report },
	{ "oom_pieces", oom_pieces },
	{ "used_segments", used_segments },
	{ "oom_gives_back_little", oom_gives_back_little },
	{ "oom_takes_everything", oom_takes_everything },
	{ "calls_that_need_room", calls_that_need_room },
	{ "other_calls_get_room", other_calls_get_room },
	{ "slow", slow },
	{ "two_releases", two_releases },
	{ "exit_in_handler", exit_in_handler },
	{ "bad_output", bad_output },
	{ "ten", ten },
	{ "foreign", foreign },
	{ NULL, NULL },
};
