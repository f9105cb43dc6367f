/* SPDX-License-Identifier: MIT */
/* What the replay makes of a trace: whose memory is whose and when, and the figures. */
#include "allocator/order/order.h"
#include "allocator/replay/play.h"
#include "tests/unit/replay/fixture.h"

#define MIB ((uint64_t)1 << 20)

static struct ca_replay_result
played_with(const char *text, const struct ca_config *config, uint64_t memory_bytes)
{
	struct ca_replay_setting setting = { .config = config, .memory_bytes = memory_bytes };
	struct ca_replay_result result;
	struct ca_replay_input input;
	struct ca_replay_error error;

	read_good(text, &input);
	if (ca_replay_run(&input, 0, &setting, &result, &error))
		fail_msg("%s", error.text);
	ca_replay_input_clear(&input);
	return result;
}

static struct ca_replay_result
played(const char *text, uint64_t memory_bytes)
{
	struct ca_config config;

	ca_config_default(&config);
	return played_with(text, &config, memory_bytes);
}

static uint64_t
misses(const char *text)
{
	return played(text, CA_REPLAY_UNLIMITED).misses;
}

static void
the_one_stream_of_a_trace_reuses_its_memory_at_once(void **state)
{
	assert_int_equal(misses("A 1 4194304 3\nF 1\nA 2 4194304 3\n"), 1);
}

static void
another_stream_has_the_memory_only_after_the_phase(void **state)
{
	/* so large that the whole segment is one block */
	assert_int_equal(misses("A 1 20971520 1\nF 1\nA 2 20971520 2\n"), 2);
	assert_int_equal(misses("A 1 20971520 1\nF 1\nP\nA 2 20971520 2\n"), 1);
}

#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"

static void
another_stream_has_the_memory_only_after_a_millisecond(void **state)
{
	assert_int_equal(misses(RMM "1,00:00:00.000000,allocate,1,20971520,1\n"
				    "1,00:00:05.000000,free,1,20971520,1\n"
				    "1,00:00:05.000999,allocate,2,20971520,5\n"),
			 2);
	assert_int_equal(misses(RMM "1,00:00:00.000000,allocate,1,20971520,1\n"
				    "1,00:00:05.000000,free,1,20971520,1\n"
				    "1,00:00:05.001000,allocate,2,20971520,5\n"),
			 1);
}

/* With no slack memory is reused before it is finished, by the stream that freed it if that is its
 * one user; for any other the host would have to wait. */
static void
the_users_of_a_block_are_its_recorded_stream_alone(void **state)
{
	struct ca_config config;
	struct ca_replay_result result;

	ca_config_default(&config);
	config.reuse_slack_bytes = 0;
	result = played_with("A 1 20971520 1\nA 9 20971520 5\nF 1\nA 2 20971520 1\n", &config,
			     CA_REPLAY_UNLIMITED);
	assert_int_equal(result.misses, 2);
	assert_int_equal(result.stats.taken_same_stream, 1);
	assert_int_equal(result.stats.host_syncs, 0);
}

static struct ca_replay_result
played_on_streams(unsigned streams, const char *between)
{
	static char text[1000 * 64];
	size_t length = 0;
	unsigned i;

	for (i = 0; i < streams; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length,
					   "A %u 1048576 %u\n%s", i, i, between);
	for (i = 0; i < streams; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length, "F %u\n%s", i,
					   between);
	return played(text, CA_REPLAY_UNLIMITED);
}

static void
more_streams_than_the_model_or_the_tracker_has_are_played(void **state)
{
	struct ca_replay_result result = played_on_streams(600, "P\n");

	assert_int_equal(result.frees, 600);
	assert_int_equal(result.live_bytes, 0);
	assert_true(result.streams >= 600);
	assert_int_equal(result.stats.finished_only_reasons, 0);
	/* closed streams whose work never ends are too many in the end, as for a program */
	result = played_on_streams(600, "");
	assert_int_equal(result.frees, 600);
	assert_int_equal(result.stats.finished_only_reasons, CA_REASON_STREAMS);
}

static void
the_figures_are_those_of_the_trace(void **state)
{
	struct ca_replay_result result = played(
		"I 1 1000 0\nA 2 5000000 0\nF 1\nP\nA 3 30000000 0\nF 2\nF 3\nA 4 30000000 0\n",
		CA_REPLAY_UNLIMITED);

	assert_int_equal(result.at_start, 1);
	assert_int_equal(result.allocations, 3);
	assert_int_equal(result.frees, 3);
	assert_int_equal(result.phases, 1);
	assert_int_equal(result.peak_live_bytes, 35000000);
	assert_int_equal(result.live_bytes, 30000000);
	assert_int_equal(result.hits, 1);
	assert_int_equal(result.misses, 3);
	assert_int_equal(result.later_driver_allocs, 1);
	assert_int_equal(result.stats.driver_alloc_calls, 3);
	assert_int_equal(result.peak_reserved_bytes % CA_REPLAY_GRANULE, 0);
	assert_true(result.peak_reserved_bytes >= result.peak_live_bytes);
	assert_int_equal(result.bytes_from_driver, result.stats.reserved_bytes.total);
}

static void
running_out_of_memory_is_told_with_its_event(void **state)
{
	struct ca_replay_result result =
		played("A 1 20971520 0\nA 2 20971520 0\nA 3 512 0\n", 40 * MIB);

	assert_true(result.out_of_memory);
	assert_int_equal(result.oom.event, 3);
	assert_int_equal(result.oom.where, 3);
	assert_int_equal(result.oom.request_bytes, 512);
	assert_int_equal(result.oom.live_bytes, 40 * MIB);
	assert_int_equal(result.oom.reserved_bytes, 40 * MIB);
	assert_int_equal(result.stats.ooms, 1);
	assert_true(played("A 1 2305843009213693952 0\n", CA_REPLAY_UNLIMITED).out_of_memory);
}

static void
the_smallest_memory_is_enough_and_less_is_not(void **state)
{
	static const char text[] = "A 1 31457280 0\nA 2 10485760 0\nF 1\nA 3 4194304 0\n"
				   "A 4 52428800 0\nF 2\nF 3\nF 4\nA 5 62914560 0\n";
	struct ca_config config;
	struct ca_replay_setting setting = { .config = &config,
					     .memory_bytes = CA_REPLAY_UNLIMITED };
	struct ca_replay_result result = played(text, CA_REPLAY_UNLIMITED);
	struct ca_replay_input input;
	struct ca_replay_error error;
	uint64_t bytes = 0;

	ca_config_default(&config);
	read_good(text, &input);
	assert_int_equal(ca_replay_find_capacity(&input, &setting, &result, &bytes, &error), 0);
	ca_replay_input_clear(&input);
	assert_true(bytes >= result.peak_live_bytes);
	assert_false(played(text, bytes).out_of_memory);
	assert_true(played(text, bytes - CA_REPLAY_GRANULE).out_of_memory);
}

static void
a_trace_without_allocations_needs_no_memory(void **state)
{
	struct ca_replay_result result = played("P\n", CA_REPLAY_UNLIMITED);

	assert_int_equal(result.peak_reserved_bytes, 0);
	assert_int_equal(result.phases, 1);
}

static void
replays_of_one_trace_are_bit_identical(void **state)
{
	static char text[4000 * 40];
	struct ca_replay_result first, second;
	size_t length = 0;
	unsigned i;

	for (i = 0; i < 2000; i++) {
		length += (size_t)snprintf(text + length, sizeof(text) - length, "A %u %u %u\n", i,
					   1 + i * 7919 % 9000000, i % 5);
		if (i >= 50)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "F %u\n",
						   (i - 50) ^ 3);
		if (i % 100 == 99)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "P\n");
	}
	first = played(text, 1024 * MIB);
	second = played(text, 1024 * MIB);
	assert_false(first.out_of_memory);
	assert_memory_equal(&first, &second, sizeof(first));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_one_stream_of_a_trace_reuses_its_memory_at_once),
		cmocka_unit_test(another_stream_has_the_memory_only_after_the_phase),
		cmocka_unit_test(another_stream_has_the_memory_only_after_a_millisecond),
		cmocka_unit_test(the_users_of_a_block_are_its_recorded_stream_alone),
		cmocka_unit_test(more_streams_than_the_model_or_the_tracker_has_are_played),
		cmocka_unit_test(the_figures_are_those_of_the_trace),
		cmocka_unit_test(running_out_of_memory_is_told_with_its_event),
		cmocka_unit_test(the_smallest_memory_is_enough_and_less_is_not),
		cmocka_unit_test(a_trace_without_allocations_needs_no_memory),
		cmocka_unit_test(replays_of_one_trace_are_bit_identical),
	};

	return cmocka_run_group_tests_name("replay-play", tests, NULL, NULL);
}
