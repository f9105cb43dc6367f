/* SPDX-License-Identifier: MIT */
/*
 * Sixteen threads at once, each with streams, events, memory and contents of its own; and threads
 * that share one stream, destroy contexts under others, and capture. Meant for ThreadSanitizer as
 * much as for the asserts. The sequence of each thread follows from the printed seed.
 */
#include "tests/unit/sim/fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	N_THREADS = 16,
	N_ROUNDS = 24,
};

static uint64_t seed;
static CUstream shared;
static unsigned n_bad;

#define EXPECT(x)                                                                                  \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			__atomic_add_fetch(&n_bad, 1, __ATOMIC_RELAXED);                           \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
		}                                                                                  \
	} while (0)

static uint64_t
next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static int
launch_fill(CUdeviceptr ptr, size_t n, uint32_t value, uint64_t spin_us, CUstream stream)
{
	uint64_t args[] = { ptr, n / 4, value, spin_us };

	return sim_kernel_launch(SIM_KERNEL_FILL, args, stream);
}

/* Fill on a, check on b after an event, read the error count. */
static void
one_round(uint64_t *x, CUstream a, CUstream b, CUevent e)
{
	size_t n = 4 + (next_random(x) % (2 * MIB) & ~(size_t)3);
	uint32_t value = (uint32_t)next_random(x);
	CUdeviceptr p = 0, errors = 0;
	uint64_t args[5], n_errors = 1;

	EXPECT(sim_mem_alloc(n, &p) == 0);
	EXPECT(sim_mem_alloc(8, &errors) == 0);
	EXPECT(sim_set(errors, 0, 4, 2, a, false) == 0);
	EXPECT(launch_fill(p, n, value, next_random(x) % 100, a) == 0);
	EXPECT(sim_event_record(e, a) == 0);
	EXPECT(sim_stream_wait_event(b, e, 0) == 0);
	memcpy(args, (uint64_t[]){ p, n / 4, value, errors, 0 }, sizeof(args));
	EXPECT(sim_kernel_launch(SIM_KERNEL_CHECK, args, b) == 0);
	EXPECT(launch_fill(errors + 512, 0, 0, 1, shared) == 0);
	EXPECT(sim_copy((uintptr_t)&n_errors, errors, 8, SIM_COPY_DTOH, b, false) == 0);
	EXPECT(n_errors == 0);
	if (next_random(x) % 2)
		EXPECT(sim_mem_free(p) == 0);
	else
		EXPECT(sim_mem_free_async(p, b) == 0);
	EXPECT(sim_mem_free(errors) == 0);
}

static void *
worker(void *arg)
{
	uint64_t x = seed + (uintptr_t)arg * 0x9e3779b97f4a7c15;
	CUstream a, b;
	CUcontext own;
	CUevent e;

	EXPECT(sim_ctx_set_current(fx.ctx) == 0);
	EXPECT(sim_stream_create(SIM_STREAM_NON_BLOCKING, 0, &a) == 0);
	EXPECT(sim_stream_create(next_random(&x) % 2, 0, &b) == 0);
	EXPECT(sim_event_create(0, &e) == 0);
	for (int i = 0; i < N_ROUNDS; i++) {
		one_round(&x, a, i % 3 ? b : CU_STREAM_PER_THREAD, e);
		if (i % 8)
			continue;
		EXPECT(sim_ctx_create((int)(next_random(&x) % 2), 0, &own) == 0);
		EXPECT(sim_mem_alloc(512, &(CUdeviceptr){ 0 }) == 0);
		EXPECT(sim_ctx_destroy(own) == 0);
		EXPECT(sim_ctx_sync() == 0);
	}
	EXPECT(sim_event_destroy(e) == 0);
	EXPECT(sim_stream_destroy(a) == 0);
	EXPECT(sim_stream_destroy(b) == 0);
	return NULL;
}

static void
run_threads(void *(*body)(void *))
{
	pthread_t thread[N_THREADS];

	n_bad = 0;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, body, (void *)(i + 1)), 0);
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_int_equal(n_bad, 0);
}

static void
everything_at_once(enum sim_clock clock)
{
	size_t n_free, n_total;

	fixture_begin(2, 256 * MIB, clock);
	shared = must_stream(SIM_STREAM_NON_BLOCKING);
	run_threads(worker);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_mem_get_info(&n_free, &n_total), 0);
	assert_int_equal(n_free, n_total);
}

static void
test_everything_at_once_real(void **state)
{
	everything_at_once(SIM_CLOCK_REAL);
}

static void
test_everything_at_once_manual(void **state)
{
	everything_at_once(SIM_CLOCK_MANUAL);
}

/* All retain, use and release or reset one primary context: only documented codes, and no crash. */
static bool
is_dead_code(int rc)
{
	return !rc || rc == CUDA_ERROR_CONTEXT_IS_DESTROYED || rc == CUDA_ERROR_INVALID_HANDLE ||
	       rc == CUDA_ERROR_INVALID_CONTEXT || rc == CUDA_ERROR_INVALID_VALUE ||
	       rc == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void *
resetter(void *arg)
{
	uint64_t x = seed + (uintptr_t)arg;
	CUdeviceptr ptr;
	CUcontext ctx;
	CUstream s;

	for (int i = 0; i < N_ROUNDS; i++) {
		EXPECT(sim_primary_retain(1, &ctx) == 0);
		EXPECT(is_dead_code(sim_ctx_set_current(ctx)));
		if (!sim_stream_create(0, 0, &s)) {
			if (!sim_mem_alloc(4096, &ptr)) {
				EXPECT(is_dead_code(launch_fill(ptr, 4096, 1, 20, s)));
				EXPECT(is_dead_code(sim_mem_free(ptr)));
			}
			EXPECT(is_dead_code(sim_stream_sync(s)));
		}
		EXPECT(is_dead_code(sim_ctx_sync()));
		EXPECT(is_dead_code(next_random(&x) % 8 ? sim_primary_release(1)
							: sim_primary_reset(1)));
	}
	return NULL;
}

static void
test_resets_under_use(void **state)
{
	fixture_begin(2, 256 * MIB, SIM_CLOCK_REAL);
	run_threads(resetter);
}

static void *
capturer(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	struct sim_exec *exec;
	CUdeviceptr p = 0;
	CUgraph graph;
	CUstream s;

	EXPECT(sim_ctx_set_current(fx.ctx) == 0);
	EXPECT(sim_capture_exchange_mode(&mode) == 0);
	EXPECT(sim_mem_alloc(4096, &p) == 0);
	EXPECT(sim_stream_create(SIM_STREAM_NON_BLOCKING, 0, &s) == 0);
	for (int i = 0; i < N_ROUNDS; i++) {
		EXPECT(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
		EXPECT(launch_fill(p, 4096, (uint32_t)i, 0, s) == 0);
		EXPECT(sim_capture_end(s, &graph) == 0);
		EXPECT(sim_graph_instantiate(graph, &exec) == 0);
		EXPECT(sim_graph_destroy(graph) == 0);
		EXPECT(sim_exec_launch(exec, s) == 0);
		EXPECT(sim_exec_destroy(exec) == 0);
		EXPECT(sim_stream_sync(s) == 0);
		EXPECT(word_at(p) == (uint32_t)i);
	}
	EXPECT(sim_stream_destroy(s) == 0);
	EXPECT(sim_mem_free(p) == 0);
	return NULL;
}

static void
test_captures_side_by_side(void **state)
{
	fixture_begin(1, 64 * MIB, SIM_CLOCK_REAL);
	run_threads(capturer);
	assert_int_equal(fx.n_races, 0);
}

int
main(void)
{
	const char *env = getenv("SIM_TEST_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_everything_at_once_real, fixture_end),
		cmocka_unit_test_teardown(test_everything_at_once_manual, fixture_end),
		cmocka_unit_test_teardown(test_resets_under_use, fixture_end),
		cmocka_unit_test_teardown(test_captures_side_by_side, fixture_end),
	};

	seed = env ? strtoull(env, NULL, 0) : (uint64_t)time(NULL);
	fprintf(stderr, "# SIM_TEST_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
