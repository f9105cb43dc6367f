/* SPDX-License-Identifier: MIT */
/* The out-of-memory ladder finds what a thread freed that is gone or idle now, although only that
 * thread can name its per-thread stream; what others give back meanwhile; and what an idle context
 * has. */
#include "tests/unit/allocator/order/fixture.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "allocator/api/oom_report.h"

struct scene {
	struct fixture f;
	struct ca_space *space; /* the other thread's */
};

/* Works on its own per-thread stream, frees, and does nothing any more. */
static void *
other_thread(void *arg)
{
	struct scene *scene = arg;
	struct ca_stream *stream = NULL;
	uint64_t address = 0;

	ca_model_stream_set_private(scene->f.model, HANDLE(1));
	assert_int_equal(
		ca_stream_open(scene->space, CA_STREAM_PER_THREAD, HANDLE(1), true, &stream), 0);
	ca_stream_note_thread(stream);
	assert_int_equal(ca_alloc(scene->space, 60 * MIB, &address), 0);
	order_launch(&scene->f, stream);
	assert_int_equal(ca_free(scene->f.heap, address), 0);
	return NULL;
}

static void
need_what_it_freed(bool other_space, bool own_stream)
{
	struct scene scene;
	pthread_t thread;

	fixture_defaults(&scene.f);
	scene.f.pretend.capacity = 100 * MIB;
	fixture_start(&scene.f);
	scene.space = scene.f.space;
	if (other_space)
		assert_int_equal(ca_space_create(scene.f.heap, (void *)2, 0, &scene.space), 0);
	if (own_stream)
		order_launch(&scene.f, order_open(&scene.f, 2));
	assert_int_equal(pthread_create(&thread, NULL, other_thread, &scene), 0);
	pthread_join(thread, NULL);
	ca_model_stream_finish(scene.f.model, HANDLE(1), UINT64_MAX);
	ca_model_stream_finish(scene.f.model, HANDLE(2), UINT64_MAX);
	fixture_alloc(&scene.f, 80 * MIB);
	fixture_stop(&scene.f);
}

static void
test_finished_memory_of_an_idle_threads_own_stream_is_given_back(void **state)
{
	need_what_it_freed(false, false);
	need_what_it_freed(false, true);
}

static void
test_the_same_in_another_context(void **state)
{
	need_what_it_freed(true, false);
	need_what_it_freed(true, true);
}

/* Its memory waits for a mark of the context. */
static void *
unseen_thread(void *arg)
{
	struct scene *scene = arg;
	uint64_t address = 0;

	assert_int_equal(ca_alloc(scene->f.space, 60 * MIB, &address), 0);
	ca_model_submit(scene->f.model);
	assert_int_equal(ca_free(scene->f.heap, address), 0);
	return NULL;
}

static void
test_nobody_waits_for_a_mark_whose_memory_has_gone_back(void **state)
{
	struct scene scene;
	struct ca_report report;
	pthread_t thread;
	uint64_t address;

	fixture_defaults(&scene.f);
	scene.f.unseen = true;
	scene.f.pretend.capacity = 100 * MIB;
	fixture_start(&scene.f);
	assert_int_equal(pthread_create(&thread, NULL, unseen_thread, &scene), 0);
	pthread_join(thread, NULL);
	ca_model_set_capturing_relaxed(scene.f.model);
	fixture_alloc(&scene.f, 80 * MIB); /* natively the other thread's memory would be free */
	ca_model_set_capturing(scene.f.model, false);
	assert_int_equal(ca_alloc(scene.f.space, 60 * MIB, &address), CA_DRIVER_OUT_OF_MEMORY);
	ca_report_fill(scene.f.space, 60 * MIB, &report);
	assert_false(report.tried.others);
	fixture_stop(&scene.f);
}

static struct {
	struct ca_driver driver;
	struct fixture *f;
	uint64_t address; /* of memory that another thread still has; 0: none */
} refusing;

static void *
give_back(void *arg)
{
	(void)arg;
	assert_int_equal(ca_free(refusing.f->heap, refusing.address), 0);
	assert_true(ca_reclaim(refusing.f->space, 60 * MIB, NULL));
	return NULL;
}

/* Another thread gives its memory back when the answer is found and has not arrived yet. */
static int
take_and_wait(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	int r = refusing.driver.segment_take(self, context, size, ret_address);
	pthread_t thread;

	if (r == CA_DRIVER_OUT_OF_MEMORY && refusing.address) {
		assert_int_equal(pthread_create(&thread, NULL, give_back, NULL), 0);
		pthread_join(thread, NULL);
		refusing.address = 0;
	}
	return r;
}

static void
test_what_others_give_back_beside_the_first_request_counts(void **state)
{
	const uint64_t sizes[] = { 80 * MIB, 5 * MIB }; /* exact, and cut from a larger segment */
	struct fixture f;

	for (unsigned i = 0; i < 2; i++) {
		fixture_defaults(&f);
		f.pretend.capacity = 100 * MIB;
		assert_int_equal(ca_model_create(&f.pretend, &f.model), 0);
		ca_model_driver(f.model, &f.driver);
		refusing.driver = f.driver;
		f.driver.segment_take = take_and_wait;
		assert_int_equal(ca_heap_create(&f.config, &f.driver, &f.heap), 0);
		assert_int_equal(ca_space_create(f.heap, (void *)1, 0, &f.space), 0);
		refusing.f = &f;
		if (i)
			fixture_alloc(&f, 38 * MIB);
		refusing.address = fixture_alloc(&f, 60 * MIB);
		fixture_alloc(&f, sizes[i]);
		fixture_stop(&f);
	}
}

static struct ca_stream *ending;

static void *
synchronize_and_give_back(void *arg)
{
	struct fixture *f = arg;

	ca_order_finished(ending, ca_order_space_bound(f->space));
	assert_true(ca_reclaim(f->space, 50 * MIB, NULL));
	fixture_alloc(f, 50 * MIB);
	return NULL;
}

/* Once something is due, all work ends, and another thread gives that back. */
static void
give_back_what_is_due(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;
	pthread_t thread;

	if (function != CA_MODEL_STREAM_MARK || !end || ca_list_empty(&f->space->due))
		return;
	ca_model_set_observer(f->model, NULL, NULL);
	ca_model_stream_finish(f->model, HANDLE(2), UINT64_MAX);
	assert_int_equal(pthread_create(&thread, NULL, synchronize_and_give_back, f), 0);
	pthread_join(thread, NULL);
}

static void
test_in_a_capture_others_give_back_what_was_made_due(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	f.pretend.capacity = 100 * MIB;
	f.pretend.work_ns = (uint64_t)1e14; /* a day: no work ends by itself */
	fixture_start(&f);
	ending = order_open(&f, 2);
	a = fixture_alloc(&f, 50 * MIB);
	b = fixture_alloc(&f, 50 * MIB);
	order_launch(&f, ending);
	fixture_free(&f, a);
	fixture_free(&f, b);
	ca_model_set_capturing_relaxed(f.model);
	ca_model_set_observer(f.model, give_back_what_is_due, &f);
	fixture_alloc(&f, 50 * MIB);
	assert_int_equal(fixture_stats(&f).allocated_bytes.current, 100 * MIB);
	ca_model_set_capturing(f.model, false);
	fixture_stop(&f);
}

static struct {
	struct fixture f;
	_Atomic bool asks, goes_on;
} limited;

/* The first request stays in the driver. */
static void
hold_up(void *arg, enum ca_model_function function, bool end)
{
	(void)arg;
	if (function != CA_MODEL_TAKE || end || atomic_exchange(&limited.asks, true))
		return;
	while (!atomic_load(&limited.goes_on))
		sched_yield();
}

static void *
fail_by_the_driver(void *arg)
{
	uint64_t address;

	(void)arg;
	assert_int_equal(ca_alloc(limited.f.space, 60 * MIB, &address), 304);
	return NULL;
}

static void *
need_the_same_room(void *arg)
{
	(void)arg;
	fixture_alloc(&limited.f, 60 * MIB);
	return NULL;
}

static void
test_a_limit_that_a_failed_request_was_in_the_way_of(void **state)
{
	pthread_t failing, needing;

	fixture_defaults(&limited.f);
	limited.f.config.limit.bytes = 100 * MIB;
	fixture_start(&limited.f);
	ca_model_set_observer(limited.f.model, hold_up, NULL);
	ca_model_fail(limited.f.model, CA_MODEL_TAKE, 1, false, 304);
	assert_int_equal(pthread_create(&failing, NULL, fail_by_the_driver, NULL), 0);
	while (!atomic_load(&limited.asks))
		sched_yield();
	assert_int_equal(pthread_create(&needing, NULL, need_the_same_room, NULL), 0);
	nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000 * 1000 }, NULL); /* it is refused */
	atomic_store(&limited.goes_on, true);
	pthread_join(failing, NULL);
	pthread_join(needing, NULL);
	fixture_stop(&limited.f);
}

/* However many busy contexts have larger segments. */
static void
test_an_idle_context_behind_many_busy_ones(void **state)
{
	const unsigned n = 40;
	struct fixture f, busy;
	uint64_t address;

	fixture_defaults(&f);
	f.pretend.capacity = n * 22 * MIB + (24 + 8) * MIB;
	f.pretend.work_ns = (uint64_t)1e14; /* a day: no work ends */
	f.pretend.frees_at_once = true;
	fixture_start(&f);
	busy = f;
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(ca_space_create(f.heap, HANDLE(100 + i), 0, &busy.space), 0);
		assert_int_equal(ca_alloc(busy.space, 22 * MIB, &address), 0);
		assert_int_equal(ca_free(f.heap, address), 0);
		order_launch(&busy, order_open(&busy, i));
	}
	fixture_free(&f, fixture_alloc(&f, 24 * MIB));
	fixture_alloc(&f, 30 * MIB);
	fixture_stop(&f);
}

enum { SEGMENTS = 128, ALL_OF_IT = SEGMENTS * 2 };

struct pieces {
	struct fixture f;
	bool sleeps; /* then, until `step` is 2 */
	_Atomic unsigned step;
};

/* Every segment has one small piece that is kept; nothing is live. */
static void *
leave_pieces(void *arg)
{
	static uint64_t large[SEGMENTS][3], piece[SEGMENTS];
	struct pieces *pieces = arg;
	struct fixture *f = &pieces->f;
	uint64_t none;
	unsigned i, j;

	for (i = 0; i < SEGMENTS; i++) {
		uint64_t bytes = 512 * (1 + i / 60);

		large[i][0] = fixture_alloc(f, 600 * KIB);
		piece[i] = fixture_alloc(f, bytes);
		large[i][1] = fixture_alloc(f, 700 * KIB);
		large[i][2] = fixture_alloc(f, 2 * MIB - 1300 * KIB - bytes);
	}
	for (i = 0; i < SEGMENTS; i++)
		for (j = 0; j < 3; j++)
			fixture_free(f, large[i][j]);
	assert_int_not_equal(ca_alloc(f->space, SEGMENTS * 2 * MIB, &none), 0);
	for (i = 0; i < SEGMENTS; i++)
		fixture_free(f, piece[i]);
	if (!pieces->sleeps)
		return NULL;
	pieces->step = 1;
	while (pieces->step != 2)
		sched_yield();
	return NULL;
}

static unsigned
take_all(struct fixture *f)
{
	uint64_t address;
	unsigned n = 0;

	while (!ca_alloc(f->space, MIB, &address))
		n++;
	return n;
}

/* Natively there is memory for 256. Those that come before the pieces are merged are few. */
static void
test_small_pieces_that_are_kept_cost_little_of_a_full_device(void **state)
{
	struct pieces pieces = { .sleeps = false };

	fixture_defaults(&pieces.f);
	pieces.f.pretend.capacity = SEGMENTS * 2 * MIB;
	fixture_start(&pieces.f);
	(void)leave_pieces(&pieces);
	assert_in_range(take_all(&pieces.f), ALL_OF_IT - ALL_OF_IT / 20, ALL_OF_IT);
	fixture_stop(&pieces.f);
}

static void
test_nor_do_those_of_a_thread_that_sleeps(void **state)
{
	struct pieces pieces = { .sleeps = true };
	pthread_t thread;

	fixture_defaults(&pieces.f);
	pieces.f.pretend.capacity = SEGMENTS * 2 * MIB;
	fixture_start(&pieces.f);
	assert_int_equal(pthread_create(&thread, NULL, leave_pieces, &pieces), 0);
	while (!pieces.step)
		sched_yield();
	assert_in_range(take_all(&pieces.f), ALL_OF_IT - ALL_OF_IT / 20, ALL_OF_IT);
	pieces.step = 2;
	pthread_join(thread, NULL);
	fixture_stop(&pieces.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finished_memory_of_an_idle_threads_own_stream_is_given_back),
		cmocka_unit_test(test_the_same_in_another_context),
		cmocka_unit_test(test_nobody_waits_for_a_mark_whose_memory_has_gone_back),
		cmocka_unit_test(test_what_others_give_back_beside_the_first_request_counts),
		cmocka_unit_test(test_in_a_capture_others_give_back_what_was_made_due),
		cmocka_unit_test(test_an_idle_context_behind_many_busy_ones),
		cmocka_unit_test(test_small_pieces_that_are_kept_cost_little_of_a_full_device),
		cmocka_unit_test(test_nor_do_those_of_a_thread_that_sleeps),
		cmocka_unit_test(test_a_limit_that_a_failed_request_was_in_the_way_of),
	};

	return cmocka_run_group_tests_name("allocator-ladder-threads", tests, NULL, NULL);
}
