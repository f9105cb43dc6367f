/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

static void
test_sync_runs_only_its_own_stream(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512), b = must_alloc(512);

	fill(a, 512, 1, s);
	fill(b, 512, 2, t);
	fill(a, 256, 3, s);
	assert_int_equal(sim_pending(), 3);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_pending(), 1);
	assert_int_equal(word_at(a), 3);
	assert_int_equal(word_at(a + 256), 1);
	assert_int_equal(word_at(b), 0);
	assert_int_equal(sim_stream_query(t), CUDA_ERROR_NOT_READY);
	assert_int_equal(sim_stream_query(s), 0);
}

static void
test_sync_runs_what_it_depends_on(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512);
	CUevent e = must_event();

	fill(a, 512, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	fill(a + 256, 256, 2, s);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(a + 256), 1);
	assert_int_equal(sim_pending(), 1);
}

static void
test_step(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512), b = must_alloc(512);

	fill(a, 512, 1, s);
	fill(b, 512, 2, t);
	assert_int_equal(sim_step(1), 1);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(b), 0);
	assert_int_equal(sim_step(5), 1);
	assert_int_equal(word_at(b), 2);
	assert_int_equal(sim_step(5), 0);
}

static void
test_legacy_rules_run_in_order(void **state)
{
	CUstream s = must_stream(0), free_one = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512), b = must_alloc(512), c = must_alloc(512);

	fill(a, 512, 1, s);
	fill(b, 512, 2, free_one);
	fill(c, 512, 3, NULL);
	assert_int_equal(sim_stream_sync(NULL), 0);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(c), 3);
	assert_int_equal(word_at(b), 0);
	/* The other way: a blocking stream waits for the legacy stream. */
	fill(c, 512, 4, NULL);
	fill(a, 512, 5, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(c), 4);
	/* And synchronising the legacy stream alone covers blocking streams. */
	fill(a, 512, 6, s);
	assert_int_equal(sim_stream_query(NULL), CUDA_ERROR_NOT_READY);
	assert_int_equal(sim_stream_sync(NULL), 0);
	assert_int_equal(word_at(a), 6);
}

static void
test_per_thread_stream_is_a_stream(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512), b = must_alloc(512);
	unsigned long long legacy, mine;

	assert_int_equal(sim_stream_get_id(NULL, &legacy), 0);
	assert_int_equal(sim_stream_get_id(CU_STREAM_PER_THREAD, &mine), 0);
	assert_int_not_equal(legacy, mine);
	fill(a, 512, 1, CU_STREAM_PER_THREAD);
	fill(b, 512, 2, s);
	assert_int_equal(sim_stream_sync(CU_STREAM_PER_THREAD), 0);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(b), 0);
}

static void
test_destroyed_stream_finishes_its_work(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512);

	fill(a, 512, 1, s);
	assert_int_equal(sim_stream_destroy(s), 0);
	assert_int_equal(sim_stream_destroy(s), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(word_at(a), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(fx.n_races, 0);
}

static void
test_attributes(void **state)
{
	CUstream s;
	CUcontext ctx;
	unsigned flags;
	int value;

	assert_int_equal(sim_stream_create(4, 0, &s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_create(SIM_STREAM_NON_BLOCKING, -3, &s), 0);
	assert_int_equal(sim_stream_get_flags(s, &flags), 0);
	assert_int_equal(flags, SIM_STREAM_NON_BLOCKING);
	assert_int_equal(sim_stream_get_priority(s, &value), 0);
	assert_int_equal(value, -3);
	assert_int_equal(sim_stream_get_ctx(s, &ctx), 0);
	assert_ptr_equal(ctx, fx.ctx);
	assert_int_equal(sim_stream_get_device(s, &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(sim_stream_destroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_stream_destroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_stream_sync((CUstream)(void *)&value), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(fx.misuse, CUDA_ERROR_INVALID_HANDLE);
}

/* ----------------------------------------------------------- real clock --- */
static void
test_real_long_kernel_stops_nobody(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512), b = must_alloc(512);
	CUevent end_s = must_event(), end_t = must_event();
	float ms;

	/* Both events are judged by the engine's own time, so a slow machine changes nothing. */
	fill_spin(a, 512, 1, 500 * 1000, s);
	fill(b, 512, 2, t);
	assert_int_equal(sim_event_record(end_s, s), 0);
	assert_int_equal(sim_event_record(end_t, t), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_event_elapsed(end_t, end_s, &ms), 0);
	assert_true(ms > 0);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(b), 2);
}

static void
test_real_order_within_a_stream(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr a = must_alloc(512);

	fill_spin(a, 512, 1, 2000, s);
	fill(a, 512, 2, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(a), 2);
	assert_int_equal(sim_step(3), 0);
}

static void
test_real_kernel_takes_its_time(void **state)
{
	CUdeviceptr a = must_alloc(512);
	CUevent begin = must_event(), end = must_event();
	float ms;

	assert_int_equal(sim_event_record(begin, NULL), 0);
	fill_spin(a, 512, 1, 20000, NULL);
	assert_int_equal(sim_event_record(end, NULL), 0);
	assert_int_equal(sim_event_sync(end), 0);
	assert_int_equal(sim_event_elapsed(begin, end, &ms), 0);
	assert_true(ms >= 20.0f);
}

#define M(f) cmocka_unit_test_setup_teardown(f, fixture_manual, fixture_end)
#define R(f) cmocka_unit_test_setup_teardown(f, fixture_real, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		M(test_sync_runs_only_its_own_stream),
		M(test_sync_runs_what_it_depends_on),
		M(test_step),
		M(test_legacy_rules_run_in_order),
		M(test_per_thread_stream_is_a_stream),
		M(test_destroyed_stream_finishes_its_work),
		M(test_attributes),
		R(test_real_long_kernel_stops_nobody),
		R(test_real_order_within_a_stream),
		R(test_real_kernel_takes_its_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
