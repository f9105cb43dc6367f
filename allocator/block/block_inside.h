/* SPDX-License-Identifier: MIT */
/* Steps of this folder that every miss and every merge takes. The heap's lock is held. */
#pragma once

#include "allocator/block/block.h"
#include "allocator/order/order.h"

/* The block becomes ALLOCATED (sign 1) or ceases to be (-1, modulo 2^64). */
static inline void
ca_block_live_change(struct ca_block *block, uint64_t sign)
{
	struct ca_segment *segment = block->segment;
	struct ca_device *device = segment->space->device;
	struct ca_bases *bases = &segment->space->heap->bases;

	if (sign == 1) {
		ca_bases_enter_locked(bases, block);
	} else {
		ca_bases_leave_locked(bases, block);
		block->places = NULL; /* `birth`, or `below`, ends here */
	}

	if (segment->live == 0)
		device->drainable_bytes -= segment->bytes;
	segment->live += sign;
	if (segment->live == 0)
		device->drainable_bytes += segment->bytes;
}

/* Adds (sign 1) or takes away (-1, modulo 2^64) a STREAM_HELD block that waits. */
static inline void
ca_owned_count(struct ca_block *block, uint64_t sign)
{
	struct ca_segment *segment = block->segment;

	segment->pool->owned_bytes += sign * block->bytes;
	ca_change(&segment->space->stream_held_blocks, sign);
}

/* Whose index a FREE, STREAM_HELD or MULTI_HELD block is in. */
static inline struct ca_pool *
ca_pool_of(const struct ca_block *block)
{
	struct ca_pool *pool = block->segment->pool;

	if (block->state == CA_BLOCK_STREAM_HELD)
		return &ca_held_record(&block->user)->pools[!pool->small];
	if (block->state == CA_BLOCK_MULTI_HELD)
		return &ca_block_multi(block)->set->pools[!pool->small];
	return pool;
}

/* Each block can have some without fail. */
static inline struct ca_places *
ca_places_of(struct ca_heap *heap, struct ca_block *block)
{
	struct ca_places *places = block->places;

	if (places)
		return places;
	places = ca_slabs_again(&heap->places);
	places->by_size.key = 0;
	places->block = block;
	places->multi = NULL;
	return block->places = places;
}

/* Also if it is indexed already, and its bytes or address have changed. */
static inline void
ca_pool_index_locked(struct ca_block *block)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no caller has none */
	struct ca_segment *segment = block->segment;
	struct ca_places *places = ca_places_of(segment->space->heap, block);

	ca_index_set(&ca_pool_of(block)->by_size, &places->by_size, ca_pool_key(block));
	if (block->prev || block->next)
		ca_index_remove(&segment->space->wholes, &segment->by_whole);
	else
		ca_pool_index_whole_locked(block);
}

/* A record, not zeroed but for `quick`. NULL: mmap fails. */
static inline struct ca_block *
ca_block_again(struct ca_heap *heap)
{
	if (__builtin_expect(heap->places.capacity <= heap->blocks.used, 0) &&
	    !ca_slabs_reserve(&heap->places, heap->blocks.used + 1))
		return NULL;
	return ca_slabs_again(&heap->blocks);
}

/* Cuts a block: `lower`, of which nothing but `quick` is known, becomes the first `bytes`, in no
 * index and no list; `block`, what is left, may stay indexed, but has to be indexed again. */
static inline void
ca_block_split_lower_locked(struct ca_block *block, uint64_t bytes, struct ca_block *lower)
{
	struct ca_segment *segment = block->segment;

	lower->segment = segment;
	lower->address = block->address;
	lower->bytes = bytes;
	ca_list_init(&lower->waiting);
	lower->user = block->user;
	lower->places = NULL;
	lower->thread = block->thread;
	lower->space_and_state = block->space_and_state;
	if (ca_block_is_held(block))
		ca_change(&segment->space->stream_held_blocks, 1);
	lower->prev = block->prev;
	lower->next = block;
	if (lower->prev)
		lower->prev->next = lower;
	else
		segment->first = lower;
	block->prev = lower;
	block->address += bytes;
	block->bytes -= bytes;
}
