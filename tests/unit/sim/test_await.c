/* SPDX-License-Identifier: MIT */
/*
 * Waits for a value: sim_wait, sim_signal, memory operations of streams, and the report of
 * deadlocks. Most tests run with both clocks.
 */
#include "tests/unit/sim/fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static CUstream s, t;
static CUdeviceptr a, b, p, q;

static void
begin_with(enum sim_clock clock)
{
	fixture_begin(2, 64 * MIB, clock);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	a = must_alloc(4096);
	b = must_alloc(4096);
	p = must_alloc(4096);
	q = must_alloc(4096);
	assert_int_equal(sim_set(a, 0, 4, 1024, NULL, false), 0);
	assert_int_equal(sim_set(b, 0, 4, 1024, NULL, false), 0);
	assert_int_equal(sim_ctx_sync(), 0);
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

static void
wait_for(CUdeviceptr ptr, uint32_t value, CUstream stream)
{
	uint64_t args[] = { ptr, value };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_WAIT, args, stream), 0);
}

static void
tell(CUdeviceptr ptr, uint32_t value, CUstream stream)
{
	uint64_t args[] = { ptr, value };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_SIGNAL, args, stream), 0);
}

static void
test_bad_arguments(void **state)
{
	uint64_t odd[] = { a + 2, 1 };
	uint32_t host = 0;

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_WAIT, odd, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_SIGNAL, odd, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_wait_value(s, a + 4, 1, 8, SIM_COMPARE_EQ),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_wait_value(s, a, 1, 2, SIM_COMPARE_EQ),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_wait_value(s, a, 1, 4, (enum sim_compare)4),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_stream_write_value(s, (uintptr_t)&host, 1, 4, true),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_pending(), 0);
}

/* Each kernel waits for the other's flag, and the host for both. */
static void
test_rendezvous(void **state)
{
	tell(a, 1, s);
	wait_for(b, 1, s);
	fill(p, 4096, 1, s);
	tell(b, 1, t);
	wait_for(a, 1, t);
	fill(q, 4096, 2, t);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 2);
}

static void
test_rendezvous_of_two_devices(void **state)
{
	CUcontext other;
	CUstream far;

	assert_int_equal(sim_ctx_create(1, 0, &other), 0);
	assert_int_equal(sim_ctx_enable_peer(fx.ctx), 0);
	far = must_stream(0);
	wait_for(a, 7, far);
	tell(b, 8, far);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	tell(a, 7, s);
	wait_for(b, 8, s);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_ctx_destroy(other), 0);
}

/* A chain: what releases a wait waits itself. */
static void
test_chain(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);

	wait_for(a, 1, s);
	wait_for(b, 2, t);
	tell(a, 1, t);
	tell(b, 1, u);
	tell(b, 2, u);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(b), 2);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_other_work_goes_on(void **state)
{
	wait_for(a, 1, s);
	fill(p, 4096, 1, s);
	fill(q, 4096, 2, t);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 2);
	assert_int_equal(word_at(p), 0);
	assert_int_equal(sim_stream_query(s), CUDA_ERROR_NOT_READY);
	tell(a, 1, t);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 1);
}

/* Manual: only what writes the word runs, and no more of it than it takes. */
static void
test_no_more_runs_than_must(void **state)
{
	wait_for(a, 1, s);
	fill(q, 4096, 9, t);
	tell(a, 1, t);
	tell(a, 2, t);
	fill(p, 4096, 3, NULL);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(q), 9);
	assert_int_equal(word_at(a), 1);
	assert_int_equal(word_at(p), 0);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_step_passes_over_waits(void **state)
{
	wait_for(a, 1, s);
	fill(p, 4096, 1, t);
	assert_int_equal(sim_step(9), 1);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(sim_step(9), 0);
	tell(a, 1, t);
	assert_int_equal(sim_step(9), 2);
	assert_int_equal(sim_pending(), 0);
}

static void *
host_writes(void *arg)
{
	usleep(5000);
	__atomic_store_n((uint32_t *)arg, 5, __ATOMIC_RELEASE);
	return NULL;
}

static void
test_host_releases(void **state)
{
	pthread_t thread;
	void *word;

	assert_int_equal(sim_mem_host_alloc(64, &word), 0);
	assert_int_equal(sim_stream_wait_value(s, (uintptr_t)word, 5, 4, SIM_COMPARE_GEQ), 0);
	fill(p, 4096, 1, s);
	assert_int_equal(pthread_create(&thread, NULL, host_writes, word), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(sim_mem_host_free(word), 0);
}

static void *
other_thread_submits(void *arg)
{
	usleep(5000);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	tell(a, 1, t);
	return NULL;
}

static void
test_another_thread_releases(void **state)
{
	pthread_t thread;

	wait_for(a, 1, s);
	assert_int_equal(pthread_create(&thread, NULL, other_thread_submits, NULL), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* compare, bytes, value; a word that satisfies and one that does not. */
static const struct {
	enum sim_compare compare;
	unsigned n_bytes;
	uint64_t value, yes, no;
} comparisons[] = {
	{ SIM_COMPARE_GEQ, 4, 5, 5, 4 },
	{ SIM_COMPARE_GEQ, 4, 5, 0x80000004, 0x80000005 },
	{ SIM_COMPARE_GEQ, 4, 0xfffffff0, 3, 0xffffffef },
	{ SIM_COMPARE_GEQ, 8, 0x80000004, 0x80000004, 5 },
	{ SIM_COMPARE_GEQ, 8, 5, 1ull << 62, UINT64_MAX },
	{ SIM_COMPARE_EQ, 4, 5, 5, 6 },
	{ SIM_COMPARE_EQ, 8, 5ull << 32, 5ull << 32, 5 },
	{ SIM_COMPARE_AND, 4, 6, 2, 9 },
	{ SIM_COMPARE_AND, 8, 6ull << 32, 2ull << 32, 6 },
	{ SIM_COMPARE_NOR, 4, 0xffff0000, 0xfffe, 0xffff },
	{ SIM_COMPARE_NOR, 8, 0xffffffff00000000, 0, 0xffffffff },
};

static void
test_comparisons(void **state)
{
	for (size_t i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
		unsigned n = comparisons[i].n_bytes;

		assert_int_equal(sim_stream_write_value(t, a, comparisons[i].no, n, true), 0);
		assert_int_equal(sim_stream_sync(t), 0);
		assert_int_equal(sim_stream_wait_value(s, a, comparisons[i].value, n,
						       comparisons[i].compare),
				 0);
		sim_step(9);
		usleep(300);
		assert_int_equal(sim_stream_query(s), CUDA_ERROR_NOT_READY);
		assert_int_equal(sim_stream_write_value(t, a, comparisons[i].yes, n, true), 0);
		assert_int_equal(sim_stream_sync(s), 0);
	}
	assert_int_equal(fx.n_races, 0);
}

/* A write of 32 bits leaves the rest alone. */
static void
test_width(void **state)
{
	assert_int_equal(sim_stream_write_value(s, a, UINT64_MAX, 8, true), 0);
	assert_int_equal(sim_stream_write_value(s, a, 0x500000003, 4, true), 0);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(a), 3);
	assert_int_equal(word_at(a + 4), 0xffffffff);
}

static void
test_illegal_address(void **state)
{
	wait_for(16, 1, s);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(fx.misuse, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void
test_in_a_graph(void **state)
{
	struct sim_exec *exec;
	CUgraph graph;

	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	wait_for(a, 1, s);
	fill(p, 4096, 1, s);
	tell(b, 1, s);
	assert_int_equal(sim_capture_end(s, &graph), 0);
	assert_int_equal(sim_graph_instantiate(graph, &exec), 0);
	fill(p, 4096, 2, t);
	tell(a, 1, t);
	assert_int_equal(sim_exec_launch(exec, s), 0);
	wait_for(b, 1, t);
	check(p, 4096, 1, q, t);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 0);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_exec_destroy(exec), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
}

/* ---------------------------------------------------------------- oracle --- */
static void
test_signal_orders(void **state)
{
	fill(p, 4096, 1, t);
	tell(a, 1, t);
	wait_for(a, 1, s);
	fill(p, 4096, 2, s);
	assert_int_equal(fx.n_races, 0);
	fill(p, 4096, 3, NULL);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_another_value_does_not(void **state)
{
	fill(p, 4096, 1, t);
	tell(a, 1, t);
	wait_for(a, 2, s);
	tell(a, 2, NULL);
	fill(p, 4096, 2, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_without_release(void **state)
{
	fill(p, 4096, 1, t);
	assert_int_equal(sim_stream_write_value(t, a, 1, 4, false), 0);
	assert_int_equal(sim_stream_wait_value(s, a, 1, 4, SIM_COMPARE_EQ), 0);
	fill(p, 4096, 2, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* Only what is before the signal. */
static void
test_after_the_signal_is_not_ordered(void **state)
{
	tell(a, 1, t);
	fill(p, 4096, 1, t);
	wait_for(a, 1, s);
	fill(p, 4096, 2, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* The wait is submitted first, and what comes after it, and what inherits from that. */
static void
test_late_signal(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);
	CUevent e = must_event();

	wait_for(a, 1, s);
	fill(q, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(u, e, 0), 0);
	fill(p, 4096, 3, u);
	fill(p, 4096, 1, t);
	fill(q, 4096, 3, t);
	assert_int_equal(fx.n_races, 0);
	tell(a, 1, t);
	fill(p, 4096, 2, u);
	fill(q, 4096, 2, s);
	assert_int_equal(fx.n_races, 0);
	fill(p, 2048, 2, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p + 2048), 2);
}

static void
test_host_release_teaches_nothing(void **state)
{
	fill(p, 4096, 1, t);
	assert_int_equal(sim_stream_wait_value(s, a, 0, 4, SIM_COMPARE_EQ), 0);
	fill(p, 4096, 2, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* A flag that was reset tells nothing of the time before. */
static void
test_reset_flag(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);

	fill(p, 4096, 1, t);
	tell(a, 1, t);
	assert_int_equal(sim_set(a, 0, 4, 1, t, false), 0);
	assert_int_equal(sim_event_record(must_event(), t), 0);
	assert_int_equal(sim_stream_sync(t), 0);
	fill(q, 4096, 1, t);
	wait_for(a, 1, s);
	fill(q, 4096, 1, s);
	assert_int_equal(fx.n_races, 1);
	tell(a, 1, u);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_flags_written_plainly_race(void **state)
{
	wait_for(a, 1, s);
	fill(a, 4, 1, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* -------------------------------------------------------------- deadlocks --- */
enum { REPORT_MAX = 4096 };

static void *
sleeper(void *arg)
{
	pause();
	return NULL;
}

/* What a child that deadlocks prints before it aborts. */
static void
deadlock(enum sim_clock clock, bool threads, unsigned ms, char *text)
{
	struct sim_config config = {
		.n_devices = 1,
		.mem_bytes = 64 * MIB,
		.clock = clock,
		.deadlock_ms = ms,
		.deadlock_abort = true,
	};
	int fd[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		pthread_t thread;

		dup2(fd[1], 2);
		alarm(30);
		if (sim_start(&config) || sim_primary_retain(0, &fx.ctx) ||
		    sim_ctx_set_current(fx.ctx))
			_exit(1);
		if (threads)
			pthread_create(&thread, NULL, sleeper, NULL);
		s = must_stream(SIM_STREAM_NON_BLOCKING);
		t = must_stream(SIM_STREAM_NON_BLOCKING);
		a = must_alloc(8);
		wait_for(a, 0x11, s);
		fill(a, 4, 0x22, s);
		wait_for(a, 0x22, t);
		sim_stream_sync(s);
		_exit(2);
	}
	close(fd[1]);
	while ((got = read(fd[0], text + n, REPORT_MAX - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void
test_deadlock_by_time(void **state)
{
	char text[REPORT_MAX];

	for (int clock = SIM_CLOCK_REAL; clock <= SIM_CLOCK_MANUAL; clock++) {
		deadlock((enum sim_clock)clock, true, 200, text);
		assert_non_null(strstr(text, "deadlock"));
		assert_null(strstr(text, "nothing is left"));
		assert_non_null(strstr(text, "sim_wait #1 (stream"));
		assert_non_null(strstr(text, "== 0x11; it holds 0x0"));
		assert_non_null(strstr(text, "sim_fill #2"));
		assert_non_null(strstr(text, "waits for sim_wait #1"));
		assert_non_null(strstr(text, "== 0x22"));
	}
}

/* Without a limit: as soon as it is certain. The sanitizers have threads of their own. */
static void
test_deadlock_for_certain(void **state)
{
	char text[REPORT_MAX];

#ifdef __SANITIZE_THREAD__
	skip();
#endif
	for (int clock = SIM_CLOCK_REAL; clock <= SIM_CLOCK_MANUAL; clock++) {
		deadlock((enum sim_clock)clock, false, 0, text);
		assert_non_null(strstr(text, "nothing is left that could release one"));
	}
}

#define M(f) cmocka_unit_test_setup_teardown(f, begin_manual, fixture_end)
#define R(f)                                                                                       \
	{                                                                                          \
#f " (real clock)", f, begin_real, fixture_end, NULL                               \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadlock_by_time),
		cmocka_unit_test(test_deadlock_for_certain),
		M(test_bad_arguments),
		M(test_rendezvous),
		R(test_rendezvous),
		M(test_rendezvous_of_two_devices),
		R(test_rendezvous_of_two_devices),
		M(test_chain),
		R(test_chain),
		M(test_other_work_goes_on),
		R(test_other_work_goes_on),
		M(test_no_more_runs_than_must),
		M(test_step_passes_over_waits),
		M(test_host_releases),
		R(test_host_releases),
		M(test_another_thread_releases),
		R(test_another_thread_releases),
		M(test_comparisons),
		R(test_comparisons),
		M(test_width),
		R(test_width),
		M(test_illegal_address),
		R(test_illegal_address),
		M(test_in_a_graph),
		R(test_in_a_graph),
		M(test_signal_orders),
		R(test_signal_orders),
		M(test_another_value_does_not),
		M(test_without_release),
		M(test_after_the_signal_is_not_ordered),
		M(test_late_signal),
		M(test_host_release_teaches_nothing),
		M(test_reset_flag),
		M(test_flags_written_plainly_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
