/* SPDX-License-Identifier: MIT */
/* Graphs built by hand, capture into graphs, relaunch, clones, children, user objects. */
#include "tests/unit/sim/fixture.h"

#include <sched.h>

static CUstream s, t;
static CUdeviceptr p, q, errors;
static CUgraph graph;

static void
begin_with(enum sim_clock clock)
{
	fixture_begin(1, 64 * MIB, clock);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	p = must_alloc(4096);
	q = must_alloc(4096);
	errors = must_alloc(8);
	assert_int_equal(sim_set(errors, 0, 4, 2, NULL, false), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_graph_create(&graph), 0);
}

static int
begin_manual(void **state)
{
	begin_with(SIM_CLOCK_MANUAL);
	return 0;
}

static int
begin_real(void **state)
{
	begin_with(SIM_CLOCK_REAL);
	return 0;
}

static int
end(void **state)
{
	sim_graph_destroy(graph);
	return fixture_end(state);
}

static CUgraphNode
add_fill(CUdeviceptr ptr, uint32_t value, const CUgraphNode *deps, size_t n)
{
	uint64_t args[] = { ptr, 1024, value, 100 };
	CUgraphNode node = NULL;

	assert_int_equal(sim_graph_add_kernel(graph, deps, n, SIM_KERNEL_FILL, args, &node), 0);
	return node;
}

static struct sim_exec *
instantiate(CUgraph from)
{
	struct sim_exec *exec;

	assert_int_equal(sim_graph_instantiate(from, &exec), 0);
	return exec;
}

/* In a line, after one node. */
static int
add_copy(const CUgraphNode *after, CUdeviceptr dst, CUdeviceptr src, size_t n, CUgraphNode *node)
{
	struct sim_area to = sim_line(dst, n), from = sim_line(src, n);

	return sim_graph_add_copy(graph, after, 1, &to, &from, node);
}

static int
add_set(CUdeviceptr dst, uint32_t value, unsigned element_bytes, size_t n, CUgraphNode *node)
{
	struct sim_area to = sim_line(dst, n * element_bytes);

	return sim_graph_add_set(graph, NULL, 0, &to, value, element_bytes, node);
}

static int calls;

static void
count(void *data)
{
	__atomic_fetch_add((int *)data, 1, __ATOMIC_RELAXED);
}

static void
test_all_kinds_in_order(void **state)
{
	CUgraphNode node[6], both[2];
	struct sim_exec *exec;

	calls = 0;
	node[0] = add_fill(p, 7, NULL, 0);
	assert_int_equal(add_set(q, 1, 4, 1024, &node[1]), 0);
	both[0] = node[0];
	both[1] = node[1];
	assert_int_equal(sim_graph_add_empty(graph, both, 2, &node[2]), 0);
	assert_int_equal(add_copy(&node[2], q, p, 2048, &node[3]), 0);
	assert_int_equal(sim_graph_add_host(graph, &node[3], 1, count, &calls, &node[4]), 0);
	node[5] = add_fill(p, 8, &node[4], 1);
	exec = instantiate(graph);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_exec_launch(exec, i & 1 ? s : t), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(calls, 3);
	assert_int_equal(word_at(p), 8);
	assert_int_equal(word_at(q), 7);
	assert_int_equal(word_at(q + 2048), 1);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_nodes_without_an_edge_race(void **state)
{
	CUgraphNode first = add_fill(p, 1, NULL, 0);
	struct sim_exec *exec;

	add_fill(q, 1, &first, 1);
	add_fill(p, 2, NULL, 0);
	exec = instantiate(graph);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_bad_nodes(void **state)
{
	CUgraphNode node = add_fill(p, 1, NULL, 0), other;
	CUgraph clone;

	assert_int_equal(sim_graph_clone(graph, &clone), 0);
	assert_int_equal(sim_graph_add_empty(clone, &node, 1, &other), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_add_empty(graph, NULL, 1, &other), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(add_set(p, 1, 3, 4, &other), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_add_child(graph, NULL, 0, graph, &other),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_destroy(clone), 0);
	assert_int_equal(sim_graph_clone(clone, &clone), CUDA_ERROR_INVALID_VALUE);
}

static void
test_events_are_recorded_by_each_launch(void **state)
{
	CUevent e = must_event(), f = must_event();
	CUgraphNode node, wait;
	struct sim_exec *exec;

	assert_int_equal(sim_graph_add_event(graph, NULL, 0, f, false, &wait), 0);
	node = add_fill(p, 3, &wait, 1);
	assert_int_equal(sim_graph_add_event(graph, &node, 1, e, true, &node), 0);
	exec = instantiate(graph);
	for (int i = 0; i < 2; i++) {
		fill(p, 4096, 1, t);
		assert_int_equal(sim_event_record(f, t), 0);
		assert_int_equal(sim_exec_launch(exec, s), 0);
		assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
		check(p, 4096, 3, errors, t);
	}
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(errors), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_child(void **state)
{
	CUgraph child = graph;
	CUgraphNode first, node;
	struct sim_exec *exec;

	add_fill(p, 5, NULL, 0);
	add_fill(q, 6, NULL, 0);
	assert_int_equal(sim_graph_create(&graph), 0);
	first = add_fill(p, 1, NULL, 0);
	assert_int_equal(sim_graph_add_child(graph, &first, 1, child, &node), 0);
	assert_int_equal(sim_graph_destroy(child), 0);
	assert_int_equal(add_copy(&node, p, q, 4, &node), 0);
	exec = instantiate(graph);
	fill(q, 4096, 2, s);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 6);
	assert_int_equal(word_at(p + 4), 5);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

static void
test_update(void **state)
{
	struct sim_exec *exec;
	CUgraph old = graph;

	add_fill(p, 1, NULL, 0);
	exec = instantiate(graph);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_graph_create(&graph), 0);
	add_fill(p, 2, NULL, 0);
	assert_int_equal(sim_exec_update(exec, graph), 0);
	assert_int_equal(sim_exec_upload(exec, s), 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 2);
	add_fill(q, 2, NULL, 0);
	assert_int_equal(sim_exec_update(exec, graph), SIM_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_exec_update(exec, graph), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_destroy(old), 0);
}

static void
test_capture_into_a_graph(void **state)
{
	CUgraphNode first = add_fill(p, 1, NULL, 0);
	const CUgraphNode *nodes;
	struct sim_exec *exec;
	CUgraph got, done;
	size_t n;

	assert_int_equal(
		sim_capture_begin_into(s, graph, &first, 1, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_capture_begin_into(t, graph, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_capture_look(s, &got, &nodes, &n), 0);
	assert_ptr_equal(got, graph);
	assert_true(n == 1 && nodes[0] == first);
	copy_words(q, p, 4096, s);
	assert_int_equal(sim_capture_end(s, &done), 0);
	assert_ptr_equal(done, graph);
	exec = instantiate(graph);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(q), 1);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
}

/* A node that the program adds itself, made what the stream goes on from. */
static void
test_update_dependencies(void **state)
{
	const CUgraphNode *nodes;
	struct sim_exec *exec;
	CUgraph mine = graph, done;
	CUgraphNode node;
	size_t n;

	assert_int_equal(sim_capture_look(s, &graph, &nodes, &n), CUDA_ERROR_ILLEGAL_STATE);
	assert_int_equal(sim_capture_update(s, NULL, 0, true), CUDA_ERROR_ILLEGAL_STATE);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_capture_look(s, &graph, &nodes, &n), 0);
	assert_int_equal(n, 1);
	node = add_fill(p, 2, nodes, n);
	assert_int_equal(sim_capture_update(s, &node, 1, true), 0);
	copy_words(q, p, 4096, s);
	assert_int_equal(sim_capture_end(s, &done), 0);
	assert_ptr_equal(done, graph);
	exec = instantiate(graph);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(q), 2);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
	graph = mine;
}

static int destroyed;

static int
destroyed_now(void)
{
	for (int i = 0; i < 200; i++)
		sched_yield();
	return __atomic_load_n(&destroyed, __ATOMIC_RELAXED);
}

static void
destroyed_soon(void)
{
	while (!__atomic_load_n(&destroyed, __ATOMIC_RELAXED))
		sched_yield();
}

static void
test_user_object_outlives_all_that_can_run(void **state)
{
	struct sim_user_object *object;
	struct sim_exec *exec;
	CUgraph clone;

	destroyed = 0;
	assert_int_equal(sim_user_object_create(&destroyed, count, 1, &object), 0);
	assert_int_equal(sim_graph_retain_object(graph, object, 1, true), 0);
	add_fill(p, 1, NULL, 0);
	assert_int_equal(sim_graph_clone(graph, &clone), 0);
	exec = instantiate(clone);
	assert_int_equal(sim_graph_destroy(graph), 0);
	assert_int_equal(sim_graph_destroy(clone), 0);
	assert_int_equal(destroyed_now(), 0);
	assert_int_equal(sim_stream_wait_value(s, errors, 1, 4, SIM_COMPARE_GEQ), 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(destroyed_now(), 0); /* the launch still waits */
	assert_int_equal(sim_stream_write_value(t, errors, 1, 4, true), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	destroyed_soon();
	assert_int_equal(destroyed_now(), 1);
	assert_int_equal(sim_graph_create(&graph), 0);
}

static void
test_user_object_counts(void **state)
{
	struct sim_user_object *object;

	destroyed = 0;
	assert_int_equal(sim_user_object_create(&destroyed, NULL, 1, &object),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_user_object_create(&destroyed, count, 0, &object),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_user_object_create(&destroyed, count, 2, &object), 0);
	assert_int_equal(sim_user_object_retain(object, 1), 0);
	assert_int_equal(sim_graph_retain_object(graph, object, 2, false), 0);
	assert_int_equal(sim_user_object_release(object, 3), 0);
	assert_int_equal(sim_graph_release_object(graph, object, 3), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_release_object(graph, object, 1), 0);
	assert_int_equal(destroyed_now(), 0);
	assert_int_equal(sim_graph_release_object(graph, object, 1), 0);
	destroyed_soon();
	assert_int_equal(sim_user_object_release(object, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_release_object(graph, object, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Retained by a graph under capture, which then fails. */
static void
test_user_object_of_a_capture(void **state)
{
	struct sim_user_object *object;
	const CUgraphNode *nodes;
	CUgraph got;
	size_t n;

	destroyed = 0;
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_capture_look(s, &got, &nodes, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(sim_user_object_create(&destroyed, count, 1, &object), 0);
	assert_int_equal(sim_graph_retain_object(got, object, 1, true), 0);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(destroyed_now(), 0);
	assert_int_equal(sim_capture_end(s, &got), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	destroyed_soon();
}

#define B(f)                                                                                       \
	{ #f " (manual)", f, begin_manual, end, NULL },                                            \
	{                                                                                          \
#f " (real)", f, begin_real, end, NULL                                             \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		B(test_all_kinds_in_order),
		B(test_nodes_without_an_edge_race),
		B(test_bad_nodes),
		B(test_events_are_recorded_by_each_launch),
		B(test_child),
		B(test_update),
		B(test_capture_into_a_graph),
		B(test_update_dependencies),
		B(test_user_object_outlives_all_that_can_run),
		B(test_user_object_counts),
		B(test_user_object_of_a_capture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
