/* SPDX-License-Identifier: MIT */
/* What magazine.c (the quick ways), drain.c and owner.c (those with the heap's lock) share. */
#pragma once

#include "allocator/inside.h"

/* Bytes by which a thread's uncounted hits may have changed a sum, where several threads have
 * magazines: so much a peak may be too low. */
#define CA_UNCOUNTED_MAX ((uint64_t)8 << 20)

/* The calling thread's magazine: which, and for which heap and space (their `id`s, so that nothing
 * is looked at that is gone). */
struct ca_own {
	struct ca_magazine *magazine;
	uint64_t heap;  /* 0: none */
	uint64_t space; /* 0: none */
};
extern __thread struct ca_own ca_own __attribute__((tls_model("initial-exec")));

void ca_magazine_wait(struct ca_magazine *magazine);

static inline void
ca_magazine_lock(struct ca_magazine *magazine)
{
	ca_locks_held++; /* first, as for the heap's lock */
	if (__builtin_expect(atomic_exchange_explicit(&magazine->lock, 1, memory_order_acquire), 0))
		ca_magazine_wait(magazine);
}

static inline void
ca_magazine_unlock(struct ca_magazine *magazine)
{
	atomic_store_explicit(&magazine->lock, 0, memory_order_release);
	ca_locks_held--;
}

/* ---- drain.c: the heap's lock is held; *_held: the magazine's, too, unless it is the calling
 * thread's own: whoever else touches that one has the heap's lock */

/* Adds what was counted so far to the device's sums. */
void ca_magazine_count_held(struct ca_magazine *magazine);
/* The stack's blocks, linked by `below`: in no magazine any more. Count before they are settled. */
struct ca_block *ca_stack_detach_held(struct ca_magazine *magazine, struct ca_stack *stack);
/* Such blocks, counted as free: each gets its place. */
void ca_blocks_settle_locked(struct ca_block *block);
void ca_magazine_clear_locked(struct ca_magazine *magazine, enum ca_kept which);

/* ---- stacks: the magazine's lock is held */

static inline struct ca_stack *
ca_stack_set(struct ca_magazine *magazine, uint64_t bytes)
{
	/* Fibonacci hashing: the top bits */
	uint64_t set = bytes / CA_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> (64 - CA_SETS_LOG);

	set += bytes > CA_SMALL_MAX ? CA_SETS / 2 : 0;
	return &magazine->stacks[set * CA_WAYS];
}

/* The stack is empty from now on, or is not. */
static inline void
ca_stack_note(struct ca_magazine *magazine, const struct ca_stack *stack, bool taken)
{
	unsigned i = (unsigned)(stack - magazine->stacks);
	uint64_t bit = (uint64_t)1 << i % 64;

	if (taken)
		magazine->taken[i / 64] |= bit;
	else
		magazine->taken[i / 64] &= ~bit;
}

/* Of those 64 in the word, of which one is not empty. */
static inline struct ca_stack *
ca_stack_first(struct ca_magazine *magazine, unsigned word)
{
	return &magazine->stacks[word * 64 + (unsigned)__builtin_ctzll(magazine->taken[word])];
}

static inline struct ca_stack *
ca_stack_in(struct ca_stack *set, uint64_t bytes)
{
	unsigned way;

#pragma GCC unroll 4
	for (way = 0; way < CA_WAYS; way++)
		if (set[way].bytes == bytes)
			return &set[way];
	return NULL;
}

/* The stack of that size, or NULL. */
static inline struct ca_stack *
ca_stack_find(struct ca_magazine *magazine, uint64_t bytes)
{
	return ca_stack_in(ca_stack_set(magazine, bytes), bytes);
}

static inline void
ca_magazine_add_kept(struct ca_magazine *magazine, unsigned blocks)
{
	unsigned kept = atomic_load_explicit(&magazine->kept, memory_order_relaxed) + blocks;

	atomic_store_explicit(&magazine->kept, kept, memory_order_relaxed);
}

/* Room for one more block of that size; NULL: there is none. */
static inline struct ca_stack *
ca_stack_for(struct ca_magazine *magazine, uint64_t bytes)
{
	struct ca_stack *set = ca_stack_set(magazine, bytes), *stack = ca_stack_in(set, bytes);
	unsigned way;

	if (atomic_load_explicit(&magazine->kept, memory_order_relaxed) >= CA_KEPT_ALL)
		return NULL;
	if (stack)
		return stack->depth < CA_KEPT_EACH ? stack : NULL;
#pragma GCC unroll 4
	for (way = 0; way < CA_WAYS; way++)
		if (!set[way].depth) {
			set[way].bytes = bytes;
			return &set[way];
		}
	return NULL;
}

static inline void
ca_stack_push(struct ca_magazine *magazine, struct ca_stack *stack, struct ca_block *block)
{
	block->below = stack->top;
	stack->top = block;
	if (!stack->depth++)
		ca_stack_note(magazine, stack, true);
	ca_magazine_add_kept(magazine, 1);
}

static inline void
ca_stack_pop(struct ca_magazine *magazine, struct ca_stack *stack)
{
	struct ca_block *block = stack->top;

	stack->top = block->below; /* `born` from now on */
	if (!--stack->depth)
		ca_stack_note(magazine, stack, false);
	ca_magazine_add_kept(magazine, -1u);
}
