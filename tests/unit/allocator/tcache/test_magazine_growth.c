/* SPDX-License-Identifier: MIT */
/* A thread that has nothing of its own left, and others that keep what would do: for a small
 * request the cache grows a little, and then what they keep is taken. */
#include "tests/unit/allocator/tcache/lease_scene.h"

#include <sched.h>

/* That thread takes up to so many blocks, until it has got one of those that another keeps. */
enum { ASKED = 16, KEPT = 24 };

struct beside {
	struct fixture f;
	pthread_t thread;
	_Atomic unsigned stage; /* done so far, by one and the other in turn */
	uint64_t small, taken[TAKEN], blocks[ASKED];
	uint64_t start;  /* bytes reserved before the other thread's requests */
	uint64_t before; /* and when it got its last block but one */
	unsigned n, n_calls, failed;
};

static void
await_stage(struct beside *beside, unsigned stage)
{
	while (beside->stage < stage)
		sched_yield();
}

/* From then on the calling thread has a magazine, and keeps nothing. */
static uint64_t
take_with_magazine(struct fixture *f)
{
	fixture_free(f, fixture_alloc(f, 512));
	return fixture_alloc(f, 512);
}

static void *
ask(void *arg)
{
	struct beside *beside = arg;
	struct fixture *f = &beside->f;
	uint64_t small;

	small = take_with_magazine(f);
	beside->stage = 1;
	await_stage(beside, 2);
	while (beside->n < ASKED && kept(f->heap) == KEPT) {
		beside->before = fixture_stats(f).reserved_bytes.current;
		beside->failed += ca_alloc(f->space, MIB, &beside->blocks[beside->n++]) != 0;
	}
	beside->failed += ca_free(f->heap, small) != 0;
	return NULL;
}

/* The calling thread keeps KEPT blocks of 512 KiB; another has a magazine. */
static void
start(struct beside *beside, uint64_t capacity)
{
	struct fixture *f = &beside->f;
	uint64_t blocks[KEPT];
	unsigned i;

	fixture_defaults(f);
	f->config.expandable_segments = false;
	f->pretend.capacity = capacity;
	contended_start(f);
	beside->small = take_with_magazine(f);
	assert_int_equal(pthread_create(&beside->thread, NULL, ask, beside), 0);
	await_stage(beside, 1);
	take_sizes(f, beside->taken, TAKEN);
	for (i = 0; i < KEPT; i++)
		assert_int_equal(ca_alloc(f->space, 512 * KIB, &blocks[i]), 0);
	free_blocks(f, blocks, KEPT);
	assert_int_equal(kept(f->heap), KEPT);
	beside->start = fixture_stats(f).reserved_bytes.current;
	beside->n_calls = fixture_sums(f).calls[CA_MODEL_TAKE];
}

static void
go_on(struct beside *beside)
{
	beside->stage = 2;
	pthread_join(beside->thread, NULL);
}

static void
check_and_end(struct beside *beside)
{
	assert_int_equal(beside->failed, 0);
	fixture_check(&beside->f);
	free_blocks(&beside->f, beside->blocks, beside->n);
	free_blocks(&beside->f, beside->taken, TAKEN);
	fixture_free(&beside->f, beside->small);
	nothing_is_left(&beside->f);
	fixture_stop(&beside->f);
}

/* By 8 MiB. */
static void
test_the_cache_grows_a_little_first(void **state)
{
	struct beside beside = { .n = 0 };

	start(&beside, 4 * GIB);
	beside.f.space->spreads.failures = 3; /* of a time when the driver had no more */
	go_on(&beside);
	assert_int_equal(beside.f.space->spreads.failures, 0);
	assert_in_range(beside.before, beside.start + 2 * MIB, beside.start + 8 * MIB);
	assert_int_not_equal(kept(beside.f.heap), KEPT);
	check_and_end(&beside);
}

/* Of the budget, too: here it is the peak and a segment of 2 MiB, which the cache has. */
static void
test_not_beyond_the_budget(void **state)
{
	struct beside beside = { .n = 0 };

	start(&beside, 4 * GIB);
	beside.f.heap->config.large_segment_size_bytes = 2 * MIB;
	go_on(&beside);
	assert_int_equal(beside.before, beside.start);
	check_and_end(&beside);
}

static void
test_not_at_the_end_of_the_device(void **state)
{
	struct beside beside = { .n = 0 };

	start(&beside, 16 * MIB);
	go_on(&beside);
	assert_int_equal(beside.before, beside.start);
	check_and_end(&beside);
}

/* The driver has no more, which nobody knew: others' memory serves, and it is seldom asked again.
 */
static void
test_the_driver_has_no_more(void **state)
{
	struct beside beside = { .n = 0 };

	start(&beside, 4 * GIB);
	ca_model_fail(beside.f.model, CA_MODEL_TAKE, 1, true, CA_DRIVER_OUT_OF_MEMORY);
	go_on(&beside);
	assert_true(ca_model_failed(beside.f.model));
	assert_in_range(beside.n, 1, 2); /* one may fit in what is free */
	assert_int_equal(fixture_stats(&beside.f).reserved_bytes.current, beside.start);
	assert_int_equal(fixture_sums(&beside.f).calls[CA_MODEL_TAKE], beside.n_calls + 1);
	assert_int_equal(fixture_stats(&beside.f).ooms, 0);
	assert_int_not_equal(beside.f.space->spreads.pass, 0);
	check_and_end(&beside);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_cache_grows_a_little_first),
		cmocka_unit_test(test_not_beyond_the_budget),
		cmocka_unit_test(test_not_at_the_end_of_the_device),
		cmocka_unit_test(test_the_driver_has_no_more),
	};

	return cmocka_run_group_tests_name("allocator-magazine-growth", tests, NULL, NULL);
}
