/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's native caching allocator with default settings, restated from its documentation and
 * from descriptions of its algorithm:
 *
 * - sizes are rounded up to 512 bytes; up to 1 MiB they come from the small pool, else from the
 *   large one; each stream has its own pair;
 * - best fit by (size, address) among the free blocks of the stream's pool, the first candidate
 *   only; the low part is split off when 512 bytes (small) or more than 1 MiB (large) remain;
 * - a miss asks the driver for 2 MiB (small), 20 MiB (below 10 MiB) or the size rounded up to 2
 * MiB;
 * - if that fails, all that waits for other streams is waited for, every segment that is one free
 *   block goes back, of all streams, and the driver is asked once more, without another search;
 * - a free block merges with free neighbours in its segment; one that other streams use waits until
 *   their work has finished, which is looked at when the next block is allocated.
 */
#include <stdlib.h>

#include "allocator/util/list.h"
#include "allocator/util/tree.h"
#include "tests/traces/models/model_stock.h"

#define MIB ((uint64_t)1 << 20)
#define GRAIN ((uint64_t)512)
#define SMALL_MAX (1 * MIB)
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define LARGE_MIN (10 * MIB) /* from here on a segment has the size of its request */
#define LARGE_STEP (2 * MIB)

struct block {
	struct ca_tree_node node;  /* free: by (bytes, address) in its pool */
	struct block *prev, *next; /* neighbours in the segment */
	struct stock_memory *segment;
	struct ca_list waiting; /* for the work of other streams */
	uint64_t address, bytes;
	uint32_t stream;
	bool small, allocated; /* allocated: also while it waits */
	bool shared;           /* another stream used it */
};

struct stream_pools {
	struct ca_tree large, small;
};

struct torch {
	struct stock *stock;
	struct stream_pools *streams; /* by number */
	uint32_t n_streams;
	struct ca_list unfinished, finished; /* freed blocks that wait; that may be returned */
};

static void *
create(struct peer_device *device)
{
	struct torch *torch = peer_new(sizeof(*torch));

	torch->stock = stock_create(device, false);
	ca_list_init(&torch->unfinished);
	ca_list_init(&torch->finished);
	return torch;
}

static struct ca_tree *
pool_of(struct torch *torch, uint32_t stream, bool small)
{
	struct stream_pools *pools;

	if (stream >= torch->n_streams) {
		/* the trees' roots may move: nodes do not point to them */
		pools = peer_new((stream + 1) * sizeof(*pools));
		for (uint32_t i = 0; i < torch->n_streams; i++)
			pools[i] = torch->streams[i];
		free(torch->streams);
		torch->streams = pools;
		torch->n_streams = stream + 1;
	}
	pools = &torch->streams[stream];
	return small ? &pools->small : &pools->large;
}

static uint64_t
round_up(uint64_t bytes, uint64_t to)
{
	return (bytes + to - 1) / to * to;
}

static uint64_t
segment_bytes(uint64_t bytes)
{
	if (bytes <= SMALL_MAX)
		return SMALL_SEGMENT;
	return bytes < LARGE_MIN ? LARGE_SEGMENT : round_up(bytes, LARGE_STEP);
}

/* -------------------------------------------------------------------------------- freeing --- */

static void
pool_insert(struct torch *torch, struct block *block)
{
	ca_tree_insert(pool_of(torch, block->stream, block->small), &block->node, block->bytes,
		       block->address);
}

static void
pool_remove(struct torch *torch, struct block *block)
{
	ca_tree_remove(pool_of(torch, block->stream, block->small), &block->node);
}

/* `upper`, free, becomes part of `lower`. */
static void
absorb(struct block *lower, struct block *upper)
{
	lower->bytes += upper->bytes;
	lower->next = upper->next;
	if (upper->next)
		upper->next->prev = lower;
	free(upper);
}

static void
block_free(struct torch *torch, struct block *block)
{
	struct block *prev = block->prev, *next = block->next;

	block->allocated = false;
	block->shared = false;
	if (next && !next->allocated) {
		pool_remove(torch, next);
		absorb(block, next);
	}
	if (prev && !prev->allocated) {
		pool_remove(torch, prev);
		absorb(prev, block);
		block = prev;
	}
	pool_insert(torch, block);
}

static void
waiting_free(struct torch *torch, struct ca_list *waiting)
{
	struct ca_list *link, *next;

	for (link = waiting->next; link != waiting; link = next) {
		next = link->next;
		ca_list_init(link);
		block_free(torch, CA_CONTAINER_OF(link, struct block, waiting));
	}
	ca_list_init(waiting);
}

static void
pool_release(struct torch *torch, struct ca_tree *pool)
{
	struct ca_tree_node *node, *next;

	for (node = ca_tree_first(pool); node; node = next) {
		struct block *block = CA_CONTAINER_OF(node, struct block, node);

		next = ca_tree_next(node);
		if (block->prev || block->next)
			continue;
		ca_tree_remove(pool, node);
		stock_free(torch->stock, block->segment);
		free(block);
	}
}

/* Waits for everything, then gives every whole free segment back. */
static void
flush(struct torch *torch)
{
	waiting_free(torch, &torch->finished);
	waiting_free(torch, &torch->unfinished);
	for (uint32_t i = 0; i < torch->n_streams; i++) {
		pool_release(torch, &torch->streams[i].large);
		pool_release(torch, &torch->streams[i].small);
	}
}

/* ----------------------------------------------------------------------------- allocating --- */

static struct block *
pool_take(struct torch *torch, uint32_t stream, uint64_t bytes)
{
	struct ca_tree *pool = pool_of(torch, stream, bytes <= SMALL_MAX);
	struct ca_tree_node *node = ca_tree_at_least(pool, bytes, 0);

	if (node)
		ca_tree_remove(pool, node);
	return node ? CA_CONTAINER_OF(node, struct block, node) : NULL;
}

static struct block *
segment_take(struct torch *torch, uint32_t stream, uint64_t bytes)
{
	struct stock_memory *segment = stock_alloc(torch->stock, segment_bytes(bytes));
	struct block *block;

	if (!segment)
		return NULL;
	block = peer_new(sizeof(*block));
	block->segment = segment;
	block->address = segment->address;
	block->bytes = segment->bytes;
	block->stream = stream;
	block->small = bytes <= SMALL_MAX;
	ca_list_init(&block->waiting);
	return block;
}

static void
split(struct torch *torch, struct block *block, uint64_t bytes)
{
	uint64_t rest = block->bytes - bytes;
	struct block *upper;

	if (block->small ? rest < GRAIN : rest <= SMALL_MAX)
		return;
	upper = peer_new(sizeof(*upper));
	*upper = *block;
	upper->node = (struct ca_tree_node){ 0 };
	ca_list_init(&upper->waiting);
	upper->address += bytes;
	upper->bytes = rest;
	upper->prev = block;
	if (upper->next)
		upper->next->prev = upper;
	block->bytes = bytes;
	block->next = upper;
	pool_insert(torch, upper);
}

static void *
alloc(void *self, uint64_t bytes, uint32_t stream)
{
	uint64_t rounded = round_up(bytes, GRAIN);
	struct torch *torch = self;
	struct block *block;

	waiting_free(torch, &torch->finished);
	block = pool_take(torch, stream, rounded);
	if (!block)
		block = segment_take(torch, stream, rounded);
	if (!block) {
		flush(torch);
		block = segment_take(torch, stream, rounded);
	}
	if (!block)
		return NULL;
	split(torch, block, rounded);
	block->allocated = true;
	return block;
}

static void
use(void *self, void *used, uint32_t stream)
{
	struct block *block = used;

	block->shared = block->shared || stream != block->stream;
}

static void
release(void *self, void *freed)
{
	struct torch *torch = self;
	struct block *block = freed;

	if (block->shared)
		ca_list_insert(&torch->unfinished, &block->waiting);
	else
		block_free(torch, block);
}

static void
finish(void *self)
{
	struct torch *torch = self;

	while (!ca_list_empty(&torch->unfinished)) {
		struct ca_list *link = torch->unfinished.next;

		ca_list_remove(link);
		ca_list_insert(&torch->finished, link);
	}
}

static void
destroy(void *self)
{
	struct torch *torch = self;

	flush(torch);
	free(torch->streams);
	stock_destroy(torch->stock);
	free(torch);
}

const struct peer peer_torch = {
	.name = "torch",
	.create = create,
	.destroy = destroy,
	.alloc = alloc,
	.use = use,
	.free = release,
	.finish = finish,
};
