/* SPDX-License-Identifier: MIT */
/*
 * Blocks by address. Nearly every question is a free, which names the base of a live block: for
 * that there is a table (live_table.c). Otherwise the segment is looked up in a tree, and its
 * blocks are walked, from one that its map names. A map has the blocks that earlier walks have
 * passed, one for each part of the segment. Nobody takes them out when they are merged or cut: what
 * still is a block of the segment is a place to begin, and a record that is not, or is another
 * segment's by now, says so itself. (Records are never unmapped: util/slab.h.)
 */
#include "allocator/block/block.h"

#include "allocator/core/lock.h"
#include "allocator/util/yield.h"

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

/* The part of the segment, of as many as the map has, that holds the address. */
static unsigned
part_of(const struct ca_segment *segment, uint64_t address)
{
	unsigned bits = segment->bytes > 1 ? 64 - (unsigned)__builtin_clzll(segment->bytes - 1) : 0;

	return (unsigned)((address - segment->address) >>
			  (bits > CA_SEGMENT_MAP_LOG ? bits - CA_SEGMENT_MAP_LOG : 0));
}

/* A block of the segment at or below the address, by its map. */
static struct ca_block *
start_at(const struct ca_segment *segment, uint64_t address)
{
	unsigned i = segment->map ? part_of(segment, address) + 1 : 0;

	while (i--) {
		struct ca_block *block = segment->map->at[i];

		if (block && block->segment == segment && block->address <= address)
			return block;
	}
	return segment->first;
}

struct ca_block *
ca_block_find_locked(struct ca_heap *heap, uint64_t address)
{
	struct ca_segment *segment = ca_segment_at_most_locked(heap, address);
	struct ca_block *block;

	if (!segment || address - segment->address >= segment->bytes)
		return NULL;
	block = start_at(segment, address);
	if (address - block->address >= block->bytes && !segment->map)
		segment->map = ca_objects_get(&heap->segment_maps);
	while (address - block->address >= block->bytes) {
		block = block->next;
		if (segment->map)
			segment->map->at[part_of(segment, block->address)] = block;
	}
	return block;
}

struct ca_block *
ca_block_find_settled_locked(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block;

	while ((block = ca_block_find_locked(heap, address)) && block->segment->returning &&
	       !ca_outside_self()) {
		ca_heap_unlock(heap);
		ca_yield();
		ca_heap_lock(heap);
	}
	return block;
}
