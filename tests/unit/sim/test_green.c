/* SPDX-License-Identifier: MIT */
/* Green contexts: their streams and order, what is the primary context's, and their end. */
#include "tests/unit/sim/fixture.h"

static CUcontext green;
static CUstream inside, outside; /* streams of the green and of the primary context */
static CUdeviceptr p;

static int
begin(void **state)
{
	fixture_begin(1, 64 * MIB, SIM_CLOCK_MANUAL);
	p = must_alloc(4096);
	assert_int_equal(sim_green_create(0, &green), 0);
	assert_int_equal(sim_green_stream_create(green, 0, &inside), 0);
	outside = must_stream(SIM_STREAM_NON_BLOCKING);
	return 0;
}

static void
enter(CUcontext ctx)
{
	assert_int_equal(sim_ctx_set_current(ctx), 0);
}

static void
test_streams_are_unordered(void **state)
{
	fill(p, 4096, 1, inside);
	fill(p, 4096, 2, inside);
	assert_int_equal(fx.n_races, 0);
	fill(p, 4096, 3, outside);
	assert_int_equal(fx.n_races, 1);
}

/* The default stream of one is no barrier for the streams of the other, blocking or not. */
static void
test_default_streams(void **state)
{
	CUstream blocking = must_stream(0), own;

	fill(p, 4096, 1, blocking);
	enter(green);
	fill(p, 4096, 2, NULL);
	assert_int_equal(fx.n_races, 1);
	own = must_stream(0);
	fill(p, 4096, 3, own); /* but for its own */
	fill(p, 4096, 4, NULL);
	assert_int_equal(fx.n_races, 1);
	enter(fx.ctx);
	fill(p, 4096, 5, NULL);
	assert_int_equal(fx.n_races, 2);
}

static void
test_synchronising(void **state)
{
	fill(p, 4096, 1, inside);
	assert_int_equal(sim_ctx_sync(), 0); /* the primary one: all */
	fill(p, 4096, 2, outside);
	assert_int_equal(fx.n_races, 0);
	enter(green);
	assert_int_equal(sim_ctx_sync(), 0); /* its own alone */
	assert_int_equal(sim_pending(), 1);
	fill(p, 4096, 3, inside);
	assert_int_equal(fx.n_races, 1);
}

static void
test_marks(void **state)
{
	CUevent event = must_event();

	fill(p, 4096, 1, inside);
	assert_int_equal(sim_ctx_record_event(green, event), 0);
	assert_int_equal(sim_stream_wait_event(outside, event, 0), 0);
	fill(p, 4096, 2, outside);
	assert_int_equal(sim_ctx_record_event(fx.ctx, event), 0); /* of both */
	assert_int_equal(sim_ctx_wait_event(green, event), 0);
	fill(p, 4096, 3, inside);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_ctx_record_event(green, event), 0);
	fill(p + 2048, 1024, 4, outside);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_ctx_record_event(green, event), 0); /* not of the primary one */
	assert_int_equal(sim_event_sync(event), 0);
	assert_true(sim_pending() > 0);
}

static void
test_gate_of_the_primary(void **state)
{
	CUevent event = must_event();

	fill(p, 4096, 1, outside);
	assert_int_equal(sim_event_record(event, outside), 0);
	assert_int_equal(sim_ctx_wait_event(fx.ctx, event), 0);
	fill(p, 4096, 2, inside);
	assert_int_equal(fx.n_races, 0);
}

/* Memory taken while it is current is the primary context's; a free waits for all. */
static void
test_memory(void **state)
{
	struct sim_mem_info info;
	CUdeviceptr q;

	enter(green);
	q = must_alloc(4096);
	assert_int_equal(sim_mem_lookup(q, &info), 0);
	assert_ptr_equal(info.ctx, fx.ctx);
	fill(q, 4096, 1, outside);
	fill(p, 4096, 1, inside);
	assert_int_equal(sim_mem_free(q), 0);
	assert_int_equal(sim_pending(), 0);
}

static void
test_per_thread_streams(void **state)
{
	enter(green);
	assert_int_equal(sim_stream_query(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
}

static void
test_whose_stream(void **state)
{
	CUcontext root, mine;

	assert_int_equal(sim_stream_get_ctxs(inside, &root, &mine), 0);
	assert_ptr_equal(root, fx.ctx);
	assert_ptr_equal(mine, green);
	assert_int_equal(sim_stream_get_ctxs(outside, &root, &mine), 0);
	assert_ptr_equal(root, fx.ctx);
	assert_null(mine);
}

/* Its work goes on, and the primary context waits for it. */
static void
test_destroyed(void **state)
{
	fill(p, 4096, 1, inside);
	assert_int_equal(sim_ctx_destroy(green), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_green_destroy(fx.ctx), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_green_destroy(green), 0);
	assert_int_equal(sim_pending(), 1);
	assert_int_equal(sim_stream_query(inside), SIM_ERROR_STREAM_DETACHED);
	assert_int_equal(sim_stream_destroy(inside), 0);
	assert_int_equal(sim_green_destroy(green), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(sim_ctx_sync(), 0);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(word_at(p), 1);
	fill(p, 4096, 2, outside);
	assert_int_equal(fx.n_races, 0);
}

static void
test_last_usage(void **state)
{
	CUcontext again;

	fill(p, 4096, 1, inside);
	assert_int_equal(sim_primary_release(0), 0);
	assert_int_equal(sim_ctx_sync(), 0); /* it lives */
	assert_int_equal(sim_green_destroy(green), 0);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(sim_stream_query(inside), SIM_ERROR_STREAM_DETACHED);
	assert_int_equal(sim_primary_retain(0, &again), 0);
}

static void
test_reset(void **state)
{
	fill(p, 4096, 1, inside);
	assert_int_equal(sim_primary_reset(0), 0);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(sim_green_destroy(green), CUDA_ERROR_INVALID_CONTEXT);
}

static void
test_captured(void **state)
{
	CUevent event = must_event();
	CUgraph graph;

	assert_int_equal(sim_capture_begin(inside, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	fill(p, 4096, 1, inside);
	assert_int_equal(sim_ctx_record_event(fx.ctx, event),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(sim_capture_end(inside, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void
test_fault(void **state)
{
	uint64_t args[] = { 700, 0 };

	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FAULT, args, inside), 0);
	assert_int_equal(sim_stream_sync(inside), 700);
	assert_int_equal(sim_stream_query(outside), 700);
}

#define B(f)                                                                                       \
	{                                                                                          \
#f, f, begin, fixture_end, NULL                                                    \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		B(test_streams_are_unordered),
		B(test_default_streams),
		B(test_synchronising),
		B(test_marks),
		B(test_gate_of_the_primary),
		B(test_memory),
		B(test_per_thread_streams),
		B(test_whose_stream),
		B(test_destroyed),
		B(test_last_usage),
		B(test_reset),
		B(test_captured),
		B(test_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
