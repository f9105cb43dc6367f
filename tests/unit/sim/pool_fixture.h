/* SPDX-License-Identifier: MIT */
/* What the tests of memory pools share: two streams, a pool of the first device's, shorthands. */
#pragma once

#include "tests/sim/engine_pool.h"
#include "tests/unit/sim/fixture.h"

static CUstream s, t;

static inline int
begin_on(int n_devices)
{
	fixture_begin(n_devices, 64 * MIB, SIM_CLOCK_MANUAL);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	return 0;
}

static inline int
begin(void **state)
{
	return begin_on(1);
}

static inline CUmemoryPool
must_pool(uint64_t max_bytes)
{
	struct sim_pool_props props = { .type = SIM_POOL_PINNED,
					.location = SIM_LOCATION_DEVICE,
					.max_bytes = max_bytes };
	CUmemoryPool pool = NULL;

	assert_int_equal(sim_pool_create(&props, &pool), 0);
	return pool;
}

/* With only the rule given; 0: none. */
static inline CUmemoryPool
must_pool_with(enum sim_pool_attribute rule)
{
	CUmemoryPool pool = must_pool(0);

	for (int i = SIM_POOL_FOLLOW_EVENT; i <= SIM_POOL_INTERNAL; i++)
		assert_int_equal(sim_pool_set(pool, (enum sim_pool_attribute)i, i == (int)rule), 0);
	return pool;
}

static inline CUdeviceptr
must_take(CUmemoryPool pool, size_t n_bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	assert_int_equal(sim_pool_alloc(pool, n_bytes, stream, &ptr), 0);
	return ptr;
}

static inline void
must_free(CUdeviceptr ptr, CUstream stream)
{
	assert_int_equal(sim_mem_free_async(ptr, stream), 0);
}

static inline uint64_t
get(CUmemoryPool pool, enum sim_pool_attribute attribute)
{
	uint64_t value = ~0ull;

	assert_int_equal(sim_pool_get(pool, attribute, &value), 0);
	return value;
}

/* What the device still has. */
static inline size_t
room(void)
{
	return sim_total_bytes(0) - sim_used_bytes(0);
}

/* `after` comes behind what `before` has been given. */
static inline void
follow(CUstream after, CUstream before)
{
	CUevent event = must_event();

	assert_int_equal(sim_event_record(event, before), 0);
	assert_int_equal(sim_stream_wait_event(after, event, 0), 0);
}

static inline void
run_all(void)
{
	while (sim_step(1))
		;
}
