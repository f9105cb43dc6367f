/* SPDX-License-Identifier: MIT */
/*
 * The first halves of ca_alloc and ca_free, inline: the calling thread's magazine serves the usual
 * request without a call. Where they answer false the second halves have to follow, and get the
 * stack or the block that the first have come to.
 */
#pragma once

#include "allocator/tcache/internal.h"
#include "config/branch.h"
#include "config/mutant.h"

/*
 * The steps that follow where they answer false and have given a stack or a block: the magazine's
 * lock is held, and is not afterwards. `stack`: that the allocation would come from; `block`: that
 * the free has claimed. True: done; errno is kept. These serve blocks that streams use.
 */
bool ca_magazine_take_on(struct ca_space *space, uint64_t size, struct ca_stack *stack,
			 uint64_t *ret_address);
bool ca_magazine_give_on(struct ca_heap *heap, struct ca_block *block);
/* And then: results as of ca_alloc and ca_free. The first keeps errno. `block`: not NULL if there
 * was one. */
int ca_alloc_rest(struct ca_space *space, uint64_t size, uint64_t *ret_address);
int ca_free_rest(struct ca_heap *heap, uint64_t address, const struct ca_block *block);

/* ---- allocation */

/* A block without a user can be handed out at once, which changes nothing but sums. `birth`: the
 * present epoch, which may have a stamp. */
static inline __attribute__((always_inline)) bool
ca_quick_may_take(const struct ca_space *space, const struct ca_block *block, uint64_t birth)
{
	uint64_t attention = atomic_load_explicit(&space->attention, memory_order_relaxed);

	/* one comparison of all */
	_Static_assert(CA_ATTENTION_ALWAYS == 1, "it is at the place of an epoch's stamp");
	return !((uintptr_t)block->user.stream | ((attention | birth) & CA_ATTENTION_ALWAYS));
}

/* False: the sums would be larger than ever, nothing was changed. */
static inline __attribute__((always_inline)) bool
ca_quick_count_take(struct ca_counts *counts, const struct ca_block *block, uint64_t size)
{
	uint64_t requested = counts->requested + size, bytes = block->bytes;
	uint64_t clean = counts->clean + bytes;

	if (__builtin_expect((int64_t)requested > (int64_t)counts->requested_peak, 0))
		return false;
	if (__builtin_expect((int64_t)clean > (int64_t)counts->clean_peak, 0))
		return false;
	counts->requested = requested;
	counts->requested_total += size;
	counts->clean = clean;
	counts->clean_total += bytes;
	counts->hits++;
	return true;
}

/* The top of the stack becomes the program's, but nobody may see that yet. */
static inline __attribute__((always_inline)) void
ca_quick_take(struct ca_magazine *magazine, struct ca_stack *stack, struct ca_block *block,
	      uint64_t size, uint64_t serial, uint64_t birth)
{
	ca_stack_pop(stack, block);
	atomic_store_explicit(&block->requested, size, memory_order_relaxed);
	atomic_store_explicit(&block->serial, serial, memory_order_relaxed);
	magazine->serial = serial + 1;
	block->thread = (uint32_t)magazine->thread;
	block->birth = birth;
}

static inline __attribute__((always_inline)) void
ca_quick_publish(struct ca_block *block, uint64_t address)
{
	atomic_store_explicit(&block->quick, address + CA_QUICK_LIVE, memory_order_release);
}

/* True: done. False: go on with *ret_stack, if that is not NULL. Only while nothing captures. */
static inline __attribute__((always_inline)) bool
ca_alloc_quick(struct ca_space *space, uint64_t size, uint64_t *ret_address,
	       struct ca_stack **ret_stack)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_stack *stack;
	struct ca_block *block;
	uint64_t birth, serial;

	*ret_stack = NULL;
	if (__builtin_expect(ca_own.quick_space != space->id || size - 1 >= CA_QUICK_MAX, 0))
		return false;
	stack = ca_stack_find(ca_own.shelf, (uint32_t)((size + CA_GRAIN - 1) / CA_GRAIN));
	if (__builtin_expect(!stack || !ca_stack_top(stack), 0))
		return false;
	if (__builtin_expect(!ca_magazine_try_own(magazine), 0))
		return false;
	*ret_stack = stack;
	block = ca_stack_top(stack);
	if (__builtin_expect(!block, 0))
		return false;
	birth = ca_order_epoch(&space->order);
	if (__builtin_expect(!ca_quick_may_take(space, block, birth), 0))
		return false;
	serial = magazine->serial;
	if (__builtin_expect(serial == magazine->serials_end, 0))
		return false;
	if (__builtin_expect(!ca_quick_count_take(&magazine->counts, block, size), 0))
		return false;
	ca_quick_take(magazine, stack, block, size, serial, birth);
	*ret_address = ca_block_kept_address(block);
	ca_quick_publish(block, *ret_address);
	ca_magazine_unlock(magazine);
	CA_REACHED(QUICK_TAKEN);
	return true;
}

/* ---- free */

/* The thread's own block, which nobody has used since its birth. */
static inline __attribute__((always_inline)) bool
ca_quick_may_give(const struct ca_magazine *magazine, const struct ca_shelf *shelf,
		  const struct ca_block *block)
{
	struct ca_space *space = shelf->space;
	uint64_t attention = CA_MUTANT(ATTENTION_IGNORED) ? 0 : atomic_load(&space->attention);
	uint64_t stamped = ca_order_epoch(&space->order) ^ block->birth;

	/* one comparison of all; the block is ALLOCATED: whether it is of that space */
	return !((uintptr_t)block->user.stream | attention | stamped |
		 (block->thread ^ magazine->thread) | (shelf->own_live ^ block->space_and_state));
}

/* False: the sums would be less than ever, nothing was changed. */
static inline __attribute__((always_inline)) bool
ca_quick_count_give(struct ca_counts *counts, const struct ca_block *block)
{
	uint64_t clean = counts->clean - block->bytes;

	if (__builtin_expect((int64_t)clean < (int64_t)counts->clean_least, 0))
		return false;
	counts->clean = clean;
	counts->requested -= atomic_load_explicit(&block->requested, memory_order_relaxed);
	counts->frees++;
	return true;
}

/* True: done. False: go on with *ret_block, if that is not NULL. */
static inline __attribute__((always_inline)) bool
ca_free_quick(struct ca_heap *heap, uint64_t address, struct ca_block **ret_block)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_shelf *shelf = ca_own.shelf;
	struct ca_stack *stack;
	struct ca_block *block;

	*ret_block = NULL;
	if (__builtin_expect(ca_own.quick_heap != heap->id || address % CA_GRAIN, 0))
		return false;
	block = ca_bases_guess(&heap->bases, address / CA_GRAIN);
	if (__builtin_expect(!block, 0))
		return false;
	if (__builtin_expect(!ca_magazine_try_own(magazine), 0))
		return false;
	if (__builtin_expect(!ca_block_claims_at(block, address), 0)) {
		ca_magazine_unlock(magazine);
		return false;
	}
	*ret_block = block;
	if (__builtin_expect(!ca_quick_may_give(magazine, shelf, block), 0))
		return false;
	stack = ca_stack_find(shelf,
			      (uint32_t)((ca_block_requested(block) + CA_GRAIN - 1) / CA_GRAIN));
	if (__builtin_expect(!stack || !stack->available, 0))
		return false;
	if (__builtin_expect(!ca_quick_count_give(&magazine->counts, block), 0))
		return false;
	ca_stack_push(stack, block);
	ca_magazine_unlock(magazine);
	CA_REACHED(QUICK_GIVEN);
	return true;
}
