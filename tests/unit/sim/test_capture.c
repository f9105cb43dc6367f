/* SPDX-License-Identifier: MIT */
#include "tests/unit/sim/fixture.h"

#include <pthread.h>

static CUstream s, t; /* blocking; non-blocking */
static CUdeviceptr p, q;
static CUevent e;

static int
begin(void **state)
{
	fixture_manual(state);
	s = must_stream(0);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	p = must_alloc(4096);
	q = must_alloc(4096);
	e = must_event();
	return 0;
}

static CUstreamCaptureStatus
status_of(CUstream stream)
{
	CUstreamCaptureStatus status;

	assert_int_equal(sim_capture_info(stream, &status, NULL), 0);
	return status;
}

static void
assert_lost(CUstream stream)
{
	CUgraph graph = (CUgraph)(void *)&graph;

	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	assert_int_equal(sim_set(p, 0, 4, 1, stream, false), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(sim_event_record(e, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(sim_capture_end(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_ptr_equal(graph, &graph);
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void
assert_kept(CUstream stream)
{
	CUgraph graph;

	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(sim_capture_end(stream, &graph), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
}

static void
test_records_instead_of_running(void **state)
{
	cuuint64_t id1 = 0, id2 = 0;
	CUstreamCaptureStatus status;
	CUgraph graph;
	size_t n;

	assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_ERROR_ILLEGAL_STATE);
	assert_int_equal(sim_capture_info(s, &status, &id1), 0);
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	fill(p, 4096, 1, s);
	copy_words(q, p, 4096, s);
	assert_int_equal(sim_pending(), 0);
	assert_int_equal(sim_capture_end(s, &graph), 0);
	assert_int_equal(sim_graph_node_count(graph, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(sim_graph_destroy(graph), 0);
	assert_int_equal(sim_graph_destroy(graph), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_capture_info(s, &status, &id2), 0);
	assert_int_not_equal(id1, id2);
	assert_kept(s);
}

static void
test_bad_begin_and_end(void **state)
{
	CUgraph graph;

	assert_int_equal(sim_capture_begin(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(sim_capture_begin(s, (CUstreamCaptureMode)3), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_capture_end(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
	/* A stream that joined is not the one to end it;
	 * nor is a fork that comes not back allowed. */
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	fill(q, 4096, 1, t);
	assert_int_equal(sim_capture_end(t, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	assert_int_equal(sim_capture_end(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
	assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Calls that cannot be recorded: in the thread's mode and the capture's. */
static void
test_unsafe_calls(void **state)
{
	CUdeviceptr ptr;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	void *host;

	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_mem_alloc(512, &ptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
	assert_int_equal(sim_mem_free(p), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
	assert_int_equal(sim_mem_host_alloc(512, &host), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_set(p, 0, 4, 1, NULL, true), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);

	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_mem_alloc(512, &ptr), 0);
	assert_int_equal(sim_mem_free(ptr), 0);
	assert_kept(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(sim_capture_exchange_mode(&mode), 0);
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(sim_mem_alloc(512, &ptr), 0);
	assert_int_equal(sim_capture_exchange_mode(&mode), 0);
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_kept(t);
	mode = (CUstreamCaptureMode)9;
	assert_int_equal(sim_capture_exchange_mode(&mode), CUDA_ERROR_INVALID_VALUE);
}

static CUstreamCaptureMode other_mode;
static int other_alloc, other_end;

static void *
other_thread(void *arg)
{
	CUstreamCaptureMode mode = other_mode;
	CUdeviceptr ptr;
	CUgraph graph;

	sim_ctx_set_current(fx.ctx);
	sim_capture_exchange_mode(&mode);
	other_end = sim_capture_end(t, &graph);
	other_alloc = sim_mem_alloc(512, &ptr);
	return NULL;
}

static void
in_other_thread(CUstreamCaptureMode mode)
{
	pthread_t thread;

	other_mode = mode;
	assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void
test_other_threads(void **state)
{
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	in_other_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_int_equal(other_end, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	assert_int_equal(other_alloc, 0);
	in_other_thread(CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_int_equal(other_alloc, 0);
	assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(other_alloc, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
	in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(other_alloc, 0);
	assert_kept(t);
	/* A relaxed capture may be ended anywhere. */
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(other_end, 0);
	assert_int_equal(other_alloc, 0);
}

static void
test_status_of_captured_things(void **state)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph graph;

	assert_int_equal(sim_capture_exchange_mode(&mode), 0);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_stream_query(t), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_stream_sync(t), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_ctx_sync(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_event_record(e, t), 0);
	assert_int_equal(sim_event_query(e), CUDA_ERROR_CAPTURED_EVENT);
	assert_lost(t);
	assert_int_equal(sim_event_sync(e), CUDA_ERROR_CAPTURED_EVENT);
	assert_int_equal(sim_stream_wait_event(s, e, 0), CUDA_ERROR_CAPTURED_EVENT);
	assert_int_equal(sim_event_record(e, t), 0);
	assert_int_equal(sim_event_sync(e), 0);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	/* Others are not concerned. */
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_event_query(e), 0);
	assert_int_equal(sim_capture_end(t, &graph), 0);
	assert_int_equal(sim_graph_destroy(graph), 0);
}

static void
test_legacy_stream(void **state)
{
	CUstreamCaptureStatus status;
	uint64_t args[] = { p, 1, 1, 0 };

	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_capture_info(NULL, &status, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FILL, args, NULL),
			 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_lost(s);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_event_record(e, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_lost(s);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_set(p, 0, 4, 1, NULL, true), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_lost(s);
	/* A non-blocking stream's capture has nothing to do with the legacy stream. */
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_kernel_launch(SIM_KERNEL_FILL, args, NULL), 0);
	assert_int_equal(sim_capture_info(NULL, &status, NULL), 0);
	assert_kept(t);
}

static void
test_context_marks(void **state)
{
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_ctx_record_event(NULL, e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_ctx_wait_event(NULL, e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_lost(t);
}

static void
test_crossing_the_boundary(void **state)
{
	CUevent before = must_event(), never = must_event();
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);

	assert_int_equal(sim_event_record(before, t), 0);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_stream_wait_event(t, never, 0), 0);
	assert_int_equal(sim_stream_wait_event(t, before, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	assert_lost(t);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_capture_begin(u, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_event_record(before, t), 0);
	assert_int_equal(sim_stream_wait_event(u, before, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	assert_lost(t);
	assert_lost(u);
}

static void
test_only_graph_memory_is_freed(void **state)
{
	CUdeviceptr ptr;

	assert_int_equal(sim_mem_alloc_async(512, t, &ptr), 0);
	assert_int_equal(sim_capture_begin(t, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(sim_mem_free_async(p, t), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_mem_free_async(ptr, t), CUDA_ERROR_INVALID_VALUE);
	assert_kept(t);
}

static void
test_destroyed_while_capturing(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);

	assert_int_equal(sim_capture_begin(u, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(p, 512, 1, u);
	assert_int_equal(sim_event_record(e, u), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	assert_int_equal(sim_stream_destroy(u), 0);
	assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
	must_alloc(512);
	assert_int_equal(sim_capture_begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	fill(p, 512, 1, s);
	assert_int_equal(sim_event_record(e, s), 0);
	assert_int_equal(sim_stream_wait_event(t, e, 0), 0);
	assert_int_equal(sim_stream_destroy(t), 0);
	assert_lost(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_records_instead_of_running),
		T(test_bad_begin_and_end),
		T(test_unsafe_calls),
		T(test_other_threads),
		T(test_status_of_captured_things),
		T(test_legacy_stream),
		T(test_context_marks),
		T(test_crossing_the_boundary),
		T(test_only_graph_memory_is_freed),
		T(test_destroyed_while_capturing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
