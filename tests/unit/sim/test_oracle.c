/* SPDX-License-Identifier: MIT */
/*
 * Each rule of order both ways: the pair without it is a race, the pair with it is silent. Manual
 * clock, so that no verdict can come from luck: nothing has run when it is given.
 */
#include "tests/unit/sim/fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdeviceptr p, q, errors;
static CUstream s, t; /* non-blocking */
static CUevent e;

static int
begin(void **state)
{
	fixture_two(state);
	p = must_alloc(4 * MIB);
	q = must_alloc(4 * MIB);
	errors = must_alloc(8);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	e = must_event();
	return 0;
}

static void
test_write_write(void **state)
{
	unsigned long long id;

	fill(p, 4096, 1, s);
	fill(p, 4096, 2, s);
	assert_int_equal(fx.n_races, 0);
	fill(p + 4092, 4096, 3, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_races_counted(), 1);
	assert_int_equal(fx.race.addr, p + 4092);
	assert_int_equal(fx.race.n_bytes, 4);
	assert_string_equal(fx.race.before.name, "sim_fill");
	assert_int_equal(fx.race.before.access, SIM_WRITE);
	assert_int_equal(fx.race.before.seq + 1, fx.race.now.seq);
	assert_int_equal(sim_stream_get_id(s, &id), 0);
	assert_int_equal(fx.race.before.stream_id, id);
	assert_int_equal(sim_stream_get_id(t, &id), 0);
	assert_int_equal(fx.race.now.stream_id, id);
}

static void
test_neighbours_do_not_race(void **state)
{
	fill(p, 4096, 1, s);
	fill(p + 4096, 4096, 2, t);
	fill(p + 8192, 4096, 2, s);
	assert_int_equal(fx.n_races, 0);
}

/* What lies between the rows of an area is nobody's. */
static void
test_rows_race_one_by_one(void **state)
{
	struct sim_area rows = { p, 4, 64, 8, 1, 0 }, between = rows, dense = rows, from = rows;
	struct sim_area deep = { p + 4096, 4, 2, 8, 2, 64 };

	between.addr += 4;
	dense.pitch = 4;
	from.addr = q;
	assert_int_equal(sim_set_area(&rows, 1, 4, s, false), 0);
	assert_int_equal(sim_set_area(&between, 1, 4, t, false), 0);
	assert_int_equal(sim_set_area(&deep, 1, 4, s, false), 0);
	fill(p + 4096 + 16, 48, 1, t); /* between the slices */
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_copy_area(&from, &rows, SIM_COPY_DTOD, t, false), 0);
	assert_int_equal(fx.n_races, 1); /* one report, though all 64 rows race */
	assert_int_equal(fx.race.n_bytes, 4);
	fill(p + 4096 + 64 + 8, 4, 1, t);
	assert_int_equal(fx.n_races, 2);
	assert_int_equal(sim_set_area(&dense, 1, 4, s, false), 0);
	assert_int_equal(fx.n_races, 3);
}

static void
test_managed_memory_in_two_streams(void **state)
{
	static const struct {
		enum sim_use use;
		unsigned n_after_read, n_after_write;
	} expected[] = {
		{ SIM_USE_PREFETCH, 0, 1 },
		{ SIM_USE_ATTACH, 1, 1 },
		{ SIM_USE_DISCARD, 1, 1 },
	};
	CUdeviceptr managed;

	for (int i = 0; i < 3; i++) {
		for (int writes = 0; writes < 2; writes++) {
			assert_int_equal(sim_mem_alloc_managed(4096, 1, &managed), 0);
			fx.n_races = 0;
			if (writes)
				fill(managed, 4096, 1, s);
			else
				copy_words(q, managed, 4096, s);
			assert_int_equal(sim_mem_use(managed, 4096, expected[i].use, t), 0);
			assert_int_equal(fx.n_races, writes ? expected[i].n_after_write
							    : expected[i].n_after_read);
			assert_int_equal(sim_mem_use(managed, 4096, expected[i].use, s), 0);
			assert_int_equal(sim_ctx_sync(), 0);
		}
	}
}

static void
test_read_read_then_write(void **state)
{
	copy_words(q, p, 4096, s);
	copy_words(q + 4096, p, 4096, t);
	assert_int_equal(fx.n_races, 0);
	/* Ordered after one of the two readers only. */
	fill(p + 1024, 4, 1, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(fx.race.before.access, SIM_READ);
	assert_int_equal(fx.race.now.access, SIM_WRITE);
}

static void
test_write_then_read(void **state)
{
	fill(p, 4096, 1, s);
	copy_words(q, p, 4096, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(fx.race.now.access, SIM_READ);
}

static void
test_atomics(void **state)
{
	check(p, 4096, 0, errors, s);
	check(p, 4096, 0, errors, t);
	assert_int_equal(fx.n_races, 0);
	copy_words(q, errors, 8, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(fx.race.before.access, SIM_ATOMIC);
	assert_int_equal(fx.race.now.access, SIM_READ);
	fill(errors, 8, 0, s);
	assert_int_equal(fx.n_races, 2);
}

static void
test_atomic_after_write(void **state)
{
	fill(errors, 8, 0, s);
	check(p, 4096, 0, errors, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_event_orders(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	fill(p + 8192, 4096, 1, s);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
	/* Submitted after the record: not covered. */
	fill(p + 8192, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_event_orders_transitively(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);
	CUevent f = must_event();

	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	assert_int_equal(sim_event_record(f, t), 0);
	assert_int_equal(sim_stream_wait_event(u, f, 0), 0);
	fill(p, 4096, 2, u);
	assert_int_equal(fx.n_races, 0);
	fill(p, 4096, 3, s);
	assert_int_equal(fx.n_races, 1);
}

static void
test_waiting_before_the_record_orders_nothing(void **state)
{
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_host_synchronisation_orders(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_stream_query(s), CUDA_ERROR_NOT_READY);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_stream_sync(t), 0);
	fill(p, 4096, 3, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
	fill(p, 4096, 4, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_event_record(e, t), 0);
	assert_int_equal(sim_event_sync(e), 0);
	fill(p, 4096, 5, s);
	assert_int_equal(fx.n_races, 1);
}

static void
test_completion_nobody_saw_orders_nothing(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_step(10), 1);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_query_that_says_done_orders(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_NOT_READY);
	sim_step(2);
	assert_int_equal(sim_event_query(e), 0);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
	sim_step(1);
	assert_int_equal(sim_stream_query(t), 0);
	fill(p, 4096, 3, s);
	assert_int_equal(fx.n_races, 0);
}

static void
test_query_that_says_not_ready_orders_nothing(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_NOT_READY);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
}

/* A write of the first half leaves what is known of the second. */
static void
test_write_of_a_part_keeps_the_rest(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);

	fill(p, 12288, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p + 4096, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
	fill(p + 8192, 4, 3, u);
	assert_int_equal(fx.n_races, 1);
	fill(p + 4092, 4, 3, u);
	assert_int_equal(fx.n_races, 2);
}

static void
test_syncing_another_stream_orders_nothing(void **state)
{
	fill(p, 4096, 1, s);
	fill(q, 4096, 1, t);
	assert_int_equal(sim_stream_sync(t), 0);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_legacy_stream_orders_blocking_streams(void **state)
{
	CUstream a = must_stream(0), b = must_stream(0);

	fill(p, 4096, 1, a);
	fill(p, 4096, 2, NULL);
	fill(p, 4096, 3, b);
	fill(p, 4096, 4, CU_STREAM_LEGACY);
	fill(p, 4096, 5, CU_STREAM_PER_THREAD);
	assert_int_equal(fx.n_races, 0);
	fill(p, 4096, 6, a);
	assert_int_equal(fx.n_races, 1);
}

/* Work on other bytes in the legacy stream is a barrier as well. */
static void
test_legacy_stream_is_a_barrier(void **state)
{
	CUstream a = must_stream(0), b = must_stream(0);

	fill(p, 4096, 1, a);
	fill(q, 4096, 2, NULL);
	fill(p, 4096, 3, b);
	assert_int_equal(fx.n_races, 0);
}

static void
test_legacy_stream_does_not_order_non_blocking(void **state)
{
	fill(p, 4096, 1, s);
	fill(p, 4096, 2, NULL);
	assert_int_equal(fx.n_races, 1);
	fill(q, 4096, 1, NULL);
	fill(q, 4096, 2, s);
	assert_int_equal(fx.n_races, 2);
}

static void
test_destroyed_stream_still_orders_legacy(void **state)
{
	CUstream a = must_stream(0);

	fill(p, 4096, 1, a);
	assert_int_equal(sim_stream_destroy(a), 0);
	fill(p, 4096, 2, NULL);
	assert_int_equal(fx.n_races, 0);
}

/* The new stream has the old one's handle, but not its order. */
static void
test_new_stream_is_not_the_old_one(void **state)
{
	CUstream again;

	fill(p, 4096, 1, s);
	assert_int_equal(sim_stream_destroy(s), 0);
	again = must_stream(SIM_STREAM_NON_BLOCKING);
	assert_ptr_equal(again, s);
	fill(p, 4096, 2, again);
	assert_int_equal(fx.n_races, 1);
}

static void
test_context_mark_orders_all_streams(void **state)
{
	fill(p, 4096, 1, s);
	fill(p + 4096, 4096, 1, t);
	assert_int_equal(sim_ctx_record_event(fx.ctx, e), 0);
	fill(p + 8192, 4096, 1, t);
	assert_int_equal(sim_stream_wait_event(NULL, e, 0), 0);
	fill(p, 8192, 2, NULL);
	assert_int_equal(fx.n_races, 0);
	fill(p + 8192, 4096, 2, NULL);
	assert_int_equal(fx.n_races, 1);
}

static void
test_context_wait_orders_all_streams(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_ctx_wait_event(fx.ctx, e), 0);
	fill(p, 4096, 2, t);
	fill(p, 4096, 2, must_stream(SIM_STREAM_NON_BLOCKING));
	assert_int_equal(fx.n_races, 1);
}

static void
test_free_orders(void **state)
{
	fill(p, 4096, 1, s);
	assert_int_equal(sim_mem_free(q), 0);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
}

/* What an allocator that reuses at once does to a program with two streams. */
static void
test_reuse_without_waiting_is_found(void **state)
{
	for (int i = 0; i < 100; i++) {
		fill(p, MIB, 1, i % 2 ? s : t);
		if (i == 50)
			assert_int_equal(fx.n_races, 50);
	}
}

static void
test_device_copy_and_set_teach_nothing(void **state)
{
	assert_int_equal(sim_copy(q, p, 4096, SIM_COPY_DTOD, NULL, true), 0);
	fill(q, 4096, 1, s);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_set(p + 8192, 1, 1, 4096, NULL, true), 0);
	fill(p + 8192, 4096, 1, s);
	assert_int_equal(fx.n_races, 2);
}

static void
test_pageable_upload_teaches_nothing(void **state)
{
	uint32_t host[4] = { 1, 2, 3, 4 };

	assert_int_equal(sim_copy(p, (uintptr_t)host, 16, SIM_COPY_HTOD, NULL, true), 0);
	fill(p, 4096, 1, s);
	assert_int_equal(fx.n_races, 1);
}

static void
test_download_teaches(void **state)
{
	uint32_t host[4];

	fill(p, 4096, 7, NULL);
	assert_int_equal(sim_copy((uintptr_t)host, p, 16, SIM_COPY_DTOH, NULL, true), 0);
	assert_int_equal(host[3], 7);
	fill(p, 4096, 1, s);
	assert_int_equal(fx.n_races, 0);
}

static void
test_pinned_buffer_races(void **state)
{
	void *host;

	assert_int_equal(sim_mem_host_alloc(4096, &host), 0);
	assert_int_equal(sim_copy((uintptr_t)host, p, 4096, SIM_COPY_DTOH, s, false), 0);
	assert_int_equal(sim_copy(q, (uintptr_t)host, 4096, SIM_COPY_HTOD, t, false), 0);
	assert_int_equal(fx.n_races, 1);
}

static void
test_contexts_are_not_ordered(void **state)
{
	CUcontext other;

	fill(p, 4096, 1, NULL);
	assert_int_equal(sim_ctx_create(0, 0, &other), 0);
	fill(p, 4096, 2, NULL);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_pop(NULL), 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_ctx_destroy(other), 0);
	fill(p, 4096, 3, s);
	assert_int_equal(fx.n_races, 1);
}

/* Many small pieces under a large one, and the other way. */
static void
test_ranges_of_all_sizes(void **state)
{
	for (unsigned i = 0; i < 100; i++)
		copy_words(q, p + i * 64, 32, s);
	fill(p + 40, 8, 1, t);
	assert_int_equal(fx.n_races, 0);
	fill(p, 6400, 1, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
	copy_words(q + 4096, p, 6400, s);
	fill(p + 4000, 4, 1, t);
	assert_int_equal(fx.n_races, 2);
	copy_words(q + 4096, p, 6400, s);
	assert_int_equal(fx.n_races, 3);
}

/* ---------------------------------------------------------------- modes --- */
static void
start_plain(enum sim_races races)
{
	struct sim_config config = {
		.n_devices = 1,
		.mem_bytes = 64 * MIB,
		.clock = SIM_CLOCK_MANUAL,
		.races = races,
	};

	sim_stop();
	assert_int_equal(sim_start(&config), 0);
	assert_int_equal(sim_primary_retain(0, &fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	p = must_alloc(4096);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
}

static void
test_off_counts_nothing(void **state)
{
	start_plain(SIM_RACES_OFF);
	fill(p, 4096, 1, s);
	fill(p, 4096, 2, t);
	assert_int_equal(sim_races_counted(), 0);
}

/* In a child, since it must die; what it says is read from its stderr. */
static void
test_abort_says_which_and_aborts(void **state)
{
	struct rlimit none = { 0, 0 };
	char text[1024] = "";
	int fd[2], status;
	pid_t pid;

	start_plain(SIM_RACES_ABORT);
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(fd[1], STDERR_FILENO);
		fill(p, 4096, 1, s);
		fill(p, 4096, 2, t);
		_exit(0);
	}
	close(fd[1]);
	for (ssize_t n, have = 0;
	     (n = read(fd[0], text + have, sizeof(text) - 1 - (size_t)have)) > 0;)
		have += n;
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "simcuda: race on 0x"));
	assert_non_null(strstr(text, "(4096 bytes)"));
	assert_non_null(strstr(text, "before: sim_fill #"));
	assert_non_null(strstr(text, "now: sim_fill #"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_write_write),
		T(test_neighbours_do_not_race),
		T(test_rows_race_one_by_one),
		T(test_managed_memory_in_two_streams),
		T(test_read_read_then_write),
		T(test_write_then_read),
		T(test_atomics),
		T(test_atomic_after_write),
		T(test_event_orders),
		T(test_event_orders_transitively),
		T(test_waiting_before_the_record_orders_nothing),
		T(test_host_synchronisation_orders),
		T(test_completion_nobody_saw_orders_nothing),
		T(test_query_that_says_done_orders),
		T(test_query_that_says_not_ready_orders_nothing),
		T(test_write_of_a_part_keeps_the_rest),
		T(test_syncing_another_stream_orders_nothing),
		T(test_legacy_stream_orders_blocking_streams),
		T(test_legacy_stream_is_a_barrier),
		T(test_legacy_stream_does_not_order_non_blocking),
		T(test_destroyed_stream_still_orders_legacy),
		T(test_new_stream_is_not_the_old_one),
		T(test_context_mark_orders_all_streams),
		T(test_context_wait_orders_all_streams),
		T(test_free_orders),
		T(test_reuse_without_waiting_is_found),
		T(test_device_copy_and_set_teach_nothing),
		T(test_pageable_upload_teaches_nothing),
		T(test_download_teaches),
		T(test_pinned_buffer_races),
		T(test_contexts_are_not_ordered),
		T(test_ranges_of_all_sizes),
		T(test_off_counts_nothing),
		T(test_abort_says_which_and_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
