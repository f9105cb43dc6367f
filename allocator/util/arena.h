/* SPDX-License-Identifier: MIT */
/*
 * Memory for our own records: chunks from mmap, never libc malloc. Not thread-safe: the heap's lock
 * is held. errno is kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The head of every mapping. */
struct ca_arena_chunk {
	struct ca_arena_chunk *next; /* older */
	size_t bytes;                /* mapped, with this header */
};

/* Bytes: a mapping as large as that lies on huge pages, if the system has such. Records and tables
 * are looked at in no order, and of many small pages the processor has to look up most each time.
 */
enum { CA_ARENA_HUGE = 2 << 20 };

struct ca_arena {
	struct ca_arena_chunk *chunks; /* newest first */
	char *free;                    /* unused rest of the newest chunk */
	size_t free_bytes;             /* of that rest */
};

/* Objects of one size with a free list. Objects go back to the list, never to the arena. */
struct ca_objects {
	struct ca_arena *arena;
	size_t bytes; /* of one object, a multiple of 16 */
	void *free;   /* singly linked through the first word */
	size_t used;  /* objects handed out and not given back */
};

/* Zeroed, 16-byte aligned, valid until ca_arena_destroy. NULL when mmap fails. */
void *ca_arena_alloc(struct ca_arena *arena, size_t bytes);
/* The same on a multiple of `alignment`, a power of two. */
void *ca_arena_alloc_aligned(struct ca_arena *arena, size_t bytes, size_t alignment);
/* A mapping of its own of so many bytes, a power of two and more than a page, on a multiple of
 * that: zeroed but for the header. NULL: mmap fails. */
void *ca_arena_region(struct ca_arena *arena, size_t bytes);
/* The system does not put that on huge pages any more, of which it can take back no part. */
void ca_arena_keep_small(void *memory, size_t bytes);
/* Nobody needs what is in [memory, memory + bytes) any more: its whole pages go back to the system.
 * They stay mapped and read as zeros. */
void ca_arena_give_pages(void *memory, size_t bytes);
/* Unmaps everything; *arena is empty and usable afterwards. */
void ca_arena_destroy(struct ca_arena *arena);

void ca_objects_init(struct ca_objects *objects, struct ca_arena *arena, size_t bytes);
/* Zeroed. NULL when mmap fails. */
void *ca_objects_get(struct ca_objects *objects);
/* NULL is allowed. */
void ca_objects_put(struct ca_objects *objects, void *object);
