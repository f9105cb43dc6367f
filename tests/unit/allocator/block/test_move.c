/* SPDX-License-Identifier: MIT */
/* allocator/block/extent_move.c, allocator/policy/move.c: free memory moves to where it is needed.
 */
#include "tests/unit/allocator/block/moves.h"

static void
test_two_holes_serve_one_request(void **state)
{
	struct fixture f;
	uint64_t at[4], maps, x;

	moves_start(&f, 0);
	two_holes(&f, at);
	maps = called(&f, CA_MODEL_RANGE_MAP);
	x = fixture_alloc(&f, 20 * MIB);
	assert_int_equal(held(&f), 40 * MIB);
	assert_int_equal(fixture_sums(&f).peak_bytes, 40 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_MAP), maps);
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 10);
	assert_int_equal(called(&f, CA_MODEL_RANGE_UNMAP), 10);
	assert_false(is_mapped(&f, at[0]));
	assert_false(is_mapped(&f, at[2]));
	assert_int_equal(fixture_stats(&f).reserved_bytes.total, 40 * MIB);
	fixture_free(&f, x);
	fixture_free(&f, at[1]);
	fixture_free(&f, at[3]);
	ca_trim(f.heap, 0);
	fixture_check(&f);
	assert_int_equal(held(&f), 0);
	fixture_stop(&f);
}

static void
test_below_the_slack_the_cache_grows(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_start(&f, 51);
	two_holes(&f, at);
	fixture_alloc(&f, 20 * MIB); /* 60 of 40 and a half */
	assert_int_equal(held(&f), 60 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 0);
	fixture_stop(&f);
}

static void
test_with_give_back_oom_nothing_moves(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_defaults(&f, 0);
	f.config.give_back_oom = true;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	two_holes(&f, at);
	fixture_alloc(&f, 20 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 0);
	assert_int_equal(held(&f), 60 * MIB);
	fixture_stop(&f);
}

static void
test_without_aliases_the_cache_grows(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_defaults(&f, 0);
	f.pretend.no_aliases = true;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	two_holes(&f, at);
	fixture_alloc(&f, 20 * MIB);
	fixture_stop(&f);
}

/* It moves with its user: the old addresses stay mapped until that has finished, and the host waits
 * for nothing. */
static void
test_unfinished_memory_of_the_stream_moves(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[4], x, y, work;
	unsigned i;

	moves_defaults(f, 0);
	scene_start(&scene, 1);
	for (i = 0; i < 4; i++)
		at[i] = fixture_alloc(f, 10 * MIB);
	work = launch(&scene, S);
	fixture_free(f, at[0]);
	fixture_free(f, at[2]);
	x = fixture_alloc(f, 20 * MIB);
	assert_true(ca_model_stream_finished(f->model, (void *)(uintptr_t)S) < work);
	assert_int_equal(called(f, CA_MODEL_RANGE_ALIAS), 10);
	assert_int_equal(called(f, CA_MODEL_RANGE_UNMAP), 0);
	assert_int_equal(held(f), 40 * MIB);
	finish(&scene, S);
	y = fixture_alloc(f, 4 * MIB);
	ca_trim(f->heap, 0);
	assert_int_equal(called(f, CA_MODEL_RANGE_UNMAP), 10);
	fixture_check(f);
	fixture_free(f, x);
	fixture_free(f, y);
	fixture_stop(f);
}

/* Beyond the slack others' memory moves, too, with its user: the stream that gets it comes after.
 */
static void
test_unfinished_memory_of_another_stream_moves(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[4], work;
	unsigned i;

	moves_defaults(f, 0);
	scene_start(&scene, 2);
	launch(&scene, S);
	launch(&scene, R);
	finish(&scene, S);
	finish(&scene, R);
	for (i = 0; i < 4; i++)
		at[i] = fixture_alloc(f, 30 * MIB);
	work = launch(&scene, S);
	fixture_free(f, at[0]);
	fixture_free(f, at[2]);
	ca_order_last_stream = scene.r;
	fixture_alloc(f, 60 * MIB);
	assert_int_equal(called(f, CA_MODEL_RANGE_ALIAS), 30);
	assert_int_equal(called(f, CA_MODEL_RANGE_UNMAP), 0);
	assert_true(ca_model_stream_finished(f->model, (void *)(uintptr_t)S) < work);
	launch(&scene, R);
	assert_true(ca_model_stream_after(f->model, (void *)(uintptr_t)R, (void *)(uintptr_t)S) >=
		    work);
	fixture_check(f);
	ca_order_last_stream = NULL;
	fixture_stop(f);
}

/* Two blocks of S and `rest` are in use, S has those two unfinished, and R wants as much in one:
 * handles that move, behind a wait. */
static uint64_t
moved_for_another(uint64_t each, uint64_t rest)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[2], moved;

	moves_defaults(f, 0);
	scene_start(&scene, 2);
	launch(&scene, S);
	launch(&scene, R);
	finish(&scene, S);
	finish(&scene, R);
	at[0] = fixture_alloc(f, each);
	fixture_alloc(f, rest);
	at[1] = fixture_alloc(f, each);
	fixture_alloc(f, 2 * MIB);
	launch(&scene, S);
	fixture_free(f, at[0]);
	fixture_free(f, at[1]);
	ca_order_last_stream = scene.r;
	fixture_alloc(f, 2 * each);
	moved = called(f, CA_MODEL_RANGE_ALIAS);
	fixture_check(f);
	ca_order_last_stream = NULL;
	fixture_stop(f);
	return moved;
}

static void
test_streams_wait_where_the_cache_outgrows_the_peak_by_a_sixteenth(void **state)
{
	assert_int_equal(moved_for_another(12 * MIB, 294 * MIB), 12); /* 24 of 320 MiB */
	assert_int_equal(moved_for_another(10 * MIB, 298 * MIB), 0);  /* 20 */
	assert_true(moved_for_another(18 * MIB, 590 * MIB));          /* 36 of 628, above 32 */
	/* 64 MiB in all they may have each for itself */
	assert_int_equal(moved_for_another(14 * MIB, 4 * MIB), 0);  /* 28 beside 34 */
	assert_int_equal(moved_for_another(16 * MIB, 4 * MIB), 16); /* 32 beside 38 */
}

/* New handles of 200 MiB beside 100 that move, while `live` and 100 MiB more are in use. */
static uint64_t
mapped_beside_a_move(uint64_t live, uint64_t capacity)
{
	struct fixture f;
	uint64_t x, maps;

	moves_defaults(&f, 0);
	f.pretend.finish_at_once = true;
	f.pretend.capacity = capacity;
	fixture_start(&f);
	fixture_alloc(&f, live);
	x = fixture_alloc(&f, 100 * MIB);
	fixture_alloc(&f, 100 * MIB);
	fixture_free(&f, x);
	maps = called(&f, CA_MODEL_RANGE_MAP);
	fixture_alloc(&f, 300 * MIB);
	maps = called(&f, CA_MODEL_RANGE_MAP) - maps;
	assert_int_equal(held(&f), live + 400 * MIB);
	fixture_stop(&f);
	return maps;
}

static void
test_what_moves_cannot_serve_has_short_handles_in_small_programs(void **state)
{
	assert_int_equal(mapped_beside_a_move(4000 * MIB, 64 * GIB), 50);
	assert_int_equal(mapped_beside_a_move(9000 * MIB, 64 * GIB), 10);
	assert_int_equal(mapped_beside_a_move(9000 * MIB, 16 * GIB), 50);
}

/* Its old place is left when its users have finished, whatever else goes on: its memory may go back
 * from the new place then. */
static void
test_memory_of_several_streams_is_left_with_its_users(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	struct ca_stream *third;
	uint64_t at[4], x;
	unsigned i;

	moves_defaults(f, 0);
	f->config.max_cached_bytes = 0;
	scene_start(&scene, 2);
	third = open_stream(f, 0x53);
	ca_stream_note_thread(third);
	ca_submit_begin(third, NULL);
	ca_model_stream_submit(f->model, (void *)(uintptr_t)0x53);
	ca_submit_end(third); /* and goes on */
	for (i = 0; i < 4; i++)
		at[i] = fixture_alloc(f, 30 * MIB);
	launch(&scene, S);
	launch(&scene, R);
	fixture_free(f, at[0]);
	fixture_free(f, at[2]);
	ca_order_last_stream = scene.r;
	x = fixture_alloc(f, 60 * MIB);
	assert_int_equal(called(f, CA_MODEL_RANGE_ALIAS), 30);
	assert_int_equal(called(f, CA_MODEL_RANGE_UNMAP), 0);
	fixture_free(f, x);
	finish(&scene, S);
	finish(&scene, R);
	ca_auto_trim(f->space, true);
	fixture_check(f);
	assert_int_equal(held(f), 60 * MIB);
	ca_order_last_stream = NULL;
	fixture_stop(f);
}

static void
test_finished_only_moves_what_has_finished(void **state)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[4];
	unsigned i;

	moves_defaults(f, 0);
	f->config.reuse_finished = true;
	scene_start(&scene, 1);
	for (i = 0; i < 4; i++)
		at[i] = fixture_alloc(f, 10 * MIB);
	launch(&scene, S);
	fixture_free(f, at[0]);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(called(f, CA_MODEL_RANGE_ALIAS), 0);
	finish(&scene, S);
	fixture_free(f, at[2]);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(called(f, CA_MODEL_RANGE_ALIAS), 10);
	fixture_check(f);
	fixture_stop(f);
}

static void
test_registered_memory_stays(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_start(&f, 0);
	two_holes(&f, at);
	assert_int_equal(ca_register(f.heap, at[1], 10 * MIB), 0);
	fixture_alloc(&f, 20 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 0);
	fixture_stop(&f);
}

static void
test_in_a_capture_nothing_moves(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_start(&f, 0);
	two_holes(&f, at);
	ca_model_set_capturing_relaxed(f.model);
	fixture_alloc(&f, 20 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 0);
	ca_model_set_capturing(f.model, false);
	fixture_stop(&f);
}

/* The limit is kept by moving, whatever the slack. */
static void
test_within_a_limit_memory_moves(void **state)
{
	struct fixture f;
	uint64_t at[4], x;

	moves_defaults(&f, 1000);
	f.config.limit.bytes = 40 * MIB;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	two_holes(&f, at);
	fixture_alloc(&f, 20 * MIB);
	assert_int_equal(held(&f), 40 * MIB);
	assert_int_equal(ca_alloc(f.space, 4 * MIB, &x), CA_DRIVER_OUT_OF_MEMORY);
	fixture_check(&f);
	fixture_stop(&f);
}

/* Old addresses that the driver never unmaps: at the end of memory that is no change. */
static void
test_what_is_never_unmapped_is_not_asked_for_ever(void **state)
{
	struct fixture f;
	uint64_t at[4], calls, x;

	moves_defaults(&f, 0);
	f.config.limit.bytes = 40 * MIB;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	two_holes(&f, at);
	ca_model_fail(f.model, CA_MODEL_RANGE_UNMAP, 1, true, 999);
	fixture_alloc(&f, 20 * MIB);
	calls = called(&f, CA_MODEL_RANGE_UNMAP);
	assert_int_equal(ca_alloc(f.space, 4 * MIB, &x), CA_DRIVER_OUT_OF_MEMORY);
	assert_true(called(&f, CA_MODEL_RANGE_UNMAP) - calls < 10);
	fixture_check(&f);
	fixture_stop(&f);
}

static struct ca_space *hungry;

static void
be_hungry(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;
	uint64_t x;

	if (function != CA_MODEL_RANGE_UNMAP || end)
		return;
	ca_model_set_observer(f->model, NULL, NULL);
	assert_int_equal(ca_alloc(hungry, 6 * MIB, &x), 0);
}

/* Another thread asks while a handle of 2 MiB is on its way, and one of 20 gives way. */
static void
test_what_is_on_its_way_is_within_the_limit(void **state)
{
	struct fixture f;
	uint64_t small, big, low, gap, high;

	moves_defaults(&f, 0);
	f.pretend.finish_at_once = true;
	f.config.limit.bytes = 2000 * MIB;
	fixture_start(&f);
	assert_int_equal(ca_space_create(f.heap, (void *)2, 0, &hungry), 0);
	small = fixture_alloc(&f, 2 * MIB);
	fixture_alloc(&f, 600 * MIB);
	low = fixture_alloc(&f, 30 * MIB);
	gap = fixture_alloc(&f, 6 * MIB);
	high = fixture_alloc(&f, 30 * MIB);
	fixture_alloc(&f, 14 * MIB);
	fixture_free(&f, gap);
	ca_trim(f.heap, 0);
	big = fixture_alloc(&f, 60 * MIB);
	fixture_alloc(&f, 8 * MIB);
	fixture_free(&f, small);
	fixture_free(&f, low);
	fixture_free(&f, high);
	fixture_free(&f, big);
	f.heap->config.limit.bytes = held(&f) + 4 * MIB;
	ca_model_set_observer(f.model, be_hungry, &f);
	fixture_alloc(&f, 66 * MIB);
	assert_true(called(&f, CA_MODEL_RANGE_ALIAS) > 0);
	assert_true(hungry->device->stats.allocated_bytes.current == 694 * MIB);
	assert_true(fixture_sums(&f).peak_bytes <= f.heap->config.limit.bytes);
	assert_int_equal(hungry->device->taking_bytes, 0);
	fixture_stop(&f);
}

static void
test_at_the_end_of_memory_it_moves(void **state)
{
	struct fixture f;
	uint64_t at[4];

	moves_defaults(&f, 1000);
	f.pretend.capacity = 40 * MIB;
	f.pretend.finish_at_once = true;
	fixture_start(&f);
	two_holes(&f, at);
	fixture_alloc(&f, 20 * MIB);
	assert_int_equal(held(&f), 40 * MIB);
	assert_int_equal(called(&f, CA_MODEL_RANGE_ALIAS), 10);
	fixture_stop(&f);
}

/* A handle of 20 MiB is too large for a gap of 6: another one goes back for as much new memory. */
static void
test_what_fits_nowhere_goes_back(void **state)
{
	struct fixture f;
	uint64_t big, low, gap, high, peak;

	moves_start(&f, 0);
	fixture_alloc(&f, 600 * MIB);
	low = fixture_alloc(&f, 10 * MIB);
	gap = fixture_alloc(&f, 6 * MIB);
	high = fixture_alloc(&f, 10 * MIB);
	fixture_alloc(&f, 14 * MIB);
	big = fixture_alloc(&f, 100 * MIB);
	fixture_alloc(&f, 2 * MIB);
	fixture_free(&f, gap);
	ca_trim(f.heap, 0);
	fixture_free(&f, low);
	fixture_free(&f, high);
	fixture_free(&f, big);
	peak = held(&f);
	fixture_alloc(&f, 110 * MIB);
	fixture_check(&f);
	assert_true(held(&f) <= peak + 20 * MIB);
	assert_true(fixture_sums(&f).peak_bytes <= 760 * MIB);
	fixture_stop(&f);
}

/* Mapping takes 80 us: more than a twentieth of the time is not spent on moves. */
static void
test_the_gate(void **state)
{
	struct fixture f;
	uint64_t x, aliases, now;
	unsigned i;

	moves_defaults(&f, 0);
	f.pretend.finish_at_once = true;
	f.pretend.map_ns = f.pretend.unmap_ns = 80 * 1000;
	fixture_start(&f);
	for (i = 0; i < 200; i++) {
		uint64_t at[4];

		two_holes(&f, at);
		x = fixture_alloc(&f, 20 * MIB);
		fixture_free(&f, x);
		fixture_free(&f, at[1]);
		fixture_free(&f, at[3]);
		x = fixture_alloc(&f, 40 * MIB);
		fixture_free(&f, x);
	}
	aliases = called(&f, CA_MODEL_RANGE_ALIAS);
	assert_true(aliases < 700); /* 50 ms, and what began below that */
	now = f.driver.clock_ns(f.driver.self);
	ca_model_set_clock(f.model, now + (uint64_t)2 * 1000 * 1000 * 1000);
	for (i = 0; i < 20; i++) {
		uint64_t at[4];

		two_holes(&f, at);
		x = fixture_alloc(&f, 20 * MIB);
		fixture_free(&f, x);
		fixture_free(&f, at[1]);
		fixture_free(&f, at[3]);
		ca_trim(f.heap, 0);
	}
	assert_true(called(&f, CA_MODEL_RANGE_ALIAS) > aliases);
	fixture_stop(&f);
}

enum { SLOTS = 24, STEPS = 4000 };

/* Two streams that lag behind, memory of all sizes: after each step all is looked at. */
static void
random_run(uint64_t seed, uint64_t capacity, unsigned streams)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[SLOTS] = { 0 }, live = 0, peak = 0, size[SLOTS] = { 0 };
	unsigned i, slot;

	moves_defaults(f, 4);
	f->config.reuse_slack_bytes = 0;
	f->pretend.capacity = capacity;
	f->pretend.work_ns = 1000; /* a host that pauses does not sleep */
	scene_start(&scene, streams);
	for (i = 0; i < STEPS; i++) {
		slot = (unsigned)(fixture_random(&seed) % SLOTS);
		if (fixture_random(&seed) % 8 == 0)
			ca_model_stream_finish(
				f->model, (void *)(uintptr_t)(fixture_random(&seed) % 2 ? S : R),
				fixture_random(&seed) % (i + 1));
		launch(&scene, streams > 1 && fixture_random(&seed) % 2 ? R : S);
		if (at[slot]) {
			fixture_free(f, at[slot]);
			live -= size[slot];
			at[slot] = 0;
			continue;
		}
		size[slot] = ((fixture_random(&seed) % 24) + 1) * MIB;
		if (!ca_alloc(f->space, size[slot], &at[slot])) {
			live += size[slot];
			peak = live > peak ? live : peak;
		}
		fixture_check(f);
	}
	assert_true(called(f, CA_MODEL_RANGE_ALIAS) > 20);
	finish(&scene, S);
	if (streams > 1)
		finish(&scene, R);
	for (slot = 0; slot < SLOTS; slot++)
		if (at[slot])
			fixture_free(f, at[slot]);
	finish(&scene, S);
	ca_trim(f->heap, 0);
	ca_trim(f->heap, 0);
	fixture_check(f);
	assert_int_equal(held(f), 0);
	printf("# peak %u MiB in use, %u held, %u maps, %u moves\n", (unsigned)(peak / MIB),
	       (unsigned)(fixture_sums(f).peak_bytes / MIB),
	       (unsigned)called(f, CA_MODEL_RANGE_MAP), (unsigned)called(f, CA_MODEL_RANGE_ALIAS));
	ca_order_last_stream = NULL;
	fixture_stop(f);
}

static void
test_random(void **state)
{
	uint64_t seed = fixture_seed(20261127);

	random_run(seed, 4 * GIB, 1);
	random_run(seed + 1, 4 * GIB, 2);
	random_run(seed + 2, 160 * MIB, 1);
	random_run(seed + 3, 160 * MIB, 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_holes_serve_one_request),
		cmocka_unit_test(test_below_the_slack_the_cache_grows),
		cmocka_unit_test(test_with_give_back_oom_nothing_moves),
		cmocka_unit_test(test_without_aliases_the_cache_grows),
		cmocka_unit_test(test_unfinished_memory_of_the_stream_moves),
		cmocka_unit_test(test_unfinished_memory_of_another_stream_moves),
		cmocka_unit_test(
			test_streams_wait_where_the_cache_outgrows_the_peak_by_a_sixteenth),
		cmocka_unit_test(test_what_moves_cannot_serve_has_short_handles_in_small_programs),
		cmocka_unit_test(test_memory_of_several_streams_is_left_with_its_users),
		cmocka_unit_test(test_finished_only_moves_what_has_finished),
		cmocka_unit_test(test_registered_memory_stays),
		cmocka_unit_test(test_in_a_capture_nothing_moves),
		cmocka_unit_test(test_within_a_limit_memory_moves),
		cmocka_unit_test(test_what_is_never_unmapped_is_not_asked_for_ever),
		cmocka_unit_test(test_what_is_on_its_way_is_within_the_limit),
		cmocka_unit_test(test_at_the_end_of_memory_it_moves),
		cmocka_unit_test(test_what_fits_nowhere_goes_back),
		cmocka_unit_test(test_the_gate),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
