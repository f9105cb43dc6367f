/* SPDX-License-Identifier: MIT */
/* Memory pools: attributes, what is given back when, life, places, limits, access. */
#include "tests/unit/sim/pool_fixture.h"

static const struct sim_pool_props device_props = { .type = SIM_POOL_PINNED,
						    .location = SIM_LOCATION_DEVICE };

static int
begin_two(void **state)
{
	return begin_on(2);
}

static CUmemoryPool
standard(int device)
{
	CUmemoryPool pool = NULL;

	assert_int_equal(sim_pool_default(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, device, &pool), 0);
	return pool;
}

/* ------------------------------------------------------------ attributes --- */
static void
test_defaults(void **state)
{
	CUmemoryPool pool = must_pool(0);

	for (int i = SIM_POOL_FOLLOW_EVENT; i <= SIM_POOL_INTERNAL; i++)
		assert_int_equal(get(pool, (enum sim_pool_attribute)i), 1);
	for (int i = SIM_POOL_THRESHOLD; i <= SIM_POOL_USED_HIGH; i++)
		assert_int_equal(get(pool, (enum sim_pool_attribute)i), 0);
	assert_int_equal(get(pool, SIM_POOL_TYPE), SIM_POOL_PINNED);
	assert_int_equal(get(pool, SIM_POOL_HANDLE_TYPES), 0);
	assert_int_equal(get(pool, SIM_POOL_LOCATION_TYPE), SIM_LOCATION_DEVICE);
	assert_int_equal(get(pool, SIM_POOL_LOCATION_ID), 0);
	assert_int_equal(get(pool, SIM_POOL_MAX_SIZE), 0);
	assert_int_equal(get(pool, SIM_POOL_DECOMPRESS), 0);
	assert_int_equal((int)get(pool, SIM_POOL_DOMAIN), -1);
}

static void
test_what_can_be_set(void **state)
{
	CUmemoryPool pool = must_pool(0);
	uint64_t value;

	for (int i = SIM_POOL_FOLLOW_EVENT; i <= SIM_POOL_INTERNAL; i++) {
		assert_int_equal(sim_pool_set(pool, (enum sim_pool_attribute)i, 0), 0);
		assert_int_equal(get(pool, (enum sim_pool_attribute)i), 0);
	}
	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, UINT64_MAX), 0);
	assert_true(get(pool, SIM_POOL_THRESHOLD) == UINT64_MAX);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_USED_HIGH, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_RESERVED_HIGH, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_USED, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_RESERVED, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_MAX_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fx.misuse, CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_get(pool, (enum sim_pool_attribute)0, &value),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_get(pool, (enum sim_pool_attribute)16, &value),
			 CUDA_ERROR_INVALID_VALUE);
}

static void
test_counters_and_marks(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr a = must_take(pool, 3 * MIB, s), b = must_take(pool, 1000, s);

	assert_int_equal(get(pool, SIM_POOL_USED), 3 * MIB + 1024);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 4 * MIB);
	must_free(a, s); /* for everything of the stream it is free now */
	assert_int_equal(get(pool, SIM_POOL_USED), 1024);
	assert_int_equal(get(pool, SIM_POOL_USED_HIGH), 3 * MIB + 1024);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_USED_HIGH, 0), 0);
	assert_int_equal(get(pool, SIM_POOL_USED_HIGH), 1024);
	must_free(b, s);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 4 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED_HIGH), 4 * MIB);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_RESERVED_HIGH, 0), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED_HIGH), 0);
}

/* ---------------------------------------------------------- giving back --- */
static CUmemoryPool
pool_with_freed(uint64_t threshold)
{
	CUmemoryPool pool = must_pool(0);

	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, threshold), 0);
	must_free(must_take(pool, 8 * MIB, s), s);
	return pool;
}

static void
test_each_synchronisation_gives_back(void **state)
{
	CUevent event = must_event();
	CUmemoryPool pool;

	pool = pool_with_freed(0);
	run_all(); /* done, but the host does not know */
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 8 * MIB);
	assert_int_equal(room(), 56 * MIB);
	assert_int_equal(sim_stream_sync(t), 0); /* of another stream: knows nothing of it */
	assert_int_equal(room(), 56 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(room(), 64 * MIB);
	pool_with_freed(0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(room(), 64 * MIB);
	pool_with_freed(0);
	assert_int_equal(sim_event_record(event, s), 0);
	assert_int_equal(sim_event_sync(event), 0);
	assert_int_equal(room(), 64 * MIB);
}

static void
test_threshold(void **state)
{
	CUmemoryPool pool = pool_with_freed(5 * MIB);

	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 6 * MIB); /* whole units, at least 5 */
	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, UINT64_MAX), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 6 * MIB);
	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, 0), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 6 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 0);
}

/* What lives holds its units, and nothing else. */
static void
test_live_memory_stays(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr a = must_take(pool, 4 * MIB, s), b = must_take(pool, 512, s),
		    c = must_take(pool, 4 * MIB, s);

	fill(b, 512, 7, s);
	must_free(a, s);
	must_free(c, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 2 * MIB);
	assert_int_equal(word_at(b), 7);
}

static void
test_trim(void **state)
{
	CUmemoryPool pool = pool_with_freed(UINT64_MAX);

	assert_int_equal(sim_pool_trim(pool, 0), 0); /* not known to the host */
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 8 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_pool_trim(pool, 100 * MIB), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 8 * MIB);
	assert_int_equal(sim_pool_trim(pool, 3 * MIB), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 4 * MIB);
	assert_int_equal(sim_pool_trim(pool, 0), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 0);
	assert_int_equal(room(), 64 * MIB);
}

/* Free units of the wrong place are exchanged for others: fragments do not fail it. */
static void
test_fragments_are_exchanged(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p[8];

	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, UINT64_MAX), 0);
	for (int i = 0; i < 8; i++)
		p[i] = must_take(pool, 8 * MIB, s);
	for (int i = 0; i < 8; i += 2)
		must_free(p[i], s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 64 * MIB);
	fill(must_take(pool, 32 * MIB, s), 32 * MIB, 1, s);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 64 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(fx.n_races, 0);
}

/* What one pool keeps no other gets, nor does cuMemAlloc. */
static void
test_a_pools_reserve_is_its_own(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p;

	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, UINT64_MAX), 0);
	must_free(must_take(pool, 40 * MIB, s), s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_mem_alloc(32 * MIB, &p), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_mem_alloc_async(32 * MIB, s, &p), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_pool_trim(pool, 0), 0);
	assert_int_equal(sim_mem_alloc(32 * MIB, &p), 0);
}

static void
test_max_size(void **state)
{
	CUmemoryPool pool = must_pool(3 * MIB);
	CUdeviceptr p;

	assert_int_equal(get(pool, SIM_POOL_MAX_SIZE), 4 * MIB);
	assert_int_equal(sim_pool_alloc(pool, 5 * MIB, s, &p), CUDA_ERROR_OUT_OF_MEMORY);
	p = must_take(pool, 4 * MIB, s);
	assert_int_equal(sim_pool_alloc(pool, 512, s, &p), CUDA_ERROR_OUT_OF_MEMORY);
	must_free(p, s);
	must_free(must_take(pool, 512, t), t); /* behind an inserted wait */
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 4 * MIB);
}

/* ------------------------------------------------------------------ life --- */
static void
test_destroyed_with_live_memory(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4 * MIB, s);
	uint64_t value;

	fill(p, 4096, 1, s);
	assert_int_equal(sim_pool_destroy(pool), 0);
	assert_int_equal(sim_pending(), 2);
	assert_int_equal(sim_pool_get(pool, SIM_POOL_USED, &value), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_alloc(pool, 512, s, &p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_destroy(pool), CUDA_ERROR_INVALID_VALUE);
	fill(p, 4096, 2, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 2);
	assert_int_equal(room(), 60 * MIB);
	must_free(p, s);
	assert_int_equal(room(), 60 * MIB);
	run_all();
	assert_int_equal(room(), 64 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
}

static void
test_destroyed_with_a_free_under_way(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4 * MIB, s);

	fill(p, 4096, 1, s);
	must_free(p, s);
	assert_int_equal(sim_pool_destroy(pool), 0);
	assert_int_equal(room(), 60 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(room(), 64 * MIB);
	assert_int_equal(fx.n_races, 0);
}

static void
test_memory_outlives_stream_and_context(void **state)
{
	CUmemoryPool pool = must_pool(0);
	struct sim_mem_info info;
	CUstream stream;
	CUcontext other;
	CUdeviceptr p;

	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	stream = must_stream(SIM_STREAM_NON_BLOCKING);
	p = must_take(pool, 4096, stream);
	fill(p, 4096, 5, stream);
	assert_int_equal(sim_stream_destroy(stream), 0);
	assert_int_equal(sim_ctx_destroy(other), 0);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_null(info.ctx);
	assert_ptr_equal(info.pool, pool);
	assert_int_equal(word_at(p), 5);
	fill(p, 4096, 6, s);
	must_free(p, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(room(), 64 * MIB);
	assert_int_equal(fx.n_races, 0);
}

/* --------------------------------------------------------------- places --- */
static void
test_default_and_current(void **state)
{
	CUmemoryPool first = standard(0), second = standard(1), now, pool = must_pool(0);
	struct sim_mem_info info;

	assert_ptr_equal(standard(0), first);
	assert_ptr_not_equal(first, second);
	assert_int_equal(sim_pool_destroy(first), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, 1, pool),
			 CUDA_ERROR_INVALID_VALUE); /* of device 0 */
	assert_int_equal(sim_pool_set_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, 0, pool), 0);
	assert_int_equal(sim_pool_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, 0, &now), 0);
	assert_ptr_equal(now, pool);
	assert_ptr_equal(standard(0), first);
	assert_int_equal(sim_mem_lookup(must_take(NULL, 512, s), &info), 0);
	assert_ptr_equal(info.pool, pool);
	assert_int_equal(sim_pool_destroy(pool), 0);
	assert_int_equal(sim_pool_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, 0, &now), 0);
	assert_ptr_equal(now, first);
	assert_int_equal(sim_pool_default(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, 2, &now),
			 CUDA_ERROR_INVALID_DEVICE);
}

/* The stream's device counts, not the context's. */
static void
test_the_streams_device(void **state)
{
	CUcontext other;
	struct sim_mem_info info;
	CUdeviceptr p;

	assert_int_equal(sim_ctx_create(1, 0, &other), 0);
	p = must_take(NULL, 512, s);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(info.device, 0);
	assert_ptr_equal(info.pool, standard(0));
	p = must_take(standard(0), 512, must_stream(0)); /* another device's pool */
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(info.device, 0);
}

static void
test_pools_on_the_host(void **state)
{
	struct sim_pool_props props = { .type = SIM_POOL_PINNED, .location = SIM_LOCATION_HOST };
	struct sim_mem_info info;
	CUmemoryPool pool, numa;
	CUdeviceptr p;
	unsigned flags;

	assert_int_equal(sim_pool_create(&props, &pool), 0);
	props.location = SIM_LOCATION_NUMA;
	assert_int_equal(sim_pool_create(&props, &numa), 0);
	props.id = 7;
	assert_int_equal(sim_pool_create(&props, &numa), CUDA_ERROR_INVALID_VALUE);
	p = must_take(pool, 4 * MIB, s);
	assert_int_equal(room(), 64 * MIB);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(info.kind, SIM_MEM_HOST);
	fill(p, 4096, 3, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(*(volatile uint32_t *)(uintptr_t)p, 3);
	assert_int_equal(sim_pool_get_access(pool, SIM_LOCATION_HOST, 0, &flags), 0);
	assert_int_equal(flags, SIM_ACCESS_ALL);
	assert_int_equal(sim_mem_host_free((void *)(uintptr_t)p), CUDA_ERROR_INVALID_VALUE);
	must_free(p, s);
	assert_int_equal(get(pool, SIM_POOL_USED), 0);
}

static void
test_managed_pools(void **state)
{
	struct sim_pool_props props = { .type = SIM_POOL_MANAGED };
	struct sim_mem_info info;
	CUmemoryPool pool;
	CUdeviceptr p;

	assert_int_equal(sim_pool_create(&props, &pool), 0);
	p = must_take(pool, 4096, s);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(info.kind, SIM_MEM_MANAGED);
	assert_int_equal(sim_mem_use(p, 4096, SIM_USE_PREFETCH, s), 0);
	must_free(p, s);
	props.max_bytes = MIB;
	assert_int_equal(sim_pool_create(&props, &pool), CUDA_ERROR_INVALID_VALUE);
}

static void
test_properties_that_are_refused(void **state)
{
	struct sim_pool_props props = device_props;
	CUmemoryPool pool;

	props.type = 3;
	assert_int_equal(sim_pool_create(&props, &pool), CUDA_ERROR_INVALID_VALUE);
	props = device_props;
	props.id = 1; /* there is one device */
	assert_int_equal(sim_pool_create(&props, &pool), CUDA_ERROR_INVALID_VALUE);
	props = device_props;
	props.handle_types = 2;
	assert_int_equal(sim_pool_create(&props, &pool), CUDA_ERROR_INVALID_VALUE);
	props = device_props;
	props.usage = SIM_POOL_USAGE_DECOMPRESS;
	assert_int_equal(sim_pool_create(&props, &pool), CUDA_ERROR_INVALID_VALUE);
	props = (struct sim_pool_props){ .type = SIM_POOL_PINNED,
					 .location = SIM_LOCATION_HOST,
					 .handle_types = SIM_POOL_FD };
	assert_int_equal(sim_pool_create(&props, &pool), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fx.n_misuse, 5);
}

/* ---------------------------------------------------------------- access --- */
static void
test_access_is_the_pools(void **state)
{
	CUmemoryPool pool = standard(0);
	CUdeviceptr p = must_take(pool, 4096, s);
	CUcontext other;
	CUstream there;
	unsigned flags;

	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_primary_retain(1, &other), 0);
	assert_int_equal(sim_ctx_set_current(other), 0);
	there = must_stream(SIM_STREAM_NON_BLOCKING);
	assert_int_equal(sim_pool_get_access(pool, SIM_LOCATION_DEVICE, 1, &flags), 0);
	assert_int_equal(flags, SIM_ACCESS_NONE);
	assert_int_equal(sim_pool_set_access(pool, 1, SIM_ACCESS_ALL), 0);
	assert_int_equal(sim_pool_get_access(pool, SIM_LOCATION_DEVICE, 1, &flags), 0);
	assert_int_equal(flags, SIM_ACCESS_ALL);
	fill(p, 4096, 1, there);
	assert_int_equal(sim_stream_sync(there), 0);
	assert_int_equal(sim_pool_set_access(pool, 1, SIM_ACCESS_NONE), 0);
	/* Peer access of contexts opens nothing of it. */
	assert_int_equal(sim_ctx_enable_peer(fx.ctx), 0);
	fill(p, 4096, 2, there);
	assert_int_equal(sim_stream_sync(there), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_access_that_cannot_be(void **state)
{
	CUmemoryPool pool = standard(0);
	unsigned flags;

	assert_int_equal(sim_pool_get_access(pool, SIM_LOCATION_DEVICE, 0, &flags), 0);
	assert_int_equal(flags, SIM_ACCESS_ALL);
	assert_int_equal(sim_pool_get_access(pool, SIM_LOCATION_HOST, 0, &flags), 0);
	assert_int_equal(flags, SIM_ACCESS_NONE);
	assert_int_equal(sim_pool_set_access(pool, 0, SIM_ACCESS_NONE), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set_access(pool, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set_access(pool, 2, SIM_ACCESS_ALL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_get_access(pool, SIM_LOCATION_DEVICE, 2, &flags),
			 CUDA_ERROR_INVALID_VALUE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)
#define TWO(f) cmocka_unit_test_setup_teardown(f, begin_two, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_defaults),
		T(test_what_can_be_set),
		T(test_counters_and_marks),
		T(test_each_synchronisation_gives_back),
		T(test_threshold),
		T(test_live_memory_stays),
		T(test_trim),
		T(test_fragments_are_exchanged),
		T(test_a_pools_reserve_is_its_own),
		T(test_max_size),
		T(test_destroyed_with_live_memory),
		T(test_destroyed_with_a_free_under_way),
		T(test_memory_outlives_stream_and_context),
		TWO(test_default_and_current),
		TWO(test_the_streams_device),
		T(test_pools_on_the_host),
		T(test_managed_pools),
		T(test_properties_that_are_refused),
		TWO(test_access_is_the_pools),
		TWO(test_access_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
