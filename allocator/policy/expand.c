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
grown(const struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block = ca_block_find_locked(space->heap, growth->address);

	return block && block->state == CA_BLOCK_FREE && ca_pool_fits(block, bytes) ? block : NULL;
}

/* No hit: the block was made for the request. */
static struct ca_block *
take(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block;

	space->heap->searches_all = true;
	block = ca_search_locked(space, bytes);
	space->heap->searches_all = false;
	if (!block)
		block = grown(space, growth, bytes);
	if (!block || block->state != CA_BLOCK_FREE)
		return ca_alloc_hit_locked(space, block, bytes, false);
	block = ca_pool_cut_locked(block, bytes);
	if (block)
		block->user.stream = NULL;
	return block;
}

static int
expand(struct ca_space *space, const struct ca_growth *growth)
{
	if (space->heap->limited)
		ca_limit_update_locked(space);
	if (space->heap->limited && !space->dead &&
	    ca_limit_needed_locked(space, growth->bytes, true)) {
		ca_oom_tried.rejected_by_us = true;
		return CA_DRIVER_OUT_OF_MEMORY;
	}
	return ca_extent_grow_locked(space, growth);
}

int
ca_expand_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	struct ca_growth growth;
	unsigned tries;
	int r;

	for (tries = 0; tries < TRIES; tries++) {
		if (!ca_extent_plan_locked(space, bytes, &growth))
			return space->dead ? -ENODEV : -ENOTSUP;
		r = expand(space, &growth);
		if (space->dead)
			return -ENODEV;
		*ret_block = take(space, &growth, bytes);
		if (*ret_block) {
			ca_budget_taken_locked(space, growth.bytes);
			return 0;
		}
		if (r == CA_DRIVER_OUT_OF_MEMORY || r == -ENOMEM)
			return r;
	}
	return -ENOTSUP;
}

void
ca_expand_end(struct ca_heap *heap)
{
	struct ca_space *space;
	struct ca_block *block;

	CA_HEAP_LOCKED(heap);
	for (space = heap->spaces; space; space = space->next) {
		space->areas[0].rejected = space->areas[1].rejected = true;
		ca_magazines_clear_locked(space);
		ca_held_settle_locked(space);
		while ((block = ca_extent_candidate_locked(space, UINT64_MAX)) &&
		       ca_extent_release_locked(block, UINT64_MAX, NULL))
			;
	}
}
