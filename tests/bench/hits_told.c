/* SPDX-License-Identifier: MIT */
/* Allocations and frees that name their stream (CACHEALLOC_CONF=async:pool serves them): free
 * follows allocation at once. */
#include "tests/bench/hits.h"

void measured_told(unsigned long n, CUstream *streams, unsigned n_streams, CUmemoryPool pool);

enum { STREAMS = 8 };

__attribute__((noinline)) void
measured_told(unsigned long n, CUstream *streams, unsigned n_streams, CUmemoryPool pool)
{
	for (unsigned i = 0; n--; i = i + 1 < n_streams ? i + 1 : 0) {
		CUdeviceptr address;

		if (pool)
			CALL(cuMemAllocFromPoolAsync, &address, BYTES, pool, streams[i]);
		else
			CALL(cuMemAllocAsync, &address, BYTES, streams[i]);
		CALL(cuMemFreeAsync, address, streams[i]);
	}
}

static void
run(unsigned n_streams, CUmemoryPool pool)
{
	CUstream streams[STREAMS];

	for (unsigned i = 0; i < n_streams; i++) {
		streams[i] = arm_stream_new();
		arm_launch(0, streams[i]);
	}
	measured_told(options.pairs, streams, n_streams, pool);
	for (unsigned long r = 0; r < options.rounds; r++) {
		uint64_t start = now_ns();

		measured_told(options.pairs, streams, n_streams, pool);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}

void
hits_told(void)
{
	run(1, NULL);
}

void
hits_told_streams(void)
{
	run(STREAMS, NULL);
}

void
hits_told_pool(void)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemoryPool pool;

	CALL(cuMemPoolCreate, &pool, &props);
	run(1, pool);
}
