/* SPDX-License-Identifier: MIT */
/*
 * New memory by growing an extent (block/extent.c): where a request needs the least, its place is
 * planned, the limits that the user set are asked, and what is mapped there becomes free. The
 * request is then served by an ordinary search, since what is free beside the new memory may be
 * another thread's by then, or something better may have become free.
 */
#include "allocator/policy/internal.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/tcache.h"

enum { TRIES = 3 }; /* then it gets a segment: other threads take what it maps */

uint64_t
ca_expand_bytes_locked(struct ca_space *space, uint64_t bytes, uint64_t segment_bytes)
{
	struct ca_growth growth;

	return ca_extent_plan_locked(space, bytes, &growth) ? growth.bytes : segment_bytes;
}

bool
ca_expand_done_locked(struct ca_space *space)
{
	bool any = false;
	unsigned i;

	for (i = 0; i < 2; i++) {
		any = any || space->areas[i].spared || space->areas[i].spared_2;
		space->areas[i].spared = space->areas[i].spared_2 = 0;
	}
	return any;
}

/* The block that has grown, where a search would leave it for another that it then declines. */
static struct ca_block *
grown(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block = ca_block_find_locked(space->heap, growth->address);

	if (!block || !ca_pool_fits(block, bytes) || !ca_block_is_free(block))
		return NULL;
	return block->state == CA_BLOCK_FREE ||
			       ca_held_may_take_locked(
				       block, !ca_move_may_wait_locked(space, growth, bytes))
		       ? block
		       : NULL;
}

/* A block that other streams may still use, behind a wait of the device. */
static struct ca_block *
late(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block;

	if (!ca_move_may_wait_locked(space, growth, bytes))
		return NULL;
	block = ca_search_exposable_locked(space, bytes);
	if (!block)
		block = ca_search_exposable_late_locked(space, bytes);
	return block ? block : ca_gather_locked(space, bytes, false);
}

/* No hit: the block was made for the request. */
static struct ca_block *
take(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes, bool moved)
{
	struct ca_block *block;

	space->heap->searches_all = true;
	block = ca_search_locked(space, bytes);
	space->heap->searches_all = false;
	if (!block)
		block = grown(space, growth, bytes);
	if (!block && moved)
		block = late(space, growth, bytes);
	if (!block || block->state != CA_BLOCK_FREE)
		return ca_alloc_hit_locked(space, block, bytes, false);
	block = ca_pool_cut_locked(block, bytes);
	if (block)
		block->user.stream = NULL;
	return block;
}

/* Before the cache grows beyond the slack: work that has finished meanwhile may have left something
 * that fits, or that can move; and others' memory will do, behind a wait of the device. */
static struct ca_block *
look(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block;

	ca_deferred_poll_locked(space);
	ca_extent_leave_locked(space);
	block = space->dead ? NULL : take(space, growth, bytes, false);
	if (block || space->dead)
		return block;
	return ca_alloc_hit_locked(space, late(space, growth, bytes), bytes, true);
}

/* Whole handles of what serves nobody any more: at least `bytes`, or all. */
static void
give_back(struct ca_space *space, uint64_t bytes)
{
	uint64_t given = 0, more = 1;
	struct ca_block *block;

	while (given < bytes && more && !space->dead) {
		block = ca_extent_candidate_locked(space, bytes - given);
		more = block ? ca_extent_release_locked(block, bytes - given, NULL) : 0;
		given += more;
	}
}

int
ca_expand_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	struct ca_growth growth;
	bool all = false, moves = false;
	unsigned tries;
	int r;

	if (space->heap->mapping_ended)
		give_back(space, bytes);
	if (!space->heap->config.expandable_segments || space->heap->mapping_ended)
		return space->dead ? -ENODEV : -ENOTSUP;
	ca_limit_update_locked(space);
	for (tries = 0; tries < TRIES; tries++) {
		if (!ca_extent_plan_locked(space, bytes, &growth))
			return space->dead ? -ENODEV : -ENOTSUP;
		if (!moves && ca_move_is_wanted_locked(space, &growth, bytes)) {
			moves = true;
			*ret_block = look(space, &growth, bytes);
			if (*ret_block)
				return 0;
			if (!ca_extent_plan_locked(space, bytes, &growth))
				return space->dead ? -ENODEV : -ENOTSUP;
		}
		r = ca_move_grow_locked(space, &growth, bytes, all);
		ca_oom_tried.own_changes += growth.changes;
		if (space->dead)
			return -ENODEV;
		*ret_block = take(space, &growth, bytes, moves);
		if (*ret_block) {
			ca_budget_taken_locked(space, growth.bytes);
			return 0;
		}
		if ((r == CA_DRIVER_OUT_OF_MEMORY && all) || r == -ENOMEM)
			return r;
		all = r == CA_DRIVER_OUT_OF_MEMORY;
	}
	return r == CA_DRIVER_OUT_OF_MEMORY ? r : -ENOTSUP;
}

void
ca_expand_end(struct ca_heap *heap)
{
	struct ca_space *space;

	CA_HEAP_LOCKED(heap);
	heap->mapping_ended = true;
	for (space = heap->spaces; space; space = space->next) {
		if (space->dead)
			continue;
		CA_LIST_EACH(struct ca_segment, segment, &space->segments, link)
			if (segment->mapped)
				ca_block_claim_all_locked(segment);
		ca_held_settle_locked(space);
		give_back(space, UINT64_MAX);
	}
}
