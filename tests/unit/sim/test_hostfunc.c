/* SPDX-License-Identifier: MIT */
/* Host functions and callbacks, with both clocks. */
#include "tests/unit/sim/fixture.h"

#include <pthread.h>
#include <sched.h>

static CUstream s, t;
static CUdeviceptr p, q;

static void
begin_with(enum sim_clock clock)
{
	fixture_begin(1, 64 * MIB, clock);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	p = must_alloc(4096);
	q = must_alloc(4096);
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

static struct seen {
	int calls;
	uint32_t word;
	bool inside, same_thread;
	pthread_t thread;
	CUstream stream;
	CUresult status;
} seen;

static void
look(void *data)
{
	CUdeviceptr *ptr = data;

	seen.word = word_at(*ptr);
	seen.inside = sim_in_host_function();
	seen.same_thread = pthread_equal(seen.thread, pthread_self());
	__atomic_add_fetch(&seen.calls, 1, __ATOMIC_RELEASE);
}

static void
hear(CUstream stream, CUresult status, void *data)
{
	seen.stream = stream;
	seen.status = status;
	look(data);
}

static void
test_place_in_the_stream(void **state)
{
	seen = (struct seen){ .thread = pthread_self() };
	fill(p, 4096, 1, s);
	assert_int_equal(sim_stream_host_function(s, look, &p), 0);
	fill(p, 4096, 2, s);
	assert_int_equal(sim_stream_callback(s, hear, &p, (CUstream)0x8), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(seen.calls, 2);
	assert_int_equal(seen.word, 2);
	assert_true(seen.inside && !seen.same_thread);
	assert_false(sim_in_host_function());
	assert_ptr_equal(seen.stream, (CUstream)0x8);
	assert_int_equal(seen.status, 0);
	assert_int_equal(sim_stream_host_function(s, NULL, &p), CUDA_ERROR_INVALID_VALUE);
}

static void
test_after_an_error(void **state)
{
	seen = (struct seen){ 0 };
	set_word(p, 0);
	assert_int_equal(sim_stream_wait_value(s, p, 1, 4, SIM_COMPARE_EQ), 0);
	fill(16, 4, 1, s);
	assert_int_equal(sim_stream_host_function(s, look, &p), 0);
	assert_int_equal(sim_stream_callback(s, hear, &p, s), 0);
	set_word(p, 1);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS); /* which may not wait */
	while (!__atomic_load_n(&seen.calls, __ATOMIC_ACQUIRE))
		sched_yield();
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.status, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A host function that stands still until another stream has done something. */
static void
spin_on_word(void *data)
{
	while (!__atomic_load_n((uint32_t *)data, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void
test_waits_for_other_work(void **state)
{
	uint64_t args[2];
	void *word;

	assert_int_equal(sim_mem_host_alloc(64, &word), 0);
	__atomic_store_n((uint32_t *)word, 0, __ATOMIC_RELEASE);
	args[0] = (uintptr_t)word;
	args[1] = 1;
	assert_int_equal(sim_stream_host_function(s, spin_on_word, word), 0);
	fill(p, 4096, 7, s);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_SIGNAL, args, t), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 7);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_mem_host_free(word), 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void
take_mutex(void *data)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

/* Submitting, and other streams, go on while one blocks. */
static void
test_blocks_only_its_stream(void **state)
{
	pthread_mutex_lock(&mutex);
	assert_int_equal(sim_stream_host_function(s, take_mutex, NULL), 0);
	fill(p, 4096, 1, s);
	fill(q, 4096, 2, t);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 2);
	assert_int_equal(sim_stream_query(s), CUDA_ERROR_NOT_READY);
	pthread_mutex_unlock(&mutex);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 1);
}

static void
test_capture(void **state)
{
	struct sim_exec *exec;
	CUgraph graph;

	seen = (struct seen){ 0 };
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(p, 4096, 5, s);
	assert_int_equal(sim_stream_host_function(s, look, &p), 0);
	assert_int_equal(sim_capture_end(s, &graph), 0);
	assert_int_equal(sim_graph_instantiate(graph, &exec), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_exec_launch(exec, s), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(seen.calls, 3);
	assert_int_equal(seen.word, 5);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_stream_callback(s, hear, &p, s),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(sim_capture_end(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void
test_teaches_when_it_begins(void **state)
{
	seen = (struct seen){ 0 };
	fill(p, 4096, 1, s);
	fill(q, 4096, 1, t);
	assert_int_equal(sim_stream_host_function(s, look, &p), 0);
	assert_int_equal(sim_step(3), 3);
	assert_int_equal(seen.calls, 1);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
	fill(q, 4096, 2, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

#define B(f)                                                                                       \
	{ #f " (manual)", f, begin_manual, fixture_end, NULL },                                    \
	{                                                                                          \
#f " (real)", f, begin_real, fixture_end, NULL                                     \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		B(test_place_in_the_stream),
		B(test_after_an_error),
		B(test_waits_for_other_work),
		B(test_blocks_only_its_stream),
		B(test_capture),
		cmocka_unit_test_setup_teardown(test_teaches_when_it_begins, begin_manual,
						fixture_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
