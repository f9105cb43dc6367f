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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_one_stream_uses_is_kept_until_there_is_another),
		cmocka_unit_test(test_a_free_in_stream_order_goes_past_the_magazine),
		cmocka_unit_test(test_what_is_unfinished_is_not_handed_out_once_a_capture_is_near),
		cmocka_unit_test(test_a_trim_asks_for_what_a_magazine_keeps_unfinished),
	};

	return cmocka_run_group_tests_name("allocator-magazine-streams", tests, NULL, NULL);
}
