/* SPDX-License-Identifier: MIT */
/*
 * What the ways with and without the heap's lock leave behind: places in the table of bases, stacks
 * of a magazine, and the indexes of blocks that are cut and merged again.
 */
#include "allocator/tcache/internal.h"
#include "tests/unit/allocator/fixture.h"

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
	assert_int_equal(ca_magazine_kept(f.heap->magazines), CA_KEPT_EACH);
	fixture_check(&f);
	/* the last that it took, not the last that was freed */
	assert_int_equal(ca_alloc(f.space, 4096, &again), 0);
	assert_int_equal(again, blocks[CA_KEPT_EACH - 1]);
	assert_int_equal(ca_magazine_kept(f.heap->magazines), CA_KEPT_EACH - 1);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearly_every_block_is_found_in_a_full_table),
		cmocka_unit_test(test_a_full_stack_keeps_what_it_has),
		cmocka_unit_test(test_only_what_a_large_request_can_use_is_indexed_for_it),
	};

	return cmocka_run_group_tests_name("allocator-kept", tests, NULL, NULL);
}
