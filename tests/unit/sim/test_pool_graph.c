/* SPDX-License-Identifier: MIT */
/* Graph memory, and pools that are exported. */
#include <unistd.h>

#include "tests/unit/sim/pool_fixture.h"

static uint64_t
graph_bytes(enum sim_graph_memory_attribute attribute)
{
	uint64_t value = ~0ull;

	assert_int_equal(sim_graph_memory_get(0, attribute, &value), 0);
	return value;
}

/* alloc, fill; and a free where wanted. */
static CUgraph
capture(bool frees, CUdeviceptr *ret_ptr)
{
	CUgraph graph = NULL;

	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_mem_alloc_async(3 * MIB, s, ret_ptr), 0);
	fill(*ret_ptr, 4096, 9, s);
	if (frees)
		must_free(*ret_ptr, s);
	assert_int_equal(sim_capture_end(s, &graph), 0);
	return graph;
}

static struct sim_exec *
must_instantiate(CUgraph graph)
{
	struct sim_exec *exec = NULL;

	assert_int_equal(sim_graph_instantiate(graph, &exec), 0);
	return exec;
}

static void
test_memory_comes_with_the_launch(void **state)
{
	CUdeviceptr p;
	struct sim_exec *exec = must_instantiate(capture(true, &p));

	assert_int_equal(room(), 64 * MIB);
	assert_int_equal(graph_bytes(SIM_GRAPH_RESERVED), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(graph_bytes(SIM_GRAPH_USED), 0);
	assert_int_equal(graph_bytes(SIM_GRAPH_USED_HIGH), 4 * MIB);
	assert_int_equal(graph_bytes(SIM_GRAPH_RESERVED), 4 * MIB);
	assert_int_equal(sim_graph_memory_trim(0), 0); /* still under way */
	assert_int_equal(graph_bytes(SIM_GRAPH_RESERVED), 4 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(room(), 60 * MIB);
	assert_int_equal(sim_graph_memory_trim(0), 0);
	assert_int_equal(room(), 64 * MIB);
	assert_int_equal(sim_graph_memory_reset(0, SIM_GRAPH_USED_HIGH), 0);
	assert_int_equal(graph_bytes(SIM_GRAPH_USED_HIGH), 0);
	assert_int_equal(sim_graph_memory_reset(0, SIM_GRAPH_USED), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_graph_memory_trim(1), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_mem_free(p), CUDA_ERROR_INVALID_VALUE);
}

/* What a graph does not free, a call frees; until then it cannot be launched again. */
static void
test_freed_outside(void **state)
{
	CUdeviceptr p;
	CUgraph graph = capture(false, &p);
	struct sim_exec *exec = must_instantiate(graph);

	assert_int_equal(sim_mem_free_async(p, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_exec_launch(exec, s), CUDA_ERROR_INVALID_VALUE);
	fill(p, 4096, 1, s);
	must_free(p, s);
	assert_int_equal(sim_mem_free_async(p, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 9);
	assert_int_equal(sim_mem_free(p), 0);
	assert_int_equal(graph_bytes(SIM_GRAPH_USED), 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(fx.n_races, 0);
	/* It outlives its graph. */
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 9);
	must_free(p, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(room(), 64 * MIB);
}

/* Launches go on when their executable is gone, one after the other, and then nothing is left. */
static void
test_executable_destroyed_behind_launches(void **state)
{
	CUdeviceptr p;
	CUgraph graph = capture(true, &p);
	struct sim_exec *exec = must_instantiate(graph);

	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(room(), 64 * MIB);
}

static void
test_auto_free(void **state)
{
	CUdeviceptr p;
	struct sim_exec *exec = must_instantiate(capture(false, &p));

	assert_int_equal(sim_exec_set_auto_free(exec), 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(graph_bytes(SIM_GRAPH_USED), 4 * MIB);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(fx.n_races, 0);
}

static void
test_use_before_the_launch_faults(void **state)
{
	CUdeviceptr p;

	capture(false, &p);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_use_beside_the_launch_is_a_race(void **state)
{
	CUdeviceptr p;
	struct sim_exec *exec = must_instantiate(capture(false, &p));

	assert_int_equal(sim_exec_launch(exec, s), 0);
	fill(p, 4096, 1, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_launch_without_room(void **state)
{
	CUdeviceptr p;
	struct sim_exec *exec = must_instantiate(capture(true, &p));

	must_alloc(62 * MIB);
	assert_int_equal(sim_exec_launch(exec, s), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(graph_bytes(SIM_GRAPH_RESERVED), 0);
}

static void
test_what_such_graphs_cannot(void **state)
{
	CUdeviceptr p;
	CUgraph graph = capture(true, &p), other;
	struct sim_exec *exec = must_instantiate(graph), *second;
	CUgraphNode node;

	assert_int_equal(sim_graph_instantiate(graph, &second), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(sim_graph_clone(graph, &other), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(sim_graph_create(&other), 0);
	assert_int_equal(sim_graph_add_child(other, NULL, 0, graph, &node),
			 CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(sim_graph_add_free(other, NULL, 0, p, &node), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_graph_instantiate(graph, &second), 0);
}

static void
test_nodes_by_hand(void **state)
{
	CUgraphNode node[2];
	CUgraphNodeType type;
	CUdeviceptr p;
	CUgraph graph;
	CUevent event;

	assert_int_equal(sim_graph_create(&graph), 0);
	assert_int_equal(sim_graph_add_alloc(graph, NULL, 0, 0, 4096, &node[0], &p), 0);
	assert_int_equal(sim_graph_add_free(graph, node, 1, p, &node[1]), 0);
	assert_int_equal(sim_graph_add_free(graph, node, 1, p, &node[1]), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_node_look(node[0], &type, &event), 0);
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	assert_int_equal(sim_node_look(node[1], &type, &event), 0);
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
	assert_int_equal(sim_exec_launch(must_instantiate(graph), s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
}

/* ---------------------------------------------------------------- shares --- */
static int
begin_self(void **state)
{
	fixture_begin_config((struct sim_config){
		.n_devices = 1, .mem_bytes = 64 * MIB, .clock = SIM_CLOCK_MANUAL, .ipc = "self" });
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	return 0;
}

static void
test_export_and_import(void **state)
{
	struct sim_pool_props props = { .type = SIM_POOL_PINNED,
					.location = SIM_LOCATION_DEVICE,
					.handle_types = SIM_POOL_FD };
	struct sim_pool_share share;
	CUmemoryPool pool, imported;
	CUdeviceptr p, q, bad;
	int fd;

	assert_int_equal(sim_pool_create(&props, &pool), 0);
	assert_int_equal(sim_pool_export(pool, SIM_POOL_FD, &fd), 0);
	assert_int_equal(sim_pool_import(fd, SIM_POOL_FD, &imported), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(get(imported, SIM_POOL_HANDLE_TYPES), 0);
	assert_int_equal(sim_pool_alloc(imported, 512, s, &bad), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_set_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, 0, imported),
			 CUDA_ERROR_INVALID_VALUE);
	p = must_take(pool, 4096, s);
	assert_int_equal(sim_pool_export_pointer(p, &share), 0);
	assert_int_equal(sim_pool_import_pointer(pool, &share, &q), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_import_pointer(imported, &share, &q), 0);
	assert_int_equal(get(imported, SIM_POOL_USED), 4096);
	fill(p, 4096, 4, s);
	follow(t, s);
	check(q, 4096, 4, must_alloc(8), t);
	must_free(q, t);
	assert_int_equal(get(imported, SIM_POOL_USED), 0);
	follow(s, t);
	must_free(p, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 2 * MIB); /* exportable: stays */
	assert_int_equal(sim_pool_destroy(imported), 0);
	assert_int_equal(sim_pool_destroy(pool), 0);
}

static void
test_what_cannot_be_exported(void **state)
{
	CUmemoryPool pool = must_pool(0);
	struct sim_pool_share share;
	int fd;

	assert_int_equal(sim_pool_export(pool, SIM_POOL_FD, &fd), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_export_pointer(must_take(pool, 512, s), &share),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_export_pointer(must_alloc(512), &share),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pool_import(STDIN_FILENO, 2, &pool), CUDA_ERROR_INVALID_VALUE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)
#define SELF(f) cmocka_unit_test_setup_teardown(f, begin_self, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_memory_comes_with_the_launch),
		T(test_freed_outside),
		T(test_executable_destroyed_behind_launches),
		T(test_auto_free),
		T(test_use_before_the_launch_faults),
		T(test_use_beside_the_launch_is_a_race),
		T(test_launch_without_room),
		T(test_what_such_graphs_cannot),
		T(test_nodes_by_hand),
		SELF(test_export_and_import),
		T(test_what_cannot_be_exported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
