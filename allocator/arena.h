/* SPDX-License-Identifier: MIT */
/*
 * Memory for our own records: chunks from mmap, never libc malloc. Not thread-safe: the heap's lock
 * is held. errno is kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct ca_arena_chunk;

struct ca_arena {
	struct ca_arena_chunk *chunks; /* newest first */
	char *free;                    /* unused rest of the newest chunk */
	size_t free_bytes;             /* of that rest */
};

enum { CA_BATCHES_MAX = 32 };

/* Objects of one size with a free list. Objects go back to the list, never to the arena. */
struct ca_objects {
	struct ca_arena *arena;
	size_t bytes;   /* of one object, a multiple of 16 */
	void *free;     /* singly linked through the first word */
	size_t used;    /* objects handed out and not given back */
	char *fresh;    /* where they are multiples of 64 and so aligned: never used so far ... */
	size_t n_fresh; /* ... that many */
	size_t kept;    /* bytes at the end of an object that are left alone when it goes round */
	/* ca_objects_reserve: never used so far, each as many as there were before, in their order
	 */
	char *ahead[CA_BATCHES_MAX];
	unsigned n_ahead, next_ahead;
	size_t reserved;
};

/* Zeroed, 16-byte aligned, valid until ca_arena_destroy. NULL when mmap fails. */
void *ca_arena_alloc(struct ca_arena *arena, size_t bytes);
/* The same on a multiple of `alignment`, a power of two. */
void *ca_arena_alloc_aligned(struct ca_arena *arena, size_t bytes, size_t alignment);
/* Nobody needs what is in [memory, memory + bytes) any more: its whole pages go back to the system.
 * They stay mapped and read as zeros. */
void ca_arena_give_pages(void *memory, size_t bytes);
/* Unmaps everything; *arena is empty and usable afterwards. */
void ca_arena_destroy(struct ca_arena *arena);

void ca_objects_init(struct ca_objects *objects, struct ca_arena *arena, size_t bytes);
/* From now on `n` of them, those in use included, can be had without fail, and only what is used
 * takes memory. For objects that are all had that way. False: mmap fails. */
bool ca_objects_reserve(struct ca_objects *objects, size_t n);
/* Zeroed. NULL when mmap fails. */
void *ca_objects_get(struct ca_objects *objects);
/* One that was given back, as it is but for its first word, for the caller to zero. NULL: there is
 * none. */
static inline void *
ca_objects_again(struct ca_objects *objects)
{
	void *object = objects->free;

	if (!object)
		return NULL;
	memcpy(&objects->free, object, sizeof(objects->free));
	objects->used++;
	return object;
}
/* NULL is allowed. */
void ca_objects_put(struct ca_objects *objects, void *object);
