/* SPDX-License-Identifier: MIT */
/*
 * What other threads can do while one is inside a driver call of the tracker, made deterministic:
 * an observer runs inside the call, or holds one thread there while another goes on.
 */
#include "tests/unit/allocator/order/fixture.h"

#include <pthread.h>
#include <sched.h>

struct scene {
	struct fixture f;
	struct ca_order *order;
	struct ca_stream *s, *r;
	struct ca_user user; /* of s, at its last free */
	uint64_t birth, work, later;
	/* the observer */
	enum ca_model_function at;
	bool end;
	void (*act)(struct scene *scene);
	bool acted;
	/* the other thread */
	pthread_t thread;
	void (*part)(struct scene *scene);
	_Atomic bool there, go;
};

static void
observer(void *arg, enum ca_model_function function, bool end)
{
	struct scene *scene = arg;

	if (scene->acted || function != scene->at || end != scene->end)
		return;
	scene->acted = true;
	scene->act(scene);
}

static void
scene_set(struct scene *scene, enum ca_model_function at, bool end,
	  void (*act)(struct scene *scene))
{
	scene->at = at;
	scene->end = end;
	scene->act = act;
	scene->acted = false;
	ca_model_set_observer(scene->f.model, observer, scene);
}

static void
free_memory(struct scene *scene)
{
	struct ca_users users;

	scene->birth = ca_order_birth(scene->order);
	scene->work = order_launch(&scene->f, scene->s);
	users = order_free(&scene->f, scene->birth);
	assert_int_equal(users.n, 1);
	scene->user = users.user[0];
}

static void
scene_start(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	scene->r = order_open(&scene->f, 1);
	free_memory(scene);
}

static void
scene_stop(struct scene *scene)
{
	assert_true(scene->acted);
	ca_model_set_observer(scene->f.model, NULL, NULL);
	order_stop(&scene->f);
}

static void
act_free_again(struct scene *scene)
{
	scene->user = order_free(&scene->f, scene->birth).user[0];
}

/* The mark may have been recorded before that free's work: the stream stays armed. */
static void
test_a_free_during_a_mark_keeps_the_stream_armed(void **state)
{
	struct scene scene;
	unsigned end;

	for (end = 0; end < 2; end++) {
		scene_start(&scene);
		scene_set(&scene, CA_MODEL_STREAM_MARK, end, act_free_again);
		ca_submit_begin(scene.s, NULL);
		assert_int_not_equal(atomic_load(&scene.s->armed), 0);
		scene_stop(&scene);
	}
}

static void
act_launch_s(struct scene *scene)
{
	scene->later = order_launch(&scene->f, scene->s);
}

/*
 * Two threads find s armed; the second records, publishes and submits while the first is inside its
 * record, whose mark covers the second's work or not: the guard takes neither more nor less than
 * what was there at the free.
 */
static void
test_two_threads_at_one_armed_stream_leave_an_exact_mark_first(void **state)
{
	struct scene scene;
	unsigned end;

	for (end = 0; end < 2; end++) {
		scene_start(&scene);
		scene_set(&scene, CA_MODEL_STREAM_MARK, end, act_launch_s);
		order_launch(&scene.f, scene.s);
		assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 2);
		ca_order_expose(scene.order, &scene.user);
		order_launch(&scene.f, scene.r);
		assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
		scene_stop(&scene);
	}
}

static void
act_check_armed(struct scene *scene)
{
	assert_int_not_equal(atomic_load(&scene->s->armed), 0);
	assert_true(ca_list_empty(&order_record(scene->s)->points));
}

static void
test_a_mark_is_published_after_it_is_recorded(void **state)
{
	struct scene scene;
	unsigned end;

	for (end = 0; end < 2; end++) {
		scene_start(&scene);
		scene_set(&scene, CA_MODEL_STREAM_MARK, end, act_check_armed);
		order_launch(&scene.f, scene.s);
		assert_int_equal(atomic_load(&scene.s->armed), 0);
		scene_stop(&scene);
	}
}

/* Another thread submits to r while the first is inside its wait: it must not rely on that wait. */
static void
act_launch_r(struct scene *scene)
{
	order_launch(&scene->f, scene->r);
	scene->later = order_behind(&scene->f, scene->r, 0);
}

static void
test_nobody_relies_on_a_wait_that_is_not_inserted_yet(void **state)
{
	struct scene scene;

	scene_start(&scene);
	ca_order_expose(scene.order, &scene.user);
	scene_set(&scene, CA_MODEL_STREAM_WAIT, false, act_launch_r);
	order_launch(&scene.f, scene.r);
	assert_int_equal(scene.later, scene.work);
	scene_stop(&scene);
}

static void
act_expose_other(struct scene *scene)
{
	ca_order_expose(scene->order, &scene->user);
}

/* Exposed after the guard has looked: the next submission looks again. */
static void
test_an_exposure_during_a_guard_is_seen_by_the_next(void **state)
{
	struct scene scene;
	uint64_t first;

	scene_start(&scene);
	ca_order_expose(scene.order, &scene.user);
	order_launch(&scene.f, scene.s);
	first = scene.work;
	free_memory(&scene);
	order_launch(&scene.f, scene.s);
	scene_set(&scene, CA_MODEL_STREAM_WAIT, true, act_expose_other);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), first);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	scene_stop(&scene);
}

static void
act_kill(struct scene *scene)
{
	ca_model_context_destroy(scene->f.model, (void *)1);
	ca_space_kill(scene->f.space);
}

static void
test_a_space_may_die_inside_any_call(void **state)
{
	const enum ca_model_function calls[] = { CA_MODEL_STREAM_MARK, CA_MODEL_STREAM_WAIT,
						 CA_MODEL_QUERY, CA_MODEL_WAIT, CA_MODEL_DROP };
	struct scene scene;
	unsigned i;

	for (i = 0; i < 10; i++) {
		scene_start(&scene);
		scene_set(&scene, calls[i / 2], i % 2, act_kill);
		order_launch(&scene.f, scene.s);
		ca_order_expose(scene.order, &scene.user);
		ca_submit_begin(scene.r, NULL);
		if (!scene.f.space->dead) {
			ca_order_poll(scene.f.space);
			ca_order_wait(scene.f.space, &scene.user);
		}
		assert_true(ca_user_is_done(&scene.user));
		assert_int_equal(fixture_sums(&scene.f).marks, 0);
		scene_stop(&scene);
	}
}

static void
test_a_space_may_die_while_the_host_waits(void **state)
{
	struct scene scene;

	scene_start(&scene);
	ca_order_expose(scene.order, &scene.user);
	ca_model_fail(scene.f.model, CA_MODEL_STREAM_WAIT, 1, true, 700);
	scene_set(&scene, CA_MODEL_WAIT, false, act_kill);
	ca_submit_begin(scene.r, NULL);
	assert_true(ca_user_is_done(&scene.user));
	assert_false(scene.f.space->poisoned);
	scene_stop(&scene);
}

static void
act_second_stream(struct scene *scene)
{
	scene->r = order_open(&scene->f, 1);
	order_launch(&scene->f, scene->r);
}

/* A second stream while the last mark of the only one is recorded. */
static void
test_a_stream_may_open_while_another_closes(void **state)
{
	struct scene scene;

	memset(&scene, 0, sizeof(scene));
	scene.order = order_start(&scene.f);
	scene.s = order_open(&scene.f, 0);
	free_memory(&scene);
	ca_order_expose(scene.order, &scene.user);
	scene_set(&scene, CA_MODEL_STREAM_MARK, false, act_second_stream);
	ca_stream_close(scene.s, false);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	assert_true(ca_order_is_quiet(scene.order));
	scene_stop(&scene);
}

/* ---- two threads, one held inside a call */

static void *
other_thread(void *arg)
{
	struct scene *scene = arg;

	while (!scene->there)
		sched_yield();
	scene->part(scene);
	return NULL;
}

static void
act_hold(struct scene *scene)
{
	scene->there = true;
	while (!scene->go)
		sched_yield();
}

static void
with_other_thread(struct scene *scene, void (*part)(struct scene *scene))
{
	scene->part = part;
	assert_int_equal(pthread_create(&scene->thread, NULL, other_thread, scene), 0);
}

static void
part_submit(struct scene *scene)
{
	scene->later = order_launch(&scene->f, scene->s);
	scene->go = true;
}

/* As above with real threads: the first is held before, or after, its mark is recorded. */
static void
test_a_held_mark_does_not_let_a_submission_slip_before_the_first(void **state)
{
	struct scene scene;
	unsigned end;

	for (end = 0; end < 2; end++) {
		scene_start(&scene);
		scene_set(&scene, CA_MODEL_STREAM_MARK, end, act_hold);
		with_other_thread(&scene, part_submit);
		order_launch(&scene.f, scene.s);
		pthread_join(scene.thread, NULL);
		ca_order_expose(scene.order, &scene.user);
		order_launch(&scene.f, scene.r);
		assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
		scene_stop(&scene);
	}
}

static void
part_close(struct scene *scene)
{
	ca_stream_close(scene->s, false);
	assert_true(scene->go); /* not before the call returned */
}

static void
act_hold_a_while(struct scene *scene)
{
	unsigned i;

	scene->there = true;
	while (!atomic_load(&order_record(scene->s)->closed))
		sched_yield();
	for (i = 0; i < 100; i++)
		sched_yield();
	assert_non_null(order_handle(scene->s));
	scene->go = true;
}

/* The program destroys a stream while another thread's poll names it to the driver. */
static void
test_a_stream_is_not_closed_under_a_call_that_names_it(void **state)
{
	struct scene scene;

	scene_start(&scene);
	scene_set(&scene, CA_MODEL_STREAM_MARK, false, act_hold_a_while);
	with_other_thread(&scene, part_close);
	ca_order_poll(scene.f.space);
	pthread_join(scene.thread, NULL);
	assert_null(order_handle(scene.s));
	scene_stop(&scene);
}

static void
part_close_only(struct scene *scene)
{
	ca_stream_close(scene->s, false);
}

static void
act_wait_for_close(struct scene *scene)
{
	scene->there = true;
	while (!atomic_load(&order_record(scene->s)->closed))
		sched_yield();
}

/* The call that named the handle returns, and a stream is opened before the closing thread looks
 * again: the record is not free yet. */
static void
test_a_record_is_not_reused_before_its_stream_is_closed(void **state)
{
	struct ca_stream *other;
	struct scene scene;
	unsigned i;

	for (i = 0; i < 100; i++) {
		scene_start(&scene);
		ca_model_stream_finish(scene.f.model, HANDLE(0), UINT64_MAX);
		scene_set(&scene, CA_MODEL_STREAM_MARK, false, act_wait_for_close);
		with_other_thread(&scene, part_close_only);
		ca_order_poll(scene.f.space);
		other = order_open(&scene.f, 2);
		pthread_join(scene.thread, NULL);
		assert_ptr_equal(order_handle(other), HANDLE(2));
		scene_stop(&scene);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_free_during_a_mark_keeps_the_stream_armed),
		cmocka_unit_test(test_two_threads_at_one_armed_stream_leave_an_exact_mark_first),
		cmocka_unit_test(test_a_mark_is_published_after_it_is_recorded),
		cmocka_unit_test(test_nobody_relies_on_a_wait_that_is_not_inserted_yet),
		cmocka_unit_test(test_an_exposure_during_a_guard_is_seen_by_the_next),
		cmocka_unit_test(test_a_space_may_die_inside_any_call),
		cmocka_unit_test(test_a_space_may_die_while_the_host_waits),
		cmocka_unit_test(test_a_stream_may_open_while_another_closes),
		cmocka_unit_test(test_a_held_mark_does_not_let_a_submission_slip_before_the_first),
		cmocka_unit_test(test_a_stream_is_not_closed_under_a_call_that_names_it),
		cmocka_unit_test(test_a_record_is_not_reused_before_its_stream_is_closed),
	};

	return cmocka_run_group_tests_name("allocator-order-interleave", tests, NULL, NULL);
}
