/* SPDX-License-Identifier: MIT */
/*
 * Stream-ordered allocation and free, as far as the told heap serves them. Whatever it does not
 * know (streams that capture or are not tracked, pools of other kinds, bad arguments, errors) goes
 * to the driver with the program's own arguments.
 *
 * A segment is allocated in the program's own stream, by the name that the program used. So the
 * driver orders it before all use in that stream, and refuses it where it would have refused the
 * program. Where the driver has no memory left, in turn: a segment of the exact size; idle segments
 * of the told heap go back; freed memory is taken behind a wait on the device; the ladder of the
 * other heap; and what work still uses is asked for as long as it ends.
 */
#include "shim/hooks/hook_told.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/told/fast.h"
#include "shim/driver/driver_table.h"
#include "shim/hooks/foreign_limit.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/late_free.h"
#include "shim/hooks/oom_retry.h"

enum {
	LOOKS = 20,
	LOOK_NS = 50 * 1000,
	STEP_NS = 100 * 1000, /* of the host, between two questions */
	STEP_MAX_NS = 1000 * 1000,
};
/* Since work was last seen to end: where the pool allows memory to be taken behind work that goes
 * on (the driver would make the stream wait), and where only what has finished is taken: as long as
 * a mark may take to be seen. */
#define PATIENCE_NS ((uint64_t)10000000000)
#define MARK_PATIENCE_NS ((uint64_t)1000000)

static const struct ca_touch nothing;

/* A stream that was not found at once. NULL, and the code: the driver knows no such stream, or no
 * call is allowed here (inside a host function); NULL and 0: it captures, or is not tracked. */
static struct ca_stream *
find_slowly(const struct ca_real *real, enum ca_flavour flavour, CUstream handle, CUresult *ret_rc,
	    bool *ret_captures)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	*ret_rc = CA_INSIDE(
		real->cuStreamIsCapturing(ca_submission_handle(flavour, handle), &status));
	*ret_captures = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return *ret_rc || *ret_captures ? NULL
					: ca_submission_begin_slow(flavour, handle, &nothing);
}

static struct ca_submission_slot *
hit_of(enum ca_flavour flavour, CUstream handle)
{
	return ca_stream_is_default(handle) ? ca_told_default_hit(flavour, handle)
					    : ca_submission_hit(flavour, handle);
}

/* The record of the stream, which does not capture. NULL: it is not tracked, or where unseen calls
 * were made nobody knows whether it captures. */
static struct ca_stream *
stream_of(const struct ca_real *real, enum ca_flavour flavour, CUstream handle)
{
	struct ca_submission_slot *slot = hit_of(flavour, handle);
	struct ca_stream *stream = slot ? slot->stream : NULL;
	bool captures;
	CUresult rc;

	if (!slot)
		stream = find_slowly(real, flavour, handle, &rc, &captures);
	return stream && ca_told_sees_all(stream) ? stream : NULL;
}

/* ---- allocation */

struct attempt {
	const struct ca_told_call *call;
	struct ca_told_pool *pool;
	struct ca_stream *stream;
	uint64_t address;
};

static bool
from_cache(struct attempt *attempt, bool cuts_any)
{
	return !ca_told_alloc(attempt->pool, attempt->stream, attempt->call->bytes, cuts_any,
			      &attempt->address);
}

/* Another thread may destroy the device's current pool, which the program does not name here. */
static CUresult
take_segment(const struct ca_told_call *call, struct ca_told_pool *pool, uint64_t bytes,
	     CUdeviceptr *ret_segment)
{
	const struct ca_real *real = call->real;
	struct ca_stream *submitted = ca_submission_begin(call->flavour, call->stream, &nothing);
	CUmemoryPool handle;
	CUresult rc = CUDA_ERROR_INVALID_VALUE;

	if (!submitted) /* a capture has begun: it would be the graph's memory */
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	handle = ca_told_pool_enter(pool);
	if (handle && call->flavour == CA_FLAVOUR_LEGACY)
		rc = CA_INSIDE(
			real->cuMemAllocFromPoolAsync(ret_segment, bytes, handle, call->stream));
	else if (handle)
		rc = CA_INSIDE(real->cuMemAllocFromPoolAsync_ptsz(ret_segment, bytes, handle,
								  call->stream));
	if (handle)
		ca_told_pool_leave(pool);
	ca_submission_end(submitted);
	return rc;
}

/* The told heap did not take it. */
static void
drop_segment(const struct ca_told_call *call, CUdeviceptr segment)
{
	struct ca_road road = ca_foreign_end_begin(CA_CHARGE_ADDRESS, segment);
	CUresult rc;

	if (call->flavour == CA_FLAVOUR_LEGACY)
		rc = CA_INSIDE(call->real->cuMemFreeAsync(segment, call->stream));
	else
		rc = CA_INSIDE(call->real->cuMemFreeAsync_ptsz(segment, call->stream));
	ca_foreign_end_done(&road, rc, CA_CHARGE_ADDRESS, segment);
}

/* 0, or the driver's code. */
static CUresult
grow(struct attempt *attempt, bool exact)
{
	const struct ca_told_call *call = attempt->call;
	uint64_t bytes = ca_told_segment_bytes(attempt->pool, call->bytes, exact);
	CUdevice device = (CUdevice)ca_told_pool_device(attempt->pool);
	struct ca_road road = ca_foreign_begin(call->real, device, bytes, true);
	CUdeviceptr segment;
	CUresult rc;

	if (road.rejected)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = take_segment(call, attempt->pool, bytes, &segment);
	if (rc) {
		ca_foreign_failed(&road);
		ca_told_note_rejected(attempt->pool, bytes, (int)rc);
		return rc;
	}
	ca_foreign_segment_taken(&road, segment);
	if (!ca_told_grow(attempt->pool, attempt->stream, segment, bytes, call->bytes,
			  &attempt->address))
		return CUDA_SUCCESS;
	drop_segment(call, segment);
	return CUDA_ERROR_UNKNOWN;
}

static void
pause_for(uint64_t ns)
{
	const struct timespec pause = { .tv_nsec = (long)ns };

	/* not nanosleep(): that is a cancellation point */
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Memory that the driver may have besides; where that cannot be asked here, less than the request.
 */
static uint64_t
free_bytes(const struct attempt *attempt)
{
	const struct ca_real *real = attempt->call->real;
	size_t free, total;
	CUdevice device;

	if (!real->cuCtxGetDevice || !real->cuMemGetInfo_v2 ||
	    CA_INSIDE(real->cuCtxGetDevice(&device)) ||
	    (unsigned)device != ca_told_pool_device(attempt->pool) ||
	    CA_INSIDE(real->cuMemGetInfo_v2(&free, &total)))
		return attempt->call->bytes - 1;
	return free;
}

/* Memory that has finished may have been given back by another thread, too. */
static bool
from_finished(struct attempt *attempt)
{
	if (from_cache(attempt, true))
		return true;
	(void)ca_told_pools_trim(attempt->call->real, ca_told_pool_device(attempt->pool), 0);
	return !grow(attempt, true);
}

/* Asked twice: another thread may be giving memory back, which the driver's pool keeps. */
static bool
has_waiting_for(const struct attempt *attempt)
{
	for (unsigned i = 0; i < 2; i++) {
		if (ca_told_has_waiting_for(attempt->pool, attempt->call->bytes,
					    free_bytes(attempt)))
			return true;
		(void)ca_told_pools_trim(attempt->call->real, ca_told_pool_device(attempt->pool),
					 0);
		pause_for(STEP_NS);
	}
	return false;
}

/* Another thread may be giving back what it has taken out. */
static void
await_others(const struct attempt *attempt)
{
	unsigned device = ca_told_pool_device(attempt->pool);
	uint64_t since = now_ns();

	while (ca_told_others_give(ca_process()->heap, device) && now_ns() - since < PATIENCE_NS)
		pause_for(STEP_NS);
}

/*
 * Freed memory that would do is used by work that has not ended: asked for, never waited for. Once
 * all that was submitted before the call has ended, other threads have taken what was to be had,
 * and it is their turn to give back: only so much longer. Nor longer than that without any work
 * that ends, which may wait for what the program does next.
 */
static bool
await(struct attempt *attempt)
{
	struct ca_heap *heap = ca_process()->heap;
	uint64_t patience = ca_told_pool_allows(attempt->pool, CA_TOLD_INTERNAL) ? PATIENCE_NS
										 : MARK_PATIENCE_NS;
	uint64_t since = now_ns(), step = STEP_NS, number = ca_told_submitted(heap);
	bool ended = false;

	while (now_ns() - since < patience && has_waiting_for(attempt)) {
		bool progress = ca_told_poll_all(heap, ca_told_pool_device(attempt->pool));

		if (!ended && ca_told_poll_submitted(heap, number))
			progress = ended = true;
		if (progress && from_finished(attempt))
			return true;
		if (progress && !ended)
			since = now_ns();
		step = progress ? STEP_NS : step * 2 > STEP_MAX_NS ? STEP_MAX_NS : step * 2;
		pause_for(step);
	}
	await_others(attempt);
	return from_finished(attempt);
}

static bool
with_guard(struct attempt *attempt)
{
	return !ca_told_alloc_guarded(attempt->pool, attempt->stream, attempt->call->bytes,
				      &attempt->address);
}

/* The driver has no memory left. */
static bool
by_ladder(struct attempt *attempt)
{
	const struct ca_told_call *call = attempt->call;
	unsigned device = ca_told_pool_device(attempt->pool);
	struct ca_rounds rounds = { 0 };

	if (!grow(attempt, true))
		return true;
	if (ca_told_pools_trim(call->real, device, 0) && !grow(attempt, true))
		return true;
	if (from_cache(attempt, true) || with_guard(attempt))
		return true;
	while (ca_make_capacity_on((CUdevice)device, call->bytes, &rounds))
		if (from_cache(attempt, true) || !grow(attempt, true))
			return true;
	return await(attempt);
}

/* About as long as the driver takes to allocate. */
static bool
look_again(struct attempt *attempt, uint64_t bytes)
{
	bool served = false;

	if (!ca_told_look_is_due(attempt->pool, bytes))
		return false;
	for (unsigned i = 0; i < LOOKS && !served && ca_told_look_goes_on(attempt->pool); i++) {
		pause_for(LOOK_NS);
		if (ca_told_poll_all(ca_process()->heap, ca_told_pool_device(attempt->pool)))
			served = from_cache(attempt, false);
	}
	ca_told_look_ends(attempt->pool, served);
	return served;
}

static __attribute__((noinline)) bool
from_driver(struct attempt *attempt)
{
	CA_KEEP_ERRNO;
	uint64_t bytes = ca_told_segment_bytes(attempt->pool, attempt->call->bytes, false);
	CUresult rc;

	if (look_again(attempt, bytes))
		return true;
	ca_told_pools_make_budget(attempt->call->real, attempt->pool, bytes);
	rc = grow(attempt, false);
	return !rc || (rc == CUDA_ERROR_OUT_OF_MEMORY && by_ladder(attempt));
}

/* From the rest of the heap, and from the driver. */
static __attribute__((noinline)) bool
alloc_slowly(const struct ca_told_call *call, struct ca_told_pool *pool, struct ca_stream *stream)
{
	struct attempt attempt = { .call = call, .pool = pool, .stream = stream };
	bool served;

	ca_late_free_all();
	served = from_cache(&attempt, false) || from_driver(&attempt);
	if (served)
		*call->dptr = attempt.address;
	ca_process_tick(ca_process());
	return served;
}

bool
ca_told_alloc_async(const struct ca_told_call *call)
{
	struct ca_stream *stream;
	struct ca_told_pool *pool;
	uint64_t address;

	if (ca_inside || !call->dptr || !call->bytes || !ca_hook_active_process())
		return false;
	stream = stream_of(call->real, call->flavour, call->stream);
	if (!stream)
		return false;
	pool = call->pool ? ca_told_pools_find(call->pool)
			  : ca_told_pools_current(ca_told_device_of(stream));
	if (!pool)
		return false;
	if (!ca_told_alloc_quick(pool, stream, call->bytes, &address))
		return alloc_slowly(call, pool, stream);
	*call->dptr = address;
	return true;
}

static void
note_failed(const struct ca_told_call *call, struct ca_told_pool *pool, struct ca_stream *stream)
{
	struct ca_space *space = ca_context_space_on((CUdevice)ca_told_pool_device(pool));

	ca_told_note_failed(pool, stream, call->bytes, CUDA_ERROR_OUT_OF_MEMORY);
	/* the program's own limit of a pool tells nothing of the device */
	if (space && !ca_told_pool_is_limited(pool))
		ca_report_async_oom(space, call->bytes);
}

void
ca_told_driver_allocated(const struct ca_told_call *call, CUresult rc)
{
	struct ca_stream *stream;
	struct ca_told_pool *pool;

	if (ca_inside || !atomic_load_explicit(&ca_told_on, memory_order_relaxed))
		return;
	if (rc && rc != CUDA_ERROR_OUT_OF_MEMORY)
		return;
	pool = ca_told_pools_find(call->pool);
	stream = call->pool && !rc ? NULL : ca_submission_stream(call->flavour, call->stream);
	if (stream && !call->pool)
		pool = ca_told_pools_current(ca_told_device_of(stream));
	if (pool && rc)
		note_failed(call, pool, stream);
	else if (pool)
		ca_told_pools_note_foreign(call->real, pool);
}

/* ---- free */

bool
ca_told_holds(CUdeviceptr dptr, struct ca_told_info *ret_info)
{
	struct ca_process *process = ca_hook_active_process();

	return atomic_load_explicit(&ca_told_on, memory_order_relaxed) && process &&
	       !ca_told_lookup(process->heap, dptr, ret_info);
}

static CUresult
answer(int freed)
{
	if (freed)
		return freed == -EBUSY ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
				       : CUDA_ERROR_INVALID_VALUE;
	if (__builtin_expect(ca_told_has_closed(ca_process()->heap), 0))
		ca_told_pools_tidy();
	return CUDA_SUCCESS;
}

CUresult
ca_told_operation_untracked(const struct ca_real *real, CUstream handle, enum ca_flavour flavour)
{
	return ca_stream_operation_unverified(real, ca_submission_handle(flavour, handle));
}

/* A stream that captures takes only the addresses of graph allocations. */
static CUresult
free_slowly(const struct ca_real *real, CUdeviceptr dptr, CUstream handle, enum ca_flavour flavour)
{
	struct ca_heap *heap = ca_process()->heap;
	struct ca_stream *stream;
	bool captures;
	CUresult rc;

	stream = find_slowly(real, flavour, handle, &rc, &captures);
	if (rc || captures)
		return rc ? rc : CUDA_ERROR_INVALID_VALUE;
	if (stream)
		return answer(ca_told_free(heap, dptr, stream));
	rc = ca_told_operation_untracked(real, handle, flavour);
	return rc ? rc : answer(ca_told_free_untracked(heap, dptr));
}

/* A free of memory that is not kept at once. */
static __attribute__((noinline)) bool
free_rest(const struct ca_real *real, CUdeviceptr dptr, CUstream handle, enum ca_flavour flavour,
	  CUresult *ret_rc)
{
	struct ca_process *process = ca_hook_active_process();
	struct ca_submission_slot *slot;
	struct ca_told_info info;
	int freed;

	if (!process || !dptr || !ca_told_any(process->heap))
		return false;
	ca_late_free_all();
	slot = hit_of(flavour, handle);
	if (__builtin_expect(slot != NULL, 1) && ca_told_sees_all(slot->stream)) {
		freed = ca_told_free(process->heap, dptr, slot->stream);
		if (freed == -ENOENT)
			return false;
		*ret_rc = answer(freed);
		ca_process_tick(process);
		return true;
	}
	if (ca_told_lookup(process->heap, dptr, &info))
		return false;
	CA_KEEP_ERRNO;
	*ret_rc = free_slowly(real, dptr, handle, flavour);
	ca_process_tick(process);
	return true;
}

bool
ca_told_free_async(const struct ca_real *real, CUdeviceptr dptr, CUstream handle,
		   enum ca_flavour flavour, CUresult *ret_rc)
{
	struct ca_process *process = ca_hook_active_process();
	struct ca_submission_slot *slot = hit_of(flavour, handle);

	if (!process || !slot || !ca_told_sees_all(slot->stream) ||
	    !ca_told_free_quick(ca_told_of(slot->stream), dptr, slot->stream))
		return free_rest(real, dptr, handle, flavour, ret_rc);
	*ret_rc = CUDA_SUCCESS;
	return true;
}

/* cuMemFree, which a capture may prohibit: an allocation is, likewise. */
static CUresult
free_here(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr)
{
	CUdeviceptr probe;
	CUresult rc;

	if (ca_capture_disallows()) {
		rc = CA_INSIDE(real->cuMemAlloc_v2(&probe, 1));
		if (rc)
			return ca_capture_is_error(rc) ? rc : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		(void)CA_INSIDE(real->cuMemFree_v2(probe));
	}
	return answer(ca_told_free(process->heap, dptr, NULL));
}

bool
ca_told_free_host(const struct ca_real *real, CUdeviceptr dptr, CUresult *ret_rc)
{
	struct ca_process *process = ca_hook_active_process();
	struct ca_told_info info;

	if (!process || !dptr || !ca_told_any(process->heap) ||
	    ca_told_lookup(process->heap, dptr, &info))
		return false;
	CA_KEEP_ERRNO;
	*ret_rc = free_here(real, process, dptr);
	ca_process_tick(process);
	return true;
}
