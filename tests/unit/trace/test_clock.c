/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "allocator/trace/trace_clock.h"

#define MS ((uint64_t)1000000)

static uint64_t asked;

static uint64_t
clock_ns(void *self)
{
	asked++;
	return *(uint64_t *)self;
}

/* Three ticks a nanosecond, from far beyond 2^32. */
static uint64_t
ticks_at(uint64_t ns)
{
	return ((uint64_t)1 << 60) + 3 * ns;
}

static void
start(struct ca_trace_clock *clock, uint64_t *ns)
{
	const struct ca_driver driver = { .self = ns, .clock_ns = clock_ns };

	ca_trace_clock_init(clock, &driver, false);
	ca_trace_clock_update_pair(clock, ticks_at(5 * MS), 5 * MS);
}

static void
test_a_rate_is_learned_from_pairs_that_are_far_apart(void **state)
{
	uint64_t ns = 0, told;
	struct ca_trace_clock clock;

	start(&clock, &ns);
	ca_trace_clock_update_pair(&clock, ticks_at(6 * MS), 6 * MS);
	assert_false(ca_trace_clock_convert(&clock, ticks_at(6 * MS), &told));
	ca_trace_clock_update_pair(&clock, ticks_at(30 * MS), 30 * MS);
	assert_true(ca_trace_clock_convert(&clock, ticks_at(30 * MS), &told));
	assert_int_equal(told, 30 * MS);
	assert_true(ca_trace_clock_convert(&clock, ticks_at(1000 * MS), &told));
	assert_in_range(told, 1000 * MS - 1000, 1000 * MS + 1000);
	/* a processor whose counter is a little behind */
	assert_true(ca_trace_clock_convert(&clock, ticks_at(29 * MS), &told));
	assert_int_equal(told, 30 * MS);
}

static void
test_a_counter_that_disagrees_is_not_used_again(void **state)
{
	static const int64_t errors[] = { 2 * (int64_t)MS, -2 * (int64_t)MS };
	struct ca_trace_clock clock;
	uint64_t ns = 0, told;

	for (unsigned i = 0; i < 2; i++) {
		start(&clock, &ns);
		ca_trace_clock_update_pair(&clock, ticks_at(30 * MS), 30 * MS);
		assert_true(ca_trace_clock_convert(&clock, ticks_at(40 * MS), &told));
		ca_trace_clock_update_pair(&clock, ticks_at(60 * MS),
					   (uint64_t)(60 * (int64_t)MS + errors[i]));
		assert_false(ca_trace_clock_convert(&clock, ticks_at(60 * MS), &told));
		assert_false(clock.usable);
	}
}

static void
test_small_errors_of_pairs_are_tolerated(void **state)
{
	struct ca_trace_clock clock;
	uint64_t ns = 0, told;

	start(&clock, &ns);
	for (uint64_t at = 30; at < 3000; at += 30) {
		ca_trace_clock_update_pair(&clock, ticks_at(at * MS), at * MS + at % 7 * 10000);
		assert_true(ca_trace_clock_convert(&clock, ticks_at((at + 20) * MS), &told));
		assert_in_range(told, (at + 20) * MS - MS, (at + 20) * MS + MS);
	}
}

static void
test_without_a_counter_the_clock_is_asked(void **state)
{
	const struct ca_driver driver = { .self = &asked, .clock_ns = clock_ns };
	struct ca_trace_clock clock;

	ca_trace_clock_init(&clock, &driver, false);
	asked = 41;
	assert_int_equal(ca_trace_clock_now(&clock), 42);
	ca_trace_clock_update(&clock);
	assert_int_equal(asked, 42);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_rate_is_learned_from_pairs_that_are_far_apart),
		cmocka_unit_test(test_a_counter_that_disagrees_is_not_used_again),
		cmocka_unit_test(test_small_errors_of_pairs_are_tolerated),
		cmocka_unit_test(test_without_a_counter_the_clock_is_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
