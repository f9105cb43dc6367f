/* SPDX-License-Identifier: MIT */
/* Playing a trace that tells what work there was, when it was seen finished, where segments lay. */
#include "allocator/replay/play.h"
#include "tests/unit/replay/fixture.h"

#define MIB ((uint64_t)1 << 20)
#define MS ((uint64_t)1000 * 1000)

enum { WHOLE = 20 << 20 /* a segment of its own */, EVENTS_MAX = 32 };

static uint64_t address_of[EVENTS_MAX]; /* by event */

static void
place(void *arg, size_t event, uint64_t address)
{
	assert_true(event < EVENTS_MAX);
	address_of[event] = address;
}

/* The last of `events` is of kind PHASE, and not played. */
static struct ca_replay_result
played(const struct ca_replay_event *events, uint64_t lag_ns)
{
	struct ca_replay_input input = { .told = true };
	struct ca_config config;
	struct ca_replay_setting setting = { .config = &config,
					     .memory_bytes = CA_REPLAY_UNLIMITED,
					     .lag_ns = lag_ns,
					     .placed = place };
	struct ca_replay_result result = { 0 };
	struct ca_replay_error error;

	ca_config_default(&config);
	for (; events->kind != CA_REPLAY_PHASE; events++)
		assert_int_equal(ca_replay_input_add(&input, events), 0);
	if (ca_replay_input_resolve(&input, &error) ||
	    ca_replay_run(&input, 0, &setting, &result, &error))
		fail_msg("%s", error.text);
	ca_replay_input_clear(&input);
	return result;
}

#define ALLOC(n, s, ns)                                                                            \
	{                                                                                          \
		.kind = CA_REPLAY_ALLOC, .id = (n), .bytes = WHOLE, .stream = (s), .time_ns = (ns) \
	}
#define FREE(n, ns)                                                                                \
	{                                                                                          \
		.kind = CA_REPLAY_FREE, .id = (n), .time_ns = (ns)                                 \
	}
#define WORK(s, ns)                                                                                \
	{                                                                                          \
		.kind = CA_REPLAY_SUBMIT, .stream = (s), .time_ns = (ns)                           \
	}
#define SEEN(s, since, ns)                                                                         \
	{                                                                                          \
		.kind = CA_REPLAY_SEEN, .stream = (s), .time_ns = (since), .id = (ns)              \
	}
#define PLACE(at)                                                                                  \
	{                                                                                          \
		.kind = CA_REPLAY_PLACE, .id = (at), .bytes = WHOLE, .time_ns = CA_REPLAY_NO_TIME  \
	}
#define END                                                                                        \
	{                                                                                          \
		.kind = CA_REPLAY_PHASE                                                            \
	}

static void
nothing_ends_before_it_was_seen_finished(void **state)
{
	static const struct ca_replay_event never[] = {
		ALLOC(1, 1, 0), WORK(1, 0), FREE(1, 1), WORK(2, 2), ALLOC(2, 2, 900 * MS), END
	};
	static const struct ca_replay_event seen[] = {
		ALLOC(1, 1, 0), WORK(1, 0),     FREE(1, 1), WORK(2, 2),
		SEEN(1, 4, 4),  ALLOC(2, 2, 5), END
	};
	static const struct ca_replay_event other[] = {
		ALLOC(1, 1, 0), WORK(1, 0),     FREE(1, 1), WORK(2, 2),
		SEEN(2, 4, 4),  ALLOC(2, 2, 5), END
	};

	assert_int_equal(played(never, CA_REPLAY_AS_TOLD).misses, 2);
	assert_int_equal(played(never, 0).misses, 1); /* a device that keeps up */
	assert_int_equal(played(seen, CA_REPLAY_AS_TOLD).misses, 1);
	assert_int_equal(played(other, CA_REPLAY_AS_TOLD).misses, 2);
}

static void
what_is_seen_later_has_not_ended_yet(void **state)
{
	static const struct ca_replay_event events[] = { ALLOC(1, 1, 0),       WORK(1, 0),
							 FREE(1, 1),           WORK(2, 2),
							 SEEN(1, 4, 50 * MS),  ALLOC(2, 2, 4),
							 ALLOC(3, 2, 60 * MS), END };

	assert_int_equal(played(events, CA_REPLAY_AS_TOLD).misses, 2);
}

static void
an_allocation_is_no_work(void **state)
{
	static const struct ca_replay_event events[] = {
		ALLOC(1, 1, 0),
		{ .kind = CA_REPLAY_FREE, .id = 1, .time_ns = 1, .no_stream = true },
		WORK(2, 2),
		ALLOC(2, 2, 3),
		END
	};

	assert_int_equal(played(events, CA_REPLAY_AS_TOLD).misses, 1);
	assert_int_equal(played(events, 0).misses, 2);
}

static void
segments_lie_where_they_lay(void **state)
{
	static const struct ca_replay_event events[] = { PLACE(0x80000000), ALLOC(1, 1, 0),
							 PLACE(0x40000000), ALLOC(2, 1, 0),
							 FREE(1, 1),        FREE(2, 2),
							 ALLOC(3, 1, 3),    END };

	assert_int_equal(played(events, CA_REPLAY_AS_TOLD).misses, 2);
	assert_int_equal(address_of[1], 0x80000000);
	assert_int_equal(address_of[3], 0x40000000);
	assert_int_equal(address_of[6], 0x40000000); /* of two that fit alike, the lower one */
}

static void
a_place_that_makes_no_sense_has_no_effect(void **state)
{
	static const uint64_t bad[] = { 0,
					0x80000000 + 512,
					0x80000000 + WHOLE - 2 * MIB,
					0x80000000 - WHOLE + 2 * MIB,
					(uint64_t)1 << 57,
					((uint64_t)1 << 57) - 2 * MIB,
					UINT64_MAX - 2 * MIB + 1 };
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ca_replay_event events[] = { PLACE(0x80000000), ALLOC(1, 1, 0),
						    PLACE(bad[i]), ALLOC(2, 1, 0), END };

		assert_int_equal(played(events, CA_REPLAY_AS_TOLD).misses, 2);
		assert_int_equal(address_of[1], 0x80000000);
		assert_true(address_of[3] >= (uint64_t)1 << 57);
		assert_true(address_of[3] != bad[i]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_ends_before_it_was_seen_finished),
		cmocka_unit_test(what_is_seen_later_has_not_ended_yet),
		cmocka_unit_test(an_allocation_is_no_work),
		cmocka_unit_test(segments_lie_where_they_lay),
		cmocka_unit_test(a_place_that_makes_no_sense_has_no_effect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
