/* SPDX-License-Identifier: MIT */
/* allocator/policy/budget.c: which free blocks are cut, and which are better left whole. */
#include "tests/unit/allocator/policy/budget_scene.h"

static void
test_within_the_budget_an_unused_segment_is_cut(void **state)
{
	struct scene scene;

	scene_of(&scene, 64 * GIB);
	once(&scene, 1000 * MIB);
	once(&scene, 600 * MIB);
	assert_int_equal(held(&scene), 1000 * MIB);
	assert_int_equal(takes(&scene), 1);
	scene_stop(&scene);
}

/* One that could go back is no longer cut for something small, which may stay for long. */
static void
test_beyond_the_budget_it_is_not(void **state)
{
	struct scene scene;

	scene_that_keeps_up(&scene);
	beyond_budget(&scene);
	once(&scene, 600 * MIB);
	assert_int_equal(held(&scene), 2400 * MIB);
	scene_stop(&scene);
}

/* But where nothing can go back, since the device is at work, the segment is cut after all. */
static void
test_what_was_left_whole_in_vain_is_cut(void **state)
{
	struct scene scene;
	uint64_t large, queries;

	scene_that_keeps_up(&scene);
	queries = fixture_sums(&scene.f).calls[CA_MODEL_QUERY];
	large = beyond_budget(&scene);
	work(&scene, 1000 * 1000 * 1000);
	assert_int_equal(fixture_alloc(&scene.f, 600 * MIB), large);
	assert_true(fixture_sums(&scene.f).calls[CA_MODEL_QUERY] > queries);
	assert_int_equal(held(&scene), 2800 * MIB);
	scene_stop(&scene);
}

/* Nor where the driver refuses. */
static void
test_what_the_driver_does_not_take_is_cut(void **state)
{
	struct scene scene;
	uint64_t large;

	scene_that_keeps_up(&scene);
	large = beyond_budget(&scene);
	ca_model_fail(scene.f.model, CA_MODEL_RETURN, 1, true, 999);
	assert_int_equal(fixture_alloc(&scene.f, 600 * MIB), large);
	assert_true(ca_model_failed(scene.f.model));
	assert_int_equal(held(&scene), 2800 * MIB);
	scene_stop(&scene);
}

/* Of a device that was never seen to keep up nothing is expected. */
static void
test_while_the_device_is_busy_it_is_cut(void **state)
{
	struct scene scene;
	uint64_t large;

	scene_of(&scene, 64 * GIB);
	large = beyond_budget(&scene);
	launch(&scene);
	assert_int_equal(fixture_alloc(&scene.f, 600 * MIB), large);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_QUERY], 0);
	assert_int_equal(returns(&scene), 0);
	scene_stop(&scene);
}

/* 300 MiB have gone back since the device was idle, 400 are held, and it is at work again. */
static void
grew_at_work(struct scene *scene)
{
	once(scene, 300 * MIB);
	launch(scene);
	once(scene, 400 * MIB);
	assert_int_equal(held(scene), 700 * MIB);
	ca_model_stream_finish(scene->f.model, S, UINT64_MAX);
	ca_order_finished(scene->stream, ca_order_bound(scene->stream));
	fixture_alloc(&scene->f, 390 * MIB); /* the budget is 420 */
	assert_int_equal(held(scene), 400 * MIB);
	launch(scene);
}

/* The cache grew while the device was at work. When the program has waited for it, what is too
 * much goes back at the next request that its magazine does not serve; and what is then taken
 * again, at work, is as large as what went. */
static void
test_what_grew_at_work_goes_back_when_the_device_is_idle(void **state)
{
	struct scene scene;

	scene_of(&scene, 64 * GIB);
	grew_at_work(&scene);
	fixture_alloc(&scene.f, 200 * MIB);
	assert_int_equal(held(&scene), 700 * MIB);
	scene_stop(&scene);
}

/* Not where it would never be cut. */
static void
test_what_is_never_cut_is_no_larger_than_asked_for(void **state)
{
	struct scene scene;

	scene_new(&scene, 64 * GIB);
	scene.f.config.max_split_size_bytes = 50 * MIB;
	scene_start(&scene);
	grew_at_work(&scene);
	fixture_alloc(&scene.f, 200 * MIB);
	assert_int_equal(held(&scene), 600 * MIB);
	scene_stop(&scene);
}

/* Near the end of the device's memory, too, where what is left of the segment is large. */
static void
test_where_little_is_left_a_segment_is_not_cut(void **state)
{
	struct scene scene;

	scene_of(&scene, 1100 * MIB);
	once(&scene, 1000 * MIB);
	fixture_alloc(&scene.f, 30 * MIB); /* memory of its own */
	assert_int_equal(takes(&scene), 2);
	fixture_alloc(&scene.f, 1000 * MIB);
	assert_int_equal(takes(&scene), 2);
	scene_stop(&scene);
}

/* Requests that are meant to share a segment do. */
static void
test_small_requests_share_segments_in_any_case(void **state)
{
	struct scene scene;
	uint64_t i;

	scene_of(&scene, 24 * MIB);
	once(&scene, 3 * MIB);
	for (i = 0; i < 6; i++)
		fixture_alloc(&scene.f, 2 * MIB);
	assert_int_equal(takes(&scene), 1);
	scene_stop(&scene);
}

/* Where the driver has no more, a large request takes no hole of a larger segment, unless nothing
 * else is left: then it does. */
static void
test_a_hole_serves_when_nothing_else_is_left(void **state)
{
	struct scene scene;
	uint64_t a, out;

	scene_of(&scene, 200 * MIB);
	once(&scene, 160 * MIB);
	a = fixture_alloc(&scene.f, 156 * MIB); /* of the segment of 160 */
	fixture_alloc(&scene.f, 3 * MIB);       /* in the hole behind it, or not */
	fixture_free(&scene.f, a);
	assert_int_equal(ca_alloc(scene.f.space, 190 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	for (unsigned i = 0; i < 16; i++)
		fixture_alloc(&scene.f, 11 * MIB);
	assert_int_equal(fixture_stats(&scene.f).ooms, 1);
	scene_stop(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_within_the_budget_an_unused_segment_is_cut),
		cmocka_unit_test(test_beyond_the_budget_it_is_not),
		cmocka_unit_test(test_what_was_left_whole_in_vain_is_cut),
		cmocka_unit_test(test_what_the_driver_does_not_take_is_cut),
		cmocka_unit_test(test_while_the_device_is_busy_it_is_cut),
		cmocka_unit_test(test_what_grew_at_work_goes_back_when_the_device_is_idle),
		cmocka_unit_test(test_what_is_never_cut_is_no_larger_than_asked_for),
		cmocka_unit_test(test_where_little_is_left_a_segment_is_not_cut),
		cmocka_unit_test(test_small_requests_share_segments_in_any_case),
		cmocka_unit_test(test_a_hole_serves_when_nothing_else_is_left),
	};

	return cmocka_run_group_tests_name("allocator-reserve-cut", tests, NULL, NULL);
}
