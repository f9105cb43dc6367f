/* SPDX-License-Identifier: MIT */
/* Memory that may still be used goes back when that has finished, on a driver whose free waits for
 * nothing. */
#include "tests/unit/allocator/deferred/scene.h"

static const uint64_t SECOND = 1000 * 1000 * 1000;

struct returns {
	struct scene scene;
	unsigned early; /* calls of the driver's free while work was unfinished */
	unsigned more;  /* pieces of unseen work, each submitted when the driver's free returns */
};

static bool
is_busy(struct ca_model *model)
{
	return ca_model_finished(model) < ca_model_submitted(model) ||
	       ca_model_stream_finished(model, (void *)S) <
		       ca_model_stream_submitted(model, (void *)S);
}

static void
look_at_return(void *arg, enum ca_model_function function, bool end)
{
	struct returns *returns = arg;
	struct ca_model *model = returns->scene.f.model;

	if (function != CA_MODEL_RETURN)
		return;
	if (!end)
		returns->early += is_busy(model);
	else if (returns->more && returns->more--)
		ca_model_submit(model);
}

static void
begin_as(struct returns *returns, unsigned streams, bool unseen, bool no_marks)
{
	*returns = (struct returns){ 0 };
	fixture_defaults(&returns->scene.f);
	returns->scene.f.unseen = unseen;
	returns->scene.f.pretend.no_marks = no_marks;
	returns->scene.f.pretend.frees_at_once = true;
	returns->scene.f.pretend.capacity = 100 * MIB;
	returns->scene.f.pretend.work_ns = 5 * SECOND; /* nobody sleeps */
	scene_start(&returns->scene, streams);
	ca_model_set_observer(returns->scene.f.model, look_at_return, returns);
}

static void
begin(struct returns *returns, unsigned streams)
{
	begin_as(returns, streams, false, false);
}

static void
end(struct returns *returns)
{
	assert_int_equal(returns->early, 0);
	ca_model_set_observer(returns->scene.f.model, NULL, NULL);
	fixture_stop(&returns->scene.f);
}

/* Half of it is freed while s uses it; then it is retired. Returns the other half. */
static uint64_t
retired_half(struct returns *returns)
{
	struct fixture *f = &returns->scene.f;
	uint64_t a = fixture_alloc(f, 6 * MIB), b = fixture_alloc(f, 6 * MIB);

	launch(&returns->scene, S);
	fixture_free(f, a);
	assert_int_equal(ca_retire(f->heap, b), 0);
	return b;
}

static void
test_the_last_free_of_a_retired_segment_waits(void **state)
{
	struct returns returns;

	for (unsigned streams = 1; streams <= 2; streams++) {
		begin(&returns, streams);
		fixture_free(&returns.scene.f, retired_half(&returns));
		assert_int_equal(fixture_sums(&returns.scene.f).segments, 0);
		end(&returns);
	}
}

static void
test_the_same_where_work_is_not_seen(void **state)
{
	struct returns returns;
	uint64_t b;

	begin(&returns, 1);
	b = retired_half(&returns);
	ca_order_finished_only(returns.scene.f.heap, NULL, CA_REASON_DEVICE_GRAPH);
	fixture_free(&returns.scene.f, b);
	assert_int_equal(fixture_sums(&returns.scene.f).segments, 0);
	end(&returns);
}

/* Natively the call would be for ever. */
static void
test_nobody_waits_for_a_stream_that_waits_for_the_caller(void **state)
{
	struct returns returns;
	uint64_t b;

	begin(&returns, 2);
	b = retired_half(&returns);
	ca_submit_hazard_begin(returns.scene.s);
	launch(&returns.scene, S);
	ca_submit_hazard_end(returns.scene.s, true);
	fixture_free(&returns.scene.f, b);
	assert_int_equal(fixture_sums(&returns.scene.f).segments, 1);
	assert_int_equal(ca_trim(returns.scene.f.heap, 0), 0);
	finish(&returns.scene, S);
	assert_int_equal(ca_trim(returns.scene.f.heap, 0), 20 * MIB);
	end(&returns);
}

/* Nobody has it, so it is due at once; the next allocation asks and does not wait. */
static void
test_what_is_due_goes_when_it_is_finished(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t a;

	begin(&returns, 1);
	a = free_used(&returns.scene, 20 * MIB);
	assert_int_equal(ca_retire(f->heap, a), 0);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(fixture_sums(f).segments, 2);
	assert_int_equal(fixture_stats(f).host_syncs, 0);
	finish(&returns.scene, S);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(fixture_sums(f).segments, 2);
	end(&returns);
}

/* At the end of the memory the host waits for it. */
static void
test_what_is_due_is_waited_for_when_memory_runs_out(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t a;

	begin(&returns, 2);
	a = free_used(&returns.scene, 60 * MIB);
	assert_int_equal(ca_retire(f->heap, a), 0);
	fixture_alloc(f, 80 * MIB);
	assert_int_equal(fixture_sums(f).segments, 1);
	end(&returns);
}

/* A capture of another thread; the mark that it needs was recorded before. */
static void
test_in_a_capture_the_host_waits_by_the_marks(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;

	for (unsigned streams = 1; streams <= 2; streams++) {
		begin(&returns, streams);
		free_used(&returns.scene, 60 * MIB);
		ca_order_mark_before_capture(f->heap);
		ca_model_set_capturing_relaxed(f->model);
		fixture_alloc(f, 80 * MIB);
		ca_model_set_capturing(f->model, false);
		assert_int_equal(fixture_sums(f).segments, 1);
		end(&returns);
	}
}

/* A segment that nobody uses is kept, and r runs what ends only after the allocation. */
static void
begin_held_up(struct returns *returns, unsigned streams)
{
	struct fixture *f = &returns->scene.f;

	*returns = (struct returns){ 0 };
	fixture_defaults(f);
	f->pretend.capacity = 100 * MIB;
	f->pretend.work_ns = UINT64_MAX; /* nobody sleeps, and nothing ends by itself */
	scene_start(&returns->scene, streams);
	fixture_free(f, fixture_alloc(f, 60 * MIB));
	launch(&returns->scene, streams > 1 ? R : S);
}

static uint64_t
seconds_since(struct fixture *f, uint64_t since_ns)
{
	return (f->driver.clock_ns(f->driver.self) - since_ns) / SECOND;
}

static void
test_an_allocation_waits_ten_seconds_for_what_may_wait_for_it(void **state)
{
	for (unsigned streams = 1; streams <= 2; streams++) {
		struct returns returns;
		struct fixture *f = &returns.scene.f;
		uint64_t since, address;

		begin_held_up(&returns, streams);
		since = f->driver.clock_ns(f->driver.self);
		assert_int_equal(ca_alloc(f->space, 80 * MIB, &address), CA_DRIVER_OUT_OF_MEMORY);
		assert_in_range(seconds_since(f, since), streams > 1 ? 10 : 60,
				streams > 1 ? 25 : 75);
		assert_int_equal(ca_trim(f->heap, 0), 0);
		finish(&returns.scene, streams > 1 ? R : S);
		fixture_alloc(f, 80 * MIB);
		fixture_stop(f);
	}
}

/* One stream ends in eight seconds, the other eight later. */
static void
test_an_allocation_waits_as_long_as_work_goes_on(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t now;

	begin_held_up(&returns, 2);
	launch(&returns.scene, S);
	now = f->driver.clock_ns(f->driver.self);
	assert_int_equal(ca_model_stream_end(f->model, (void *)S, now + 8 * SECOND), 0);
	assert_int_equal(ca_model_stream_end(f->model, (void *)R, now + 16 * SECOND), 0);
	fixture_alloc(f, 80 * MIB);
	assert_in_range(seconds_since(f, now), 16, 17);
	fixture_stop(f);
}

/* What is due goes back in passing only while the driver's free would wait for nothing. */
static void
test_what_is_due_stays_while_anything_runs(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t a;

	begin(&returns, 2);
	a = free_used(&returns.scene, 20 * MIB);
	assert_int_equal(ca_retire(f->heap, a), 0);
	finish(&returns.scene, S);
	launch(&returns.scene, S);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(fixture_sums(f).segments, 2);
	finish(&returns.scene, S);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(fixture_sums(f).segments, 2);
	end(&returns);
}

/* ---- unseen work: no stamp tells earlier from later */

static void
finish_unseen(struct returns *returns)
{
	ca_model_finish(returns->scene.f.model, UINT64_MAX);
}

/* Unseen work has finished, and the heap has been told so. */
static void
answer(struct returns *returns)
{
	struct fixture *f = &returns->scene.f;
	uint64_t a = fixture_alloc(f, 2 * MIB);

	ca_model_submit(f->model);
	fixture_free(f, a);
	finish_unseen(returns);
	ca_trim(f->heap, 0);
	assert_int_equal(fixture_sums(f).segments, 0);
}

static void
begin_answered(struct returns *returns, bool no_marks)
{
	begin_as(returns, 0, true, no_marks);
	answer(returns);
}

/* Unseen work that is not finished uses it. */
static void
make_due(struct returns *returns, uint64_t bytes)
{
	struct fixture *f = &returns->scene.f;
	uint64_t a = fixture_alloc(f, bytes);

	ca_model_submit(f->model);
	fixture_free(f, a);
	assert_int_equal(ca_retire(f->heap, a), 0);
}

static void
test_an_older_answer_is_none_for_an_allocation(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;

	begin_answered(&returns, false);
	make_due(&returns, 20 * MIB);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(fixture_sums(f).segments, 2);
	finish_unseen(&returns);
	fixture_alloc(f, 20 * MIB);
	assert_int_equal(fixture_sums(f).segments, 2);
	end(&returns);
}

static void
test_an_older_answer_is_none_for_the_last_free(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t a, b;

	for (int no_marks = 0; no_marks < 2; no_marks++) {
		begin_answered(&returns, no_marks);
		a = fixture_alloc(f, 6 * MIB);
		b = fixture_alloc(f, 6 * MIB);
		ca_model_submit(f->model);
		fixture_free(f, a);
		assert_int_equal(ca_retire(f->heap, b), 0);
		fixture_free(f, b);
		assert_int_equal(fixture_sums(f).segments, 0);
		end(&returns);
	}
}

static void
test_an_older_answer_is_none_for_a_trim(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;

	begin_answered(&returns, false);
	make_due(&returns, 20 * MIB);
	assert_int_equal(ca_trim(f->heap, 0), 0);
	finish_unseen(&returns);
	assert_int_equal(ca_trim(f->heap, 0), 20 * MIB);
	end(&returns);
}

/* Nothing tells without a wait, so the trim does wait. */
static void
test_a_trim_waits_where_there_are_no_marks(void **state)
{
	struct returns returns;

	begin_answered(&returns, true);
	make_due(&returns, 20 * MIB);
	assert_int_equal(ca_trim(returns.scene.f.heap, 0), 20 * MIB);
	end(&returns);
}

static void
test_an_older_answer_is_none_when_memory_runs_out(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;

	for (int no_marks = 0; no_marks < 2; no_marks++) {
		begin_answered(&returns, no_marks);
		make_due(&returns, 60 * MIB);
		fixture_alloc(f, 80 * MIB);
		assert_int_equal(fixture_sums(f).segments, 1);
		end(&returns);
	}
}

/* Of freed memory that is not due, either: the driver's free may wait, and an allocation must not.
 */
static void
test_no_segment_goes_back_while_unseen_work_runs(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;

	begin_answered(&returns, false);
	fixture_free(f, fixture_alloc(f, 60 * MIB));
	ca_model_submit(f->model);
	fixture_alloc(f, 80 * MIB);
	assert_int_equal(fixture_sums(f).segments, 1);
	end(&returns);
}

/* Each lasts half as long as a wait is patient for. */
static void
test_patience_begins_anew_after_each_wait(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t a[4];
	int i;

	begin_as(&returns, 2, true, false);
	for (i = 0; i < 4; i++)
		a[i] = fixture_alloc(f, 24 * MIB);
	for (i = 0; i < 4; i++)
		fixture_free(f, a[i]);
	ca_model_submit(f->model);
	returns.more = 3;
	fixture_alloc(f, 100 * MIB);
	assert_int_equal(returns.more, 0);
	end(&returns);
}

/* The driver does not take back what is due. That all has finished is no news in the next round. */
static void
test_out_of_memory_is_said_at_once(void **state)
{
	struct returns returns;
	struct fixture *f = &returns.scene.f;
	uint64_t address;

	for (int no_marks = 0; no_marks < 2; no_marks++) {
		begin_answered(&returns, no_marks);
		make_due(&returns, 60 * MIB);
		ca_model_fail(f->model, CA_MODEL_RETURN, 1, true, 999);
		assert_int_equal(ca_alloc(f->space, 80 * MIB, &address), CA_DRIVER_OUT_OF_MEMORY);
		assert_in_range(fixture_stats(f).alloc_retries, 0, 3);
		end(&returns);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_free_of_a_retired_segment_waits),
		cmocka_unit_test(test_the_same_where_work_is_not_seen),
		cmocka_unit_test(test_nobody_waits_for_a_stream_that_waits_for_the_caller),
		cmocka_unit_test(test_what_is_due_goes_when_it_is_finished),
		cmocka_unit_test(test_what_is_due_is_waited_for_when_memory_runs_out),
		cmocka_unit_test(test_in_a_capture_the_host_waits_by_the_marks),
		cmocka_unit_test(test_an_allocation_waits_ten_seconds_for_what_may_wait_for_it),
		cmocka_unit_test(test_an_allocation_waits_as_long_as_work_goes_on),
		cmocka_unit_test(test_what_is_due_stays_while_anything_runs),
		cmocka_unit_test(test_an_older_answer_is_none_for_an_allocation),
		cmocka_unit_test(test_an_older_answer_is_none_for_the_last_free),
		cmocka_unit_test(test_an_older_answer_is_none_for_a_trim),
		cmocka_unit_test(test_a_trim_waits_where_there_are_no_marks),
		cmocka_unit_test(test_an_older_answer_is_none_when_memory_runs_out),
		cmocka_unit_test(test_no_segment_goes_back_while_unseen_work_runs),
		cmocka_unit_test(test_patience_begins_anew_after_each_wait),
		cmocka_unit_test(test_out_of_memory_is_said_at_once),
	};

	return cmocka_run_group_tests_name("allocator-await", tests, NULL, NULL);
}
