/* SPDX-License-Identifier: MIT */
/*
 * Bodies: graphs built node by node, capture into a graph, and user objects. Edges are plain ones.
 * A CUuserObject is the engine's struct sim_user_object.
 */
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"
#include "tests/sim/engine.h"

static struct sim_exec *
exec_of(CUgraphExec exec)
{
	return (struct sim_exec *)(void *)exec;
}

static struct sim_user_object *
object_of(CUuserObject object)
{
	return (struct sim_user_object *)(void *)object;
}

static int
answer_check(const void *answer)
{
	return answer ? 0 : simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
}

/* ---------------------------------------------------------------- graphs --- */
int
simb_do_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	int rc = answer_check(phGraph);

	if (!rc && flags)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	return rc ? rc : sim_graph_create(phGraph);
}

int
simb_do_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	int rc = answer_check(phGraphClone);

	return rc ? rc : sim_graph_clone(originalGraph, phGraphClone);
}

int
simb_do_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			    const CUgraphNode *dependencies, size_t numDependencies)
{
	int rc = answer_check(phGraphNode);

	return rc ? rc : sim_graph_add_empty(hGraph, dependencies, numDependencies, phGraphNode);
}

int
simb_do_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies,
				const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	uint64_t args[SIMB_ARGS_MAX];
	enum sim_kernel kernel;
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = answer_check(nodeParams);
	if (!rc && !nodeParams->func && nodeParams->ctx)
		rc = simb_unbuilt("a CUkernel's node in a context of its own");
	if (!rc)
		rc = simb_kernel_args(nodeParams->func ? nodeParams->func
						       : (CUfunction)(void *)nodeParams->kern,
				      nodeParams->kernelParams, nodeParams->extra, &kernel, args);
	return rc ? rc
		  : sim_graph_add_kernel(hGraph, dependencies, numDependencies, kernel, args,
					 phGraphNode);
}

int
simb_do_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies,
			     const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct simb_copy copy;
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = simb_copy_read(copyParams, &copy);
	return rc ? rc
		  : sim_graph_add_copy(hGraph, dependencies, numDependencies, &copy.dst, &copy.src,
				       phGraphNode);
}

int
simb_do_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies,
			     const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct sim_area area;
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = answer_check(memsetParams);
	if (!rc)
		rc = simb_set_area(memsetParams->dst, memsetParams->pitch,
				   memsetParams->elementSize, memsetParams->width,
				   memsetParams->height, &area);
	return rc ? rc
		  : sim_graph_add_set(hGraph, dependencies, numDependencies, &area,
				      memsetParams->value, memsetParams->elementSize, phGraphNode);
}

int
simb_do_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			   const CUgraphNode *dependencies, size_t numDependencies,
			   const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = answer_check(nodeParams);
	return rc ? rc
		  : sim_graph_add_host(hGraph, dependencies, numDependencies, nodeParams->fn,
				       nodeParams->userData, phGraphNode);
}

int
simb_do_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				  const CUgraphNode *dependencies, size_t numDependencies,
				  CUevent event)
{
	int rc = answer_check(phGraphNode);

	return rc ? rc
		  : sim_graph_add_event(hGraph, dependencies, numDependencies, event, true,
					phGraphNode);
}

int
simb_do_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies,
				CUevent event)
{
	int rc = answer_check(phGraphNode);

	return rc ? rc
		  : sim_graph_add_event(hGraph, dependencies, numDependencies, event, false,
					phGraphNode);
}

int
simb_do_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 CUgraph childGraph)
{
	int rc = answer_check(phGraphNode);

	return rc ? rc
		  : sim_graph_add_child(hGraph, dependencies, numDependencies, childGraph,
					phGraphNode);
}

int
simb_do_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	int rc = answer_check(numNodes);

	return rc ? rc : sim_graph_get_nodes(hGraph, nodes, numNodes);
}

int
simb_do_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	int rc = answer_check(type);
	CUevent event;

	return rc ? rc : sim_node_look(hNode, type, &event);
}

int
simb_do_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	int rc = answer_check(event_out);
	CUgraphNodeType type;
	CUevent event;

	if (!rc)
		rc = sim_node_look(hNode, &type, &event);
	if (!rc && type != CU_GRAPH_NODE_TYPE_EVENT_RECORD)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "the node records no event");
	if (!rc)
		*event_out = event;
	return rc;
}

/* ----------------------------------------------------------- executables --- */
int
simb_do_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
			     CUgraphExecUpdateResultInfo *resultInfo)
{
	const int topology_changed = 2;
	int rc = answer_check(resultInfo);

	if (rc)
		return rc;
	rc = sim_exec_update(exec_of(hGraphExec), hGraph);
	if (rc && rc != SIM_GRAPH_EXEC_UPDATE_FAILURE)
		return rc;
	memset(resultInfo, 0, sizeof(*resultInfo));
	resultInfo->result = rc ? topology_changed : 0;
	return rc;
}

int
simb_do_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	return sim_exec_upload(exec_of(hGraph), simb_stream(hStream));
}

/* --------------------------------------------------------------- capture --- */
int
simb_do_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
				    const CUgraphNode *dependencies,
				    const CUgraphEdgeData *dependencyData, size_t numDependencies,
				    CUstreamCaptureMode mode)
{
	if (dependencyData)
		return simb_unbuilt("data of edges");
	return sim_capture_begin_into(simb_stream(hStream), hGraph, dependencies, numDependencies,
				      mode);
}

int
simb_do_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
					  size_t numDependencies, unsigned int flags)
{
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags");
	return sim_capture_update(simb_stream(hStream), dependencies, numDependencies,
				  flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

int
simb_do_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
					     const CUgraphEdgeData *dependencyData,
					     size_t numDependencies, unsigned int flags)
{
	if (dependencyData)
		return simb_unbuilt("data of edges");
	return simb_do_cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies,
							 flags);
}

/* ---------------------------------------------------------- user objects --- */
int
simb_do_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
			   unsigned int initialRefcount, unsigned int flags)
{
	struct sim_user_object *object;
	int rc = answer_check(object_out);

	if (!rc && flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be NO_DESTRUCTOR_SYNC");
	if (!rc)
		rc = sim_user_object_create(ptr, destroy, initialRefcount, &object);
	if (!rc)
		*object_out = (CUuserObject)(void *)object;
	return rc;
}

int
simb_do_cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	return sim_user_object_retain(object_of(object), count);
}

int
simb_do_cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	return sim_user_object_release(object_of(object), count);
}

int
simb_do_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
				unsigned int flags)
{
	if (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags");
	return sim_graph_retain_object(graph, object_of(object), count,
				       flags == CU_GRAPH_USER_OBJECT_MOVE);
}

int
simb_do_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	return sim_graph_release_object(graph, object_of(object), count);
}
