/* SPDX-License-Identifier: MIT */
/* Allocations and frees that name their stream (CACHEALLOC_CONF=async:pool serves them): free
 * follows allocation at once. */
#include "tests/bench/hits.h"

void measured_told(unsigned long n, CUstream *streams, unsigned n_streams, CUmemoryPool pool);

enum { STREAMS = 8, BLOCKING = 0, NONBLOCKING = 1 };

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
measure(CUstream *streams, unsigned n_streams, CUmemoryPool pool)
{
	measured_told(options.pairs, streams, n_streams, pool);
	for (unsigned long r = 0; r < options.rounds; r++) {
		uint64_t start = now_ns();

		measured_told(options.pairs, streams, n_streams, pool);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}

static CUstream
stream_new(unsigned flags)
{
	CUstream stream;

	CALL(cuStreamCreate, &stream, flags);
	arm_launch(0, stream);
	return stream;
}

static void
run(unsigned n_streams, CUmemoryPool pool)
{
	CUstream streams[STREAMS];

	for (unsigned i = 0; i < n_streams; i++)
		streams[i] = stream_new(NONBLOCKING);
	measure(streams, n_streams, pool);
}

/* In one stream, with work on seven others before. */
static void
run_beside(CUstream stream, unsigned flags)
{
	for (unsigned i = 1; i < STREAMS; i++)
		stream_new(flags);
	arm_launch(0, stream);
	measure(&stream, 1, NULL);
}

void
hits_told_legacy(void)
{
	run_beside(NULL, NONBLOCKING);
}

void
hits_told_per_thread(void)
{
	run_beside(CU_STREAM_PER_THREAD, NONBLOCKING);
}

void
hits_told_blocking(void)
{
	run_beside(stream_new(BLOCKING), NONBLOCKING);
}

void
hits_told_legacy_beside_blocking(void)
{
	run_beside(NULL, BLOCKING);
}

void
hits_told_blocking_beside_legacy(void)
{
	arm_launch(0, NULL);
	run_beside(stream_new(BLOCKING), BLOCKING);
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
