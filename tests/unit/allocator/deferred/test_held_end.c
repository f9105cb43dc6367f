/* SPDX-License-Identifier: MIT */
/* Freed memory that streams may still use, when something ends or begins: captures, graphs,
 * contexts, streams that are lost, retired segments, and accessors that are no streams. */
#include "tests/unit/allocator/deferred/scene.h"

#include <errno.h>

static bool
is_captured_after_one_look(void *self)
{
	static unsigned looks;

	return looks++ != 0;
}

/* Another thread begins a capture just after an allocation found that there is none. */
static void
test_a_capture_that_begins_meanwhile_stops_exposure(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	a = free_used(&scene, 20 * MIB);
	scene.f.heap->driver.capturing = is_captured_after_one_look;
	assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_equal(fixture_stats(&scene.f).taken_same_stream, 0);
	fixture_stop(&scene.f);
}

static void
test_retired_memory_waits_for_no_stream(void **state)
{
	struct scene scene;
	uint64_t a, b, c;

	scene_new(&scene, 2);
	a = fixture_alloc(&scene.f, 2 * MIB);
	b = fixture_alloc(&scene.f, 2 * MIB);
	c = fixture_alloc(&scene.f, 2 * MIB);
	launch(&scene, S);
	fixture_free(&scene.f, a);
	launch(&scene, R);
	fixture_free(&scene.f, b);
	assert_int_equal(ca_retire(scene.f.heap, c), 0);
	fixture_check(&scene.f);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 0);
	fixture_free(&scene.f, c);
	assert_int_equal(fixture_sums(&scene.f).held_bytes, 0);
	fixture_stop(&scene.f);
}

static void
test_a_dying_context_takes_its_blocks_along(void **state)
{
	struct scene scene;
	uint64_t a, b;

	scene_new(&scene, 2);
	a = fixture_alloc(&scene.f, 2 * MIB);
	b = fixture_alloc(&scene.f, 40 * MIB);
	launch(&scene, S);
	fixture_free(&scene.f, a);
	launch(&scene, R);
	fixture_free(&scene.f, b);
	ca_model_context_destroy(scene.f.model, (void *)1);
	ca_space_kill(scene.f.space);
	fixture_check(&scene.f);
	assert_int_equal(fixture_sums(&scene.f).marks, 0);
	fixture_stop(&scene.f);
}

static void
test_a_lost_stream_falls_back_to_the_context(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 2);
	a = fixture_alloc(&scene.f, 20 * MIB);
	launch(&scene, S);
	ca_model_fail(scene.f.model, CA_MODEL_STREAM_MARK, 1, true, 700);
	fixture_free(&scene.f, a);
	assert_int_not_equal(fixture_alloc(&scene.f, 512), a); /* looks, and learns of the error */
	ca_model_fail(scene.f.model, CA_MODEL_STREAM_MARK, 0, false, 0);
	finish(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

/* ---- accessors */

static void
test_accessors_wait_for_inherited_users(void **state)
{
	struct scene scene;
	uint64_t a, work;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 20 * MIB);
	work = launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_equal(fixture_stats(&scene.f).settles, 0);
	assert_int_equal(ca_register(scene.f.heap, a + 5, 1), 0);
	assert_int_equal(fixture_stats(&scene.f).settles, 1);
	assert_true(ca_model_stream_finished(scene.f.model, (void *)S) >= work);
	assert_int_equal(ca_register(scene.f.heap, a, 1), 0);
	assert_int_equal(fixture_stats(&scene.f).settles, 1);
	assert_int_equal(ca_register(scene.f.heap, 4096, 1), -ENOENT);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

/* The space was quiet, so the first wait is for what there is on the stream; then frees are marked,
 * and a wait is for nothing after them. Never for other contexts. */
static void
test_accessors_wait_for_one_stream_and_exactly_from_the_second_on(void **state)
{
	struct scene scene;
	uint64_t a, work;

	scene_with_slack(&scene, 1, 0);
	for (unsigned i = 0; i < 3; i++) {
		a = fixture_alloc(&scene.f, 20 * MIB);
		work = launch(&scene, S);
		fixture_free(&scene.f, a);
		assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
		launch(&scene, S); /* may wait for the host */
		assert_int_equal(ca_register(scene.f.heap, a, 1), 0);
		assert_int_equal(fixture_stats(&scene.f).settles, i + 1);
		assert_int_equal(ca_model_stream_finished(scene.f.model, (void *)S),
				 i ? work : work + 1);
	}
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_WAIT], 3);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_SYNCHRONIZE], 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_CONTEXT_SYNCHRONIZE], 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_STREAM_SYNCHRONIZE], 0);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

static void
test_memory_of_a_graph_stays_while_the_graph_does(void **state)
{
	static _Atomic bool gone;
	struct scene scene;
	uint64_t first, a, b;

	scene_new(&scene, 1);
	gone = false;
	first = ca_graph_serial(scene.f.heap);
	ca_model_set_capturing(scene.f.model, true);
	a = fixture_alloc(&scene.f, 20 * MIB);
	b = fixture_alloc(&scene.f, 30 * MIB);
	fixture_free(&scene.f, a); /* in the capture */
	assert_int_equal(ca_graph_hold(scene.f.heap, first, ca_graph_serial(scene.f.heap), &gone),
			 0);
	ca_model_set_capturing(scene.f.model, false);
	fixture_free(&scene.f, b); /* and behind it */
	assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_not_equal(fixture_alloc(&scene.f, 30 * MIB), b);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 2);
	gone = true;
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_equal(fixture_alloc(&scene.f, 30 * MIB), b);
	fixture_free(&scene.f, a); /* ordinary memory by now */
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

static void
test_a_capture_without_a_graph_keeps_nothing(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	ca_model_set_capturing(scene.f.model, true);
	a = fixture_alloc(&scene.f, 20 * MIB);
	fixture_free(&scene.f, a);
	assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	ca_model_set_capturing(scene.f.model, false);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

static void
test_what_a_capture_freed_is_given_back_once_it_has_ended(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	ca_model_set_capturing(scene.f.model, true);
	a = fixture_alloc(&scene.f, 20 * MIB);
	elsewhere(&scene, (struct job){ .address = a });
	ca_model_set_capturing(scene.f.model, false);
	assert_true(ca_reclaim(scene.f.space, MIB, NULL));
	assert_int_equal(fixture_sums(&scene.f).held_bytes, 0);
	fixture_stop(&scene.f);
}

static void
test_memory_of_a_graph_whose_end_is_not_known_goes_back(void **state)
{
	struct scene scene;
	uint64_t first, a, b;

	scene_new(&scene, 1);
	first = ca_graph_serial(scene.f.heap);
	ca_model_set_capturing(scene.f.model, true);
	a = fixture_alloc(&scene.f, 20 * MIB);
	b = fixture_alloc(&scene.f, 30 * MIB);
	fixture_free(&scene.f, a);
	ca_graph_retire(scene.f.heap, first, ca_graph_serial(scene.f.heap));
	fixture_check(&scene.f);
	ca_model_set_capturing(scene.f.model, false);
	fixture_free(&scene.f, b);
	fixture_alloc(&scene.f, 512);
	assert_int_equal(fixture_sums(&scene.f).held_bytes, 2 * MIB);
	fixture_stop(&scene.f);
}

/* Its thread has ended, so nobody can mark it; once something captures nobody could wait, either.
 */
static void
test_a_capture_waits_for_what_is_exposed_of_a_thread_that_has_ended(void **state)
{
	struct scene scene;
	uint64_t a, work;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 20 * MIB);
	work = launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a); /* exposed */
	ca_stream_close(scene.s, true);
	ca_order_mark_before_capture(scene.f.heap);
	assert_true(ca_model_stream_finished(scene.f.model, (void *)(uintptr_t)S) >= work);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_capture_that_begins_meanwhile_stops_exposure),
		cmocka_unit_test(test_retired_memory_waits_for_no_stream),
		cmocka_unit_test(test_a_dying_context_takes_its_blocks_along),
		cmocka_unit_test(test_a_lost_stream_falls_back_to_the_context),
		cmocka_unit_test(test_accessors_wait_for_inherited_users),
		cmocka_unit_test(test_accessors_wait_for_one_stream_and_exactly_from_the_second_on),
		cmocka_unit_test(test_memory_of_a_graph_stays_while_the_graph_does),
		cmocka_unit_test(test_a_capture_without_a_graph_keeps_nothing),
		cmocka_unit_test(test_what_a_capture_freed_is_given_back_once_it_has_ended),
		cmocka_unit_test(
			test_a_capture_waits_for_what_is_exposed_of_a_thread_that_has_ended),
		cmocka_unit_test(test_memory_of_a_graph_whose_end_is_not_known_goes_back),
	};

	return cmocka_run_group_tests_name("allocator-owned-end", tests, NULL, NULL);
}
