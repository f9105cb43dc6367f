/* SPDX-License-Identifier: MIT */
/*
 * Graphs made executable, changed, launched and destroyed.
 *
 * A launch is guarded and stamped like a kernel, and may touch memory of every context, since a
 * graph's nodes may live in any. In a stream that captures it becomes a node. An upload takes its
 * place in a stream and touches nothing of ours.
 */
#include "shim/state/finished_only.h"
#include "shim/track/graphs.h"

#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"
#include "shim/hooks/submission.h"
#include "shim/track/events.h"

/* A launch by the device itself is in no stream that we know. */
static void
expect_flags(unsigned long long flags)
{
	struct ca_process *process =
		flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? ca_hook_active_process() : NULL;

	if (process)
		ca_fallback(process, NULL, CA_REASON_DEVICE_GRAPH);
}

#define INSTANTIATE(symbol, params, args, flags)                                                   \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		CUresult rc;                                                                       \
                                                                                                   \
		expect_flags(flags);                                                               \
		rc = CA_ROOM(real, real->symbol args);                                             \
		if (rc == CUDA_SUCCESS && phGraphExec && ca_hook_active_process())                 \
			ca_graphs_made(real, *phGraphExec, hGraph);                                \
		return rc;                                                                         \
	}
#define CA_HOOK_INSTANTIATE(symbol, base, version, params, args, flags)                            \
	INSTANTIATE(symbol, params, args, flags)
#define CA_HOOK_INSTANTIATE_TWINS(symbol, suffix, base, version, twin, params, args, flags)        \
	INSTANTIATE(symbol, params, args, flags)                                                   \
	INSTANTIATE(symbol##suffix, params, args, flags)
#include "shim/bind/hooks.def"

CUresult
cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CA_HOOK_REAL(real, cuGraphExecDestroy);

	if (ca_hook_active_process())
		ca_graphs_destroyed(hGraphExec);
	return CA_INSIDE(real->cuGraphExecDestroy(hGraphExec));
}

/* ---- changes: before the real call, since one that fails may have done a part */

CUresult
cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
		  CUgraphExecUpdateResult *updateResult_out)
{
	CA_HOOK_REAL(real, cuGraphExecUpdate);

	if (ca_hook_active_process())
		ca_graphs_extended(real, hGraphExec, hGraph);
	return CA_INSIDE(
		real->cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out));
}

CUresult
cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
		     CUgraphExecUpdateResultInfo *resultInfo)
{
	CA_HOOK_REAL(real, cuGraphExecUpdate_v2);

	if (ca_hook_active_process())
		ca_graphs_extended(real, hGraphExec, hGraph);
	return CA_INSIDE(real->cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo));
}

CUresult
cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	CA_HOOK_REAL(real, cuGraphExecChildGraphNodeSetParams);

	if (ca_hook_active_process())
		ca_graphs_extended(real, hGraphExec, childGraph);
	return CA_INSIDE(real->cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph));
}

CUresult
cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	CA_HOOK_REAL(real, cuGraphExecEventRecordNodeSetEvent);

	if (ca_hook_active_process())
		ca_events_silence(event);
	return CA_INSIDE(real->cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, event));
}

CUresult
cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CA_HOOK_REAL(real, cuGraphExecNodeSetParams);

	if (nodeParams && ca_hook_active_process()) {
		if (nodeParams->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
			ca_events_silence(nodeParams->eventRecord.event);
		else if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH)
			ca_graphs_extended(real, hGraphExec, nodeParams->graph.graph);
	}
	return CA_INSIDE(real->cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams));
}

/* ---- launches */

struct launching {
	struct ca_stream *stream; /* NULL: not tracked, or captures */
	bool captures;            /* nothing runs */
	bool hazard;
};

static struct launching
launch_begin(enum ca_flavour flavour, CUgraphExec exec, CUstream stream)
{
	struct launching launching = { 0 };

	if (!ca_hook_active_process())
		return launching;
	launching.captures = ca_submission_captures(flavour, stream);
	launching.stream = ca_submission_begin(flavour, stream, NULL);
	if (!launching.captures)
		ca_submission_guard_foreign(launching.stream, NULL);
	launching.hazard = launching.stream && ca_graphs_is_hazard(exec);
	if (launching.hazard)
		ca_submit_hazard_begin(launching.stream);
	return launching;
}

static CUresult
launch_end(struct launching launching, CUresult rc)
{
	ca_submission_end(launching.stream);
	if (launching.hazard)
		ca_submit_hazard_end(launching.stream, true);
	if (!launching.captures)
		ca_submission_foreign(launching.stream, NULL);
	return rc;
}

/* Memory of a graph's own nodes is made when it is launched or uploaded first; a call that found
 * none has submitted nothing. Each try is a submission of its own, since room is made by waiting
 * for what was submitted. */
static bool
should_repeat(const struct ca_real *real, CUresult rc, bool captures, struct ca_rounds *rounds)
{
	return __builtin_expect(rc == CUDA_ERROR_OUT_OF_MEMORY, 0) && !captures &&
	       ca_make_capacity(real, 0, rounds);
}

#define LAUNCH(symbol, flavour)                                                                    \
	CUresult symbol(CUgraphExec hGraphExec, CUstream hStream)                                  \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_rounds rounds = { 0 };                                                   \
		struct launching launching;                                                        \
		CUresult rc;                                                                       \
                                                                                                   \
		do {                                                                               \
			launching = launch_begin(flavour, hGraphExec, hStream);                    \
			rc = launch_end(launching, CA_INSIDE(real->symbol(hGraphExec, hStream)));  \
		} while (should_repeat(real, rc, launching.captures, &rounds));                    \
		return rc;                                                                         \
	}
LAUNCH(cuGraphLaunch, CA_FLAVOUR_LEGACY)
LAUNCH(cuGraphLaunch_ptsz, CA_FLAVOUR_PER_THREAD)

#define UPLOAD(symbol, flavour)                                                                    \
	CUresult symbol(CUgraphExec hGraphExec, CUstream hStream)                                  \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		static const struct ca_touch nothing;                                              \
		struct ca_rounds rounds = { 0 };                                                   \
		struct ca_stream *stream;                                                          \
		CUresult rc;                                                                       \
                                                                                                   \
		do {                                                                               \
			stream = ca_submission_begin(flavour, hStream, &nothing);                  \
			rc = CA_INSIDE(real->symbol(hGraphExec, hStream));                         \
			ca_submission_end(stream);                                                 \
		} while (should_repeat(real, rc, false, &rounds));                                 \
		return rc;                                                                         \
	}
UPLOAD(cuGraphUpload, CA_FLAVOUR_LEGACY)
UPLOAD(cuGraphUpload_ptsz, CA_FLAVOUR_PER_THREAD)
