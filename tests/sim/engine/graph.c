/* SPDX-License-Identifier: MIT */
/*
 * Graphs: what a capture produced, and running it.
 *
 * An executable graph is a copy of the nodes. A launch puts one mark into the stream where the
 * graph begins and one where it ends; each node becomes an operation that waits for the nodes it
 * depends on, roots for the first mark, and the last mark waits for all. Every captured stream is a
 * component of the vector clocks of its own, owned by the executable, so that the oracle sees
 * branches that the program did not order. Launches of one executable follow each other, as
 * natively.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>
#include <string.h>

struct sim_exec {
	struct sim_handle handle;
	struct sim_graph graph; /* own copy; its handle is unused */
	bool auto_free;         /* a launch first frees what it allocates */
	uint32_t *component;    /* of each chain */
	struct sim_op *last;    /* end of the last launch */
	struct sim_vc vc;       /* its clock */
};

static const struct sim_work begin_work = { .kind = SIM_WORK_MARK, .name = "graph begin" };
static const struct sim_work end_work = { .kind = SIM_WORK_MARK, .name = "graph end" };

void
sim_graph_free_nodes(struct sim_graph *graph)
{
	sim_graph_mems_drop_locked(graph);
	for (unsigned i = 0; i < graph->n_nodes; i++)
		free(graph->node[i].deps);
	free(graph->node);
	graph->node = NULL;
	graph->n_nodes = graph->cap_nodes = 0;
	sim_held_drop_locked(&graph->held);
}

struct sim_graph *
sim_graph_find_locked(CUgraph handle)
{
	return sim_slab_find(&sim_g.graphs, handle);
}

static struct sim_graph *
graph_find(CUgraph handle)
{
	/* One still being captured into is no graph of the program's yet. */
	for (struct sim_capture *c = sim_g.captures; c; c = c->next)
		if ((void *)c->graph == (void *)handle)
			return NULL;
	return sim_slab_find(&sim_g.graphs, handle);
}

int
sim_graph_destroy(CUgraph handle)
{
	struct sim_graph *graph;

	sim_lock();
	graph = graph_find(handle);
	if (graph) {
		sim_graph_free_nodes(graph);
		sim_slab_put(&sim_g.graphs, graph);
	}
	sim_unlock();
	return graph ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_graph_node_count(CUgraph handle, size_t *ret_n)
{
	struct sim_graph *graph;

	sim_lock();
	graph = graph_find(handle);
	if (graph)
		*ret_n = graph->n_nodes;
	sim_unlock();
	return graph ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static void
nodes_copy(struct sim_graph *to, const struct sim_graph *from)
{
	sim_held_copy_locked(&to->held, from->held);
	to->node = sim_xcalloc(from->n_nodes, sizeof(*to->node));
	to->n_nodes = to->cap_nodes = from->n_nodes;
	to->n_chains = from->n_chains;
	for (unsigned i = 0; i < from->n_nodes; i++) {
		unsigned n = from->node[i].n_deps;

		to->node[i] = from->node[i];
		to->node[i].deps = sim_xcalloc(n, sizeof(unsigned));
		if (n)
			memcpy(to->node[i].deps, from->node[i].deps, n * sizeof(unsigned));
	}
	sim_graph_mems_hold_locked(to);
}

int
sim_graph_instantiate(CUgraph handle, struct sim_exec **ret_exec)
{
	struct sim_graph *graph;
	struct sim_exec *exec = NULL;
	int rc;

	_Static_assert(sizeof(struct sim_exec) <= 256, "element size of the table in state.c");
	sim_lock();
	graph = graph_find(handle);
	rc = !graph                               ? CUDA_ERROR_INVALID_VALUE
	     : sim_graph_mems_taken_locked(graph) ? CUDA_ERROR_NOT_SUPPORTED
						  : CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == CUDA_ERROR_OUT_OF_MEMORY)
		exec = sim_slab_get(&sim_g.execs);
	if (exec) {
		nodes_copy(&exec->graph, graph);
		exec->component = sim_xcalloc(graph->n_chains, sizeof(*exec->component));
		for (unsigned i = 0; i < graph->n_chains; i++)
			exec->component[i] = sim_component_new_locked();
		*ret_exec = exec;
	}
	sim_unlock();
	return exec ? 0 : rc;
}

int
sim_exec_set_auto_free(struct sim_exec *handle)
{
	struct sim_exec *exec;

	sim_lock();
	exec = sim_slab_find(&sim_g.execs, handle);
	if (exec)
		exec->auto_free = true;
	sim_unlock();
	return exec ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_graph_clone(CUgraph handle, CUgraph *ret_graph)
{
	struct sim_graph *graph, *clone = NULL;
	bool memory;

	sim_lock();
	graph = graph_find(handle);
	memory = graph && sim_graph_has_memory_nodes(graph);
	if (graph && !memory)
		clone = sim_slab_get(&sim_g.graphs);
	if (clone) {
		nodes_copy(clone, graph);
		*ret_graph = (CUgraph)(void *)clone;
	}
	sim_unlock();
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	return clone ? 0 : memory ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool
same_shape(const struct sim_graph *a, const struct sim_graph *b)
{
	bool same = a->n_nodes == b->n_nodes && a->n_chains == b->n_chains;

	for (unsigned i = 0; same && i < a->n_nodes; i++) {
		const struct sim_node *x = &a->node[i], *y = &b->node[i];

		same = x->work.kind == y->work.kind && x->event_use == y->event_use &&
		       x->n_deps == y->n_deps && x->chain == y->chain && x->ctx == y->ctx &&
		       sim_graph_same_memory(&x->work, &y->work) &&
		       (!x->n_deps || !memcmp(x->deps, y->deps, x->n_deps * sizeof(*x->deps)));
	}
	return same;
}

int
sim_exec_update(struct sim_exec *handle, CUgraph graph_handle)
{
	struct sim_exec *exec;
	struct sim_graph *graph;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	exec = sim_slab_find(&sim_g.execs, handle);
	graph = graph_find(graph_handle);
	if (!exec || !graph)
		goto out;
	rc = SIM_GRAPH_EXEC_UPDATE_FAILURE;
	if (!same_shape(&exec->graph, graph))
		goto out;
	rc = 0;
	if (exec->last && exec->last->state != SIM_OP_DONE)
		sim_held_copy_locked(&exec->last->held, exec->graph.held);
	sim_graph_free_nodes(&exec->graph);
	nodes_copy(&exec->graph, graph);
out:
	sim_unlock();
	return rc;
}

int
sim_exec_upload(struct sim_exec *handle, CUstream stream_handle)
{
	static const struct sim_work upload_work = { .kind = SIM_WORK_MARK,
						     .name = "graph upload" };
	struct sim_stream *stream = NULL;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	if (sim_slab_find(&sim_g.execs, handle))
		rc = sim_stream_resolve_locked(stream_handle, &stream);
	if (!rc && stream->capture)
		rc = sim_capture_spoil_locked(stream->capture,
					      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (!rc)
		rc = sim_submit_locked(stream, &upload_work, NULL, NULL, NULL);
	sim_unlock();
	return rc;
}

static void
exec_free(struct sim_exec *exec)
{
	/* A launch under way keeps what it may still use. */
	if (exec->last && exec->last->state != SIM_OP_DONE)
		sim_held_copy_locked(&exec->last->held, exec->graph.held);
	for (unsigned i = 0; i < exec->graph.n_chains; i++)
		sim_component_retire_locked(exec->component[i]);
	sim_graph_free_nodes(&exec->graph);
	free(exec->component);
	sim_vc_free(&exec->vc);
	sim_op_unref_locked(exec->last);
	sim_slab_put(&sim_g.execs, exec);
}

void
sim_execs_free_locked(void)
{
	for (size_t i = 0; i < sim_g.execs.n_used; i++) {
		struct sim_exec *exec = (void *)(sim_g.execs.base + i * sim_g.execs.size);

		if (exec->handle.life != SIM_DEAD)
			exec_free(exec);
	}
}

int
sim_exec_destroy(struct sim_exec *handle)
{
	struct sim_exec *exec;

	sim_lock();
	exec = sim_slab_find(&sim_g.execs, handle);
	if (exec)
		exec_free(exec);
	sim_unlock();
	return exec ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static bool
contexts_alive(const struct sim_exec *exec)
{
	for (unsigned i = 0; i < exec->graph.n_nodes; i++) {
		const struct sim_node *node = &exec->graph.node[i];

		if (node->ctx->handle.life != SIM_LIVE || node->ctx->id != node->ctx_id)
			return false;
	}
	return true;
}

static void
node_records(struct sim_event *event, struct sim_op *op, const struct sim_vc *vc)
{
	sim_event_clear_locked(event);
	event->op = sim_op_ref(op);
	sim_vc_copy(&event->vc, vc);
}

/* The event of the node, if it has one that lives. */
static struct sim_event *
node_event(const struct sim_node *node)
{
	struct sim_event *event =
		node->event_use ? sim_slab_find(&sim_g.events, node->event) : NULL;

	return event && event->handle.life == SIM_LIVE ? event : NULL;
}

/* The operation of one node. ops and vcs: of the nodes before it. */
static struct sim_op *
node_start(struct sim_exec *exec, unsigned i, struct sim_op *begin, const struct sim_vc *begin_vc,
	   struct sim_op **ops, struct sim_vc *vcs)
{
	const struct sim_node *node = &exec->graph.node[i];
	uint32_t component = exec->component[node->chain];
	struct sim_op *op = sim_op_new_locked(node->ctx, node->stream_id, &node->work);
	struct sim_event *event = node_event(node);
	uint64_t count;

	sim_op_depend_locked(op, begin);
	sim_vc_copy(&vcs[i], begin_vc);
	for (unsigned d = 0; d < node->n_deps; d++) {
		sim_op_depend_locked(op, ops[node->deps[d]]);
		sim_vc_join(&vcs[i], &vcs[node->deps[d]]);
	}
	if (event && node->event_use == SIM_NODE_WAITS) {
		sim_op_depend_locked(op, event->op);
		sim_vc_join(&vcs[i], &event->vc);
		event = NULL;
	}
	if (sim_clocks_on()) {
		count = sim_component_tick_locked(component);
		sim_vc_set(&vcs[i], component, count);
		sim_order_submit_locked(op, component, count, &vcs[i]);
		sim_oracle_touch_locked(op, component, count, &vcs[i]);
		if (op->work.kind == SIM_WORK_HOST)
			sim_vc_copy(&op->teaches, &vcs[i]);
	}
	if (event)
		node_records(event, op, &vcs[i]);
	sim_graph_mem_launched_locked(node, op);
	sim_op_start_locked(op);
	return op;
}

static void
launch_nodes(struct sim_exec *exec, struct sim_stream *stream, struct sim_op *begin)
{
	unsigned n = exec->graph.n_nodes;
	struct sim_op **ops = sim_xcalloc(n, sizeof(struct sim_op *)), *end;
	struct sim_vc *vcs = sim_xcalloc(n, sizeof(*vcs)), begin_vc = { 0 };

	sim_vc_copy(&begin_vc, &stream->vc);
	for (unsigned i = 0; i < n; i++)
		ops[i] = node_start(exec, i, begin, &begin_vc, ops, vcs);
	end = sim_op_new_locked(stream->ctx, stream->id, &end_work);
	sim_stream_inherit_locked(stream, end);
	for (unsigned i = 0; i < n; i++) {
		sim_op_depend_locked(end, ops[i]);
		sim_vc_join(&stream->vc, &vcs[i]);
	}
	sim_stream_commit_locked(stream, end);
	sim_op_unref_locked(exec->last);
	exec->last = end;
	sim_vc_copy(&exec->vc, &stream->vc);
	for (unsigned i = 0; i < n; i++) {
		sim_op_unref_locked(ops[i]);
		sim_vc_free(&vcs[i]);
	}
	sim_vc_free(&begin_vc);
	free(ops);
	free(vcs);
}

int
sim_exec_launch(struct sim_exec *handle, CUstream stream_handle)
{
	struct sim_stream *stream;
	struct sim_exec *exec;
	struct sim_op *begin;
	int rc = CUDA_ERROR_INVALID_HANDLE;

	sim_lock();
	exec = sim_slab_find(&sim_g.execs, handle);
	if (!exec)
		goto out;
	rc = sim_stream_resolve_locked(stream_handle, &stream);
	if (!rc && stream->capture)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (!rc && !contexts_alive(exec))
		rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!rc && sim_graph_has_memory_nodes(&exec->graph))
		rc = sim_graph_mems_launch_locked(&exec->graph, stream, exec->auto_free);
	if (!rc)
		rc = sim_submit_locked(stream, &begin_work, exec->last, &exec->vc, &begin);
	if (rc)
		goto out;
	launch_nodes(exec, stream, begin);
	sim_op_unref_locked(begin);
out:
	sim_unlock();
	return rc;
}
