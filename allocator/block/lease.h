/* SPDX-License-Identifier: MIT */
/*
 * Segments that are a thread's own for a while: it cuts and merges what is free in them without the
 * heap's lock. They are of the small pool, and of the large one those that requests of several
 * sizes share; a request of 2 MiB or more, which wants a boundary (pool.c), is not cut from them.
 *
 * In a leased segment each block is ALLOCATED or FREE, and the FREE ones are in the lease's index,
 * not in the pool's; sums have them as ever. The links between its blocks, its FREE blocks and the
 * lease itself want the lock of the lease's magazine (allocator/tcache/tcache.h): its owner has
 * that, or somebody who has the heap's lock, too. A segment becomes leased, or ceases to be, under
 * both locks. An ALLOCATED block of it is like any other, in a magazine or not.
 *
 * All leases end before anything else is done with the blocks of a heap: ca_heap_lock sees to that.
 * A thread that takes the lock by ca_heap_lock_leased leaves leased segments alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/types.h"

/* Zeroed: it has no segment. */
struct ca_lease {
	struct ca_magazine *magazine;   /* whose owner has it */
	struct ca_lease *next;          /* heap->leases */
	struct ca_segment *segments[2]; /* of the small pool, of the large one; NULL: none */
	struct ca_backoff begins;       /* where leases end before they were worth it */
	uint64_t hits;                  /* requests, since the first segment */
	/* Records without a block: never more of places than of blocks, so that each block can have
	 * some without fail (block_inside.h). */
	struct ca_block *blocks;      /* linked by `next` */
	struct ca_index_node *places; /* ca_places.by_size, linked by `next` */
	unsigned n_blocks, n_places;
	bool is_listed;   /* in heap->leases */
	uint64_t entered; /* blocks in heap->bases, less those removed, modulo 2^64 */
	struct ca_index by_size[2];
};

/* The segment may be leased for all that is known of its kind; its blocks decide. */
bool ca_lease_may_begin(const struct ca_segment *segment);
/* False: a block waits, or there is no memory. The heap's lock is held, and the magazine's is. */
bool ca_lease_begin_locked(struct ca_lease *lease, struct ca_segment *segment);
/* A segment that has so many bytes free in one piece, for a request of that size, is the heap's
 * again. False: there is none. The same locks are held. */
bool ca_lease_yield_locked(struct ca_lease *lease, uint64_t bytes);
/* It has no segment any more. The same locks are held. */
void ca_lease_end_locked(struct ca_lease *lease, struct ca_heap *heap);
/* Records for the next steps; those that are too many go back. The same locks are held. */
void ca_lease_supply_locked(struct ca_lease *lease, struct ca_heap *heap);

/* ---- the magazine's lock is held */

/* Best fit: ALLOCATED, no one's so far, and found by its address. NULL: nothing fits, or records
 * are wanted. `bytes`: of the grain, and less than CA_ALIGNED_MIN. */
struct ca_block *ca_lease_cut(struct ca_lease *lease, struct ca_heap *heap, uint64_t bytes);
/* A block that is ALLOCATED, without users and nobody's any more, becomes FREE. False: records are
 * wanted. */
bool ca_lease_settle(struct ca_lease *lease, struct ca_heap *heap, struct ca_block *block);
