/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

static void
test_life(void **state)
{
	CUevent e, again;

	assert_int_equal(sim_event_create(8, &e), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_event_create(SIM_EVENT_INTERPROCESS, &e), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_event_create(SIM_EVENT_INTERPROCESS | SIM_EVENT_DISABLE_TIMING, &e),
			 0);
	assert_int_equal(sim_event_destroy(e), 0);
	e = must_event();
	assert_int_equal(sim_event_query(e), 0);
	assert_int_equal(sim_event_sync(e), 0);
	assert_int_equal(sim_stream_wait_event(NULL, e, 0), 0);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(sim_event_destroy(e), 0);
	assert_int_equal(sim_event_destroy(e), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_event_query(NULL), CUDA_ERROR_INVALID_HANDLE);
	again = must_event();
	assert_ptr_equal(again, e);
}

static void
test_record_query_sync(void **state)
{
	CUdeviceptr p = must_alloc(512);
	CUevent e = must_event();

	fill(p, 512, 1, NULL);
	assert_int_equal(sim_event_record(e, NULL), 0);
	fill(p, 512, 2, NULL);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_NOT_READY);
	assert_int_equal(sim_event_sync(e), 0);
	assert_int_equal(sim_event_query(e), 0);
	assert_int_equal(word_at(p), 1);
	/* A new record replaces the old one. */
	assert_int_equal(sim_event_record(e, NULL), 0);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_NOT_READY);
	assert_int_equal(sim_event_sync(e), 0);
	assert_int_equal(word_at(p), 2);
}

/* Who waited for the first record does not wait for the second, and outlives the event. */
static void
test_wait_is_for_the_record_of_its_time(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr p = must_alloc(512);
	CUevent e = must_event();

	fill(p, 512, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p, 512, 2, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_event_destroy(e), 0);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(sim_stream_wait_event(t, e, 0), CUDA_ERROR_INVALID_HANDLE);
	e = must_event();
	assert_int_equal(sim_stream_wait_event(t, e, 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_wait_event(t, e, 1), CUDA_ERROR_NOT_SUPPORTED);
}

static void
test_elapsed(void **state)
{
	CUevent a = must_event(), b = must_event(), untimed;
	CUdeviceptr p = must_alloc(512);
	float ms = -1;

	assert_int_equal(sim_event_create(SIM_EVENT_DISABLE_TIMING, &untimed), 0);
	assert_int_equal(sim_event_elapsed(a, b, &ms), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_event_record(a, NULL), 0);
	fill_spin(p, 512, 1, 5000, NULL);
	assert_int_equal(sim_event_record(b, NULL), 0);
	assert_int_equal(sim_event_record(untimed, NULL), 0);
	assert_int_equal(sim_event_elapsed(a, b, &ms), CUDA_ERROR_NOT_READY);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_event_elapsed(a, untimed, &ms), CUDA_ERROR_INVALID_HANDLE);
	assert_true(ms == -1);
	assert_int_equal(sim_event_elapsed(a, b, &ms), 0);
	/* Manual clock: the spin and 1 us an operation. */
	assert_true(ms > 5.0f && ms < 5.01f);
}

static void
test_contexts_must_match(void **state)
{
	CUevent mine = must_event(), theirs;
	CUcontext other;
	CUstream s;

	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	theirs = must_event();
	s = must_stream(0);
	assert_int_equal(sim_event_record(mine, s), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_event_record(mine, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_event_record(theirs, s), 0);
	assert_int_equal(sim_ctx_record_event(fx.ctx, theirs), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_ctx_record_event(NULL, theirs), 0);
	assert_int_equal(sim_ctx_record_event(fx.ctx, mine), 0);
	/* Waiting may cross. */
	assert_int_equal(sim_ctx_wait_event(fx.ctx, theirs), 0);
	assert_int_equal(sim_stream_wait_event(s, mine, 0), 0);
	assert_int_equal(sim_ctx_record_event((CUcontext)(void *)s, mine),
			 CUDA_ERROR_INVALID_CONTEXT);
}

static void
test_context_mark_covers_all_streams(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(0);
	CUdeviceptr p = must_alloc(4096);
	CUevent e = must_event();

	fill(p, 512, 1, s);
	fill(p + 512, 512, 2, t);
	fill(p + 1024, 512, 3, CU_STREAM_PER_THREAD);
	assert_int_equal(sim_stream_destroy(s), 0);
	assert_int_equal(sim_ctx_record_event(NULL, e), 0);
	fill(p, 4096, 4, t);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_NOT_READY);
	assert_int_equal(sim_event_sync(e), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(word_at(p + 512), 2);
	assert_int_equal(word_at(p + 1024), 3);
	assert_int_equal(sim_pending(), 1);
}

static void
test_context_mark_is_done_after_synchronising(void **state)
{
	CUdeviceptr p = must_alloc(512);
	CUevent e = must_event();

	fill(p, 512, 1, NULL);
	assert_int_equal(sim_ctx_record_event(NULL, e), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_event_query(e), 0);
	assert_int_equal(sim_pending(), 0);
}

static void
test_context_wait_holds_all_streams(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr p = must_alloc(4096);
	CUevent e = must_event();

	fill(p, 512, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_ctx_wait_event(NULL, e), 0);
	fill(p + 512, 512, 2, t);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(p), 1);
}

/* With the manual clock, too; what waits for a value does not end. */
static void
test_a_program_that_only_polls_comes_to_an_end(void **state)
{
	CUstream s = must_stream(SIM_STREAM_NON_BLOCKING), t = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr p = must_alloc(512);
	CUevent e = must_event();
	unsigned asked = 0;

	fill(p, 512, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	while (sim_event_query(e))
		assert_true(++asked < 5000);
	assert_true(asked > 20);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(sim_stream_wait_value(t, p, 7, 4, SIM_COMPARE_EQ), 0);
	for (asked = 0; asked < 5000; asked++)
		assert_int_equal(sim_stream_query(t), CUDA_ERROR_NOT_READY);
	fill(p, 512, 7, s);
	assert_int_equal(sim_stream_sync(t), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fixture_two, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_life),
		T(test_record_query_sync),
		T(test_wait_is_for_the_record_of_its_time),
		T(test_elapsed),
		T(test_contexts_must_match),
		T(test_context_mark_covers_all_streams),
		T(test_context_mark_is_done_after_synchronising),
		T(test_context_wait_holds_all_streams),
		T(test_a_program_that_only_polls_comes_to_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
