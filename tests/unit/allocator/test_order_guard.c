/* SPDX-License-Identifier: MIT */
/* Quiet spaces, exposure, marks, the guard, polling and waiting. */
#include "tests/unit/allocator/order_fixture.h"

#include <pthread.h>

/* A scene: s has freed memory at `user`, after `work`. */
struct scene {
	struct fixture f;
	struct ca_order *order;
	struct ca_stream *s, *r;
	struct ca_user user;
	uint64_t born, work;
};

static void
free_memory(struct scene *scene)
{
	struct ca_users users;

	scene->born = ca_order_born(scene->order);
	scene->work = order_launch(&scene->f, scene->s);
	users = order_free(&scene->f, scene->born);
	assert_int_equal(users.n, 1);
	assert_false(users.context);
	scene->user = users.user[0];
}

static void
expose(struct scene *scene)
{
	assert_true(ca_order_may_expose(scene->order, &scene->user));
	ca_order_expose(scene->order, &scene->user);
}

/* One stream. */
static void
quiet_scene(struct scene *scene)
{
	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	scene->r = NULL;
	free_memory(scene);
}

/* Two streams, and s freed memory afterwards. */
static void
scene_of_two(struct scene *scene)
{
	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	scene->r = order_open(&scene->f, 1);
	free_memory(scene);
}

static uint64_t
driver_calls(struct fixture *f)
{
	return order_calls(f, CA_MODEL_STREAM_MARK) + order_calls(f, CA_MODEL_STREAM_WAIT) +
	       order_calls(f, CA_MODEL_STREAM_SYNCHRONIZE) + order_calls(f, CA_MODEL_QUERY) +
	       order_calls(f, CA_MODEL_WAIT) + order_calls(f, CA_MODEL_SYNCHRONIZE) +
	       order_calls(f, CA_MODEL_RECORD);
}

/* ---- quiet */

static void
test_a_quiet_space_calls_no_driver(void **state)
{
	struct scene scene;
	unsigned i;

	quiet_scene(&scene);
	assert_true(ca_order_is_quiet(scene.order));
	for (i = 0; i < 100; i++) {
		free_memory(&scene);
		assert_ptr_equal(ca_order_only_stream(scene.order), order_record(scene.s));
		expose(&scene);
	}
	assert_int_equal(driver_calls(&scene.f), 0);
	assert_int_equal(atomic_load(&scene.s->armed), 0);
	order_stop(&scene.f);
}

static void
test_a_second_stream_ends_the_quiet_and_comes_after_what_is_exposed(void **state)
{
	struct scene scene;
	uint64_t later;

	quiet_scene(&scene);
	expose(&scene);
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

/* Whatever was submitted between such a free and the second stream may wait for that stream. */
static void
test_memory_freed_in_a_quiet_space_is_not_exposed_later(void **state)
{
	struct scene scene;

	quiet_scene(&scene);
	order_launch(&scene.f, scene.s);
	scene.r = order_open(&scene.f, 1);
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), -EAGAIN);
	free_memory(&scene);
	assert_true(ca_order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

static void
test_a_ghosts_memory_in_a_quiet_space_is_guarded(void **state)
{
	struct scene scene;

	quiet_scene(&scene);
	expose(&scene);
	ca_stream_close(scene.s, false);
	assert_true(ca_order_is_quiet(scene.order));
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	scene.r = order_open(&scene.f, 1);
	assert_true(ca_order_is_quiet(scene.order));
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	ca_order_expose(scene.order, &scene.user); /* and once more */
	assert_int_not_equal(atomic_load(&scene.r->seen),
			     atomic_load(&scene.order->words.exposures));
	order_stop(&scene.f);
}

static void
test_an_operation_that_somebody_else_ends_is_a_user_of_everything(void **state)
{
	struct scene scene;
	struct ca_users users;
	uint64_t born;

	quiet_scene(&scene);
	expose(&scene);
	ca_submit_hazard_begin(scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1); /* before it */
	order_launch(&scene.f, scene.s);
	ca_submit_hazard(scene.s);
	assert_false(ca_order_is_quiet(scene.order));
	assert_ptr_equal(ca_order_only_stream(scene.order), NULL);
	born = ca_order_born(scene.order);
	users = order_free(&scene.f, born);
	assert_int_equal(users.n, 1);
	assert_false(ca_order_may_expose(scene.order, &users.user[0]));
	scene.r = order_open(&scene.f, 1);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work); /* not the operation */
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	assert_ptr_equal(order_free(&scene.f, born).user[0].stream, scene.r);
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
	assert_true(ca_order_may_expose(scene.order, &scene.user));
	ca_submit_hazard_begin(scene.s);
	order_launch(&scene.f, scene.s);
	ca_submit_hazard(scene.s);
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	free_memory(&scene);
	assert_true(ca_order_may_expose(scene.order, &scene.user));
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
	assert_true(ca_order_may_expose(scene.order, &scene.user));
	in_thread(submit_elsewhere, &scene);
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	ca_stream_close(scene.r, false);
	free_memory(&scene);
	assert_true(ca_order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

static void *
ask_elsewhere(void *arg)
{
	struct scene *scene = arg;

	return ca_order_may_expose(scene->order, &scene->user) ? arg : NULL;
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
	free_memory(&scene);
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	order_launch(&scene.f, scene.s);
	assert_true(ca_order_may_expose(scene.order, &scene.user));
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
	free_memory(&scene);
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

/* A launch that overtakes its predecessor must not overtake the block's last user. */
static void
test_a_programmatic_launch_is_serialized_once(void **state)
{
	struct scene scene;

	quiet_scene(&scene);
	assert_false(ca_submit_must_serialize(scene.s));
	expose(&scene);
	assert_true(ca_submit_must_serialize(scene.s));
	assert_true(ca_submit_must_serialize(scene.s));
	ca_order_expose(scene.order, &scene.user); /* while the launch goes on */
	ca_submit_serialized(scene.s);
	assert_true(ca_submit_must_serialize(scene.s));
	ca_submit_serialized(scene.s);
	assert_false(ca_submit_must_serialize(scene.s));
	order_stop(&scene.f);
}

/* ---- marks and the guard */

static void
test_one_mark_serves_all_frees_before_a_submission(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	order_free(&scene.f, scene.born);
	order_free(&scene.f, scene.born);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 0);
	order_launch(&scene.f, scene.s);
	order_launch(&scene.f, scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 1);
	assert_int_equal(atomic_load(&scene.order->marks), 1);
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
	expose(&scene);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	order_launch(&scene.f, scene.r);
	order_launch(&scene.f, scene.s);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	assert_int_equal(atomic_load(&scene.order->waits), 1);
	order_stop(&scene.f);
}

static void
test_a_guard_records_the_mark_of_an_armed_stream(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	expose(&scene);
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
	expose(&scene);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	order_launch(&scene.f, scene.r);
	assert_int_equal(driver_calls(&scene.f), 0);
	assert_int_equal(atomic_load(&scene.r->seen), atomic_load(&scene.order->words.exposures));
	order_stop(&scene.f);
}

static void
waits_between(enum ca_stream_kind s, enum ca_stream_kind r, unsigned waits)
{
	struct scene scene;

	scene.order = order_start(&scene.f);
	scene.s = order_open_kind(&scene.f, 0, s);
	scene.r = order_open_kind(&scene.f, 1, r);
	free_memory(&scene);
	order_launch(&scene.f, scene.s);
	expose(&scene);
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
	expose(&scene);
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
	expose(&scene);
	order_launch(&scene.f, scene.r);
	ca_order_expose(scene.order, &scene.user);
	order_launch_touching(&scene.f, scene.r, &nothing);
	assert_int_equal(atomic_load(&scene.r->seen), atomic_load(&scene.order->words.exposures));
	order_stop(&scene.f);
}

static void
test_a_submission_that_reaches_another_space_comes_after_what_is_exposed_there(void **state)
{
	struct scene scene;
	struct ca_space *other;
	struct ca_stream *r;

	quiet_scene(&scene);
	expose(&scene);
	assert_int_equal(ca_space_create(scene.f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_stream_open(other, CA_STREAM_BLOCKING, HANDLE(1), true, &r), 0);
	ca_submit_begin(r, NULL);
	assert_int_equal(order_behind(&scene.f, r, 0), 0);
	ca_submit_guard_other(r, scene.f.space);
	assert_int_equal(order_behind(&scene.f, r, 0), scene.work);
	ca_submit_guard_other(r, scene.f.space);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	order_stop(&scene.f);
}

static void
test_finished_marks_are_dropped(void **state)
{
	struct scene scene;
	unsigned i;

	scene_of_two(&scene);
	for (i = 0; i < 10; i++) {
		free_memory(&scene);
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
	expose(&scene);
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
FAILING(CA_MODEL_SYNCHRONIZE, synchronize, (void *self, void *c), (self, c))

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
	REPLACE(synchronize);
}

static void
test_no_set_of_failures_lets_a_submission_go_unordered_unless_all_fail(void **state)
{
	const unsigned bits[] = { CA_MODEL_STREAM_MARK, CA_MODEL_STREAM_WAIT,
				  CA_MODEL_STREAM_SYNCHRONIZE, CA_MODEL_WAIT,
				  CA_MODEL_SYNCHRONIZE };
	const int codes[] = { 700, -EIO, -EBUSY };
	unsigned set, i, code, marked;
	struct scene scene;

	for (code = 0; code < 3; code++)
		for (set = 0; set < 64; set++) {
			failing_scene(&scene);
			marked = set & 32;
			if (marked)
				order_launch(&scene.f, scene.s);
			expose(&scene);
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
				assert_int_not_equal(atomic_load(&scene.r->seen),
						     atomic_load(&scene.order->words.exposures));
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
	assert_false(ca_order_may_expose(scene.order, &scene.user));
	assert_int_equal(ca_order_wait(scene.f.space, &scene.user), -EAGAIN);
	order_launch(&scene.f, scene.s);
	assert_int_equal(atomic_load(&scene.s->armed), 0);
	ca_model_stream_finish(scene.f.model, HANDLE(0), UINT64_MAX);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_true(ca_user_is_done(&scene.user));
	free_memory(&scene);
	assert_true(ca_order_may_expose(scene.order, &scene.user));
	order_stop(&scene.f);
}

static void
test_guards_go_on_in_a_capture(void **state)
{
	struct scene scene;

	scene_of_two(&scene);
	order_launch(&scene.f, scene.s);
	expose(&scene);
	ca_model_set_capturing(scene.f.model, true);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
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
	free_memory(&scene);
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
	assert_true(order_free(&scene.f, scene.born).context);
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
	free_memory(&scene);
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

	quiet_scene(&scene);
	expose(&scene);
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
		cmocka_unit_test(test_a_quiet_space_calls_no_driver),
		cmocka_unit_test(
			test_a_second_stream_ends_the_quiet_and_comes_after_what_is_exposed),
		cmocka_unit_test(test_memory_freed_in_a_quiet_space_is_not_exposed_later),
		cmocka_unit_test(test_a_ghosts_memory_in_a_quiet_space_is_guarded),
		cmocka_unit_test(test_an_operation_that_somebody_else_ends_is_a_user_of_everything),
		cmocka_unit_test(test_nothing_of_a_stream_that_somebody_else_must_end_is_exposed),
		cmocka_unit_test(test_nothing_is_exposed_while_another_thread_submits),
		cmocka_unit_test(
			test_a_threads_own_stream_is_exposed_to_itself_and_with_a_mark_only),
		cmocka_unit_test(test_finished_reuse_exposes_nothing),
		cmocka_unit_test(test_a_programmatic_launch_is_serialized_once),
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
		cmocka_unit_test(test_finished_marks_are_dropped),
		cmocka_unit_test(test_where_the_device_cannot_wait_the_host_does),
		cmocka_unit_test(
			test_no_set_of_failures_lets_a_submission_go_unordered_unless_all_fail),
		cmocka_unit_test(test_a_capture_in_the_way_of_a_mark_ends_exactness_not_safety),
		cmocka_unit_test(test_guards_go_on_in_a_capture),
		cmocka_unit_test(test_a_poll_asks_the_oldest_first_and_marks_what_is_armed),
		cmocka_unit_test(test_a_poll_that_fails_loses_the_stream_and_says_so),
		cmocka_unit_test(test_a_wait_is_for_exactly_the_user),
		cmocka_unit_test(test_a_wait_that_fails_reports_the_error),
		cmocka_unit_test(test_settling_ends_every_exposure_there_is),
	};

	return cmocka_run_group_tests_name("allocator-order-guard", tests, NULL, NULL);
}
