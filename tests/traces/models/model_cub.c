/* SPDX-License-Identifier: MIT */
/*
 * CUB's CachingDeviceAllocator, restated from its documentation: a request is rounded up to a power
 * of `growth`, at least growth^min_bin; beyond growth^max_bin it goes to the driver as it is and is
 * not kept. Freed blocks wait in their bin, oldest first, for a request of their stream, or of any
 * stream once the work before the free has finished; nothing is split or merged. A block that would
 * bring the cached bytes above the limit goes back to the driver. When the driver has no memory,
 * everything cached goes back and it is asked once more.
 */
#include <stdlib.h>

#include "allocator/util/list.h"
#include "tests/traces/models/model_stock.h"

enum { BINS = 64, NO_BIN = BINS };

struct config {
	unsigned growth, min_bin, max_bin;
	uint64_t max_cached_bytes;
};

/* The class's own defaults: bins of 512 bytes to 2 MiB, at most 6 MiB cached. */
static const struct config config_default = { 8, 3, 7, 6 * ((uint64_t)1 << 20) - 1 };
/* Growth 2 and everything cached: what users choose for large blocks. */
static const struct config config_g2 = { 2, 9, BINS - 1, UINT64_MAX };

struct block {
	struct ca_list link; /* of its bin, while cached */
	struct stock_memory *memory;
	uint64_t bytes;
	uint32_t stream;
	unsigned bin;
	uint64_t phase; /* of the free: later phases may give it to every stream */
};

struct cub {
	struct config config;
	struct stock *stock;
	struct ca_list bins[BINS];
	uint64_t cached_bytes;
	uint64_t phase;
};

static void *
create_with(struct peer_device *device, const struct config *config)
{
	struct cub *cub = peer_new(sizeof(*cub));

	cub->config = *config;
	cub->stock = stock_create(device, false);
	for (unsigned i = 0; i < BINS; i++)
		ca_list_init(&cub->bins[i]);
	return cub;
}

static void *
create(struct peer_device *device)
{
	return create_with(device, &config_default);
}

static void *
create_g2(struct peer_device *device)
{
	return create_with(device, &config_g2);
}

/* The request's bin, and its size there. */
static unsigned
bin_for(const struct config *config, uint64_t bytes, uint64_t *ret_bytes)
{
	uint64_t rounded = 1;
	unsigned bin = 0;

	while (bin < config->min_bin || rounded < bytes) {
		if (rounded > UINT64_MAX / config->growth || bin == config->max_bin) {
			*ret_bytes = bytes;
			return NO_BIN;
		}
		rounded *= config->growth;
		bin++;
	}
	*ret_bytes = rounded;
	return bin;
}

static struct block *
bin_take(struct cub *cub, unsigned bin, uint32_t stream)
{
	struct ca_list *list = &cub->bins[bin], *link;

	for (link = list->next; link != list; link = link->next) {
		struct block *block = CA_CONTAINER_OF(link, struct block, link);

		if (block->stream != stream && block->phase == cub->phase)
			continue;
		ca_list_remove(link);
		cub->cached_bytes -= block->bytes;
		return block;
	}
	return NULL;
}

static void
block_return(struct cub *cub, struct block *block)
{
	stock_free(cub->stock, block->memory);
	free(block);
}

static void
flush(struct cub *cub)
{
	for (unsigned i = 0; i < BINS; i++) {
		struct ca_list *bin = &cub->bins[i], *link, *next;

		for (link = bin->next; link != bin; link = next) {
			next = link->next;
			block_return(cub, CA_CONTAINER_OF(link, struct block, link));
		}
		ca_list_init(bin);
	}
	cub->cached_bytes = 0;
}

static struct block *
block_new(struct cub *cub, uint64_t bytes)
{
	struct stock_memory *memory = stock_alloc(cub->stock, bytes);
	struct block *block;

	if (!memory) {
		flush(cub);
		memory = stock_alloc(cub->stock, bytes);
	}
	if (!memory)
		return NULL;
	block = peer_new(sizeof(*block));
	ca_list_init(&block->link);
	block->memory = memory;
	block->bytes = bytes;
	return block;
}

static void *
alloc(void *self, uint64_t bytes, uint32_t stream)
{
	struct cub *cub = self;
	uint64_t rounded;
	unsigned bin = bin_for(&cub->config, bytes, &rounded);
	struct block *block = bin == NO_BIN ? NULL : bin_take(cub, bin, stream);

	if (!block)
		block = block_new(cub, rounded);
	if (!block)
		return NULL;
	block->bin = bin;
	block->stream = stream;
	return block;
}

static void
release(void *self, void *freed)
{
	struct cub *cub = self;
	struct block *block = freed;

	if (block->bin == NO_BIN || block->bytes > cub->config.max_cached_bytes ||
	    cub->cached_bytes > cub->config.max_cached_bytes - block->bytes) {
		block_return(cub, block);
		return;
	}
	block->phase = cub->phase;
	cub->cached_bytes += block->bytes;
	ca_list_insert(&cub->bins[block->bin], &block->link);
}

static void
finish(void *self)
{
	struct cub *cub = self;

	cub->phase++;
}

static void
destroy(void *self)
{
	struct cub *cub = self;

	flush(cub);
	stock_destroy(cub->stock);
	free(cub);
}

const struct peer peer_cub = {
	.name = "cub",
	.create = create,
	.destroy = destroy,
	.alloc = alloc,
	.free = release,
	.finish = finish,
};

const struct peer peer_cub_g2 = {
	.name = "cub-g2",
	.create = create_g2,
	.destroy = destroy,
	.alloc = alloc,
	.free = release,
	.finish = finish,
};
