/* SPDX-License-Identifier: MIT */
/* Small requests between large blocks: before the cache grows, in what no large request can use. */
#include "tests/unit/allocator/fixture.h"

static char a_stream;
#define S ((void *)&a_stream)

/* A segment of 20 MiB: 19.25 MiB in use, and a hole of 0.75 (its address is returned). */
static uint64_t
scene_start(struct fixture *f)
{
	uint64_t hole;

	fixture_defaults(f);
	fixture_start(f);
	hole = fixture_alloc(f, 3 * MIB + MIB / 4) + 19 * MIB + MIB / 4;
	fixture_alloc(f, 8 * MIB);
	fixture_alloc(f, 8 * MIB);
	assert_int_equal(fixture_sums(f).held_bytes, 20 * MIB);
	return hole;
}

static void
test_a_hole_serves_a_small_request_before_the_cache_grows(void **state)
{
	struct fixture f;
	uint64_t hole = scene_start(&f);

	assert_int_equal(fixture_alloc(&f, MIB / 2), hole);
	assert_int_equal(fixture_alloc(&f, MIB / 4 - 512), hole + MIB / 2);
	assert_int_equal(fixture_alloc(&f, 512), hole + 3 * MIB / 4 - 512);
	assert_int_equal(fixture_sums(&f).held_bytes, 20 * MIB);
	assert_int_equal(fixture_stats(&f).cache_hits, 5);
	fixture_check(&f);
	fixture_alloc(&f, 512);
	assert_int_equal(fixture_sums(&f).held_bytes, 22 * MIB);
	fixture_stop(&f);
}

static void
test_small_segments_come_first(void **state)
{
	struct fixture f;
	uint64_t hole = scene_start(&f), first;

	first = fixture_alloc(&f, MIB); /* larger than the hole */
	assert_int_equal(fixture_sums(&f).held_bytes, 22 * MIB);
	assert_int_equal(fixture_alloc(&f, MIB / 2), first + MIB);
	assert_int_equal(fixture_alloc(&f, 3 * MIB / 4), hole);
	fixture_stop(&f);
}

/* It merges with its neighbours again, so the segment can go back as a whole. */
static void
test_what_was_in_a_hole_merges(void **state)
{
	struct fixture f;
	uint64_t large, last, small;

	fixture_defaults(&f);
	fixture_start(&f);
	large = fixture_alloc(&f, 20 * MIB);
	fixture_free(&f, large);
	large = fixture_alloc(&f, 3 * MIB + MIB / 4);
	fixture_alloc(&f, 8 * MIB);
	last = fixture_alloc(&f, 8 * MIB);
	small = fixture_alloc(&f, MIB / 2);
	assert_int_equal(small, large + 19 * MIB + MIB / 4);
	fixture_free(&f, last);
	fixture_free(&f, small);
	assert_int_equal(ca_trim(f.heap, 0), 0);
	assert_int_equal(fixture_stats(&f).largest_free_block_bytes, 8 * MIB + 3 * MIB / 4);
	fixture_check(&f);
	fixture_stop(&f);
}

/* In a segment of its own a large request may come again, and wants all of it. */
static void
test_more_than_that_is_left_to_large_requests(void **state)
{
	struct fixture f;
	uint64_t large;

	fixture_defaults(&f);
	fixture_start(&f);
	large = fixture_alloc(&f, 40 * MIB + MIB / 2); /* 1.5 MiB are left behind it */
	assert_int_equal(fixture_sums(&f).held_bytes, 42 * MIB);
	fixture_alloc(&f, MIB / 2);
	assert_int_equal(fixture_sums(&f).held_bytes, 44 * MIB);
	fixture_free(&f, large);
	assert_int_equal(fixture_alloc(&f, 42 * MIB), large);
	fixture_stop(&f);
}

/* What the only stream still uses is as good, however far behind that is. */
static void
test_a_hole_that_the_only_stream_uses_serves(void **state)
{
	struct ca_stream *stream;
	struct fixture f;
	uint64_t hole = scene_start(&f);

	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, S, true, &stream), 0);
	ca_stream_note_thread(stream);
	assert_int_equal(fixture_alloc(&f, 3 * MIB / 4), hole);
	ca_submit_begin(stream, NULL);
	ca_model_stream_submit(f.model, S);
	ca_submit_end(stream);
	fixture_free(&f, hole);
	assert_int_equal(fixture_alloc(&f, MIB / 2), hole);
	assert_int_equal(fixture_sums(&f).held_bytes, 20 * MIB);
	fixture_check(&f);
	ca_order_last_stream = NULL;
	fixture_stop(&f);
}

/* What another stream still uses is not. */
static void
test_a_hole_in_use_elsewhere_does_not(void **state)
{
	static char other;
	struct ca_stream *stream, *second;
	struct fixture f;
	uint64_t hole = scene_start(&f);

	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, S, true, &stream), 0);
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, &other, true, &second), 0);
	ca_stream_note_thread(stream);
	assert_int_equal(fixture_alloc(&f, 3 * MIB / 4), hole);
	ca_submit_begin(stream, NULL);
	ca_model_stream_submit(f.model, S);
	ca_submit_end(stream);
	fixture_free(&f, hole);
	assert_int_not_equal(fixture_alloc(&f, MIB / 2), hole);
	assert_int_equal(fixture_sums(&f).held_bytes, 22 * MIB);
	ca_order_last_stream = NULL;
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_hole_serves_a_small_request_before_the_cache_grows),
		cmocka_unit_test(test_small_segments_come_first),
		cmocka_unit_test(test_what_was_in_a_hole_merges),
		cmocka_unit_test(test_more_than_that_is_left_to_large_requests),
		cmocka_unit_test(test_a_hole_that_the_only_stream_uses_serves),
		cmocka_unit_test(test_a_hole_in_use_elsewhere_does_not),
	};

	return cmocka_run_group_tests_name("allocator-hole", tests, NULL, NULL);
}
