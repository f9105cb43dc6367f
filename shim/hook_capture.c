/* SPDX-License-Identifier: MIT */
/*
 * Begin and end of stream captures, told to shim/capture.h.
 *
 * A capture has ended when the driver says that its stream captures no more: that is asked after
 * every end-capture, failed ones included (a capture that another thread must end goes on).
 */
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/hook.h"

typedef CUresult is_capturing_call(CUstream stream, CUstreamCaptureStatus *status);

/* One name for the default streams, whatever the ABI flavour calls them. */
static CUstream
legacy_name(CUstream stream)
{
	return stream ? stream : CU_STREAM_LEGACY;
}

static CUstream
per_thread_name(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

static CUcontext
context_of(const struct ca_real *real, CUstream stream)
{
	CUcontext context = NULL;

	if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD && real->cuStreamGetCtx &&
	    CA_INSIDE(real->cuStreamGetCtx(stream, &context)) == CUDA_SUCCESS)
		return context;
	if (real->cuCtxGetCurrent)
		(void)CA_INSIDE(real->cuCtxGetCurrent(&context));
	return context;
}

/* `call` begins a capture on `stream`. */
#define BEGIN(stream, mode, call)                                                                  \
	do {                                                                                       \
		CUstream named = (stream);                                                         \
		CUresult rc;                                                                       \
                                                                                                   \
		if (!ca_hook_process())                                                            \
			return CA_INSIDE(call);                                                    \
		ca_capture_opening();                                                              \
		rc = CA_INSIDE(call);                                                              \
		if (rc == CUDA_SUCCESS)                                                            \
			ca_capture_began(context_of(real, named), named, mode);                    \
		else                                                                               \
			ca_capture_failed();                                                       \
		return rc;                                                                         \
	} while (0)

CUresult
cuStreamBeginCapture(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamBeginCapture);
	BEGIN(legacy_name(hStream), CU_STREAM_CAPTURE_MODE_GLOBAL,
	      real->cuStreamBeginCapture(hStream));
}

CUresult
cuStreamBeginCapture_ptsz(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamBeginCapture_ptsz);
	BEGIN(per_thread_name(hStream), CU_STREAM_CAPTURE_MODE_GLOBAL,
	      real->cuStreamBeginCapture_ptsz(hStream));
}

CUresult
cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	CA_HOOK_REAL(real, cuStreamBeginCapture_v2);
	BEGIN(legacy_name(hStream), mode, real->cuStreamBeginCapture_v2(hStream, mode));
}

CUresult
cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	CA_HOOK_REAL(real, cuStreamBeginCapture_v2_ptsz);
	BEGIN(per_thread_name(hStream), mode, real->cuStreamBeginCapture_v2_ptsz(hStream, mode));
}

CUresult
cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
			    const CUgraphEdgeData *dependencyData, size_t numDependencies,
			    CUstreamCaptureMode mode)
{
	CA_HOOK_REAL(real, cuStreamBeginCaptureToGraph);
	BEGIN(legacy_name(hStream), mode,
	      real->cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
						numDependencies, mode));
}

CUresult
cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
				 const CUgraphEdgeData *dependencyData, size_t numDependencies,
				 CUstreamCaptureMode mode)
{
	CA_HOOK_REAL(real, cuStreamBeginCaptureToGraph_ptsz);
	BEGIN(per_thread_name(hStream), mode,
	      real->cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
						     numDependencies, mode));
}

static void
note_end(const struct ca_real *real, CUstream named, CUstream stream,
	 is_capturing_call *is_capturing)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (is_capturing && CA_INSIDE(is_capturing(stream, &status)) == CUDA_SUCCESS &&
	    status != CU_STREAM_CAPTURE_STATUS_NONE)
		return;
	ca_capture_ended(context_of(real, named), named);
}

CUresult
cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CA_HOOK_REAL(real, cuStreamEndCapture);
	CUresult rc = CA_INSIDE(real->cuStreamEndCapture(hStream, phGraph));

	if (ca_hook_process())
		note_end(real, legacy_name(hStream), hStream, real->cuStreamIsCapturing);
	return rc;
}

CUresult
cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	CA_HOOK_REAL(real, cuStreamEndCapture_ptsz);
	CUresult rc = CA_INSIDE(real->cuStreamEndCapture_ptsz(hStream, phGraph));

	if (ca_hook_process())
		note_end(real, per_thread_name(hStream), hStream, real->cuStreamIsCapturing_ptsz);
	return rc;
}

CUresult
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CA_HOOK_REAL(real, cuThreadExchangeStreamCaptureMode);
	CUstreamCaptureMode wanted = mode ? *mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUresult rc = CA_INSIDE(real->cuThreadExchangeStreamCaptureMode(mode));

	if (rc == CUDA_SUCCESS && !ca_inside)
		ca_capture_set_thread_mode(wanted);
	return rc;
}

CUresult
cuStreamDestroy(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamDestroy);
	CUresult rc = CA_INSIDE(real->cuStreamDestroy(hStream));

	if (rc == CUDA_SUCCESS && ca_hook_process())
		ca_capture_ended(NULL, hStream);
	return rc;
}

CUresult
cuStreamDestroy_v2(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamDestroy_v2);
	CUresult rc = CA_INSIDE(real->cuStreamDestroy_v2(hStream));

	if (rc == CUDA_SUCCESS && ca_hook_process())
		ca_capture_ended(NULL, hStream);
	return rc;
}
