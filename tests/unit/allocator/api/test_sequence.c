/* SPDX-License-Identifier: MIT */
/*
 * Random sequences under random settings against the naive reference of tests/sequence: several
 * threads, streams and contexts, captures and graphs, faults; every claim is looked at after every
 * step. CACHEALLOC_TEST_LONG=1 takes millions of steps, with a walk after each 16th, and of other
 * seeds each time; CACHEALLOC_TEST_SEED=N that seed's.
 */
#include "tests/unit/allocator/fixture.h"

#include <time.h>

#include "tests/sequence/keys.h"
#include "tests/sequence/sequence.h"

enum { STEPS = 1000 };

static void
print_totals(const struct sequence_totals *t)
{
	printf("# %llu steps, %llu allocations, %llu out of memory, %llu reused, %llu exposed, "
	       "%llu of several, "
	       "%llu "
	       "launches, %llu contexts replaced, %llu captures, %llu graphs, %llu turns\n",
	       (unsigned long long)t->steps, (unsigned long long)t->allocs,
	       (unsigned long long)t->ooms, (unsigned long long)t->reused,
	       (unsigned long long)t->exposed, (unsigned long long)t->several,
	       (unsigned long long)t->launches, (unsigned long long)t->kills,
	       (unsigned long long)t->captures, (unsigned long long)t->graphs,
	       (unsigned long long)t->switches);
}

/* How often as many sequences a long run has. TSan makes each ten times as slow. */
#if defined(__SANITIZE_THREAD__)
enum { LONG = 6 };
#else
enum { LONG = 60 };
#endif

static void
run(uint64_t seed, unsigned worlds, struct sequence_options options, struct sequence_totals *totals)
{
	bool is_long = getenv("CACHEALLOC_TEST_LONG") != NULL;

	memset(totals, 0, sizeof(*totals));
	options.check_every = is_long ? 16 : 1;
	seed = fixture_seed(is_long ? seed + (uint64_t)time(NULL) * 1000003 : seed);
	for (unsigned i = 0; i < worlds * (is_long ? LONG : 1); i++) {
		uint64_t one = seed + (uint64_t)i * 7919;

		if (getenv("CACHEALLOC_TEST_VERBOSE"))
			fprintf(stderr, "# seed %llu\n", (unsigned long long)one);
		sequence_run(source_seed(one, STEPS), &options, totals);
	}
	print_totals(totals);
}

static void
test_every_setting_that_is_built_has_random_values(void **state)
{
	const char *missing = sequence_keys_missing();

	if (missing)
		fail_msg("%s has no generator in tests/sequence/keys.c", missing);
}

static void
test_any_settings_streams_and_threads_keep_every_claim(void **state)
{
	struct sequence_totals t;

	run(71, 40, (struct sequence_options){ .keys = 4 }, &t);
	assert_true(t.reused > 1000 && t.ooms > 20 && t.exposed > 10);
	assert_true(t.kills && t.captures && t.graphs && t.switches);
}

static void
test_the_defaults_keep_every_claim(void **state)
{
	struct sequence_totals t;

	run(72, 30, (struct sequence_options){ .keys = 0 }, &t);
	assert_true(t.reused > 1000 && t.exposed > 30);
}

static void
test_several_streams_without_slack_keep_every_claim(void **state)
{
	struct sequence_totals t;

	run(75, 20, (struct sequence_options){ .actors = 1, .eager = true }, &t);
	assert_true(t.exposed > 20);
}

static void
test_one_thread_with_one_stream_keeps_every_claim(void **state)
{
	struct sequence_totals t;

	run(73, 15, (struct sequence_options){ .keys = 2, .actors = 1, .streams = 1 }, &t);
	assert_true(t.exposed > 50);
}

static void
test_a_fault_of_the_driver_breaks_no_claim(void **state)
{
	struct sequence_totals t;

	run(74, 20, (struct sequence_options){ .keys = 2, .faults = true }, &t);
	assert_true(t.reused > 100);
}

static void
test_mapped_memory_keeps_every_claim(void **state)
{
	struct sequence_totals t;

	run(76, 40, (struct sequence_options){ .keys = 3, .mapped = true }, &t);
	assert_true(t.reused > 1000 && t.exposed > 10);
	run(77, 40, (struct sequence_options){ .keys = 2, .mapped = true, .faults = true }, &t);
	assert_true(t.reused > 100);
}

/* Each failed, in a long run or with other seeds than CI's. */
static const struct {
	const char *claim;
	uint64_t seed;
	struct sequence_options options;
} found[] = {
	{ "memory without a mark waits for other contexts",
	  823647,
	  { .keys = 4, .check_every = 1 } },
	{ "memory that goes back is mapped nowhere, where it was used either",
	  4426797,
	  { .keys = 3, .mapped = true, .check_every = 1 } },
	{ "what finishes while the driver is asked for the last time goes back",
	  4723,
	  { .check_every = 16 } },
	{ "a request that moves memory in vain, and puts it back, ends",
	  9863,
	  { .keys = 3, .mapped = true, .check_every = 16 } },
	{ "what a context keeps whose work has failed goes at its end",
	  16129,
	  { .keys = 2, .faults = true, .check_every = 16 } },
	{ "a trim counts what went before the driver's error",
	  105947,
	  { .keys = 2, .mapped = true, .faults = true, .check_every = 16 } },
	{ "memory with a late mark, behind another context, is to be had",
	  236256,
	  { .keys = 3, .mapped = true, .check_every = 16 } },
	{ "the same", 234487, { .keys = 4, .check_every = 16 } },
	{ "blocks of a stream whose record a new one has are settled",
	  206407,
	  { .keys = 3, .mapped = true, .check_every = 1 } },
	{ "a capture comes after what is exposed of another thread's own stream",
	  217578,
	  { .keys = 3, .mapped = true, .check_every = 16 } },
};

static void
test_what_was_found_stays_mended(void **state)
{
	for (unsigned i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
		struct sequence_totals t = { 0 };

		print_message("%s: seed %llu\n", found[i].claim, (unsigned long long)found[i].seed);
		sequence_run(source_seed(found[i].seed, STEPS), &found[i].options, &t);
		assert_true(t.reused > 0);
	}
}

static int
finish(void **state)
{
	sequence_stop();
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_setting_that_is_built_has_random_values),
		cmocka_unit_test(test_any_settings_streams_and_threads_keep_every_claim),
		cmocka_unit_test(test_the_defaults_keep_every_claim),
		cmocka_unit_test(test_several_streams_without_slack_keep_every_claim),
		cmocka_unit_test(test_one_thread_with_one_stream_keeps_every_claim),
		cmocka_unit_test(test_a_fault_of_the_driver_breaks_no_claim),
		cmocka_unit_test(test_mapped_memory_keeps_every_claim),
		cmocka_unit_test(test_what_was_found_stays_mended),
	};

	return cmocka_run_group_tests_name("allocator-sequence", tests, NULL, finish);
}
