/* SPDX-License-Identifier: MIT */
/* Memory that may still be used goes back when that has finished, on a driver whose free waits for
 * nothing. */
#include "tests/unit/allocator/deferred/scene.h"

static const uint64_t SECOND = 1000 * 1000 * 1000;

struct returns {
	struct scene scene;
	unsigned early; /* calls of the driver's free while work of s was unfinished */
};

static void
look_at_return(void *arg, enum ca_model_function function, bool end)
{
	struct returns *returns = arg;
	struct ca_model *model = returns->scene.f.model;

	if (function == CA_MODEL_RETURN && !end)
		returns->early += ca_model_stream_finished(model, (void *)S) <
				  ca_model_stream_submitted(model, (void *)S);
}

static void
begin(struct returns *returns, unsigned streams)
{
	*returns = (struct returns){ 0 };
	fixture_defaults(&returns->scene.f);
	returns->scene.f.pretend.frees_at_once = true;
	returns->scene.f.pretend.capacity = 100 * MIB;
	returns->scene.f.pretend.work_ns = 5 * SECOND; /* nobody sleeps */
	scene_start(&returns->scene, streams);
	ca_model_set_observer(returns->scene.f.model, look_at_return, returns);
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
	};

	return cmocka_run_group_tests_name("allocator-await", tests, NULL, NULL);
}
