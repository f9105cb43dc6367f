/* SPDX-License-Identifier: MIT */
/*
 * Blocks by address: a tree of all of them, and in front of it a table of those handed out lately,
 * since nearly every question is a free, which names the base of a live block.
 */
#include "allocator/inside.h"

#include <sched.h>

static unsigned
base_slot(uint64_t address)
{
	/* Fibonacci hashing: the top bits */
	return (unsigned)(address / CA_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> (64 - CA_BASES_LOG));
}

void
ca_block_hand_out_locked(struct ca_block *block)
{
	ca_block_set_state_locked(block, CA_BLOCK_LIVE);
	block->segment->space->heap->bases[base_slot(block->address)] = block;
}

/*
 * Nothing is taken out: a record that is not LIVE at just this address is not the answer, whatever
 * it is used for now (records are never unmapped while the heap is there), and one that is LIVE
 * there is in the heap, since records are put back in another state.
 */
struct ca_block *
ca_block_base_locked(const struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block = heap->bases[base_slot(address)];

	if (!block || block->address != address || block->state != CA_BLOCK_LIVE)
		return NULL;
	return block;
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
