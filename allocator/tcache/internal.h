/* SPDX-License-Identifier: MIT */
/* Shared by magazine.c (the quick ways), by flush.c and bind.c (those with the heap's lock), and by
 * leased.c (both). */
#pragma once

#include "allocator/block/block.h"
#include "allocator/core/types.h"
#include "allocator/order/order.h"
#include "allocator/tcache/tcache.h"

/* Bytes by which a thread's uncounted hits may have changed a sum, where several threads have
 * magazines: so much a peak may be too low. */
#define CA_UNCOUNTED_MAX ((uint64_t)8 << 20)

/*
 * A magazine's lock is 0, or who has it: CA_OWNER, in the calls that want no other lock, and so a
 * signal handler in that thread learns of it from the word (ca_heap_locked_here); or CA_OTHER,
 * somebody who has the heap's lock, too.
 */
enum { CA_OWNER = 1, CA_OTHER = 2 };

void ca_magazine_wait(struct ca_magazine *magazine, unsigned who);

/* False: wait for it. An owner in vain leaves CA_OWNER behind, which harms nobody; the others never
 * write over that. */
static inline bool
ca_magazine_try_own(struct ca_magazine *magazine)
{
	return !atomic_exchange_explicit(&magazine->lock, CA_OWNER, memory_order_acquire);
}

static inline void
ca_magazine_lock(struct ca_magazine *magazine)
{
	unsigned none = 0;

	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
				     &magazine->lock, &none, CA_OTHER, memory_order_acquire,
				     memory_order_relaxed),
			     0))
		ca_magazine_wait(magazine, CA_OTHER);
}

/* The calling thread has its magazine for itself from now on. */
static inline void
ca_magazine_own(struct ca_magazine *magazine)
{
	if (__builtin_expect(!ca_magazine_try_own(magazine), 0))
		ca_magazine_wait(magazine, CA_OWNER);
}

static inline void
ca_magazine_unlock(struct ca_magazine *magazine)
{
	atomic_store_explicit(&magazine->lock, 0, memory_order_release);
}

/* ---- whose turn it is: the calling thread's own, with or without the heap's lock */

/* The thread's shelf for the space of ALLOCATED blocks that have that word (ca_block_word) is the
 * one that it uses. False: it has none. */
bool ca_own_turn(const struct ca_heap *heap, uint32_t own_live);
static inline uint32_t
ca_own_live(const struct ca_space *space)
{
	return ca_block_word(space->number, CA_BLOCK_ALLOCATED);
}

/* ---- flush.c: the heap's lock is held; *_held: the magazine's, too, unless it is the calling
 * thread's own: any other that touches that one has the heap's lock */

/* Differences that were counted so far: the device's sums change by these. */
struct ca_changes {
	struct ca_gauge requested, allocated, active, cached;
};
struct ca_changes ca_counts_changes(const struct ca_counts *counts);
/* Adds what was counted so far to the device's sums. */
void ca_magazine_count_held(struct ca_magazine *magazine);
/* The stack's blocks, linked by `below`: in no magazine any more. */
struct ca_block *ca_stack_detach_held(struct ca_shelf *shelf, struct ca_stack *stack);
/* Such blocks get their places. `magazine`: the calling thread's, from which they come; NULL:
 * theirs was counted when they left it. */
void ca_blocks_settle_locked(struct ca_magazine *magazine, struct ca_block *block);
/* All blocks leave the shelf, which is of that magazine. */
void ca_shelf_clear_locked(struct ca_magazine *magazine, struct ca_shelf *shelf);
/* The shelf of the space in that magazine; NULL: there is none. */
struct ca_shelf *ca_shelf_of_locked(const struct ca_magazine *magazine,
				    const struct ca_space *space);

/* ---- bind.c: the heap's lock is held */

/* The calling thread's magazine is counted, and has a number for an allocation. */
void ca_magazine_refresh_locked(struct ca_heap *heap, struct ca_magazine *magazine);

/* ---- leased.c: the heap's lock is held */

/* The block, out of a magazine, becomes FREE in its segment, which is leased. False: it has other
 * users; no segment is leased any more. */
bool ca_leased_settle_locked(struct ca_block *block);

/* ---- counts: the magazine's lock is held */

static inline uint64_t
ca_counts_allocated(const struct ca_counts *counts)
{
	return counts->clean + counts->used;
}

/*
 * Where several threads have magazines, what is not yet counted where others see it may be so many
 * bytes at most: true if `change` would make it more. It is asked where a new extreme is reached,
 * which is left to the unusual way.
 */
static inline bool
ca_magazine_is_over(const struct ca_magazine *magazine, uint64_t change)
{
	return magazine->shared &&
	       ca_counts_allocated(&magazine->counts) + change + CA_UNCOUNTED_MAX >
		       2 * CA_UNCOUNTED_MAX;
}

static inline void
ca_peak_raise(uint64_t *peak, uint64_t value)
{
	if ((int64_t)value > (int64_t)*peak)
		*peak = value;
}

/* The peaks are of all so far. Where no clean block went to and fro since the last time there is
 * nothing to do, which is usual where all blocks have users. */
static inline void
ca_counts_merge(struct ca_counts *counts)
{
	uint64_t clean = counts->clean;

	if (clean == counts->clean_peak && clean == counts->clean_least)
		return;
	ca_peak_raise(&counts->active_peak, counts->clean_peak);
	ca_peak_raise(&counts->allocated_peak, counts->clean_peak + counts->used);
	ca_peak_raise(&counts->cached_peak, 0 - counts->clean_least);
	counts->clean_peak = counts->clean_least = clean;
}

/* An allocation of `size` bytes. `used`: the block came with a user; `exposed`: and has it still.
 */
static inline void
ca_counts_take(struct ca_counts *counts, uint64_t bytes, bool used, bool exposed, uint64_t size)
{
	counts->requested += size;
	counts->requested_total += size;
	ca_peak_raise(&counts->requested_peak, counts->requested);
	counts->hits++;
	counts->exposed += exposed;
	if (used) {
		ca_counts_merge(counts);
		counts->used += bytes;
		counts->used_total += bytes;
		ca_peak_raise(&counts->allocated_peak, ca_counts_allocated(counts));
	} else {
		counts->clean += bytes;
		counts->clean_total += bytes;
		ca_peak_raise(&counts->clean_peak, counts->clean);
	}
}

/* ---- stacks: the magazine's lock is held, or the calling thread is its owner */

static inline struct ca_stack *
ca_stack_set(struct ca_shelf *shelf, uint32_t grains)
{
	/* Fibonacci hashing: the top bits, at once as the distance of the set in bytes */
	enum { SET_LOG = CA_WAYS_LOG + 4 };
	size_t hash = grains * 0x9e3779b1u >> (32 - CA_SETS_LOG - SET_LOG);

	return (struct ca_stack *)((char *)shelf->stacks +
				   (hash & ((size_t)(1 << CA_SETS_LOG) - 1) << SET_LOG));
}

/* The stack of that size, or NULL. */
static inline __attribute__((always_inline)) struct ca_stack *
ca_stack_find(struct ca_shelf *shelf, uint32_t grains)
{
	struct ca_stack *set = ca_stack_set(shelf, grains);
	unsigned way;

#pragma GCC unroll 4
	for (way = 0; way < CA_WAYS; way++)
		if (set[way].grains == grains)
			return &set[way];
	return NULL;
}

static inline struct ca_block *
ca_stack_top(const struct ca_stack *stack)
{
	return atomic_load_explicit(&stack->top, memory_order_relaxed);
}

static inline unsigned
ca_stack_depth(const struct ca_stack *stack)
{
	return stack->capacity - stack->available;
}

/* Blocks that it keeps. */
static inline unsigned
ca_shelf_kept(const struct ca_shelf *shelf)
{
	unsigned sum = 0, i;

	for (i = 0; i < CA_STACKS; i++)
		sum += ca_stack_depth(&shelf->stacks[i]);
	return sum;
}

static inline unsigned
ca_shelf_capacity(const struct ca_shelf *shelf)
{
	return atomic_load_explicit(&shelf->capacity_all, memory_order_relaxed);
}

static inline bool
ca_stack_is_large(const struct ca_stack *stack)
{
	return stack->grains > CA_SMALL_MAX / CA_GRAIN;
}

/* The stack's capacity changes. Its size changes only while that is 0. */
static inline void
ca_stack_resize(struct ca_shelf *shelf, struct ca_stack *stack, unsigned capacity)
{
	unsigned i = (unsigned)(stack - shelf->stacks), more = capacity - stack->capacity;
	uint64_t *word = &shelf->has_capacity[ca_stack_is_large(stack)][i / 64];
	uint64_t bit = (uint64_t)1 << i % 64;

	*word = capacity ? *word | bit : *word & ~bit;
	atomic_store_explicit(&shelf->capacity_all, ca_shelf_capacity(shelf) + more,
			      memory_order_relaxed);
	stack->available = (uint8_t)(stack->available + more);
	stack->capacity = (uint8_t)capacity;
}

/* A bit for each stack that has capacity. */
__extension__ typedef unsigned __int128 ca_stack_bits;
_Static_assert(sizeof(ca_stack_bits) * 8 == CA_STACKS, "a bit for each");

static inline ca_stack_bits
ca_bits_of(const uint64_t words[CA_STACK_WORDS])
{
	return (ca_stack_bits)words[1] << 64 | words[0];
}

/* The lowest bit is that of the stack `start`; those before it come last. */
static inline ca_stack_bits
ca_bits_from(ca_stack_bits bits, unsigned start)
{
	return bits >> start | bits << (CA_STACKS - start) % CA_STACKS;
}

static inline unsigned
ca_bits_lowest(ca_stack_bits bits)
{
	uint64_t low = (uint64_t)bits;

	return (unsigned)(low ? __builtin_ctzll(low)
			      : 64 + __builtin_ctzll((uint64_t)(bits >> 64)));
}

struct ca_stack *ca_stack_make(struct ca_shelf *shelf, uint32_t grains, struct ca_stack *stack);
/* Room for one more block of that size; NULL: there is none. */
static inline struct ca_stack *
ca_stack_for(struct ca_shelf *shelf, uint32_t grains)
{
	struct ca_stack *stack = ca_stack_find(shelf, grains);

	if (stack && !stack->capacity && ca_shelf_capacity(shelf) + CA_KEPT_STEP <= CA_KEPT_ALL)
		ca_stack_resize(shelf, stack, CA_KEPT_STEP); /* it was emptied */
	return stack && stack->available ? stack : ca_stack_make(shelf, grains, stack);
}

static inline void
ca_stack_push(struct ca_stack *stack, struct ca_block *block)
{
	block->below = ca_stack_top(stack);
	atomic_store_explicit(&stack->top, block, memory_order_relaxed);
	stack->available--;
}

static inline void
ca_stack_pop(struct ca_stack *stack, struct ca_block *block)
{
	/* `birth` from now on */
	atomic_store_explicit(&stack->top, block->below, memory_order_relaxed);
	stack->available++;
}
