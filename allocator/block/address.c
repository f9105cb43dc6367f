/* SPDX-License-Identifier: MIT */
/*
 * Blocks by address. Nearly every question is a free, which names the base of a live block: for
 * that there is a table (live_table.c). Otherwise the segment is looked up in a tree, and its
 * blocks are walked, from the one that its map names for that part of it: at most a 16th of the
 * segment.
 */
#include "allocator/block/block.h"

#include <sched.h>

#include "allocator/core/lock.h"

bool
ca_block_claim_locked(struct ca_block *block)
{
	uint64_t live = block->address | CA_QUICK_LIVE;

	if (block->state != CA_BLOCK_ALLOCATED)
		return false;
	if (atomic_compare_exchange_strong(&block->quick, &live, 0))
		return true;
	return live == 0; /* no magazine may take it: it was the lock's alone */
}

void
ca_block_claim_all_locked(struct ca_segment *segment)
{
	struct ca_block *block = segment->first;

	while (block) {
		if (block->state != CA_BLOCK_ALLOCATED || ca_block_claim_locked(block)) {
			block = block->next;
			continue;
		}
		segment->space->heap->hooks.flush(segment->space);
		/* or a thread is about to see that its magazine is not for this block */
		segment->space->heap->hooks.flush_exposed(segment->space->heap);
		block = segment->first;
	}
}

struct ca_segment *
ca_segment_at_most_locked(const struct ca_heap *heap, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&heap->by_address, address);

	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address) : NULL;
}

unsigned char
ca_segment_map_log(uint64_t bytes)
{
	unsigned bits = bytes > 1 ? 64 - (unsigned)__builtin_clzll(bytes - 1) : 0;

	return bits > CA_CHART_LOG ? (unsigned char)(bits - CA_CHART_LOG) : 0;
}

void
ca_segment_map_make_locked(struct ca_segment *segment)
{
	struct ca_block *block;

	segment->map = ca_objects_get(&segment->space->heap->segment_maps);
	for (block = segment->first; segment->map && block; block = block->next)
		ca_segment_map_note_locked(block, block->address, block->bytes);
}

struct ca_block *
ca_block_find_locked(struct ca_heap *heap, uint64_t address)
{
	const struct ca_segment *segment = ca_segment_at_most_locked(heap, address);
	struct ca_block *block;

	if (!segment || address - segment->address >= segment->bytes)
		return NULL;
	block = segment->first;
	if (segment->map)
		block = segment->map->at[(address - segment->address) >> segment->map_log];
	while (address - block->address >= block->bytes)
		block = block->next;
	return block;
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
