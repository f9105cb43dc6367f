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

static CUcontext
context_of(const struct ca_real *real, CUstream stream)
{
	CUcontext context = NULL;

	if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD && real->cuStreamGetCtx &&
	    CA_INSIDE(real->cuStreamGetCtx(stream, &context)) == CUDA_SUCCESS)
		return context;
	return ca_context_current(real);
}

/*
 * Memory that was freed behind its last submission is marked while that can be; and so is memory
 * that was handed out of any stream, for the capture may take in others, or a stream be made during
 * it. Also while another capture is open: streams have been given work since. The answer is the
 * serial of the last allocation before the capture.
 */
static uint64_t
prepare(struct ca_process *process, CUstream named)
{
	struct ca_stream *stream = named == CU_STREAM_LEGACY
					   ? NULL /* it cannot capture */
					   : ca_submission_stream(CA_FLAVOUR_LEGACY, named);
	uint64_t serial;

	if (process->caches)
		ca_deferred_before_capture(process->heap);
	ca_capture_prepare();
	if (stream)
		ca_submit_begin(stream, NULL);
	if (process->caches)
		ca_order_mark_before_capture(process->heap);
	serial = ca_graph_serial(process->heap);
	ca_capture_opening();
	ca_capture_prepared();
	return serial;
}

#define CAPTURE(symbol, flavour, params, args, mode)                                               \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		CUstream named = ca_submission_handle(flavour, hStream);                           \
		struct ca_process *process = ca_hook_process();                                    \
		uint64_t serial;                                                                   \
		CUresult rc;                                                                       \
                                                                                                   \
		if (!process)                                                                      \
			return CA_INSIDE(real->symbol args);                                       \
		serial = prepare(process, named);                                                  \
		rc = CA_INSIDE(real->symbol args);                                                 \
		if (rc == CUDA_SUCCESS)                                                            \
			ca_capture_started(context_of(real, named), named, mode, serial);          \
		else                                                                               \
			ca_capture_failed();                                                       \
		return rc;                                                                         \
	}
#define CA_HOOK_CAPTURE_TWINS(symbol, suffix, base, version, twin, params, args, mode)             \
	CAPTURE(symbol, CA_FLAVOUR_LEGACY, params, args, mode)                                     \
	CAPTURE(symbol##suffix, CA_FLAVOUR_PER_THREAD, params, args, mode)
#include "shim/bind/hooks.def"

static struct ca_capture_end
end_begin(const struct ca_real *real, enum ca_flavour flavour, CUstream stream)
{
	CUstream named = ca_submission_handle(flavour, stream);

	if (!ca_hook_process() || !ca_capture_active())
		return (struct ca_capture_end){ .open = false };
	return ca_capture_ending(context_of(real, named), named);
}

/* `graph`: where the captured graph is now; NULL: none comes of the capture. */
static CUresult
end_done(const struct ca_real *real, enum ca_flavour flavour, CUstream stream,
	 struct ca_capture_end end, const CUgraph *graph, CUresult rc)
{
	struct ca_process *process = ca_hook_active_process();

	if (!end.open)
		return rc;
	if (rc == CUDA_SUCCESS && graph && process)
		ca_graphs_captured(real, process->heap, *graph, end.serial);
	ca_capture_ended(end, rc == CUDA_SUCCESS || !ca_submission_captures(flavour, stream));
	return rc;
}

#define END_CAPTURE(symbol, flavour, params, args, graph)                                          \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_capture_end end = end_begin(real, flavour, hStream);                     \
                                                                                                   \
		return end_done(real, flavour, hStream, end, graph, CA_INSIDE(real->symbol args)); \
	}
END_CAPTURE(cuStreamEndCapture, CA_FLAVOUR_LEGACY, (CUstream hStream, CUgraph *phGraph),
	    (hStream, phGraph), phGraph)
END_CAPTURE(cuStreamEndCapture_ptsz, CA_FLAVOUR_PER_THREAD, (CUstream hStream, CUgraph *phGraph),
	    (hStream, phGraph), phGraph)
END_CAPTURE(cuStreamEndCaptureToCig, CA_FLAVOUR_LEGACY, (CUstream hStream), (hStream), NULL)
END_CAPTURE(cuStreamEndCaptureToCig_ptsz, CA_FLAVOUR_PER_THREAD, (CUstream hStream), (hStream),
	    NULL)

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
