/* SPDX-License-Identifier: MIT */
/*
 * Events: born, recorded, waited for, destroyed.
 *
 * A record touches no memory and waits for nothing: it is no submission. It needs not come behind a
 * mark that a free has armed either: the mark must not come behind a wait, or work. But in the
 * legacy stream it is an operation, behind which blocking streams come.
 *
 * A wait touches no memory, so nothing need be guarded, but a record behind it comes after whatever
 * the event stands for, which may depend on work submitted after a free: so it is a submission,
 * behind the armed marks.
 *
 * A record in a capture teaches nothing, and the event's snapshot is forgotten: the captured event
 * stands for a place in a graph. Whether a stream captures is asked before and after a record, for
 * another thread may begin a capture meanwhile.
 *
 * cuIpcGetEventHandle needs no hook: it takes only events made with CU_EVENT_INTERPROCESS.
 */
#include "allocator/order/order_told.h"
#include "shim/driver/told_pools.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"
#include "shim/hooks/submission.h"
#include "shim/state/finished_only.h"
#include "shim/track/contexts.h"
#include "shim/track/events.h"

#include "config/mutant.h"

CUresult
cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuEventCreate);
	CUresult rc = CA_ROOM(real, real->cuEventCreate(phEvent, Flags));

	if (rc == CUDA_SUCCESS && phEvent && ca_hook_active_process())
		ca_events_created(*phEvent, ca_context_current(real), Flags);
	return rc;
}

CUresult
cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	CA_HOOK_REAL(real, cuIpcOpenEventHandle);
	CUresult rc = CA_INSIDE(real->cuIpcOpenEventHandle(phEvent, handle));

	if (rc == CUDA_SUCCESS && phEvent && ca_hook_active_process())
		ca_events_opened(*phEvent);
	return rc;
}

#define DESTROY(symbol)                                                                            \
	CUresult symbol(CUevent hEvent)                                                            \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
                                                                                                   \
		if (ca_hook_active_process())                                                      \
			ca_events_destroyed(hEvent);                                               \
		return CA_INSIDE(real->symbol(hEvent));                                            \
	}
DESTROY(cuEventDestroy)
DESTROY(cuEventDestroy_v2)

/* ---- records */

/* The stream that a record teaches of; NULL: none. A stream in the thread's table does not capture.
 */
static inline __attribute__((always_inline)) struct ca_stream *
recorded_stream(enum ca_flavour flavour, CUstream stream, CUevent event, unsigned flags)
{
	struct ca_submission_slot *slot = ca_submission_hit(flavour, stream);

	if (__builtin_expect(slot != NULL, 1))
		return slot->stream;
	if (!ca_submission_captures(flavour, stream) || CA_MUTANT(CAPTURED_RECORD_TEACHES))
		return ca_submission_stream(flavour, stream);
	if (flags & CU_EVENT_RECORD_EXTERNAL) /* each launch records it anew */
		ca_events_silence(event);
	return NULL;
}

/* The legacy stream, if it is to be known that it has an operation there. `stream` NULL: it is not
 * tracked yet. */
static __attribute__((noinline)) struct ca_stream *
legacy_begin(const struct ca_real *real, struct ca_stream *stream, uint64_t *ret_bound)
{
	static const struct ca_touch nothing;
	struct ca_space *space = stream ? ca_stream_space(stream) : ca_context_space(real);

	if (!space || !ca_order_has_blocking(&space->order))
		return NULL;
	if (!stream)
		stream = ca_submission_begin_slow(CA_FLAVOUR_LEGACY, CU_STREAM_LEGACY, &nothing);
	else if (ca_told_needs_operation(stream)) /* the marks of earlier frees come before it */
		ca_submit_begin(stream, &nothing);
	*ret_bound = stream ? ca_told_operation_begin(stream) : 0;
	return *ret_bound ? stream : NULL;
}

static inline __attribute__((always_inline)) void
record_end(struct ca_events_use *use, enum ca_flavour flavour, CUstream stream, CUresult rc)
{
	bool done = rc == CUDA_SUCCESS || CA_MUTANT(FAILED_RECORD_TEACHES);

	if (ca_capture_active() && ca_submission_captures(flavour, stream) &&
	    !CA_MUTANT(CAPTURED_RECORD_TEACHES))
		done = false;
	ca_events_record_end(use, done);
}

#define RECORD(symbol, flavour, params, args, flags)                                               \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_events_use use;                                                          \
		struct ca_stream *stream, *legacy = NULL;                                          \
		uint64_t bound;                                                                    \
		CUresult rc;                                                                       \
                                                                                                   \
		if (!ca_hook_active_process())                                                     \
			return CA_INSIDE(real->symbol args);                                       \
		stream = recorded_stream(flavour, hStream, hEvent, flags);                         \
		if (__builtin_expect(ca_submission_handle(flavour, hStream) == CU_STREAM_LEGACY,   \
				     0) &&                                                         \
		    atomic_load_explicit(&ca_told_on, memory_order_relaxed))                       \
			legacy = legacy_begin(real, stream, &bound);                               \
		ca_events_record_begin(&use, hEvent, stream);                                      \
		rc = CA_INSIDE(real->symbol args);                                                 \
		record_end(&use, flavour, hStream, rc);                                            \
		if (__builtin_expect(legacy != NULL, 0))                                           \
			ca_told_operation_end(legacy, bound, rc == CUDA_SUCCESS);                  \
		return rc;                                                                         \
	}
RECORD(cuEventRecord, CA_FLAVOUR_LEGACY, (CUevent hEvent, CUstream hStream), (hEvent, hStream), 0)
RECORD(cuEventRecord_ptsz, CA_FLAVOUR_PER_THREAD, (CUevent hEvent, CUstream hStream),
       (hEvent, hStream), 0)
RECORD(cuEventRecordWithFlags, CA_FLAVOUR_LEGACY,
       (CUevent hEvent, CUstream hStream, unsigned int flags), (hEvent, hStream, flags), flags)
RECORD(cuEventRecordWithFlags_ptsz, CA_FLAVOUR_PER_THREAD,
       (CUevent hEvent, CUstream hStream, unsigned int flags), (hEvent, hStream, flags), flags)

/* Of all of a context's streams at once. */
#define RECORD_CONTEXT(symbol, handle)                                                             \
	CUresult symbol(handle hCtx, CUevent hEvent)                                               \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_events_use use;                                                          \
		CUresult rc;                                                                       \
                                                                                                   \
		if (!ca_hook_active_process())                                                     \
			return CA_INSIDE(real->symbol(hCtx, hEvent));                              \
		ca_events_forget_begin(&use, hEvent);                                              \
		rc = CA_INSIDE(real->symbol(hCtx, hEvent));                                        \
		ca_events_forget_end(&use);                                                        \
		return rc;                                                                         \
	}
RECORD_CONTEXT(cuCtxRecordEvent, CUcontext)
RECORD_CONTEXT(cuGreenCtxRecordEvent, CUgreenCtx)

/* ---- waits */

struct waiting {
	struct ca_stream *stream; /* NULL: not tracked, or captures */
	bool hazard;
	struct ca_events_use use;
};

static inline __attribute__((always_inline)) void
wait_begin(struct waiting *waiting, enum ca_flavour flavour, CUstream stream, CUevent event)
{
	static const struct ca_touch nothing;

	waiting->stream = NULL;
	if (!ca_hook_active_process())
		return;
	waiting->stream = ca_submission_begin(flavour, stream, &nothing);
	if (!waiting->stream)
		return;
	ca_events_look(&waiting->use, event);
	waiting->hazard = waiting->use.outside ||
			  (waiting->use.event &&
			   ca_event_is_held_up_elsewhere(waiting->use.event, waiting->stream));
	if (waiting->hazard)
		ca_submit_hazard_begin(waiting->stream);
}

static inline __attribute__((always_inline)) CUresult
wait_end(struct waiting *waiting, CUresult rc)
{
	if (!waiting->stream)
		return rc;
	ca_submission_end(waiting->stream);
	if (CA_MUTANT(SNAPSHOT_AFTER_WAIT))
		ca_events_look(&waiting->use, waiting->use.handle);
	if (waiting->hazard)
		ca_submit_hazard_end(waiting->stream, rc == CUDA_SUCCESS);
	else if (rc == CUDA_SUCCESS)
		ca_events_waited(&waiting->use, waiting->stream);
	return rc;
}

#define WAIT(symbol, flavour)                                                                      \
	CUresult symbol(CUstream hStream, CUevent hEvent, unsigned int Flags)                      \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct waiting waiting;                                                            \
                                                                                                   \
		wait_begin(&waiting, flavour, hStream, hEvent);                                    \
		return wait_end(&waiting, CA_INSIDE(real->symbol(hStream, hEvent, Flags)));        \
	}
WAIT(cuStreamWaitEvent, CA_FLAVOUR_LEGACY)
WAIT(cuStreamWaitEvent_ptsz, CA_FLAVOUR_PER_THREAD)

/*
 * All streams of a context wait: a mark of ours on any of them would come behind the event, and
 * we cannot say for each what the event depends on. The context's space is on finished memory from
 * now on.
 */
CUresult
cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	CA_HOOK_REAL(real, cuCtxWaitEvent);
	struct ca_process *process = ca_hook_active_process();
	struct ca_context *context = process ? ca_context_find(hCtx) : NULL;
	struct ca_space *space = context ? atomic_load(&context->space) : NULL;

	if (space)
		ca_fallback(process, space, CA_REASON_CONTEXT_WAIT);
	return CA_INSIDE(real->cuCtxWaitEvent(hCtx, hEvent));
}

/* A green context does not say whose memory its streams use. */
CUresult
cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	CA_HOOK_REAL(real, cuGreenCtxWaitEvent);
	struct ca_process *process = ca_hook_process();

	if (process)
		ca_fallback(process, NULL, CA_REASON_CONTEXT_WAIT);
	return CA_INSIDE(real->cuGreenCtxWaitEvent(hCtx, hEvent));
}

/* ---- answers to the host */

CUresult
cuEventQuery(CUevent hEvent)
{
	CA_HOOK_REAL(real, cuEventQuery);
	struct ca_events_use use;
	CUresult rc;

	if (!ca_hook_active_process())
		return CA_INSIDE(real->cuEventQuery(hEvent));
	ca_events_look(&use, hEvent);
	rc = CA_INSIDE(real->cuEventQuery(hEvent));
	if (CA_MUTANT(SNAPSHOT_AFTER_QUERY))
		ca_events_look(&use, hEvent);
	if (rc == CUDA_SUCCESS)
		ca_events_finished(&use);
	return rc;
}

CUresult
cuEventSynchronize(CUevent hEvent)
{
	CA_HOOK_REAL(real, cuEventSynchronize);
	struct ca_events_use use;
	CUresult rc;

	if (!ca_hook_active_process())
		return CA_INSIDE(real->cuEventSynchronize(hEvent));
	ca_events_look(&use, hEvent);
	rc = CA_INSIDE(real->cuEventSynchronize(hEvent));
	if (rc == CUDA_SUCCESS)
		ca_events_finished(&use);
	if (rc == CUDA_SUCCESS && atomic_load_explicit(&ca_told_thresholds, memory_order_relaxed))
		ca_told_pools_synchronized(real);
	return rc;
}
