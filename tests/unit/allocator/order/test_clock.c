/* SPDX-License-Identifier: MIT */
/* What events teach, and when they teach nothing. */
#include "tests/unit/allocator/order/fixture.h"

struct scene {
	struct fixture f;
	struct ca_order *order;
	struct ca_stream *s, *r;
	struct ca_event event;
	struct ca_users users; /* s, since its last free */
	uint64_t birth, work;
};

static void
free_memory(struct scene *scene)
{
	scene->birth = ca_order_birth(scene->order);
	scene->work = order_launch(&scene->f, scene->s);
	scene->users = order_free(&scene->f, scene->birth);
	assert_int_equal(scene->users.n, 1);
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
finish(struct ca_event *event)
{
	uint64_t seen;

	seen = ca_event_look(event);
	ca_event_finished(event, seen);
}

static bool
is_guarded(struct scene *scene, struct ca_stream *stream)
{
	uint64_t waits = order_calls(&scene->f, CA_MODEL_STREAM_WAIT);

	ca_order_expose(scene->order, &scene->users.user[0]);
	order_launch(&scene->f, stream);
	return order_calls(&scene->f, CA_MODEL_STREAM_WAIT) > waits;
}

static void
test_a_stream_that_waited_for_the_program_event_needs_no_guard(void **state)
{
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	order_event_wait(&scene.event, scene.r);
	assert_false(is_guarded(&scene, scene.r));
	free_memory(&scene); /* after the record */
	assert_true(is_guarded(&scene, scene.r));
	order_stop(&scene.f);
}

static void
test_what_a_stream_waited_for_is_passed_on(void **state)
{
	struct ca_event second = { 0 };
	struct ca_stream *q;
	struct scene scene;

	scene_start(&scene);
	q = order_open(&scene.f, 2);
	order_event_record(&scene.event, scene.s);
	order_event_wait(&scene.event, scene.r);
	order_event_record(&second, scene.r);
	order_event_wait(&second, q);
	assert_false(is_guarded(&scene, q));
	order_stop(&scene.f);
}

static void
test_a_wait_after_the_record_is_not_part_of_the_event(void **state)
{
	struct ca_event second = { 0 };
	uint64_t begun;
	struct ca_stream *q;
	struct scene scene;

	scene_start(&scene);
	q = order_open(&scene.f, 2);
	order_event_record(&scene.event, scene.s);
	begun = ca_event_record_begin(&second, scene.r);
	order_event_wait(&scene.event, scene.r); /* another thread's, later than the real record */
	ca_event_record_end(&second, begun, true);
	order_event_wait(&second, q);
	assert_true(is_guarded(&scene, q));
	order_stop(&scene.f);
}

static void
test_a_finished_event_finishes_its_stream_and_what_that_came_after(void **state)
{
	struct ca_event second = { 0 };
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	order_event_wait(&scene.event, scene.r);
	order_launch(&scene.f, scene.r);
	order_event_record(&second, scene.r);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	finish(&second);
	assert_true(ca_user_is_done(&scene.users.user[0]));
	assert_int_equal(order_free(&scene.f, scene.birth).n, 0);
	order_stop(&scene.f);
}

static void
test_an_event_covers_nothing_after_its_record_began(void **state)
{
	uint64_t begun;
	struct scene scene;

	scene_start(&scene);
	begun = ca_event_record_begin(&scene.event, scene.s);
	order_launch(&scene.f, scene.s);
	ca_event_record_end(&scene.event, begun, true);
	finish(&scene.event);
	assert_true(ca_user_is_done(&scene.users.user[0]));
	assert_int_equal(order_free(&scene.f, scene.birth).n, 1);
	order_stop(&scene.f);
}

static void
test_an_event_that_was_never_recorded_teaches_nothing(void **state)
{
	struct scene scene;

	scene_start(&scene);
	finish(&scene.event);
	order_event_wait(&scene.event, scene.r);
	assert_true(is_guarded(&scene, scene.r));
	assert_false(ca_user_is_done(&scene.users.user[0]));
	order_stop(&scene.f);
}

static void
test_a_failed_record_teaches_nothing(void **state)
{
	uint64_t begun;
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	begun = ca_event_record_begin(&scene.event, scene.s);
	ca_event_record_end(&scene.event, begun, false);
	finish(&scene.event);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	order_stop(&scene.f);
}

static void
test_an_event_that_was_forgotten_teaches_nothing(void **state)
{
	uint64_t begun;
	uint64_t seen;
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	seen = ca_event_look(&scene.event);
	ca_event_forget(&scene.event);
	ca_event_finished(&scene.event, seen);
	finish(&scene.event);
	begun = ca_event_record_begin(&scene.event, scene.s);
	ca_event_forget(&scene.event);
	ca_event_record_end(&scene.event, begun, true);
	finish(&scene.event);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	order_event_record(&scene.event, scene.s); /* and is an event again */
	finish(&scene.event);
	assert_true(ca_user_is_done(&scene.users.user[0]));
	order_stop(&scene.f);
}

/* Between look and look again the event was recorded anew, or begins to be. */
static void
test_an_event_recorded_meanwhile_teaches_nothing(void **state)
{
	uint64_t begun;
	uint64_t seen;
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	seen = ca_event_look(&scene.event);
	order_event_record(&scene.event, scene.r);
	ca_event_waited(&scene.event, seen, scene.r);
	ca_event_finished(&scene.event, seen);
	order_event_record(&scene.event, scene.s);
	seen = ca_event_look(&scene.event);
	begun = ca_event_record_begin(&scene.event, scene.r);
	ca_event_finished(&scene.event, seen);
	finish(&scene.event);
	ca_event_record_end(&scene.event, begun, true);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	assert_true(is_guarded(&scene, scene.r));
	order_stop(&scene.f);
}

/* Which of two records at the same time the driver did last, we cannot know: neither is believed.
 */
static void
test_of_two_records_at_once_neither_is_believed(void **state)
{
	uint64_t first, second;
	struct scene scene;

	scene_start(&scene);
	first = ca_event_record_begin(&scene.event, scene.s);
	second = ca_event_record_begin(&scene.event, scene.r);
	ca_event_record_end(&scene.event, first, true);
	finish(&scene.event);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	ca_event_record_end(&scene.event, second, true);
	finish(&scene.event);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	first = ca_event_record_begin(&scene.event, scene.s);
	second = ca_event_record_begin(&scene.event, scene.r);
	ca_event_record_end(&scene.event, second, true);
	ca_event_record_end(&scene.event, first, true); /* too late */
	finish(&scene.event);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	/* the driver may have done the first one's work last */
	first = ca_event_record_begin(&scene.event, scene.r);
	second = ca_event_record_begin(&scene.event, scene.s);
	ca_event_record_end(&scene.event, second, true);
	finish(&scene.event);
	assert_false(ca_user_is_done(&scene.users.user[0]));
	ca_event_record_end(&scene.event, first, true);
	/* and the next, alone, is believed */
	order_event_record(&scene.event, scene.s);
	finish(&scene.event);
	assert_true(ca_user_is_done(&scene.users.user[0]));
	order_stop(&scene.f);
}

/* A thread that found itself alone is overtaken by another before it takes its sequence: the same
 * as if it had the later one. Whichever ends first, nothing is learned. */
static void
test_a_record_overtaken_while_it_begins_leaves_none(void **state)
{
	uint64_t first, second;
	struct scene scene;
	unsigned order;

	for (order = 0; order < 2; order++) {
		scene_start(&scene);
		(void)ca_event_record_begin(&scene.event, scene.s);
		second = ca_event_record_begin(&scene.event, scene.r);
		first = atomic_load(&scene.event.sequence);
		if (order)
			ca_event_record_end(&scene.event, second, true);
		ca_event_record_end(&scene.event, first, true);
		finish(&scene.event);
		assert_false(ca_user_is_done(&scene.users.user[0]));
		if (!order)
			ca_event_record_end(&scene.event, second, true);
		order_event_record(&scene.event, scene.s);
		finish(&scene.event);
		assert_true(ca_user_is_done(&scene.users.user[0]));
		order_stop(&scene.f);
	}
}

static void
test_nothing_is_learned_across_spaces(void **state)
{
	struct scene scene;
	struct ca_space *other;
	struct ca_stream *q;

	scene_start(&scene);
	assert_int_equal(ca_space_create(scene.f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_stream_open(other, CA_STREAM_BLOCKING, HANDLE(5), true, &q), 0);
	order_event_record(&scene.event, scene.s);
	order_event_wait(&scene.event, q);
	ca_order_expose(scene.order, &scene.users.user[0]);
	ca_submit_guard_other(q, scene.f.space, NULL);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	order_stop(&scene.f);
}

/* More streams than an event has parts: forgetting costs a wait, nothing else. A stream itself
 * forgets none. */
static void
test_a_forgotten_part_only_costs_a_wait(void **state)
{
	enum { MANY = 3 * CA_EVENT_PARTS };
	struct ca_event event = { 0 };
	struct ca_stream *many[MANY], *q;
	struct scene scene;
	unsigned i;

	memset(&scene, 0, sizeof(scene));
	scene.order = order_start(&scene.f);
	for (i = 0; i < MANY; i++)
		many[i] = order_open(&scene.f, 2 + i);
	scene.s = order_open(&scene.f, 0);
	scene.r = order_open(&scene.f, 1);
	q = order_open(&scene.f, 2 + MANY);
	free_memory(&scene);
	order_event_record(&scene.event, scene.s);
	order_event_wait(&scene.event, scene.r);
	for (i = 0; i < MANY; i++) {
		order_launch(&scene.f, many[i]);
		order_event_record(&event, many[i]);
		order_event_wait(&event, scene.r);
	}
	order_event_record(&event, scene.r);
	order_event_wait(&event, q);
	assert_false(is_guarded(&scene, scene.r));
	assert_true(is_guarded(&scene, q));
	assert_true(order_behind(&scene.f, q, 0) >= scene.work);
	order_stop(&scene.f);
}

/* The record of a destroyed stream serves another: what was known of the first is not known of it.
 */
static void
test_a_reused_record_inherits_no_order(void **state)
{
	struct scene scene;
	struct ca_stream *again;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	order_event_wait(&scene.event, scene.r);
	ca_model_stream_finish(scene.f.model, HANDLE(0), UINT64_MAX);
	ca_order_finished(scene.s, ca_order_bound(scene.s));
	ca_stream_close(scene.s, false);
	again = order_open(&scene.f, 0);
	assert_ptr_equal(again, scene.s);
	free_memory(&scene);
	finish(&scene.event); /* of the former stream */
	assert_false(ca_user_is_done(&scene.users.user[0]));
	assert_true(is_guarded(&scene, scene.r));
	assert_int_equal(order_behind(&scene.f, scene.r, 0), scene.work);
	/* and the stream itself comes after nothing: r was ordered, its successor is not */
	ca_stream_close(scene.r, false);
	scene.r = order_open(&scene.f, 2);
	assert_true(is_guarded(&scene, scene.r));
	order_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stream_that_waited_for_the_program_event_needs_no_guard),
		cmocka_unit_test(test_what_a_stream_waited_for_is_passed_on),
		cmocka_unit_test(test_a_wait_after_the_record_is_not_part_of_the_event),
		cmocka_unit_test(
			test_a_finished_event_finishes_its_stream_and_what_that_came_after),
		cmocka_unit_test(test_an_event_covers_nothing_after_its_record_began),
		cmocka_unit_test(test_an_event_that_was_never_recorded_teaches_nothing),
		cmocka_unit_test(test_a_failed_record_teaches_nothing),
		cmocka_unit_test(test_an_event_that_was_forgotten_teaches_nothing),
		cmocka_unit_test(test_an_event_recorded_meanwhile_teaches_nothing),
		cmocka_unit_test(test_of_two_records_at_once_neither_is_believed),
		cmocka_unit_test(test_a_record_overtaken_while_it_begins_leaves_none),
		cmocka_unit_test(test_nothing_is_learned_across_spaces),
		cmocka_unit_test(test_a_forgotten_part_only_costs_a_wait),
		cmocka_unit_test(test_a_reused_record_inherits_no_order),
	};

	return cmocka_run_group_tests_name("allocator-order-event", tests, NULL, NULL);
}
