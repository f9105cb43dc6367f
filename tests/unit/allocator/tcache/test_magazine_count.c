/* SPDX-License-Identifier: MIT */
/* What is counted of what threads keep: sums and peaks, whoever frees and whoever looks. */
#include "tests/unit/allocator/tcache/magazine_scene.h"

#include <sched.h>

static void
test_sums_are_exact_whoever_frees(void **state)
{
	struct shared shared = { .size = 0 };
	struct ca_stats stats;
	int i;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (i = 0; i < 3; i++) {
		int j;

		for (j = 0; j < MANY; j++)
			shared.blocks[j] = fixture_alloc(&shared.f, 300 * KIB);
		in_thread(free_all, &shared);
		stats = fixture_stats(&shared.f);
		assert_int_equal(stats.requested_bytes.current, 0);
		assert_int_equal(stats.allocated_bytes.current, 0);
		assert_int_equal(stats.active_bytes.current, 0);
		assert_int_equal(stats.cached_bytes.current, stats.reserved_bytes.current);
		assert_int_equal(stats.free_calls, (i + 1) * MANY);
		assert_int_equal(stats.alloc_calls, (i + 1) * MANY);
		assert_int_equal(stats.allocated_bytes.total, (i + 1) * MANY * 300 * KIB);
		assert_in_range(stats.allocated_bytes.peak, MANY * 300 * KIB - 2 * 8 * MIB,
				MANY * 300 * KIB);
	}
	fixture_stop(&shared.f);
}

static void *
free_one_and_go_on(void *arg)
{
	struct shared *shared = arg;
	uint64_t block;
	int i;

	shared->done += ca_alloc(shared->f.space, 4 * KIB, &block) != 0;
	shared->done += ca_free(shared->f.heap, block) != 0;
	pthread_barrier_wait(&shared->together);
	pthread_barrier_wait(&shared->together);
	shared->done += ca_free(shared->f.heap, shared->blocks[0]) != 0;
	for (i = 1; i < 8; i++) /* each of a size of its own: past the magazine */
		shared->done += ca_alloc(shared->f.space, i * KIB, &shared->blocks[i]) != 0;
	return NULL;
}

/* The free is counted before the allocation is. */
static void
test_a_peak_is_no_more_than_was_held_whoever_is_counted_first(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	struct ca_stats stats;
	pthread_t thread;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	pthread_barrier_init(&shared.together, NULL, 2);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 64 * KIB));
	pthread_create(&thread, NULL, free_one_and_go_on, &shared);
	pthread_barrier_wait(&shared.together);
	assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &shared.blocks[0]), 0);
	pthread_barrier_wait(&shared.together);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&shared.together);
	assert_int_equal(shared.done, 0);
	stats = fixture_stats(&shared.f);
	assert_in_range(stats.requested_bytes.peak, 64 * KIB, 128 * KIB);
	assert_in_range(stats.allocated_bytes.peak, 64 * KIB, 128 * KIB);
	assert_in_range(stats.active_bytes.peak, 64 * KIB, 128 * KIB);
	fixture_stop(&shared.f);
}

static void
test_no_peak_is_more_than_was_ever_reserved(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	struct ca_stats stats;
	int i, round;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < MANY; i++)
			assert_int_equal(ca_alloc(shared.f.space, shared.size, &shared.blocks[i]),
					 0);
		in_thread(free_all, &shared);
		in_thread(take_and_free_many, &shared);
	}
	stats = fixture_stats(&shared.f);
	assert_in_range(stats.requested_bytes.peak, 1, stats.reserved_bytes.peak);
	assert_in_range(stats.allocated_bytes.peak, 1, stats.reserved_bytes.peak);
	assert_in_range(stats.active_bytes.peak, 1, stats.reserved_bytes.peak);
	assert_in_range(stats.cached_bytes.peak, 1, stats.reserved_bytes.peak);
	fixture_stop(&shared.f);
}

/* Three threads, whose magazines are made, and counted, in that order. */
struct passing {
	struct shared shared;
	_Atomic unsigned ready;
	_Atomic bool looking;
	_Atomic uint64_t passed;
};

static void
make_magazine(struct passing *passing, unsigned place)
{
	struct shared *shared = &passing->shared;
	uint64_t block;

	while (passing->ready != place)
		sched_yield();
	/* each of another size: none takes what the first keeps */
	shared->done += ca_alloc(shared->f.space, (64 >> place) * KIB, &block) != 0;
	shared->done += ca_free(shared->f.heap, block) != 0;
	passing->ready++;
}

static void *
pass_on(void *arg)
{
	struct passing *passing = arg;
	uint64_t block;

	make_magazine(passing, 0);
	while (!passing->looking)
		sched_yield();
	passing->shared.done += ca_alloc(passing->shared.f.space, 64 * KIB, &block) != 0;
	passing->passed = block;
	return NULL;
}

static void *
hold_the_looker_up(void *arg)
{
	struct passing *passing = arg;

	make_magazine(passing, 1);
	while (passing->ready != 3)
		sched_yield();
	atomic_store(&ca_own.magazine->lock, 1);
	passing->ready++;
	sleep_a_step();
	passing->looking = true; /* it waits for this magazine by now, most likely */
	sleep_a_step();
	atomic_store(&ca_own.magazine->lock, 0);
	return NULL;
}

static void *
free_what_is_passed(void *arg)
{
	struct passing *passing = arg;

	make_magazine(passing, 2);
	while (!passing->passed)
		sched_yield();
	passing->shared.done += ca_free(passing->shared.f.heap, passing->passed) != 0;
	return NULL;
}

static void
test_who_looks_never_sees_less_than_nothing(void **state)
{
	struct passing passing = { .ready = 0 };
	pthread_t threads[3];
	struct ca_stats stats;
	int i;

	fixture_defaults(&passing.shared.f);
	fixture_start(&passing.shared.f);
	pthread_create(&threads[0], NULL, pass_on, &passing);
	pthread_create(&threads[1], NULL, hold_the_looker_up, &passing);
	pthread_create(&threads[2], NULL, free_what_is_passed, &passing);
	while (passing.ready != 4)
		sched_yield();
	stats = fixture_stats(&passing.shared.f);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_in_range(stats.requested_bytes.current, 0, 64 * KIB);
	assert_in_range(stats.allocated_bytes.current, 0, 64 * KIB);
	assert_in_range(stats.active_bytes.current, 0, 64 * KIB);
	assert_in_range(stats.cached_bytes.current, 0, stats.reserved_bytes.current);
	assert_int_equal(stats.alloc_calls - stats.free_calls, stats.allocated_bytes.current != 0);
	assert_int_equal(passing.shared.done, 0);
	fixture_stop(&passing.shared.f);
}

static void *
have_a_magazine(void *arg)
{
	struct shared *shared = arg;
	uint64_t block;

	for (int i = 0; i < 2; i++) {
		shared->done += ca_alloc(shared->f.space, 4 * KIB, &block) != 0;
		shared->done += ca_free(shared->f.heap, block) != 0;
	}
	pthread_barrier_wait(&shared->together);
	pthread_barrier_wait(&shared->together);
	return NULL;
}

/* Pieces of a free segment, which no magazine has: at most 8 MiB of them are not counted yet where
 * others see it. */
static void
test_misses_beside_another_thread_are_counted_in_time(void **state)
{
	struct shared shared = { .size = 0 };
	uint64_t sum = 0, counted, block;
	pthread_t thread;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	assert_int_equal(ca_alloc(shared.f.space, 200 * MIB, &block), 0);
	pthread_barrier_init(&shared.together, NULL, 2);
	pthread_create(&thread, NULL, have_a_magazine, &shared);
	pthread_barrier_wait(&shared.together);
	assert_int_equal(ca_free(shared.f.heap, block), 0);
	for (int i = 0; i < 24; i++) {
		uint64_t size = (i == 12 ? 30 : 3) * MIB + (unsigned)i * KIB;
		unsigned misses = shared.f.heap->requests;

		assert_int_equal(ca_alloc(shared.f.space, size, &shared.blocks[i]), 0);
		assert_int_equal(shared.f.heap->requests, misses + 1);
		sum += size;
		counted = shared.f.space->device->stats.requested_bytes.current;
		assert_in_range(counted + 8 * MIB, sum, sum + 8 * MIB);
	}
	assert_in_range(counted, 1, sum - 1); /* some are not, yet */
	assert_int_equal(fixture_stats(&shared.f).requested_bytes.current, sum);
	assert_in_range(fixture_stats(&shared.f).requested_bytes.peak, 200 * MIB,
			200 * MIB + 4 * KIB);
	pthread_barrier_wait(&shared.together);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&shared.together);
	assert_int_equal(shared.done, 0);
	fixture_stop(&shared.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums_are_exact_whoever_frees),
		cmocka_unit_test(test_a_peak_is_no_more_than_was_held_whoever_is_counted_first),
		cmocka_unit_test(test_no_peak_is_more_than_was_ever_reserved),
		cmocka_unit_test(test_who_looks_never_sees_less_than_nothing),
		cmocka_unit_test(test_misses_beside_another_thread_are_counted_in_time),
	};

	return cmocka_run_group_tests_name("allocator-magazine-count", tests, NULL, NULL);
}
