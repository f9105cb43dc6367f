/* SPDX-License-Identifier: MIT */
/*
 * The pieces of the asynchronous program (program.c): memory by several roads, pools, graphs.
 *
 * Worlds, streams and the order of live blocks are those of tests/stress/world.h. Told memory names
 * a stream when it is allocated and freed: the allocation counts as the first write, by that
 * stream, and a free comes after all use, by the program's own events. Memory by cuMemAlloc is
 * freed without any order, but for cuMemFreeAsync.
 *
 * Everything that fails unexpectedly ends the program with status 2 and a line on stderr.
 */
#pragma once

#include <stdatomic.h>

#include "tests/process/driver_api.h"
#include "tests/sim/abi.h"
#include "tests/stress/worker.h"

enum { DEVICES_MAX = 4 };

enum road {
	ROAD_PLAIN, /* cuMemAlloc */
	ROAD_ASYNC, /* cuMemAllocAsync, from the pool that is current on the stream's device */
	ROAD_POOL,  /* cuMemAllocFromPoolAsync */
	ROAD_GRAPH, /* allocated by a graph's launch and not freed by it */
};

/* What the program did, by all threads. The test asks that none of what it wants to see is 0. */
#define ASYNC_COUNTS(X)                                                                            \
	X(operations)                                                                              \
	X(plain_allocs)                                                                            \
	X(async_allocs)                                                                            \
	X(pool_allocs)                                                                             \
	X(graph_allocs)                                                                            \
	X(told_async_frees)                                                                        \
	X(told_host_frees)                                                                         \
	X(plain_frees)                                                                             \
	X(plain_async_frees)                                                                       \
	X(freed_by_the_barrier)                                                                    \
	X(reused_on_same_stream)                                                                   \
	X(reused_on_other_stream)                                                                  \
	X(moved_to_other_context)                                                                  \
	X(moved_to_other_device)                                                                   \
	X(pools_created)                                                                           \
	X(pools_destroyed_in_use)                                                                  \
	X(pools_made_current)                                                                      \
	X(attributes_set)                                                                          \
	X(used_compared)                                                                           \
	X(trims)                                                                                   \
	X(captures)                                                                                \
	X(graph_launches)                                                                          \
	X(freed_in_capture)                                                                        \
	X(refused_in_capture)                                                                      \
	X(allocs_beside_capture)                                                                   \
	X(streams_destroyed)                                                                       \
	X(contexts_destroyed)                                                                      \
	X(ooms)

struct async_counts {
#define X(name) atomic_ulong name;
	ASYNC_COUNTS(X)
#undef X
};

extern struct async_counts counts;
extern int n_worlds, n_threads, n_devices;
extern struct world worlds[];  /* everybody's */
extern struct world studios[]; /* one a thread: a context in which it alone works, and captures */
extern size_t budget_bytes, size_max; /* live bytes of one thread; of one block */

static inline int
chance(struct worker *w, unsigned one_in)
{
	return rng_below(&w->rng, one_in) == 0;
}

/* ---- memory.c */
/* NULL: out of memory. What it returns is the worker's last block; its contents are unknown. */
struct block *memory_take(struct worker *w, struct world *world, size_t n_bytes);
/* The same, of told memory only. */
struct block *memory_take_told(struct worker *w, struct world *world, size_t n_bytes);
/* The block is the worker's from now on. Room for it must be there. */
struct block *memory_enter(struct worker *w, const struct block *block);
/* Frees until one more block of that size is within the worker's budget. */
void memory_make_room(struct worker *w, size_t n_bytes);
void memory_free(struct worker *w, int i);
void memory_free_some(struct worker *w, int n);
/* Told memory: to streams of another context, after all that used it. */
void memory_move(struct worker *w, struct block *b, struct world *to);
size_t memory_size(struct worker *w);

/* ---- pools.c */
/* The default pools, of all devices; every pool is open to all of them. */
void pools_open(struct rng *rng);
/* A pool of the device that counts the next bytes; its number is *ret_pool. current: the one that
 * is current there, else any, and then *ret_handle is it. Holds the device's pools until
 * pools_release(), which counts the bytes if there was memory. */
void pools_pick(struct worker *w, int device, int current, CUmemoryPool *ret_handle,
		unsigned *ret_pool);
void pools_release(int device, unsigned pool, size_t n_bytes);
void pools_freed(unsigned pool, size_t n_bytes);
/* Creates, destroys, trims, or sets something. */
void pools_change(struct worker *w);
/* What is used must be what is live; by the only thread, or when all others have ended. */
void pools_compare(int device);
/* After a failure for lack of memory. */
void pools_trim_all(struct worker *w);
/* Everything is free: nothing is used, and nothing stays after a trim. */
void pools_close(void);

/* ---- graphs.c */
void graph_run(struct worker *w);

/* ---- calls.c: entry points that tests/process/driver_api.def does not have */
#define ASYNC_CALLS(X)                                                                             \
	X(cuMemAllocFromPoolAsync,                                                                 \
	  (CUdeviceptr * ptr, size_t n_bytes, CUmemoryPool pool, CUstream s))                      \
	X(cuMemAllocFromPoolAsync_ptsz,                                                            \
	  (CUdeviceptr * ptr, size_t n_bytes, CUmemoryPool pool, CUstream s))                      \
	X(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *props))                     \
	X(cuMemPoolDestroy, (CUmemoryPool pool))                                                   \
	X(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *list, size_t n))          \
	X(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))                                \
	X(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device))                              \
	X(cuDeviceGraphMemTrim, (CUdevice device))

struct async_calls {
#define X(name, params) CUresult(*name) params;
	ASYNC_CALLS(X)
#undef X
};

extern struct async_calls calls;

/* Ends the program with status 2 when one is missing. */
void calls_load(void);
