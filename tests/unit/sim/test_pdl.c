/* SPDX-License-Identifier: MIT */
/* Programmatic dependent launch: the overlap, in time and for the oracle. */
#include "tests/unit/sim/fixture.h"

static CUstream s, t;
static CUdeviceptr a, p, q;

static void
begin_with(enum sim_clock clock)
{
	fixture_begin(1, 64 * MIB, clock);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	a = must_alloc(4096);
	p = must_alloc(4096);
	q = must_alloc(4096);
	assert_int_equal(sim_set(a, 0, 4, 1024, NULL, false), 0);
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
launch(enum sim_kernel kernel, CUdeviceptr ptr, uint64_t x, uint64_t y, CUstream stream,
       bool overlap, CUevent event)
{
	uint64_t args[] = { ptr, x, y, 0, 0 };

	assert_int_equal(sim_kernel_launch_programmatic(kernel, args, stream, overlap, event), 0);
}

static void
fill_early(CUdeviceptr ptr, uint32_t value)
{
	launch(SIM_KERNEL_FILL, ptr, 1024, value, s, true, NULL);
}

static CUevent
plain_event(void)
{
	CUevent event;

	assert_int_equal(sim_event_create(SIM_EVENT_DISABLE_TIMING, &event), 0);
	return event;
}

/* The kernel in front waits for the one behind it: it ends only if they overlap. */
static void
test_overlap(void **state)
{
	launch(SIM_KERNEL_WAIT, a, 1, 0, s, false, NULL);
	launch(SIM_KERNEL_FILL, p, 1024, 5, s, true, NULL);
	launch(SIM_KERNEL_SIGNAL, a, 1, 0, s, true, NULL);
	fill(q, 4096, 6, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 5);
	assert_int_equal(word_at(q), 6);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_pending(), 0);
}

static void
test_unordered_for_the_oracle(void **state)
{
	fill(p, 4096, 1, s);
	fill_early(q, 2);
	assert_int_equal(fx.n_races, 0);
	fill_early(p, 3);
	assert_int_equal(fx.n_races, 1);
	fill_early(q, 4);
	assert_int_equal(fx.n_races, 2);
	fill(p, 4096, 5, s);
	fill(q, 4096, 5, s);
	assert_int_equal(fx.n_races, 2);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(p), 5);
	assert_int_equal(word_at(q), 5);
}

/* Only a kernel is overlapped, and what it waited for is waited for. */
static void
test_what_still_orders(void **state)
{
	CUevent e = must_event();

	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	fill_early(p, 2);
	assert_int_equal(sim_set(q, 0, 4, 1024, s, false), 0);
	fill(a, 4096, 1, s);
	fill_early(q, 2);
	assert_int_equal(fx.n_races, 0);
	fill(q, 4096, 3, NULL);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
	fill_early(p, 4);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* An event recorded after the run covers all of it. */
static void
test_events_cover_the_run(void **state)
{
	CUevent e = must_event();

	fill(p, 4096, 1, s);
	fill_early(q, 2);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p, 4096, 3, t);
	fill(q, 4096, 3, t);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(p), 3);
	assert_int_equal(word_at(q), 3);
}

/* On either side of its barrier, and within it. */
static void
test_overlap_and_the_legacy_stream(void **state)
{
	CUstream blocking = must_stream(0);

	fill(p, 4096, 1, NULL);
	launch(SIM_KERNEL_FILL, p, 1024, 2, NULL, true, NULL);
	assert_int_equal(fx.n_races, 1);
	launch(SIM_KERNEL_FILL, p, 1024, 3, NULL, false, NULL);
	assert_int_equal(fx.n_races, 1);
	launch(SIM_KERNEL_FILL, p, 1024, 4, blocking, true, NULL);
	assert_int_equal(fx.n_races, 2);
	launch(SIM_KERNEL_FILL, p, 1024, 5, blocking, false, NULL);
	assert_int_equal(fx.n_races, 2);
	launch(SIM_KERNEL_FILL, p, 1024, 6, NULL, true, NULL);
	assert_int_equal(fx.n_races, 3);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* What a kernel overlaps over the barrier, the next one in a third stream comes after. */
static void
test_barrier_stands_behind_an_overlap(void **state)
{
	CUstream before = must_stream(0), behind = must_stream(0);

	launch(SIM_KERNEL_FILL, p, 1024, 1, before, false, NULL);
	launch(SIM_KERNEL_FILL, q, 1024, 1, NULL, true, NULL);
	launch(SIM_KERNEL_FILL, p, 1024, 2, behind, false, NULL);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(word_at(p), 2);
}

/* A copy in front is no kernel. */
static void
test_no_overlap_of_a_copy_over_the_barrier(void **state)
{
	CUstream blocking = must_stream(0);

	assert_int_equal(sim_set(p, 0, 4, 1024, NULL, true), 0);
	launch(SIM_KERNEL_FILL, p, 1024, 2, blocking, true, NULL);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_ctx_sync(), 0);
}

/* A launch event may fire before its kernel ends, and teaches what came before it. */
static void
test_launch_event(void **state)
{
	CUevent e = plain_event();

	fill(q, 4096, 1, s);
	launch(SIM_KERNEL_WAIT, a, 1, 0, s, false, e);
	assert_int_equal(sim_event_sync(e), 0);
	assert_int_equal(word_at(q), 1);
	assert_int_equal(sim_stream_query(s), CUDA_ERROR_NOT_READY);
	fill(q, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
	launch(SIM_KERNEL_SIGNAL, a, 1, 0, t, false, NULL);
	launch(SIM_KERNEL_FILL, p, 1024, 1, s, false, e);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_sync(), 0);
}

static void
test_refused(void **state)
{
	uint64_t args[] = { p, 1, 1, 0 };
	CUevent timed = must_event();
	CUgraph graph;

	assert_int_equal(sim_kernel_launch_programmatic(SIM_KERNEL_FILL, args, s, true, timed),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_kernel_launch_programmatic(SIM_KERNEL_FILL, args, s, true, NULL),
			 CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(sim_capture_end(s, &graph), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
}

#define B(f)                                                                                       \
	{ #f " (manual)", f, begin_manual, fixture_end, NULL },                                    \
	{                                                                                          \
#f " (real)", f, begin_real, fixture_end, NULL                                     \
	}
#define M(f) cmocka_unit_test_setup_teardown(f, begin_manual, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		B(test_overlap),
		M(test_unordered_for_the_oracle),
		M(test_what_still_orders),
		B(test_events_cover_the_run),
		B(test_overlap_and_the_legacy_stream),
		B(test_barrier_stands_behind_an_overlap),
		B(test_no_overlap_of_a_copy_over_the_barrier),
		B(test_launch_event),
		M(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
