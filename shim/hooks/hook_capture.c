/* SPDX-License-Identifier: MIT */
/*
 * Begin and end of stream captures, told to shim/track/captures.h.
 *
 * A capture has ended when the driver says that its stream captures no more: after a failed
 * end-capture it is asked (a capture that another thread must end goes on).
 */
#include "shim/hooks/hook.h"
#include "shim/hooks/submission.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"
#include "shim/track/graphs.h"

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

/*
 * Memory that was freed behind its last submission is marked while that can be; and so is memory
 * that was handed out of any stream, for the capture may take in others, or a stream be made during
 * it. Also while another capture is open: streams have been given work since.
 */
static void
prepare(struct ca_process *process, CUstream named)
{
	struct ca_stream *stream = named == CU_STREAM_LEGACY
					   ? NULL /* it cannot capture */
					   : ca_submission_stream(CA_FLAVOUR_LEGACY, named);

	ca_capture_prepare();
	if (stream)
		ca_submit_begin(stream, NULL);
	if (process->serves)
		ca_order_mark_before_capture(process->heap);
}

/* `call` begins a capture on `stream`. */
#define BEGIN(stream, mode, call)                                                                  \
	do {                                                                                       \
		struct ca_process *process = ca_hook_process();                                    \
		CUstream named = (stream);                                                         \
		uint64_t serial;                                                                   \
		CUresult rc;                                                                       \
                                                                                                   \
		if (!process)                                                                      \
			return CA_INSIDE(call);                                                    \
		prepare(process, named);                                                           \
		serial = ca_graph_serial(process->heap);                                           \
		ca_capture_opening();                                                              \
		ca_capture_prepared();                                                             \
		rc = CA_INSIDE(call);                                                              \
		if (rc == CUDA_SUCCESS)                                                            \
			ca_capture_started(context_of(real, named), named, mode, serial);          \
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

/* The nodes that the graph has get the parameters of what is captured. */
CUresult
cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
			      CUgraphRecaptureCallback callbackFunc, void *userData)
{
	CA_HOOK_REAL(real, cuStreamBeginRecaptureToGraph);
	BEGIN(legacy_name(hStream), mode,
	      real->cuStreamBeginRecaptureToGraph(hStream, mode, hGraph, callbackFunc, userData));
}

CUresult
cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
				   CUgraphRecaptureCallback callbackFunc, void *userData)
{
	CA_HOOK_REAL(real, cuStreamBeginRecaptureToGraph_ptsz);
	BEGIN(per_thread_name(hStream), mode,
	      real->cuStreamBeginRecaptureToGraph_ptsz(hStream, mode, hGraph, callbackFunc,
						       userData));
}

/* Into a command list of a graphics API. cuda.h names no mode: the strictest is assumed. */
CUresult
cuStreamBeginCaptureToCig(CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams)
{
	CA_HOOK_REAL(real, cuStreamBeginCaptureToCig);
	BEGIN(legacy_name(hStream), CU_STREAM_CAPTURE_MODE_GLOBAL,
	      real->cuStreamBeginCaptureToCig(hStream, streamCigCaptureParams));
}

CUresult
cuStreamBeginCaptureToCig_ptsz(CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams)
{
	CA_HOOK_REAL(real, cuStreamBeginCaptureToCig_ptsz);
	BEGIN(per_thread_name(hStream), CU_STREAM_CAPTURE_MODE_GLOBAL,
	      real->cuStreamBeginCaptureToCig_ptsz(hStream, streamCigCaptureParams));
}

typedef CUresult end_call(CUstream stream, CUgraph *graph);

static CUresult
end_capture(const struct ca_real *real, CUstream named, CUstream stream, CUgraph *graph,
	    end_call *call, ca_is_capturing_fn *is_capturing)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct ca_process *process = ca_hook_process();
	struct ca_capture_end end;
	CUresult rc;

	if (!process || !ca_capture_active())
		return CA_INSIDE(call(stream, graph));
	end = ca_capture_ending(context_of(real, named), named);
	rc = CA_INSIDE(call(stream, graph));
	if (rc == CUDA_SUCCESS && graph && end.open && process->serves)
		ca_graphs_captured(real, process->heap, *graph, end.serial);
	if (rc && is_capturing && CA_INSIDE(is_capturing(stream, &status)))
		status = CU_STREAM_CAPTURE_STATUS_NONE;
	ca_capture_ended(end, status == CU_STREAM_CAPTURE_STATUS_NONE);
	return rc;
}

CUresult
cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CA_HOOK_REAL(real, cuStreamEndCapture);
	return end_capture(real, legacy_name(hStream), hStream, phGraph, real->cuStreamEndCapture,
			   real->cuStreamIsCapturing);
}

CUresult
cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	CA_HOOK_REAL(real, cuStreamEndCapture_ptsz);
	return end_capture(real, per_thread_name(hStream), hStream, phGraph,
			   real->cuStreamEndCapture_ptsz, real->cuStreamIsCapturing_ptsz);
}

typedef CUresult end_to_cig_call(CUstream stream);

/* No graph comes of it. A call that failed may have ended the capture or not: the driver is asked.
 */
static CUresult
end_to_cig(const struct ca_real *real, CUstream named, CUstream stream, end_to_cig_call *call,
	   ca_is_capturing_fn *is_capturing)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct ca_capture_end end;
	CUresult rc;

	if (!ca_hook_process() || !ca_capture_active())
		return CA_INSIDE(call(stream));
	end = ca_capture_ending(context_of(real, named), named);
	rc = CA_INSIDE(call(stream));
	if (rc && is_capturing && CA_INSIDE(is_capturing(stream, &status)))
		status = CU_STREAM_CAPTURE_STATUS_NONE;
	ca_capture_ended(end, status == CU_STREAM_CAPTURE_STATUS_NONE);
	return rc;
}

CUresult
cuStreamEndCaptureToCig(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamEndCaptureToCig);
	return end_to_cig(real, legacy_name(hStream), hStream, real->cuStreamEndCaptureToCig,
			  real->cuStreamIsCapturing);
}

CUresult
cuStreamEndCaptureToCig_ptsz(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamEndCaptureToCig_ptsz);
	return end_to_cig(real, per_thread_name(hStream), hStream,
			  real->cuStreamEndCaptureToCig_ptsz, real->cuStreamIsCapturing_ptsz);
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
