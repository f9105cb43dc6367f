/* SPDX-License-Identifier: MIT */
/* Looking at the nodes of a graph: how many, which, of what type. */
#include "tests/sim/engine/internal.h"

#include <string.h>

int
sim_graph_get_nodes(CUgraph handle, CUgraphNode *ret_nodes, size_t *n)
{
	struct sim_graph *graph;

	sim_lock();
	graph = sim_graph_find_locked(handle);
	for (size_t i = 0; graph && ret_nodes && i < *n; i++)
		ret_nodes[i] =
			i < graph->n_nodes ? sim_node_handle_locked(graph, (unsigned)i) : NULL;
	if (graph && (!ret_nodes || *n > graph->n_nodes))
		*n = graph->n_nodes;
	sim_unlock();
	return graph ? 0 : CUDA_ERROR_INVALID_VALUE;
}

/* A value in memory is a kernel's business or an operation's of its own. */
static CUgraphNodeType
type_of(const struct sim_node *node)
{
	switch (node->work.kind) {
	case SIM_WORK_MARK:
		if (!node->event_use)
			return CU_GRAPH_NODE_TYPE_EMPTY;
		return node->event_use == SIM_NODE_WAITS ? CU_GRAPH_NODE_TYPE_WAIT_EVENT
							 : CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case SIM_WORK_COPY:
		/* the kernel has the same work */
		return strcmp(node->work.name, "copy") == 0 ? CU_GRAPH_NODE_TYPE_MEMCPY
							    : CU_GRAPH_NODE_TYPE_KERNEL;
	case SIM_WORK_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case SIM_WORK_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case SIM_WORK_ALLOC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	case SIM_WORK_FREE:
		return CU_GRAPH_NODE_TYPE_MEM_FREE;
	default:
		return strncmp(node->work.name, "sim_", 4) == 0 ? CU_GRAPH_NODE_TYPE_KERNEL
								: CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	}
}

int
sim_node_look(CUgraphNode handle, CUgraphNodeType *ret_type, CUevent *ret_event)
{
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	for (size_t i = 0; i < sim_g.graphs.n_used; i++) {
		struct sim_graph *graph = (void *)(sim_g.graphs.base + i * sim_g.graphs.size);
		unsigned node;

		if (graph->handle.life == SIM_DEAD || !sim_node_index_locked(graph, handle, &node))
			continue;
		*ret_type = type_of(&graph->node[node]);
		*ret_event = graph->node[node].event;
		rc = 0;
	}
	sim_unlock();
	return rc;
}
