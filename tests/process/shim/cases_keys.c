/* SPDX-License-Identifier: MIT */
/* Cases for settings: limits, trims, fills (tests/process/shim/test_keys.py). */
#include <stdbool.h>
#include <unistd.h>

#include "tests/process/shim/cases.h"

static size_t
free_bytes(void)
{
	size_t left, total;

	OK(cuMemGetInfo_v2(&left, &total));
	return left;
}

/* CACHEALLOC_LIMIT=100M on a larger device: each road counts, cached memory goes first. */
static void
limit(void)
{
	CUdeviceptr pointer, managed, pooled;
	size_t left, total, pitch;

	case_start();
	OK(cuMemGetInfo_v2(&left, &total));
	EXPECT(left == 100 * MIB && total == 100 * MIB);
	EXPECT(cuMemAlloc_v2(&pointer, 101 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&pointer, 60 * MIB));
	EXPECT(free_bytes() == 40 * MIB);
	EXPECT(cuMemAllocManaged(&managed, 41 * MIB, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocManaged(&managed, 30 * MIB, 1));
	EXPECT(free_bytes() == 10 * MIB);
	EXPECT(cuMemAllocAsync(&pooled, 11 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocAsync(&pooled, 10 * MIB, NULL));
	EXPECT(free_bytes() == 0);
	EXPECT(cuMemAllocPitch_v2(&pointer, &pitch, 1024, 1024, 4) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFreeAsync(pooled, NULL));
	OK(cuCtxSynchronize()); /* before that the pool keeps what it had */
	EXPECT(cuMemFree_v2(managed + 1) != CUDA_SUCCESS);
	EXPECT(free_bytes() == 10 * MIB);
	OK(cuMemFree_v2(managed));
	EXPECT(free_bytes() == 40 * MIB);
	OK(cuMemFree_v2(pointer)); /* cached now */
	EXPECT(free_bytes() == 100 * MIB);
	OK(cuMemAllocManaged(&managed, 100 * MIB, 1));
	EXPECT(cuMemAlloc_v2(&pointer, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(managed));
	OK(cuMemAllocPitch_v2(&pointer, &pitch, 1024, 1024, 4));
	EXPECT(free_bytes() == 100 * MIB - pitch * 1024);
	OK(cuMemFree_v2(pointer));
	OK(cuMemAlloc_v2(&pointer, 100 * MIB));
}

/* Steps of a program that launches, frees and now and then synchronises. */
static void
steps(void)
{
	CUdeviceptr blocks[4];
	CUstream stream;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	for (uint32_t i = 0; i < 40; i++) {
		for (int k = 0; k < 4; k++) {
			OK(cuMemAlloc_v2(&blocks[k], (size_t)(11 + k + 4 * (i % 3)) * MIB));
			case_fill(blocks[k], 1000, i, 50, k % 2 ? stream : NULL);
		}
		for (int k = 0; k < 4; k++)
			OK(cuMemFree_v2(blocks[k]));
		if (i % 5 == 4) {
			OK(cuCtxSynchronize());
			usleep(2 * 1000); /* longer than trim_idle_ms:1 and :2 want */
		}
	}
	OK(cuCtxSynchronize());
}

/* trim_idle_ms:20: what is not used for a while goes in a call that is due. */
static void
idle(void)
{
	CUdeviceptr pointer;
	size_t left, total;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 40 * MIB));
	case_fill(pointer, 1000, 1, 0, NULL);
	OK(cuMemFree_v2(pointer));
	for (int i = 0; i < 4; i++) {
		OK(cuCtxSynchronize());
		usleep(30 * 1000);
	}
	OK(cuMemGetInfo_v2(&left, &total));
	OK(cuMemAlloc_v2(&pointer, 1000));
}

/* A trim would wait for a kernel that waits for the host: natively no call here does. */
static void
trim_does_not_wait(void)
{
	CUdeviceptr blocks[6], more;
	CUstream stream;
	void *word;

	case_start();
	OK(cuMemHostAlloc(&word, 4096, 0));
	memset(word, 0, 4096);
	OK(cuStreamCreate(&stream, 1));
	for (int i = 0; i < 6; i++)
		OK(cuMemAlloc_v2(&blocks[i], (size_t)(20 + i) * MIB));
	for (int i = 0; i < 6; i++)
		OK(cuMemFree_v2(blocks[i]));

	uint64_t address = (uint64_t)(uintptr_t)word, value = 1;
	void *args[] = { &address, &value };

	OK(cuLaunchKernel(case_kernel("sim_wait"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	for (int i = 0; i < 6; i++) {
		usleep(5000);
		OK(cuMemAlloc_v2(&more, (size_t)(30 + 2 * i) * MIB));
	}
	__atomic_store_n((unsigned *)word, 1, __ATOMIC_SEQ_CST);
	OK(cuCtxSynchronize());
	OK(cuMemFree_v2(more));
}

static bool
all_bytes(CUdeviceptr pointer, size_t bytes, unsigned char value)
{
	unsigned char *copy = malloc(bytes);
	bool same = true;

	EXPECT(copy);
	OK(cuMemcpyDtoH_v2(copy, pointer, bytes));
	for (size_t i = 0; i < bytes; i++)
		same = same && copy[i] == value;
	free(copy);
	return same;
}

/* Memory that a slow kernel still writes when it is freed; then memory as it was handed out. */
static void
filled(unsigned char allocated)
{
	CUdeviceptr first, second;
	CUstream stream, other;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamCreate(&other, 1));
	OK(cuMemAlloc_v2(&first, 100000));
	EXPECT(all_bytes(first, 100000, allocated));
	for (uint32_t i = 0; i < 30; i++) {
		case_fill(first, 25000, 0x01010101 * i, 300, i % 2 ? stream : other);
		OK(cuMemFree_v2(first));
		OK(cuMemAlloc_v2(&second, 100000));
		EXPECT(all_bytes(second, 100000, allocated));
		case_fill(second, 25000, 5, 0, i % 2 ? other : stream); /* as the next one */
		first = second;
	}
	OK(cuMemFree_v2(first));
}

static void
zeroed(void)
{
	filled(0);
}

/* With one stream freed memory is otherwise handed out unfinished. */
static void
zeroed_on_one_stream(void)
{
	CUdeviceptr block;
	CUstream stream;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	for (uint32_t i = 0; i < 20; i++) {
		OK(cuMemAlloc_v2(&block, 100000));
		case_fill(block, 25000, 7, 300, stream);
		OK(cuMemFree_v2(block));
	}
}

static void
poisoned(void)
{
	filled(0xff);
}

/* What was freed is read again: natively, who knows; here it shows. */
static void
use_after_free(void)
{
	CUdeviceptr block, neighbour;

	case_start();
	OK(cuMemAlloc_v2(&block, 4096));
	OK(cuMemAlloc_v2(&neighbour, 4096));
	case_fill(block, 1024, 7, 500, NULL);
	OK(cuMemFree_v2(block));
	EXPECT(all_bytes(block, 4096, 0xfe));
	OK(cuMemFree_v2(neighbour));
}

/* Nothing is filled while a stream captures, and the capture survives. */
static void
fill_in_a_capture(void)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr block;
	CUstream stream;
	CUgraph graph;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc_v2(&block, 4096));
	OK(cuMemFree_v2(block));
	OK(cuStreamEndCapture(stream, &graph));
	EXPECT(graph);
}

/* A kernel waits for what the thread does after its allocation. */
static void
fill_beside_a_waiting_kernel(void)
{
	CUdeviceptr block;
	CUstream stream;
	void *word;

	case_start();
	OK(cuMemHostAlloc(&word, 4096, 0));
	memset(word, 0, 4096);
	OK(cuStreamCreate(&stream, 1));

	uint64_t address = (uint64_t)(uintptr_t)word, value = 1;
	void *args[] = { &address, &value };

	OK(cuLaunchKernel(case_kernel("sim_wait"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	OK(cuMemAlloc_v2(&block, 4096));
	__atomic_store_n((unsigned *)word, 1, __ATOMIC_SEQ_CST);
	OK(cuMemFree_v2(block));
}

/* SIMCUDA_FAIL: the device has the memory, and refuses it as one piece. */
static void
managed(void)
{
	CUdeviceptr pointer;
	int is_managed = 0;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 30 * MIB));
	case_fill(pointer, 1000, 3, 0, NULL);
	EXPECT(case_wrong_words(pointer, 1000, 3) == 0);
	OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
	EXPECT(is_managed);
	OK(cuMemFree_v2(pointer));
	EXPECT(cuMemAlloc_v2(&pointer, 1024 * (size_t)MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* One allocation of the size in megabytes. */
static void
one(void)
{
	CUdeviceptr pointer;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 33 * MIB));
	OK(cuMemFree_v2(pointer));
}

const struct test_case test_cases[] = {
	{ "limit", limit },
	{ "steps", steps },
	{ "idle", idle },
	{ "trim_does_not_wait", trim_does_not_wait },
	{ "zeroed", zeroed },
	{ "zeroed_on_one_stream", zeroed_on_one_stream },
	{ "poisoned", poisoned },
	{ "use_after_free", use_after_free },
	{ "fill_in_a_capture", fill_in_a_capture },
	{ "fill_beside_a_waiting_kernel", fill_beside_a_waiting_kernel },
	{ "managed", managed },
	{ "one", one },
	{ NULL, NULL },
};
