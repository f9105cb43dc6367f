/* SPDX-License-Identifier: MIT */
/*
 * Events: born, recorded, waited for, destroyed.
 *
 * A record touches no memory and waits for nothing: it is no submission. It needs not come behind a
 * mark that a free has armed either: the mark must not come behind a wait, or work.
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
#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"
#include "shim/hooks/submission.h"
#include "shim/state/finished_only.h"
#include "shim/track/contexts.h"
#include "shim/track/events.h"

#include "config/mutant.h"

/* Does this process track events, in this call? */
static bool
tracks(void)
{
	struct ca_process *process = ca_hook_process();

	return process && process->serves;
}

CUresult
cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuEventCreate);
	CUresult rc = CA_ROOM(real, real->cuEventCreate(phEvent, Flags));
	CUcontext context = NULL;

	if (rc || !phEvent || !tracks())
		return rc;
	if (real->cuCtxGetCurrent)
		(void)CA_INSIDE(real->cuCtxGetCurrent(&context));
	ca_events_created(*phEvent, context, Flags);
	return rc;
}

CUresult
cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	CA_HOOK_REAL(real, cuIpcOpenEventHandle);
	CUresult rc = CA_INSIDE(real->cuIpcOpenEventHandle(phEvent, handle));

	if (rc == CUDA_SUCCESS && phEvent && tracks())
		ca_events_opened(*phEvent);
	return rc;
}

CUresult
cuEventDestroy(CUevent hEvent)
{
	CA_HOOK_REAL(real, cuEventDestroy);

	if (tracks())
		ca_events_destroyed(hEvent);
	return CA_INSIDE(real->cuEventDestroy(hEvent));
}

CUresult
cuEventDestroy_v2(CUevent hEvent)
{
	CA_HOOK_REAL(real, cuEventDestroy_v2);

	if (tracks())
		ca_events_destroyed(hEvent);
	return CA_INSIDE(real->cuEventDestroy_v2(hEvent));
}

/* ---- records */

static void
record_begin(struct ca_events_use *use, enum ca_flavour flavour, CUstream stream, CUevent event,
	     unsigned flags)
{
	*use = (struct ca_events_use){ 0 };
	if (!tracks())
		return;
	if (ca_submission_captures(flavour, stream) && !CA_MUTANT(CAPTURED_RECORD_TEACHES)) {
		if (flags & CU_EVENT_RECORD_EXTERNAL) /* each launch records it anew */
			ca_events_silence(event);
		ca_events_record_begin(use, event, NULL);
	} else {
		ca_events_record_begin(use, event, ca_submission_stream(flavour, stream));
	}
}

static CUresult
record_end(struct ca_events_use *use, enum ca_flavour flavour, CUstream stream, CUresult rc)
{
	bool done = rc == CUDA_SUCCESS || CA_MUTANT(FAILED_RECORD_TEACHES);

	if (use->event)
		ca_events_record_end(use, done && (!ca_submission_captures(flavour, stream) ||
						   CA_MUTANT(CAPTURED_RECORD_TEACHES)));
	return rc;
}

CUresult
cuEventRecord(CUevent hEvent, CUstream hStream)
{
	CA_HOOK_REAL(real, cuEventRecord);
	struct ca_events_use use;

	record_begin(&use, CA_FLAVOUR_LEGACY, hStream, hEvent, 0);
	return record_end(&use, CA_FLAVOUR_LEGACY, hStream,
			  CA_INSIDE(real->cuEventRecord(hEvent, hStream)));
}

CUresult
cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	CA_HOOK_REAL(real, cuEventRecord_ptsz);
	struct ca_events_use use;

	record_begin(&use, CA_FLAVOUR_PER_THREAD, hStream, hEvent, 0);
	return record_end(&use, CA_FLAVOUR_PER_THREAD, hStream,
			  CA_INSIDE(real->cuEventRecord_ptsz(hEvent, hStream)));
}

CUresult
cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	CA_HOOK_REAL(real, cuEventRecordWithFlags);
	struct ca_events_use use;

	record_begin(&use, CA_FLAVOUR_LEGACY, hStream, hEvent, flags);
	return record_end(&use, CA_FLAVOUR_LEGACY, hStream,
			  CA_INSIDE(real->cuEventRecordWithFlags(hEvent, hStream, flags)));
}

CUresult
cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	CA_HOOK_REAL(real, cuEventRecordWithFlags_ptsz);
	struct ca_events_use use;

	record_begin(&use, CA_FLAVOUR_PER_THREAD, hStream, hEvent, flags);
	return record_end(&use, CA_FLAVOUR_PER_THREAD, hStream,
			  CA_INSIDE(real->cuEventRecordWithFlags_ptsz(hEvent, hStream, flags)));
}

/* Of all of a context's streams at once. */
CUresult
cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	CA_HOOK_REAL(real, cuCtxRecordEvent);
	CUresult rc;

	if (!tracks())
		return CA_INSIDE(real->cuCtxRecordEvent(hCtx, hEvent));
	ca_events_forget_begin(hEvent);
	rc = CA_INSIDE(real->cuCtxRecordEvent(hCtx, hEvent));
	ca_events_forget_end(hEvent);
	return rc;
}

CUresult
cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	CA_HOOK_REAL(real, cuGreenCtxRecordEvent);
	CUresult rc;

	if (!tracks())
		return CA_INSIDE(real->cuGreenCtxRecordEvent(hCtx, hEvent));
	ca_events_forget_begin(hEvent);
	rc = CA_INSIDE(real->cuGreenCtxRecordEvent(hCtx, hEvent));
	ca_events_forget_end(hEvent);
	return rc;
}

/* ---- waits */

struct waiting {
	struct ca_stream *stream; /* NULL: not tracked, or captures */
	bool outside;             /* waits for somebody we do not see */
	struct ca_events_use use;
};

static void
wait_begin(struct waiting *waiting, enum ca_flavour flavour, CUstream stream, CUevent event)
{
	static const struct ca_touch nothing;

	*waiting = (struct waiting){ 0 };
	if (!tracks())
		return;
	waiting->stream = ca_submission_begin(flavour, stream, &nothing);
	if (!waiting->stream)
		return;
	waiting->outside = ca_events_is_outside(event);
	if (waiting->outside)
		ca_submit_hazard_begin(waiting->stream);
	ca_events_look(&waiting->use, event);
}

static CUresult
wait_end(struct waiting *waiting, CUresult rc)
{
	if (!waiting->stream)
		return rc;
	ca_submission_end(waiting->stream);
	if (CA_MUTANT(SNAPSHOT_AFTER_WAIT))
		ca_events_look(&waiting->use, waiting->use.handle);
	if (waiting->outside)
		ca_submit_hazard_end(waiting->stream, rc == CUDA_SUCCESS);
	else if (rc == CUDA_SUCCESS)
		ca_events_waited(&waiting->use, waiting->stream);
	return rc;
}

CUresult
cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuStreamWaitEvent);
	struct waiting waiting;

	wait_begin(&waiting, CA_FLAVOUR_LEGACY, hStream, hEvent);
	return wait_end(&waiting, CA_INSIDE(real->cuStreamWaitEvent(hStream, hEvent, Flags)));
}

CUresult
cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuStreamWaitEvent_ptsz);
	struct waiting waiting;

	wait_begin(&waiting, CA_FLAVOUR_PER_THREAD, hStream, hEvent);
	return wait_end(&waiting, CA_INSIDE(real->cuStreamWaitEvent_ptsz(hStream, hEvent, Flags)));
}

/*
 * All streams of a context wait: a mark of ours on any of them would come behind the event, and
 * what that depends on we cannot say for each. Its space is on finished memory from now on.
 */
CUresult
cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	CA_HOOK_REAL(real, cuCtxWaitEvent);
	struct ca_process *process = ca_hook_process();
	struct ca_context *context = process && process->serves ? ca_context_find(hCtx) : NULL;
	struct ca_space *space = context ? atomic_load(&context->space) : NULL;

	if (space)
		ca_fallback(process, space, CA_REASON_CONTEXT_WAIT);
	return CA_INSIDE(real->cuCtxWaitEvent(hCtx, hEvent));
}

/* Whose memory its streams use it does not say. */
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

	if (!tracks())
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

	if (!tracks())
		return CA_INSIDE(real->cuEventSynchronize(hEvent));
	ca_events_look(&use, hEvent);
	rc = CA_INSIDE(real->cuEventSynchronize(hEvent));
	if (rc == CUDA_SUCCESS)
		ca_events_finished(&use);
	return rc;
}
