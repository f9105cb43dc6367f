/* SPDX-License-Identifier: MIT */
/*
 * Graph memory: what allocation nodes have.
 *
 * A node's address is fixed when it is made: a range without memory. The first launch that runs the
 * node puts memory there, which stays until it is trimmed or the graph and its executable are gone;
 * natively graphs share it. `live` is what the program has done (launches and frees in the order of
 * the calls), `present` what the device has: work that touches memory whose node has not run, or
 * whose free has, faults. Used are the bytes of live memory, reserved what has memory behind it.
 */
#include <stdlib.h>

#include "tests/sim/engine/pool.h"

struct sim_graph_mem {
	unsigned holders; /* graphs and executables with its allocation node */
	bool mapped, live, present;
	uint16_t reach;
	const struct sim_graph *owner, *freed_in; /* where its nodes are; NULL: gone, none */
	struct sim_op *last_free;
};

static uint64_t *
bytes_of(const struct sim_mem *mem)
{
	return sim_g.device[mem->info.device].graph_bytes;
}

static void
count(const struct sim_mem *mem, enum sim_graph_memory_attribute what, bool more)
{
	uint64_t *at = &bytes_of(mem)[what]; /* and the mark behind it */

	at[0] += more ? mem->n_taken : -mem->n_taken;
	if (at[0] > at[1])
		at[1] = at[0];
}

/* ------------------------------------------------------------ life, death --- */
static int
graph_mem_new(const struct sim_graph *owner, int device, uint16_t reach, size_t n_bytes,
	      struct sim_mem **ret_mem)
{
	struct sim_mem *mem = sim_xcalloc(1, sizeof(*mem));
	int rc;

	mem->info =
		(struct sim_mem_info){ .n_bytes = n_bytes, .kind = SIM_MEM_POOL, .device = device };
	rc = sim_space_reserve_locked(&sim_g.device[device].space, mem);
	if (rc) {
		free(mem);
		return rc;
	}
	mem->graph = sim_xcalloc(1, sizeof(*mem->graph));
	mem->graph->owner = owner;
	mem->graph->reach = reach;
	sim_mem_enter_locked(mem);
	sim_oracle_forget_locked(mem->info.base, mem->n_taken);
	*ret_mem = mem;
	return 0;
}

static bool
is_busy(const struct sim_mem *mem)
{
	return mem->graph->live || mem->pins ||
	       (mem->graph->last_free && mem->graph->last_free->state != SIM_OP_DONE);
}

static void
unmap(struct sim_mem *mem)
{
	if (!mem->graph->mapped)
		return;
	mem->graph->mapped = false;
	count(mem, SIM_GRAPH_RESERVED, false);
	sim_oracle_forget_locked(mem->info.base, mem->n_taken);
	sim_space_unmap_locked(&sim_g.device[mem->info.device].space, mem);
}

static void
graph_mem_end(struct sim_mem *mem)
{
	unmap(mem);
	sim_space_unreserve_locked(&sim_g.device[mem->info.device].space, mem);
	sim_op_unref_locked(mem->graph->last_free);
	free(mem->graph);
	sim_mem_forget_locked(mem);
}

static void
end_if_unused(struct sim_mem *mem)
{
	if (!mem->graph->holders && !is_busy(mem))
		graph_mem_end(mem);
}

void
sim_graph_mems_close_locked(void)
{
	struct sim_mem *mem = sim_g.mems, *next;

	for (; mem; mem = next) {
		next = mem->next;
		if (mem->graph)
			graph_mem_end(mem);
	}
}

/* ---------------------------------------------------------------- nodes --- */
/* The memory of a node, if it is an allocation or a free and the memory is still there. */
static struct sim_mem *
mem_of(const struct sim_work *work)
{
	struct sim_mem *mem = work->kind == SIM_WORK_ALLOC || work->kind == SIM_WORK_FREE
				      ? sim_mem_find_locked(work->a[0])
				      : NULL;

	return mem && mem->graph && mem->info.id == work->a[1] ? mem : NULL;
}

bool
sim_graph_has_memory_nodes(const struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_nodes; i++)
		if (graph->node[i].work.kind == SIM_WORK_ALLOC ||
		    graph->node[i].work.kind == SIM_WORK_FREE)
			return true;
	return false;
}

bool
sim_graph_same_memory(const struct sim_work *a, const struct sim_work *b)
{
	return (a->kind != SIM_WORK_ALLOC && a->kind != SIM_WORK_FREE) || a->a[1] == b->a[1];
}

bool
sim_graph_mems_taken_locked(const struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_nodes; i++) {
		const struct sim_mem *mem = mem_of(&graph->node[i].work);

		if (mem && graph->node[i].work.kind == SIM_WORK_ALLOC && mem->graph->holders > 1)
			return true;
	}
	return false;
}

void
sim_graph_mems_hold_locked(const struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_nodes; i++) {
		struct sim_mem *mem = mem_of(&graph->node[i].work);

		if (mem && graph->node[i].work.kind == SIM_WORK_ALLOC)
			mem->graph->holders++;
	}
}

void
sim_graph_mems_drop_locked(const struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_nodes; i++) {
		struct sim_mem *mem = mem_of(&graph->node[i].work);

		if (!mem)
			continue;
		if (mem->graph->owner == graph)
			mem->graph->owner = NULL;
		if (mem->graph->freed_in == graph)
			mem->graph->freed_in = NULL;
		if (graph->node[i].work.kind == SIM_WORK_ALLOC)
			mem->graph->holders--;
		end_if_unused(mem);
	}
}

static struct sim_work
node_work(enum sim_work_kind kind, const struct sim_mem *mem)
{
	return (struct sim_work){
		.kind = kind,
		.name = kind == SIM_WORK_ALLOC ? "graph alloc" : "graph free",
		.a = { mem->info.base, mem->info.id },
		.touch = { { .addr = mem->info.base,
			     .n_bytes = mem->info.n_bytes,
			     .access = SIM_WRITE } },
		.n_touches = 1,
	};
}

/* The memory that a free node of the graph may name, or NULL. */
static struct sim_mem *
node_target(const struct sim_graph *graph, CUdeviceptr ptr)
{
	struct sim_mem *mem = sim_mem_find_locked(ptr);

	if (mem && mem->graph && mem->info.base == ptr && !mem->graph->freed_in)
		return mem;
	sim_misuse_locked(
		CUDA_ERROR_INVALID_VALUE,
		"free node of 0x%llx: not the start of a graph's memory, or freed already",
		(unsigned long long)ptr);
	return NULL;
}

int
sim_capture_alloc_locked(struct sim_stream *stream, const struct sim_pool *pool, size_t n_bytes,
			 CUdeviceptr *ret_ptr)
{
	struct sim_graph *graph = stream->capture->graph;
	struct sim_work work;
	struct sim_mem *mem;
	int rc;

	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (pool->props.location != SIM_LOCATION_DEVICE || pool->props.type != SIM_POOL_PINNED)
		return CUDA_ERROR_NOT_SUPPORTED;
	rc = graph_mem_new(graph, pool->props.id, pool->reach, n_bytes, &mem);
	if (rc)
		return rc;
	mem->graph->holders = 1;
	work = node_work(SIM_WORK_ALLOC, mem);
	*ret_ptr = mem->info.base;
	return sim_capture_record_locked(stream, &work);
}

int
sim_capture_free_locked(struct sim_stream *stream, CUdeviceptr ptr)
{
	struct sim_graph *graph = stream->capture->graph;
	struct sim_work work;
	struct sim_mem *mem;

	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	mem = node_target(graph, ptr);
	if (!mem)
		return CUDA_ERROR_INVALID_VALUE;
	mem->graph->freed_in = graph;
	work = node_work(SIM_WORK_FREE, mem);
	return sim_capture_record_locked(stream, &work);
}

int
sim_graph_add_alloc(CUgraph handle, const CUgraphNode *deps, size_t n, int device, size_t n_bytes,
		    CUgraphNode *ret_node, CUdeviceptr *ret_ptr)
{
	struct sim_graph *graph;
	struct sim_work work;
	struct sim_mem *mem;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	graph = sim_graph_find_locked(handle);
	if (!graph || !n_bytes || device < 0 || device >= sim_g.config.n_devices)
		goto out;
	rc = graph_mem_new(graph, device, (uint16_t)(1u << device), n_bytes, &mem);
	if (rc)
		goto out;
	work = node_work(SIM_WORK_ALLOC, mem);
	rc = sim_graph_add_work_locked(graph, deps, n, &work, ret_node);
	if (rc) {
		graph_mem_end(mem);
		goto out;
	}
	mem->graph->holders = 1;
	*ret_ptr = mem->info.base;
out:
	sim_unlock();
	return rc;
}

int
sim_graph_add_free(CUgraph handle, const CUgraphNode *deps, size_t n, CUdeviceptr ptr,
		   CUgraphNode *ret_node)
{
	struct sim_graph *graph;
	struct sim_mem *mem;
	struct sim_work work;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	graph = sim_graph_find_locked(handle);
	mem = graph ? node_target(graph, ptr) : NULL;
	if (!mem)
		goto out;
	work = node_work(SIM_WORK_FREE, mem);
	rc = sim_graph_add_work_locked(graph, deps, n, &work, ret_node);
	if (!rc)
		mem->graph->freed_in = graph;
out:
	sim_unlock();
	return rc;
}

/* --------------------------------------------------------------- launch --- */
/* What a launch makes of the node's memory, or undoes. False: it cannot. */
static bool
node_apply(const struct sim_work *work, bool undo)
{
	bool alloc = work->kind == SIM_WORK_ALLOC;
	struct sim_mem *mem = mem_of(work);

	if (!mem)
		return !alloc && work->kind != SIM_WORK_FREE;
	if (mem->graph->live == (alloc != undo))
		return false;
	mem->graph->live = alloc != undo;
	return true;
}

/* In order, what is allocated must be free, and what is freed must not. */
static int
launch_check(const struct sim_graph *graph)
{
	unsigned n = 0;

	while (n < graph->n_nodes && node_apply(&graph->node[n].work, false))
		n++;
	for (unsigned i = n; i-- > 0;)
		node_apply(&graph->node[i].work, true);
	return n == graph->n_nodes
		       ? 0
		       : sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
					   "launch of a graph that allocates what it has, or frees "
					   "what it has not");
}

static int
launch_map(const struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_nodes; i++) {
		struct sim_mem *mem = mem_of(&graph->node[i].work);
		int rc;

		if (!mem || graph->node[i].work.kind != SIM_WORK_ALLOC || mem->graph->mapped)
			continue;
		rc = sim_space_map_locked(&sim_g.device[mem->info.device].space, mem);
		if (rc)
			return rc;
		mem->graph->mapped = true;
		count(mem, SIM_GRAPH_RESERVED, true);
	}
	return 0;
}

static void
free_all(const struct sim_graph *graph, struct sim_stream *stream)
{
	for (unsigned i = 0; i < graph->n_nodes; i++) {
		struct sim_mem *mem = mem_of(&graph->node[i].work);

		if (mem && graph->node[i].work.kind == SIM_WORK_ALLOC && mem->graph->live)
			sim_free_submit_locked(stream, mem);
	}
}

int
sim_graph_mems_launch_locked(const struct sim_graph *graph, struct sim_stream *stream,
			     bool auto_free)
{
	int rc;

	sim_g.clocks = true;
	if (auto_free)
		free_all(graph, stream);
	rc = launch_check(graph);
	return rc ? rc : launch_map(graph);
}

void
sim_graph_mem_launched_locked(const struct sim_node *node, struct sim_op *op)
{
	struct sim_mem *mem = mem_of(&node->work);

	if (!mem)
		return;
	if (node->work.kind == SIM_WORK_FREE) {
		sim_graph_mem_freed_locked(mem, op);
		return;
	}
	mem->graph->live = true;
	count(mem, SIM_GRAPH_USED, true);
}

/* ----------------------------------------------------------- alloc, free --- */
bool
sim_graph_mem_may_free_locked(const struct sim_mem *mem)
{
	const struct sim_graph_mem *graph = mem->graph;

	return graph->live && (!graph->freed_in || graph->freed_in != graph->owner);
}

void
sim_graph_mem_freed_locked(struct sim_mem *mem, struct sim_op *op)
{
	mem->graph->live = false;
	count(mem, SIM_GRAPH_USED, false);
	sim_op_unref_locked(mem->graph->last_free);
	mem->graph->last_free = sim_op_ref(op);
}

void
sim_graph_alloc_run_locked(const struct sim_op *op)
{
	struct sim_mem *mem = mem_of(&op->work);

	if (mem)
		mem->graph->present = true;
}

void
sim_graph_free_run_locked(struct sim_mem *mem, const struct sim_op *op)
{
	while (mem->pins)
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
	mem->graph->present = false;
	/* This very operation is not done yet; it may be the last to come, or more launches follow.
	 */
	if (!mem->graph->holders && !mem->graph->live && mem->graph->last_free == op)
		graph_mem_end(mem);
}

bool
sim_graph_mem_present_locked(const struct sim_mem *mem)
{
	return !mem->graph || mem->graph->present;
}

uint16_t
sim_graph_mem_reach_locked(const struct sim_mem *mem)
{
	return mem->graph->reach;
}

/* ------------------------------------------------------------ attributes --- */
int
sim_graph_memory_get(int device, enum sim_graph_memory_attribute attribute, uint64_t *ret_value)
{
	int rc = (unsigned)attribute > SIM_GRAPH_RESERVED_HIGH ? CUDA_ERROR_INVALID_VALUE : 0;

	sim_lock();
	if (device < 0 || device >= sim_g.config.n_devices)
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (!rc)
		*ret_value = sim_g.device[device].graph_bytes[attribute];
	sim_unlock();
	return rc;
}

int
sim_graph_memory_reset(int device, enum sim_graph_memory_attribute attribute)
{
	int rc = 0;

	sim_lock();
	if (device < 0 || device >= sim_g.config.n_devices)
		rc = CUDA_ERROR_INVALID_DEVICE;
	else if (attribute != SIM_GRAPH_USED_HIGH && attribute != SIM_GRAPH_RESERVED_HIGH)
		rc = CUDA_ERROR_INVALID_VALUE;
	else
		sim_g.device[device].graph_bytes[attribute] =
			sim_g.device[device].graph_bytes[attribute - 1];
	sim_unlock();
	return rc;
}

int
sim_graph_memory_trim(int device)
{
	int rc = CUDA_ERROR_INVALID_DEVICE;

	sim_lock();
	if (device < 0 || device >= sim_g.config.n_devices)
		goto out;
	rc = 0;
	for (struct sim_mem *mem = sim_g.mems; mem; mem = mem->next)
		if (mem->graph && mem->info.device == device && !is_busy(mem))
			unmap(mem);
out:
	sim_unlock();
	return rc;
}
