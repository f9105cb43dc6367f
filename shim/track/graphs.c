/* SPDX-License-Identifier: MIT */
/*
 * Of an executable there is one word: whether a launch is a hazard. An event that a graph records
 * is silenced for good when the graph becomes executable, since each launch records it anew.
 *
 * The bodies of conditional nodes are not looked through: cuda.h allows them kernels, copies, sets,
 * empty nodes, and children of those.
 *
 * Born memory is held by a user object that the graph owns, and with it every clone, parent and
 * executable. Its destructor runs on a thread of the driver, some time, and only sets a flag.
 */
#include "shim/track/graphs.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "shim/bind/scope.h"
#include "shim/state/handle_table.h"
#include "shim/state/process.h"
#include "shim/state/record_arena.h"
#include "shim/track/captures.h"
#include "shim/track/events.h"

enum {
	EXEC_SEEN = 1,   /* always set */
	EXEC_HAZARD = 2, /* a launch may wait for somebody */
	DEPTH_MAX = 16,  /* of children in children */
};

static struct ca_handles execs;

static bool look_through(const struct ca_real *real, CUgraph graph, unsigned depth);

/* False: a launch may wait here for somebody outside its stream. */
static bool
node_is_safe(const struct ca_real *real, CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type = CU_GRAPH_NODE_TYPE_HOST;
	CUevent event = NULL;
	CUgraph child = NULL;

	if (CA_INSIDE(real->cuGraphNodeGetType(node, &type)))
		return false;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
	case CU_GRAPH_NODE_TYPE_MEMCPY_BATCH:
		return true;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		if (!real->cuGraphEventRecordNodeGetEvent ||
		    CA_INSIDE(real->cuGraphEventRecordNodeGetEvent(node, &event)))
			return false;
		ca_events_silence(event);
		return true;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return depth < DEPTH_MAX && real->cuGraphChildGraphNodeGetGraph &&
		       !CA_INSIDE(real->cuGraphChildGraphNodeGetGraph(node, &child)) &&
		       look_through(real, child, depth + 1);
	default:
		return false;
	}
}

/* All nodes, to find every event; true if none is a hazard. */
static bool
look_through(const struct ca_real *real, CUgraph graph, unsigned depth)
{
	bool harmless = true;
	CUgraphNode *nodes;
	size_t n = 0, bytes;

	if (CA_INSIDE(real->cuGraphGetNodes(graph, NULL, &n)))
		return false;
	if (!n)
		return true;
	bytes = n * sizeof(CUgraphNode);
	nodes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nodes == MAP_FAILED)
		return false;
	if (CA_INSIDE(real->cuGraphGetNodes(graph, nodes, &n))) {
		harmless = false;
		n = 0;
	}
	for (size_t i = 0; i < n && i < bytes / sizeof(CUgraphNode); i++)
		if (!node_is_safe(real, nodes[i], depth))
			harmless = false;
	munmap(nodes, bytes);
	return harmless;
}

static uint64_t
word_for(const struct ca_real *real, CUgraph graph)
{
	CA_KEEP_ERRNO;
	bool harmless =
		real->cuGraphGetNodes && real->cuGraphNodeGetType && look_through(real, graph, 0);

	return harmless ? EXEC_SEEN : EXEC_SEEN | EXEC_HAZARD;
}

static _Atomic bool any_made;

bool
ca_graphs_any(void)
{
	return atomic_load_explicit(&any_made, memory_order_relaxed);
}

void
ca_graphs_made(const struct ca_real *real, CUgraphExec exec, CUgraph graph)
{
	uint64_t old;

	atomic_store_explicit(&any_made, true, memory_order_relaxed);
	if (ca_handles_put(&execs, exec, word_for(real, graph), &old))
		(void)ca_handles_remove(&execs, exec); /* not seen: a hazard */
}

void
ca_graphs_extended(const struct ca_real *real, CUgraphExec exec, CUgraph graph)
{
	ca_handles_add_bits(&execs, exec, word_for(real, graph));
}

void
ca_graphs_destroyed(CUgraphExec exec)
{
	(void)ca_handles_remove(&execs, exec);
}

bool
ca_graphs_is_hazard(CUgraphExec exec)
{
	return ca_handles_get(&execs, exec) != EXEC_SEEN;
}

static void
last_holder_destroyed(void *ended)
{
	atomic_store((_Atomic bool *)ended, true);
}

/* Makes `graph` the owner of an object that sets `gone` at its end. */
static bool
pass_to_graph(const struct ca_real *real, CUgraph graph, _Atomic bool *ended)
{
	CUuserObject object;
	CUresult rc;

	if (!real->cuUserObjectCreate || !real->cuUserObjectRelease ||
	    !real->cuGraphRetainUserObject ||
	    CA_INSIDE(real->cuUserObjectCreate(&object, (void *)ended, last_holder_destroyed, 1,
					       CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)))
		return false;
	rc = CA_INSIDE(real->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	if (rc)
		(void)CA_INSIDE(real->cuUserObjectRelease(object, 1));
	return !rc;
}

void
ca_graphs_captured(const struct ca_real *real, struct ca_heap *heap, CUgraph graph, uint64_t since)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t last = ca_graph_serial(heap);
	_Atomic bool *ended;
	bool exchanged, held;

	if (last == since)
		return;
	ended = ca_slab_take(sizeof(*ended)); /* for ever: nothing tells when it is set */
	exchanged = ca_capture_exchange_mode(real, &mode);
	held = ended && pass_to_graph(real, graph, ended);
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	if (!held || ca_graph_hold(heap, since, last, ended))
		ca_graph_retire(heap, since, last);
}

void
ca_graphs_after_fork_child(void)
{
	ca_handles_after_fork_child(&execs);
}
