/* SPDX-License-Identifier: MIT */
/* Blocks that a thread keeps while its own stream and another thread's may still use them. */
#include "allocator/core/lock.h"
#include "tests/unit/allocator/tcache/magazine_scene.h"
#include "tests/unit/allocator/deferred/scene.h"

enum { SIZE = 64 * 1024 };

static void *
launch_there(void *arg)
{
	launch(arg, R);
	return NULL;
}

/* R is submitted to by another thread only. */
static void
launch_r(struct scene *scene)
{
	in_thread(launch_there, scene);
}

static void *
open_there(void *arg)
{
	struct scene *scene = arg;

	scene->r = open_stream(&scene->f, R);
	return NULL;
}

static void
start(struct scene *scene)
{
	scene_new(scene, 1);
	in_thread(open_there, scene);
}

/* Both may use the block, which the magazine keeps. */
static uint64_t
free_of_both(struct scene *scene)
{
	uint64_t address = fixture_alloc(&scene->f, SIZE);

	launch(scene, S);
	launch_r(scene);
	fixture_free(&scene->f, address);
	assert_int_equal(kept(scene->f.heap), 1);
	return address;
}

/* As if no question had been in vain before. */
static bool
is_had(struct scene *scene, uint64_t address)
{
	uint64_t taken;

	ca_own.shelf->polls = (struct ca_backoff){ 0 };
	if (!ca_magazine_take(scene->f.space, SIZE, SIZE, false, &taken))
		return false;
	assert_int_equal(taken, address);
	return true;
}

static void
empty_magazines(struct scene *scene)
{
	CA_HEAP_LOCKED(scene->f.heap);
	ca_magazines_clear_locked(scene->f.space);
}

static void
finish_to(struct scene *scene, uintptr_t handle, uint64_t work)
{
	ca_model_stream_finish(scene->f.model, (void *)handle, work);
}

static uint64_t
submitted(struct scene *scene, uintptr_t handle)
{
	return ca_model_stream_submitted(scene->f.model, (void *)handle);
}

static void
test_it_is_handed_out_once_both_have_finished(void **state)
{
	struct scene scene;
	uint64_t a;
	int first;

	for (first = 0; first < 2; first++) {
		start(&scene);
		a = free_of_both(&scene);
		assert_false(is_had(&scene, a));
		finish(&scene, first ? R : S);
		assert_false(is_had(&scene, a));
		assert_false(is_had(&scene, a));
		finish(&scene, first ? S : R);
		assert_true(is_had(&scene, a));
		fixture_stop(&scene.f);
	}
}

/* Marks were recorded before what goes on. */
static void
test_it_does_not_wait_for_later_work(void **state)
{
	struct scene scene;
	uint64_t a, s, r;

	start(&scene);
	a = free_of_both(&scene);
	s = submitted(&scene, S);
	r = submitted(&scene, R);
	launch(&scene, S);
	launch_r(&scene);
	finish_to(&scene, S, s);
	assert_false(is_had(&scene, a));
	finish_to(&scene, R, r);
	assert_true(is_had(&scene, a));
	fixture_stop(&scene.f);
}

static uint64_t
marks(struct scene *scene)
{
	return fixture_sums(&scene->f).calls[CA_MODEL_STREAM_MARK];
}

/* The stamp of both is larger than the bound of the mark by which R is known to be through. Returns
 * S's last work. */
static uint64_t
free_of_both_at_times(struct scene *scene, uint64_t *ret_address)
{
	*ret_address = fixture_alloc(&scene->f, SIZE);
	launch_r(scene);
	ca_order_mark_busy(scene->f.space);
	assert_int_equal(marks(scene), 1);
	fixture_alloc(&scene->f, SIZE); /* a new epoch */
	launch(scene, S);
	fixture_free(&scene->f, *ret_address);
	assert_int_equal(kept(scene->f.heap), 1);
	finish(scene, R);
	assert_int_equal(ca_order_poll(scene->f.space), 0);
	assert_false(is_had(scene, *ret_address));
	return submitted(scene, S);
}

static void
test_nor_for_that_of_a_stream_that_was_through(void **state)
{
	struct scene scene;
	uint64_t a, s;

	start(&scene);
	s = free_of_both_at_times(&scene, &a);
	launch_r(&scene);
	launch_r(&scene);
	finish_to(&scene, S, s);
	finish_to(&scene, R, submitted(&scene, R) - 2);
	assert_true(is_had(&scene, a));
	fixture_stop(&scene.f);
}

/* S has nothing to do with the block's second life. */
static void
test_an_inherited_user_counts(void **state)
{
	struct scene scene;
	struct ca_user inherited, user;
	uint64_t birth;

	start(&scene);
	launch(&scene, S);
	inherited = (struct ca_user){ scene.s, atomic_load(&scene.s->last) };
	birth = ca_order_birth(&scene.f.space->order);
	assert_true(birth > inherited.stamp);
	launch_r(&scene);
	assert_true(ca_order_kept_users(&scene.f.space->order, birth, &inherited, &user));
	finish(&scene, R);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_false(ca_order_kept_is_done(&scene.f.space->order, &user));
	finish(&scene, S);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_true(ca_order_kept_is_done(&scene.f.space->order, &user));
	fixture_stop(&scene.f);
}

/* Those users wait on, in the place that the block gets. */
static void
test_it_comes_out_with_those_that_have_not_finished(void **state)
{
	struct scene scene;
	uint64_t a, taken;

	start(&scene);
	a = free_of_both(&scene);
	finish(&scene, S);
	assert_false(is_had(&scene, a));
	fixture_alloc(&scene.f, 8 * MIB);
	empty_magazines(&scene);
	fixture_check(&scene.f);
	assert_int_equal(kept(scene.f.heap), 0);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	finish(&scene, R);
	assert_true(ca_trim(scene.f.heap, 0) > 0);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 0);
	taken = fixture_alloc(&scene.f, SIZE);
	assert_int_not_equal(taken, 0);
	fixture_stop(&scene.f);
}

static void
test_both_wait_where_neither_has(void **state)
{
	struct scene scene;

	start(&scene);
	free_of_both(&scene);
	empty_magazines(&scene);
	fixture_check(&scene.f);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	finish(&scene, S);
	ca_trim(scene.f.heap, 0);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	finish(&scene, R);
	ca_trim(scene.f.heap, 0);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 0);
	fixture_stop(&scene.f);
}

/* Its record is another stream's by then. */
static void
test_a_destroyed_stream_is_through_for_ever(void **state)
{
	struct scene scene;
	struct ca_stream *was;
	uint64_t a, s, recorded;

	start(&scene);
	s = free_of_both_at_times(&scene, &a);
	was = scene.r;
	recorded = marks(&scene);
	ca_stream_close(scene.r, false);
	assert_int_equal(marks(&scene), recorded);
	in_thread(open_there, &scene);
	assert_ptr_equal(scene.r, was);
	launch_r(&scene);
	finish_to(&scene, S, s);
	assert_true(is_had(&scene, a));
	fixture_stop(&scene.f);
}

/* The same where nothing has moved the epoch since the free: there are other streams, and the
 * program has waited for this one. */
static void
test_nor_is_the_next_one_in_the_same_epoch(void **state)
{
	const struct ca_user none = { NULL, 0 };
	struct ca_stream *was;
	struct ca_order *order;
	struct scene scene;
	struct ca_user user;
	uint64_t birth, s;

	start(&scene);
	open_stream(&scene.f, 0x53);
	order = &scene.f.space->order;
	birth = ca_order_birth(order);
	launch_r(&scene);
	ca_order_mark_busy(scene.f.space);
	fixture_alloc(&scene.f, SIZE); /* a new epoch */
	launch(&scene, S);
	assert_true(ca_order_kept_users(order, birth, &none, &user));
	assert_true(ca_user_is_multi(&user));
	s = submitted(&scene, S);
	finish(&scene, R);
	ca_order_finished(scene.r, atomic_load(&scene.r->last));
	was = scene.r;
	ca_stream_close(scene.r, false);
	in_thread(open_there, &scene);
	assert_ptr_equal(scene.r, was);
	launch_r(&scene);
	finish_to(&scene, S, s);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	assert_true(ca_order_kept_is_done(order, &user));
	fixture_stop(&scene.f);
}

/* As one that looks through memory of others may find it, just when it is freed. */
static void
test_who_looks_meanwhile_sees_no_stream(void **state)
{
	struct ca_users users;
	struct scene scene;
	uint64_t a;

	start(&scene);
	a = free_of_both(&scene);
	ca_block_users(ca_bases_find_locked(&scene.f.heap->bases, a), &users);
	assert_int_equal(users.n, 0);
	assert_false(users.context);
	fixture_stop(&scene.f);
}

/* A mark was recorded on it once it was known to be through, and nobody asked about that. */
static void
test_records_of_destroyed_streams_come_back(void **state)
{
	struct scene scene;
	struct ca_stream *was;
	uint64_t a, recorded;

	start(&scene);
	free_of_both_at_times(&scene, &a);
	was = scene.r;
	recorded = marks(&scene);
	ca_submit_begin(scene.r, NULL); /* what was to follow was refused */
	assert_int_equal(marks(&scene), recorded + 1);
	ca_stream_close(scene.r, false);
	in_thread(open_there, &scene);
	assert_ptr_equal(scene.r, was);
	fixture_stop(&scene.f);
}

/* A mark that was refused is followed by work that no mark separates from what was before. */
static void
test_after_a_refusal_no_later_mark_is_exact(void **state)
{
	struct scene scene;
	struct ca_users users;
	struct ca_user user;
	const struct ca_user none = { NULL, 0 };
	uint64_t birth;
	unsigned i;

	start(&scene);
	birth = ca_order_birth(&scene.f.space->order);
	launch_r(&scene);
	fixture_alloc(&scene.f, SIZE);
	launch(&scene, S);
	assert_true(ca_order_kept_users(&scene.f.space->order, birth, &none, &user));
	assert_true(ca_user_is_multi(&user));
	ca_model_fail(scene.f.model, CA_MODEL_STREAM_MARK, 1, false, -ENOMEM);
	launch_r(&scene); /* has it refused */
	assert_true(ca_model_failed(scene.f.model));
	ca_order_mark_busy(scene.f.space);
	ca_order_kept_unfinished(&scene.f.space->order, &user, &users);
	assert_int_equal(users.n, 2);
	for (i = 0; i < 2; i++)
		if (users.user[i].stream == scene.r)
			assert_int_equal(ca_order_wait(scene.f.space, &users.user[i]), -EAGAIN);
	fixture_stop(&scene.f);
}

static void
assert_not_kept(struct scene *scene, bool hazard)
{
	uint64_t address = fixture_alloc(&scene->f, SIZE);

	if (hazard)
		ca_submit_hazard_begin(scene->s);
	launch(scene, S);
	if (hazard)
		ca_submit_hazard_end(scene->s, true);
	launch_r(scene);
	fixture_free(&scene->f, address);
	assert_int_equal(kept(scene->f.heap), 0);
	fixture_stop(&scene->f);
}

static void
test_what_somebody_else_must_end_is_not_kept(void **state)
{
	struct scene scene;

	start(&scene);
	assert_not_kept(&scene, true);
}

static void *
open_per_thread(void *arg)
{
	struct scene *scene = arg;

	assert_int_equal(
		ca_stream_open(scene->f.space, CA_STREAM_PER_THREAD, (void *)R, true, &scene->r),
		0);
	return NULL;
}

/* Only that thread could mark it. */
static void
test_nor_what_anothers_per_thread_stream_uses(void **state)
{
	struct scene scene;

	scene_new(&scene, 1);
	in_thread(open_per_thread, &scene);
	assert_not_kept(&scene, false);
}

/* It has no bit. */
static void
test_nor_what_one_stream_of_very_many_uses(void **state)
{
	struct scene scene;
	unsigned i;

	scene_new(&scene, 1);
	for (i = 1; i < CA_MULTI_STREAMS; i++)
		open_stream(&scene.f, 0x100 + i);
	in_thread(open_there, &scene);
	assert_not_kept(&scene, false);
}

static void
test_the_last_bit_is_one(void **state)
{
	struct scene scene;
	unsigned i;
	uint64_t a;

	scene_new(&scene, 1);
	for (i = 1; i < CA_MULTI_STREAMS - 1; i++)
		open_stream(&scene.f, 0x100 + i);
	in_thread(open_there, &scene);
	a = free_of_both(&scene);
	finish(&scene, S);
	assert_false(is_had(&scene, a));
	finish(&scene, R);
	assert_true(is_had(&scene, a));
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_handed_out_once_both_have_finished),
		cmocka_unit_test(test_it_does_not_wait_for_later_work),
		cmocka_unit_test(test_nor_for_that_of_a_stream_that_was_through),
		cmocka_unit_test(test_an_inherited_user_counts),
		cmocka_unit_test(test_it_comes_out_with_those_that_have_not_finished),
		cmocka_unit_test(test_both_wait_where_neither_has),
		cmocka_unit_test(test_a_destroyed_stream_is_through_for_ever),
		cmocka_unit_test(test_nor_is_the_next_one_in_the_same_epoch),
		cmocka_unit_test(test_who_looks_meanwhile_sees_no_stream),
		cmocka_unit_test(test_records_of_destroyed_streams_come_back),
		cmocka_unit_test(test_after_a_refusal_no_later_mark_is_exact),
		cmocka_unit_test(test_what_somebody_else_must_end_is_not_kept),
		cmocka_unit_test(test_nor_what_anothers_per_thread_stream_uses),
		cmocka_unit_test(test_nor_what_one_stream_of_very_many_uses),
		cmocka_unit_test(test_the_last_bit_is_one),
	};

	return cmocka_run_group_tests_name("allocator-kept-of-several", tests, NULL, NULL);
}
