/* SPDX-License-Identifier: MIT */
/* Lulls: what is recorded before the first submission behind one, and what that changes. */
#include "tests/unit/allocator/order/scene.h"

/* Ticks that pass between any two submissions, and that never pass. */
#define ALWAYS ((uint64_t)1)
#define NEVER ((uint64_t)1 << 62)

static void
scene_of_lulls(struct scene *scene, uint64_t lull)
{
	scene_of_one(scene);
	scene->order->words.lull = lull;
	scene->order->words.lull_step = lull / 16;
}

static uint64_t
marks(struct scene *scene)
{
	return order_calls(&scene->f, CA_MODEL_STREAM_MARK);
}

static bool
is_watched(const struct scene *scene)
{
	return atomic_load(&scene->s->seen) & CA_WATCHED;
}

static void
test_without_a_lull_no_driver_is_called(void **state)
{
	struct scene scene;
	unsigned i;

	scene_of_lulls(&scene, NEVER);
	for (i = 0; i < 100; i++) {
		scene_free_memory(&scene);
		scene_expose(&scene);
		assert_true(is_watched(&scene));
	}
	assert_int_equal(scene_driver_calls(&scene.f), 0);
	assert_false(ca_submit_needs_guard(scene.s));
	order_stop(&scene.f);
}

static void
test_pretend_time_has_no_lulls(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	scene_expose(&scene);
	assert_false(is_watched(&scene));
	order_launch(&scene.f, scene.s);
	assert_int_equal(scene_driver_calls(&scene.f), 0);
	order_stop(&scene.f);
}

static void
test_a_new_stream_comes_after_what_was_before_the_lull_alone(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s); /* may wait for r */
	assert_int_equal(marks(&scene), 1);
	assert_false(is_watched(&scene));
	order_launch(&scene.f, scene.s);
	scene.r = order_open(&scene.f, 1);
	order_launch(&scene.f, scene.r);
	assert_int_equal(marks(&scene), 1);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	order_stop(&scene.f);
}

/* Work that a submission before the lull was for is before it, too. */
static void
test_the_lull_may_come_after_more_submissions(void **state)
{
	struct scene scene;
	uint64_t more;

	scene_of_lulls(&scene, NEVER);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	more = order_launch(&scene.f, scene.s);
	assert_int_equal(marks(&scene), 0);
	atomic_fetch_sub(&scene.s->noted, NEVER); /* it passes now */
	order_launch(&scene.f, scene.s);
	assert_int_equal(marks(&scene), 1);
	scene.r = order_open(&scene.f, 1);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), more);
	order_stop(&scene.f);
}

static void
test_what_is_older_is_unfinished_until_the_mark_is_done(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	assert_false(ca_user_is_done(&scene.user));
	ca_model_stream_finish(scene.f.model, order_handle(scene.s), scene.work);
	assert_false(ca_user_is_done(&scene.user)); /* nobody has asked */
	scene_free_memory(&scene);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	assert_int_equal(marks(&scene), 2);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_QUERY), 1);
	assert_false(ca_user_is_done(&scene.user));
	assert_int_equal(fixture_sums(&scene.f).marks, 1); /* the first is gone */
	order_stop(&scene.f);
}

static void
test_marks_that_are_not_done_stay(void **state)
{
	struct scene scene;
	unsigned i;

	scene_of_lulls(&scene, ALWAYS);
	for (i = 0; i < 5; i++) {
		scene_expose(&scene);
		order_launch(&scene.f, scene.s);
		scene_free_memory(&scene);
	}
	assert_int_equal(fixture_sums(&scene.f).marks, 5);
	ca_model_stream_finish(scene.f.model, order_handle(scene.s), scene.work);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	assert_int_equal(fixture_sums(&scene.f).marks, 1);
	order_stop(&scene.f);
}

static void
test_nothing_is_recorded_for_what_has_finished(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	order_launch(&scene.f, scene.s);
	assert_int_equal(scene_driver_calls(&scene.f), 0);
	assert_false(is_watched(&scene));
	order_stop(&scene.f);
}

/* A mark that cannot be had, the next one can: in between all is as without a lull. */
static void
try_in_vain(int code, bool capturing)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	ca_model_set_capturing(scene.f.model, capturing);
	if (!capturing)
		ca_model_fail(scene.f.model, CA_MODEL_STREAM_MARK, 1, false, code);
	order_launch(&scene.f, scene.s);
	ca_model_set_capturing(scene.f.model, false);
	assert_int_equal(atomic_load(&scene.order->counts->marks), 0);
	assert_false(atomic_load(&order_record(scene.s)->lost));
	assert_int_equal(atomic_load(&order_record(scene.s)->exact_after), 0);
	assert_true(is_watched(&scene));
	order_launch(&scene.f, scene.s);
	assert_int_equal(atomic_load(&scene.order->counts->marks), 1);
	assert_false(is_watched(&scene));
	order_stop(&scene.f);
}

static void
test_a_mark_that_fails_changes_nothing(void **state)
{
	try_in_vain(999, false);
	try_in_vain(-EBUSY, false);
	try_in_vain(-ENOMEM, false);
	try_in_vain(0, true);
}

static void
test_a_question_that_fails_finishes_nothing(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	ca_model_stream_finish(scene.f.model, order_handle(scene.s), scene.work);
	ca_model_fail(scene.f.model, CA_MODEL_QUERY, 1, false, 999);
	scene_free_memory(&scene);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	assert_true(ca_model_failed(scene.f.model));
	assert_int_equal(fixture_sums(&scene.f).marks, 2);
	assert_false(atomic_load(&order_record(scene.s)->lost));
	order_stop(&scene.f);
}

/* ---- what other threads do meanwhile */

struct meanwhile {
	struct scene *scene;
	void (*act)(struct scene *scene);
	bool acted;
};

static void
observe(void *arg, enum ca_model_function function, bool end)
{
	struct meanwhile *meanwhile = arg;

	if (function != CA_MODEL_STREAM_MARK || !end || meanwhile->acted)
		return;
	meanwhile->acted = true;
	meanwhile->act(meanwhile->scene);
}

static void
lull_while(struct scene *scene, void (*act)(struct scene *scene))
{
	struct meanwhile meanwhile = { scene, act, false };

	ca_model_set_observer(scene->f.model, observe, &meanwhile);
	order_launch(&scene->f, scene->s);
	ca_model_set_observer(scene->f.model, NULL, NULL);
	assert_true(meanwhile.acted);
}

static void
act_submit(struct scene *scene)
{
	order_launch(&scene->f, scene->s);
}

static void
test_who_submits_behind_the_same_lull_marks_first(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	lull_while(&scene, act_submit);
	assert_int_equal(marks(&scene), 2);
	scene.r = order_open(&scene.f, 1);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	order_stop(&scene.f);
}

static void
act_submit_and_hand_out(struct scene *scene)
{
	scene->order->words.lull = NEVER;
	atomic_store(&scene->s->noted, ca_ticks());
	scene_free_memory(scene);
	scene_expose(scene);
}

static void
test_what_is_handed_out_during_the_mark_is_watched(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, ALWAYS);
	scene_expose(&scene);
	lull_while(&scene, act_submit_and_hand_out);
	assert_true(is_watched(&scene));
	atomic_fetch_sub(&scene.s->noted, NEVER);
	order_launch(&scene.f, scene.s);
	assert_int_equal(marks(&scene), 2);
	order_stop(&scene.f);
}

/* The watch is not taken for a guard that has run, nor is it lost when one runs. */
static void
test_a_guard_leaves_the_watch_alone(void **state)
{
	struct scene scene;

	scene_of_lulls(&scene, NEVER);
	scene_expose(&scene);
	atomic_fetch_add(&scene.order->words.exposed_count, 1);
	assert_true(ca_submit_needs_guard(scene.s));
	order_launch(&scene.f, scene.s);
	assert_int_equal(atomic_load(&scene.s->seen) & ~CA_WATCHED,
			 atomic_load(&scene.order->words.exposed_count));
	assert_true(is_watched(&scene));
	order_stop(&scene.f);
}

/* The line that every thread of the stream reads is written a few times a lull. */
static void
test_submissions_close_together_are_noted_once(void **state)
{
	struct scene scene;
	uint64_t noted;

	scene_of_lulls(&scene, NEVER);
	scene_expose(&scene);
	noted = atomic_load(&scene.s->noted);
	order_launch(&scene.f, scene.s);
	order_launch(&scene.f, scene.s);
	assert_int_equal(atomic_load(&scene.s->noted), noted);
	atomic_fetch_sub(&scene.s->noted, NEVER / 8); /* as if that long ago */
	order_launch(&scene.f, scene.s);
	assert_true(atomic_load(&scene.s->noted) > noted);
	atomic_fetch_add(&scene.s->noted, NEVER / 8); /* the count has gone back */
	order_launch(&scene.f, scene.s);
	assert_true(atomic_load(&scene.s->noted) < noted + NEVER / 8);
	assert_true(is_watched(&scene));
	assert_int_equal(marks(&scene), 0);
	order_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_a_lull_no_driver_is_called),
		cmocka_unit_test(test_pretend_time_has_no_lulls),
		cmocka_unit_test(test_a_new_stream_comes_after_what_was_before_the_lull_alone),
		cmocka_unit_test(test_the_lull_may_come_after_more_submissions),
		cmocka_unit_test(test_what_is_older_is_unfinished_until_the_mark_is_done),
		cmocka_unit_test(test_marks_that_are_not_done_stay),
		cmocka_unit_test(test_nothing_is_recorded_for_what_has_finished),
		cmocka_unit_test(test_a_mark_that_fails_changes_nothing),
		cmocka_unit_test(test_a_question_that_fails_finishes_nothing),
		cmocka_unit_test(test_who_submits_behind_the_same_lull_marks_first),
		cmocka_unit_test(test_what_is_handed_out_during_the_mark_is_watched),
		cmocka_unit_test(test_a_guard_leaves_the_watch_alone),
		cmocka_unit_test(test_submissions_close_together_are_noted_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
