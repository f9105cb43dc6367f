/* SPDX-License-Identifier: MIT */
/* Graphs and user objects, as the engine's files share them; a part of internal.h. */
#pragma once

#include "tests/sim/engine/internal.h"

/* ----------------------------------------------------- user objects --- */
struct sim_user_object {
	struct sim_handle handle;
	uint64_t n_refs; /* the program's, and those of graphs, executables and operations */
	sim_host_function destroy;
	void *data;
};

/* References to one object held by a graph or executable. */
struct sim_held {
	struct sim_held *next;
	struct sim_user_object *object;
	uint64_t n;
};

/* Adds references like those of `from`. */
void sim_held_copy_locked(struct sim_held **to, const struct sim_held *from);
/* Gives all back; the list becomes empty. */
void sim_held_drop_locked(struct sim_held **list);
/* Has the thread of host functions call destroy(data) some time. */
void sim_host_later_locked(sim_host_function function, void *data);
int sim_host_start_locked(void);

/* ----------------------------------------------------------- graphs --- */
enum sim_node_event {
	SIM_NODE_NO_EVENT,
	SIM_NODE_RECORDS,
	SIM_NODE_WAITS,
};

struct sim_node {
	struct sim_work work;
	struct sim_ctx *ctx;
	uint64_t ctx_id, stream_id;
	unsigned *deps;
	unsigned n_deps;
	unsigned chain; /* captured stream it came from, or of its own */
	enum sim_node_event event_use;
	CUevent event;
};

struct sim_graph {
	struct sim_handle handle;
	struct sim_node *node;
	unsigned n_nodes, cap_nodes;
	unsigned n_chains;
	struct sim_held *held;
};

/* Also one that is being captured into. */
struct sim_graph *sim_graph_find_locked(CUgraph handle);
/* A node handle is a number: which graph, and which node of it. */
CUgraphNode sim_node_handle_locked(const struct sim_graph *graph, unsigned node);
/* False: no node of the graph. */
bool sim_node_index_locked(const struct sim_graph *graph, CUgraphNode handle, unsigned *ret_node);
/* Adds a node; takes `deps` (malloc'd) over. Returns its number. */
unsigned sim_graph_add_locked(struct sim_graph *graph, const struct sim_node *node);
/* The indices of n handles, malloc'd; NULL: one is no node of the graph. */
unsigned *sim_node_indices_locked(const struct sim_graph *graph, const CUgraphNode *nodes,
				  size_t n);

void sim_graph_free_nodes(struct sim_graph *graph);
void sim_execs_free_locked(void);
int sim_graph_add_work_locked(struct sim_graph *graph, const CUgraphNode *deps, size_t n,
			      const struct sim_work *work, CUgraphNode *ret_node);

/* ------------------------------------------------------ graph memory --- */
/* Allocation or free nodes. */
bool sim_graph_has_memory_nodes(const struct sim_graph *graph);
/* The same memory, if the two work on a graph's memory. */
bool sim_graph_same_memory(const struct sim_work *a, const struct sim_work *b);
/* An executable has its memory. */
bool sim_graph_mems_taken_locked(const struct sim_graph *graph);
/* A graph or executable has got the nodes, and is about to lose them. */
void sim_graph_mems_hold_locked(const struct sim_graph *graph);
void sim_graph_mems_drop_locked(const struct sim_graph *graph);
/* Before a launch: whether its allocations and frees are in order, and memory for them. */
int sim_graph_mems_launch_locked(const struct sim_graph *graph, struct sim_stream *stream,
				 bool auto_free);
/* The node's operation of a launch has been submitted. */
void sim_graph_mem_launched_locked(const struct sim_node *node, struct sim_op *op);
