/* SPDX-License-Identifier: MIT */
/* Users of a freed block that another user has waited for: which of them are dropped. */
#include "tests/unit/allocator/order/fixture.h"

enum { MANY = 30 };

struct scene {
	struct fixture f;
	struct ca_order *order;
	struct ca_stream *s, *r;
	struct ca_event event;
	uint64_t birth;
};

/* A block is born, and s works. */
static void
scene_start(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	scene->r = order_open(&scene->f, 1);
	scene->birth = ca_order_birth(scene->order);
	order_launch(&scene->f, scene->s);
}

static void
order_after(struct ca_stream *first, struct ca_stream *second)
{
	struct ca_event event = { 0 };

	order_event_record(&event, first);
	order_event_wait(&event, second);
}

static bool
has_user(const struct ca_users *users, const struct ca_stream *stream)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		if (users->user[i].stream == stream)
			return true;
	return false;
}

/* The block's users are these two (the second may be NULL), and marks on them will do. */
static void
assert_users(const struct ca_users *users, const struct ca_stream *a, const struct ca_stream *b)
{
	assert_false(users->context);
	assert_int_equal(users->n, b ? 2 : 1);
	assert_true(has_user(users, a));
	assert_true(!b || has_user(users, b));
}

static void
assert_freed(struct scene *scene, const struct ca_stream *a, const struct ca_stream *b)
{
	struct ca_users users = order_free(&scene->f, scene->birth);

	assert_users(&users, a, b);
}

static void
test_a_user_that_another_has_waited_for_is_dropped(void **state)
{
	struct scene scene;

	scene_start(&scene);
	order_after(scene.s, scene.r);
	order_launch(&scene.f, scene.r);
	assert_freed(&scene, scene.r, NULL);
	order_stop(&scene.f);
}

/* As the shim does it: the wait is a submission of its own. */
static void
test_a_wait_with_nothing_behind_it_is_enough(void **state)
{
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	ca_submit_begin(scene.r, NULL);
	ca_submit_end(scene.r);
	order_event_wait(&scene.event, scene.r);
	assert_freed(&scene, scene.r, NULL);
	order_stop(&scene.f);
}

static void
test_work_after_the_event_is_not_waited_for(void **state)
{
	struct scene scene;

	scene_start(&scene);
	order_event_record(&scene.event, scene.s);
	order_launch(&scene.f, scene.s);
	order_event_wait(&scene.event, scene.r);
	order_launch(&scene.f, scene.r);
	assert_freed(&scene, scene.s, scene.r);
	order_stop(&scene.f);
}

/* A bound that covers r's stamp may have been taken before the wait: it says nothing about s. */
static void
test_a_stamp_from_before_the_wait_does_not_stand_for_it(void **state)
{
	struct ca_users users;
	struct scene scene;
	uint64_t bound;

	scene_start(&scene);
	order_launch(&scene.f, scene.r);
	bound = ca_order_bound(scene.r);
	order_after(scene.s, scene.r);
	users = order_free(&scene.f, scene.birth);
	assert_users(&users, scene.s, scene.r);
	ca_order_finished(scene.r, bound);
	assert_false(ca_users_remove_finished(&users));
	order_launch(&scene.f, scene.r); /* and now it does */
	assert_freed(&scene, scene.r, NULL);
	order_stop(&scene.f);
}

/* The second wait taught r of q after r's stamp: that about s stands back, too. It could be kept,
 * but a user too many is safe. */
static void
test_what_was_learned_since_the_stamp_stands_for_nobody(void **state)
{
	struct ca_stream *q;
	struct scene scene;

	scene_start(&scene);
	q = order_open(&scene.f, 2);
	order_launch(&scene.f, q);
	order_launch(&scene.f, scene.r);
	ca_order_bound(scene.r);
	order_after(q, scene.r);
	assert_int_equal(order_free(&scene.f, scene.birth).n, 3);
	order_stop(&scene.f);
}

static void
test_a_user_stands_for_all_through_one_that_it_stands_for(void **state)
{
	struct ca_stream *q, *many[2 * CA_EVENT_PARTS];
	struct scene scene;
	unsigned i;

	scene_start(&scene);
	q = order_open(&scene.f, 2);
	order_after(scene.s, scene.r);
	for (i = 0; i < 2 * CA_EVENT_PARTS; i++) { /* r's events do not name s any more */
		many[i] = order_open(&scene.f, 3 + i);
		order_launch(&scene.f, many[i]);
		order_after(many[i], scene.r);
	}
	order_launch(&scene.f, scene.r);
	order_after(scene.r, q);
	order_launch(&scene.f, q);
	assert_freed(&scene, q, NULL);
	order_stop(&scene.f);
}

/* The same, but that r did nothing since the block was born. */
static void
test_a_user_that_an_event_does_not_name_is_kept(void **state)
{
	struct ca_stream *q, *many[2 * CA_EVENT_PARTS];
	struct scene scene;
	unsigned i;

	scene_start(&scene);
	q = order_open(&scene.f, 2);
	for (i = 0; i < 2 * CA_EVENT_PARTS; i++) {
		many[i] = order_open(&scene.f, 3 + i);
		order_launch(&scene.f, many[i]);
	}
	scene.s = order_open(&scene.f, 3 + i); /* an event names the first ones */
	scene.birth = ca_order_birth(scene.order);
	order_launch(&scene.f, scene.s);
	order_after(scene.s, scene.r);
	for (i = 0; i < 2 * CA_EVENT_PARTS; i++)
		order_after(many[i], scene.r);
	order_after(scene.r, q);
	order_launch(&scene.f, q);
	assert_freed(&scene, scene.s, q);
	order_stop(&scene.f);
}

static void
test_a_stream_that_somebody_else_must_end_is_kept(void **state)
{
	struct scene scene;

	scene_start(&scene);
	ca_submit_hazard_begin(scene.s);
	order_launch(&scene.f, scene.s);
	ca_submit_hazard_end(scene.s, true);
	order_after(scene.s, scene.r);
	order_launch(&scene.f, scene.r);
	assert_freed(&scene, scene.s, scene.r);
	order_stop(&scene.f);
}

static void
test_the_one_that_joins_many_is_the_only_user(void **state)
{
	struct ca_stream *many[MANY];
	struct scene scene;
	unsigned i;

	scene_start(&scene);
	for (i = 0; i < MANY; i++) {
		many[i] = order_open(&scene.f, 2 + i);
		order_after(scene.s, many[i]);
		order_launch(&scene.f, many[i]);
	}
	for (i = 0; i < MANY; i++)
		order_after(many[i], scene.s);
	assert_true(order_free(&scene.f, scene.birth).context); /* s did nothing since */
	order_launch(&scene.f, scene.s);
	assert_freed(&scene, scene.s, NULL);
	order_stop(&scene.f);
}

/* More than are looked at: nobody is forgotten. */
static void
test_more_users_than_are_looked_at_need_a_context_mark(void **state)
{
	struct ca_stream *stream;
	struct scene scene;
	unsigned i;

	scene_start(&scene);
	for (i = 0; i < CA_MODEL_STREAMS; i++) {
		stream = order_open(&scene.f, 2 + i);
		ca_submit_begin(stream, NULL);
		ca_submit_end(stream);
		order_after(stream, scene.r);
	}
	ca_submit_begin(scene.r, NULL);
	ca_submit_end(scene.r);
	assert_true(order_free(&scene.f, scene.birth).context);
	order_stop(&scene.f);
}

static void
test_the_work_of_a_stream_that_is_gone_is_dropped(void **state)
{
	struct scene scene;

	scene_start(&scene);
	order_after(scene.s, scene.r);
	ca_stream_close(scene.s, false);
	assert_freed(&scene, scene.s, NULL);
	order_launch(&scene.f, scene.r);
	assert_freed(&scene, scene.r, NULL);
	order_stop(&scene.f);
}

/* Its mark was recorded behind the wait. */
static void
test_a_stream_that_is_gone_stands_for_others(void **state)
{
	struct ca_users users;
	struct scene scene;
	ca_mark mark;

	scene_start(&scene);
	order_after(scene.s, scene.r);
	assert_int_equal(scene.f.driver.stream_mark(scene.f.model, (void *)1, HANDLE(0), &mark), 0);
	assert_int_equal(scene.f.driver.stream_wait(scene.f.model, (void *)1, HANDLE(1), mark), 0);
	scene.f.driver.mark_drop(scene.f.model, mark);
	order_launch(&scene.f, scene.r);
	ca_stream_close(scene.r, false);
	users = order_free(&scene.f, scene.birth);
	assert_users(&users, scene.r, NULL);
	assert_int_equal(ca_order_wait(scene.f.space, &users.user[0]), 0);
	assert_int_equal(ca_model_stream_finished(scene.f.model, HANDLE(0)), 1);
	order_stop(&scene.f);
}

/* The record of a destroyed stream serves another: that one waited for nobody. */
static void
test_a_reused_record_stands_for_nobody(void **state)
{
	struct ca_stream *again;
	struct scene scene;

	scene_start(&scene);
	order_after(scene.s, scene.r);
	order_launch(&scene.f, scene.r);
	ca_order_finished(scene.r, ca_order_bound(scene.r));
	ca_stream_close(scene.r, false);
	again = order_open(&scene.f, 2);
	assert_ptr_equal(again, scene.r);
	order_launch(&scene.f, again);
	assert_freed(&scene, scene.s, again);
	order_stop(&scene.f);
}

static void
test_an_inherited_user_that_was_waited_for_is_dropped(void **state)
{
	struct ca_users first, second;
	struct scene scene;
	uint64_t birth;

	scene_start(&scene);
	first = order_free(&scene.f, scene.birth);
	birth = ca_order_birth(scene.order);
	order_launch(&scene.f, scene.r);
	ca_order_users(scene.order, birth, &first, &second);
	assert_users(&second, scene.s, scene.r);
	order_after(scene.s, scene.r);
	order_launch(&scene.f, scene.r);
	ca_order_users(scene.order, birth, &first, &second);
	assert_users(&second, scene.r, NULL);
	order_stop(&scene.f);
}

/* r waited for the exposed memory of s by the guard's wait. */
static void
test_the_wait_of_a_guard_counts(void **state)
{
	struct ca_users users;
	struct scene scene;

	scene_start(&scene);
	users = order_free(&scene.f, scene.birth);
	ca_order_expose(scene.order, &users.user[0]);
	order_launch(&scene.f, scene.r);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_WAIT), 1);
	assert_freed(&scene, scene.r, NULL);
	order_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_user_that_another_has_waited_for_is_dropped),
		cmocka_unit_test(test_a_wait_with_nothing_behind_it_is_enough),
		cmocka_unit_test(test_work_after_the_event_is_not_waited_for),
		cmocka_unit_test(test_a_stamp_from_before_the_wait_does_not_stand_for_it),
		cmocka_unit_test(test_what_was_learned_since_the_stamp_stands_for_nobody),
		cmocka_unit_test(test_a_user_stands_for_all_through_one_that_it_stands_for),
		cmocka_unit_test(test_a_user_that_an_event_does_not_name_is_kept),
		cmocka_unit_test(test_a_stream_that_somebody_else_must_end_is_kept),
		cmocka_unit_test(test_the_one_that_joins_many_is_the_only_user),
		cmocka_unit_test(test_more_users_than_are_looked_at_need_a_context_mark),
		cmocka_unit_test(test_the_work_of_a_stream_that_is_gone_is_dropped),
		cmocka_unit_test(test_a_stream_that_is_gone_stands_for_others),
		cmocka_unit_test(test_a_reused_record_stands_for_nobody),
		cmocka_unit_test(test_an_inherited_user_that_was_waited_for_is_dropped),
		cmocka_unit_test(test_the_wait_of_a_guard_counts),
	};

	return cmocka_run_group_tests_name("allocator-order-dominate", tests, NULL, NULL);
}
