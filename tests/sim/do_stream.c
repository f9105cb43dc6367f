/* SPDX-License-Identifier: MIT */
/*
 * Bodies: streams and events.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

static int
answer_check(const void *answer)
{
	if (answer)
		return 0;
	simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	return CUDA_ERROR_INVALID_VALUE;
}

/* --------------------------------------------------------------- streams --- */
int
simb_do_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	int rc = answer_check(phStream);

	return rc ? rc : sim_stream_create(flags, priority, phStream);
}

int
simb_do_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return simb_do_cuStreamCreateWithPriority(phStream, Flags, 0);
}

int
simb_do_cuStreamDestroy_v2(CUstream hStream)
{
	return sim_stream_destroy(hStream);
}

int
simb_do_cuStreamQuery(CUstream hStream)
{
	return sim_stream_query(simb_stream(hStream));
}

int
simb_do_cuStreamSynchronize(CUstream hStream)
{
	return sim_stream_sync(simb_stream(hStream));
}

int
simb_do_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	if (Flags == 1)
		return simb_unbuilt("CU_EVENT_WAIT_EXTERNAL");
	return sim_stream_wait_event(simb_stream(hStream), hEvent, Flags);
}

int
simb_do_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	int rc = answer_check(pctx);

	return rc ? rc : sim_stream_get_ctx(simb_stream(hStream), pctx);
}

int
simb_do_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
	int rc = answer_check(flags);

	return rc ? rc : sim_stream_get_flags(simb_stream(hStream), flags);
}

int
simb_do_cuStreamGetPriority(CUstream hStream, int *priority)
{
	int rc = answer_check(priority);

	return rc ? rc : sim_stream_get_priority(simb_stream(hStream), priority);
}

int
simb_do_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
	int rc = answer_check(streamId);

	return rc ? rc : sim_stream_get_id(simb_stream(hStream), streamId);
}

int
simb_do_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
	int rc = answer_check(device);

	return rc ? rc : sim_stream_get_device(simb_stream(hStream), device);
}

/* ---------------------------------------------------------------- events --- */
int
simb_do_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	int rc = answer_check(phEvent);

	return rc ? rc : sim_event_create(Flags, phEvent);
}

int
simb_do_cuEventDestroy_v2(CUevent hEvent)
{
	return sim_event_destroy(hEvent);
}

int
simb_do_cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return sim_event_record(hEvent, simb_stream(hStream));
}

int
simb_do_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	if (flags == 1)
		return simb_unbuilt("CU_EVENT_RECORD_EXTERNAL");
	if (flags)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags");
	return simb_do_cuEventRecord(hEvent, hStream);
}

int
simb_do_cuEventQuery(CUevent hEvent)
{
	return sim_event_query(hEvent);
}

int
simb_do_cuEventSynchronize(CUevent hEvent)
{
	return sim_event_sync(hEvent);
}

int
simb_do_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	int rc = answer_check(pMilliseconds);

	return rc ? rc : sim_event_elapsed(hStart, hEnd, pMilliseconds);
}
