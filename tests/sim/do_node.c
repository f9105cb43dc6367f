/* SPDX-License-Identifier: MIT */
/*
 * Bodies: graphs built node by node, capture into a graph, and user objects. Copies and sets are
 * those of one row; edges are plain ones. A CUuserObject is the engine's struct sim_user_object.
 */
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
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
	if (!rc && !nodeParams->func)
		rc = simb_unbuilt("a node of a CUkernel");
	if (!rc)
		rc = simb_kernel_args(nodeParams->func, nodeParams->kernelParams, nodeParams->extra,
				      &kernel, args);
	return rc ? rc
		  : sim_graph_add_kernel(hGraph, dependencies, numDependencies, kernel, args,
					 phGraphNode);
}

/* One row between plain addresses; false: something else. */
static bool
row_of(const CUDA_MEMCPY3D *copy, uint64_t *ret_dst, uint64_t *ret_src)
{
	bool src_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST;
	bool dst_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST;

	if ((!src_host && copy->srcMemoryType != CU_MEMORYTYPE_DEVICE &&
	     copy->srcMemoryType != CU_MEMORYTYPE_UNIFIED) ||
	    (!dst_host && copy->dstMemoryType != CU_MEMORYTYPE_DEVICE &&
	     copy->dstMemoryType != CU_MEMORYTYPE_UNIFIED))
		return false;
	*ret_src = (src_host ? (uintptr_t)copy->srcHost : copy->srcDevice) + copy->srcXInBytes;
	*ret_dst = (dst_host ? (uintptr_t)copy->dstHost : copy->dstDevice) + copy->dstXInBytes;
	return copy->Height == 1 && copy->Depth == 1 && !copy->srcY && !copy->srcZ && !copy->dstY &&
	       !copy->dstZ;
}

int
simb_do_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies,
			     const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	uint64_t dst = 0, src = 0;
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = answer_check(copyParams);
	if (!rc && !row_of(copyParams, &dst, &src))
		rc = simb_unbuilt("a copy of more than one row, or of an array,");
	return rc ? rc
		  : sim_graph_add_copy(hGraph, dependencies, numDependencies, dst, src,
				       copyParams->WidthInBytes, phGraphNode);
}

int
simb_do_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies,
			     const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = answer_check(memsetParams);
	if (!rc && memsetParams->height != 1)
		rc = simb_unbuilt("a set of more than one row");
	return rc ? rc
		  : sim_graph_add_set(hGraph, dependencies, numDependencies, memsetParams->dst,
				      memsetParams->value, memsetParams->elementSize,
				      memsetParams->width, phGraphNode);
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
