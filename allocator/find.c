/* SPDX-License-Identifier: MIT */
/*
 * Blocks by address: trees of all of them, and in front of those a table of the LIVE ones
 * (bases.c), since nearly every question is a free, which names the base of a live block.
 */
#include "allocator/inside.h"

#include <sched.h>

bool
ca_block_claim_locked(struct ca_block *block)
{
	uint64_t live = block->address | CA_QUICK_LIVE;

	if (block->state != CA_BLOCK_LIVE)
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
		if (block->state != CA_BLOCK_LIVE || ca_block_claim_locked(block)) {
			block = block->next;
			continue;
		}
		ca_magazines_clear_locked(segment->space);
		/* or a thread is about to see that its magazine is not for this block */
		ca_magazines_pass_locked(segment->space->heap);
		block = segment->first;
	}
}

struct ca_segment *
ca_segment_at_most_locked(const struct ca_heap *heap, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&heap->by_address, address);

	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address) : NULL;
}

struct ca_block *
ca_block_find_locked(struct ca_heap *heap, uint64_t address)
{
	const struct ca_segment *segment = ca_segment_at_most_locked(heap, address);

	if (!segment || address - segment->address >= segment->bytes)
		return NULL;
	return CA_CONTAINER_OF(ca_tree_at_most(&segment->blocks, address), struct ca_block,
			       by_address);
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
