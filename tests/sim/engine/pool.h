/* SPDX-License-Identifier: MIT */
/*
 * What the files of the memory pools share (pool*.c). The model: pool_heap.c.
 */
#pragma once

#include "tests/sim/engine/internal.h"
#include "tests/sim/engine_pool.h"

/* A place in a stream: where memory was freed, or came to its owner. */
struct sim_place {
	unsigned refs;
	struct sim_op *op;
	uint64_t stream_id;
	uint32_t component;
	uint64_t count;   /* of the component's operations */
	struct sim_vc vc; /* what is before it; only for the oracle */
};

/* The reserve is cut into pieces without gaps but between runs of units. */
struct sim_piece {
	uint64_t lo, hi;
	struct sim_mem *mem;     /* NULL: free */
	struct sim_place *freed; /* of a free one; NULL: everybody's */
};

struct sim_pool {
	struct sim_handle handle;
	uint64_t id;
	struct sim_pool_props props;
	bool is_default, imported;
	int exporter; /* of an imported one: process, and its number there */
	uint64_t exported;
	struct sim_space *space;
	bool rule[SIM_POOL_INTERNAL + 1];
	uint64_t threshold;
	uint64_t reserved, reserved_high, used, used_high; /* bytes */
	uint16_t reach;                                    /* devices that reach its memory; bits */
	struct sim_piece *piece;                           /* by address */
	size_t n_pieces, cap_pieces;
	size_t n_mems; /* live, or freed in a stream that has not got there */
};

struct sim_pool *sim_pool_find_locked(CUmemoryPool handle);
int sim_pool_new_locked(const struct sim_pool_props *props, struct sim_pool **ret_pool);
/* A record of memory more. */
void sim_pool_gains_locked(struct sim_pool *pool, const struct sim_mem *mem);
/* The end of a destroyed pool without memory. */
void sim_pool_reap_locked(struct sim_pool *pool);
struct sim_pool *sim_pool_of_device_locked(int device);
/* Devices whose kernels reach memory of a pool or a graph; bits. */
uint16_t sim_pool_reach_locked(const struct sim_mem *mem);

/* --------------------------------------------------------- pool_heap.c --- */
struct sim_place *sim_place_of_locked(struct sim_op *op, const struct sim_stream *stream);
void sim_place_unref_locked(struct sim_place *place);
/* The host knows that it has been passed. */
bool sim_place_known_locked(const struct sim_place *place);

/* What is to become of memory for a stream, before its operation is submitted. */
struct sim_taking {
	const struct sim_stream *stream;
	struct sim_vc clock;  /* that its operation will have */
	struct sim_ops waits; /* inserted by INTERNAL */
	struct sim_vc before; /* the clocks of the frees; for the oracle */
};

int sim_heap_take_locked(struct sim_pool *pool, uint64_t n_bytes, struct sim_taking *taking,
			 struct sim_mem **ret_mem);
/* `mem` leaves the heap, which takes the reference to `freed` over; the record is the caller's. */
void sim_heap_give_locked(struct sim_pool *pool, struct sim_mem *mem, struct sim_place *freed);
/* Gives units back, `keep` bytes stay. A real end takes everything. */
void sim_heap_shrink_locked(struct sim_pool *pool, uint64_t keep);
void sim_heap_drop_locked(struct sim_pool *pool);
/* The same, with what was never freed. */
void sim_heap_close_locked(struct sim_pool *pool);

/* -------------------------------------------------------- pool_async.c --- */
/* A free in the stream, which does not capture. */
int sim_free_submit_locked(struct sim_stream *stream, struct sim_mem *mem);

/* -------------------------------------------------------- pool_graph.c --- */
/* A stream that captures allocates or frees. */
int sim_capture_alloc_locked(struct sim_stream *stream, const struct sim_pool *pool, size_t n_bytes,
			     CUdeviceptr *ret_ptr);
int sim_capture_free_locked(struct sim_stream *stream, CUdeviceptr ptr);
/* Whether a call may free it now. */
bool sim_graph_mem_may_free_locked(const struct sim_mem *mem);
/* A call has freed it; `op`: the operation that will, or NULL. */
void sim_graph_mem_freed_locked(struct sim_mem *mem, struct sim_op *op);
/* A free of it runs; `op`: that operation, or NULL. */
void sim_graph_free_run_locked(struct sim_mem *mem, const struct sim_op *op);
uint16_t sim_graph_mem_reach_locked(const struct sim_mem *mem);
void sim_graph_mems_close_locked(void);
