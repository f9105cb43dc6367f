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

/* With min_size: what the driver serves can be exported, and the cache serves the rest. */
static void
export_below_min_size(void)
{
	CUipcMemHandle handle;
	CUdeviceptr small, large;

	case_start();
	for (int i = 0; i < 2; i++) {
		OK(cuMemAlloc_v2(&large, 64 * MIB));
		OK(cuMemFree_v2(large));
	}
	OK(cuMemAlloc_v2(&small, 1 * MIB));
	OK(cuIpcGetMemHandle(&handle, small));
	OK(cuMemFree_v2(small));
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
	{ "export_below_min_size", export_below_min_size },
	{ "sync_memops", sync_memops },
	{ "captures_survive", captures_survive },
	{ "captures_end", captures_end },
	{ "capture_memory", capture_memory },
	{ "slow", slow },
	{ "two_releases", two_releases },
	{ "exit_in_handler", exit_in_handler },
	{ "bad_output", bad_output },
	{ "ten", ten },
	{ "foreign", foreign },
	{ NULL, NULL },
};
