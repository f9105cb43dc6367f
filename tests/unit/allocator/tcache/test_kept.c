/* SPDX-License-Identifier: MIT */
/*
 * What the ways with and without the heap's lock leave behind: places in the table of bases, stacks
 * of a magazine, and the indexes of blocks that are cut and merged again.
 */
#include "allocator/tcache/internal.h"
#include "tests/unit/allocator/deferred/scene.h"

enum { MANY = 114000 }; /* just below seven eighths of a table */

static void
test_nearly_every_block_is_found_in_a_full_table(void **state)
{
	static uint64_t live[MANY];
	struct fixture f;
	unsigned i, n;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < MANY; i++)
		assert_int_equal(ca_alloc(f.space, 512 + i % 5 * 512, &live[i]), 0);
	n = (unsigned)ca_bases_count_locked(&f.heap->bases);
	printf("# %u of %u blocks have no place in the table\n", (unsigned)MANY - n,
	       (unsigned)MANY);
	assert_in_range(n, MANY - MANY / 1000, MANY);
	fixture_check(&f);
	for (i = 0; i < MANY; i++)
		assert_int_equal(ca_free(f.heap, live[i]), 0);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).allocated_bytes.current, 0);
	fixture_stop(&f);
}

static void
test_a_full_stack_keeps_what_it_has(void **state)
{
	uint64_t blocks[CA_KEPT_EACH + 3], again;
	struct fixture f;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < CA_KEPT_EACH + 3; i++)
		assert_int_equal(ca_alloc(f.space, 4096, &blocks[i]), 0);
	for (i = 0; i < CA_KEPT_EACH + 3; i++)
		assert_int_equal(ca_free(f.heap, blocks[i]), 0);
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), CA_KEPT_EACH);
	fixture_check(&f);
	/* the last that it took, not the last that was freed */
	assert_int_equal(ca_alloc(f.space, 4096, &again), 0);
	assert_int_equal(again, blocks[CA_KEPT_EACH - 1]);
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), CA_KEPT_EACH - 1);
	fixture_stop(&f);
}

/* Blocks of that size in the thread's magazine. */
static unsigned
kept_of_size(const struct fixture *f, uint64_t size)
{
	const struct ca_stack *stack =
		ca_stack_find(&f->heap->magazines->first_shelf, (uint32_t)(size / 512));

	return stack ? ca_stack_depth(stack) : 0;
}

/* A size above CA_SMALL_MAX whose blocks are kept in the same set as those of `size`. */
static uint64_t
large_beside(struct ca_shelf *shelf, uint64_t size)
{
	const struct ca_stack *set = ca_stack_set(shelf, (uint32_t)(size / 512));
	uint64_t large = MIB + 512;

	while (ca_stack_set(shelf, (uint32_t)(large / 512)) != set)
		large += 512;
	return large;
}

static void
test_an_empty_stack_may_get_a_large_size(void **state)
{
	uint64_t small, block, other, large;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	assert_int_equal(ca_alloc(f.space, 4096, &small), 0);
	assert_int_equal(ca_free(f.heap, small), 0);
	large = large_beside(&f.heap->magazines->first_shelf, 4096);
	assert_int_equal(ca_alloc(f.space, large, &block), 0);
	assert_int_equal(ca_alloc(f.space, 8 * MIB, &other), 0);
	assert_int_equal(ca_alloc(f.space, 4096, &small), 0);
	assert_int_equal(ca_free(f.heap, small), 0);
	assert_int_equal(ca_alloc(f.space, 4096, &small), 0); /* its stack is empty */
	assert_int_equal(ca_free(f.heap, block), 0);
	assert_int_equal(kept_of_size(&f, large), 1);
	fixture_check(&f);
	/* a small request that finds nothing of its size puts it back where it can be cut, with
	 * another large size */
	assert_int_equal(ca_free(f.heap, other), 0);
	assert_int_equal(ca_alloc(f.space, 512, &block), 0);
	assert_int_equal(kept_of_size(&f, large), 0);
	fixture_check(&f);
	fixture_stop(&f);
}

/* Large blocks of `n` sizes that stay in the magazine where a small request finds nothing. */
static unsigned
left_by_a_small_request(unsigned n)
{
	uint64_t large[2];
	struct fixture f;
	unsigned i, left;

	fixture_defaults(&f);
	fixture_start(&f);
	fixture_alloc(&f, 4096); /* the rest of its segment is free */
	for (i = 0; i < n; i++)
		large[i] = fixture_alloc(&f, (i + 2) * MIB);
	for (i = 0; i < n; i++)
		fixture_free(&f, large[i]);
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), n);
	fixture_alloc(&f, 8192);
	fixture_check(&f);
	left = kept_of_size(&f, 2 * MIB) + kept_of_size(&f, 3 * MIB);
	fixture_stop(&f);
	return left;
}

static void
test_a_small_request_leaves_large_blocks_alone(void **state)
{
	assert_int_equal(left_by_a_small_request(1), 1);
	assert_int_equal(left_by_a_small_request(2), 2);
}

/* Between live blocks it would only be cut again. */
static void
test_a_large_request_merges_only_what_has_a_free_block_beside_it(void **state)
{
	uint64_t blocks[5], room;
	struct fixture f;
	unsigned i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 5; i++) /* of a segment of 20 MiB; the rest is free */
		blocks[i] = fixture_alloc(&f, 3 * MIB);
	room = fixture_alloc(&f, 64 * MIB);
	fixture_free(&f, room);
	assert_int_equal(fixture_alloc(&f, 30 * MIB), room); /* it is merged, and cut */
	fixture_free(&f, blocks[1]);
	fixture_free(&f, blocks[4]);
	assert_int_equal(kept_of_size(&f, 3 * MIB), 2);
	assert_int_equal(fixture_alloc(&f, 7 * MIB), blocks[4]); /* not of the other 34 MiB */
	assert_int_equal(kept_of_size(&f, 3 * MIB), 1);
	fixture_check(&f);
	assert_int_equal(fixture_alloc(&f, 3 * MIB), blocks[1]);
	assert_int_equal(kept_of_size(&f, 3 * MIB), 0);
	fixture_check(&f);
	fixture_stop(&f);
}

enum { SMALL_KEPT = 10, LARGE_KEPT = 40, MERGED_MAX = 16 };

/* A block that fits is cut when 16 have been looked at, and a small one is of no use to a large
 * request. */
static void
test_a_request_that_finds_something_merges_little(void **state)
{
	uint64_t blocks[SMALL_KEPT + LARGE_KEPT], room, first;
	struct fixture f;
	unsigned i, left;

	fixture_defaults(&f);
	fixture_start(&f);
	fixture_alloc(&f, 4096); /* the rest of its segment is free */
	for (i = 0; i < SMALL_KEPT; i++)
		blocks[i] = fixture_alloc(&f, 8192 + i * 512);
	for (; i < SMALL_KEPT + LARGE_KEPT; i++)
		blocks[i] = fixture_alloc(&f, 2 * MIB + i * 64 * KIB);
	room = fixture_alloc(&f, 64 * MIB);
	fixture_free(&f, room);
	first = fixture_alloc(&f, 30 * MIB); /* it is merged, and cut */
	assert_int_equal(first, room);
	for (i = 0; i < SMALL_KEPT + LARGE_KEPT; i++)
		assert_int_equal(ca_free(f.heap, blocks[i]), 0);
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), SMALL_KEPT + LARGE_KEPT);
	fixture_alloc(&f, 7 * MIB);
	left = ca_shelf_kept(&f.heap->magazines->first_shelf);
	assert_in_range(left, SMALL_KEPT + LARGE_KEPT - MERGED_MAX, SMALL_KEPT + LARGE_KEPT);
	for (i = 0; i < SMALL_KEPT; i++)
		assert_int_equal(kept_of_size(&f, 8192 + i * 512), 1);
	fixture_check(&f);
	fixture_alloc(&f, 512); /* nor are large ones to a small request */
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), left);
	/* nothing is large enough: all is merged before the cache grows */
	fixture_alloc(&f, 100 * MIB);
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), 0);
	fixture_check(&f);
	fixture_stop(&f);
}

static void
test_a_small_block_among_large_ones_merges_at_once(void **state)
{
	uint64_t hole, small;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	hole = fixture_alloc(&f, 3 * MIB + MIB / 4) + 19 * MIB + MIB / 4;
	fixture_alloc(&f, 8 * MIB);
	fixture_alloc(&f, 8 * MIB);
	assert_int_equal(ca_alloc(f.space, MIB / 2, &small), 0);
	assert_int_equal(small, hole);
	assert_int_equal(ca_free(f.heap, small), 0);
	assert_int_equal(ca_shelf_kept(&f.heap->magazines->first_shelf), 0);
	assert_int_equal(ca_alloc(f.space, 3 * MIB / 4, &small), 0);
	assert_int_equal(small, hole);
	fixture_stop(&f);
}

static void
test_only_what_a_large_request_can_use_is_indexed_for_it(void **state)
{
	uint64_t first, second, third, hole;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	/* 20 MiB: 3 (ends off a boundary), 3, the rest */
	assert_int_equal(ca_alloc(f.space, 3 * MIB + 32 * KIB, &first), 0);
	assert_int_equal(ca_alloc(f.space, 3 * MIB, &second), 0);
	assert_int_equal(ca_alloc(f.space, 3 * MIB / 2, &third), 0);
	fixture_check(&f);
	/* the hole in front of the second one, 32 KiB, is too small and in no way of the third */
	assert_int_equal(second - first, 3 * MIB + 64 * KIB);
	assert_int_equal(ca_free(f.heap, first), 0);
	ca_trim(f.heap, GIB); /* out of the magazine: 64 KiB more from the first boundary on */
	fixture_check(&f);
	assert_int_equal(ca_alloc(f.space, 3 * MIB + 64 * KIB, &hole), 0);
	assert_int_equal(hole, first);
	fixture_check(&f);
	fixture_stop(&f);
}

enum { SIZES = 6 };

/* Blocks of several large sizes that stay in the magazine at a request of `bytes`, in extents that
 * may outgrow what is in use by `slack_percent`. */
static unsigned
left_in_extents(uint64_t slack_percent, uint64_t bytes)
{
	uint64_t fits, large[SIZES];
	struct fixture f;
	unsigned i, left = 0;

	fixture_defaults(&f);
	f.config.expandable_segments = true;
	f.config.expandable_slack_percent = slack_percent;
	fixture_start(&f);
	fixture_alloc(&f, 4096);
	fits = fixture_alloc(&f, 20 * MIB);
	for (i = 0; i < SIZES; i++)
		large[i] = fixture_alloc(&f, (i + 2) * MIB);
	fixture_free(&f, fits);
	ca_trim(f.heap, GIB); /* out of the magazine */
	for (i = 0; i < SIZES; i++)
		fixture_free(&f, large[i]);
	fixture_alloc(&f, bytes);
	fixture_check(&f);
	for (i = 0; i < SIZES; i++)
		left += kept_of_size(&f, (i + 2) * MIB);
	fixture_stop(&f);
	return left;
}

static void
test_extents_near_their_slack_get_all_large_blocks_back(void **state)
{
	assert_int_equal(left_in_extents(0, 8192), 0);
	assert_int_equal(left_in_extents(0, 20 * MIB), 0);
	/* 100 MiB and more are left of the slack */
	assert_int_equal(left_in_extents(1000, 8192), SIZES);
	assert_in_range(left_in_extents(1000, 20 * MIB), 1, SIZES);
}

/* Three blocks are freed from the lowest on, while work may use them: which one comes first. */
static unsigned
first_of_three(bool extents, uint64_t bytes)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[3], again;
	unsigned i;

	fixture_defaults(f);
	f->config.expandable_segments = extents;
	scene_start(&scene, 1);
	for (i = 0; i < 3; i++)
		at[i] = fixture_alloc(f, bytes);
	launch(&scene, S);
	for (i = 0; i < 3; i++)
		fixture_free(f, at[i]);
	assert_int_equal(kept_of_size(f, bytes), 3);
	again = fixture_alloc(f, bytes);
	fixture_check(f);
	for (i = 0; i < 3 && again != at[i]; i++)
		;
	fixture_stop(f);
	return i;
}

static void
test_in_extents_the_lowest_large_block_comes_first(void **state)
{
	assert_int_equal(first_of_three(true, 2 * MIB), 0);
	assert_int_equal(first_of_three(true, 4096), 2);
	assert_int_equal(first_of_three(false, 2 * MIB), 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearly_every_block_is_found_in_a_full_table),
		cmocka_unit_test(test_a_full_stack_keeps_what_it_has),
		cmocka_unit_test(test_an_empty_stack_may_get_a_large_size),
		cmocka_unit_test(test_a_small_request_leaves_large_blocks_alone),
		cmocka_unit_test(test_a_large_request_merges_only_what_has_a_free_block_beside_it),
		cmocka_unit_test(test_a_request_that_finds_something_merges_little),
		cmocka_unit_test(test_a_small_block_among_large_ones_merges_at_once),
		cmocka_unit_test(test_only_what_a_large_request_can_use_is_indexed_for_it),
		cmocka_unit_test(test_extents_near_their_slack_get_all_large_blocks_back),
		cmocka_unit_test(test_in_extents_the_lowest_large_block_comes_first),
	};

	return cmocka_run_group_tests_name("allocator-kept", tests, NULL, NULL);
}
