/* SPDX-License-Identifier: MIT */
#include "tests/traces/models/model_stock.h"

#include <stdlib.h>

#include "allocator/util/list.h"
#include "allocator/util/tree.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)

enum { STEP = 512 };

/* A page that small requests share. */
struct stock_chunk {
	uint64_t address;
	uint64_t cut;  /* bytes handed out from its start so far */
	unsigned live; /* allocations */
	struct hole *first;
};

/* Freed bytes of a live chunk (reuse only). */
struct hole {
	struct ca_tree_node node; /* by (bytes, address) */
	struct stock_chunk *chunk;
	struct hole *prev, *next; /* of the chunk, by address */
	uint64_t address, bytes;
};

struct stock {
	struct peer_device *device;
	bool reuse;
	uint64_t next_address;
	struct stock_chunk *open; /* the chunk being cut */
	struct ca_tree holes;
};

static uint64_t
round_up(uint64_t bytes, uint64_t to)
{
	return (bytes + to - 1) / to * to;
}

void *
peer_new(uint64_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory)
		abort();
	return memory;
}

void
peer_device_add(struct peer_device *device, uint64_t bytes)
{
	device->reserved_bytes += bytes;
	if (device->reserved_bytes > device->peak_reserved_bytes)
		device->peak_reserved_bytes = device->reserved_bytes;
}

void
peer_device_sub(struct peer_device *device, uint64_t bytes)
{
	device->reserved_bytes -= bytes;
}

struct stock *
stock_create(struct peer_device *device, bool reuse)
{
	struct stock *stock = peer_new(sizeof(*stock));

	stock->device = device;
	stock->reuse = reuse;
	stock->next_address = PAGE;
	return stock;
}

static bool
pages_take(struct stock *stock, uint64_t bytes, uint64_t *ret_address)
{
	struct peer_device *device = stock->device;

	if (bytes > device->capacity - device->reserved_bytes)
		return false;
	peer_device_add(device, bytes);
	*ret_address = stock->next_address;
	stock->next_address += bytes;
	return true;
}

/* ---------------------------------------------------------------------------------- holes --- */

static void
hole_remove(struct stock *stock, struct hole *hole)
{
	struct stock_chunk *chunk = hole->chunk;

	ca_tree_remove(&stock->holes, &hole->node);
	if (hole->prev)
		hole->prev->next = hole->next;
	else
		chunk->first = hole->next;
	if (hole->next)
		hole->next->prev = hole->prev;
	free(hole);
}

static void
hole_rekey(struct stock *stock, struct hole *hole)
{
	ca_tree_update(&stock->holes, &hole->node, hole->bytes, hole->address);
}

/* Bytes of a live chunk become free; neighbours merge. */
static void
hole_add(struct stock *stock, struct stock_chunk *chunk, uint64_t address, uint64_t bytes)
{
	struct hole *prev = NULL, *next = chunk->first, *hole;

	for (; next && next->address < address; next = next->next)
		prev = next;
	if (prev && prev->address + prev->bytes == address) {
		prev->bytes += bytes;
		hole = prev;
	} else {
		hole = peer_new(sizeof(*hole));
		*hole = (struct hole){ .chunk = chunk,
				       .prev = prev,
				       .next = next,
				       .address = address,
				       .bytes = bytes };
		*(prev ? &prev->next : &chunk->first) = hole;
		if (next)
			next->prev = hole;
	}
	if (next && hole->address + hole->bytes == next->address) {
		hole->bytes += next->bytes;
		hole_remove(stock, next);
	}
	hole_rekey(stock, hole);
}

/* Best fit among the holes; NULL: none fits. */
static struct stock_chunk *
hole_take(struct stock *stock, uint64_t bytes, uint64_t *ret_address)
{
	struct ca_tree_node *node = ca_tree_at_least(&stock->holes, bytes, 0);
	struct stock_chunk *chunk;
	struct hole *hole;

	if (!node)
		return NULL;
	hole = CA_CONTAINER_OF(node, struct hole, node);
	chunk = hole->chunk;
	*ret_address = hole->address;
	hole->address += bytes;
	hole->bytes -= bytes;
	if (hole->bytes)
		hole_rekey(stock, hole);
	else
		hole_remove(stock, hole);
	return chunk;
}

/* --------------------------------------------------------------------------------- chunks --- */

static void
chunk_destroy(struct stock *stock, struct stock_chunk *chunk)
{
	struct hole *hole, *next;

	for (hole = chunk->first; hole; hole = next) {
		next = hole->next;
		ca_tree_remove(&stock->holes, &hole->node);
		free(hole);
	}
	if (stock->open == chunk)
		stock->open = NULL;
	free(chunk);
}

static struct stock_chunk *
small_take(struct stock *stock, uint64_t bytes, uint64_t *ret_address)
{
	struct stock_chunk *chunk = hole_take(stock, bytes, ret_address);

	if (chunk)
		return chunk;
	chunk = stock->open;
	if (!chunk || chunk->cut + bytes > PAGE) {
		uint64_t address;

		if (!pages_take(stock, PAGE, &address))
			return NULL;
		if (chunk && stock->reuse && chunk->cut < PAGE)
			hole_add(stock, chunk, chunk->address + chunk->cut, PAGE - chunk->cut);
		chunk = peer_new(sizeof(*chunk));
		chunk->address = address;
		stock->open = chunk;
	}
	*ret_address = chunk->address + chunk->cut;
	chunk->cut += bytes;
	return chunk;
}

struct stock_memory *
stock_alloc(struct stock *stock, uint64_t bytes)
{
	struct stock_chunk *chunk = NULL;
	struct stock_memory *memory;
	uint64_t address;

	stock->device->driver_alloc_calls++;
	if (bytes > stock->device->capacity)
		return NULL;
	if (bytes > MIB) {
		if (!pages_take(stock, round_up(bytes, PAGE), &address))
			return NULL;
	} else {
		chunk = small_take(stock, round_up(bytes, STEP), &address);
		if (!chunk)
			return NULL;
		chunk->live++;
	}
	stock->device->bytes_from_driver += bytes;
	memory = peer_new(sizeof(*memory));
	*memory = (struct stock_memory){ .address = address, .bytes = bytes, .chunk = chunk };
	return memory;
}

void
stock_free(struct stock *stock, struct stock_memory *memory)
{
	struct stock_chunk *chunk = memory->chunk;

	stock->device->driver_free_calls++;
	if (!chunk) {
		peer_device_sub(stock->device, round_up(memory->bytes, PAGE));
	} else if (!--chunk->live) {
		peer_device_sub(stock->device, PAGE);
		chunk_destroy(stock, chunk);
	} else if (stock->reuse) {
		hole_add(stock, chunk, memory->address, round_up(memory->bytes, STEP));
	}
	free(memory);
}

/* What is still allocated stays the caller's. */
void
stock_destroy(struct stock *stock)
{
	free(stock);
}

/* ------------------------------------------------------------------------------ as a peer --- */

static void *
create(struct peer_device *device)
{
	return stock_create(device, false);
}

static void *
create_reuse(struct peer_device *device)
{
	return stock_create(device, true);
}

static void
destroy(void *self)
{
	stock_destroy(self);
}

static void *
alloc(void *self, uint64_t bytes, uint32_t stream)
{
	return stock_alloc(self, bytes);
}

static void
release(void *self, void *block)
{
	stock_free(self, block);
}

const struct peer peer_stock = {
	.name = "stock",
	.create = create,
	.destroy = destroy,
	.alloc = alloc,
	.free = release,
};

const struct peer peer_stock_reuse = {
	.name = "stock-reuse",
	.create = create_reuse,
	.destroy = destroy,
	.alloc = alloc,
	.free = release,
};
