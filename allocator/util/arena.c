/* SPDX-License-Identifier: MIT */
/*
 * A bump allocator over mmapped chunks, and free lists of equal objects on top of it.
 *
 * A chunk starts with its header; the newest chunk serves until it is used up, its rest is then
 * given up (objects are small against a chunk). Nothing of that goes back to the kernel before the
 * arena is destroyed. Records of which there may be very many have regions, and a way back
 * (slab.c).
 */
#include "allocator/util/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK_BYTES = 64 << 10, ALIGNMENT = 16 };

static size_t
round_up(size_t bytes, size_t step)
{
	return (bytes + step - 1) / step * step;
}

/* Anonymous memory; MAP_FAILED. */
static void *
map(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Before the first touch, or the page is a small one. errno is not kept. */
static void
use_huge(void *memory, size_t bytes)
{
	if (memory != MAP_FAILED && bytes >= CA_ARENA_HUGE)
		(void)madvise(memory, bytes, MADV_HUGEPAGE);
}

static bool
chunk_add(struct ca_arena *arena, size_t bytes)
{
	size_t header = round_up(sizeof(struct ca_arena_chunk), ALIGNMENT);
	size_t total = round_up(bytes + header, CHUNK_BYTES);
	int saved = errno;
	void *memory = map(total);
	struct ca_arena_chunk *chunk = memory;

	use_huge(memory, total);
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

/* As large as its alignment. The kernel puts mappings side by side, so the first try does mostly
 * but for the first region. */
static void *
map_aligned(size_t bytes)
{
	char *memory = map(bytes);
	size_t before;

	if (memory == MAP_FAILED || !((uintptr_t)memory & (bytes - 1)))
		return memory;
	munmap(memory, bytes);
	memory = map(2 * bytes);
	if (memory == MAP_FAILED)
		return memory;
	before = -(uintptr_t)memory & (bytes - 1);
	if (before)
		munmap(memory, before);
	munmap(memory + before + bytes, bytes - before);
	return memory + before;
}

void *
ca_arena_region(struct ca_arena *arena, size_t bytes)
{
	int saved = errno;
	struct ca_arena_chunk *chunk = map_aligned(bytes);

	use_huge(chunk, bytes);
	errno = saved;
	if (chunk == MAP_FAILED)
		return NULL;
	chunk->bytes = bytes;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	return chunk;
}

/* Of the whole pages in it. */
static void
advise(void *memory, size_t bytes, int advice)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory + bytes) & ~(page - 1);
	int saved = errno;

	if (begin < end)
		(void)madvise((char *)memory + (begin - (uintptr_t)memory), end - begin, advice);
	errno = saved;
}

void
ca_arena_keep_small(void *memory, size_t bytes)
{
	advise(memory, bytes, MADV_NOHUGEPAGE);
}

void
ca_arena_give_pages(void *memory, size_t bytes)
{
	advise(memory, bytes, MADV_DONTNEED);
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
}

void *
ca_objects_get(struct ca_objects *objects)
{
	void *object = objects->free;

	if (object) {
		memcpy(&objects->free, object, sizeof(objects->free));
		memset(object, 0, objects->bytes);
	} else {
		object = ca_arena_alloc(objects->arena, objects->bytes);
	}
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
