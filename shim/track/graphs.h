/* SPDX-License-Identifier: MIT */
/*
 * Graphs: the properties of executables, and memory born in a capture.
 *
 * An executable is looked through when it is made or updated, node by node. The types of its nodes
 * tell which events it records anew, and whether a launch may be held up (by host functions,
 * events, values, semaphores of others); an executable that could not be looked through, or was
 * never seen, counts as one that may be held up by anything.
 *
 * Thread-safe; no malloc; errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/api/heap.h"
#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

/* `exec` was made from `graph`. */
void ca_graphs_made(const struct ca_real *real, CUgraphExec exec, CUgraph graph);
/* True if the process has made any. */
bool ca_graphs_any(void);
/* `exec` now also runs what is in `graph`. */
void ca_graphs_extended(const struct ca_real *real, CUgraphExec exec, CUgraph graph);
/* Before the real destroy. */
void ca_graphs_destroyed(CUgraphExec exec);
/* True if a launch may have to wait for somebody outside its stream. */
bool ca_graphs_is_hazard(CUgraphExec exec);

/*
 * Memory that was handed out after `since` (ca_graph_serial before the capture began) while this
 * process captured may be used by every launch of what was captured: it stays out of reuse until
 * `graph`, its clones, parents and executables are gone. Called after the real end of the capture,
 * while it still counts as open.
 */
void ca_graphs_captured(const struct ca_real *real, struct ca_heap *heap, CUgraph graph,
			uint64_t since);

void ca_graphs_after_fork_child(void);
