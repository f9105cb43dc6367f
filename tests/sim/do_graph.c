/* SPDX-License-Identifier: MIT */
/*
 * Bodies: capture, and running graphs; do_node.c has what builds them. A CUgraphExec is the
 * engine's struct sim_exec.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

enum {
	INSTANTIATE_AUTO_FREE = 1,
	INSTANTIATE_PRIORITIES = 8, /* changes nothing: nodes have none */
};

int
simb_do_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such capture mode");
	return sim_capture_begin(simb_stream(hStream), mode);
}

int
simb_do_cuStreamBeginCapture(CUstream hStream)
{
	return simb_do_cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* A capture that ends with an error gives a NULL graph (cuda.h, cuStreamEndCapture). */
int
simb_do_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CUgraph graph = NULL;
	int rc;

	if (!phGraph)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the graph");
	rc = sim_capture_end(simb_stream(hStream), &graph);
	if (!rc || rc == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
	    rc == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
		*phGraph = rc ? NULL : graph;
	return rc;
}

int
simb_do_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
			       cuuint64_t *id_out)
{
	CUstreamCaptureStatus status;
	cuuint64_t id = 0;
	int rc;

	if (!captureStatus_out)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the status");
	rc = sim_capture_info(simb_stream(hStream), &status, &id);
	if (rc)
		return rc;
	*captureStatus_out = status;
	if (id_out && status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*id_out = id;
	return 0;
}

int
simb_do_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	return simb_do_cuStreamGetCaptureInfo(hStream, captureStatus, NULL);
}

/* NOLINTBEGIN(readability-non-const-parameter): the prototype is cuda.h's */
int
simb_do_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				  cuuint64_t *id_out, CUgraph *graph_out,
				  const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *nodes = NULL;
	CUgraph graph = NULL;
	cuuint64_t id = 0;
	size_t n = 0;
	int rc;

	if (!captureStatus_out)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the status");
	rc = simb_do_cuStreamGetCaptureInfo(hStream, &status, &id);
	if (rc)
		return rc;
	if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		rc = sim_capture_look(simb_stream(hStream), &graph, &nodes, &n);
	if (rc)
		return rc;
	if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (graph_out)
			*graph_out = graph;
		if (dependencies_out)
			*dependencies_out = nodes;
		if (numDependencies_out)
			*numDependencies_out = n;
	}
	*captureStatus_out = status;
	if (id_out && status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*id_out = id;
	return 0;
}
/* NOLINTEND(readability-non-const-parameter) */

int
simb_do_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				  cuuint64_t *id_out, CUgraph *graph_out,
				  const CUgraphNode **dependencies_out,
				  const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	if (edgeData_out && !dependencies_out)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "edges without nodes");
	if (edgeData_out)
		*edgeData_out = NULL; /* all edges are plain ones */
	return simb_do_cuStreamGetCaptureInfo_v2(hStream, captureStatus_out, id_out, graph_out,
						 dependencies_out, numDependencies_out);
}

int
simb_do_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no mode");
	return sim_capture_exchange_mode(mode);
}

int
simb_do_cuGraphDestroy(CUgraph hGraph)
{
	return sim_graph_destroy(hGraph);
}

int
simb_do_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
				    unsigned long long flags)
{
	struct sim_exec *exec;
	int rc;

	if (!phGraphExec)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the executable graph");
	if (flags & ~(unsigned long long)(INSTANTIATE_AUTO_FREE | INSTANTIATE_PRIORITIES))
		return simb_unbuilt("instantiating with these flags");
	rc = sim_graph_instantiate(hGraph, &exec);
	if (!rc && flags & INSTANTIATE_AUTO_FREE)
		rc = sim_exec_set_auto_free(exec);
	if (!rc)
		*phGraphExec = (CUgraphExec)(void *)exec;
	return rc;
}

int
simb_do_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			      char *logBuffer, size_t bufferSize)
{
	int rc = simb_do_cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);

	if (!rc && logBuffer && bufferSize)
		logBuffer[0] = '\0';
	return rc;
}

int
simb_do_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
				     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	int rc;

	if (!instantiateParams)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no parameters");
	rc = simb_do_cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
	if (rc)
		return rc;
	instantiateParams->hErrNode_out = NULL;
	instantiateParams->result_out = 0;
	return 0;
}

int
simb_do_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	return sim_exec_launch((struct sim_exec *)(void *)hGraph, simb_stream(hStream));
}

int
simb_do_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	return sim_exec_destroy((struct sim_exec *)(void *)hGraphExec);
}
