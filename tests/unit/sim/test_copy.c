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

/* ------------------------------------------------------------------ areas --- */
static struct sim_area
area(uint64_t addr, uint64_t width, uint64_t rows, uint64_t pitch)
{
	return (struct sim_area){ addr, width, rows, pitch, 1, 0 };
}

static int
copy_area(struct sim_area dst, struct sim_area src)
{
	return sim_copy_area(&dst, &src, SIM_COPY_ANY, NULL, false);
}

static void
test_rows_go_where_they_belong(void **state)
{
	uint32_t host[4] = { 1, 2, 3, 4 };

	fill(p, 4096, 9, NULL);
	assert_int_equal(copy_area(area(p, 4, 2, 16), area((uintptr_t)host, 4, 2, 8)), 0);
	host[0] = host[2] = 7; /* the source was staged */
	assert_int_equal(copy_area(area(q, 8, 2, 8), area(p, 8, 2, 16)), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(word_at(p + 4), 9);
	assert_int_equal(word_at(p + 8), 9);
	assert_int_equal(word_at(p + 16), 3);
	assert_int_equal(word_at(q + 4), 9);
	assert_int_equal(word_at(q + 8), 3);
}

static void
test_slices(void **state)
{
	struct sim_area from = { p, 4, 2, 8, 2, 32 }, to = { q, 4, 2, 4, 2, 8 };

	for (uint32_t i = 0; i < 16; i++)
		fill(p + 4ul * i, 4, i, NULL);
	assert_int_equal(copy_area(to, from), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(q), 0);
	assert_int_equal(word_at(q + 4), 2);
	assert_int_equal(word_at(q + 8), 8);
	assert_int_equal(word_at(q + 12), 10);
}

static void
test_areas_that_do_not_fit(void **state)
{
	struct sim_area deep = { p, 4, 2, 8, 2, 8 };

	assert_int_equal(copy_area(area(p, 8, 512, 8), area(q, 8, 512, 8)), 0);
	assert_int_equal(copy_area(area(p, 8, 0, 8), area(0, 8, 0, 8)), 0);
	assert_int_equal(copy_area(area(p, 8, 513, 8), area(q, 8, 513, 8)),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy_area(area(p, 8, 2, 4), area(q, 8, 2, 8)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy_area(area(p, 8, 3, UINT64_MAX / 2), area(q, 8, 3, 8)),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(copy_area(deep, deep), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_set_of_rows(void **state)
{
	struct sim_area rows = area(p, 4, 2, 8), odd = area(p, 4, 2, 6);

	fill(p, 4096, 9, NULL);
	assert_int_equal(sim_set_area(&rows, 5, 4, NULL, false), 0);
	assert_int_equal(sim_set_area(&odd, 5, 4, NULL, false), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 5);
	assert_int_equal(word_at(p + 4), 9);
	assert_int_equal(word_at(p + 8), 5);
	assert_int_equal(word_at(p + 12), 9);
}

static void
test_use_of_managed_memory(void **state)
{
	CUdeviceptr managed;

	assert_int_equal(sim_mem_alloc_managed(4096, 1, &managed), 0);
	fill(managed, 4096, 6, NULL);
	assert_int_equal(sim_mem_use(managed, 4096, SIM_USE_PREFETCH, NULL), 0);
	assert_int_equal(sim_mem_use(managed, 4096, SIM_USE_ATTACH, NULL), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(managed), 6);
	assert_int_equal(sim_mem_use(managed, 8, SIM_USE_DISCARD, NULL), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_not_equal(word_at(managed), 6);
	assert_int_equal(word_at(managed + 8), 6);
	assert_int_equal(sim_mem_use(managed, 4097, SIM_USE_PREFETCH, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_use(p, 4096, SIM_USE_PREFETCH, NULL), CUDA_ERROR_INVALID_VALUE);
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
		T(test_rows_go_where_they_belong),
		T(test_slices),
		T(test_areas_that_do_not_fit),
		T(test_set_of_rows),
		T(test_use_of_managed_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
