/* SPDX-License-Identifier: MIT */
/* Leased segments of large blocks (allocator/block/lease.h): a thread cuts its blocks of 1 to 2 MiB
 * from them, and whoever wants something else of them gets it. */
#include "tests/unit/allocator/tcache/lease_scene.h"

/* Of different sizes, none of which a magazine has. */
enum { LARGE = 4, MOST = 16, LARGE_SEGMENT_MIB = 20, FILLING = 1100 << 10 };

static uint64_t
size_of(unsigned i)
{
	return MIB + 512 + (i + 2) * 64 * KIB;
}

/* Another thread has a magazine, and the calling one has taken LARGE blocks. */
static void
take_large(struct fixture *f, uint64_t blocks[LARGE])
{
	contended_start(f);
	take_and_free_one(f);
	in_thread(take_and_free_one, f);
	for (unsigned i = 0; i < LARGE; i++)
		assert_int_equal(ca_alloc(f->space, size_of(i), &blocks[i]), 0);
}

static void
start(struct fixture *f, uint64_t blocks[LARGE])
{
	fixture_defaults(f);
	f->config.expandable_segments = false; /* only segments are leased */
	take_large(f, blocks);
}

static bool
is_large_leased(const struct fixture *f)
{
	return f->heap->leases && f->heap->leases->segments[1];
}

/* Nothing of FILLING bytes is left in the leased segment. The number of blocks. */
static unsigned
fill(struct fixture *f, uint64_t blocks[MOST])
{
	unsigned n = LARGE;

	while (n < MOST && ca_index_at_least(&f->heap->leases->by_size[1], FILLING))
		assert_int_equal(ca_alloc(f->space, FILLING, &blocks[n++]), 0);
	assert_true(is_large_leased(f));
	return n;
}

static void
check_and_end(struct fixture *f)
{
	nothing_is_left(f);
	fixture_stop(f);
}

static void
test_large_blocks_without_the_heaps_lock(void **state)
{
	uint64_t blocks[LARGE], more[2], requests;
	struct fixture f;

	start(&f, blocks);
	assert_true(is_large_leased(&f));
	requests = f.heap->requests;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(ca_alloc(f.space, size_of(LARGE + i), &more[i]), 0);
	assert_int_equal(f.heap->requests, requests);
	assert_true(is_large_leased(&f));
	fixture_check(&f);
	free_blocks(&f, blocks, LARGE);
	free_blocks(&f, more, 2);
	check_and_end(&f);
}

/* Blocks that were freed there merge there, and serve a larger request. */
static void
test_freed_large_blocks_merge_in_the_lease(void **state)
{
	uint64_t blocks[MOST], address;
	unsigned n = LARGE;
	struct fixture f;

	start(&f, blocks);
	for (; n < MOST && f.heap->leases->by_size[1].words; n++) /* until nothing is free in it */
		assert_int_equal(ca_alloc(f.space, size_of(n), &blocks[n]), 0);
	assert_in_range(n, LARGE + 4, MOST - 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ca_free(f.heap, blocks[i]), 0);
	assert_int_equal(ca_alloc(f.space, 2 * MIB - 512, &address), 0);
	assert_int_equal(fixture_stats(&f).reserved_bytes.peak, LARGE_SEGMENT_MIB * MIB);
	free_blocks(&f, &blocks[3], n - 3);
	assert_int_equal(ca_free(f.heap, address), 0);
	check_and_end(&f);
}

/* It wants a boundary, and gets it in the same segment: the cache does not grow. */
static void
test_a_larger_request_finds_a_leased_segment(void **state)
{
	uint64_t blocks[LARGE], address, requests;
	struct fixture f;

	start(&f, blocks);
	requests = f.heap->requests;
	assert_int_equal(ca_alloc(f.space, 5 * MIB, &address), 0);
	assert_int_equal(f.heap->requests, requests + 1);
	assert_int_equal(address % (64 * KIB), 0);
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, LARGE_SEGMENT_MIB * MIB);
	free_blocks(&f, blocks, LARGE);
	assert_int_equal(ca_free(f.heap, address), 0);
	check_and_end(&f);
}

static void *
take_five(void *arg)
{
	struct fixture *f = arg;
	uint64_t addresses[2];

	assert_int_equal(ca_alloc(f->space, 5 * MIB, &addresses[0]), 0);
	assert_int_equal(ca_alloc(f->space, size_of(LARGE), &addresses[1]), 0);
	assert_int_equal(ca_free(f->heap, addresses[0]), 0);
	assert_int_equal(ca_free(f->heap, addresses[1]), 0);
	return NULL;
}

static void
test_another_thread_takes_the_segment_before_the_cache_grows(void **state)
{
	uint64_t blocks[LARGE];
	struct fixture f;

	start(&f, blocks);
	assert_true(is_large_leased(&f));
	in_thread(take_five, &f);
	assert_int_equal(fixture_stats(&f).reserved_bytes.peak, LARGE_SEGMENT_MIB * MIB);
	free_blocks(&f, blocks, LARGE);
	check_and_end(&f);
}

/* A rest of less than 1 MiB is a hole, which a small request takes before the cache grows. */
static void
test_a_small_request_takes_a_hole_of_a_leased_segment(void **state)
{
	uint64_t blocks[MOST], address;
	struct fixture f;
	unsigned n;

	start(&f, blocks);
	n = fill(&f, blocks);
	assert_non_null(ca_index_at_least(&f.heap->leases->by_size[1], 300 * KIB));
	grow_last(&f);
	assert_int_equal(ca_alloc(f.space, 300 * KIB, &address), 0);
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, LARGE_SEGMENT_MIB * MIB);
	free_blocks(&f, blocks, n);
	assert_int_equal(ca_free(f.heap, address), 0);
	check_and_end(&f);
}

/* A rest that is not split off is the block's, and counts as allocated. */
static void
test_a_rest_that_is_not_worth_it_stays_with_the_block(void **state)
{
	uint64_t blocks[MOST], address, allocated = 0;
	struct fixture f;
	unsigned n;

	start(&f, blocks);
	n = fill(&f, blocks);
	for (unsigned i = 0; i < n; i++)
		allocated += i < LARGE ? size_of(i) : FILLING;
	assert_int_equal(ca_free(f.heap, blocks[1]), 0);
	/* 100 KiB are left of that one, which lies between others */
	assert_int_equal(ca_alloc(f.space, size_of(1) - 100 * KIB, &address), 0);
	assert_int_equal(address, blocks[1]);
	assert_true(is_large_leased(&f));
	assert_int_equal(fixture_stats(&f).allocated_bytes.current, allocated);
	free_blocks(&f, blocks, n);
	check_and_end(&f);
}

static void
test_no_segment_that_is_not_meant_to_be_cut_is_leased(void **state)
{
	uint64_t blocks[LARGE];
	struct fixture f;

	fixture_defaults(&f);
	f.config.expandable_segments = false;
	f.config.max_split_size_bytes = LARGE_SEGMENT_MIB * MIB;
	take_large(&f, blocks);
	assert_false(is_large_leased(&f));
	free_blocks(&f, blocks, LARGE);
	check_and_end(&f);
}

/* It may go back to the driver as a whole for another one: the budget is asked before each cut. */
static void
test_a_segment_of_one_large_request_is_not_leased(void **state)
{
	uint64_t first, blocks[LARGE];
	struct fixture f;

	fixture_defaults(&f);
	f.config.expandable_segments = false;
	f.config.give_back_oom = true; /* it is not declined here */
	contended_start(&f);
	take_and_free_one(&f);
	in_thread(take_and_free_one, &f);
	ca_trim(f.heap, 0);
	assert_int_equal(ca_alloc(f.space, 40 * MIB, &first), 0);
	assert_int_equal(ca_free(f.heap, first), 0);
	for (unsigned i = 0; i < LARGE; i++)
		assert_int_equal(ca_alloc(f.space, size_of(i), &blocks[i]), 0);
	assert_false(is_large_leased(&f));
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, 40 * MIB);
	free_blocks(&f, blocks, LARGE);
	check_and_end(&f);
}

/* None of its requests would be served. */
static void
test_blocks_that_want_a_boundary_lease_nothing(void **state)
{
	uint64_t blocks[LARGE];
	struct fixture f;

	fixture_defaults(&f);
	f.config.expandable_segments = false;
	contended_start(&f);
	take_and_free_one(&f);
	in_thread(take_and_free_one, &f);
	for (unsigned i = 0; i < LARGE; i++) {
		assert_int_equal(ca_alloc(f.space, 2 * MIB + i * 64 * KIB, &blocks[i]), 0);
		assert_false(is_large_leased(&f));
	}
	free_blocks(&f, blocks, LARGE);
	check_and_end(&f);
}

/* ---- a segment that two threads want in turn */

enum { ROUNDS = 2000, IN_TURN = 24 };

struct turns {
	struct fixture f;
	pthread_barrier_t turn;
	_Atomic unsigned members;
	unsigned began, failed; /* of the thread whose turn it is */
};

static bool
has_large_lease(void)
{
	return ca_own.shelf && ca_own.shelf->lease && ca_own.shelf->lease->segments[1];
}

static void *
take_in_turn(void *arg)
{
	struct turns *turns = arg;
	struct fixture *f = &turns->f;
	unsigned me = turns->members++;
	uint64_t blocks[IN_TURN] = { 0 };

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t *block = &blocks[i / 2 % IN_TURN];
		bool had;

		pthread_barrier_wait(&turns->turn);
		if (i % 2 != me)
			continue;
		if (*block)
			turns->failed += ca_free(f->heap, *block) != 0;
		had = has_large_lease();
		turns->failed += ca_alloc(f->space, MIB + (i * 7919 % 200 + 1) * 512, block) != 0;
		turns->began += !had && has_large_lease();
	}
	pthread_barrier_wait(&turns->turn);
	pthread_barrier_wait(&turns->turn);
	free_blocks(f, blocks, IN_TURN);
	return NULL;
}

/* Each walks all blocks of the segment: one that serves nothing is begun more and more seldom. */
static void
test_who_takes_it_from_the_other_in_vain_leases_it_seldom(void **state)
{
	struct turns turns = { .began = 0 };
	pthread_t threads[2];

	fixture_defaults(&turns.f);
	turns.f.config.expandable_segments = false;
	turns.f.config.large_segment_size_bytes = 64 * MIB;
	turns.f.config.max_non_split_rounding_bytes = 64 * MIB;
	contended_start(&turns.f);
	pthread_barrier_init(&turns.turn, NULL, 3);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_in_turn, &turns), 0);
	for (unsigned i = 0; i < ROUNDS + 1; i++)
		pthread_barrier_wait(&turns.turn);
	fixture_check(&turns.f);
	pthread_barrier_wait(&turns.turn);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(turns.failed, 0);
	print_message("# %u rounds: %u leases\n", ROUNDS, turns.began);
	assert_in_range(turns.began, 1, ROUNDS / 20);
	pthread_barrier_destroy(&turns.turn);
	check_and_end(&turns.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_large_blocks_without_the_heaps_lock),
		cmocka_unit_test(test_freed_large_blocks_merge_in_the_lease),
		cmocka_unit_test(test_a_larger_request_finds_a_leased_segment),
		cmocka_unit_test(test_another_thread_takes_the_segment_before_the_cache_grows),
		cmocka_unit_test(test_a_small_request_takes_a_hole_of_a_leased_segment),
		cmocka_unit_test(test_a_rest_that_is_not_worth_it_stays_with_the_block),
		cmocka_unit_test(test_no_segment_that_is_not_meant_to_be_cut_is_leased),
		cmocka_unit_test(test_a_segment_of_one_large_request_is_not_leased),
		cmocka_unit_test(test_blocks_that_want_a_boundary_lease_nothing),
		cmocka_unit_test(test_who_takes_it_from_the_other_in_vain_leases_it_seldom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
