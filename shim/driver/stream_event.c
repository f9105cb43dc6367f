/* SPDX-License-Identifier: MIT */
/*
 * Marks are recorded inside the capture gate. Marks and waits are wanted while something else
 * captures, too: then the driver is asked first whether this stream does, as it is for the legacy
 * stream, which is unusable while a blocking stream captures.
 *
 * A record on the legacy stream would be a barrier for all blocking streams. So it goes to a
 * blocking stream of our own, which the driver orders behind what was submitted to the legacy
 * stream, and which nobody else uses. That the driver does is tried first
 * (shim/track/assumptions.h).
 *
 * Created streams need no current context of their own; where a driver wants one, it gets it.
 */
#include "shim/driver/stream_event.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "allocator/util/yield.h"
#include "config/mutant.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/unseen_calls.h"
#include "shim/driver/context_event.h"
#include "shim/driver/driver_table.h"
#include "shim/state/process.h"
#include "shim/track/assumptions.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"
#include "shim/track/streams.h"

/* One of the calls below, on `stream`, with everything that it needs. */
struct call {
	const struct ca_real *real;
	struct ca_context *context;
	CUstream stream;
	CUevent event; /* of a mark */
	bool orders;   /* it is to be an operation of the stream itself, not only a mark of it */
};

typedef CUresult call_fn(const struct call *call);

static CUresult
record(const struct call *call)
{
	return CA_INSIDE(call->real->cuEventRecord(call->event, call->stream));
}

static CUresult
wait_event(const struct call *call)
{
	return CA_INSIDE(call->real->cuStreamWaitEvent(call->stream, call->event, 0));
}

static CUresult
query(const struct call *call)
{
	return CA_INSIDE(call->real->cuStreamQuery(call->stream));
}

static CUresult
synchronize(const struct call *call)
{
	return CA_INSIDE(call->real->cuStreamSynchronize(call->stream));
}

/* In its context, if the stream's name or the driver wants that. */
static CUresult
make(const struct call *call, call_fn *fn)
{
	CUresult rc = CUDA_ERROR_INVALID_CONTEXT;
	bool pushed;

	if (!ca_stream_is_default(call->stream))
		rc = fn(call);
	if (rc != CUDA_ERROR_INVALID_CONTEXT)
		return rc;
	rc = ca_context_push(call->real, call->context, &pushed);
	if (rc)
		return rc;
	rc = fn(call);
	ca_context_pop(call->real, pushed);
	return rc;
}

static int
result_of(CUresult rc)
{
	return ca_capture_is_error(rc) ? -EBUSY : (int)rc;
}

/* A full device may have none: another time there may be some. */
static int
create_event(const struct call *call, struct ca_mark_part *part)
{
	CUresult rc = ca_mark_part_create_event(call->real, part);

	return rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : result_of(rc);
}

/* An operation can do without an event. */
static bool
is_failure(const struct call *call, int failed)
{
	return failed && !(failed == -ENOMEM && call->orders);
}

/* 0; -ENOTSUP: the driver lacks something, or this thread cannot name the stream. */
static int
prepare(struct call *call, void *context, void *stream)
{
	uint64_t thread;

	call->real = ca_real();
	call->context = context;
	call->stream = ca_stream_decode(stream, &thread);
	if (thread && thread != ca_order_thread() && !CA_MUTANT(PER_THREAD_MARK))
		return -ENOTSUP;
	if (!call->real || !call->real->cuEventRecord || !call->real->cuEventCreate ||
	    !call->real->cuStreamWaitEvent || !call->real->cuStreamSynchronize ||
	    !call->real->cuEventQuery || !call->real->cuEventSynchronize ||
	    !call->real->cuStreamQuery)
		return -ENOTSUP;
	return 0;
}

/* The context is entered, and the gate too if *ret_gate: else something captures. 0, or the answer
 * of the whole. */
static int
enter(const struct call *call, bool *ret_gate)
{
	*ret_gate = ca_gate_enter();
	if (ca_context_enter(call->context))
		return 0;
	if (*ret_gate)
		ca_gate_leave();
	return atomic_load(&call->context->dead) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : -EBUSY;
}

static void
leave(const struct call *call, bool gate)
{
	ca_context_leave(call->context);
	if (gate)
		ca_gate_leave();
}

static CUresult
query_capture(const struct call *call)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult rc;

	if (!call->real->cuStreamIsCapturing)
		return CUDA_SUCCESS;
	rc = CA_INSIDE(call->real->cuStreamIsCapturing(call->stream, &status));
	if (rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
		rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return rc;
}

/* ---- recording */

/* The context's stream for marks of the legacy stream, in the gate. */
static CUresult
take_marker(struct call *call)
{
	bool pushed;
	CUresult rc;

	if (!atomic_load(&call->context->marker)) {
		rc = ca_context_push(call->real, call->context, &pushed);
		if (rc)
			return rc;
		rc = ca_context_own_stream(call->real, &call->context->marker, 0);
		ca_context_pop(call->real, pushed);
		if (rc)
			return rc;
	}
	call->stream = atomic_load(&call->context->marker);
	return CUDA_SUCCESS;
}

/*
 * A driver of which it is not known that the marker comes after the legacy stream. With no work on
 * other blocking streams a record on the legacy stream itself orders nothing that is not ordered
 * anyway. Otherwise the mark is one that is done, if the stream is through, or there is none now.
 */
static CUresult
record_unverified(struct call *call, struct ca_mark_part *part)
{
	struct ca_space *space = atomic_load(&call->context->space);
	CUresult rc;

	if (ca_unseen_capture(call->real))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	rc = CUDA_ERROR_NOT_READY;
	if (space && ca_order_legacy_begin(space, false)) {
		if (ca_order_legacy_call_begin(space)) {
			rc = make(call, record);
			ca_order_legacy_call_end(space);
		}
		ca_order_legacy_end(space);
		return rc;
	}
	rc = make(call, query);
	atomic_store_explicit(&part->done, rc == CUDA_SUCCESS, memory_order_release);
	return rc;
}

static CUresult
record_legacy(struct call *call, struct ca_mark_part *part)
{
	CUresult rc;

	if (!ca_assumption_holds(call->context, CA_ASSUMPTION_LEGACY_RECORD))
		return record_unverified(call, part);
	rc = take_marker(call);
	return rc ? rc : make(call, record);
}

static void
do_nothing(void *data)
{
	(void)data;
}

/* The device may be full, or have no pools; the host must not wait for work that may wait for it.
 */
CUresult
ca_stream_operation_unverified(const struct ca_real *real, CUstream stream)
{
	CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
	CUdeviceptr memory;

	if (real->cuMemAllocAsync && real->cuMemFreeAsync)
		rc = CA_INSIDE(real->cuMemAllocAsync(&memory, 1, stream));
	if (!rc)
		return CA_INSIDE(real->cuMemFreeAsync(memory, stream));
	if ((rc == CUDA_ERROR_OUT_OF_MEMORY || rc == CUDA_ERROR_NOT_SUPPORTED) &&
	    real->cuLaunchHostFunc)
		rc = CA_INSIDE(real->cuLaunchHostFunc(stream, do_nothing, NULL));
	return rc;
}

static CUresult
operation_unverified(const struct call *call)
{
	return ca_stream_operation_unverified(call->real, call->stream);
}

/* Where there is no event, and where a record in a blocking stream may not come behind the legacy
 * stream's work, it is none. */
static call_fn *
operation_for(const struct call *call)
{
	return call->event && (!call->orders || call->stream == CU_STREAM_LEGACY ||
			       ca_assumption_holds(call->context, CA_ASSUMPTION_LEGACY_RECORD))
		       ? record
		       : operation_unverified;
}

static int
record_part(struct call *call, struct ca_mark_part *part)
{
	CUresult rc = CUDA_SUCCESS;
	int failed = create_event(call, part);

	if (is_failure(call, failed))
		return failed;
	call->event = part->has_event ? part->event : NULL;
	if (call->stream == CU_STREAM_LEGACY && !call->orders) {
		rc = record_legacy(call, part);
	} else {
		if (ca_unseen_calls())
			rc = make(call, query_capture);
		if (!rc)
			rc = make(call, operation_for(call));
	}
	part->recorded = rc == CUDA_SUCCESS && part->has_event;
	return rc == CUDA_ERROR_NOT_READY ? -EBUSY : result_of(rc);
}

/*
 * While something else captures. No capture begins meanwhile, but by an event another thread may
 * take the stream into one: then the mark may have become a part of that, and must not be asked.
 */
static int
record_in_capture(struct call *call, struct ca_mark_part *part)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct call asked = *call;
	int rc = call->real->cuStreamIsCapturing ? 0 : -EBUSY;

	if (rc || !ca_capture_exchange_mode(call->real, &mode))
		return -EBUSY;
	rc = result_of(make(&asked, query_capture));
	if (!rc)
		rc = record_part(call, part);
	if (!rc)
		rc = result_of(make(&asked, query_capture));
	ca_capture_restore_mode(call->real, mode);
	return rc;
}

/* *gate: the gate is entered. It is left where a begin-capture came while the event was made, which
 * may take long: then something captures. */
static int
record_in(struct call *call, struct ca_mark_part *part, bool *gate)
{
	int rc;

	if (*gate) {
		rc = create_event(call, part);
		if (is_failure(call, rc))
			return rc;
		if (!ca_capture_active())
			return record_part(call, part);
		ca_gate_leave();
		*gate = false;
	}
	while (!ca_gate_enter_in_capture()) { /* a capture is about to begin */
		if (!call->orders)
			return -EBUSY;
		ca_yield();
	}
	rc = record_in_capture(call, part);
	ca_gate_leave();
	return rc;
}

/* *ret_part NULL: there is none. */
static int
record_any(struct call *call, void *context, void *stream, struct ca_mark_part **ret_part)
{
	struct ca_mark_part *part;
	bool gate;
	int rc = prepare(call, context, stream);

	*ret_part = NULL;
	if (!rc)
		rc = enter(call, &gate);
	if (rc)
		return rc;
	part = ca_mark_part_take(call->context, call->context);
	rc = part ? record_in(call, part, &gate) : -ENOMEM;
	leave(call, gate);
	*ret_part = part;
	return rc;
}

int
ca_stream_mark(void *self, void *context, void *stream, ca_mark *ret_mark)
{
	struct call call = { .orders = false };
	struct ca_mark_part *part;
	int rc = record_any(&call, context, stream, &part);

	if (!rc)
		*ret_mark = (ca_mark)(uintptr_t)part | CA_MARK_STREAM_BIT;
	else if (part)
		ca_mark_part_retire(part);
	return rc;
}

/* A record, of which nobody wants to know when it is done. */
int
ca_stream_operation(void *self, void *context, void *stream)
{
	struct call call = { .orders = true };
	struct ca_mark_part *part;
	int rc = record_any(&call, context, stream, &part);

	if (part)
		ca_mark_part_retire(part);
	return rc;
}

/* ---- waiting */

/* For a mark of another context, which must not go meanwhile. */
static int
wait_across(const struct call *call, struct ca_mark_part *part)
{
	int rc;

	if (!ca_context_enter(part->context))
		return atomic_load(&part->context->dead) ? 0 : -EBUSY;
	rc = result_of(make(call, wait_event));
	ca_context_leave(part->context);
	return rc;
}

int
ca_stream_wait(void *self, void *context, void *stream, ca_mark mark)
{
	struct ca_mark_part *part = ca_mark_part_of(mark);
	struct call call;
	bool gate;
	int rc = prepare(&call, context, stream);

	if (rc)
		return rc;
	if (atomic_load_explicit(&part->done, memory_order_acquire))
		return 0; /* it may never have been recorded */
	rc = enter(&call, &gate);
	if (rc)
		return rc;
	call.event = part->event;
	if (!gate || ca_unseen_calls())
		rc = result_of(make(&call, query_capture));
	if (!rc && part->context == context)
		rc = result_of(make(&call, wait_event));
	else if (!rc)
		rc = wait_across(&call, part);
	leave(&call, gate);
	return rc;
}

int
ca_stream_query(void *self, void *context, void *stream)
{
	struct call call;
	bool gate;
	int rc = prepare(&call, context, stream);

	if (rc)
		return rc;
	if (CA_MUTANT(REUSE_AT_ONCE))
		return 0;
	rc = enter(&call, &gate);
	if (rc)
		return rc;
	if (!gate)
		rc = -EBUSY;
	else if (ca_unseen_calls())
		rc = result_of(make(&call, query_capture));
	if (!rc)
		rc = result_of(make(&call, query));
	leave(&call, gate);
	return rc == CUDA_ERROR_NOT_READY ? -EAGAIN : rc;
}

/*
 * In the gate, as the synchronisation of a whole context is: a begin-capture on this stream waits,
 * for a second at most. Relaxed, for captures that do not concern it. A context that is being
 * destroyed is awaited.
 */
int
ca_stream_synchronize(void *self, void *context, void *stream)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool gate, exchanged;
	struct call call;
	int rc = prepare(&call, context, stream);

	if (rc)
		return rc;
	while ((rc = enter(&call, &gate)) == -EBUSY)
		ca_yield();
	if (rc)
		return 0; /* nothing runs in a dead context */
	if (!gate || ca_unseen_calls())
		rc = result_of(make(&call, query_capture));
	if (!rc) {
		exchanged = ca_capture_exchange_mode(call.real, &mode);
		rc = result_of(make(&call, synchronize));
		if (exchanged)
			ca_capture_restore_mode(call.real, mode);
	}
	leave(&call, gate);
	return rc;
}
