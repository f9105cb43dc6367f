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

/* The context is of no use afterwards. */
static void
new_context(void)
{
	CUcontext context;

	assert_int_equal(sim_ctx_create(0, 0, &context), 0);
}

static void
test_illegal_addresses(void **state)
{
	CUdeviceptr small = must_alloc(512), large, gone;
	uint32_t host = 5;

	assert_illegal(small, 516);
	assert_int_equal(word_at(small), 0);
	new_context();
	large = must_alloc(4 * MIB);
	assert_illegal(large + 4, 4 * MIB);
	new_context();
	gone = must_alloc(4 * MIB);
	assert_int_equal(sim_mem_free(gone), 0);
	assert_illegal(gone, 4);
	new_context();
	assert_illegal((uintptr_t)&host, 4);
	assert_int_equal(host, 5);
	new_context();
	assert_illegal(16, 4);
}

static void
fault(uint64_t code, CUstream stream)
{
	uint64_t args[] = { code, 0 };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FAULT, args, stream), 0);
}

/* All that needs the context answers the code, and what was to run does not. */
static void
test_a_fault_is_sticky(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), other = must_stream(0);
	CUdeviceptr p = must_alloc(4096), q;
	CUevent event = must_event();
	const int code = CUDA_ERROR_UNKNOWN - 1;
	struct sim_mem_info info;
	CUcontext current;
	size_t n;

	fault((uint64_t)code, s);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(event, s), 0);
	assert_int_equal(sim_ctx_error(), 0);
	assert_int_equal(sim_event_sync(event), code);
	assert_int_equal(word_at(p), 0);
	assert_int_equal(sim_ctx_error(), code);
	assert_int_equal(sim_mem_alloc(4096, &q), code);
	assert_int_equal(sim_mem_free(p), code);
	assert_int_equal(sim_mem_get_info(&n, &n), code);
	assert_int_equal(sim_stream_sync(other), code);
	assert_int_equal(sim_stream_query(NULL), code);
	assert_int_equal(sim_stream_create(0, 0, &s), code);
	assert_int_equal(sim_event_query(event), code);
	assert_int_equal(sim_event_record(event, other), code);
	assert_int_equal(sim_event_create(0, &event), code);
	assert_int_equal(sim_ctx_sync(), code);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(sim_ctx_get_current(&current), 0);
	assert_int_equal(sim_stream_destroy(other), code);
	assert_int_equal(sim_stream_destroy(other), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_event_destroy(event), code);
	assert_int_equal(sim_primary_reset(0), 0);
	assert_int_equal(sim_primary_retain(0, &fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	assert_int_equal(sim_mem_alloc(4096, &q), 0);
	assert_int_equal(sim_ctx_error(), 0);
}

/* A free that waits for the fault answers it, and frees nothing; a wait for a value ends. */
static void
test_a_fault_ends_waits(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), waits = must_stream(1);
	CUdeviceptr p = must_alloc(4096);
	uint64_t never[] = { p, 1 };
	struct sim_mem_info info;

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_WAIT, never, waits), 0);
	fault(700, s);
	assert_int_equal(sim_mem_free(p), 700);
	assert_int_equal(sim_mem_lookup(p, &info), 0);
	assert_int_equal(sim_stream_sync(waits), 700);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FAULT, (uint64_t[]){ 0, 0 }, s), 1);
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
		T(test_a_fault_is_sticky),
		T(test_a_fault_ends_waits),
		cmocka_unit_test_setup_teardown(test_a_fault_ends_waits, fixture_real, fixture_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
