/* SPDX-License-Identifier: MIT */
/* allocator/block/extent.c, allocator/policy/expand.c: segments that grow and shrink. */
#include "tests/unit/allocator/block/moves.h"

#include <errno.h>

static void
start(struct fixture *f, uint64_t capacity)
{
	fixture_defaults(f);
	f->config.expandable_segments = true;
	f->pretend.capacity = capacity;
	f->pretend.finish_at_once = true;
	fixture_start(f);
}

static unsigned
extents(struct fixture *f)
{
	unsigned n = 0;

	CA_LIST_EACH(const struct ca_segment, segment, &f->space->segments, link)
		n += segment->mapped;
	return n;
}

static void
test_off_by_default(void **state)
{
	struct fixture f;

	fixture_defaults(&f);
	f.config.expandable_segments = false;
	fixture_start(&f);
	fixture_alloc(&f, 3 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_RESERVE), 0);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	fixture_stop(&f);
}

static void
test_an_extent_grows_by_just_what_a_request_lacks(void **state)
{
	struct fixture f;
	uint64_t a, b;

	start(&f, 4 * GIB);
	a = fixture_alloc(&f, 3 * MIB);
	assert_int_equal(held(&f), 4 * MIB);
	b = fixture_alloc(&f, 30 * MIB); /* from the free MiB on */
	assert_int_equal(held(&f), 34 * MIB);
	assert_int_equal(b, a + 3 * MIB);
	assert_int_equal(extents(&f), 1);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 0);
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP), 17);
	fixture_free(&f, b);
	b = fixture_alloc(&f, 40 * MIB);
	assert_int_equal(b, a + 3 * MIB);
	assert_int_equal(held(&f), 44 * MIB);
	fixture_stop(&f);
}

static void
test_small_and_large_have_areas_of_their_own(void **state)
{
	struct fixture f;
	uint64_t a, b, c;

	start(&f, 4 * GIB);
	a = fixture_alloc(&f, 512);
	b = fixture_alloc(&f, 4 * MIB);
	c = fixture_alloc(&f, 1 * MIB);
	assert_int_equal(fixture_sums(&f).ranges, 2);
	assert_int_equal(c, a + 512);
	fixture_alloc(&f, 1 * MIB); /* across two handles */
	assert_int_equal(held(&f), 8 * MIB);
	assert_int_equal(extents(&f), 2);
	assert_true(b > a + GIB);
	fixture_stop(&f);
}

static void
test_large_handles_where_much_is_in_use(void **state)
{
	struct fixture f;
	uint64_t before;

	start(&f, 4 * GIB);
	fixture_alloc(&f, 514 * MIB);
	before = called(&f, CA_MODEL_RANGE_MAP);
	assert_int_equal(before, 257);
	fixture_alloc(&f, 100 * MIB); /* 6, 4 times 20, 14 */
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP) - before, 6);
	fixture_stop(&f);
}

/* [a][b][c] of 10 MiB each; what b leaves goes back, and the extent is cut in two. */
static void
cut_in_two(struct fixture *f, uint64_t at[3])
{
	unsigned i;

	for (i = 0; i < 3; i++)
		at[i] = fixture_alloc(f, 10 * MIB);
	fixture_free(f, at[1]);
	assert_int_equal(ca_trim(f->heap, 0), 10 * MIB);
	fixture_check(f);
	assert_int_equal(held(f), 20 * MIB);
	assert_int_equal(extents(f), 2);
}

static void
test_a_trim_cuts_free_handles_out(void **state)
{
	struct fixture f;
	uint64_t at[3];
	struct ca_block_info info;

	start(&f, 4 * GIB);
	cut_in_two(&f, at);
	assert_int_equal(called(&f, CA_MODEL_RANGE_UNMAP), 5);
	assert_int_equal(ca_lookup(f.heap, at[1], &info), -ENOENT);
	assert_int_equal(ca_lookup(f.heap, at[2] + MIB, &info), 0);
	assert_int_equal(info.address, at[2]);
	assert_false(info.whole_segment);
	fixture_free(&f, at[2]);
	fixture_free(&f, at[0]);
	assert_int_equal(ca_trim(f.heap, 0), 20 * MIB);
	assert_int_equal(held(&f), 0);
	assert_int_equal(extents(&f), 0);
	fixture_stop(&f);
}

static void
test_a_hole_is_filled_and_the_extents_are_one_again(void **state)
{
	struct fixture f;
	uint64_t at[3];

	start(&f, 4 * GIB);
	cut_in_two(&f, at);
	assert_int_equal(fixture_alloc(&f, 9 * MIB), at[1]);
	assert_int_equal(extents(&f), 1);
	assert_int_equal(held(&f), 30 * MIB);
	fixture_stop(&f);
}

static void
test_it_grows_downward_and_over_a_whole_hole(void **state)
{
	struct fixture f;
	uint64_t at[3], d;

	start(&f, 4 * GIB);
	cut_in_two(&f, at);
	d = fixture_alloc(&f, 30 * MIB); /* behind the third */
	fixture_free(&f, at[2]);         /* free, above the hole */
	assert_int_equal(fixture_alloc(&f, 14 * MIB), at[2] - 4 * MIB);
	assert_int_equal(held(&f), 54 * MIB);
	fixture_free(&f, at[0]); /* 10 free, a hole of 6, and then the block */
	assert_int_equal(fixture_alloc(&f, 16 * MIB), at[0]);
	assert_int_equal(held(&f), 60 * MIB);
	assert_int_equal(extents(&f), 1);
	fixture_free(&f, d);
	fixture_stop(&f);
}

/* Only whole handles go back: of what a program above 512 MiB took, those of 20 MiB. */
static void
test_a_handle_goes_back_as_a_whole(void **state)
{
	struct fixture f;
	uint64_t a, b;

	start(&f, 4 * GIB);
	fixture_alloc(&f, 520 * MIB); /* the next begins on a multiple of 20 MiB */
	a = fixture_alloc(&f, 30 * MIB);
	fixture_alloc(&f, 10 * MIB);
	fixture_free(&f, a);
	assert_int_equal(ca_trim(f.heap, 0), 30 * MIB); /* 20, and 10 */
	fixture_check(&f);
	a = fixture_alloc(&f, 18 * MIB);
	b = fixture_alloc(&f, 1536 * KIB); /* 2 of 12 are left, in the handle of 10 */
	fixture_check(&f);
	fixture_free(&f, a);
	assert_true(ca_trim(f.heap, 0) <= 18 * MIB);
	fixture_check(&f);
	assert_int_equal(fixture_sums(&f).errors, 0);
	(void)b;
	fixture_stop(&f);
}

/* Memory that work holds stays mapped, and no unmapping waits for the work; it goes back when that
 * has finished. */
static void
test_unfinished_memory_is_never_unmapped(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t work, a;
	bool is_back, finished;

	fixture_defaults(f);
	f->config.expandable_segments = true;
	f->pretend.work_ns = 1000; /* then it ends */
	scene_start(&scene, 2);
	a = fixture_alloc(f, 10 * MIB);
	work = launch(&scene, S);
	launch(&scene, R);
	fixture_free(f, a);
	ca_auto_trim(f->space, true);
	assert_int_equal(held(f), 10 * MIB);
	ca_trim(f->heap, 0);
	is_back = !held(f);
	finished = ca_model_stream_finished(f->model, (void *)(uintptr_t)S) >= work;
	assert_true(!is_back || finished);
	finish(&scene, S);
	finish(&scene, R);
	ca_trim(f->heap, 0);
	assert_int_equal(held(f), 0);
	fixture_stop(f);
}

static void
test_the_end_of_memory_gives_handles_back_to_others(void **state)
{
	struct fixture f;
	uint64_t at[6], a;
	unsigned i;

	start(&f, 64 * MIB);
	for (i = 0; i < 6; i++)
		at[i] = fixture_alloc(&f, 10 * MIB);
	for (i = 0; i < 6; i += 2)
		fixture_free(&f, at[i]);
	a = fixture_alloc(&f, 34 * MIB); /* of 30 in three pieces, and 4 */
	assert_int_equal(held(&f), 64 * MIB);
	assert_true(fixture_sums(&f).peak_bytes <= 64 * MIB);
	fixture_free(&f, a);
	fixture_stop(&f);
}

static void
test_limits_count_mapped_bytes(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	f.config.expandable_segments = true;
	f.config.limit.bytes = 40 * MIB;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	a = fixture_alloc(&f, 30 * MIB);
	assert_int_equal(ca_alloc(f.space, 12 * MIB, &b), CA_DRIVER_OUT_OF_MEMORY);
	fixture_check(&f);
	b = fixture_alloc(&f, 10 * MIB);
	fixture_free(&f, a);
	assert_int_equal(ca_drainable_bytes(f.space), 30 * MIB);
	fixture_free(&f, b);
	fixture_stop(&f);
}

static void
test_the_end_of_the_context_gives_all_back(void **state)
{
	struct fixture f;

	start(&f, 4 * GIB);
	fixture_alloc(&f, 30 * MIB);
	fixture_alloc(&f, 512);
	ca_space_kill(f.space);
	fixture_check(&f);
	assert_int_equal(held(&f), 0);
	assert_int_equal(fixture_sums(&f).ranges, 0);
	fixture_stop(&f);
}

static void
test_without_addresses_there_are_segments(void **state)
{
	struct fixture f;

	fixture_defaults(&f);
	f.config.expandable_segments = true;
	f.pretend.no_ranges = true;
	fixture_start(&f);
	fixture_alloc(&f, 3 * MIB);
	fixture_alloc(&f, 30 * MIB);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 2);
	assert_int_equal(called(&f, CA_MODEL_RANGE_RESERVE), 1);
	fixture_stop(&f);
}

/* A segment instead, and the next request is served by mapping again. */
static void
test_a_failure_to_map_passes(void **state)
{
	struct fixture f;

	start(&f, 4 * GIB);
	fixture_alloc(&f, 10 * MIB);
	ca_model_fail(f.model, CA_MODEL_RANGE_MAP, 3, false, 1);
	fixture_alloc(&f, 30 * MIB);
	assert_true(ca_model_failed(f.model));
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	assert_int_equal(held(&f), 40 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_UNMAP), 2);
	fixture_alloc(&f, 40 * MIB);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	fixture_stop(&f);
}

/* Requests that each need new memory. */
static void
many(struct fixture *f)
{
	unsigned i;

	for (i = 0; i < 100; i++)
		fixture_alloc(f, 12 * MIB);
}

/* The driver is asked more and more seldom, and no more at all once it has said that this is of no
 * use. */
static void
test_failures_that_do_not_pass_cost_little(void **state)
{
	static const enum ca_model_function functions[] = { CA_MODEL_RANGE_RESERVE,
							    CA_MODEL_RANGE_MAP };
	static const int codes[] = { 1, 999, CA_DRIVER_OUT_OF_MEMORY, -ENOTSUP };
	unsigned i, code;

	for (i = 0; i < 2; i++)
		for (code = 0; code < 4; code++) {
			struct fixture f;

			if (functions[i] == CA_MODEL_RANGE_MAP &&
			    codes[code] == CA_DRIVER_OUT_OF_MEMORY)
				continue; /* memory is given back for that */
			start(&f, 4 * GIB);
			ca_model_fail(f.model, functions[i], 1, true, codes[code]);
			many(&f);
			assert_int_equal(called(&f, CA_MODEL_TAKE), 100);
			assert_true(called(&f, functions[i]) <= (codes[code] == -ENOTSUP ? 1 : 8));
			fixture_check(&f);
			fixture_stop(&f);
		}
}

/* The trial may have found no memory: later there may be some. */
static void
test_addresses_are_asked_for_again(void **state)
{
	struct fixture f;

	start(&f, 4 * GIB);
	ca_model_fail(f.model, CA_MODEL_RANGE_RESERVE, 1, false, CA_DRIVER_OUT_OF_MEMORY);
	fixture_alloc(&f, 12 * MIB);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	fixture_alloc(&f, 12 * MIB);
	fixture_alloc(&f, 12 * MIB);
	assert_true(called(&f, CA_MODEL_RANGE_MAP) > 0);
	fixture_stop(&f);
}

static void
test_a_failure_to_unmap_leaves_memory_usable(void **state)
{
	struct fixture f;
	uint64_t at[3];
	unsigned nth;

	for (nth = 1; nth <= 5; nth++) {
		start(&f, 4 * GIB);
		at[0] = fixture_alloc(&f, 10 * MIB);
		at[1] = fixture_alloc(&f, 10 * MIB);
		at[2] = fixture_alloc(&f, 10 * MIB);
		fixture_free(&f, at[1]);
		ca_model_fail(f.model, CA_MODEL_RANGE_UNMAP, nth, false, 999);
		ca_trim(f.heap, 0);
		fixture_check(&f);
		assert_true(ca_model_failed(f.model));
		assert_int_equal(held(&f), 30 * MIB - 2 * MIB * (nth - 1));
		assert_int_equal(fixture_alloc(&f, 10 * MIB), at[1]);
		fixture_free(&f, at[1]);
		ca_trim(f.heap, 0);
		assert_int_equal(held(&f), 20 * MIB);
		fixture_stop(&f);
	}
}

/* No reuse of it, and it goes back when its last block does. */
static void
test_a_retired_extent(void **state)
{
	struct fixture f;
	uint64_t a, b;

	start(&f, 4 * GIB);
	a = fixture_alloc(&f, 10 * MIB);
	b = fixture_alloc(&f, 10 * MIB);
	assert_int_equal(ca_retire(f.heap, a), 0);
	fixture_free(&f, a);
	assert_true(fixture_alloc(&f, 10 * MIB) >= b + 10 * MIB); /* touches, and is apart */
	fixture_free(&f, b);
	ca_trim(f.heap, 0);
	assert_int_equal(held(&f), 10 * MIB);
	fixture_stop(&f);
}

/* To unmap waits for nothing, so it is due until the work has finished. */
static void
test_a_retired_extent_in_use(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t a, work;

	fixture_defaults(f);
	f->config.expandable_segments = true;
	scene_start(&scene, 1);
	a = fixture_alloc(f, 10 * MIB);
	work = launch(&scene, S);
	assert_int_equal(ca_retire(f->heap, a), 0);
	fixture_free(f, a);
	assert_true(held(f) == 10 * MIB ||
		    ca_model_stream_finished(f->model, (void *)(uintptr_t)S) >= work);
	finish(&scene, S);
	ca_trim(f->heap, 0);
	assert_int_equal(held(f), 0);
	fixture_stop(f);
}

/* It is due while a block of it waits for a mark; what another context keeps goes back meanwhile.
 */
static void
test_a_retired_extent_that_waits_is_in_nobodys_way(void **state)
{
	struct fixture f;
	struct ca_space *other;
	uint64_t a, b, c;

	start(&f, 40 * MIB);
	assert_int_equal(ca_space_create(f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_alloc(other, 12 * MIB, &c), 0);
	fixture_free(&f, c);
	a = fixture_alloc(&f, 10 * MIB);
	b = fixture_alloc(&f, 10 * MIB);
	ca_model_submit(f.model);
	ca_submit_foreign(f.space, NULL);
	ca_model_fail(f.model, CA_MODEL_RECORD, 1, true, -EBUSY);
	fixture_free(&f, b);
	assert_int_equal(ca_retire(f.heap, a), 0);
	fixture_free(&f, a);
	assert_int_equal(held(&f), 32 * MIB);
	fixture_alloc(&f, 16 * MIB);
	ca_model_fail(f.model, CA_MODEL_RECORD, 0, false, 0);
	fixture_stop(&f);
}

static void
test_captures_have_segments_of_their_own(void **state)
{
	struct fixture f;
	uint64_t a;

	start(&f, 4 * GIB);
	a = fixture_alloc(&f, 10 * MIB);
	fixture_free(&f, a);
	ca_model_set_capturing_relaxed(f.model);
	assert_int_not_equal(fixture_alloc(&f, 10 * MIB), a);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	ca_model_set_capturing(f.model, false);
	fixture_stop(&f);
}

enum { SLOTS = 64, STEPS = 20000 };

/* Sizes of all kinds, trims, failures: the walk after each step looks at all. */
static void
random_run(uint64_t seed, uint64_t capacity)
{
	struct fixture f;
	uint64_t at[SLOTS] = { 0 };
	unsigned i;

	start(&f, capacity);
	for (i = 0; i < STEPS; i++) {
		unsigned slot = (unsigned)(fixture_random(&seed) % SLOTS);
		uint64_t kind = fixture_random(&seed) % 8, size = fixture_random(&seed);

		size = 1 + (kind == 0  ? size % (100 * MIB)
			    : kind < 4 ? size % (12 * MIB)
				       : size % (2 * MIB));
		if (fixture_random(&seed) % 40 == 0)
			ca_model_fail(f.model,
				      fixture_random(&seed) % 2 ? CA_MODEL_RANGE_UNMAP
								: CA_MODEL_RANGE_MAP,
				      1 + fixture_random(&seed) % 4, false,
				      CA_DRIVER_OUT_OF_MEMORY);
		if (at[slot]) {
			assert_int_equal(ca_free(f.heap, at[slot]), 0);
			at[slot] = 0;
		} else if (ca_alloc(f.space, size, &at[slot])) {
			at[slot] = 0;
		}
		if (fixture_random(&seed) % 200 == 0)
			ca_trim(f.heap, fixture_random(&seed) % (64 * MIB));
		if (i % 16 == 0)
			fixture_check(&f);
	}
	for (i = 0; i < SLOTS; i++)
		if (at[i])
			assert_int_equal(ca_free(f.heap, at[i]), 0);
	ca_model_fail(f.model, CA_MODEL_RANGE_MAP, 0, false, 0);
	ca_trim(f.heap, 0);
	fixture_check(&f);
	assert_int_equal(held(&f), 0);
	assert_int_equal(extents(&f), 0);
	fixture_stop(&f);
}

static void
test_random(void **state)
{
	uint64_t seed = fixture_seed(20261126);

	random_run(seed, 4 * GIB);
	random_run(seed + 1, 200 * MIB);
}

/* A segment of a capture that may not be cut fits the request best, and would hide what has grown.
 */
static void
test_what_has_grown_is_found_beside_a_block_that_may_not_be_cut(void **state)
{
	struct fixture f;
	uint64_t whole, a;

	fixture_defaults(&f);
	f.config.expandable_segments = true;
	f.config.max_split_size_bytes = 24 * MIB;
	f.config.give_back_oom = true;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	ca_model_set_capturing_relaxed(f.model);
	whole = fixture_alloc(&f, 30 * MIB);
	ca_model_set_capturing(f.model, false);
	fixture_free(&f, whole);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	a = fixture_alloc(&f, 10 * MIB);
	assert_int_equal(called(&f, CA_MODEL_TAKE), 1);
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP), 5);
	fixture_free(&f, a);
	fixture_free(&f, fixture_alloc(&f, 60 * MIB));
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP), 30);
	(void)fixture_alloc(&f, 10 * MIB); /* 30 MiB would fit better than 60 */
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP), 30);
	fixture_check(&f);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_off_by_default),
		cmocka_unit_test(test_an_extent_grows_by_just_what_a_request_lacks),
		cmocka_unit_test(test_what_has_grown_is_found_beside_a_block_that_may_not_be_cut),
		cmocka_unit_test(test_small_and_large_have_areas_of_their_own),
		cmocka_unit_test(test_large_handles_where_much_is_in_use),
		cmocka_unit_test(test_a_trim_cuts_free_handles_out),
		cmocka_unit_test(test_a_hole_is_filled_and_the_extents_are_one_again),
		cmocka_unit_test(test_it_grows_downward_and_over_a_whole_hole),
		cmocka_unit_test(test_a_handle_goes_back_as_a_whole),
		cmocka_unit_test(test_unfinished_memory_is_never_unmapped),
		cmocka_unit_test(test_the_end_of_memory_gives_handles_back_to_others),
		cmocka_unit_test(test_limits_count_mapped_bytes),
		cmocka_unit_test(test_the_end_of_the_context_gives_all_back),
		cmocka_unit_test(test_without_addresses_there_are_segments),
		cmocka_unit_test(test_a_failure_to_map_passes),
		cmocka_unit_test(test_failures_that_do_not_pass_cost_little),
		cmocka_unit_test(test_addresses_are_asked_for_again),
		cmocka_unit_test(test_a_failure_to_unmap_leaves_memory_usable),
		cmocka_unit_test(test_a_retired_extent),
		cmocka_unit_test(test_a_retired_extent_in_use),
		cmocka_unit_test(test_a_retired_extent_that_waits_is_in_nobodys_way),
		cmocka_unit_test(test_captures_have_segments_of_their_own),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
