/* SPDX-License-Identifier: MIT */
/* Freed memory and the streams that may still use it: what is handed out, to whom, and when. */
#include "tests/unit/allocator/deferred/scene.h"

#include <errno.h>
#include <pthread.h>

static void
test_memory_that_nobody_used_is_clean_at_once(void **state)
{
	struct scene scene;
	uint64_t a, b;

	scene_new(&scene, 2);
	launch(&scene, S);
	a = fixture_alloc(&scene.f, 20 * MIB); /* the launch is older */
	fixture_free(&scene.f, a);
	b = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_equal(a, b);
	assert_int_equal(fixture_stats(&scene.f).taken_clean, 1);
	assert_int_equal(calls(&scene), 0);
	fixture_stop(&scene.f);
}

static void
test_one_stream_reuses_without_a_driver_call(void **state)
{
	struct scene scene;
	uint64_t a, i;

	scene_new(&scene, 1);
	for (i = 0; i < 50; i++) {
		a = fixture_alloc(&scene.f, 20 * MIB);
		launch(&scene, S);
		fixture_free(&scene.f, a);
		a = fixture_alloc(&scene.f, 3000);
		launch(&scene, S);
		fixture_free(&scene.f, a);
	}
	assert_int_equal(calls(&scene), 0);
	assert_int_equal(fixture_sums(&scene.f).held_bytes, 22 * MIB);
	assert_int_equal(fixture_stats(&scene.f).taken_same_stream, 98);
	assert_int_equal(fixture_stats(&scene.f).driver_alloc_calls, 2);
	fixture_stop(&scene.f);
}

static void
test_two_streams_wait_for_the_user(void **state)
{
	struct scene scene;
	uint64_t a, b, c;

	scene_new(&scene, 2);
	a = free_used(&scene, 20 * MIB);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	b = fixture_alloc(&scene.f, 20 * MIB); /* below the slack: rather more memory */
	assert_int_not_equal(a, b);
	finish(&scene, S);
	c = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_equal(a, c);
	assert_int_equal(fixture_stats(&scene.f).taken_pending_done, 1);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_RECORD], 0); /* stream marks only */
	fixture_stop(&scene.f);
}

static void
test_users_are_inherited(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	a = free_used(&scene, 20 * MIB);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_free(&scene.f, a); /* nothing was submitted since the second allocation */
	scene.r = open_stream(&scene.f, R);
	assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	finish(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

static void
test_several_users_must_all_finish(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 2);
	a = fixture_alloc(&scene.f, 20 * MIB);
	launch(&scene, S);
	launch(&scene, R);
	fixture_free(&scene.f, a);
	finish(&scene, R);
	assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	finish(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

static void
test_pieces_keep_their_user_and_merge_again(void **state)
{
	struct scene scene;
	uint64_t a, b, c;

	scene_new(&scene, 1);
	a = free_used(&scene, 40 * MIB);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a); /* the rest is still s's */
	scene.r = open_stream(&scene.f, R);
	b = fixture_alloc(&scene.f, 18 * MIB);
	assert_true(b < a || b >= a + 40 * MIB);
	launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 2); /* kept as it is */
	c = fixture_alloc(&scene.f, 40 * MIB);
	assert_int_not_equal(c, a);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1); /* merged */
	finish(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 40 * MIB), a);
	fixture_stop(&scene.f);
}

/* While another stream could submit, what is clean and what the stream owns lie side by side; once
 * it cannot any more, a block between them joins all of it. */
static void
test_a_block_merges_with_all_around_it_when_a_space_is_quiet_again(void **state)
{
	struct scene scene;
	uint64_t a, b, c, d;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 4 * MIB);
	b = fixture_alloc(&scene.f, 4 * MIB);
	c = fixture_alloc(&scene.f, 4 * MIB);
	d = fixture_alloc(&scene.f, 8 * MIB);
	assert_true(a < b && b < c && c < d);
	fixture_free(&scene.f, b);
	fixture_free(&scene.f, c);
	launch(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 4 * MIB), c); /* freed last */
	assert_int_equal(fixture_alloc(&scene.f, 4 * MIB), b);
	scene.r = open_stream(&scene.f, R);
	fixture_free(&scene.f, a);
	fixture_free(&scene.f, d);
	fixture_free(&scene.f, c);
	fixture_alloc(&scene.f, 30 * MIB); /* what was parked is looked at */
	ca_stream_close(scene.r, false);
	fixture_free(&scene.f, b);
	fixture_alloc(&scene.f, 30 * MIB);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

static void
test_beyond_the_slack_the_own_stream_is_exposed_and_others_guarded(void **state)
{
	struct scene scene;
	uint64_t a, work;

	scene_with_slack(&scene, 2, 0);
	launch(&scene, R);
	a = fixture_alloc(&scene.f, 20 * MIB);
	work = launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_equal(fixture_stats(&scene.f).taken_same_stream, 1);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	assert_true(ca_model_stream_after(scene.f.model, (void *)R, (void *)S) < work);
	launch(&scene, R);
	assert_true(ca_model_stream_after(scene.f.model, (void *)R, (void *)S) >= work);
	assert_int_equal(fixture_stats(&scene.f).order_waits, 1);
	fixture_stop(&scene.f);
}

/* r waits for what s has done up to now. */
static void
order_behind_s(struct scene *scene)
{
	const struct ca_driver *driver = &scene->f.driver;
	struct ca_event event = { 0 };
	uint64_t begun;
	uint64_t seen;
	ca_mark mark;

	begun = ca_event_record_begin(&event, scene->s);
	ca_event_record_end(&event, begun, true);
	assert_int_equal(driver->stream_mark(driver->self, (void *)1, (void *)S, &mark), 0);
	seen = ca_event_look(&event);
	assert_int_equal(driver->stream_wait(driver->self, (void *)1, (void *)R, mark), 0);
	ca_event_waited(&event, seen, scene->r);
	driver->mark_drop(driver->self, mark);
}

/* Two blocks were freed on s; r has waited for the user of the first only. */
static void
test_beyond_the_slack_what_the_own_stream_comes_after_is_exposed(void **state)
{
	struct scene scene;
	uint64_t a, b, later;

	scene_with_slack(&scene, 2, 0);
	a = fixture_alloc(&scene.f, 20 * MIB);
	b = fixture_alloc(&scene.f, 20 * MIB);
	later = a < b ? a : b; /* the best fit: at the lower address */
	launch(&scene, S);
	fixture_free(&scene.f, a + b - later);
	launch(&scene, S);
	order_behind_s(&scene);
	launch(&scene, S);
	fixture_free(&scene.f, later);
	launch(&scene, S);
	launch(&scene, R);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a + b - later);
	assert_int_equal(fixture_stats(&scene.f).taken_exposed, 1);
	launch(&scene, R);
	assert_int_equal(fixture_stats(&scene.f).order_waits, 0);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	/* the other one only with a wait, of the device */
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), later);
	assert_int_equal(fixture_stats(&scene.f).taken_exposed, 2);
	launch(&scene, R);
	assert_int_equal(fixture_stats(&scene.f).order_waits, 1);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	fixture_stop(&scene.f);
}

static void
test_reuse_finished_exposes_nothing(void **state)
{
	struct scene scene;
	uint64_t a, b;

	fixture_defaults(&scene.f);
	scene.f.config.reuse_finished = true;
	scene_start(&scene, 1);
	a = free_used(&scene, 20 * MIB);
	b = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_not_equal(a, b);
	finish(&scene, S);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	fixture_stop(&scene.f);
}

/* ---- threads */

static void
test_another_threads_free_is_not_waited_for(void **state)
{
	struct scene scene;
	uint64_t a, b;

	scene_that_ends(&scene, 2, 0, 100);
	a = elsewhere(&scene, (struct job){ .alloc = true });
	elsewhere(&scene, (struct job){ .handle = R });
	b = fixture_alloc(&scene.f, 20 * MIB); /* so that r is a user of a only */
	elsewhere(&scene, (struct job){ .address = a });
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 1); /* not its allocator: as stock */
	fixture_free(&scene.f, b);
	fixture_stop(&scene.f);
}

static void
test_beyond_the_slack_others_memory_is_not_waited_for(void **state)
{
	struct scene scene;
	uint64_t a, b;
	pthread_t thread;
	struct job job = { .scene = &scene };

	scene_with_slack(&scene, 2, 10 * MIB);
	/* one other thread allocates, launches and frees: its own memory */
	job.alloc = true;
	a = elsewhere(&scene, job);
	elsewhere(&scene, (struct job){ .handle = R });
	ca_model_set_capturing(scene.f.model, true); /* so that the free cannot wait */
	job = (struct job){ .scene = &scene, .address = a };
	assert_int_equal(pthread_create(&thread, NULL, job_run, &job), 0);
	pthread_join(thread, NULL);
	ca_model_set_capturing(scene.f.model, false);
	b = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_not_equal(a, b);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	fixture_stop(&scene.f);
}

static void
test_beyond_the_slack_the_own_free_is_waited_for(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_with_slack(&scene, 2, 10 * MIB);
	a = fixture_alloc(&scene.f, 20 * MIB);
	elsewhere(&scene, (struct job){ .handle = R }); /* r is another thread's: no exposure */
	finish(&scene, R);
	launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_true(fixture_stats(&scene.f).host_syncs > 0);
	assert_int_equal(fixture_stats(&scene.f).taken_pending_done, 1);
	fixture_stop(&scene.f);
}

/* This thread's stream is slow, another's is not: what that thread gets back is taken by this one,
 * whose own memory waits, so the other one needs more. */
static void
test_who_takes_what_others_freed_waits_for_its_own(void **state)
{
	struct scene scene;
	unsigned round;

	scene_that_ends(&scene, 2, 30 * MIB, 100);
	for (round = 0; round < 30; round++) {
		uint64_t others = elsewhere(&scene, (struct job){ .alloc = true });

		elsewhere(&scene, (struct job){ .handle = R });
		elsewhere(&scene, (struct job){ .address = others });
		finish(&scene, R);
		free_used(&scene, 20 * MIB);
	}
	assert_true(fixture_sums(&scene.f).held_bytes <= 6 * 20 * MIB);
	fixture_stop(&scene.f);
}

/* Another thread once freed something, and has nothing to do with what this thread takes now: new
 * memory, or its own. */
static void
test_who_takes_its_own_pieces_waits_for_nothing(void **state)
{
	struct scene scene;
	uint64_t a, b, small[4];
	unsigned i;

	scene_with_slack(&scene, 2, 30 * MIB);
	a = elsewhere(&scene, (struct job){ .alloc = true });
	elsewhere(&scene, (struct job){ .handle = R, .address = a });
	finish(&scene, R);
	a = fixture_alloc(&scene.f, 20 * MIB);
	b = fixture_alloc(&scene.f, 20 * MIB);
	launch(&scene, S);
	fixture_free(&scene.f, a);
	fixture_free(&scene.f, b);
	for (i = 0; i < 4; i++)
		small[i] = fixture_alloc(&scene.f, 3000);
	for (i = 0; i < 4; i++)
		fixture_free(&scene.f, small[i]);
	for (i = 0; i < 4; i++)
		fixture_alloc(&scene.f, 100000);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	fixture_stop(&scene.f);
}

/* ---- pressure */

enum { EACH = 2 * MIB, KEPT = 64, LATER = 100 };

/* Blocks that are taken before the cache grows. */
static unsigned
free_blocks(struct scene *scene)
{
	uint64_t held = fixture_sums(&scene->f).held_bytes;
	unsigned n = 0;

	for (; fixture_alloc(&scene->f, EACH) && fixture_sums(&scene->f).held_bytes == held; n++)
		;
	return n;
}

/* A thread's magazine keeps the first blocks that it frees; many are freed later. When the first
 * come to wait with them each passes only some: one that would pass more waits as they do. */
static void
test_what_was_kept_waits_with_what_was_freed_later(void **state)
{
	static uint64_t blocks[KEPT + LATER];
	struct scene scene;
	uint64_t first = 0;
	unsigned i;

	scene_with_slack(&scene, 2, 4096 * (uint64_t)MIB);
	launch(&scene, R);
	for (i = 0; i < KEPT + LATER; i++) {
		blocks[i] = fixture_alloc(&scene.f, EACH);
		fixture_alloc(&scene.f, EACH); /* so that they do not merge */
	}
	for (i = 0; i < KEPT + LATER; i++) {
		uint64_t work = launch(&scene, S);

		fixture_free(&scene.f, blocks[i]);
		if (i == KEPT - 1)
			first = work;
	}
	fixture_alloc(&scene.f, 500 * MIB); /* the magazine's are among the others by now */
	finish(&scene, R);
	ca_model_stream_finish(scene.f.model, (void *)S, first);
	assert_in_range(free_blocks(&scene), 0, KEPT - 1);
	finish(&scene, S);
	assert_true(free_blocks(&scene) >= KEPT);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

/* All have finished at once: a request that finds what it needs leaves most of them to later ones,
 * and one that does not looks at all before the cache grows. */
static void
test_a_request_settles_only_some_of_many(void **state)
{
	static uint64_t blocks[LATER];
	struct scene scene;
	uint64_t bound, held;
	unsigned i;

	scene_with_slack(&scene, 2, 4096 * (uint64_t)MIB);
	launch(&scene, R);
	for (i = 0; i < LATER; i++) {
		blocks[i] = fixture_alloc(&scene.f, EACH);
		fixture_alloc(&scene.f, EACH); /* so that they do not merge */
	}
	launch(&scene, S);
	for (i = 0; i < LATER; i++)
		fixture_free(&scene.f, blocks[i]);
	fixture_alloc(&scene.f, 500 * MIB); /* the magazine's are among the others by now */
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, LATER);
	held = fixture_sums(&scene.f).held_bytes;
	bound = ca_order_bound(scene.s);
	finish(&scene, S);
	ca_order_finished(scene.s, bound);
	fixture_alloc(&scene.f, EACH);
	assert_in_range(fixture_stats(&scene.f).pending_blocks, LATER - 32, LATER - 1);
	assert_int_equal(fixture_sums(&scene.f).held_bytes, held);
	fixture_alloc(&scene.f, 500 * MIB);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 0);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

static void
test_out_of_memory_exposes_another_stream(void **state)
{
	struct scene scene;
	uint64_t a, work;

	fixture_defaults(&scene.f);
	scene.f.pretend.capacity = 40 * MIB;
	scene_start(&scene, 2);
	a = fixture_alloc(&scene.f, 40 * MIB);
	work = launch(&scene, S);
	fixture_free(&scene.f, a);
	launch(&scene, R); /* the own last stream is r now */
	assert_int_equal(fixture_alloc(&scene.f, 40 * MIB), a);
	assert_int_equal(fixture_stats(&scene.f).taken_exposed, 1);
	assert_int_equal(fixture_stats(&scene.f).host_syncs, 0);
	launch(&scene, R);
	assert_true(ca_model_stream_after(scene.f.model, (void *)R, (void *)S) >= work);
	fixture_stop(&scene.f);
}

static void
test_out_of_memory_gives_unfinished_segments_back(void **state)
{
	struct scene scene;
	uint64_t a, b;

	fixture_defaults(&scene.f);
	scene.f.pretend.capacity = 60 * MIB;
	scene_start(&scene, 2);
	a = fixture_alloc(&scene.f, 20 * MIB);
	b = fixture_alloc(&scene.f, 40 * MIB);
	launch(&scene, S);
	launch(&scene, R);
	fixture_free(&scene.f, a);
	fixture_free(&scene.f, b);
	fixture_alloc(&scene.f, 60 * MIB);
	assert_int_equal(fixture_stats(&scene.f).ooms, 0);
	assert_int_equal(fixture_sums(&scene.f).held_bytes, 60 * MIB);
	fixture_stop(&scene.f);
}

static void
test_trim_takes_what_is_finished(void **state)
{
	struct scene scene;

	scene_new(&scene, 1);
	free_used(&scene, 20 * MIB);
	assert_int_equal(ca_drainable_bytes(scene.f.space), 20 * MIB);
	assert_int_equal(ca_trim(scene.f.heap, 0), 0);
	finish(&scene, S);
	assert_int_equal(ca_trim(scene.f.heap, 0), 20 * MIB);
	fixture_check(&scene.f);
	assert_int_equal(fixture_sums(&scene.f).marks, 0);
	fixture_stop(&scene.f);
}

/* Its first submission may come from another thread, at the same time as the free: it may be what
 * the memory's user waits for. */
static void
test_nothing_is_exposed_while_a_stream_was_never_submitted_to(void **state)
{
	struct scene scene;

	scene_with_slack(&scene, 2, 0);
	free_used(&scene, 20 * MIB);
	fixture_alloc(&scene.f, 20 * MIB);
	assert_int_equal(fixture_stats(&scene.f).taken_same_stream, 0);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_that_nobody_used_is_clean_at_once),
		cmocka_unit_test(test_one_stream_reuses_without_a_driver_call),
		cmocka_unit_test(test_two_streams_wait_for_the_user),
		cmocka_unit_test(test_users_are_inherited),
		cmocka_unit_test(test_several_users_must_all_finish),
		cmocka_unit_test(test_pieces_keep_their_user_and_merge_again),
		cmocka_unit_test(
			test_a_block_merges_with_all_around_it_when_a_space_is_quiet_again),
		cmocka_unit_test(
			test_beyond_the_slack_the_own_stream_is_exposed_and_others_guarded),
		cmocka_unit_test(test_beyond_the_slack_what_the_own_stream_comes_after_is_exposed),
		cmocka_unit_test(test_reuse_finished_exposes_nothing),
		cmocka_unit_test(test_another_threads_free_is_not_waited_for),
		cmocka_unit_test(test_beyond_the_slack_others_memory_is_not_waited_for),
		cmocka_unit_test(test_nothing_is_exposed_while_a_stream_was_never_submitted_to),
		cmocka_unit_test(test_beyond_the_slack_the_own_free_is_waited_for),
		cmocka_unit_test(test_who_takes_what_others_freed_waits_for_its_own),
		cmocka_unit_test(test_who_takes_its_own_pieces_waits_for_nothing),
		cmocka_unit_test(test_what_was_kept_waits_with_what_was_freed_later),
		cmocka_unit_test(test_a_request_settles_only_some_of_many),
		cmocka_unit_test(test_out_of_memory_exposes_another_stream),
		cmocka_unit_test(test_out_of_memory_gives_unfinished_segments_back),
		cmocka_unit_test(test_trim_takes_what_is_finished),
	};

	return cmocka_run_group_tests_name("allocator-owned", tests, NULL, NULL);
}
