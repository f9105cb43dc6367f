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

static struct ca_process *
active_process(void)
{
	struct ca_process *process = ca_hook_process();

	return process && process->serves ? process : NULL;
}

static CUresult
made(const struct ca_real *real, CUresult rc, const CUgraphExec *exec, CUgraph graph)
{
	if (rc == CUDA_SUCCESS && exec && active_process())
		ca_graphs_made(real, *exec, graph);
	return rc;
}

/* A launch by the device itself is in no stream that we know. */
static void
expect_flags(unsigned long long flags)
{
	struct ca_process *process =
		flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? active_process() : NULL;

	if (process)
		ca_fallback(process, NULL, CA_REASON_DEVICE_GRAPH);
}

CUresult
cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
		   char *logBuffer, size_t bufferSize)
{
	CA_HOOK_REAL(real, cuGraphInstantiate);
	return made(real,
		    CA_ROOM(real, real->cuGraphInstantiate(phGraphExec, hGraph, phErrorNode,
							   logBuffer, bufferSize)),
		    phGraphExec, hGraph);
}

CUresult
cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
		      char *logBuffer, size_t bufferSize)
{
	CA_HOOK_REAL(real, cuGraphInstantiate_v2);
	return made(real,
		    CA_ROOM(real, real->cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode,
							      logBuffer, bufferSize)),
		    phGraphExec, hGraph);
}

CUresult
cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	CA_HOOK_REAL(real, cuGraphInstantiateWithFlags);
	expect_flags(flags);
	return made(real,
		    CA_ROOM(real, real->cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags)),
		    phGraphExec, hGraph);
}

CUresult
cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
			     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CA_HOOK_REAL(real, cuGraphInstantiateWithParams);
	expect_flags(instantiateParams ? instantiateParams->flags : 0);
	return made(real,
		    CA_ROOM(real, real->cuGraphInstantiateWithParams(phGraphExec, hGraph,
								     instantiateParams)),
		    phGraphExec, hGraph);
}

CUresult
cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
				  CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CA_HOOK_REAL(real, cuGraphInstantiateWithParams_ptsz);
	expect_flags(instantiateParams ? instantiateParams->flags : 0);
	return made(real,
		    CA_ROOM(real, real->cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph,
									  instantiateParams)),
		    phGraphExec, hGraph);
}

CUresult
cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CA_HOOK_REAL(real, cuGraphExecDestroy);

	if (active_process())
		ca_graphs_destroyed(hGraphExec);
	return CA_INSIDE(real->cuGraphExecDestroy(hGraphExec));
}

/* ---- changes: before the real call, since one that fails may have done a part */

CUresult
cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
		  CUgraphExecUpdateResult *updateResult_out)
{
	CA_HOOK_REAL(real, cuGraphExecUpdate);

	if (active_process())
		ca_graphs_extended(real, hGraphExec, hGraph);
	return CA_INSIDE(
		real->cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out));
}

CUresult
cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
		     CUgraphExecUpdateResultInfo *resultInfo)
{
	CA_HOOK_REAL(real, cuGraphExecUpdate_v2);

	if (active_process())
		ca_graphs_extended(real, hGraphExec, hGraph);
	return CA_INSIDE(real->cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo));
}

CUresult
cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	CA_HOOK_REAL(real, cuGraphExecChildGraphNodeSetParams);

	if (active_process())
		ca_graphs_extended(real, hGraphExec, childGraph);
	return CA_INSIDE(real->cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph));
}

CUresult
cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	CA_HOOK_REAL(real, cuGraphExecEventRecordNodeSetEvent);

	if (active_process())
		ca_events_silence(event);
	return CA_INSIDE(real->cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, event));
}

CUresult
cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CA_HOOK_REAL(real, cuGraphExecNodeSetParams);

	if (nodeParams && active_process()) {
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

	if (!active_process())
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

CUresult
cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	CA_HOOK_REAL(real, cuGraphLaunch);
	struct launching launching = launch_begin(CA_FLAVOUR_LEGACY, hGraphExec, hStream);

	return launch_end(launching, CA_INSIDE(real->cuGraphLaunch(hGraphExec, hStream)));
}

CUresult
cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	CA_HOOK_REAL(real, cuGraphLaunch_ptsz);
	struct launching launching = launch_begin(CA_FLAVOUR_PER_THREAD, hGraphExec, hStream);

	return launch_end(launching, CA_INSIDE(real->cuGraphLaunch_ptsz(hGraphExec, hStream)));
}
