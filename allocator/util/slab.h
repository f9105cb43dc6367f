/* SPDX-License-Identifier: MIT */
/*
 * Records of one size, very many at times: those of blocks. They lie in slabs, so that the memory
 * of a slab whose records are all free can go back to the system; its addresses stay mapped, and
 * never hold anything but such records. Not thread-safe: the heap's lock is held. errno is kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "allocator/util/arena.h"
#include "allocator/util/list.h"

/* In each of two stacks: few, since each may be all that keeps a slab. */
enum { CA_SLABS_AT_HAND = 16 };

struct ca_slabs {
	void *free;      /* to be had at once, linked by their first words, latest on top */
	unsigned listed; /* so many, at most CA_SLABS_AT_HAND */
	unsigned log;    /* of the bytes of a slab */
	size_t used;     /* records handed out and not given back */
	void *older;     /* NULL, or as many as can be at hand, given back before those */
	size_t bytes;    /* of a record, a multiple of 16; of two, one of 64 */
	size_t kept;     /* bytes at its end that are left alone when it goes round */
	size_t step;     /* bytes from a record to the next, in the next region */
	size_t capacity; /* records for which there are addresses */
	size_t touched;  /* slabs that have memory, or may have */
	size_t n_whole;
	struct ca_list partial;  /* slabs with a free record and one that is not */
	struct ca_list whole;    /* all are free */
	struct ca_list released; /* the same, and the system has their memory */
	struct ca_arena *arena;
};

/*
 * `kept` bytes at the end of a record must be zero whenever it is given back. The first records,
 * 127 pages of them, each lie at the end of `first_step` bytes, a divisor of a page: with 128, what
 * threads write to records of their own is in no two lines that a processor fetches together. The
 * others lie side by side, since memory for each is what very many cost.
 */
void ca_slabs_init(struct ca_slabs *slabs, struct ca_arena *arena, size_t bytes, size_t kept,
		   size_t first_step);
/* From now on `n` records, those in use included, can be had without fail. False: mmap fails. */
bool ca_slabs_reserve(struct ca_slabs *slabs, size_t n);
/* Zeroed. NULL: mmap fails. */
void *ca_slabs_get(struct ca_slabs *slabs);
/* Where none is at hand. */
void *ca_slabs_fetch(struct ca_slabs *slabs);
/* Not zeroed but for what is kept. NULL: mmap fails. */
static inline void *
ca_slabs_again(struct ca_slabs *slabs)
{
	void *record = slabs->free;

	if (__builtin_expect(!record, 0))
		return ca_slabs_fetch(slabs);
	memcpy(&slabs->free, record, sizeof(slabs->free));
	slabs->listed--;
	slabs->used++;
	return record;
}
/* Makes both stacks able to take a record. Memory may go back to the system: that of a few slabs at
 * most. */
void ca_slabs_flush(struct ca_slabs *slabs);
/* Not NULL. */
static inline void
ca_slabs_put(struct ca_slabs *slabs, void *record)
{
	if (__builtin_expect(slabs->listed == CA_SLABS_AT_HAND, 0))
		ca_slabs_flush(slabs);
	memcpy(record, &slabs->free, sizeof(slabs->free));
	slabs->free = record;
	slabs->listed++;
	slabs->used--;
}
