/* SPDX-License-Identifier: MIT */
/* Streams, stamps, bounds and users of the order tracker. */
#include "tests/unit/allocator/order/fixture.h"

#include <pthread.h>

static void
assert_user(const struct ca_users *users, unsigned i, struct ca_stream *stream)
{
	assert_true(i < users->n);
	assert_ptr_equal(users->user[i].stream, stream);
	assert_int_equal(users->user[i].stamp, atomic_load(&stream->last));
}

static void
test_whoever_submitted_since_the_birth_is_a_user(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0), *r = order_open(&f, 1);
	struct ca_users users;
	uint64_t birth;

	order_launch(&f, s);
	birth = ca_order_birth(order);
	users = order_free(&f, birth);
	assert_int_equal(users.n, 0); /* s submitted before the birth */
	order_launch(&f, r);
	users = order_free(&f, birth);
	assert_int_equal(users.n, 1);
	assert_user(&users, 0, r);
	assert_false(users.context);
	order_stop(&f);
}

/* The epoch moves between a call's begin and its end: the stamp is the later one. */
static void
test_a_submission_is_stamped_after_its_call(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0);
	struct ca_users users;
	uint64_t birth;

	order_launch(&f, s);
	ca_submit_begin(s, NULL);
	birth = ca_order_birth(order);
	ca_submit_end(s);
	users = order_free(&f, birth);
	assert_int_equal(users.n, 1);
	order_stop(&f);
}

static void
test_a_bound_covers_nothing_submitted_after_it(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0);
	struct ca_users before, after;
	uint64_t birth = ca_order_birth(order), bound;

	order_launch(&f, s);
	before = order_free(&f, birth);
	bound = ca_order_bound(s);
	order_launch(&f, s);
	after = order_free(&f, birth);
	ca_order_finished(s, bound);
	assert_true(ca_user_is_done(&before.user[0]));
	assert_false(ca_user_is_done(&after.user[0]));
	assert_false(ca_users_remove_finished(&after));
	assert_true(ca_users_remove_finished(&before));
	assert_int_equal(before.n, 0);
	assert_int_equal(order_free(&f, birth).n, 1);
	ca_order_finished(s, ca_order_bound(s));
	assert_int_equal(order_free(&f, birth).n, 0);
	order_stop(&f);
}

static void
test_asking_again_does_not_move_the_epoch(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0);
	uint64_t epoch;
	unsigned i;

	order_launch(&f, s);
	ca_order_bound(s);
	epoch = atomic_load(&order->words.epoch);
	for (i = 0; i < 10; i++) {
		ca_order_bound(s);
		ca_order_space_bound(f.space);
		ca_order_context_bound(order);
		ca_order_birth(order);
	}
	assert_true(atomic_load(&order->words.epoch) <= epoch + 1); /* one birth after a stamp */
	order_stop(&f);
}

static void
test_inherited_users_stay_until_they_finish(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0), *r = order_open(&f, 1);
	struct ca_users first, second;
	uint64_t birth = ca_order_birth(order), later;

	order_launch(&f, s);
	first = order_free(&f, birth);
	birth = ca_order_birth(order);
	order_launch(&f, r);
	ca_order_users(order, birth, &first, &second);
	assert_int_equal(second.n, 2);
	assert_user(&second, 0, s);
	assert_user(&second, 1, r);
	order_launch(&f, s);
	ca_order_users(order, birth, &first, &second);
	assert_int_equal(second.n, 2); /* s once, at its larger stamp */
	assert_user(&second, 0, s);
	later = ca_order_birth(order);
	ca_order_finished(s, ca_order_bound(s));
	ca_order_users(order, later, &first, &second);
	assert_int_equal(second.n, 0);
	order_stop(&f);
}

static void
test_more_users_than_fit_need_a_context_mark(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order);
	unsigned i;

	for (i = 0; i < CA_USERS_MAX; i++)
		order_launch(&f, order_open(&f, i));
	assert_false(order_free(&f, birth).context);
	order_launch(&f, order_open(&f, i));
	assert_true(order_free(&f, birth).context);
	order_stop(&f);
}

static void
test_work_of_other_spaces_needs_a_context_mark(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order), bound;

	assert_false(order_free(&f, birth).context);
	ca_submit_foreign(f.space, NULL);
	assert_true(order_free(&f, birth).context);
	assert_false(order_free(&f, ca_order_birth(order)).context);
	bound = ca_order_context_bound(order);
	ca_order_context_finished(order, bound);
	assert_false(order_free(&f, birth).context);
	ca_submit_foreign(f.space, NULL);
	ca_order_context_finished(order, bound);
	assert_true(order_free(&f, birth).context);
	order_stop(&f);
}

static void
test_a_context_mark_covers_every_stream(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0), *r = order_open(&f, 1);
	uint64_t birth = ca_order_birth(order), bound, progress = atomic_load(&order->progress);

	order_launch(&f, s);
	order_launch(&f, r);
	bound = ca_order_context_bound(order);
	order_launch(&f, r);
	ca_order_context_finished(order, bound);
	assert_int_equal(order_free(&f, birth).n, 1);
	assert_ptr_equal(order_free(&f, birth).user[0].stream, r);
	assert_true(atomic_load(&order->progress) > progress);
	order_stop(&f);
}

static void
test_a_legacy_copy_teaches_the_blocking_streams_only(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *legacy = order_open_kind(&f, 0, CA_STREAM_LEGACY);
	struct ca_stream *blocking = order_open_kind(&f, 1, CA_STREAM_BLOCKING);
	struct ca_stream *other = order_open(&f, 2);
	uint64_t birth = ca_order_birth(order), bound;
	struct ca_users users;

	order_launch(&f, legacy);
	order_launch(&f, blocking);
	order_launch(&f, other);
	bound = ca_order_space_bound(f.space);
	ca_order_space_finished(f.space, bound, true);
	users = order_free(&f, birth);
	assert_int_equal(users.n, 1);
	assert_user(&users, 0, other);
	ca_order_space_finished(f.space, bound, false);
	assert_int_equal(order_free(&f, birth).n, 0);
	order_stop(&f);
}

struct elsewhere {
	struct fixture *f;
	struct ca_stream *stream;
	struct ca_users users;
	uint64_t birth;
	bool exposes;
};

static void *
free_elsewhere(void *arg)
{
	struct elsewhere *e = arg;

	e->users = order_free(e->f, e->birth);
	if (e->users.n)
		e->exposes = order_may_expose(&e->f->space->order, &e->users.user[0]);
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
test_another_threads_own_stream_needs_a_context_mark(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct elsewhere e = { .f = &f, .birth = ca_order_birth(order) };

	e.stream = order_open_kind(&f, 0, CA_STREAM_PER_THREAD);
	order_launch(&f, e.stream);
	assert_false(order_free(&f, e.birth).context);
	in_thread(free_elsewhere, &e);
	assert_true(e.users.context);
	order_stop(&f);
}

/* Its thread has ended: no mark can be had, unless one is there that covers everything. */
static void
test_a_stream_that_is_gone_is_lost(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order), bound;
	struct ca_stream *s = order_open_kind(&f, 0, CA_STREAM_PER_THREAD);

	order_launch(&f, s);
	ca_stream_close(s, true);
	assert_int_equal(order_calls(&f, CA_MODEL_STREAM_MARK), 0);
	assert_true(order_free(&f, birth).context);
	bound = ca_order_context_bound(order);
	ca_order_context_finished(order, bound);
	assert_false(order_free(&f, birth).context);
	order_stop(&f);
}

static void
test_a_closed_stream_is_a_ghost_until_its_last_mark_is_done(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order);
	struct ca_stream *s = order_open(&f, 0), *again;
	struct ca_users users;

	order_launch(&f, s);
	ca_stream_close(s, false);
	assert_int_equal(order_calls(&f, CA_MODEL_STREAM_MARK), 1);
	users = order_free(&f, birth);
	assert_user(&users, 0, s);
	assert_false(users.context);
	assert_ptr_not_equal(order_open(&f, 1), s);
	assert_int_equal(ca_order_poll(f.space), 0);
	assert_false(ca_user_is_done(&users.user[0]));
	ca_model_stream_finish(f.model, HANDLE(0), UINT64_MAX);
	assert_int_equal(ca_order_poll(f.space), 0);
	assert_true(ca_user_is_done(&users.user[0]));
	again = order_open(&f, 0); /* the handle comes back, and the record */
	assert_ptr_equal(again, s);
	order_launch(&f, again);
	assert_true(ca_user_is_done(&users.user[0]));
	assert_int_equal(order_free(&f, birth).n, 1);
	order_stop(&f);
}

static void
test_a_failed_last_mark_loses_the_stream(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order), progress;
	struct ca_stream *s = order_open(&f, 0);

	order_launch(&f, s);
	ca_model_set_capturing(f.model, true);
	progress = atomic_load(&order->progress);
	ca_stream_close(s, false);
	assert_true(order_free(&f, birth).context);
	assert_true(atomic_load(&order->progress) > progress);
	order_stop(&f);
}

static void
test_streams_beyond_the_limit_end_reuse_of_unfinished_memory(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *stream, *first = order_open(&f, 0);
	struct ca_user user;
	unsigned i;

	ca_order_birth(order);
	order_launch(&f, first);
	user = (struct ca_user){ first, atomic_load(&first->last) };
	ca_order_expose(order, &user);
	for (i = 1; i < CA_STREAMS_MAX; i++)
		assert_int_equal(
			ca_stream_open(f.space, CA_STREAM_NONBLOCKING, HANDLE(1), true, &stream),
			0);
	assert_false(ca_user_is_done(&user));
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_NONBLOCKING, HANDLE(1), true, &stream),
			 -ENOSPC);
	assert_true(atomic_load(&order->finished_only) & CA_REASON_STREAMS);
	assert_true(ca_user_is_done(&user)); /* what was exposed is no more */
	assert_true(order_free(&f, ca_order_birth(order)).context);
	order_stop(&f);
}

/* Streams that come and go, with work unfinished at their end, by a mark or without. */
static void
churn(bool gone)
{
	enum ca_stream_kind kind = gone ? CA_STREAM_PER_THREAD : CA_STREAM_BLOCKING;
	struct fixture f;
	struct ca_order *order = order_start(&f);
	unsigned i;

	for (i = 0; i < 10 * CA_STREAMS_MAX; i++) {
		struct ca_stream *stream = order_open_kind(&f, 0, kind);

		ca_order_birth(order);
		order_launch(&f, stream);
		ca_stream_close(stream, gone);
		ca_model_stream_finish(f.model, HANDLE(0), UINT64_MAX);
	}
	assert_true(atomic_load(&order->n_streams) < 32);
	assert_int_equal(atomic_load(&order->finished_only), 0);
	order_stop(&f);
}

static void
test_ghosts_do_not_use_up_the_records(void **state)
{
	churn(false);
	churn(true);
}

/* As many open streams as leave a few records, which ghosts have that are through. */
static void
test_few_ghosts_do_not_use_up_the_last_records(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	unsigned i;

	for (i = 0; i < CA_STREAMS_MAX - 6; i++)
		order_open(&f, 1 + i);
	for (i = 0; i < 20; i++) {
		struct ca_stream *stream = order_open(&f, 0);

		order_launch(&f, stream);
		ca_stream_close(stream, false);
		ca_model_stream_finish(f.model, HANDLE(0), UINT64_MAX);
	}
	assert_int_equal(atomic_load(&order->finished_only), 0);
	order_stop(&f);
}

static void
test_finished_only_sends_every_free_to_a_context_mark(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_space *later;

	assert_false(order_free(&f, 1).context);
	assert_true(ca_order_finished_only(f.heap, NULL, CA_REASON_UNSEEN_CALL));
	assert_false(ca_order_finished_only(f.heap, NULL, CA_REASON_UNSEEN_CALL));
	assert_true(order_free(&f, 1).context);
	assert_int_equal(ca_space_create(f.heap, (void *)2, 0, &later), 0);
	assert_true(atomic_load(&later->order.finished_only) & CA_REASON_UNSEEN_CALL);
	assert_true(ca_order_finished_only(f.heap, later, CA_REASON_IPC));
	assert_false(atomic_load(&order->finished_only) & CA_REASON_IPC);
	order_stop(&f);
}

static void
test_a_network_library_only_ends_exposure(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = order_open(&f, 0);
	uint64_t birth = ca_order_birth(order);
	struct ca_users users;

	order_launch(&f, s);
	users = order_free(&f, birth);
	assert_true(order_may_expose(order, &users.user[0]));
	ca_order_finished_only(f.heap, NULL, CA_REASON_NETWORK);
	assert_false(order_free(&f, birth).context);
	assert_false(order_may_expose(order, &users.user[0]));
	order_stop(&f);
}

static void
test_a_dead_space_has_no_users_and_no_streams(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order);
	struct ca_stream *s = order_open(&f, 0), *other = order_open(&f, 1);
	struct ca_users users;

	order_launch(&f, s);
	users = order_free(&f, birth);
	order_launch(&f, s); /* records the mark */
	assert_int_equal(fixture_sums(&f).marks, 1);
	ca_space_kill(f.space);
	assert_int_equal(fixture_sums(&f).marks, 0);
	assert_true(ca_users_remove_finished(&users));
	ca_submit_begin(s, NULL); /* a late thread */
	ca_submit_end(s);
	ca_submit_hazard_begin(other);
	ca_submit_hazard_end(other, true);
	ca_stream_close(s, false);
	assert_int_equal(order_free(&f, birth).n, 0);
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, HANDLE(2), true, &s), -ENODEV);
	assert_int_equal(order_calls(&f, CA_MODEL_STREAM_MARK), 1);
	order_stop(&f);
}

static void
test_a_forked_child_drops_everything(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	uint64_t birth = ca_order_birth(order);
	struct ca_stream *s = order_open(&f, 0);
	struct ca_users users;
	uint64_t calls;

	order_open(&f, 1);
	order_launch(&f, s);
	users = order_free(&f, birth);
	calls = order_calls(&f, CA_MODEL_DROP);
	ca_heap_after_fork_child(f.heap);
	assert_true(ca_users_remove_finished(&users));
	ca_submit_begin(s, NULL);
	ca_submit_end(s);
	assert_int_equal(order_calls(&f, CA_MODEL_DROP), calls);
	fixture_stop(&f);
}

static void *
note(void *arg)
{
	ca_stream_note_thread(arg);
	return NULL;
}

static void
test_who_submits_is_remembered(void **state)
{
	struct fixture f;
	struct ca_order *order = order_start(&f);
	struct ca_stream *s = NULL, *unknown;
	struct ca_stream_record *record;

	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, HANDLE(0), true, &s), 0);
	record = order_record(s);
	assert_true(ca_order_thread() != 0);
	assert_int_equal(record->thread, ca_order_thread());
	in_thread(note, s); /* made here, submitted to there only */
	assert_int_not_equal(record->thread, ca_order_thread());
	assert_int_not_equal(record->thread, 0);
	ca_stream_note_thread(s);
	assert_int_equal(record->thread, 0);
	ca_stream_note_thread(s);
	assert_int_equal(record->thread, 0);
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, HANDLE(5), false, &unknown),
			 0);
	ca_stream_note_thread(unknown);
	assert_int_equal(order_record(unknown)->thread, 0);
	assert_ptr_equal(ca_stream_space(s), f.space);
	assert_ptr_equal(ca_order_only_stream(order), NULL);
	order_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whoever_submitted_since_the_birth_is_a_user),
		cmocka_unit_test(test_a_submission_is_stamped_after_its_call),
		cmocka_unit_test(test_a_bound_covers_nothing_submitted_after_it),
		cmocka_unit_test(test_asking_again_does_not_move_the_epoch),
		cmocka_unit_test(test_inherited_users_stay_until_they_finish),
		cmocka_unit_test(test_more_users_than_fit_need_a_context_mark),
		cmocka_unit_test(test_work_of_other_spaces_needs_a_context_mark),
		cmocka_unit_test(test_a_context_mark_covers_every_stream),
		cmocka_unit_test(test_a_legacy_copy_teaches_the_blocking_streams_only),
		cmocka_unit_test(test_another_threads_own_stream_needs_a_context_mark),
		cmocka_unit_test(test_a_stream_that_is_gone_is_lost),
		cmocka_unit_test(test_a_closed_stream_is_a_ghost_until_its_last_mark_is_done),
		cmocka_unit_test(test_a_failed_last_mark_loses_the_stream),
		cmocka_unit_test(test_streams_beyond_the_limit_end_reuse_of_unfinished_memory),
		cmocka_unit_test(test_ghosts_do_not_use_up_the_records),
		cmocka_unit_test(test_few_ghosts_do_not_use_up_the_last_records),
		cmocka_unit_test(test_finished_only_sends_every_free_to_a_context_mark),
		cmocka_unit_test(test_a_network_library_only_ends_exposure),
		cmocka_unit_test(test_a_dead_space_has_no_users_and_no_streams),
		cmocka_unit_test(test_a_forked_child_drops_everything),
		cmocka_unit_test(test_who_submits_is_remembered),
	};

	return cmocka_run_group_tests_name("allocator-order", tests, NULL, NULL);
}
