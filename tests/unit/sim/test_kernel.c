/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

#include <errno.h>

static void
test_names(void **state)
{
	enum sim_kernel kernel = SIM_KERNEL_COUNT;

	assert_int_equal(sim_kernel_find("sim_check", &kernel), 0);
	assert_int_equal(kernel, SIM_KERNEL_CHECK);
	assert_int_equal(sim_kernel_arg_count(kernel), 5);
	assert_string_equal(sim_kernel_name(kernel), "sim_check");
	assert_int_equal(sim_kernel_find("sim_fil", &kernel), -ENOENT);
	assert_int_equal(sim_kernel_arg_count(SIM_KERNEL_COUNT), 0);
	assert_null(sim_kernel_name(SIM_KERNEL_COUNT));
}

static void
test_fill_check_copy(void **state)
{
	CUdeviceptr p = must_alloc(4096), q = must_alloc(4096), errors = must_alloc(8);

	fill(p, 4096, 0x12345678, NULL);
	copy_words(q, p, 2048, NULL);
	check(q, 2048, 0x12345678, errors, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(errors), 0);
	assert_int_equal(word_at(q + 2048), 0);
	check(q, 4096, 0x12345678, errors, NULL);
	check(q, 4096, 1, errors, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(errors), 512 + 1024);
	fill(p, 0, 9, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 0x12345678);
}

static void
test_bad_launches(void **state)
{
	CUdeviceptr p = must_alloc(4096);
	uint64_t odd[] = { p + 1, 1, 1, 0 }, many[] = { p, UINT64_MAX / 4, 1, 0 };
	uint64_t errors[] = { p, 1, 1, p + 4, 0 };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FILL, odd, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FILL, many, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_CHECK, errors, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_COUNT, odd, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FILL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pending(), 0);
}

static void
assert_illegal(CUdeviceptr ptr, size_t n_bytes)
{
	unsigned n = fx.n_misuse;

	fill(ptr, n_bytes, 1, NULL);
	assert_int_equal(sim_stream_sync(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(fx.n_misuse, n + 1);
	assert_int_equal(fx.misuse, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(sim_stream_query(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_illegal_addresses(void **state)
{
	CUdeviceptr small = must_alloc(512), large = must_alloc(4 * MIB),
		    gone = must_alloc(4 * MIB);
	uint32_t host = 5;

	assert_int_equal(sim_mem_free(gone), 0);
	assert_illegal(small, 516);
	assert_int_equal(word_at(small), 0);
	assert_illegal(large + 4, 4 * MIB);
	assert_illegal(gone, 4);
	assert_illegal((uintptr_t)&host, 4);
	assert_int_equal(host, 5);
	assert_illegal(16, 4);
}

/* Another context of the device goes on. */
static void
test_illegal_address_stays_in_its_context(void **state)
{
	CUdeviceptr p;
	CUcontext other;

	assert_illegal(16, 4);
	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	p = must_alloc(512);
	fill(p, 512, 1, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_primary_reset(0), 0);
	assert_int_equal(sim_primary_retain(0, &fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	assert_int_equal(sim_ctx_sync(), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fixture_manual, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_names),
		T(test_fill_check_copy),
		T(test_bad_launches),
		T(test_illegal_addresses),
		T(test_illegal_address_stays_in_its_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
