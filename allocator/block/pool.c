/* SPDX-License-Identifier: MIT */
/*
 * A space has two pools of FREE blocks, a stream two of the blocks that are STREAM_HELD by it, and
 * each set of streams two of those that are MULTI_HELD by it: small blocks (up to 1 MiB, from 2 MiB
 * segments) and large ones. Best fit is the first large enough block in the list of
 * the request's class of sizes, or of the next class that has one (allocator/util/size_index.h):
 * what a search looks at is bounded. Only where memory is short (heap->searches_all) a list is
 * looked at to its end.
 *
 * A request of 2 MiB or more starts on a 64 KiB boundary of its segment, so that two of them never
 * share a page of that size, which is what network cards pin (gdrcopy); CUDA itself promises 256
 * bytes. A segment starts on a 2 MiB boundary, and so does a request that a new segment is made
 * for. (Boundaries of 2 MiB inside segments, too, cost up to 4 points of waste over live on a third
 * of the 44 workloads: W4b 9.9 instead of 5.6 %, W9 41.3 instead of 37.5 %.) So a block of the
 * large pool that has 2 MiB or more from its first boundary on is indexed by those bytes, any other
 * as less than 2 MiB; the hole in front of the boundary is cut off and stays free for requests
 * below 2 MiB.
 *
 * The rest behind a block is split off when it is worth it: any grain in the small pool, more than
 * 1 MiB in the large one; in segments that requests of several sizes share 256 KiB, and of what is
 * too small for the large pool any grain, since a small request that finds nothing else takes it
 * before the cache grows. Blocks of max_split_size or more are oversize: never cut, never given to
 * a smaller request, and to a request that is itself oversize only within max_non_split_rounding.
 * That is the meaning these settings have in PyTorch.
 */
#include "allocator/block/block_inside.h"

/* Bytes. Mean waste of the 44 workloads with 128 KiB: -0.4 points, 512 KiB: +0.3 (W10f +7); 20 us
 * behind: 0 and -0.8 (W3b -36). */
enum { SHARED_REST = 256 << 10 };

void
ca_pools_init(struct ca_pool pools[2])
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		ca_index_init(&pools[i].by_size);
		pools[i].waiting_bytes = pools[i].owned_bytes = 0;
		pools[i].small = !i;
	}
}

uint64_t
ca_pool_segment_bytes(const struct ca_config *config, uint64_t bytes)
{
	uint64_t exact = ca_round_up(bytes, CA_PAGE);

	if (bytes <= CA_SMALL_MAX)
		return CA_SMALL_SEGMENT;
	if (bytes >= CA_LARGE_MIN)
		return exact;
	return config->large_segment_size_bytes > exact ? config->large_segment_size_bytes : exact;
}

void
ca_pool_carry_locked(struct ca_block *block, struct ca_multi_users *multi)
{
	ca_places_of(block->segment->space->heap, block)->multi = multi;
}

void
ca_pool_index_whole_locked(struct ca_block *block)
{
	struct ca_segment *segment = block->segment;

	if (!(segment->standing & CA_STUCK) && !segment->mapped && block->state == CA_BLOCK_FREE)
		ca_index_set(&segment->space->wholes, &segment->by_whole, block->bytes);
	else
		ca_index_remove(&segment->space->wholes, &segment->by_whole);
}

void
ca_pool_unindex_locked(struct ca_block *block)
{
	struct ca_segment *segment = block->segment;
	struct ca_heap *heap = segment->space->heap;

	if (!ca_block_is_indexed(block))
		return;
	ca_index_remove(&ca_pool_of(block)->by_size, &block->places->by_size);
	ca_index_remove(&segment->space->wholes, &segment->by_whole);
	if (block->places->multi)
		return; /* it carries them until its next place */
	ca_slabs_put(&heap->places, block->places);
	block->places = NULL;
}

bool
ca_pool_is_shared(const struct ca_config *config, const struct ca_block *block)
{
	return block->segment->mapped || block->segment->bytes <= config->large_segment_size_bytes;
}

bool
ca_pool_splits(const struct ca_config *config, const struct ca_block *block, uint64_t bytes)
{
	uint64_t rest = block->bytes - bytes;

	if (block->segment->pool->small || block->bytes <= CA_SMALL_MAX)
		return rest >= CA_GRAIN;
	return rest > (ca_pool_is_shared(config, block) ? SHARED_REST : CA_SMALL_MAX) &&
	       (bytes < config->max_split_size_bytes || block->segment->mapped);
}

struct ca_block *
ca_pool_find_on_locked(const struct ca_heap *heap, const struct ca_pool *pool, uint64_t bytes)
{
	const struct ca_index *index = &pool->by_size;
	struct ca_index_node *node = heap->searches_all ? ca_index_any_at_least(index, bytes)
							: ca_index_at_least(index, bytes);

	for (; node; node = ca_index_next(index, node)) {
		struct ca_block *block = ca_pool_block(node);

		if (node->key >= bytes && ca_pool_allows(heap, block, bytes))
			return block;
		if (!heap->config.expandable_segments)
			break; /* a larger one is no more allowed, unless it is of an extent */
	}
	return NULL;
}

bool
ca_pool_fits(const struct ca_block *block, uint64_t bytes)
{
	const struct ca_segment *segment = block->segment;
	uint64_t pad,
		usable = bytes >= CA_ALIGNED_MIN ? ca_block_usable(block, &pad) : block->bytes;

	return segment->pool == ca_pool_for(segment->space, bytes) && usable >= bytes &&
	       ca_pool_allows(segment->space->heap, block, bytes);
}

/* In front of the first boundary, if the request needs one. */
static uint64_t
pad_for(const struct ca_block *block, uint64_t bytes)
{
	uint64_t pad = 0;

	if (bytes >= CA_ALIGNED_MIN)
		ca_block_usable(block, &pad);
	return pad;
}

bool
ca_pool_is_whole(const struct ca_block *block, uint64_t bytes)
{
	return block->bytes == bytes ||
	       (!ca_pool_splits(&block->segment->space->heap->config, block, bytes) &&
		!pad_for(block, bytes));
}

/* A part of a block needs a record, and one for its users if the block has several. */
struct part {
	struct ca_block *block;
	struct ca_multi_users *multi;
};

static inline bool
part_get(const struct ca_block *block, struct part *ret_part)
{
	struct ca_heap *heap = block->segment->space->heap;
	struct ca_multi_users *multi = block->places->multi;
	struct part part = { ca_block_again(heap), NULL };

	if (part.block && multi) {
		part.multi = ca_objects_get(&heap->users);
		if (part.multi)
			*part.multi = *multi;
		else
			ca_block_put(heap, part.block);
	}
	*ret_part = part;
	return part.block && !multi == !part.multi;
}

static void
part_put(struct ca_heap *heap, const struct part *part)
{
	ca_block_put(heap, part->block);
	ca_objects_put(&heap->users, part->multi);
}

static inline void
part_carry(const struct part *part)
{
	if (part->multi)
		ca_pool_carry_locked(part->block, part->multi);
}

/* Behind the cut is something left, in front of it nothing. */
static inline struct ca_block *
cut_lower(struct ca_block *block, uint64_t bytes)
{
	struct part lower;

	if (!part_get(block, &lower))
		return NULL;
	block->segment->standing = 0;
	ca_block_split_lower_locked(block, bytes, lower.block);
	part_carry(&lower);
	ca_pool_index_locked(block);
	return lower.block;
}

/* It is in no list any more. */
static void
leave_list(struct ca_block *block)
{
	if (ca_block_is_held(block))
		ca_list_remove(&block->waiting);
}

struct ca_block *
ca_pool_take_whole_locked(struct ca_block *block)
{
	block->segment->standing = 0;
	ca_pool_unindex_locked(block);
	leave_list(block);
	return block;
}

/* In front of the cut is something left. */
static struct ca_block *
cut_upper(struct ca_block *block, uint64_t pad, uint64_t bytes)
{
	struct ca_heap *heap = block->segment->space->heap;
	struct part front, spare;

	if (!part_get(block, &front))
		return NULL;
	if (!part_get(block, &spare)) {
		part_put(heap, &front);
		return NULL;
	}
	block->segment->standing = 0;
	ca_pool_unindex_locked(block);
	ca_block_split_locked(block, pad, front.block);
	part_carry(&front);
	ca_pool_index_locked(block);
	block = front.block;
	if (ca_pool_splits(&heap->config, block, bytes)) {
		ca_block_split_locked(block, bytes, spare.block);
		part_carry(&spare);
		ca_pool_index_locked(spare.block);
	} else {
		part_put(heap, &spare);
	}
	leave_list(block);
	return block;
}

struct ca_block *
ca_pool_cut_locked(struct ca_block *block, uint64_t bytes)
{
	const struct ca_config *config = &block->segment->space->heap->config;
	uint64_t pad = pad_for(block, bytes);

	if (pad)
		return cut_upper(block, pad, bytes);
	return ca_pool_splits(config, block, bytes) ? cut_lower(block, bytes)
						    : ca_pool_take_whole_locked(block);
}
