/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

static CUstream s, t;

static int
begin(void **state)
{
	fixture_manual(state);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	return 0;
}

static CUdeviceptr
must_alloc_async(size_t n, CUstream stream)
{
	CUdeviceptr ptr = 0;

	assert_int_equal(sim_mem_alloc_async(n, stream, &ptr), 0);
	return ptr;
}

static size_t
free_bytes(void)
{
	size_t n_free, n_total;

	assert_int_equal(sim_mem_get_info(&n_free, &n_total), 0);
	return n_free;
}

static void
test_alloc_use_free(void **state)
{
	struct sim_mem_info info;
	CUdeviceptr p = must_alloc_async(4 * MIB, s), bad;

	assert_int_equal(free_bytes(), 60 * MIB);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(info.kind, SIM_MEM_POOL);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_mem_free_async(p, s), 0);
	assert_int_equal(sim_mem_free_async(p, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(free_bytes(), 60 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(free_bytes(), 64 * MIB);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_mem_alloc_async(0, s, &bad), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_alloc_async(65 * MIB, s, &bad), CUDA_ERROR_OUT_OF_MEMORY);
	/* The plain free takes pool memory too. */
	p = must_alloc_async(512, s);
	assert_int_equal(sim_mem_free(p), 0);
	assert_int_equal(fx.n_races, 0);
}

static void
test_stream_ordered_free_of_plain_memory(void **state)
{
	CUdeviceptr p = must_alloc(4096), managed;
	void *host;

	fill(p, 4096, 1, s);
	assert_int_equal(sim_mem_free_async(p + 512, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free_async(0, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free_async(p, s), 0);
	assert_int_equal(sim_pending(), 2);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(free_bytes(), 64 * MIB);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_mem_alloc_managed(512, 1, &managed), 0);
	assert_int_equal(sim_mem_free_async(managed, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_host_alloc(512, &host), 0);
	assert_int_equal(sim_mem_free_async((uintptr_t)host, s), CUDA_ERROR_INVALID_VALUE);
}

/* It may not be used once the free has run, and is there again when the host has waited. */
static void
test_freed_plain_memory_is_back_after_a_synchronisation(void **state)
{
	CUdeviceptr p = must_alloc(4 * MIB);
	struct sim_mem_info info;

	assert_int_equal(sim_mem_free_async(p, s), 0);
	while (sim_step(1))
		;
	assert_int_equal(free_bytes(), 60 * MIB);
	assert_int_equal(sim_mem_lookup(p, &info), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free(p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(free_bytes(), 60 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(free_bytes(), 64 * MIB);
	p = must_alloc(4 * MIB);
	assert_int_equal(sim_mem_free_async(p, s), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(free_bytes(), 64 * MIB);
}

static void
test_use_must_be_ordered(void **state)
{
	CUdeviceptr p = must_alloc_async(4096, s);

	fill(p, 4096, 1, t);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.before.name, "alloc_async");
	assert_int_equal(sim_mem_free_async(p, s), 0);
	assert_int_equal(fx.n_races, 2);
	assert_string_equal(fx.race.now.name, "free_async");
}

/* When it is full, the stream waits for a free under way, and the host for nothing. */
static void
test_full_waits_for_frees(void **state)
{
	CUdeviceptr a = must_alloc_async(32 * MIB, s), b = must_alloc_async(32 * MIB, t), c;

	assert_int_equal(sim_mem_alloc_async(2 * MIB, s, &c), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_mem_free_async(a, s), 0);
	fill(b, 512, 1, t);
	c = must_alloc_async(32 * MIB, t);
	assert_int_equal(sim_stream_query(t), CUDA_ERROR_NOT_READY);
	fill(c, 512, 1, t);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_peak_bytes(0), 64 * MIB);
}

/* Memory that comes back to another allocation carries no old accusation. */
static void
test_reused_addresses_are_innocent(void **state)
{
	/* Three streams and 32 places: each place comes to every stream. */
	CUstream at[3] = { s, t, must_stream(SIM_STREAM_NON_BLOCKING) };

	for (int i = 0; i < 200; i++) {
		CUdeviceptr p = must_alloc_async(32 * MIB, at[i % 3]);

		fill(p, 4096, 1, at[i % 3]);
		assert_int_equal(sim_mem_free_async(p, at[i % 3]), 0);
	}
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_free_of_memory_whose_context_died(void **state)
{
	CUcontext other;
	CUdeviceptr p;

	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	p = must_alloc(512);
	assert_int_equal(sim_mem_free_async(p, s), 0);
	assert_int_equal(sim_ctx_destroy(other), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(free_bytes(), 64 * MIB);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_alloc_use_free),
		T(test_stream_ordered_free_of_plain_memory),
		T(test_freed_plain_memory_is_back_after_a_synchronisation),
		T(test_use_must_be_ordered),
		T(test_full_waits_for_frees),
		T(test_reused_addresses_are_innocent),
		T(test_free_of_memory_whose_context_died),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
