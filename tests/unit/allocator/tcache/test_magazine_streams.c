/* SPDX-License-Identifier: MIT */
/* What a thread keeps while streams may still use it. */
#include "tests/unit/allocator/tcache/magazine_scene.h"
#include "tests/unit/allocator/deferred/scene.h"

static void
test_what_one_stream_uses_is_kept_until_there_is_another(void **state)
{
	struct scene scene;
	uint64_t block;

	scene_new(&scene, 1);
	block = free_used(&scene, 64 * KIB);
	assert_int_equal(fixture_alloc(&scene.f, 64 * KIB), block);
	assert_int_equal(fixture_stats(&scene.f).taken_same_stream, 1);
	fixture_free(&scene.f, block);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	scene.r = open_stream(&scene.f, R);
	/* freed while there was one: no exact mark */
	assert_int_not_equal(fixture_alloc(&scene.f, 64 * KIB), block);
	finish(&scene, S);
	/* looks at what waits */
	assert_int_equal(fixture_alloc(&scene.f, 32 * MIB) % (2 * MIB), 0);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 0);
	fixture_stop(&scene.f);
}

/* Whose free it was decides whom its memory may be handed to before it is finished. */
static void
test_a_free_in_stream_order_goes_past_the_magazine(void **state)
{
	struct scene scene;
	uint64_t a, b;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 64 * KIB);
	b = fixture_alloc(&scene.f, 64 * KIB);
	fixture_free(&scene.f, a);
	assert_int_equal(kept(scene.f.heap), 1);
	assert_int_equal(ca_free_async(scene.f.heap, b, scene.s), 0);
	fixture_check(&scene.f);
	assert_int_equal(kept(scene.f.heap), 1);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	fixture_stop(&scene.f);
}

static bool captured_now;

static bool
is_captured(void *self)
{
	return captured_now;
}

static void
test_what_is_unfinished_is_not_handed_out_once_a_capture_is_near(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 64 * KIB);
	ca_submit_begin(scene.s, NULL);
	ca_submit_end(scene.s);
	fixture_free(&scene.f, a);
	assert_int_equal(kept(scene.f.heap), 1);
	captured_now = true;
	scene.f.heap->driver.capturing = is_captured;
	assert_false(ca_magazine_take(scene.f.space, 64 * KIB, 64 * KIB, false, &a));
	captured_now = false;
	assert_true(ca_magazine_take(scene.f.space, 64 * KIB, 64 * KIB, false, &a));
	fixture_stop(&scene.f);
}

static void
test_a_trim_asks_for_what_a_magazine_keeps_unfinished(void **state)
{
	struct scene scene;

	scene_new(&scene, 1);
	free_used(&scene, 4 * MIB);
	assert_int_equal(kept(scene.f.heap), 1);
	finish(&scene, S); /* nobody has asked yet */
	assert_true(ca_trim(scene.f.heap, 0) > 0);
	assert_int_equal(fixture_sums(&scene.f).held_bytes, 0);
	fixture_stop(&scene.f);
}

/* The magazine has no number for the allocation: no answer of the driver's would help. */
static void
test_nobody_is_asked_where_that_is_not_what_is_in_the_way(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	a = free_used(&scene, 64 * KIB);
	assert_int_equal(kept(scene.f.heap), 1);
	ca_own.magazine->serial = ca_own.magazine->serials_end;
	assert_int_equal(fixture_alloc(&scene.f, 64 * KIB), a);
	assert_int_equal(calls(&scene), 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_STREAM_QUERY], 0);
	fixture_stop(&scene.f);
}

/* ---- where there are two */

static uint64_t
marks(struct scene *scene)
{
	return fixture_sums(&scene->f).calls[CA_MODEL_STREAM_MARK];
}

static uint64_t
questions(struct scene *scene)
{
	return fixture_sums(&scene->f).calls[CA_MODEL_STREAM_QUERY];
}

static void
test_what_is_kept_is_handed_out_once_its_stream_has_finished(void **state)
{
	struct scene scene;
	uint64_t a, recorded, asked;

	scene_new(&scene, 2);
	launch(&scene, R);
	free_used(&scene, 64 * KIB); /* and from now on there is room for one */
	finish(&scene, S);
	a = free_used(&scene, 64 * KIB);
	assert_int_equal(kept(scene.f.heap), 1);
	recorded = marks(&scene);
	asked = questions(&scene);
	finish(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 64 * KIB), a);
	assert_int_equal(questions(&scene), asked + 1);
	assert_int_equal(marks(&scene), recorded);
	fixture_stop(&scene.f);
}

static void
test_what_is_kept_is_not_handed_out_before(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 2);
	launch(&scene, R);
	a = free_used(&scene, 64 * KIB);
	assert_int_equal(kept(scene.f.heap), 1);
	assert_int_not_equal(fixture_alloc(&scene.f, 64 * KIB), a);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

/* One answer serves all frees between two submissions of a stream. */
static void
test_what_was_freed_between_two_launches_shares_an_answer(void **state)
{
	struct scene scene;
	uint64_t blocks[4];
	unsigned i;

	scene_new(&scene, 2);
	launch(&scene, R);
	for (i = 0; i < 4; i++)
		blocks[i] = fixture_alloc(&scene.f, 64 * KIB);
	launch(&scene, S);
	for (i = 0; i < 4; i++)
		fixture_free(&scene.f, blocks[i]);
	assert_int_equal(kept(scene.f.heap), 4);
	finish(&scene, S);
	for (i = 0; i < 4; i++)
		assert_int_equal(fixture_alloc(&scene.f, 64 * KIB), blocks[3 - i]);
	assert_int_equal(questions(&scene), 1);
	assert_int_equal(marks(&scene), 0);
	launch(&scene, S); /* nothing that was freed is unfinished any more */
	assert_int_equal(marks(&scene), 0);
	fixture_stop(&scene.f);
}

/* The mark was recorded before the launch that goes on. */
static void
test_what_is_kept_does_not_wait_for_later_work(void **state)
{
	struct scene scene;
	uint64_t a, work;

	scene_new(&scene, 2);
	launch(&scene, R);
	a = fixture_alloc(&scene.f, 64 * KIB);
	work = launch(&scene, S);
	fixture_free(&scene.f, a);
	launch(&scene, S);
	assert_int_equal(marks(&scene), 1);
	assert_int_equal(kept(scene.f.heap), 1);
	ca_model_stream_finish(scene.f.model, (void *)(uintptr_t)S, work);
	assert_int_equal(fixture_alloc(&scene.f, 64 * KIB), a);
	assert_int_equal(questions(&scene), 0); /* the mark was asked */
	fixture_stop(&scene.f);
}

static void
test_what_two_streams_use_is_not_kept(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 2);
	a = fixture_alloc(&scene.f, 64 * KIB);
	launch(&scene, S);
	launch(&scene, R);
	fixture_free(&scene.f, a);
	assert_int_equal(kept(scene.f.heap), 0);
	fixture_stop(&scene.f);
}

/* Its one user is inherited, the other one came meanwhile. */
static void
test_what_an_inherited_user_shares_is_not_kept(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	a = free_used(&scene, 64 * KIB);
	assert_int_equal(fixture_alloc(&scene.f, 64 * KIB), a); /* unfinished */
	scene.r = open_stream(&scene.f, R);
	launch(&scene, R);
	fixture_free(&scene.f, a);
	assert_int_equal(kept(scene.f.heap), 0);
	fixture_stop(&scene.f);
}

enum { SIZES = 8 };

static void *
keep_many(void *arg)
{
	struct shared shared = { .f = *(struct fixture *)arg, .size = 32 * KIB };

	take_and_free_many(&shared);
	assert_int_equal(shared.done, 0);
	return NULL;
}

/* Blocks of several sizes are kept that nobody uses, by two threads, and as much waits for a stream
 * as is asked for. Returns how many are kept once a larger one was cut for that. */
static unsigned
kept_beside_what_waits(uint64_t slack_bytes, unsigned *ret_before)
{
	uint64_t blocks[SIZES], waiting;
	struct scene scene;
	unsigned i, left;

	scene_with_slack(&scene, 2, slack_bytes);
	launch(&scene, R);
	waiting = fixture_alloc(&scene.f, 512 * KIB);
	for (i = 0; i < SIZES; i++)
		blocks[i] = fixture_alloc(&scene.f, (i + 1) * 8 * KIB);
	for (i = 0; i < SIZES; i++)
		fixture_free(&scene.f, blocks[i]);
	in_thread(keep_many, &scene.f);
	launch(&scene, S);
	assert_int_equal(ca_free_async(scene.f.heap, waiting, scene.s), 0);
	*ret_before = kept(scene.f.heap);
	assert_true(*ret_before > SIZES);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	fixture_alloc(&scene.f, 500 * KIB);
	left = kept(scene.f.heap);
	fixture_stop(&scene.f);
	return left;
}

static void
test_what_waits_is_no_reason_to_empty_magazines(void **state)
{
	unsigned before, left = kept_beside_what_waits(64 * MIB, &before);

	assert_int_equal(left, before);
}

/* Then what would be cut is compared with all there is. */
static void
test_beyond_the_slack_it_is(void **state)
{
	unsigned before;

	assert_int_equal(kept_beside_what_waits(0, &before), 0);
}

/* As long as the streams work they are asked more and more seldom, and less and less is kept. */
static void
test_less_is_kept_where_streams_are_busy(void **state)
{
	struct scene scene;
	uint64_t address, first;
	unsigned i, n = 0;

	scene_new(&scene, 2);
	launch(&scene, R);
	for (i = 0; i < 100; i++) {
		free_used(&scene, 64 * KIB);
		launch(&scene, R); /* the thread's last stream: it does not go on with that */
		n += kept(scene.f.heap);
		assert_false(ca_magazine_take(scene.f.space, 64 * KIB, 64 * KIB, false, &address));
		fixture_alloc(&scene.f, 8 * MIB); /* what is kept gets its place */
	}
	assert_in_range(n, 4, 8);
	assert_in_range(questions(&scene), 0, 8);
	finish(&scene, S);
	finish(&scene, R);
	first = fixture_stats(&scene.f).cache_hits;
	for (i = 0; i < 200; i++) {
		free_used(&scene, 64 * KIB);
		finish(&scene, S);
	}
	assert_int_equal(kept(scene.f.heap), 1); /* as long as they are through each time */
	assert_true(fixture_stats(&scene.f).cache_hits > first);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_one_stream_uses_is_kept_until_there_is_another),
		cmocka_unit_test(test_a_free_in_stream_order_goes_past_the_magazine),
		cmocka_unit_test(test_what_is_unfinished_is_not_handed_out_once_a_capture_is_near),
		cmocka_unit_test(test_a_trim_asks_for_what_a_magazine_keeps_unfinished),
		cmocka_unit_test(test_nobody_is_asked_where_that_is_not_what_is_in_the_way),
		cmocka_unit_test(test_what_is_kept_is_handed_out_once_its_stream_has_finished),
		cmocka_unit_test(test_what_is_kept_is_not_handed_out_before),
		cmocka_unit_test(test_what_was_freed_between_two_launches_shares_an_answer),
		cmocka_unit_test(test_what_is_kept_does_not_wait_for_later_work),
		cmocka_unit_test(test_what_two_streams_use_is_not_kept),
		cmocka_unit_test(test_what_an_inherited_user_shares_is_not_kept),
		cmocka_unit_test(test_what_waits_is_no_reason_to_empty_magazines),
		cmocka_unit_test(test_beyond_the_slack_it_is),
		cmocka_unit_test(test_less_is_kept_where_streams_are_busy),
	};

	return cmocka_run_group_tests_name("allocator-magazine-streams", tests, NULL, NULL);
}
