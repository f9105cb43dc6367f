/* SPDX-License-Identifier: MIT */
/*
 * The map of memory: segments, the blocks that tile them, and which of them are free.
 *
 * Everything here wants the heap's lock, but for what is said.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/block/live_table.h"
#include "allocator/block/registered.h"
#include "allocator/core/types.h"

/* ---- round.c: the bytes of a block for `size` of them */

uint64_t ca_round_request(const struct ca_roundup *roundup, uint64_t size);
static inline uint64_t
ca_rounded(const struct ca_heap *heap, uint64_t size)
{
	if (__builtin_expect(!heap->plain, 0))
		return ca_round_request(&heap->config.roundup, size);
	return ca_round_up(size, CA_GRAIN);
}

/* ---- block.c: states and splitting; merge.c: merging */

/* A record, zeroed but for `quick`. NULL: mmap fails. No free of it ever fails for want of memory.
 */
struct ca_block *ca_block_new_locked(struct ca_heap *heap);
/* And back. A map may still name it (address.c): so it is of no segment. */
static inline void
ca_block_put(struct ca_heap *heap, struct ca_block *block)
{
	block->segment = NULL;
	ca_slabs_put(&heap->blocks, block);
}

static inline uint64_t
ca_block_requested(const struct ca_block *block)
{
	return atomic_load_explicit(&block->requested, memory_order_relaxed);
}

/* 0: not so many grains, or more than are kept count of. */
static inline uint32_t
ca_grains(uint64_t bytes)
{
	uint64_t grains = bytes / CA_GRAIN;

	return bytes % CA_GRAIN || grains > UINT32_MAX ? 0 : (uint32_t)grains;
}

/* Of what an ALLOCATED block that a magazine may have was last asked for, by the rules of sizes. */
static inline uint32_t
ca_block_grains(const struct ca_heap *heap, const struct ca_block *block)
{
	return (uint32_t)(ca_rounded(heap, ca_block_requested(block)) / CA_GRAIN);
}

/* Moves the block's bytes between the sums. Touches no index and no list. */
void ca_block_set_state_locked(struct ca_block *block, enum ca_block_state state);
/* Cuts an unindexed block; *upper, of which nothing but `quick` is known, becomes the part from
 * `bytes` on, in the same state and no index, and next to it in the list of its stream. */
void ca_block_split_locked(struct ca_block *block, uint64_t bytes, struct ca_block *upper);
/* A freed or NEW block in no list and no index becomes free:
 * FREE, merged and indexed, or RETIRED in a retired segment. */
void ca_block_settle_locked(struct ca_block *block);
/* The same for a block that `user` may still use: STREAM_HELD, merged, indexed and in its list.
 * `multi` not NULL: its users are these, and the stream comes after all of them. */
void ca_block_own_locked(struct ca_block *block, struct ca_user user, struct ca_multi_users *multi);
/* The same for a block with several users, of a set: MULTI_HELD. */
void ca_block_wait_locked(struct ca_block *block, struct ca_multi_users *multi);
/* Nobody is the block's user any more. Before it leaves its state; it is in no index. */
void ca_block_drop_users_locked(struct ca_block *block);
/* Free neighbours, from `first` to `last`, become one block, FREE and in no index. */
struct ca_block *ca_block_gather_locked(struct ca_block *first, struct ca_block *last);
/* The block is about to be ALLOCATED, born then, and has several users. */
void ca_block_keep_multi_locked(struct ca_block *block, uint64_t birth);
/* Two neighbours in the same state, STREAM_HELD, MULTI_HELD or FREE, are to be one. */
bool ca_block_is_mergeable(const struct ca_block *block, const struct ca_block *neighbour);
/* Takes the block out of whatever list and index its state has it in, and drops its users. */
void ca_block_detach_locked(struct ca_block *block);

/* There is such a block, and in that state. */
static inline bool
ca_block_is_in(const struct ca_block *block, enum ca_block_state state)
{
	return block && block->state == state;
}

static inline bool
ca_block_is_next_to(const struct ca_block *block, enum ca_block_state state)
{
	return ca_block_is_in(block->prev, state) || ca_block_is_in(block->next, state);
}

/* It waits for streams. */
static inline bool
ca_block_is_held(const struct ca_block *block)
{
	return block->state == CA_BLOCK_STREAM_HELD || block->state == CA_BLOCK_MULTI_HELD;
}

static inline bool
ca_block_waits(const struct ca_block *block)
{
	return block->state == CA_BLOCK_MARK_HELD || ca_block_is_held(block);
}

/* It can be found by its size. */
static inline bool
ca_block_is_free(const struct ca_block *block)
{
	return block->state == CA_BLOCK_FREE || ca_block_is_held(block);
}

static inline bool
ca_block_is_indexed(const struct ca_block *block)
{
	return ca_block_is_free(block) && block->places && block->places->by_size.key;
}

/* NULL: it has one user, or none. */
static inline struct ca_multi_users *
ca_block_multi(const struct ca_block *block)
{
	if (block->state == CA_BLOCK_ALLOCATED)
		return block->has_multi ? block->multi : NULL;
	return ca_block_is_held(block) && block->places ? block->places->multi : NULL;
}

/* All users of an ALLOCATED, STREAM_HELD or MULTI_HELD block, finished or not. A magazine may take
 * an ALLOCATED one, and write `user`, at any time: that block has none to tell. */
static inline void
ca_block_users(const struct ca_block *block, struct ca_users *ret_users)
{
	const struct ca_multi_users *multi = ca_block_multi(block);

	if (multi) {
		*ret_users = multi->users;
		return;
	}
	ret_users->context = false;
	ret_users->n = 0;
	ret_users->user[0] = block->user; /* once */
	if (ret_users->user[0].stream && !ca_user_is_multi(&ret_users->user[0]))
		ret_users->n = 1;
}

/* A block comes out of a magazine whose counts have it as free already. It is FREE, or STREAM_HELD
 * by its user, merged and indexed. `simple`: neither neighbour is free in the other way, so that no
 * sum changes that the counts have not. */
void ca_block_put_back_locked(struct ca_block *block, bool simple);
/* The same, where its users are to be asked first: in no index and no list so far. */
void ca_block_come_out_locked(struct ca_block *block);
/* A FREE or STREAM_HELD one, in no index and no list, becomes ALLOCATED, which a magazine counts.
 */
void ca_block_go_out_locked(struct ca_block *block);

/* The block was the program's, at `address`, and is a magazine's from now on. Needs no lock; the
 * record may mean another block by now, or none. */
static inline bool
ca_block_claims_at(struct ca_block *block, uint64_t address)
{
	uint64_t live = address + CA_QUICK_LIVE;

	return atomic_compare_exchange_strong_explicit(&block->quick, &live,
						       address + CA_QUICK_KEPT,
						       memory_order_acq_rel, memory_order_relaxed);
}

/* Of one in a magazine. The half of the record that has the address, too, is not touched by hits.
 */
static inline uint64_t
ca_block_kept_address(const struct ca_block *block)
{
	return atomic_load_explicit(&block->quick, memory_order_relaxed) - CA_QUICK_KEPT;
}

/* ALLOCATED, and not in a magazine: the program has it. */
static inline bool
ca_block_is_live(const struct ca_block *block)
{
	return block->state == CA_BLOCK_ALLOCATED &&
	       !(atomic_load_explicit(&block->quick, memory_order_acquire) & CA_QUICK_KEPT);
}

/* ---- address.c: blocks by address: the segment, from its map a block below, and on */

/* The program's block that begins at `address` belongs to the caller, for a free: no magazine has
 * or takes it. False: it is not the program's any more. */
bool ca_block_claim_locked(struct ca_block *block);
/* No magazine has or takes a block of the segment any more. Free blocks of its space may be merged.
 */
void ca_block_claim_all_locked(struct ca_segment *segment);
/* The segment that holds `address`, or the last before it, or NULL. */
struct ca_segment *ca_segment_at_most_locked(const struct ca_heap *heap, uint64_t address);
/* The block whose bytes hold `address`, or NULL. */
struct ca_block *ca_block_find_locked(struct ca_heap *heap, uint64_t address);
/*
 * For questions of the program: while the segment is on its way back, the driver may already have
 * given the address to somebody else, so the answer waits until that is decided. Leaves and retakes
 * the lock.
 */
struct ca_block *ca_block_find_settled_locked(struct ca_heap *heap, uint64_t address);

/* ---- pool.c: which block serves, and how it is cut */
/* Two pools, of small blocks and of large ones, become empty. */
void ca_pools_init(struct ca_pool pools[2]);
void ca_pool_unindex_locked(struct ca_block *block);
/* The block is all of its segment. */
void ca_pool_index_whole_locked(struct ca_block *block);
/* A STREAM_HELD or MULTI_HELD block has those users; it may be indexed. */
void ca_pool_carry_locked(struct ca_block *block, struct ca_multi_users *multi);
static inline struct ca_pool *
ca_pool_for(struct ca_space *space, uint64_t bytes)
{
	return &space->pools[bytes > CA_SMALL_MAX];
}
/* The segment the pool's rule asks of the driver for
 * a request of `bytes` (rounded to the grain). */
uint64_t ca_pool_segment_bytes(const struct ca_config *config, uint64_t bytes);
/* Cuts an indexed block for a request: in no index and no list, for the caller to make ALLOCATED.
 * NULL: no record for the rest could be had, nothing was done. */
struct ca_block *ca_pool_cut_locked(struct ca_block *block, uint64_t bytes);
/* Takes an indexed block as it is: in no index and no list. */
struct ca_block *ca_pool_take_whole_locked(struct ca_block *block);
/* True when the cut would use the block as it is. */
bool ca_pool_is_whole(const struct ca_block *block, uint64_t bytes);
/* Could be handed out for `bytes`, whole or cut. */
bool ca_pool_fits(const struct ca_block *block, uint64_t bytes);
/* Not a segment of one large request's size. */
bool ca_pool_is_shared(const struct ca_config *config, const struct ca_block *block);
/* True when the rest of `block` behind the first `bytes` is worth a block of its own. */
bool ca_pool_splits(const struct ca_config *config, const struct ca_block *block, uint64_t bytes);
/* Bytes that a request of 2 MiB or more finds in the block; 0 without a boundary inside. */
static inline uint64_t
ca_block_usable(const struct ca_block *block, uint64_t *ret_pad)
{
	uint64_t pad = (block->segment->address - block->address) & (CA_ALIGNMENT - 1);

	*ret_pad = pad;
	return pad < block->bytes ? block->bytes - pad : 0;
}
/* The same, where it is of use to such a request. */
static inline uint64_t
ca_pool_usable(const struct ca_block *block)
{
	uint64_t pad, usable = block->segment->pool->small ? 0 : ca_block_usable(block, &pad);

	return usable >= CA_ALIGNED_MIN ? usable : 0;
}
/* In the index: a request for up to so many bytes fits. */
static inline uint64_t
ca_pool_key(const struct ca_block *block)
{
	uint64_t pad, usable;

	if (block->bytes < CA_ALIGNED_MIN)
		return block->bytes;
	usable = ca_block_usable(block, &pad);
	return usable >= CA_ALIGNED_MIN ? usable : CA_ALIGNED_MIN - CA_GRAIN;
}
static inline struct ca_block *
ca_pool_block(const struct ca_index_node *node)
{
	return CA_CONTAINER_OF(node, struct ca_places, by_size)->block;
}

/* By its size, a request may have the block, or a part of it. */
static inline bool
ca_pool_allows(const struct ca_heap *heap, const struct ca_block *block, uint64_t bytes)
{
	const struct ca_config *config = &heap->config;

	if (heap->mapping_ended && block->segment->mapped &&
	    block->segment->space->device->budget.fit != CA_FIT_ANY)
		return false;
	if (block->bytes < config->max_split_size_bytes || block->segment->mapped)
		return true;
	if (bytes < config->max_split_size_bytes)
		return false;
	return block->bytes - bytes < config->max_non_split_rounding_bytes || block->bytes == bytes;
}
struct ca_block *ca_pool_find_on_locked(const struct ca_heap *heap, const struct ca_pool *pool,
					uint64_t bytes);
/* Best fit in one pool, or about that, still indexed. NULL: nothing that was looked at fits, and
 * all is looked at if heap->searches_all. */
static inline struct ca_block *
ca_pool_find_locked(const struct ca_heap *heap, const struct ca_pool *pool, uint64_t bytes)
{
	struct ca_index_node *node = ca_index_at_least(&pool->by_size, bytes);

	if (node && ca_pool_allows(heap, ca_pool_block(node), bytes))
		return ca_pool_block(node);
	return node || heap->searches_all ? ca_pool_find_on_locked(heap, pool, bytes) : NULL;
}

/*
 * ---- extent.c: segments that grow and shrink (expandable_segments). Those that leave the lock say
 * so.
 */

static inline struct ca_area *
ca_area_of(const struct ca_segment *segment)
{
	return &segment->space->areas[!segment->pool->small];
}

/* Its memory serves only what cannot be had otherwise: ca_expand_end. */
static inline bool
ca_segment_is_ended(const struct ca_segment *segment)
{
	return segment->mapped && segment->space->heap->mapping_ended;
}

/* Where memory is to be mapped for a request. */
struct ca_growth {
	struct ca_area *area;
	uint64_t address, bytes;
	uint64_t most;    /* bytes that there is room for */
	uint64_t surplus; /* bytes at the top of area->spared_2 that the request does not need */
	bool from_above;  /* more than `bytes` would begin lower, not end higher */
	bool moves;       /* the driver has not failed to move memory just before */
	uint64_t handle_bytes;  /* of new handles, on multiples of that; 2 MiB unless it is said */
	struct ca_list sources; /* ca_segment.hand: memory that moves there (extent_move.c) */
	uint64_t moved;         /* bytes of these */
	uint64_t changes;       /* of the device's generation, as memory was taken and put back */
	struct ca_users users;  /* of all of them together; n 0: they have finished */
};

/* There are addresses for a request of `bytes`, reserved at the first one; else it gets a segment
 * as ever. Leaves the lock. */
bool ca_area_is_ready_locked(struct ca_space *space, uint64_t bytes);
/* The place where a request of `bytes` needs the least new memory: behind or below a free end of an
 * extent, in a hole, or where nothing is. False: there is none. */
bool ca_extent_plan_locked(struct ca_space *space, uint64_t bytes, struct ca_growth *ret_growth);
/* Maps memory there and makes it free: first its sources, with their users, then new memory.
 * Leaves the lock. -EAGAIN: the place is somebody else's by now, or not all could move; the
 * driver's code, -ENOMEM, -ENODEV (space died). */
int ca_extent_grow_locked(struct ca_space *space, struct ca_growth *growth);
/* Takes free memory that is of no use where it is, highest first, until `bytes` of it are to move
 * to the growth, as far as there is room: of these two pools, and of what `may_take` is true for
 * (NULL: of all). */
void ca_extent_take_locked(struct ca_space *space, struct ca_growth *growth, uint64_t bytes,
			   const struct ca_pool pools[2],
			   bool (*may_take)(const struct ca_block *block));
/* The uppermost such handles of the large pool go back to the driver when their users have
 * finished, `bytes` of them. */
void ca_extent_retire_locked(uint64_t bytes, const struct ca_pool pools[2],
			     bool (*may_take)(const struct ca_block *block));
/* The sources are free again where they were. */
void ca_extent_put_back_locked(struct ca_space *space, struct ca_growth *growth);
/* Unmaps addresses of memory that has moved, as far as nobody uses them any more. Leaves the lock.
 */
void ca_extent_leave_locked(struct ca_space *space);
/* The same of all that is finished in fact: every stream is asked first. An error of the driver:
 * something of it is mapped there still. */
int ca_extent_leave_finished_locked(struct ca_space *space);
/* Mapping took more than its share of the time lately: nothing moves. */
bool ca_extent_is_late(const struct ca_space *space);
/* Of a FREE block: whole handles inside that could go back, from above, and just enough for
 * `bytes`. 0: there are none. */
uint64_t ca_extent_drainable(const struct ca_block *block, uint64_t bytes, uint64_t *ret_address);
/* The smallest FREE block of the space's extents that could give `bytes` back, or else the one that
 * gives most; NULL: none gives anything, or not before another thread has unmapped what it is in
 * the middle of (in_flight). */
struct ca_block *ca_extent_candidate_locked(struct ca_space *space, uint64_t bytes);
/* All of them, held or in use blocks left out. Bytes. */
uint64_t ca_extents_drainable_locked(const struct ca_space *space);
/* Gives that of a FREE block back. Leaves the lock. As ca_segment_release_locked. */
uint64_t ca_extent_release_locked(struct ca_block *block, uint64_t bytes, bool *ret_busy);
/* As ca_segment_return_locked, which calls it: of a segment whose work is known to have finished.
 * Leaves the lock. -EAGAIN: a block of it is MARK_HELD; -EINPROGRESS: another thread unmaps where
 * memory has moved away, which may be this. */
int ca_extent_return_locked(struct ca_segment *segment);
/* The space is dead: the records of its extents but for their addresses, which are being left, so
 * that no block of a dead space is to be found when the lock is free. */
void ca_extents_forget_locked(struct ca_space *space);
/* And then all that is mapped for it goes back, and the addresses. Without the lock. */
void ca_extents_end(struct ca_space *space);

/* ---- segment.c: taking from and giving back to the driver. These leave and retake the lock.
 */

enum ca_segment_kind {
	CA_SEGMENT_CUT,     /* the rest behind the block may become a free block */
	CA_SEGMENT_WHOLE,   /* one block */
	CA_SEGMENT_MANAGED, /* one block of managed memory, never cached */
};

/* A segment of segment_bytes and in it a NEW block of `bytes` at its start, for the caller to
 * make ALLOCATED. Driver's code, -ENOMEM, -ENODEV (space died). */
int ca_segment_take_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
			   enum ca_segment_kind kind, struct ca_block **ret_block);
/* Enters a segment of one NEW block that somebody else took. -ENOMEM. */
int ca_segment_enter_locked(struct ca_space *space, uint64_t address, uint64_t bytes,
			    struct ca_block **ret_block);
/*
 * Gives a segment back whose blocks are RETIRED or MARK_HELD and whose `hand` is in no list. 0:
 * gone, forgotten; otherwise it is still there unless it died meanwhile, in which case 0 is
 * returned: > 0 the driver's code, -EBUSY, and what ca_extent_return_locked says.
 */
int ca_segment_return_locked(struct ca_segment *segment);
/* Drops the records of a segment and all its blocks, without the driver. */
void ca_segment_forget_locked(struct ca_segment *segment);
/* The first part of it: one NEW block, in no list, is left. */
void ca_segment_forget_blocks_locked(struct ca_segment *segment);
/* And the last: a segment of one block, in no sum, ends. */
void ca_segment_drop_locked(struct ca_segment *segment);
/* No reuse from now on; without a live block it is due for return. */
void ca_segment_retire_locked(struct ca_segment *segment);
/* Gives a whole FREE segment back, by its one block. Bytes given back; 0: the driver did not take
 * it, and it is FREE again. *ret_busy (may be NULL) is set when a capture stood in the way. */
uint64_t ca_segment_release_locked(struct ca_block *block, bool *ret_busy);
/* Into the list of its space, and the sums; and out again, without a live block. */
void ca_segment_list_locked(struct ca_segment *segment);
void ca_segment_unlist_locked(struct ca_segment *segment);
/* A new round of giving back begins: segments that the driver refused in the last one are offered
 * again. */
void ca_segment_reset_stuck_locked(struct ca_space *space);
/* A retired segment in no list, without a live block, goes back when it can. */
void ca_segment_make_due_locked(struct ca_segment *segment);
/* Returns what `due` holds, if all that may use it has finished (deferred/await.c). Bytes given
 * back; *ret_busy as above. */
uint64_t ca_segment_return_due_locked(struct ca_space *space, bool *ret_busy);
