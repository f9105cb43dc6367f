/* SPDX-License-Identifier: MIT */
/*
 * Birth and death of streams, told to shim/track/streams.h, and the captures that end with them.
 */
#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"
#include "shim/track/captures.h"
#include "shim/track/streams.h"

/* The stream is one of the current context. */
static void
created(const struct ca_real *real, CUresult rc, const CUstream *stream, unsigned int flags)
{
	CUcontext current = NULL;
	int saved = errno;

	if (rc == CUDA_SUCCESS && stream && *stream && ca_hook_process() && real->cuCtxGetCurrent &&
	    CA_INSIDE(real->cuCtxGetCurrent(&current)) == CUDA_SUCCESS)
		ca_streams_created(*stream, current, flags);
	errno = saved;
}

CUresult
cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuStreamCreate);
	CUresult rc = CA_ROOM(real, real->cuStreamCreate(phStream, Flags));

	created(real, rc, phStream, Flags);
	return rc;
}

CUresult
cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	CA_HOOK_REAL(real, cuStreamCreateWithPriority);
	CUresult rc = CA_ROOM(real, real->cuStreamCreateWithPriority(phStream, flags, priority));

	created(real, rc, phStream, flags);
	return rc;
}

CUresult
cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
	CA_HOOK_REAL(real, cuGreenCtxStreamCreate);
	CUresult rc =
		CA_ROOM(real, real->cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority));

	if (rc == CUDA_SUCCESS && phStream && *phStream && ca_hook_process())
		ca_streams_created_untracked(*phStream);
	return rc;
}

static CUresult
destroy_stream(const struct ca_real *real, CUstream stream, CUresult (*call)(CUstream stream))
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct ca_capture_end end;
	CUresult rc;

	if (!ca_hook_process())
		return CA_INSIDE(call(stream));
	ca_streams_closing(stream);
	if (!ca_capture_active())
		return CA_INSIDE(call(stream));
	end = ca_capture_ending(NULL, stream);
	if (end.open && end.slot == CA_CAPTURE_NO_SLOT) /* one of those only counted? */
		end.open = real->cuStreamIsCapturing &&
			   CA_INSIDE(real->cuStreamIsCapturing(stream, &status)) == CUDA_SUCCESS &&
			   status != CU_STREAM_CAPTURE_STATUS_NONE;
	rc = CA_INSIDE(call(stream));
	ca_capture_ended(end, rc == CUDA_SUCCESS);
	return rc;
}

CUresult
cuStreamDestroy(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamDestroy);
	return destroy_stream(real, hStream, real->cuStreamDestroy);
}

CUresult
cuStreamDestroy_v2(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamDestroy_v2);
	return destroy_stream(real, hStream, real->cuStreamDestroy_v2);
}
