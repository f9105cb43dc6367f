/* SPDX-License-Identifier: MIT */
#include "allocator/block/lease.h"

#include "allocator/block/block_inside.h"
#include "config/mutant.h"

enum {
	/* Records that a lease has for its next steps, and those that it may come to have. */
	BLOCKS = 64,
	PLACES = 32,
};

bool
ca_lease_may_begin(const struct ca_segment *segment)
{
	const struct ca_config *config = &segment->space->heap->config;

	return (segment->pool->small || (segment->bytes <= config->large_segment_size_bytes &&
					 segment->bytes < config->max_split_size_bytes)) &&
	       !segment->lease && !segment->mapped && !segment->foreign && !segment->retired &&
	       !segment->managed && !segment->returning && !segment->captured &&
	       !segment->registered && segment->address % CA_GRAIN == 0;
}

static struct ca_index *
index_of(struct ca_lease *lease, const struct ca_segment *segment)
{
	return &lease->by_size[!segment->pool->small];
}

bool
ca_lease_begin_locked(struct ca_lease *lease, struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	struct ca_block *block;

	for (block = segment->first; block; block = block->next)
		if (block->state != CA_BLOCK_ALLOCATED && block->state != CA_BLOCK_FREE &&
		    !CA_MUTANT(LEASED_OVER_HELD))
			return false;
	if (!lease->is_listed) {
		if (!space->heap->leases && !ca_bases_share_locked(&space->heap->bases))
			return false;
		lease->is_listed = true;
		lease->next = space->heap->leases;
		space->heap->leases = lease;
	}
	segment->lease = lease;
	segment->next_leased = lease->segments[!segment->pool->small];
	lease->segments[!segment->pool->small] = segment;
	segment->standing = 0;
	ca_index_remove(&space->wholes, &segment->by_whole);
	if (!segment->live)
		space->device->drainable_bytes -= segment->bytes;
	segment->live = 1; /* it is counted when the lease ends */
	for (block = segment->first; block; block = block->next) {
		if (block->state != CA_BLOCK_FREE)
			continue;
		ca_index_remove(&segment->pool->by_size, &block->places->by_size);
		ca_index_set(index_of(lease, segment), &block->places->by_size, block->bytes);
	}
	return true;
}

static void
segment_end(struct ca_lease *lease, struct ca_segment *segment)
{
	struct ca_block *block;

	segment->lease = NULL;
	segment->space->device->generation++;
	segment->live = 0;
	for (block = segment->first; block; block = block->next) {
		if (block->state != CA_BLOCK_FREE) {
			segment->live++;
			continue;
		}
		ca_index_remove(index_of(lease, segment), &block->places->by_size);
		ca_pool_index_locked(block);
	}
	if (!segment->live)
		segment->space->device->drainable_bytes += segment->bytes;
}

bool
ca_lease_yield_locked(struct ca_lease *lease, uint64_t bytes)
{
	const bool large = bytes > CA_SMALL_MAX;
	struct ca_index_node *node = ca_index_at_least(&lease->by_size[large], bytes);
	struct ca_segment **link = &lease->segments[large], *segment;

	if (!node)
		return false;
	segment = ca_pool_block(node)->segment;
	while (*link != segment)
		link = &(*link)->next_leased;
	*link = segment->next_leased;
	segment_end(lease, segment);
	return true;
}

static struct ca_block *
block_get(struct ca_lease *lease)
{
	struct ca_block *block = lease->blocks;

	lease->blocks = block->next;
	lease->n_blocks--;
	return block;
}

static void
block_put(struct ca_lease *lease, struct ca_block *block)
{
	block->segment = NULL;
	block->next = lease->blocks;
	lease->blocks = block;
	lease->n_blocks++;
}

static struct ca_places *
places_get(struct ca_lease *lease)
{
	struct ca_index_node *node = lease->places;

	lease->places = node->next;
	lease->n_places--;
	return CA_CONTAINER_OF(node, struct ca_places, by_size);
}

static void
places_put(struct ca_lease *lease, struct ca_places *places)
{
	places->by_size.next = lease->places;
	lease->places = &places->by_size;
	lease->n_places++;
}

/* No more than so many are left: of places first, since each comes with a block. */
static void
give_back(struct ca_lease *lease, struct ca_heap *heap, unsigned n_blocks, unsigned n_places)
{
	while (lease->n_places > n_places)
		ca_slabs_put(&heap->places, places_get(lease));
	while (lease->n_blocks > n_blocks)
		ca_slabs_put(&heap->blocks, block_get(lease));
}

void
ca_lease_end_locked(struct ca_lease *lease, struct ca_heap *heap)
{
	struct ca_lease **link = &heap->leases;
	struct ca_segment *segment;
	unsigned i;

	for (i = 0; i < 2; i++)
		while ((segment = lease->segments[i])) {
			lease->segments[i] = segment->next_leased;
			segment_end(lease, segment);
		}
	give_back(lease, heap, 0, 0);
	if (!CA_MUTANT(LEASE_UNCOUNTED))
		heap->bases.entered += lease->entered;
	lease->entered = 0;
	lease->is_listed = false;
	while (*link != lease)
		link = &(*link)->next;
	*link = lease->next;
	if (!heap->leases)
		ca_bases_unshare_locked(&heap->bases);
}

void
ca_lease_supply_locked(struct ca_lease *lease, struct ca_heap *heap)
{
	give_back(lease, heap, 2 * BLOCKS, PLACES);
	while (lease->n_blocks < BLOCKS) {
		struct ca_block *block = ca_block_again(heap);

		if (!block)
			break;
		block_put(lease, block);
	}
	while (lease->n_places < PLACES / 2 && lease->n_places < lease->n_blocks / 2)
		places_put(lease, ca_slabs_again(&heap->places));
}

struct ca_block *
ca_lease_cut(struct ca_lease *lease, struct ca_heap *heap, uint64_t bytes)
{
	struct ca_index *index = &lease->by_size[bytes > CA_SMALL_MAX];
	struct ca_index_node *node = ca_index_at_least(index, bytes);
	struct ca_block *block = node ? ca_pool_block(node) : NULL, *lower;

	if (!block || (CA_MUTANT(LEASE_SPARES_UNEQUAL) ? !lease->n_blocks
						       : lease->n_blocks <= lease->n_places))
		return NULL;
	lower = ca_pool_splits(&heap->config, block, bytes) ? lease->blocks : block;
	if (!ca_bases_enter_atomic(&heap->bases, lower, block->address))
		return NULL;
	lease->entered++;
	if (lower == block) {
		ca_index_remove(index, node);
		places_put(lease, block->places);
	} else {
		block_get(lease);
		ca_block_split_lower_locked(block, bytes, lower);
		ca_index_set(index, node, block->bytes);
	}
	lower->state = CA_BLOCK_ALLOCATED;
	lower->user.stream = NULL;
	return lower;
}

static bool
is_free(const struct ca_block *block)
{
	return block && block->state == CA_BLOCK_FREE;
}

/* `block` gets the bytes of block->next, which is in no index, and whose record is free. */
static void
absorb_next(struct ca_lease *lease, struct ca_block *block)
{
	struct ca_block *upper = block->next;

	if (upper->thread != block->thread)
		block->thread = 0;
	block->bytes += upper->bytes;
	block->next = upper->next;
	if (block->next)
		block->next->prev = block;
	block_put(lease, upper);
}

bool
ca_lease_settle(struct ca_lease *lease, struct ca_heap *heap, struct ca_block *block)
{
	struct ca_index *index = index_of(lease, block->segment);
	struct ca_places *places;

	if (!is_free(block->prev) && !is_free(block->next) && !lease->places)
		return false;
	lease->entered -= ca_bases_leave_atomic(&heap->bases, block);
	atomic_store_explicit(&block->quick, 0, memory_order_relaxed);
	block->state = CA_BLOCK_FREE;
	block->places = NULL;
	if (is_free(block->next)) {
		block->places = block->next->places;
		block->places->block = block;
		absorb_next(lease, block);
	}
	if (is_free(block->prev)) {
		if (block->places) {
			ca_index_remove(index, &block->places->by_size);
			places_put(lease, block->places);
		}
		block = block->prev;
		absorb_next(lease, block);
	}
	if (!block->places) {
		places = block->places = places_get(lease);
		places->by_size.key = 0;
		places->block = block;
		places->multi = NULL;
	}
	ca_index_set(index, &block->places->by_size, block->bytes);
	return true;
}
