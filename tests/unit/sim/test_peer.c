/* SPDX-License-Identifier: MIT */
/* Peer access between the contexts of two devices. */
#include "tests/unit/sim/fixture.h"

enum { UNSUPPORTED = 217, ALREADY_ENABLED = 704, NOT_ENABLED = 705 };

static CUcontext far;
static CUdeviceptr p, q;

static void
begin_with(enum sim_clock clock)
{
	fixture_begin(2, 64 * MIB, clock);
	p = must_alloc(4096);
	assert_int_equal(sim_ctx_create(1, 0, &far), 0);
	q = must_alloc(4096);
}

static int
begin_manual(void **state)
{
	begin_with(SIM_CLOCK_MANUAL);
	return 0;
}

static int
begin_real(void **state)
{
	begin_with(SIM_CLOCK_REAL);
	return 0;
}

static void
test_without_it(void **state)
{
	fill(p, 4096, 1, NULL);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(fx.misuse, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_a_wait_without_it_ends_at_once(void **state)
{
	uint64_t args[] = { p, 77 };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_WAIT, args, NULL), 0);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_with_it(void **state)
{
	assert_int_equal(sim_ctx_enable_peer(fx.ctx), 0);
	assert_int_equal(sim_ctx_enable_peer(fx.ctx), ALREADY_ENABLED);
	fill(p, 4096, 1, NULL);
	copy_words(q, p, 4096, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(q), 1);
	assert_int_equal(sim_ctx_disable_peer(fx.ctx), 0);
	assert_int_equal(sim_ctx_disable_peer(fx.ctx), NOT_ENABLED);
	fill(p, 4096, 2, NULL);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* One direction only. */
static void
test_direction(void **state)
{
	assert_int_equal(sim_ctx_enable_peer(fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	fill(q, 4096, 1, NULL);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_copies_need_none(void **state)
{
	CUdeviceptr managed;

	assert_int_equal(sim_set(p, 5, 4, 1024, NULL, false), 0);
	assert_int_equal(sim_copy(q, p, 4096, SIM_COPY_DTOD, NULL, false), 0);
	assert_int_equal(sim_mem_alloc_managed(4096, 1, &managed), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(q), 5);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	fill(managed, 4096, 1, NULL);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_whom(void **state)
{
	CUcontext same;

	assert_int_equal(sim_ctx_enable_peer(far), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_enable_peer(NULL), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_primary_retain(1, &same), 0);
	assert_int_equal(sim_ctx_enable_peer(same), UNSUPPORTED);
	assert_int_equal(sim_ctx_disable_peer(same), NOT_ENABLED);
}

#define B(f)                                                                                       \
	{ #f " (manual)", f, begin_manual, fixture_end, NULL },                                    \
	{                                                                                          \
#f " (real)", f, begin_real, fixture_end, NULL                                     \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		B(test_without_it),       B(test_a_wait_without_it_ends_at_once),
		B(test_with_it),          B(test_direction),
		B(test_copies_need_none), B(test_whom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
