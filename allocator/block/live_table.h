/* SPDX-License-Identifier: MIT */
/*
 * ALLOCATED blocks by the address of their first byte: a table that is changed under the heap's
 * lock and read without.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/types.h"

static inline uint64_t
ca_bases_hash(uint64_t grain)
{
	return grain * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t
ca_bases_tag(uint64_t hash)
{
	return hash >> CA_BASES_TAG_AT & ((1 << CA_BASES_TAG_BITS) - 1);
}

/* The block's own place. */
static inline size_t
ca_bases_place(const struct ca_bases_table *table, uint64_t hash)
{
	return hash >> table->shift;
}

/*
 * The table has two sides, and a thread that enters blocks while others do, too, uses one of them
 * first: so two such threads hardly write to the same cache lines. It is where it would look
 * anyway until it has been given one. (Of two threads that miss, 96 sizes, a pair took 1.78 times
 * as long on two processors as on one, and now 1.47 times.)
 */
struct ca_bases_side {
	uint64_t keep, side;
};
enum { CA_BASES_SIDE = 2 * CA_BASES_BUCKET }; /* in places: two cache lines, fetched together */
extern __thread struct ca_bases_side ca_bases_side __attribute__((tls_model("initial-exec")));
/* The calling thread is given one, if it has none. */
void ca_bases_take_side_locked(struct ca_bases *bases);

static inline size_t
ca_bases_here(size_t place)
{
	return (place & ca_bases_side.keep) | ca_bases_side.side;
}

static inline struct ca_block *
ca_bases_block(uint64_t entry)
{
	return (struct ca_block *)(uintptr_t)(entry & (((uint64_t)1 << CA_BASES_TAG_SHIFT) - 1));
}

void ca_bases_init(struct ca_bases *bases, struct ca_arena *arena);
/* A moment at which it does not matter how long that takes: makes room for what comes. */
void ca_bases_prepare_locked(struct ca_bases *bases);
void ca_bases_enter_otherwise_locked(struct ca_bases *bases, struct ca_block *block);
void ca_bases_leave_otherwise_locked(struct ca_bases *bases, const struct ca_block *block);

/* The place at which the calling thread looks for the block first, and its entry. */
static inline _Atomic uint64_t *
ca_bases_own_place(struct ca_bases_table *table, const struct ca_block *block, uint64_t *ret_entry)
{
	uint64_t hash = ca_bases_hash(block->address / CA_GRAIN), tag = ca_bases_tag(hash);

	*ret_entry = tag << CA_BASES_TAG_SHIFT | (uint64_t)(uintptr_t)block;
	return &table->places[ca_bases_here(ca_bases_place(table, hash))];
}

/* Not every block gets a place: one that has none is found by the tree. */
static inline void
ca_bases_enter_locked(struct ca_bases *bases, struct ca_block *block)
{
	struct ca_bases_table *table = atomic_load_explicit(&bases->table, memory_order_relaxed);
	_Atomic uint64_t *place;
	uint64_t entry;

	if (__builtin_expect(bases->entered < bases->many, 1)) {
		place = ca_bases_own_place(table, block, &entry);
		if (__builtin_expect(!atomic_load_explicit(place, memory_order_relaxed), 1)) {
			atomic_store_explicit(place, entry, memory_order_release);
			bases->entered++;
			return;
		}
	}
	ca_bases_enter_otherwise_locked(bases, block);
}

/* Harmless if it is not there. */
static inline void
ca_bases_leave_locked(struct ca_bases *bases, const struct ca_block *block)
{
	struct ca_bases_table *table = atomic_load_explicit(&bases->table, memory_order_relaxed);
	_Atomic uint64_t *place;
	uint64_t entry;

	if (__builtin_expect(bases->entered > bases->few, 1)) {
		place = ca_bases_own_place(table, block, &entry);
		if (__builtin_expect(atomic_load_explicit(place, memory_order_relaxed) == entry,
				     1)) {
			atomic_store_explicit(place, 0, memory_order_relaxed);
			bases->entered--;
			return;
		}
	}
	ca_bases_leave_otherwise_locked(bases, block);
}

/*
 * Several threads enter and remove blocks, each its own, and only one of them has the lock. Between
 * these two nothing else changes in the table. False: there is no memory for one.
 */
bool ca_bases_share_locked(struct ca_bases *bases);
void ca_bases_unshare_locked(struct ca_bases *bases);
/* False: there is no place. The caller keeps the count of what it has entered, and removed. */
bool ca_bases_enter_atomic(struct ca_bases *bases, struct ca_block *block, uint64_t address);
bool ca_bases_leave_atomic(struct ca_bases *bases, const struct ca_block *block);

/* The block that begins at `address`; NULL: it has no place in the table. */
struct ca_block *ca_bases_find_locked(const struct ca_bases *bases, uint64_t address);
/* The block whose `quick` word said that it is live at `address`, and says now that it is kept. Any
 * thread may call it without a lock. NULL: there is none. */
struct ca_block *ca_bases_claim(const struct ca_bases *bases, uint64_t address);
/* The block that is most likely to be it, if there is one at its own place, at the next two tried
 * there, or at its place on the other side; the block is not looked at. `grain`: the address in
 * grains. NULL: there is none. */
static inline struct ca_block *
ca_bases_guess(const struct ca_bases *bases, uint64_t grain)
{
	const struct ca_bases_table *table =
		atomic_load_explicit(&bases->table, memory_order_acquire);
	uint64_t hash = ca_bases_hash(grain), tag = ca_bases_tag(hash), entry;
	size_t place;

	place = ca_bases_here(ca_bases_place(table, hash));
	entry = atomic_load_explicit(&table->places[place], memory_order_acquire);
	if (__builtin_expect(entry >> CA_BASES_TAG_SHIFT != tag, 0)) {
		entry = atomic_load_explicit(&table->places[place ^ 1], memory_order_acquire);
		if (entry >> CA_BASES_TAG_SHIFT != tag)
			entry = atomic_load_explicit(&table->places[place ^ 2],
						     memory_order_acquire);
		if (entry >> CA_BASES_TAG_SHIFT != tag)
			entry = atomic_load_explicit(&table->places[place ^ CA_BASES_SIDE],
						     memory_order_acquire);
		if (entry >> CA_BASES_TAG_SHIFT != tag)
			return NULL;
	}
	return ca_bases_block(entry); /* of an empty place NULL */
}
/* Entries that are not NULL, counted anew. */
uint64_t ca_bases_count_locked(const struct ca_bases *bases);
