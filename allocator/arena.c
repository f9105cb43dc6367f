/* SPDX-License-Identifier: MIT */
/*
 * A bump allocator over mmapped chunks, and free lists of equal objects on top of it.
 *
 * A chunk starts with its header; the newest chunk serves until it is used up, its rest is then
 * given up (objects are small against a chunk). Nothing goes back to the kernel before the arena is
 * destroyed: the number of records follows the peak number of blocks, 128 bytes each and as much
 * again where they are free.
 */
#include "allocator/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK_BYTES = 64 << 10, ALIGNMENT = 16, LINE = 64, BATCH = 64, RESERVE_FIRST = 256 };

struct ca_arena_chunk {
	struct ca_arena_chunk *next; /* older */
	size_t bytes;                /* mapped, with this header */
};

static size_t
round_up(size_t bytes, size_t step)
{
	return (bytes + step - 1) / step * step;
}

static bool
chunk_add(struct ca_arena *arena, size_t bytes)
{
	size_t header = round_up(sizeof(struct ca_arena_chunk), ALIGNMENT);
	size_t total = round_up(bytes + header, CHUNK_BYTES);
	int saved = errno;
	void *memory =
		mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ca_arena_chunk *chunk = memory;

	errno = saved;
	if (memory == MAP_FAILED)
		return false;
	chunk->bytes = total;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	arena->free = (char *)memory + header;
	arena->free_bytes = total - header;
	return true;
}

void *
ca_arena_alloc(struct ca_arena *arena, size_t bytes)
{
	void *result;

	bytes = round_up(bytes, ALIGNMENT);
	if (bytes > arena->free_bytes && !chunk_add(arena, bytes))
		return NULL;
	result = arena->free;
	arena->free += bytes;
	arena->free_bytes -= bytes;
	return result;
}

void *
ca_arena_alloc_aligned(struct ca_arena *arena, size_t bytes, size_t alignment)
{
	char *result = ca_arena_alloc(arena, bytes + alignment - 1);

	return result ? result + (-(uintptr_t)result & (alignment - 1)) : NULL;
}

void
ca_arena_give_pages(void *memory, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory + bytes) & ~(page - 1);
	int saved = errno;

	if (begin < end)
		(void)madvise((char *)memory + (begin - (uintptr_t)memory), end - begin,
			      MADV_DONTNEED);
	errno = saved;
}

void
ca_arena_destroy(struct ca_arena *arena)
{
	struct ca_arena_chunk *chunk = arena->chunks;
	int saved = errno;

	memset(arena, 0, sizeof(*arena));
	while (chunk) {
		struct ca_arena_chunk *next = chunk->next;

		munmap(chunk, chunk->bytes);
		chunk = next;
	}
	errno = saved;
}

void
ca_objects_init(struct ca_objects *objects, struct ca_arena *arena, size_t bytes)
{
	objects->arena = arena;
	objects->bytes = round_up(bytes, ALIGNMENT);
	objects->free = NULL;
	objects->used = 0;
	objects->kept = 0;
	objects->fresh = NULL;
	objects->n_fresh = 0;
	objects->n_ahead = objects->next_ahead = 0;
	objects->reserved = 0;
}

static size_t
batch_of(unsigned number)
{
	return (size_t)RESERVE_FIRST << (number ? number - 1 : 0);
}

bool
ca_objects_reserve(struct ca_objects *objects, size_t n)
{
	while (objects->reserved < n) {
		size_t batch = batch_of(objects->n_ahead);
		char *memory = objects->n_ahead < CA_BATCHES_MAX
				       ? ca_arena_alloc(objects->arena, batch * objects->bytes)
				       : NULL;

		if (!memory)
			return false;
		objects->ahead[objects->n_ahead++] = memory;
		objects->reserved += batch;
	}
	return true;
}

/* One that was reserved. */
static void *
object_ahead(struct ca_objects *objects)
{
	void *object;

	if (!objects->n_fresh) {
		if (objects->next_ahead == objects->n_ahead)
			return NULL;
		objects->n_fresh = batch_of(objects->next_ahead);
		objects->fresh = objects->ahead[objects->next_ahead++];
	}
	object = objects->fresh;
	objects->fresh += objects->bytes;
	objects->n_fresh--;
	return object;
}

/* One that was never used. */
static void *
object_new(struct ca_objects *objects)
{
	void *object;

	if (objects->reserved)
		return object_ahead(objects);
	if (objects->bytes % LINE)
		return ca_arena_alloc(objects->arena, objects->bytes);
	if (!objects->n_fresh) {
		objects->fresh =
			ca_arena_alloc_aligned(objects->arena, BATCH * objects->bytes, LINE);
		if (!objects->fresh)
			return NULL;
		objects->n_fresh = BATCH;
	}
	object = objects->fresh;
	objects->fresh += objects->bytes;
	objects->n_fresh--;
	return object;
}

void *
ca_objects_get(struct ca_objects *objects)
{
	void *object = ca_objects_again(objects);

	if (object) {
		memset(object, 0, objects->bytes - objects->kept);
		return object;
	}
	object = object_new(objects);
	if (object)
		objects->used++;
	return object;
}

void
ca_objects_put(struct ca_objects *objects, void *object)
{
	if (!object)
		return;
	memcpy(object, &objects->free, sizeof(objects->free));
	objects->free = object;
	objects->used--;
}
