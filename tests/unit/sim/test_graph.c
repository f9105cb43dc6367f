/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

static CUstream s, t;
static CUdeviceptr p, q;
static CUevent e, f;

static int
begin(void **state)
{
	fixture_two(state);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	p = must_alloc(4096);
	q = must_alloc(4096);
	e = must_event();
	f = must_event();
	return 0;
}

static struct sim_exec *
finish(CUstream stream)
{
	struct sim_exec *exec;
	CUgraph graph;

	assert_int_equal(sim_capture_end(stream, &graph), 0);
	assert_int_equal(sim_graph_instantiate(graph, &exec), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
	return exec;
}

static void
test_runs_what_was_captured_each_time(void **state)
{
	struct sim_exec *exec;

	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(p, 4096, 5, s);
	copy_words(q, p, 4096, s);
	exec = finish(s);
	for (int i = 0; i < 3; i++) {
		fill(q, 4096, 1, t);
		assert_int_equal(sim_exec_launch(exec, t), 0);
		assert_int_equal(sim_stream_sync(t), 0);
		assert_int_equal(word_at(q + 4092), 5);
	}
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_exec_destroy(exec), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_exec_launch(exec, s), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(fx.n_races, 0);
}

static void
test_pageable_source_is_read_at_the_launch(void **state)
{
	struct sim_exec *exec;
	uint32_t host = 1;

	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_copy(p, (uintptr_t)&host, 4, SIM_COPY_HTOD, s, false), 0);
	exec = finish(s);
	host = 2;
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 2);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

/* s: fill p; fork to t: fill q; join: copy. */
static struct sim_exec *
fork_and_join(bool join_before_copy)
{
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p, 4096, 1, s);
	fill(q, 4096, 2, t);
	assert_int_equal(sim_event_record(f, t), 0);
	if (join_before_copy)
		assert_int_equal(sim_stream_wait_event(s, f, 0), 0);
	copy_words(p, q, 4096, s);
	if (!join_before_copy)
		assert_int_equal(sim_stream_wait_event(s, f, 0), 0);
	fill(p + 2048, 4, 9, s);
	return finish(s);
}

static void
test_edges_order(void **state)
{
	struct sim_exec *exec = fork_and_join(true);

	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 2);
	assert_int_equal(word_at(p + 2048), 9);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

/* With a real clock, where nodes run as soon as they may. */
static void
test_edges_hold_nodes_back(void **state)
{
	struct sim_exec *exec;

	sim_stop();
	fixture_begin(1, 64 * MIB, SIM_CLOCK_REAL);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	p = must_alloc(4096);
	q = must_alloc(4096);
	e = must_event();
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill_spin(p, 4096, 1, 20000, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	copy_words(q, p, 4096, t);
	assert_int_equal(sim_event_record(e, t), 0);
	assert_int_equal(sim_stream_wait_event(s, e, 0), 0);
	exec = finish(s);
	assert_int_equal(sim_exec_launch(exec, t), 0);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 1);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_race_inside_a_graph(void **state)
{
	struct sim_exec *exec = fork_and_join(false);

	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_launch_is_ordered_in_its_stream(void **state)
{
	struct sim_exec *exec = fork_and_join(true);

	fill(p, 4096, 3, t);
	assert_int_equal(sim_exec_launch(exec, t), 0);
	fill(p, 4096, 4, t);
	assert_int_equal(fx.n_races, 0);
	fill(q, 4096, 4, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(p), 4);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

/* Launches of one executable follow each other whatever the streams. */
static void
test_launches_of_one_executable(void **state)
{
	struct sim_exec *exec = fork_and_join(true);

	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_exec_launch(exec, t), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_context_gone(void **state)
{
	struct sim_exec *exec;
	CUcontext other;
	CUstream mine;

	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	mine = must_stream(SIM_STREAM_NON_BLOCKING);
	assert_int_equal(sim_capture_begin(mine, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(p, 512, 1, mine);
	exec = finish(mine);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	/* Its node is still to run; destroying waits for it. */
	assert_int_equal(sim_ctx_destroy(other), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(sim_exec_launch(exec, s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_runs_what_was_captured_each_time),
		T(test_pageable_source_is_read_at_the_launch),
		T(test_edges_order),
		T(test_edges_hold_nodes_back),
		T(test_race_inside_a_graph),
		T(test_launch_is_ordered_in_its_stream),
		T(test_launches_of_one_executable),
		T(test_context_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
