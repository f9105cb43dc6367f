/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

static CUdeviceptr p, q;
static uint32_t *pinned;

static int
begin(void **state)
{
	fixture_two(state);
	p = must_alloc(4096);
	q = must_alloc(4096);
	assert_int_equal(sim_mem_host_alloc(4096, (void **)&pinned), 0);
	return 0;
}

static int
copy(CUdeviceptr dst, CUdeviceptr src, size_t n, enum sim_copy_kind kind, bool sync)
{
	return sim_copy(dst, src, n, kind, NULL, sync);
}

/* The source may change as soon as the call is back, though the copy has not run. */
static void
test_pageable_source_is_staged(void **state)
{
	uint32_t host[2] = { 1, 2 };

	assert_int_equal(copy(p, (uintptr_t)host, 8, SIM_COPY_HTOD, true), 0);
	host[0] = 3;
	assert_int_equal(copy(q, (uintptr_t)host, 8, SIM_COPY_ANY, false), 0);
	host[0] = 4;
	assert_int_equal(sim_pending(), 2);
	assert_int_equal(word_at(p), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(word_at(p + 4), 2);
	assert_int_equal(word_at(q), 3);
}

static void
test_pinned_source_is_not(void **state)
{
	pinned[0] = 1;
	assert_int_equal(copy(p, (uintptr_t)pinned, 4, SIM_COPY_HTOD, false), 0);
	pinned[0] = 2;
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 2);
	/* The synchronous form waits. */
	pinned[0] = 3;
	assert_int_equal(copy(p, (uintptr_t)pinned, 4, SIM_COPY_HTOD, true), 0);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(word_at(p), 3);
}

static void
test_downloads(void **state)
{
	uint32_t host = 0;

	fill(p, 4096, 7, NULL);
	assert_int_equal(copy((uintptr_t)&host, p, 4, SIM_COPY_DTOH, false), 0);
	assert_int_equal(host, 7);
	fill(p, 4096, 8, NULL);
	assert_int_equal(copy((uintptr_t)pinned, p, 4, SIM_COPY_DTOH, false), 0);
	assert_int_equal(pinned[0], 0);
	assert_int_equal(copy((uintptr_t)(pinned + 1), p, 4, SIM_COPY_DTOH, true), 0);
	assert_int_equal(pinned[0], 8);
	assert_int_equal(pinned[1], 8);
}

static void
test_device_to_device_does_not_wait(void **state)
{
	fill(p, 4096, 7, NULL);
	assert_int_equal(copy(q, p, 4096, SIM_COPY_DTOD, true), 0);
	assert_int_equal(sim_pending(), 2);
	assert_int_equal(sim_set(q, 1, 1, 4, NULL, true), 0);
	assert_int_equal(sim_pending(), 3);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(q), 0x01010101);
	assert_int_equal(word_at(q + 4), 7);
}

static void
test_host_to_host(void **state)
{
	uint32_t a = 5, b = 0;

	fill(p, 4096, 1, NULL);
	assert_int_equal(copy((uintptr_t)&b, (uintptr_t)&a, 4, SIM_COPY_ANY, false), 0);
	assert_int_equal(b, 5);
	assert_int_equal(sim_pending(), 0);
}

static void
test_sets(void **state)
{
	assert_int_equal(sim_set(p, 0x1ff, 1, 2, NULL, false), 0);
	assert_int_equal(sim_set(p + 2, 0x12345, 2, 1, NULL, false), 0);
	assert_int_equal(sim_set(p + 4, 0xdeadbeef, 4, 1, NULL, false), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 0x2345ffff);
	assert_int_equal(word_at(p + 4), 0xdeadbeef);
	assert_int_equal(word_at(p + 8), 0);
	assert_int_equal(sim_set((uintptr_t)pinned, 9, 4, 1, NULL, true), 0);
	assert_int_equal(pinned[0], 9);
	assert_int_equal(sim_set(p, 1, 4, 0, NULL, true), 0);
	assert_int_equal(sim_set(p + 2, 1, 4, 1, NULL, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_set(p + 1, 1, 2, 1, NULL, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_set(p, 1, 3, 1, NULL, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_set(p, 1, 4, SIZE_MAX / 2, NULL, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_set(p, 1, 4, 1025, NULL, true), CUDA_ERROR_INVALID_VALUE);
}

static void
test_bounds(void **state)
{
	uint32_t host[4] = { 0 };
	CUdeviceptr gone = must_alloc(4096);

	assert_int_equal(sim_mem_free(gone), 0);
	assert_int_equal(copy(p, 0, 0, SIM_COPY_HTOD, true), 0);
	assert_int_equal(copy(p, q, 4096, SIM_COPY_DTOD, true), 0);
	assert_int_equal(fx.n_misuse, 0);
	assert_int_equal(copy(p + 1, q, 4096, SIM_COPY_DTOD, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy(p, q + 1, 4096, SIM_COPY_DTOD, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy(p, q, SIZE_MAX, SIM_COPY_DTOD, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy(gone, q, 4, SIM_COPY_DTOD, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy(gone, q, 4, SIM_COPY_ANY, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy((uintptr_t)host, p, 4, SIM_COPY_HTOD, true),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy(p, (uintptr_t)host, 4, SIM_COPY_DTOH, true),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy(p, (uintptr_t)host, 4, SIM_COPY_DTOD, true),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fx.n_misuse, 8);
	assert_int_equal(copy(p, 0, 4, SIM_COPY_HTOD, true), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy((uintptr_t)(pinned + 1023), p, 8, SIM_COPY_DTOH, true),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_between_devices(void **state)
{
	CUcontext other;
	CUdeviceptr far;

	fill(p, 4096, 7, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_ctx_create(1, 0, &other), 0);
	far = must_alloc(4096);
	assert_int_equal(copy(far, p, 4096, SIM_COPY_DTOD, false), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(far + 4092), 7);
	assert_int_equal(fx.n_races, 0);
}

static void
test_managed_is_device_memory(void **state)
{
	CUdeviceptr managed;

	assert_int_equal(sim_mem_alloc_managed(4096, 1, &managed), 0);
	*(uint32_t *)(uintptr_t)managed = 6;
	assert_int_equal(copy(p, managed, 4, SIM_COPY_DTOD, false), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 6);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_pageable_source_is_staged),
		T(test_pinned_source_is_not),
		T(test_downloads),
		T(test_device_to_device_does_not_wait),
		T(test_host_to_host),
		T(test_sets),
		T(test_bounds),
		T(test_between_devices),
		T(test_managed_is_device_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
