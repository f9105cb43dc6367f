/* SPDX-License-Identifier: MIT */
/*
 * Graphs built node by node.
 *
 * A node depends on older nodes only, so the order of numbers is a legal order here as everywhere.
 * Each node continues the chain (a component of the vector clocks) of a node it depends on if it is
 * the first to do so, else it begins one. A child graph is copied in at once, between an empty node
 * before all its roots and one after all its leaves; the latter is "the node", so a graph with
 * children has more nodes here than natively.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
	NODE_BITS = 24, /* of a handle: number of the node, from 1; above: slot of the graph */
};

static uint64_t
slot_of(const struct sim_graph *graph)
{
	return (uint64_t)((const char *)graph - sim_g.graphs.base) / sim_g.graphs.size + 1;
}

CUgraphNode
sim_node_handle_locked(const struct sim_graph *graph, unsigned node)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): a handle, never followed */
	return (CUgraphNode)(uintptr_t)(slot_of(graph) << NODE_BITS | (node + 1));
}

bool
sim_node_index_locked(const struct sim_graph *graph, CUgraphNode handle, unsigned *ret_node)
{
	uint64_t value = (uintptr_t)handle, node = value & ((1u << NODE_BITS) - 1);

	if (value >> NODE_BITS != slot_of(graph) || !node || node > graph->n_nodes)
		return false;
	*ret_node = (unsigned)node - 1;
	return true;
}

unsigned *
sim_node_indices_locked(const struct sim_graph *graph, const CUgraphNode *nodes, size_t n)
{
	unsigned *at;

	if (n && !nodes)
		return NULL;
	at = sim_xcalloc(n + 1, sizeof(*at));
	for (size_t i = 0; i < n; i++) {
		if (sim_node_index_locked(graph, nodes[i], &at[i]))
			continue;
		free(at);
		return NULL;
	}
	return at;
}

unsigned
sim_graph_add_locked(struct sim_graph *graph, const struct sim_node *node)
{
	if (graph->n_nodes == graph->cap_nodes) {
		graph->cap_nodes = graph->cap_nodes * 2 + 8;
		graph->node = sim_xrealloc(graph->node, graph->cap_nodes, sizeof(*graph->node));
	}
	graph->node[graph->n_nodes] = *node;
	return graph->n_nodes++;
}

/* The chain of a dependency that nobody continues yet, else a new one. */
static unsigned
chain_for(struct sim_graph *graph, const unsigned *deps, unsigned n_deps)
{
	for (unsigned d = 0; d < n_deps; d++) {
		bool last = true;

		for (unsigned i = deps[d] + 1; last && i < graph->n_nodes; i++)
			last = graph->node[i].chain != graph->node[deps[d]].chain;
		if (last)
			return graph->node[deps[d]].chain;
	}
	return graph->n_chains++;
}

/* What all the ways to add a node share. `node` lacks context, dependencies and chain. */
static int
node_add_locked(struct sim_graph *graph, const CUgraphNode *nodes, size_t n, struct sim_node *node,
		CUgraphNode *ret_node)
{
	struct sim_ctx *ctx;
	int rc = sim_ctx_current_locked(&ctx);

	if (rc)
		return rc;
	if (graph)
		node->deps = sim_node_indices_locked(graph, nodes, n);
	if (!graph || !node->deps)
		return CUDA_ERROR_INVALID_VALUE;
	node->n_deps = (unsigned)n;
	node->ctx = ctx;
	node->ctx_id = ctx->id;
	node->chain = chain_for(graph, node->deps, node->n_deps);
	*ret_node = sim_node_handle_locked(graph, sim_graph_add_locked(graph, node));
	return 0;
}

static int
node_add(CUgraph handle, const CUgraphNode *nodes, size_t n, struct sim_node *node,
	 CUgraphNode *ret_node)
{
	int rc;

	sim_lock();
	rc = node_add_locked(sim_graph_find_locked(handle), nodes, n, node, ret_node);
	sim_unlock();
	return rc;
}

int
sim_graph_add_work_locked(struct sim_graph *graph, const CUgraphNode *deps, size_t n,
			  const struct sim_work *work, CUgraphNode *ret_node)
{
	struct sim_node node = { .work = *work };

	return node_add_locked(graph, deps, n, &node, ret_node);
}

int
sim_graph_create(CUgraph *ret_graph)
{
	struct sim_graph *graph;

	sim_lock();
	graph = sim_slab_get(&sim_g.graphs);
	if (graph)
		*ret_graph = (CUgraph)(void *)graph;
	sim_unlock();
	return graph ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

int
sim_graph_add_empty(CUgraph graph, const CUgraphNode *deps, size_t n, CUgraphNode *ret_node)
{
	struct sim_node node = { .work = { .kind = SIM_WORK_MARK, .name = "empty node" } };

	return node_add(graph, deps, n, &node, ret_node);
}

int
sim_graph_add_kernel(CUgraph graph, const CUgraphNode *deps, size_t n, enum sim_kernel kernel,
		     const uint64_t *args, CUgraphNode *ret_node)
{
	struct sim_node node = { 0 };

	if (!sim_kernel_work(kernel, args, &node.work))
		return CUDA_ERROR_INVALID_VALUE;
	return node_add(graph, deps, n, &node, ret_node);
}

int
sim_graph_add_copy(CUgraph graph, const CUgraphNode *deps, size_t n, const struct sim_area *dst,
		   const struct sim_area *src, CUgraphNode *ret_node)
{
	struct sim_node node = { 0 };
	int rc;

	sim_lock();
	rc = sim_copy_work_locked(dst, src, &node.work);
	sim_unlock();
	return rc ? rc : node_add(graph, deps, n, &node, ret_node);
}

int
sim_graph_add_set(CUgraph graph, const CUgraphNode *deps, size_t n, const struct sim_area *dst,
		  uint32_t value, unsigned element_bytes, CUgraphNode *ret_node)
{
	struct sim_node node = { 0 };
	int rc;

	sim_lock();
	rc = sim_set_work_locked(dst, value, element_bytes, &node.work);
	sim_unlock();
	return rc ? rc : node_add(graph, deps, n, &node, ret_node);
}

int
sim_graph_add_host(CUgraph graph, const CUgraphNode *deps, size_t n, sim_host_function function,
		   void *data, CUgraphNode *ret_node)
{
	struct sim_node node = {
		.work = {
			.kind = SIM_WORK_HOST,
			.name = "host function",
			.a = { (uintptr_t)function, (uintptr_t)data },
		},
	};
	int rc;

	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_host_start_locked();
	sim_unlock();
	return rc ? rc : node_add(graph, deps, n, &node, ret_node);
}

int
sim_graph_add_event(CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event, bool record,
		    CUgraphNode *ret_node)
{
	struct sim_node node = {
		.work = { .kind = SIM_WORK_MARK, .name = record ? "record node" : "wait node" },
		.event_use = record ? SIM_NODE_RECORDS : SIM_NODE_WAITS,
		.event = event,
	};
	struct sim_event *found;
	int rc;

	sim_lock();
	rc = sim_event_resolve_locked(event, &found);
	sim_unlock();
	return rc ? rc : node_add(graph, deps, n, &node, ret_node);
}

/* The copy of a child's nodes after `first`, which the roots depend on; *leaves gets those that
 * nothing of the child depends on. */
static void
child_copy(struct sim_graph *graph, const struct sim_graph *child, unsigned first,
	   struct sim_node *end)
{
	unsigned base = graph->n_nodes, chains = graph->n_chains;
	bool *inner = sim_xcalloc(child->n_nodes, sizeof(*inner));

	graph->n_chains += child->n_chains;
	for (unsigned i = 0; i < child->n_nodes; i++) {
		struct sim_node node = child->node[i];

		node.deps = sim_xcalloc(node.n_deps + 1, sizeof(unsigned));
		for (unsigned d = 0; d < node.n_deps; d++) {
			node.deps[d] = child->node[i].deps[d] + base;
			inner[child->node[i].deps[d]] = true;
		}
		if (!node.n_deps)
			node.deps[node.n_deps++] = first;
		node.chain += chains;
		sim_graph_add_locked(graph, &node);
	}
	end->deps = sim_xcalloc(child->n_nodes + 1, sizeof(unsigned));
	end->deps[end->n_deps++] = first;
	for (unsigned i = 0; i < child->n_nodes; i++)
		if (!inner[i])
			end->deps[end->n_deps++] = base + i;
	free(inner);
}

int
sim_graph_add_child(CUgraph handle, const CUgraphNode *deps, size_t n, CUgraph child_handle,
		    CUgraphNode *ret_node)
{
	struct sim_graph *graph, *child;
	struct sim_node end;
	CUgraphNode begin;
	unsigned first;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	child = sim_graph_find_locked(child_handle);
	if (child && sim_graph_has_memory_nodes(child)) {
		sim_unlock();
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	sim_unlock();
	if (child && (void *)child_handle != (void *)handle)
		rc = sim_graph_add_empty(handle, deps, n, &begin);
	if (rc)
		return rc;
	sim_lock();
	graph = sim_graph_find_locked(handle);
	first = graph->n_nodes - 1;
	end = graph->node[first];
	end.n_deps = 0;
	child_copy(graph, child, first, &end);
	end.chain = graph->n_chains++;
	sim_held_copy_locked(&graph->held, child->held);
	*ret_node = sim_node_handle_locked(graph, sim_graph_add_locked(graph, &end));
	sim_unlock();
	return 0;
}
