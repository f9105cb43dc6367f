/* SPDX-License-Identifier: MIT */
/* Magazines while several threads allocate, free and end at once. */
#include "tests/unit/allocator/tcache/magazine_scene.h"

#include <errno.h>
#include <sched.h>

enum { THREADS = 200, AT_ONCE = 4, ROUNDS = 300 };

enum { STOLEN = 61, OWN = 67 }; /* of 64 KiB: four segments to the last byte */

static void *
free_some(void *arg)
{
	struct shared *shared = arg;

	for (int i = 0; i < STOLEN; i++)
		shared->done += ca_free(shared->f.heap, shared->blocks[i]) != 0;
	return NULL;
}

/* A stack that comes from another thread has room for what it has, and then for no more than any
 * other. */
static void
test_a_stack_from_another_thread_is_no_larger_than_others(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	uint64_t own[OWN + 1];

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (int i = 0; i < OWN; i++)
		assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &own[i]), 0);
	for (int i = 0; i < STOLEN; i++)
		assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &shared.blocks[i]), 0);
	in_thread(free_some, &shared);
	assert_int_equal(kept(shared.f.heap), STOLEN);
	assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &own[OWN]), 0);
	assert_int_equal(kept(shared.f.heap), STOLEN - 1);
	for (int i = 0; i <= OWN; i++)
		assert_int_equal(ca_free(shared.f.heap, own[i]), 0);
	assert_int_equal(kept(shared.f.heap), CA_KEPT_EACH);
	fixture_check(&shared.f);
	assert_int_equal(shared.done, 0);
	fixture_stop(&shared.f);
}

/* A block from another thread's magazine is the thread's own once it is handed out, by whichever
 * way: at its free nobody has to be held back. */
static void
test_blocks_from_another_thread_become_own(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	const struct ca_block *block;
	uint64_t own;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	own = fixture_alloc(&shared.f, 64 * KIB); /* so this thread has a magazine */
	fixture_free(&shared.f, own);
	own = fixture_alloc(&shared.f, 64 * KIB);
	for (int i = 0; i < STOLEN; i++)
		shared.blocks[i] = fixture_alloc(&shared.f, 64 * KIB);
	in_thread(free_some, &shared);
	for (int i = 0; i < STOLEN; i++) {
		shared.blocks[i] = fixture_alloc(&shared.f, 64 * KIB);
		block = ca_bases_find_locked(&shared.f.heap->bases, shared.blocks[i]);
		assert_non_null(block);
		assert_int_equal(block->thread, ca_order_thread());
	}
	assert_in_range(kept(shared.f.heap), 0, 2); /* two were free in the segment */
	fixture_free(&shared.f, own);
	assert_int_equal(shared.done, 0);
	fixture_stop(&shared.f);
}

enum { SIZES = 8 };

static uint64_t
nth_size(int i)
{
	return 2 * MIB + (uint64_t)(i + 1) * 64 * KIB;
}

/* All but 1.75 MiB of a segment. */
static void *
take_and_free_sizes(void *arg)
{
	struct shared *shared = arg;

	for (int i = 0; i < SIZES; i++)
		shared->done += ca_alloc(shared->f.space, nth_size(i), &shared->blocks[i]) != 0;
	for (int i = 0; i < SIZES; i++)
		shared->done += ca_free(shared->f.heap, shared->blocks[i]) != 0;
	return NULL;
}

static void
test_a_request_takes_no_more_from_another_thread_than_it_needs(void **state)
{
	struct shared shared = { .size = 0 };
	uint64_t block;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 64 * KIB)); /* with a magazine */
	in_thread(take_and_free_sizes, &shared);
	assert_int_equal(kept(shared.f.heap), SIZES);
	block = fixture_alloc(&shared.f, 2 * MIB);
	assert_int_equal(kept(shared.f.heap), SIZES - 1);
	fixture_check(&shared.f);
	fixture_free(&shared.f, block);
	/* and all of it, if nothing less will do */
	block = fixture_alloc(&shared.f, 18 * MIB);
	assert_int_equal(kept(shared.f.heap), 0);
	assert_int_equal(fixture_stats(&shared.f).reserved_bytes.peak,
			 (shared.f.config.expandable_segments ? 20 : 22) * MIB);
	fixture_check(&shared.f);
	fixture_free(&shared.f, block);
	assert_int_equal(shared.done, 0);
	fixture_stop(&shared.f);
}

/* One after the other, and some at once. */
static void
test_magazines_of_ended_threads_go_to_new_ones(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	pthread_t threads[AT_ONCE];
	int i, j;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (i = 0; i < THREADS; i++)
		in_thread(take_and_free_many, &shared);
	assert_in_range(magazines(shared.f.heap), 1, 8);
	for (i = 0; i < 8; i++) {
		struct shared each[AT_ONCE];

		for (j = 0; j < AT_ONCE; j++) {
			each[j] = shared;
			pthread_create(&threads[j], NULL, take_and_free_many, &each[j]);
		}
		for (j = 0; j < AT_ONCE; j++)
			pthread_join(threads[j], NULL);
		fixture_check(&shared.f);
	}
	assert_int_equal(fixture_stats(&shared.f).allocated_bytes.current, 0);
	assert_int_equal(ca_trim(shared.f.heap, 0), fixture_sums(&shared.f).peak_bytes);
	fixture_stop(&shared.f);
}

static void *
free_the_same(void *arg)
{
	struct shared *shared = arg;
	unsigned me = atomic_fetch_add(&shared->started, 1), round;

	for (round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&shared->together);
		atomic_store(&shared->results[me], ca_free(shared->f.heap, shared->blocks[0]));
		pthread_barrier_wait(&shared->together);
	}
	return NULL;
}

static void
test_of_two_frees_of_a_block_one_succeeds(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	pthread_t threads[2];
	unsigned i, round;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	pthread_barrier_init(&shared.together, NULL, 3);
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, free_the_same, &shared);
	for (round = 0; round < ROUNDS; round++) {
		assert_int_equal(ca_alloc(shared.f.space, shared.size, &shared.blocks[0]), 0);
		pthread_barrier_wait(&shared.together);
		pthread_barrier_wait(&shared.together);
		assert_int_equal(shared.results[0] + shared.results[1], -EINVAL);
	}
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&shared.together);
	fixture_check(&shared.f);
	assert_int_equal(fixture_stats(&shared.f).free_calls, ROUNDS);
	fixture_stop(&shared.f);
}

struct mixed {
	struct shared *shared;
	uint64_t seed;
};

/* Blocks of a few sizes, handed from thread to thread. */
static void *
exchange(void *arg)
{
	struct mixed *mixed = arg;
	struct shared *shared = mixed->shared;
	int i;

	for (i = 0; i < 4000; i++) {
		uint64_t dice = fixture_random(&mixed->seed), mine = 0, theirs;
		_Atomic uint64_t *place = (_Atomic uint64_t *)&shared->blocks[dice % MANY];

		if (dice >> 8 & 1)
			shared->done += ca_alloc(shared->f.space,
						 (1 + (dice >> 16) % 12) * 40 * KIB, &mine) != 0;
		theirs = atomic_exchange(place, mine);
		if (theirs)
			shared->done += ca_free(shared->f.heap, theirs) != 0;
		if (i % 256 == 255)
			shared->done += ca_heap_check(shared->f.heap, NULL, 0) != 0;
		if (i % 512 == 100)
			ca_trim(shared->f.heap, 8 * MIB);
	}
	return NULL;
}

static void
test_threads_that_free_each_others_blocks_keep_the_invariants(void **state)
{
	struct shared shared = { .size = 0 };
	struct mixed mixed[AT_ONCE];
	pthread_t threads[AT_ONCE];
	uint64_t seed = fixture_seed(8713);
	int i;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (i = 0; i < AT_ONCE; i++) {
		mixed[i] = (struct mixed){ &shared, seed + (uint64_t)i };
		pthread_create(&threads[i], NULL, exchange, &mixed[i]);
	}
	for (i = 0; i < AT_ONCE; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(shared.done, 0);
	fixture_check(&shared.f);
	for (i = 0; i < MANY; i++)
		if (shared.blocks[i])
			fixture_free(&shared.f, shared.blocks[i]);
	assert_int_equal(fixture_stats(&shared.f).requested_bytes.current, 0);
	ca_trim(shared.f.heap, 0);
	assert_int_equal(fixture_sums(&shared.f).held_bytes, 0);
	fixture_stop(&shared.f);
}

static void *
trim(void *arg)
{
	struct shared *shared = arg;

	shared->started++;
	ca_trim(shared->f.heap, UINT64_MAX);
	shared->done++;
	return NULL;
}

/* It would leave the heap locked. */
static void
test_a_thread_is_not_cancelled_while_it_waits_for_a_magazine(void **state)
{
	struct shared shared = { .size = 0 };
	struct ca_magazine *magazine;
	pthread_t thread;
	void *result;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 64 * KIB));
	magazine = shared.f.heap->magazines;
	atomic_store(&magazine->lock, 1);
	assert_int_equal(pthread_create(&thread, NULL, trim, &shared), 0);
	while (!shared.started)
		sched_yield();
	pthread_cancel(thread);
	sleep_a_step(); /* it is asleep by now, most likely */
	atomic_store(&magazine->lock, 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal(shared.done, 1);
	assert_int_equal(atomic_load(&shared.f.heap->lock.word), 0);
	fixture_stop(&shared.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stack_from_another_thread_is_no_larger_than_others),
		cmocka_unit_test(test_blocks_from_another_thread_become_own),
		cmocka_unit_test(test_a_request_takes_no_more_from_another_thread_than_it_needs),
		cmocka_unit_test(test_magazines_of_ended_threads_go_to_new_ones),
		cmocka_unit_test(test_of_two_frees_of_a_block_one_succeeds),
		cmocka_unit_test(test_threads_that_free_each_others_blocks_keep_the_invariants),
		cmocka_unit_test(test_a_thread_is_not_cancelled_while_it_waits_for_a_magazine),
	};

	return cmocka_run_group_tests_name("allocator-magazine-threads", tests, NULL, NULL);
}
