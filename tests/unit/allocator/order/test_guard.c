/* SPDX-License-Identifier: MIT */
/* Marks, the guard, polling and waiting. */
#include "tests/unit/allocator/order/scene.h"

#include <pthread.h>

/* ---- marks and the guard */

static void
test_one_mark_serves_all_frees_before_a_submission(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	order_free(&scene.f, scene.birth);
	order_free(&scene.f, scene.birth);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 0);
	order_launch(&scene.f, scene.s);
	order_launch(&scene.f, scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1);
	assert_int_equal(atomic_load(&scene.order->counts->marks), 1);
	order_stop(&scene.f);
}

static void
test_a_finished_stream_needs_no_mark(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	order_launch(&scene.f, scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 0);
	assert_int_equal(atomic_load(&scene.s->armed), 0);
	order_stop(&scene.f);
}

static void
test_a_guard_waits_once_and_for_nothing_after_the_free(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	order_launch(&scene.f, scene.s); /* after the free: may wait for r */
	scene_expose(&scene);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	order_launch(&scene.f, scene.r);
	order_launch(&scene.f, scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	assert_int_equal(atomic_load(&scene.order->counts->waits), 1);
	order_stop(&scene.f);
}

static void
test_a_guard_records_the_mark_of_an_armed_stream(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	scene_expose(&scene);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1);
	order_launch(&scene.f, scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1);
	order_stop(&scene.f);
}

static void
test_a_guard_waits_for_nothing_finished(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	scene_expose(&scene);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	order_launch(&scene.f, scene.r);
	assert_int_equal(scene_driver_calls(&scene.f), 0);
	assert_int_equal(atomic_load(&scene.r->seen),
			 atomic_load(&scene.order->words.exposed_count));
	order_stop(&scene.f);
}

static void
waits_between(enum ca_stream_kind s, enum ca_stream_kind r, unsigned waits)
{
	struct scene scene;

	scene.order = order_start(&scene.f);
	scene.s = order_open_kind(&scene.f, 0, s);
	scene.r = order_open_kind(&scene.f, 1, r);
	scene_free_memory(&scene);
	order_launch(&scene.f, scene.s);
	scene_expose(&scene);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), waits);
	order_stop(&scene.f);
}

static void
test_the_driver_orders_the_legacy_and_the_blocking_streams(void **state)
{
	waits_between(CA_STREAM_LEGACY, CA_STREAM_BLOCKING, 0);
	waits_between(CA_STREAM_BLOCKING, CA_STREAM_LEGACY, 0);
	waits_between(CA_STREAM_LEGACY, CA_STREAM_PER_THREAD, 0);
	waits_between(CA_STREAM_LEGACY, CA_STREAM_NONBLOCKING, 1);
	waits_between(CA_STREAM_NONBLOCKING, CA_STREAM_LEGACY, 1);
	waits_between(CA_STREAM_BLOCKING, CA_STREAM_BLOCKING, 1);
	waits_between(CA_STREAM_PER_THREAD, CA_STREAM_BLOCKING, 1);
}

static void
test_a_copy_that_touches_nothing_of_ours_is_not_guarded_and_publishes_nothing(void **state)
{
	struct ca_touch nothing = { 0 };
	struct scene scene;

	scene_of_two(&scene);
	scene_expose(&scene);
	order_launch_touching(&scene.f, scene.r, &nothing);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 0);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	order_launch_touching(&scene.f, scene.s, &nothing); /* s was armed, and is marked */
	assert_int_equal(atomic_load(&scene.s->armed), 0);
	order_stop(&scene.f);
}

static void
test_a_copy_publishes_when_nothing_was_exempt(void **state)
{
	struct ca_touch nothing = { 0 };
	struct scene scene;

	scene_of_two(&scene);
	scene_expose(&scene);
	order_launch(&scene.f, scene.r);
	ca_order_expose(scene.order, &scene.user);
	order_launch_touching(&scene.f, scene.r, &nothing);
	assert_int_equal(atomic_load(&scene.r->seen),
			 atomic_load(&scene.order->words.exposed_count));
	order_stop(&scene.f);
}

static void
test_a_submission_that_reaches_another_space_comes_after_what_is_exposed_there(void **state)
{
	struct scene scene;
	struct ca_space *other;
	struct ca_stream *r;

	scene_of_one(&scene);
	scene_expose(&scene);
	assert_int_equal(ca_space_create(scene.f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_stream_open(other, CA_STREAM_BLOCKING, HANDLE(1), true, &r), 0);
	ca_submit_begin(r, NULL);
	assert_int_equal(order_behind(&scene.f, r, 0), 0);
	ca_submit_guard_other(r, scene.f.space, NULL);
	assert_int_equal(order_behind(&scene.f, r, 0), scene.work);
	ca_submit_guard_other(r, scene.f.space, NULL);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	order_stop(&scene.f);
}

/* A block of the scene's space that was handed out unfinished. */
static uint64_t
inherited_block(struct scene *scene)
{
	uint64_t address;

	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	address = fixture_alloc(&scene->f, 20 * MIB);
	scene->work = order_launch(&scene->f, scene->s);
	fixture_free(&scene->f, address);
	assert_int_equal(fixture_alloc(&scene->f, 20 * MIB), address);
	return address;
}

static void
test_a_copy_of_another_space_waits_only_for_users_of_what_it_names(void **state)
{
	struct ca_touch touch = { .n = 1 };
	uint64_t innocent, address;
	struct ca_space *other;
	struct ca_stream *r;
	struct scene scene;

	address = inherited_block(&scene);
	innocent = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_equal(ca_space_create(scene.f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_stream_open(other, CA_STREAM_BLOCKING, HANDLE(1), true, &r), 0);
	touch.range[0].bytes = 4096;
	touch.range[0].address = innocent;
	ca_submit_guard_other(r, scene.f.space, &touch);
	assert_int_equal(order_behind(&scene.f, r, 0), 0);
	touch.range[0].address = address + 4096;
	ca_submit_guard_other(r, scene.f.space, &touch);
	assert_int_equal(order_behind(&scene.f, r, 0), scene.work);
	fixture_stop(&scene.f);
}

static void
test_finished_marks_are_dropped(void **state)
{
	struct scene scene;
	unsigned i;

	scene_of_two(&scene);
	for (i = 0; i < 10; i++) {
		scene_free_memory(&scene);
		order_launch(&scene.f, scene.s);
	}
	assert_true(fixture_sums(&scene.f).marks >= 10);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	assert_int_equal(fixture_sums(&scene.f).marks, 0);
	order_stop(&scene.f);
}

/* ---- failure */

static struct ca_stats
stats(struct scene *scene)
{
	return fixture_stats(&scene->f);
}

/* Whatever fails: when the guard returns, the work is done, or waited for on the device. */
static void
guard_with_failure(const enum ca_model_function *failing, unsigned n, int code)
{
	struct scene scene;
	unsigned i;

	scene_of_two(&scene);
	scene_expose(&scene);
	for (i = 0; i < n; i++)
		ca_model_fail(scene.f.model, failing[i], 1, true, code);
	order_launch(&scene.f, scene.r);
	assert_true(order_behind(&scene.f, scene.r, 0) >= scene.work);
	assert_true(ca_user_is_done(&scene.user));
	assert_int_equal(stats(&scene).host_syncs, 1);
	assert_false(scene.f.space->poisoned);
	ca_model_fail(scene.f.model, failing[0], 0, false, 0);
	order_stop(&scene.f);
}

static void
test_where_the_device_cannot_wait_the_host_does(void **state)
{
	const enum ca_model_function mark[] = { CA_MODEL_STREAM_MARK };
	const enum ca_model_function wait[] = { CA_MODEL_STREAM_WAIT };

	guard_with_failure(mark, 1, 700);
	guard_with_failure(mark, 1, -EBUSY);
	guard_with_failure(mark, 1, -ENOTSUP);
	guard_with_failure(wait, 1, 700);
	guard_with_failure(wait, 1, -EBUSY);
}

struct plan {
	struct ca_model *model;
	unsigned failing; /* bits of enum ca_model_function */
	int code;
};

static struct plan plan;

/* A driver of which any set of functions fails. */
#define FAILING(function, name, parameters, arguments)                                             \
	static int(*real_##name) parameters;                                                       \
	static int failing_##name parameters                                                       \
	{                                                                                          \
		return plan.failing & 1u << (function) ? plan.code : real_##name arguments;        \
	}
FAILING(CA_MODEL_STREAM_MARK, stream_mark, (void *self, void *c, void *s, ca_mark *m),
	(self, c, s, m))
FAILING(CA_MODEL_STREAM_WAIT, stream_wait, (void *self, void *c, void *s, ca_mark m),
	(self, c, s, m))
FAILING(CA_MODEL_STREAM_SYNCHRONIZE, stream_synchronize, (void *self, void *c, void *s),
	(self, c, s))
FAILING(CA_MODEL_WAIT, mark_wait, (void *self, ca_mark m), (self, m))
FAILING(CA_MODEL_QUERY, mark_query, (void *self, ca_mark m), (self, m))
FAILING(CA_MODEL_CONTEXT_SYNCHRONIZE, context_synchronize, (void *self, void *c), (self, c))

static void
failing_scene(struct scene *scene)
{
	struct ca_driver *driver;

	plan.failing = 0;
	scene_of_two(scene);
	driver = &scene->f.heap->driver;
#define REPLACE(name) (real_##name = driver->name, driver->name = failing_##name)
	REPLACE(stream_mark);
	REPLACE(stream_wait);
	REPLACE(stream_synchronize);
	REPLACE(mark_wait);
	REPLACE(mark_query);
	REPLACE(context_synchronize);
}

static void
test_no_set_of_failures_lets_a_submission_go_unordered_unless_all_fail(void **state)
{
	const unsigned bits[] = { CA_MODEL_STREAM_MARK, CA_MODEL_STREAM_WAIT,
				  CA_MODEL_STREAM_SYNCHRONIZE, CA_MODEL_WAIT,
				  CA_MODEL_CONTEXT_SYNCHRONIZE };
	const int codes[] = { 700, -EIO, -EBUSY };
	unsigned set, i, code, marked;
	struct scene scene;

	for (code = 0; code < 3; code++)
		for (set = 0; set < 64; set++) {
			failing_scene(&scene);
			marked = set & 32;
			if (marked)
				order_launch(&scene.f, scene.s);
			scene_expose(&scene);
			plan.code = codes[code];
			for (i = 0; i < 5; i++)
				if (set & 1u << i)
					plan.failing |= 1u << bits[i];
			ca_submit_begin(scene.r, NULL);
			if (order_behind(&scene.f, scene.r, 0) < scene.work) {
				/* nothing worked */
				assert_int_equal(set & 28 & ~(marked ? 0 : 8u), marked ? 28 : 20);
				assert_true(set & 3);
				assert_int_equal(scene.f.space->poisoned, codes[code] != -EBUSY);
				assert_int_not_equal(
					atomic_load(&scene.r->seen),
					atomic_load(&scene.order->words.exposed_count));
			} else {
				assert_false(scene.f.space->poisoned);
			}
			plan.failing = 0;
			order_stop(&scene.f);
		}
}

static void
test_a_capture_in_the_way_of_a_mark_ends_exactness_not_safety(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	ca_model_set_capturing(scene.f.model, true);
	order_launch(&scene.f, scene.s); /* cannot be marked before */
	ca_model_set_capturing(scene.f.model, false);
	assert_int_not_equal(atomic_load(&scene.s->armed), 0);
	assert_false(atomic_load(&order_record(scene.s)->lost));
	assert_false(order_may_expose(scene.order, &scene.user));
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), -EAGAIN);
	order_launch(&scene.f, scene.s);
	assert_int_equal(atomic_load(&scene.s->armed), 0);
	ca_model_stream_finish(scene.f.model, HANDLE(0), UINT64_MAX);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_true(ca_user_is_done(&scene.user));
	scene_free_memory(&scene);
	assert_true(order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

static void
test_guards_go_on_in_a_capture(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	order_launch(&scene.f, scene.s);
	scene_expose(&scene);
	ca_model_set_capturing(scene.f.model, true);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	order_stop(&scene.f);
}

static void *
expose_own(void *arg)
{
	struct scene *scene = arg;

	ca_model_stream_set_private(scene->f.model, HANDLE(0));
	scene->s = order_open_kind(&scene->f, 0, CA_STREAM_PER_THREAD);
	scene_free_memory(scene);
	scene_expose(scene);
	return NULL;
}

/* It was exposed while its stream was alone. In the capture no mark of it can be had, and the host
 * cannot wait for the context. */
static void
test_a_submission_in_a_capture_comes_after_what_is_exposed_of_anothers_own_stream(void **state)
{
	struct scene scene;
	pthread_t thread;

	scene.order = order_start(&scene.f);
	assert_int_equal(pthread_create(&thread, NULL, expose_own, &scene), 0);
	pthread_join(thread, NULL);
	scene.r = order_open(&scene.f, 1);
	ca_order_mark_before_capture(scene.f.heap);
	ca_model_set_capturing(scene.f.model, true);
	order_launch(&scene.f, scene.r);
	assert_true(order_behind(&scene.f, scene.r, 0) >= scene.work);
	order_stop(&scene.f);
}

/* ---- polling and waiting */

static void
test_a_poll_asks_the_oldest_first_and_marks_what_is_armed(void **state)
{
	struct scene scene;
	struct ca_user first;

	scene_of_two(&scene);
	first = scene.user;
	order_launch(&scene.f, scene.s);
	scene_free_memory(&scene);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_QUERY), 1);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1);
	ca_model_stream_finish(scene.f.model, HANDLE(0), 1);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_true(ca_user_is_done(&first));
	assert_false(ca_user_is_done(&scene.user));
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 2); /* s is armed */
	ca_model_stream_finish(scene.f.model, HANDLE(0), UINT64_MAX);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_true(ca_user_is_done(&scene.user));
	assert_int_equal(fixture_sums(&scene.f).marks, 0);
	order_stop(&scene.f);
}

static void
test_a_poll_that_fails_loses_the_stream_and_says_so(void **state)
{
	struct scene scene;

	failing_scene(&scene);
	order_launch(&scene.f, scene.s);
	plan.failing = 1u << CA_MODEL_QUERY;
	plan.code = -EBUSY;
	assert_int_equal(ca_order_poll(scene.f.space), -EBUSY);
	assert_false(atomic_load(&order_record(scene.s)->lost));
	plan.code = 700;
	assert_int_equal(ca_order_poll(scene.f.space), 700);
	assert_true(order_free(&scene.f, scene.birth).context);
	assert_false(ca_user_is_done(&scene.user));
	order_stop(&scene.f);
}

static void
test_a_wait_is_for_exactly_the_user(void **state)
{
	struct scene scene;
	struct ca_user first;

	scene_of_two(&scene);
	first = scene.user;
	order_launch(&scene.f, scene.s);
	scene_free_memory(&scene);
	assert_int_equal(ca_order_wait(scene.f.space, &first), 0);
	assert_int_equal(ca_model_stream_finished(scene.f.model, HANDLE(0)), 1);
	assert_true(ca_user_is_done(&first));
	assert_false(ca_user_is_done(&scene.user));
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), 0); /* marks it first */
	assert_true(ca_user_is_done(&scene.user));
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), 0);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_WAIT), 2);
	order_stop(&scene.f);
}

static void
test_a_wait_that_fails_reports_the_error(void **state)
{
	struct scene scene;

	failing_scene(&scene);
	plan.failing = 1u << CA_MODEL_STREAM_MARK;
	plan.code = 1;
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), 1);
	assert_true(atomic_load(&order_record(scene.s)->lost));
	plan.failing = 0;
	order_stop(&scene.f);
	failing_scene(&scene);
	order_launch(&scene.f, scene.s);
	plan.failing = 1u << CA_MODEL_WAIT;
	plan.code = -EBUSY;
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), -EBUSY);
	plan.failing = 0;
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), 0);
	order_stop(&scene.f);
}

static void
test_settling_ends_every_exposure_there_is(void **state)
{
	struct scene scene;

	scene_of_one(&scene);
	scene_expose(&scene);
	order_launch(&scene.f, scene.s);
	ca_order_settle_exposed(scene.f.heap, NULL);
	assert_true(ca_user_is_done(&scene.user));
	assert_int_equal(stats(&scene).settles, 1);
	ca_order_settle_exposed(scene.f.heap, scene.f.space);
	assert_int_equal(stats(&scene).settles, 1);
	order_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_mark_serves_all_frees_before_a_submission),
		cmocka_unit_test(test_a_finished_stream_needs_no_mark),
		cmocka_unit_test(test_a_guard_waits_once_and_for_nothing_after_the_free),
		cmocka_unit_test(test_a_guard_records_the_mark_of_an_armed_stream),
		cmocka_unit_test(test_a_guard_waits_for_nothing_finished),
		cmocka_unit_test(test_the_driver_orders_the_legacy_and_the_blocking_streams),
		cmocka_unit_test(
			test_a_copy_that_touches_nothing_of_ours_is_not_guarded_and_publishes_nothing),
		cmocka_unit_test(test_a_copy_publishes_when_nothing_was_exempt),
		cmocka_unit_test(
			test_a_submission_that_reaches_another_space_comes_after_what_is_exposed_there),
		cmocka_unit_test(
			test_a_copy_of_another_space_waits_only_for_users_of_what_it_names),
		cmocka_unit_test(test_finished_marks_are_dropped),
		cmocka_unit_test(test_where_the_device_cannot_wait_the_host_does),
		cmocka_unit_test(
			test_no_set_of_failures_lets_a_submission_go_unordered_unless_all_fail),
		cmocka_unit_test(test_a_capture_in_the_way_of_a_mark_ends_exactness_not_safety),
		cmocka_unit_test(test_guards_go_on_in_a_capture),
		cmocka_unit_test(
			test_a_submission_in_a_capture_comes_after_what_is_exposed_of_anothers_own_stream),
		cmocka_unit_test(test_a_poll_asks_the_oldest_first_and_marks_what_is_armed),
		cmocka_unit_test(test_a_poll_that_fails_loses_the_stream_and_says_so),
		cmocka_unit_test(test_a_wait_is_for_exactly_the_user),
		cmocka_unit_test(test_a_wait_that_fails_reports_the_error),
		cmocka_unit_test(test_settling_ends_every_exposure_there_is),
	};

	return cmocka_run_group_tests_name("allocator-order-guard", tests, NULL, NULL);
}
