/* SPDX-License-Identifier: MIT */
/*
 * A driver that does not keep what is believed of all, a device with one queue in hardware, and
 * what a question about an event completes with the manual clock.
 */
#include "tests/unit/sim/fixture.h"

#include <pthread.h>

static CUdeviceptr word;

static int
begin(unsigned breaks, bool one_queue)
{
	fixture_begin_config((struct sim_config){ .n_devices = 1,
						  .mem_bytes = 64 * MIB,
						  .clock = SIM_CLOCK_MANUAL,
						  .breaks = breaks,
						  .one_queue = one_queue });
	word = must_alloc(512);
	assert_int_equal(sim_set(word, 0, 4, 128, NULL, false), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	return 0;
}

static int
begin_kept(void **state)
{
	return begin(0, false);
}

static int
begin_legacy_early(void **state)
{
	return begin(SIM_BREAKS_LEGACY_RECORD, false);
}

static int
begin_context_early(void **state)
{
	return begin(SIM_BREAKS_CONTEXT_RECORD, false);
}

static int
begin_one_queue(void **state)
{
	return begin(0, true);
}

/* Nothing waits any more. */
static int
end(void **state)
{
	set_word(word, 1);
	return fixture_end(state);
}

static void
await_word(CUstream stream)
{
	assert_int_equal(sim_stream_wait_value(stream, word, 1, 4, SIM_COMPARE_GEQ), 0);
}

static int
recorded(CUstream stream)
{
	CUevent e = must_event();

	assert_int_equal(sim_event_record(e, stream), 0);
	return sim_event_query(e);
}

/* Of a mark of the context, while another thread's per-thread stream waits for the word. */
static void *
await_in_thread(void *arg)
{
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	await_word(CU_STREAM_PER_THREAD);
	return NULL;
}

static int
context_marked(void)
{
	CUevent e = must_event();
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, await_in_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(sim_ctx_record_event(NULL, e), 0);
	return sim_event_query(e);
}

static void
test_what_is_kept(void **state)
{
	CUstream blocking = must_stream(0), other = must_stream(SIM_STREAM_NON_BLOCKING);

	await_word(NULL);
	assert_int_equal(recorded(blocking), CUDA_ERROR_NOT_READY);
	assert_int_equal(recorded(other), 0);
	assert_int_equal(context_marked(), CUDA_ERROR_NOT_READY);
}

static void
test_a_record_before_the_legacy_stream(void **state)
{
	CUstream blocking = must_stream(0);
	CUdeviceptr p = must_alloc(512);

	await_word(NULL);
	assert_int_equal(recorded(blocking), 0);
	assert_int_equal(recorded(NULL), CUDA_ERROR_NOT_READY);
	/* work of the stream comes after it, and so does a record behind that */
	fill(p, 512, 1, blocking);
	assert_int_equal(recorded(blocking), CUDA_ERROR_NOT_READY);
	assert_int_equal(context_marked(), CUDA_ERROR_NOT_READY);
}

/* A host that trusts such a record is accused. */
static void
test_a_record_before_the_legacy_stream_teaches_nothing(void **state)
{
	CUstream blocking = must_stream(0), other = must_stream(SIM_STREAM_NON_BLOCKING);
	CUdeviceptr p = must_alloc(512);

	fill(p, 512, 1, NULL);
	assert_int_equal(recorded(blocking), 0);
	fill(p, 512, 2, other);
	assert_int_equal(fx.n_races, 1);
}

static void
test_a_mark_without_other_threads(void **state)
{
	assert_int_equal(context_marked(), 0);
	await_word(CU_STREAM_PER_THREAD);
	assert_int_equal(context_marked(), CUDA_ERROR_NOT_READY);
}

static void
test_one_queue(void **state)
{
	CUstream other = must_stream(SIM_STREAM_NON_BLOCKING);

	await_word(NULL);
	assert_int_equal(recorded(other), CUDA_ERROR_NOT_READY);
	set_word(word, 1);
	assert_int_equal(recorded(other), 0);
}

/* With the manual clock: marks, and waits whose value is there, but no kernel. */
static void
test_a_question_completes_what_takes_no_device(void **state)
{
	CUdeviceptr p = must_alloc(512);
	CUevent e = must_event();

	await_word(NULL);
	assert_int_equal(sim_event_record(e, NULL), 0);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_NOT_READY);
	set_word(word, 1);
	assert_int_equal(sim_event_query(e), 0);
	fill(p, 512, 1, NULL);
	assert_int_equal(recorded(NULL), CUDA_ERROR_NOT_READY);
}

#define T(f, begin) cmocka_unit_test_setup_teardown(f, begin, end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_what_is_kept, begin_kept),
		T(test_a_record_before_the_legacy_stream, begin_legacy_early),
		T(test_a_record_before_the_legacy_stream_teaches_nothing, begin_legacy_early),
		T(test_a_mark_without_other_threads, begin_context_early),
		T(test_one_queue, begin_one_queue),
		T(test_a_question_completes_what_takes_no_device, begin_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
