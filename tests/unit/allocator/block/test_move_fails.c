/* SPDX-License-Identifier: MIT */
/* Memory that moves, and driver calls that fail, or a limit leaves no room; and the context ends
 * meanwhile. */
#include "tests/unit/allocator/block/moves.h"

#include <errno.h>

#include "allocator/api/oom_report.h"

/* Nothing is lost, and nothing is mapped in the end. */
static void
test_each_call_of_a_move_fails_in_turn(void **state)
{
	static const enum ca_model_function functions[] = { CA_MODEL_RANGE_ALIAS,
							    CA_MODEL_RANGE_UNMAP,
							    CA_MODEL_RANGE_MAP };
	static const int codes[] = { 999, CA_DRIVER_OUT_OF_MEMORY, -EBUSY };
	unsigned i, code, nth;

	for (i = 0; i < 3; i++)
		for (code = 0; code < 3; code++)
			for (nth = 1; nth <= 12; nth++) {
				struct fixture f;
				uint64_t at[4], x;

				if (functions[i] == CA_MODEL_RANGE_MAP && codes[code] == -EBUSY)
					continue;
				moves_start(&f, 0);
				two_holes(&f, at);
				ca_model_fail(f.model, functions[i], nth, false, codes[code]);
				x = fixture_alloc(&f, 24 * MIB);
				fixture_free(&f, x);
				fixture_free(&f, at[1]);
				fixture_free(&f, at[3]);
				ca_trim(f.heap, 0);
				ca_trim(f.heap, 0);
				fixture_check(&f);
				ca_space_kill(f.space);
				assert_int_equal(held(&f), 0);
				fixture_stop(&f);
			}
}

/* The driver unmaps nothing where memory was moved from. */
static void
stick(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;

	if (function == CA_MODEL_RANGE_UNMAP && !end)
		ca_model_fail(f->model, function, f->space->is_leaving, false, 999);
}

/* Memory that is mapped at its old place still has not gone back, wherever else it was unmapped. */
static void
test_what_is_not_unmapped_where_it_was_stays_reserved(void **state)
{
	struct fixture f;
	uint64_t at[4], x;

	moves_start(&f, 0);
	two_holes(&f, at);
	ca_model_set_observer(f.model, stick, &f);
	x = fixture_alloc(&f, 20 * MIB);
	fixture_free(&f, x);
	ca_trim(f.heap, 0);
	assert_int_equal(held(&f), 40 * MIB);
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, held(&f));
	ca_model_set_observer(f.model, NULL, NULL);
	ca_model_fail(f.model, CA_MODEL_RANGE_UNMAP, 0, false, 0);
	ca_trim(f.heap, 0);
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, held(&f));
	assert_int_equal(held(&f), 20 * MIB);
	fixture_check(&f);
	fixture_stop(&f);
}

/* The next one moves again. */
static void
test_a_failure_to_move_passes(void **state)
{
	struct fixture f;
	uint64_t at[4], x;

	moves_start(&f, 0);
	two_holes(&f, at);
	ca_model_fail(f.model, CA_MODEL_RANGE_ALIAS, 1, false, 999);
	x = fixture_alloc(&f, 20 * MIB);
	assert_true(ca_model_failed(f.model));
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 1);
	assert_int_equal(held(&f), 60 * MIB);
	fixture_free(&f, x);
	ca_trim(f.heap, 0);
	fixture_free(&f, fixture_alloc(&f, 40 * MIB));
	ca_trim(f.heap, 0);
	two_holes(&f, at);
	two_holes(&f, at);
	fixture_alloc(&f, 42 * MIB);
	assert_true(called(&f, CA_MODEL_RANGE_ALIAS) > 1);
	fixture_stop(&f);
}

static void
test_the_context_ends_while_addresses_are_left(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[4];
	unsigned i;

	moves_defaults(f, 0);
	scene_start(&scene, 1);
	for (i = 0; i < 4; i++)
		at[i] = fixture_alloc(f, 10 * MIB);
	launch(&scene, S);
	fixture_free(f, at[0]);
	fixture_free(f, at[2]);
	fixture_alloc(f, 20 * MIB);
	ca_space_kill(f->space);
	fixture_check(f);
	assert_int_equal(held(f), 0);
	assert_int_equal(fixture_sums(f).ranges, 0);
	fixture_stop(f);
}

static struct fixture *dying;
static unsigned die_at;
static enum ca_model_function die_in;

static bool die_fails; /* and so does the call */

static void
die(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = dying;

	if (function != die_in || end || --die_at)
		return;
	ca_model_set_observer(f->model, NULL, NULL);
	ca_model_context_destroy(f->model, (void *)1);
	ca_space_kill(f->space);
	if (die_fails)
		ca_model_fail(f->model, function, 1, false, 999);
}

static void
die_before(struct fixture *f, enum ca_model_function function, unsigned nth)
{
	dying = f;
	die_in = function;
	die_at = nth;
	ca_model_set_observer(f->model, die, NULL);
}

static void
test_the_context_ends_in_a_move(void **state)
{
	unsigned nth;

	for (nth = 1; nth <= 10; nth++) {
		struct fixture f;
		uint64_t at[4], x;

		moves_start(&f, 0);
		two_holes(&f, at);
		die_before(&f, CA_MODEL_RANGE_ALIAS, nth);
		assert_int_equal(ca_alloc(f.space, 20 * MIB, &x), -ENODEV);
		fixture_check(&f);
		assert_int_equal(held(&f), 0);
		fixture_stop(&f);
	}
}

/* Handles that are too large to move are in one thread's hand when another ends the context. */
static void
test_the_context_ends_while_memory_goes(void **state)
{
	bool dead = true;
	unsigned nth;

	for (nth = 1; dead; nth++) {
		struct scene scene;
		struct fixture *f = &scene.f;
		uint64_t big, low, gap, high;

		moves_defaults(f, 0);
		scene_start(&scene, 1);
		fixture_alloc(f, 600 * MIB);
		low = fixture_alloc(f, 30 * MIB);
		gap = fixture_alloc(f, 6 * MIB);
		high = fixture_alloc(f, 30 * MIB);
		fixture_alloc(f, 14 * MIB);
		fixture_free(f, gap);
		ca_trim(f->heap, 0);
		big = fixture_alloc(f, 60 * MIB);
		fixture_alloc(f, 8 * MIB);
		launch(&scene, S);
		fixture_free(f, low);
		fixture_free(f, high);
		fixture_free(f, big);
		fixture_alloc(f, 66 * MIB);
		assert_true(f->space->leaving_bytes > 0);
		finish(&scene, S);
		die_before(f, CA_MODEL_RANGE_UNMAP, nth);
		ca_trim(f->heap, 0);
		dead = f->space->dead;
		fixture_check(f);
		assert_true(!dead || !held(f));
		fixture_stop(f);
	}
	assert_true(nth > 2);
}

/* A thread whose unmapping fails while another ends the context is the only one that knows of the
 * memory. */
static void
test_an_unmapping_that_fails_as_the_context_ends_is_tried_again(void **state)
{
	bool dead = true;
	unsigned nth, way;

	die_fails = true;
	for (way = 0; way < 3; way++)
		for (nth = 1, dead = true; dead; nth++) {
			struct fixture f;
			uint64_t at[4], x;

			moves_start(&f, 0);
			two_holes(&f, at);
			if (way == 2) /* so that what is there already is unmapped */
				ca_model_fail(f.model, CA_MODEL_RANGE_MAP, 3, false, 999);
			die_before(&f, CA_MODEL_RANGE_UNMAP, nth);
			if (way == 0)
				ca_trim(f.heap, 0);
			else
				(void)ca_alloc(f.space, way == 1 ? 20 * MIB : 28 * MIB, &x);
			dead = f.space->dead;
			fixture_check(&f);
			assert_true(!dead || !held(&f));
			fixture_stop(&f);
		}
	die_fails = false;
}

/* Addresses are not given back while the driver keeps memory mapped there. */
static void
test_what_is_not_unmapped_keeps_its_addresses(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_start(&f, 0);
	two_holes(&f, at);
	ca_model_fail(f.model, CA_MODEL_RANGE_UNMAP, 1, true, 999);
	ca_space_kill(f.space);
	assert_int_equal(fixture_sums(&f).errors, 0);
	assert_int_equal(fixture_sums(&f).ranges, 1);
	fixture_stop(&f);
}

/* Registered memory of small requests gives way for what large ones are to move to. */
static void
test_the_context_ends_while_the_other_area_goes(void **state)
{
	struct fixture f;
	uint64_t small, large, x, maps;

	moves_start(&f, 0);
	small = fixture_alloc(&f, 1 * MIB);
	assert_int_equal(ca_register(f.heap, small, 1 * MIB), 0);
	large = fixture_alloc(&f, 2 * MIB);
	fixture_alloc(&f, 40 * MIB);
	fixture_free(&f, small);
	fixture_free(&f, large);
	maps = called(&f, CA_MODEL_RANGE_MAP) + called(&f, CA_MODEL_RANGE_ALIAS);
	die_before(&f, CA_MODEL_RANGE_UNMAP, 1);
	assert_int_equal(ca_alloc(f.space, 8 * MIB, &x), -ENODEV);
	fixture_check(&f);
	assert_int_equal(held(&f), 0);
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP) + called(&f, CA_MODEL_RANGE_ALIAS), maps);
	assert_int_equal(f.space->device->taking_bytes, 0);
	fixture_stop(&f);
}

static uint64_t forgotten[4];

static void
see_nothing(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;
	struct ca_block_info info;
	unsigned i;

	if (function != CA_MODEL_RANGE_UNMAP)
		return;
	assert_true(ca_list_empty(&f->space->segments));
	for (i = 0; i < 4; i++)
		assert_true(ca_lookup(f->heap, forgotten[i], &info) || !info.live);
	assert_int_equal(fixture_stats(f).reserved_bytes.current, 0);
}

/* A thread that sees that the space is dead counts on it that its blocks are in no list any more,
 * among them one of its own stack's. */
static void
test_a_dead_space_has_no_blocks(void **state)
{
	struct fixture f;
	unsigned i;

	moves_start(&f, 0);
	for (i = 0; i < 4; i++) {
		if (i == 3) /* a segment */
			ca_model_set_capturing_relaxed(f.model);
		forgotten[i] = fixture_alloc(&f, i < 2 ? 64 * KIB : 3 * MIB);
	}
	ca_model_set_capturing(f.model, false);
	fixture_free(&f, forgotten[1]);
	ca_model_set_observer(f.model, see_nothing, &f);
	ca_model_context_destroy(f.model, (void *)1);
	ca_space_kill(f.space);
	fixture_check(&f);
	assert_int_equal(held(&f), 0);
	assert_int_equal(fixture_sums(&f).ranges, 0);
	fixture_stop(&f);
}

/* Memory that was to move, and is put back since a limit leaves no room, is no news: the one stream
 * of a quiet space is asked, and what it used goes back. */
static void
test_what_moves_in_vain_is_no_change(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	struct ca_report report;
	uint64_t a, gap, x;

	moves_defaults(f, 1000);
	f->config.limit.bytes = 40 * MIB;
	scene_start(&scene, 1);
	a = fixture_alloc(f, 10 * MIB);
	fixture_alloc(f, 10 * MIB - 512 * KIB);
	gap = fixture_alloc(f, MIB + 512 * KIB);
	fixture_alloc(f, 9 * MIB);
	fixture_free(f, gap);
	launch(&scene, S);
	assert_int_equal(ca_free_async(f->heap, a, scene.s), 0);
	finish(&scene, S);
	assert_int_equal(held(f), 30 * MIB);
	assert_int_equal(ca_alloc(f->space, 21 * MIB, &x), CA_DRIVER_OUT_OF_MEMORY);
	ca_report_fill(f->space, 21 * MIB, &report);
	assert_true(report.tried.attempts < 10);
	assert_int_equal(held(f), 20 * MIB);
	fixture_check(f);
	ca_order_last_stream = NULL;
	fixture_stop(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_call_of_a_move_fails_in_turn),
		cmocka_unit_test(test_what_is_not_unmapped_where_it_was_stays_reserved),
		cmocka_unit_test(test_a_failure_to_move_passes),
		cmocka_unit_test(test_what_moves_in_vain_is_no_change),
		cmocka_unit_test(test_the_context_ends_while_addresses_are_left),
		cmocka_unit_test(test_the_context_ends_in_a_move),
		cmocka_unit_test(test_the_context_ends_while_memory_goes),
		cmocka_unit_test(test_an_unmapping_that_fails_as_the_context_ends_is_tried_again),
		cmocka_unit_test(test_what_is_not_unmapped_keeps_its_addresses),
		cmocka_unit_test(test_the_context_ends_while_the_other_area_goes),
		cmocka_unit_test(test_a_dead_space_has_no_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
