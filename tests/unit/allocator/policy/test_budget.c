/* SPDX-License-Identifier: MIT */
/* allocator/policy/budget.c: what goes back before the cache outgrows what the program has needed.
 */
#include "tests/unit/allocator/policy/budget_scene.h"

static void
test_an_unused_segment_goes_back_before_the_cache_grows(void **state)
{
	struct scene scene;

	scene_of(&scene, 4 * GIB);
	outgrow(&scene);
	assert_int_equal(held(&scene), 200 * MIB);
	assert_int_equal(fixture_stats(&scene.f).reserved_bytes.peak, 200 * MIB);
	assert_int_equal(fixture_stats(&scene.f).trims, 1);
	scene_stop(&scene);
}

static void
test_only_at_the_end_of_the_memory_if_the_user_wants_it_so(void **state)
{
	struct scene scene;

	scene_new(&scene, 4 * GIB);
	scene.f.config.give_back_oom = true;
	scene_start(&scene);
	outgrow(&scene);
	assert_int_equal(held(&scene), 300 * MIB);
	scene_stop(&scene);
}

static void
test_what_min_reserve_keeps_stays(void **state)
{
	struct scene scene;

	scene_new(&scene, 4 * GIB);
	scene.f.config.min_reserve_bytes = 300 * MIB;
	scene_start(&scene);
	outgrow(&scene);
	assert_int_equal(held(&scene), 300 * MIB);
	scene_stop(&scene);
}

/* One that suffices alone, and not a larger one; of two that do not, the larger one first. */
static void
test_the_smallest_segment_that_suffices_goes_back(void **state)
{
	struct scene scene;
	uint64_t a, b, c;

	scene_of(&scene, 16 * GIB);
	a = fixture_alloc(&scene.f, 600 * MIB);
	b = fixture_alloc(&scene.f, 200 * MIB);
	c = fixture_alloc(&scene.f, 60 * MIB);
	fixture_free(&scene.f, a);
	fixture_free(&scene.f, b);
	fixture_free(&scene.f, c);
	fixture_alloc(&scene.f, 700 * MIB); /* 1560 less 885.8 are too many: 600, then 200 */
	assert_int_equal(returns(&scene), 2);
	assert_int_equal(held(&scene), 760 * MIB);
	/* 950 of 916: the one of 60; and as much comes as went, since the device was not looked at
	 */
	fixture_alloc(&scene.f, 190 * MIB);
	assert_int_equal(held(&scene), 900 * MIB);
	scene_stop(&scene);
}

/* The driver's free waits for the device, and its work may wait for the caller's next submission.
 */
static void
test_nothing_goes_back_while_the_device_works(void **state)
{
	struct scene scene;

	scene_of(&scene, 4 * GIB);
	once(&scene, 100 * MIB);
	launch(&scene);
	once(&scene, 200 * MIB);
	assert_int_equal(returns(&scene), 0);
	assert_int_equal(held(&scene), 300 * MIB);
	scene_stop(&scene);
}

static void *
submit_elsewhere(void *arg)
{
	struct scene *scene = arg;

	ca_stream_note_thread(scene->stream);
	launch(scene);
	return NULL;
}

/* It could submit again while the driver's free waits, and wait for the caller itself. */
static void
test_nothing_goes_back_where_another_thread_submits(void **state)
{
	struct scene scene;
	pthread_t thread;

	scene_of(&scene, 4 * GIB);
	assert_int_equal(pthread_create(&thread, NULL, submit_elsewhere, &scene), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	ca_model_finish(scene.f.model, UINT64_MAX);
	ca_order_finished(scene.stream, ca_order_bound(scene.stream));
	outgrow(&scene);
	assert_int_equal(returns(&scene), 0);
	scene_stop(&scene);
}

/* Where little memory is left the caller looks for a moment: most work ends soon. */
static void
test_work_that_ends_in_a_moment_is_awaited(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 520 * MIB);
	scene.f.pretend.work_ns = 5 * 1000 * 1000;
	scene_start(&scene);
	fixture_alloc(&scene.f, 320 * MIB);
	a = fixture_alloc(&scene.f, 100 * MIB);
	launch(&scene);
	fixture_free(&scene.f, a);
	fixture_alloc(&scene.f, 110 * MIB);
	assert_int_equal(held(&scene), 430 * MIB);
	assert_int_equal(takes(&scene), 3);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_WAIT], 0);
	scene_stop(&scene);
}

/* A cache of 400 MiB, of which `bytes` are unused, has to grow by 200 MiB. */
static void
outgrow_at_work(struct scene *scene, uint64_t bytes)
{
	uint64_t a;

	scene_new(scene, 4 * GIB);
	scene->f.pretend.work_ns = 5 * 1000 * 1000;
	scene_start(scene);
	fixture_alloc(&scene->f, 400 * MIB - bytes);
	a = fixture_alloc(&scene->f, bytes);
	launch(scene);
	fixture_free(&scene->f, a);
	fixture_alloc(&scene->f, 200 * MIB);
}

/* Its order costs nothing, and for a few MiB it stays so. */
static void
test_one_stream_is_not_asked_while_there_is_memory(void **state)
{
	struct scene scene;

	outgrow_at_work(&scene, 140 * MIB); /* 120 MiB too much */
	assert_int_equal(held(&scene), 600 * MIB);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_STREAM_MARK], 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_RECORD], 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_QUERY], 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_WAIT], 0);
	scene_stop(&scene);
}

/* But not when the cache is about to take much more than the program has ever had. */
static void
test_one_stream_is_asked_before_the_cache_takes_much_more(void **state)
{
	struct scene scene;

	outgrow_at_work(&scene, 160 * MIB); /* 140 */
	assert_int_equal(held(&scene), 440 * MIB);
	assert_int_equal(fixture_stats(&scene.f).reserved_bytes.peak, 440 * MIB);
	assert_true(fixture_sums(&scene.f).calls[CA_MODEL_QUERY] > 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_WAIT], 0);
	scene_stop(&scene);
}

/* Where looking was in vain, it is done more and more seldom. */
static void
test_looking_in_vain_ends(void **state)
{
	static char other;
	struct ca_stream *second;
	struct scene scene;
	uint64_t queries, i;

	scene_new(&scene, 1024 * GIB);
	scene.f.pretend.work_ns = UINT64_MAX / 2;
	scene.f.config.reuse_slack_bytes = 0;
	scene_start(&scene);
	assert_int_equal(ca_stream_open(scene.f.space, CA_STREAM_BLOCKING, &other, true, &second),
			 0);
	once(&scene, 100 * MIB);
	launch(&scene);
	for (i = 1; i < 8; i++)
		once(&scene, (100 + 40 * i) * MIB);
	queries = fixture_sums(&scene.f).calls[CA_MODEL_QUERY];
	for (; i < 200; i++)
		once(&scene, (100 + 40 * i) * MIB);
	assert_int_equal(returns(&scene), 0);
	assert_true(queries > 0);
	assert_true(fixture_sums(&scene.f).calls[CA_MODEL_QUERY] <= 3 * queries);
	scene_stop(&scene);
}

static void
test_nothing_goes_back_while_something_captures(void **state)
{
	struct scene scene;
	uint64_t out;

	scene_of(&scene, 4 * GIB);
	once(&scene, 100 * MIB);
	ca_model_set_capturing(scene.f.model, true);
	assert_int_equal(ca_alloc(scene.f.space, 200 * MIB, &out), 0);
	assert_int_equal(returns(&scene), 0);
	ca_model_set_capturing(scene.f.model, false);
	scene_stop(&scene);
}

/* The same phases over and over, whose blocks do not fit into each other's segments: in the end
 * the cache holds what they need, and the driver is left alone. */
static void
test_phases_that_alternate_come_to_rest(void **state)
{
	struct scene scene;
	uint64_t calls, blocks[8], i, n;

	scene_new(&scene, 64 * GIB);
	scene.f.pretend.work_ns = 1000 * 1000;
	scene_start(&scene);
	for (i = calls = 0; i < 400; i++) {
		uint64_t count = i % 2 ? 3 : 8, bytes = i % 2 ? 640 * MIB : 250 * MIB;

		for (n = 0; n < count; n++) {
			blocks[n] = fixture_alloc(&scene.f, bytes);
			launch(&scene);
		}
		fixture_alloc(&scene.f, 512); /* what stays */
		for (n = 0; n < count; n++)
			fixture_free(&scene.f, blocks[n]);
		if (i == 99)
			calls = takes(&scene) + returns(&scene);
	}
	assert_int_equal(takes(&scene) + returns(&scene), calls);
	assert_true(calls < 100);
	scene_stop(&scene);
}

/* Sizes that never come again, next to much that stays: most requests are served by the cache. */
static void
test_new_sizes_do_not_make_a_driver_call_of_every_allocation(void **state)
{
	struct scene scene;
	uint64_t seed = fixture_seed(77), before, i;

	scene_new(&scene, 20 * GIB);
	scene.f.pretend.work_ns = 1000 * 1000;
	scene_start(&scene);
	for (i = 0; i < 8; i++)
		fixture_alloc(&scene.f, 1 * GIB + 512);
	for (i = before = 0; i < 40000; i++) {
		uint64_t address = 0;

		assert_int_equal(
			ca_alloc(scene.f.space, 100 * MIB + fixture_random(&seed) % GIB, &address),
			0);
		launch(&scene);
		assert_int_equal(ca_free(scene.f.heap, address), 0);
		if (i == 20000)
			before = takes(&scene) + returns(&scene);
	}
	assert_true(takes(&scene) + returns(&scene) - before < 20000 / 3);
	scene_stop(&scene);
}

/* Whatever is asked for: no allocation gives back more than a few segments, and what is held
 * beyond the budget is in use, or went for nothing before. */
static void
test_an_allocation_gives_back_a_few_segments_at_most(void **state)
{
	struct scene scene;
	uint64_t blocks[200], i;

	scene_of(&scene, 64 * GIB);
	for (i = 0; i < 200; i++)
		blocks[i] = fixture_alloc(&scene.f, 12 * MIB);
	for (i = 0; i < 200; i++)
		fixture_free(&scene.f, blocks[i]);
	fixture_alloc(&scene.f, 2400 * MIB);
	assert_true(returns(&scene) > 0 && returns(&scene) <= 32);
	scene_stop(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_unused_segment_goes_back_before_the_cache_grows),
		cmocka_unit_test(test_only_at_the_end_of_the_memory_if_the_user_wants_it_so),
		cmocka_unit_test(test_what_min_reserve_keeps_stays),
		cmocka_unit_test(test_the_smallest_segment_that_suffices_goes_back),
		cmocka_unit_test(test_nothing_goes_back_while_the_device_works),
		cmocka_unit_test(test_nothing_goes_back_where_another_thread_submits),
		cmocka_unit_test(test_work_that_ends_in_a_moment_is_awaited),
		cmocka_unit_test(test_one_stream_is_not_asked_while_there_is_memory),
		cmocka_unit_test(test_one_stream_is_asked_before_the_cache_takes_much_more),
		cmocka_unit_test(test_looking_in_vain_ends),
		cmocka_unit_test(test_nothing_goes_back_while_something_captures),
		cmocka_unit_test(test_phases_that_alternate_come_to_rest),
		cmocka_unit_test(test_new_sizes_do_not_make_a_driver_call_of_every_allocation),
		cmocka_unit_test(test_an_allocation_gives_back_a_few_segments_at_most),
	};

	return cmocka_run_group_tests_name("allocator-reserve", tests, NULL, NULL);
}
