/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

#include <errno.h>

static void
test_start_once(void **state)
{
	struct sim_config config = { .n_devices = 1, .mem_bytes = 2 * MIB };

	assert_int_equal(sim_start(&config), -EALREADY);
	assert_int_equal(sim_device_count(), 2);
	assert_int_equal(sim_total_bytes(1), 64 * MIB);
	assert_int_equal(sim_total_bytes(2), 0);
	sim_stop();
	assert_int_equal(sim_device_count(), 0);
	config.n_devices = 0;
	assert_int_equal(sim_start(&config), -EINVAL);
	config.n_devices = SIM_DEVICES_MAX + 1;
	assert_int_equal(sim_start(&config), -EINVAL);
	config.n_devices = 1;
	config.mem_bytes = 2 * MIB - 1;
	assert_int_equal(sim_start(&config), -EINVAL);
}

static void
test_primary_counts(void **state)
{
	unsigned long long id1, id2;
	CUcontext again;
	unsigned flags;
	int active;

	assert_int_equal(sim_ctx_get_id(fx.ctx, &id1), 0);
	assert_int_equal(sim_primary_retain(0, &again), 0);
	assert_ptr_equal(again, fx.ctx);
	assert_int_equal(sim_primary_release(0), 0);
	assert_int_equal(sim_primary_get_state(0, &flags, &active), 0);
	assert_int_equal(active, 1);
	assert_int_equal(sim_primary_release(0), 0);
	assert_int_equal(sim_primary_get_state(0, &flags, &active), 0);
	assert_int_equal(active, 0);
	assert_int_equal(sim_primary_release(0), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_primary_retain(0, &again), 0);
	assert_ptr_equal(again, fx.ctx);
	assert_int_equal(sim_ctx_get_id(again, &id2), 0);
	assert_true(id2 > id1);
	/* The stack still means the dead life of it. */
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_ctx_set_current(again), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_primary_retain(2, &again), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(sim_primary_retain(-1, &again), CUDA_ERROR_INVALID_DEVICE);
}

static void
test_death_takes_all_along(void **state)
{
	CUdeviceptr a = must_alloc(4 * MIB), b = must_alloc(512);
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING);
	struct sim_mem_info info;
	CUevent e = must_event();
	size_t n_free, n_total;
	CUdeviceptr ptr;

	fill(a, 512, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_primary_reset(0), 0);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(sim_mem_lookup(a, &info), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_alloc(1, &ptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_mem_free(b), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_event_destroy(e), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_event_destroy(e), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_stream_destroy(s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_stream_destroy(s), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_primary_retain(0, &fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	assert_int_equal(sim_mem_get_info(&n_free, &n_total), 0);
	assert_int_equal(n_free, n_total);
	assert_int_equal(sim_primary_reset(0), 0);
	assert_int_equal(sim_primary_reset(0), 0);
}

static void
test_created_contexts(void **state)
{
	unsigned long long id1, id2;
	CUcontext a, b, now;
	unsigned flags;
	int device;

	assert_int_equal(sim_ctx_create(1, 4, &a), 0);
	assert_int_equal(sim_ctx_get_id(NULL, &id1), 0);
	assert_int_equal(sim_ctx_get_device(&device), 0);
	assert_int_equal(device, 1);
	assert_int_equal(sim_ctx_get_flags(&flags), 0);
	assert_int_equal(flags, 4);
	assert_int_equal(sim_ctx_destroy(a), 0);
	assert_int_equal(sim_ctx_get_current(&now), 0);
	assert_ptr_equal(now, fx.ctx);
	assert_int_equal(sim_ctx_destroy(a), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_create(0, 0, &b), 0);
	assert_ptr_equal(b, a);
	assert_int_equal(sim_ctx_get_id(b, &id2), 0);
	assert_true(id2 > id1);
	assert_int_equal(sim_ctx_destroy(fx.ctx), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_destroy(NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_ctx_create(7, 0, &b), CUDA_ERROR_INVALID_DEVICE);
}

static void
test_stack(void **state)
{
	CUcontext a, now;
	CUdeviceptr ptr;

	assert_int_equal(sim_ctx_create(0, 0, &a), 0);
	assert_int_equal(sim_ctx_pop(&now), 0);
	assert_ptr_equal(now, a);
	assert_int_equal(sim_ctx_push(a), 0);
	assert_int_equal(sim_ctx_push(a), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	assert_int_equal(sim_ctx_pop(&now), 0);
	assert_ptr_equal(now, fx.ctx);
	assert_int_equal(sim_ctx_get_current(&now), 0);
	assert_ptr_equal(now, a);
	assert_int_equal(sim_ctx_set_current(NULL), 0);
	assert_int_equal(sim_ctx_pop(NULL), 0);
	assert_int_equal(sim_ctx_pop(NULL), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_mem_alloc(1, &ptr), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_get_current(&now), 0);
	assert_null(now);
	assert_int_equal(sim_ctx_push(NULL), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_push((CUcontext)(void *)&now), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(fx.misuse, CUDA_ERROR_INVALID_CONTEXT);
}

static void
test_sync_covers_its_context_only(void **state)
{
	CUdeviceptr mine = must_alloc(512), theirs;
	CUcontext other;

	assert_int_equal(sim_ctx_create(1, 0, &other), 0);
	theirs = must_alloc(512);
	fill(theirs, 512, 2, NULL);
	assert_int_equal(sim_ctx_pop(NULL), 0);
	fill(mine, 512, 1, NULL);
	fill(mine, 256, 3, must_stream(SIM_STREAM_NON_BLOCKING));
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(mine + 508), 1);
	assert_int_equal(word_at(theirs), 0);
	assert_int_equal(sim_pending(), 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fixture_two, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_start_once),
		T(test_primary_counts),
		T(test_death_takes_all_along),
		T(test_created_contexts),
		T(test_stack),
		T(test_sync_covers_its_context_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
