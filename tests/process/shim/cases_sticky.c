/* SPDX-License-Identifier: MIT */
/*
 * A kernel faults, and the program goes on calling. What a cached allocation or free answers then
 * is printed where the environment has SHOW_MEMORY; else it may be a success, as the driver need
 * not have heard of the fault either.
 */
#include "tests/process/shim/cases.h"

#include <pthread.h>
#include <stdbool.h>

enum { CODE = 719, SMALL = 4 * KIB, BIG = 12 * MIB, MANY = 2000, SPIN_US = 2000 };

static bool
shows_memory(void)
{
	return getenv("SHOW_MEMORY") != NULL;
}

/* Of an allocation or a free. */
static CUresult
show_memory(const char *what, CUresult rc)
{
	EXPECT(rc == CUDA_SUCCESS || (int)rc == CODE);
	if (shows_memory())
		printf("%s = %d\n", what, (int)rc);
	return rc;
}

#define SHOW_MEMORY(call) show_memory(#call, call)

static CUdeviceptr
take(size_t bytes)
{
	CUdeviceptr block;

	OK(cuMemAlloc_v2(&block, bytes));
	return block;
}

static void
fault(CUstream stream, uint64_t spin_us)
{
	uint64_t code = CODE;
	void *args[] = { &code, &spin_us };

	OK(cuLaunchKernel(case_kernel("sim_fault"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static CUstream
new_stream(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, 1));
	return stream;
}

/* CHECK(cudaFree(p)), to hear of the work before it. */
static void
a_free_as_a_barrier(void)
{
	CUdeviceptr block, other;

	case_start();
	block = take(SMALL);
	other = take(SMALL);
	OK(cuMemFree_v2(take(SMALL)));
	case_fill(block, 1024, 1, 0, NULL);
	fault(NULL, SPIN_US);
	SHOW_MEMORY(cuMemFree_v2(block));
	SHOW_MEMORY(cuMemFree_v2(other));
	SHOW_MEMORY(cuMemAlloc_v2(&block, SMALL));
	SHOW(cuCtxSynchronize());
}

/* Of every size: what a thread keeps, what is cached, and what is new. */
static void
allocations_after(void)
{
	static const size_t sizes[] = { 512, SMALL, 100 * KIB, 3 * MIB, BIG, 64 * MIB };
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
	CUdeviceptr kept[SIZES], block;

	case_start();
	for (int i = 0; i < SIZES; i++)
		kept[i] = take(sizes[i]);
	for (int i = 0; i < SIZES; i += 2)
		OK(cuMemFree_v2(kept[i]));
	fault(NULL, 0);
	SHOW(cuCtxSynchronize());
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < SIZES; i++)
			SHOW_MEMORY(cuMemAlloc_v2(&block, sizes[i]));
	for (int i = 1; i < SIZES; i += 2)
		SHOW_MEMORY(cuMemFree_v2(kept[i]));
}

static void
show_context_calls(CUcontext context)
{
	CUdevice device;
	CUcontext now;

	SHOW(cuCtxGetCurrent(&now));
	SHOW(cuCtxSetCurrent(context));
	SHOW(cuCtxGetDevice(&device));
	SHOW(cuCtxSynchronize());
}

static void
show_stream_calls(CUstream stream, CUevent event)
{
	CUgraph graph;
	CUstream made;
	CUevent fresh;

	SHOW(cuStreamQuery(stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuStreamCreate(&made, 1));
	SHOW(cuStreamBeginCapture_v2(stream, 2));
	SHOW(cuStreamEndCapture(stream, &graph));
	SHOW(cuStreamWaitEvent(stream, event, 0));
	SHOW(cuEventCreate(&fresh, 0));
	SHOW(cuEventRecord(event, stream));
	SHOW(cuEventQuery(event));
	SHOW(cuEventSynchronize(event));
}

static void
show_memory_calls(CUdeviceptr block, CUstream stream)
{
	unsigned words[4] = { 0 }, yes = 1;
	CUdeviceptr made;
	size_t size, total;
	void *host;

	SHOW(cuMemcpyHtoD_v2(block, words, sizeof(words)));
	SHOW(cuMemcpyDtoH_v2(words, block, sizeof(words)));
	SHOW(cuMemcpyDtoDAsync_v2(block, block + 64, 16, stream));
	SHOW(cuMemsetD8Async(block, 1, 16, stream));
	SHOW(cuMemGetInfo_v2(&size, &total));
	SHOW(cuMemAllocPitch_v2(&made, &size, 100, 100, 4));
	SHOW(cuMemAllocManaged(&made, SMALL, 1));
	SHOW(cuMemAllocAsync(&made, SMALL, stream));
	SHOW(cuMemHostAlloc(&host, SMALL, 0));
	SHOW(cuMemFreeAsync(block, stream));
	SHOW(cuMemGetAddressRange_v2(&made, &size, block + 5));
	printf("%d %zu\n", made == block, size);
	SHOW(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
	SHOW(cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
	printf("%u\n", yes);
}

static void
other_calls_after(void)
{
	CUcontext context = case_start();
	CUdeviceptr block = take(SMALL), used = take(BIG);
	CUstream stream = new_stream();
	CUevent event;
	CUdeviceptr words = block;
	uint64_t n = 16, value = 1, spin = 0;
	void *args[] = { &words, &n, &value, &spin }, *fill = case_kernel("sim_fill");

	OK(cuEventCreate(&event, 2));
	case_fill(used, 1024, 1, SPIN_US, stream);
	OK(cuEventRecord(event, stream));
	OK(cuMemFree_v2(used));
	fault(stream, 0);
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	show_context_calls(context);
	show_stream_calls(stream, event);
	show_memory_calls(block, stream);
	SHOW(cuEventDestroy_v2(event));
	SHOW(cuStreamDestroy_v2(stream));
	SHOW(cuCtxSynchronize());
}

/* Several streams with freed memory that each may still use; the fault comes in the midst. */
static void
churn(CUstream *streams, int rounds, bool *broken)
{
	for (int i = 0; i < rounds; i++) {
		size_t bytes = i % 7 ? (size_t)(i % 5 + 1) * SMALL : (size_t)3 * MIB;
		CUdeviceptr block;

		if (cuMemAlloc_v2(&block, bytes) != CUDA_SUCCESS) {
			*broken = true;
			continue;
		}
		if (!*broken) {
			uint64_t n = 256, value = 1, spin = 20;
			void *args[] = { &block, &n, &value, &spin };

			*broken = cuLaunchKernel(case_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0,
						 streams[i % 3], args, NULL) != CUDA_SUCCESS;
		}
		(void)cuMemFree_v2(block);
		if (i % 50 == 49)
			(void)cuStreamQuery(streams[0]);
	}
}

static void
in_the_midst(void)
{
	CUstream streams[3];
	bool broken = false;

	case_start();
	for (int i = 0; i < 3; i++)
		streams[i] = new_stream();
	churn(streams, MANY / 4, &broken);
	EXPECT(!broken);
	fault(streams[1], SPIN_US);
	churn(streams, MANY, &broken);
	SHOW(cuCtxSynchronize());
	churn(streams, MANY, &broken);
	SHOW(cuStreamQuery(streams[0]));
}

static CUstream thread_streams[4][3];
static CUcontext everybodys;

static void *
churns(void *arg)
{
	CUstream *streams = arg;
	bool broken = false;

	OK(cuCtxSetCurrent(everybodys));
	churn(streams, MANY, &broken);
	return NULL;
}

static void
in_the_midst_of_threads(void)
{
	pthread_t threads[4];

	everybodys = case_start();
	case_kernel("sim_fill");
	for (int i = 0; i < 4; i++)
		for (int n = 0; n < 3; n++)
			thread_streams[i][n] = new_stream();
	(void)take(BIG); /* on a busy machine no thread gets that far */
	fault(thread_streams[0][0], 5 * SPIN_US);
	for (int i = 0; i < 4; i++)
		EXPECT(pthread_create(&threads[i], NULL, churns, thread_streams[i]) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	SHOW(cuCtxSynchronize());
}

/* All memory is taken, and some freed that the device had not finished with. */
static void
at_the_end_of_memory(void)
{
	CUdeviceptr blocks[8], more;
	CUstream stream[2];

	case_start();
	stream[0] = new_stream();
	stream[1] = new_stream();
	for (int i = 0; i < 4; i++)
		blocks[i] = take(BIG);
	for (int i = 0; i < 4; i++)
		case_fill(blocks[i], 1024, 1, SPIN_US, stream[i % 2]);
	fault(stream[0], SPIN_US);
	for (int i = 0; i < 4; i++)
		SHOW_MEMORY(cuMemFree_v2(blocks[i]));
	SHOW(cuStreamSynchronize(stream[0]));
	for (int i = 0; i < 8; i++)
		SHOW_MEMORY(cuMemAlloc_v2(&more, BIG + (size_t)MIB * i));
	SHOW(cuMemAllocManaged(&more, 40 * MIB, 1));
}

/* The program ends the context, as frameworks do, and starts anew. */
static void
a_reset_heals(void)
{
	CUcontext context = case_start();
	CUdeviceptr block[4];

	for (int i = 0; i < 4; i++)
		block[i] = take((size_t)(i + 1) * MIB);
	case_fill(block[0], 1024, 1, SPIN_US, NULL);
	fault(NULL, 0);
	SHOW_MEMORY(cuMemFree_v2(block[0]));
	SHOW(cuCtxSynchronize());
	SHOW(cuDevicePrimaryCtxReset_v2(0));
	case_context_died();
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++)
			block[i] = take((size_t)(i + 1) * MIB);
		for (int i = 0; i < 4; i++)
			case_fill(block[i], 1024, (uint64_t)i + 7, 0, NULL);
		for (int i = 0; i < 4; i++)
			EXPECT(case_wrong_words(block[i], 1024, (uint32_t)i + 7) == 0);
		for (int i = 0; i < 4; i++)
			OK(cuMemFree_v2(block[i]));
	}
	SHOW(cuCtxSynchronize());
}

/* The next context, perhaps of the same handle, begins with nothing. */
static void
begins_anew(CUdeviceptr lost)
{
	CUdeviceptr block;

	case_context_died();
	for (int round = 0; round < 5; round++) {
		block = take(MIB);
		case_fill(block, 1024, (uint64_t)round, 0, NULL);
		EXPECT(case_wrong_words(block, 1024, (uint32_t)round) == 0);
		if (round % 2)
			OK(cuMemFree_v2(block));
	}
	SHOW(cuCtxSynchronize());
	SHOW(cuMemFree_v2(lost + 4096));
}

static CUdeviceptr
leave_memory(void)
{
	CUdeviceptr freed = take(MIB), lost = take(MIB);

	OK(cuMemFree_v2(freed));
	fault(NULL, 0);
	SHOW(cuCtxSynchronize());
	return lost;
}

static void
ends_that_are_told(void)
{
	CUdeviceptr lost;
	CUcontext context;

	case_context(0);
	OK(cuCtxGetCurrent(&context));
	lost = leave_memory();
	SHOW(cuCtxDestroy_v2(context));
	case_context(0);
	begins_anew(lost);
	lost = leave_memory();
	OK(cuCtxGetCurrent(&context));
	SHOW(cuCtxDetach(context));
	context = case_start();
	begins_anew(lost);
	lost = leave_memory();
	SHOW(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	begins_anew(lost);
	lost = leave_memory();
	SHOW(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	begins_anew(lost);
}

/* Of two contexts one is broken; in the other everything goes on. */
static void
other_contexts_go_on(void)
{
	CUcontext good = case_start(), bad;
	CUdeviceptr ours, theirs, lost;
	CUstream stream;

	ours = take(BIG);
	bad = case_context(0);
	stream = new_stream();
	theirs = take(BIG);
	lost = take(SMALL);
	case_fill(theirs, 1024, 1, SPIN_US, stream);
	OK(cuMemcpyDtoDAsync_v2(ours, theirs, 4096, stream));
	fault(stream, 0);
	SHOW(cuStreamSynchronize(stream));
	OK(cuCtxSetCurrent(good));
	case_context_died();
	for (int round = 0; round < 20; round++) {
		OK(cuMemFree_v2(ours));
		ours = take(BIG);
		case_fill(ours, 1024, (uint64_t)round, 0, NULL);
		EXPECT(case_wrong_words(ours, 1024, (uint32_t)round) == 0);
	}
	SHOW_MEMORY(cuMemFree_v2(theirs)); /* from here */
	SHOW_MEMORY(cuMemFree_v2(lost));
	SHOW(cuCtxSynchronize());
	SHOW(cuCtxDestroy_v2(bad));
	SHOW(cuMemFree_v2(lost));
	OK(cuMemFree_v2(ours));
}

static void
while_a_stream_captures(void)
{
	CUdeviceptr block, more;
	CUstream stream, captures;
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph graph;

	case_start();
	stream = new_stream();
	captures = new_stream();
	block = take(BIG);
	case_fill(block, 1024, 1, SPIN_US, stream);
	OK(cuStreamBeginCapture_v2(captures, relaxed));
	fault(stream, 0);
	SHOW(cuStreamSynchronize(stream));
	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	SHOW_MEMORY(cuMemFree_v2(block));
	SHOW_MEMORY(cuMemAlloc_v2(&more, BIG));
	SHOW(cuStreamEndCapture(captures, &graph));
	SHOW_MEMORY(cuMemAlloc_v2(&more, BIG));
	SHOW(cuCtxSynchronize());
}

/* The last thing that the program does. */
static void
nobody_asks(void)
{
	CUstream stream[2];
	CUdeviceptr block;

	case_start();
	stream[0] = new_stream();
	stream[1] = new_stream();
	block = take(BIG);
	case_fill(block, 1024, 1, SPIN_US, stream[0]);
	fault(stream[1], SPIN_US);
	(void)cuMemFree_v2(block);
}

/* Only the call that the test lets answer an error fails, once. */
static void
told_once(void)
{
	CUdeviceptr block[4];

	case_start();
	for (int i = 0; i < 4; i++)
		if (SHOW_MEMORY(cuMemAlloc_v2(&block[i], SMALL)))
			block[i] = take(SMALL);
	for (int i = 0; i < 4; i++)
		if (SHOW_MEMORY(cuMemFree_v2(block[i])))
			OK(cuMemFree_v2(block[i]));
	SHOW(cuCtxSynchronize());
}

const struct test_case test_cases[] = {
	{ "a_free_as_a_barrier", a_free_as_a_barrier },
	{ "allocations_after", allocations_after },
	{ "other_calls_after", other_calls_after },
	{ "in_the_midst", in_the_midst },
	{ "in_the_midst_of_threads", in_the_midst_of_threads },
	{ "at_the_end_of_memory", at_the_end_of_memory },
	{ "a_reset_heals", a_reset_heals },
	{ "ends_that_are_told", ends_that_are_told },
	{ "other_contexts_go_on", other_contexts_go_on },
	{ "while_a_stream_captures", while_a_stream_captures },
	{ "nobody_asks", nobody_asks },
	{ "told_once", told_once },
	{ NULL, NULL },
};
