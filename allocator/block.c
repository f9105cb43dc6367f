/* SPDX-License-Identifier: MIT */
/*
 * Blocks tile their segment from end to end; each is in one state, and the state decides which sums
 * hold its bytes (LIVE: requested, allocated, active; WAITING: active; CLEAN: cached). Every change
 * of state goes through ca_block_set_state_locked, so the sums are exact by construction.
 *
 * A block that becomes free merges with CLEAN neighbours: the lowest record survives, the others go
 * back.
 */
#include "allocator/inside.h"

#include <sched.h>

static void
sums_leave(struct ca_stats *stats, const struct ca_block *block)
{
	switch (block->state) {
	case CA_BLOCK_LIVE:
		ca_gauge_sub(&stats->requested_bytes, block->requested);
		ca_gauge_sub(&stats->allocated_bytes, block->bytes);
		break;
	case CA_BLOCK_CLEAN:
		ca_gauge_sub(&stats->cached_bytes, block->bytes);
		break;
	default:
		break;
	}
}

static void
sums_enter(struct ca_stats *stats, const struct ca_block *block)
{
	switch (block->state) {
	case CA_BLOCK_LIVE:
		ca_gauge_add(&stats->requested_bytes, block->requested);
		ca_gauge_add(&stats->allocated_bytes, block->bytes);
		break;
	case CA_BLOCK_CLEAN:
		ca_gauge_add(&stats->cached_bytes, block->bytes);
		break;
	default:
		break;
	}
}

static bool
active(enum ca_block_state state)
{
	return state == CA_BLOCK_LIVE || state == CA_BLOCK_WAITING;
}

static void
live_change(struct ca_segment *segment, bool was, bool is)
{
	struct ca_device *device = segment->space->device;

	if (was == is)
		return;
	if (segment->live == 0)
		device->drainable_bytes -= segment->bytes;
	segment->live += is ? 1 : (uint64_t)-1;
	if (segment->live == 0)
		device->drainable_bytes += segment->bytes;
}

static void
waiting_change(struct ca_block *block, bool was, bool is)
{
	struct ca_segment *segment = block->segment;

	if (was && !is) {
		segment->pool->waiting_bytes -= block->bytes;
		segment->space->waiting_blocks--;
	} else if (is && !was) {
		segment->pool->waiting_bytes += block->bytes;
		segment->space->waiting_blocks++;
	}
}

void
ca_block_set_state_locked(struct ca_block *block, enum ca_block_state state)
{
	struct ca_device *device = block->segment->space->device;
	enum ca_block_state was = block->state;

	sums_leave(&device->stats, block);
	block->state = state;
	sums_enter(&device->stats, block);
	if (active(was) && !active(state))
		ca_gauge_sub(&device->stats.active_bytes, block->bytes);
	else if (active(state) && !active(was))
		ca_gauge_add(&device->stats.active_bytes, block->bytes);
	waiting_change(block, was == CA_BLOCK_WAITING, state == CA_BLOCK_WAITING);
	live_change(block->segment, was == CA_BLOCK_LIVE, state == CA_BLOCK_LIVE);
	if (state != CA_BLOCK_LIVE)
		device->generation++;
}

void
ca_block_split_locked(struct ca_block *block, uint64_t bytes, struct ca_block *upper)
{
	struct ca_heap *heap = block->segment->space->heap;

	upper->segment = block->segment;
	upper->address = block->address + bytes;
	upper->bytes = block->bytes - bytes;
	upper->state = block->state;
	ca_list_init(&upper->waiting);
	upper->prev = block;
	upper->next = block->next;
	if (upper->next)
		upper->next->prev = upper;
	block->next = upper;
	block->bytes = bytes;
	ca_tree_insert(&heap->by_address, &upper->by_address, upper->address, 0);
}

/* Appends block->next, CLEAN and unindexed as `block` itself, to `block`. */
static void
merge_next(struct ca_block *block)
{
	struct ca_heap *heap = block->segment->space->heap;
	struct ca_block *upper = block->next;

	block->bytes += upper->bytes;
	block->next = upper->next;
	if (block->next)
		block->next->prev = block;
	ca_tree_remove(&heap->by_address, &upper->by_address);
	ca_objects_put(&heap->blocks, upper);
}

void
ca_block_settle_locked(struct ca_block *block)
{
	if (block->segment->retired) {
		ca_block_set_state_locked(block, CA_BLOCK_IDLE);
		return;
	}
	ca_block_set_state_locked(block, CA_BLOCK_CLEAN);
	if (block->next && block->next->state == CA_BLOCK_CLEAN) {
		ca_pool_unindex_locked(block->next);
		merge_next(block);
	}
	if (block->prev && block->prev->state == CA_BLOCK_CLEAN) {
		block = block->prev;
		ca_pool_unindex_locked(block);
		merge_next(block);
	}
	ca_pool_index_locked(block);
}

struct ca_block *
ca_block_find_locked(struct ca_heap *heap, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&heap->by_address, address);
	struct ca_block *block;

	if (!node)
		return NULL;
	block = CA_CONTAINER_OF(node, struct ca_block, by_address);
	return address - block->address < block->bytes ? block : NULL;
}

struct ca_block *
ca_block_find_settled_locked(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block;

	while ((block = ca_block_find_locked(heap, address)) && block->segment->returning &&
	       !ca_outside_self()) {
		ca_heap_unlock(heap);
		sched_yield();
		ca_heap_lock(heap);
	}
	return block;
}
