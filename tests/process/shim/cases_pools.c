/* SPDX-License-Identifier: MIT */
/* Cases for async:keep on a device of 256 MiB (tests/process/shim/test_pools.py). */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/process/shim/cases.h"

enum { PAIRS = 1000 };

uint64_t cachealloc_trim(uint64_t keep_bytes) __attribute__((weak));

static CUmemoryPool
default_pool(void)
{
	CUmemoryPool pool;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static cuuint64_t
attribute(CUmemPool_attribute which)
{
	cuuint64_t value = 77;

	OK(cuMemPoolGetAttribute(default_pool(), which, &value));
	return value;
}

static void
pair(size_t n_bytes)
{
	CUdeviceptr pointer;

	OK(cuMemAllocAsync(&pointer, n_bytes, NULL));
	OK(cuMemFreeAsync(pointer, NULL));
	OK(cuStreamSynchronize(NULL));
}

/* Pairs with a synchronisation each; prints how often the pool was empty after one. */
static void
pairs(void)
{
	unsigned empty = 0;

	case_start();
	for (unsigned i = 0; i < PAIRS; i++) {
		pair(3 * MIB);
		empty += attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0;
	}
	printf("empty %u\n", empty);
}

/* The program's own threshold: the default, and what it sets, before and after the first memory. */
static void
threshold(void)
{
	CUmemoryPool pool;
	cuuint64_t wanted = 64 * MIB;
	int rule = 7;

	case_start();
	pool = default_pool();
	EXPECT(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
	pair(3 * MIB);
	EXPECT(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted));
	EXPECT(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == wanted);
	wanted = 0;
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted));
	pair(100 * MIB);
	EXPECT(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
	printf("kept %d\n", attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 100 * MIB);
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &rule));
	EXPECT(rule == 1);
	EXPECT(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL) ==
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted) ==
	       CUDA_ERROR_INVALID_VALUE);
}

static void
threshold_early(void)
{
	cuuint64_t wanted = 32 * MIB;

	case_start();
	OK(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted));
	pair(100 * MIB);
	EXPECT(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == wanted);
	printf("kept %d\n", attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 100 * MIB);
}

/* What the pool keeps is had by every other call. */
static void
out_of_memory(void)
{
	CUdeviceptr pointer, other;
	size_t pitch;

	case_start();
	pair(200 * MIB);
	OK(cuMemAlloc_v2(&pointer, 200 * MIB));
	EXPECT(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
	EXPECT(cuMemAlloc_v2(&other, 200 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(pointer));
	pair(200 * MIB);
	OK(cuMemAllocManaged(&pointer, 200 * MIB, 1));
	OK(cuMemFree_v2(pointer));
	pair(200 * MIB);
	OK(cuMemAllocPitch_v2(&pointer, &pitch, 1 << 20, 200, 4));
	OK(cuMemFree_v2(pointer));
}

/* Not even that suffices. */
static void
too_much(void)
{
	CUdeviceptr pointer;

	case_start();
	pair(100 * MIB);
	EXPECT(cuMemAlloc_v2(&pointer, 300 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static cuuint64_t
graph_memory_bytes(void)
{
	cuuint64_t value = 0;

	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
	return value;
}

/* What a graph's launches had stays reserved for the next, and is had where there is no other. */
static void
graph_memory(void)
{
	CUdeviceptr pointer;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAllocAsync(&pointer, 200 * MIB, stream));
	OK(cuMemFreeAsync(pointer, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(graph_memory_bytes() >= 200 * MIB);
	OK(cuMemAlloc_v2(&pointer, 200 * MIB));
	EXPECT(graph_memory_bytes() == 0);
	OK(cuMemFree_v2(pointer));
	cachealloc_trim(0);
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
}

/* Memory of it that is used stays, and so does its content. */
static void
live(void)
{
	CUdeviceptr kept, freed, pointer;
	unsigned char byte = 0;

	case_start();
	OK(cuMemAllocAsync(&kept, 60 * MIB, NULL));
	OK(cuMemsetD8Async(kept, 0x5a, 60 * MIB, NULL));
	OK(cuMemAllocAsync(&freed, 100 * MIB, NULL));
	OK(cuMemFreeAsync(freed, NULL));
	OK(cuCtxSynchronize());
	OK(cuMemAlloc_v2(&pointer, 150 * MIB));
	OK(cuMemcpyDtoH_v2(&byte, kept + 60 * MIB - 1, 1));
	EXPECT(byte == 0x5a);
	EXPECT(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 60 * MIB);
}

static void
trim(void)
{
	case_start();
	pair(100 * MIB);
	EXPECT(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 100 * MIB);
	EXPECT(cachealloc_trim(120 * MIB) == 0);
	EXPECT(cachealloc_trim(0) == 100 * MIB);
	EXPECT(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

/* Asks for nothing of pools itself: for a driver whose pool functions fail. */
static void
steady(void)
{
	CUdeviceptr pointer;

	case_start();
	for (unsigned i = 0; i < 4; i++) {
		CUresult rc;

		pair(100 * MIB);
		rc = cuMemAlloc_v2(&pointer, 200 * MIB);
		EXPECT(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY);
		if (!rc)
			OK(cuMemFree_v2(pointer));
		pair(100 * MIB);
		cachealloc_trim(0);
	}
}

static void
trim_every(void)
{
	CUdeviceptr pointer;

	case_start();
	pair(100 * MIB);
	for (unsigned i = 0; i < 20; i++) {
		OK(cuMemAlloc_v2(&pointer, MIB));
		OK(cuMemFree_v2(pointer));
	}
	EXPECT(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

/* While a stream captures. */
static void
capture(void)
{
	CUdeviceptr pointer;
	CUstream stream;
	CUgraph graph;

	case_start();
	pair(200 * MIB);
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc_v2(&pointer, 200 * MIB));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph));
	EXPECT(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

const struct test_case test_cases[] = {
	{ "pairs", pairs },
	{ "threshold", threshold },
	{ "threshold_early", threshold_early },
	{ "out_of_memory", out_of_memory },
	{ "too_much", too_much },
	{ "graph_memory", graph_memory },
	{ "live", live },
	{ "trim", trim },
	{ "steady", steady },
	{ "trim_every", trim_every },
	{ "capture", capture },
	{ NULL, NULL },
};
