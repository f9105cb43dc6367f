/* SPDX-License-Identifier: MIT */
/* Quiet spaces, and what may be handed out unfinished. */
#include "tests/unit/allocator/order/scene.h"

#include <pthread.h>

/* ---- quiet */

static void
test_a_quiet_space_calls_no_driver(void **state)
{
	struct scene scene;
	unsigned i;

	scene_of_one(&scene);
	assert_true(ca_order_is_quiet(scene.order));
	for (i = 0; i < 100; i++) {
		scene_free_memory(&scene);
		assert_ptr_equal(ca_order_only_stream(scene.order), order_record(scene.s));
		scene_expose(&scene);
	}
	assert_int_equal(scene_driver_calls(&scene.f), 0);
	assert_int_equal(atomic_load(&scene.s->armed), 0);
	order_stop(&scene.f);
}

static void
test_a_second_stream_ends_the_quiet_and_comes_after_what_is_exposed(void **state)
{
	struct scene scene;
	uint64_t later;

	scene_of_one(&scene);
	scene_expose(&scene);
	scene.r = order_open(&scene.f, 1);
	assert_false(ca_order_is_quiet(scene.order));
	assert_ptr_equal(ca_order_only_stream(scene.order), NULL);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1); /* at once */
	later = order_launch(&scene.f, scene.s);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	assert_true(scene.work < later);
	order_stop(&scene.f);
}

/* ---- other spaces */

static struct ca_space *
another_space(struct scene *scene, void *context)
{
	struct ca_space *space = NULL;

	assert_int_equal(ca_space_create(scene->f.heap, context, 0, &space), 0);
	return space;
}

static struct ca_stream *
open_in(struct ca_space *space, unsigned n)
{
	struct ca_stream *stream = NULL;

	assert_int_equal(ca_stream_open(space, CA_STREAM_NONBLOCKING, HANDLE(n), true, &stream), 0);
	return stream;
}

static void
test_another_spaces_stream_ends_the_quiet_of_all(void **state)
{
	struct ca_space *other, *third;
	struct scene scene;

	scene_of_one(&scene);
	scene_expose(&scene);
	other = another_space(&scene, (void *)2);
	assert_true(ca_order_is_quiet(scene.order)); /* nobody submits there */
	assert_int_equal(scene_driver_calls(&scene.f), 0);
	scene.r = open_in(other, 1);
	assert_false(ca_order_is_quiet(scene.order));
	assert_false(ca_order_is_quiet(&other->order));
	assert_ptr_equal(ca_order_only_stream(scene.order), NULL);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1); /* at once */
	order_launch(&scene.f, scene.s);                                  /* may wait for r */
	ca_submit_guard_other(scene.r, scene.f.space, NULL);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	third = another_space(&scene, (void *)3);
	open_in(third, 2);
	assert_false(ca_order_is_quiet(&third->order));
	ca_space_kill(third);
	assert_false(ca_order_is_quiet(scene.order));
	ca_space_kill(other);
	assert_true(ca_order_is_quiet(scene.order));
	order_stop(&scene.f);
}

/* Once there is company, what is handed out has a mark that covers nothing after its free. */
static void
test_memory_freed_in_company_has_an_exact_mark(void **state)
{
	struct scene scene;

	scene.order = order_start(&scene.f);
	scene.s = order_open(&scene.f, 0);
	scene.r = open_in(another_space(&scene, (void *)2), 1);
	scene_free_memory(&scene);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s); /* may wait for r */
	ca_submit_guard_other(scene.r, scene.f.space, NULL);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	order_stop(&scene.f);
}

static void
test_spaces_one_after_the_other_are_quiet(void **state)
{
	struct ca_space *space = NULL;
	struct scene scene;
	unsigned i;

	scene.order = order_start(&scene.f);
	for (i = 0; i < 10; i++) {
		space = another_space(&scene, (void *)(uintptr_t)(2 + i));
		ca_stream_close(open_in(space, i), false);
		open_in(space, i);
		assert_true(ca_order_is_quiet(&space->order));
		ca_space_kill(space);
	}
	scene.s = order_open(&scene.f, 0);
	assert_true(ca_order_is_quiet(scene.order));
	space = another_space(&scene, (void *)100);
	ca_stream_close(open_in(space, 1), false); /* its work may still be under way */
	assert_false(ca_order_is_quiet(scene.order));
	order_stop(&scene.f);
}

/* ---- leaving it */

/* Whatever was submitted between such a free and the second stream may wait for that stream. */
static void
test_memory_freed_in_a_quiet_space_is_not_exposed_later(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	order_launch(&scene.f, scene.s);
	scene.r = order_open(&scene.f, 1);
	assert_false(order_may_expose(scene.order, &scene.user));
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), -EAGAIN);
	scene_free_memory(&scene);
	assert_true(order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

static void
test_a_ghosts_memory_in_a_quiet_space_is_guarded(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	scene_expose(&scene);
	ca_stream_close(scene.s, false);
	assert_true(ca_order_is_quiet(scene.order));
	assert_false(order_may_expose(scene.order, &scene.user));
	scene.r = order_open(&scene.f, 1);
	assert_true(ca_order_is_quiet(scene.order));
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	ca_order_expose(scene.order, &scene.user); /* and once more */
	assert_int_not_equal(atomic_load(&scene.r->seen),
			     atomic_load(&scene.order->words.exposed_count));
	order_stop(&scene.f);
}

static void
test_an_operation_that_somebody_else_ends_is_a_user_of_everything(void **state)
{
	struct scene scene;
	struct ca_users users;
	uint64_t birth;

	scene_of_one(&scene);
	scene_expose(&scene);
	ca_submit_hazard_begin(scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1); /* before it */
	order_launch(&scene.f, scene.s);
	ca_submit_hazard_end(scene.s, true);
	assert_false(ca_order_is_quiet(scene.order));
	assert_ptr_equal(ca_order_only_stream(scene.order), NULL);
	birth = ca_order_birth(scene.order);
	users = order_free(&scene.f, birth);
	assert_int_equal(users.n, 1);
	assert_false(order_may_expose(scene.order, &users.user[0]));
	scene.r = order_open(&scene.f, 1);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work); /* not the operation */
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	assert_ptr_equal(order_free(&scene.f, birth).user[0].stream, scene.r);
	ca_stream_close(scene.r, false);
	assert_true(ca_order_is_quiet(scene.order));
	order_stop(&scene.f);
}

/* Also what was freed before the operation, with an exact mark. */
static void
test_nothing_of_a_stream_that_somebody_else_must_end_is_exposed(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	order_launch(&scene.f, scene.s);
	assert_true(order_may_expose(scene.order, &scene.user));
	ca_submit_hazard_begin(scene.s);
	order_launch(&scene.f, scene.s);
	ca_submit_hazard_end(scene.s, true);
	assert_false(order_may_expose(scene.order, &scene.user));
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	scene_free_memory(&scene);
	assert_true(order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

/* Another thread launches, frees and allocates while the operation's submission goes on. Whether
 * the operation comes before a mark that is recorded now nobody can tell. */
static void
test_nothing_is_exposed_while_such_an_operation_is_being_submitted(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	ca_submit_hazard_begin(scene.s);
	scene_free_memory(&scene);
	assert_false(ca_order_is_quiet(scene.order));
	assert_ptr_equal(ca_order_only_stream(scene.order), NULL);
	assert_false(order_may_expose(scene.order, &scene.user));
	order_launch(&scene.f, scene.s);
	ca_submit_hazard_end(scene.s, true);
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), -EAGAIN);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	assert_true(ca_order_is_quiet(scene.order));
	order_stop(&scene.f);
}

/* Two of them, of two threads; the first has ended the quiet, and what was found to be exposable
 * before is exposed only now. */
static void
test_the_second_of_two_such_operations_marks_what_is_exposed_too(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	ca_submit_hazard_begin(scene.s);
	ca_order_expose(scene.order, &scene.user);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 0);
	ca_submit_hazard_begin(scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1);
	ca_submit_hazard_end(scene.s, false);
	ca_submit_hazard_end(scene.s, false);
	assert_true(ca_order_is_quiet(scene.order));
	order_stop(&scene.f);
}

static void
test_an_operation_that_was_refused_leaves_nothing_behind(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	ca_submit_hazard_begin(scene.s);
	assert_false(order_may_expose(scene.order, &scene.user));
	ca_submit_hazard_end(scene.s, false);
	assert_true(ca_order_is_quiet(scene.order));
	assert_true(order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

/* ---- exposure */

static void *
submit_elsewhere(void *arg)
{
	struct scene *scene = arg;

	ca_stream_note_thread(scene->r);
	order_launch(&scene->f, scene->r);
	return NULL;
}

static void
in_thread(void *(*start)(void *), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, start, arg), 0);
	pthread_join(thread, NULL);
}

static void
test_nothing_is_exposed_while_another_thread_submits(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	ca_stream_note_thread(scene.s);
	ca_stream_note_thread(scene.r);
	assert_true(order_may_expose(scene.order, &scene.user));
	in_thread(submit_elsewhere, &scene);
	assert_false(order_may_expose(scene.order, &scene.user));
	ca_stream_close(scene.r, false);
	scene_free_memory(&scene);
	assert_true(order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

static void *
ask_elsewhere(void *arg)
{
	struct scene *scene = arg;

	return order_may_expose(scene->order, &scene->user) ? arg : NULL;
}

static void
test_a_threads_own_stream_is_exposed_to_itself_and_with_a_mark_only(void **state)
{
	struct scene scene;
	pthread_t thread;
	void *exposed;

	scene.order = order_start(&scene.f);
	scene.s = order_open_kind(&scene.f, 0, CA_STREAM_PER_THREAD);
	scene.r = order_open(&scene.f, 1);
	scene_free_memory(&scene);
	assert_false(order_may_expose(scene.order, &scene.user));
	order_launch(&scene.f, scene.s);
	assert_true(order_may_expose(scene.order, &scene.user));
	assert_int_equal(pthread_create(&thread, NULL, ask_elsewhere, &scene), 0);
	pthread_join(thread, &exposed);
	assert_null(exposed);
	order_stop(&scene.f);
}

static void
test_finished_reuse_exposes_nothing(void **state)
{
	struct scene scene;

	fixture_defaults(&scene.f);
	scene.f.config.reuse_finished = true;
	fixture_start(&scene.f);
	scene.order = &scene.f.space->order;
	scene.s = order_open(&scene.f, 0);
	scene_free_memory(&scene);
	assert_false(order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

/* A launch that overtakes its predecessor must not overtake the block's last user. */
static void
test_a_programmatic_launch_is_serialized_once(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	assert_false(ca_submit_must_be_serial(scene.s));
	scene_expose(&scene);
	assert_true(ca_submit_must_be_serial(scene.s));
	assert_true(ca_submit_must_be_serial(scene.s));
	ca_order_expose(scene.order, &scene.user); /* while the launch goes on */
	ca_submit_serial(scene.s);
	assert_true(ca_submit_must_be_serial(scene.s));
	ca_submit_serial(scene.s);
	assert_false(ca_submit_must_be_serial(scene.s));
	order_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_quiet_space_calls_no_driver),
		cmocka_unit_test(
			test_a_second_stream_ends_the_quiet_and_comes_after_what_is_exposed),
		cmocka_unit_test(test_another_spaces_stream_ends_the_quiet_of_all),
		cmocka_unit_test(test_memory_freed_in_company_has_an_exact_mark),
		cmocka_unit_test(test_spaces_one_after_the_other_are_quiet),
		cmocka_unit_test(test_memory_freed_in_a_quiet_space_is_not_exposed_later),
		cmocka_unit_test(test_a_ghosts_memory_in_a_quiet_space_is_guarded),
		cmocka_unit_test(test_an_operation_that_somebody_else_ends_is_a_user_of_everything),
		cmocka_unit_test(test_nothing_of_a_stream_that_somebody_else_must_end_is_exposed),
		cmocka_unit_test(
			test_nothing_is_exposed_while_such_an_operation_is_being_submitted),
		cmocka_unit_test(test_the_second_of_two_such_operations_marks_what_is_exposed_too),
		cmocka_unit_test(test_an_operation_that_was_refused_leaves_nothing_behind),
		cmocka_unit_test(test_nothing_is_exposed_while_another_thread_submits),
		cmocka_unit_test(
			test_a_threads_own_stream_is_exposed_to_itself_and_with_a_mark_only),
		cmocka_unit_test(test_finished_reuse_exposes_nothing),
		cmocka_unit_test(test_a_programmatic_launch_is_serialized_once),
	};

	return cmocka_run_group_tests_name("allocator-order-expose", tests, NULL, NULL);
}
