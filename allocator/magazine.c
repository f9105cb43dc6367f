/* SPDX-License-Identifier: MIT */
/*
 * Programs free a block and ask for one of just that size again. Merging it with what is free
 * around it, only to cut it off once more, would be most of the work of both calls, and a lock for
 * all threads would make each wait for the others. So a thread keeps the blocks that it freed as
 * they are, in stacks by size, and its next request of that size takes the latest.
 *
 * Which blocks: those that nobody uses any more, and in a quiet space those that its one stream may
 * still use. What that means is said in allocator/stream.h and owned.c; here it is asked without
 * the heap's lock, and whatever is not as usual is left to the way with it.
 *
 * Anything else that looks for free memory empties the magazines first (drain.c): a merged block is
 * never missed for a part of it that is kept, and no segment is taken while something is kept.
 *
 * A free claims its block by one compare-and-swap on the block's `quick` word, which holds the
 * address: of two frees of one address only one succeeds, and a record that means another block by
 * now is not mistaken for this one. Who has the heap's lock takes a LIVE block away from all
 * magazines by setting the word to 0.
 */
#include "allocator/drain.h"

#include "config/mutant.h"

__thread struct ca_own ca_own __attribute__((tls_model("initial-exec")));

static void
count_add(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current += bytes;
	gauge->total += bytes;
	if ((int64_t)gauge->current > (int64_t)gauge->peak)
		gauge->peak = gauge->current;
}

/* Too much was not yet counted where others see it. */
static bool
is_over(const struct ca_magazine *magazine, uint64_t bytes)
{
	return magazine->several &&
	       (bytes > CA_UNCOUNTED_MAX ||
		magazine->counts.allocated.current + CA_UNCOUNTED_MAX > 2 * CA_UNCOUNTED_MAX);
}

static CA_APART bool
is_off_boundary(const struct ca_block *block)
{
	uint64_t pad;

	ca_block_usable(block, &pad);
	return pad != 0;
}

/* ---- allocation */

/* The block's stream may have more to do with it: true if it may be handed out all the same. */
static bool
expose(struct ca_space *space, struct ca_block *block)
{
	if (ca_user_is_done(&block->user)) {
		block->user.stream = NULL;
		return true;
	}
	/* asked for under the magazine's lock, by which ca_magazines_pass_locked misses nothing */
	if (ca_order_may_capture(space->heap) || !ca_owned_is_quiet_for(space, &block->user) ||
	    atomic_load(&ca_owned_record(&block->user)->lost))
		return false;
	ca_order_expose(&space->order, &block->user);
	return true;
}

static bool
may_take(struct ca_magazine *magazine, struct ca_space *space, struct ca_block *block,
	 uint64_t bytes, bool locked)
{
	if (atomic_load_explicit(&space->attention, memory_order_relaxed) ||
	    magazine->serial == magazine->serials_end || (!locked && is_over(magazine, bytes)) ||
	    (bytes >= CA_BOUNDARY && is_off_boundary(block)))
		return false;
	return !block->user.stream || expose(space, block);
}

static void
count_take(struct ca_counts *counts, const struct ca_block *block, bool used, uint64_t size)
{
	counts->allocs++;
	count_add(&counts->requested, size);
	count_add(&counts->allocated, block->bytes);
	if (used)
		return;
	count_add(&counts->active, block->bytes);
	counts->cached.current -= block->bytes;
}

bool
ca_magazine_take(struct ca_space *space, uint64_t size, uint64_t bytes, bool locked,
		 uint64_t *ret_address)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_stack *stack;
	struct ca_block *block;
	uint64_t quick;
	bool used = false;

	if (ca_own.space != space->id)
		return false;
	ca_magazine_lock(magazine);
	stack = ca_stack_find(magazine, bytes);
	block = stack ? stack->top : NULL;
	if (block) {
		used = block->user.stream != NULL;
		if (!may_take(magazine, space, block, bytes, locked))
			block = NULL;
	}
	if (block) {
		ca_stack_pop(magazine, stack);
		atomic_store_explicit(&block->requested, size, memory_order_relaxed);
		atomic_store_explicit(&block->serial, magazine->serial++, memory_order_relaxed);
		block->born = ca_order_born(&space->order);
		block->thread = (uint32_t)magazine->thread;
		count_take(&magazine->counts, block, used, size);
		magazine->counts.clean += !block->user.stream;
		/* the record's other half has the address, too, but is not touched */
		quick = atomic_load_explicit(&block->quick, memory_order_relaxed) ^ CA_QUICK_KEPT;
		*ret_address = quick;
		if (ca_tracing(space->heap))
			ca_trace_alloc_locked(block);
		atomic_store_explicit(&block->quick, quick ^ CA_QUICK_LIVE, memory_order_release);
	}
	ca_magazine_unlock(magazine);
	return block != NULL;
}

/* ---- free */

/* In a quiet space: its one stream, if that may still use the block, else none. False: ask with
 * the locks. */
static bool
quiet_user(struct ca_space *space, const struct ca_block *block, struct ca_user *ret_user)
{
	struct ca_order *order = &space->order;
	struct ca_user user = block->user;
	struct ca_stream_record *only;
	uint64_t last;

	if (CA_MUTANT(INHERITED_DROPPED))
		user.stream = NULL;
	only = ca_order_quiet_stream(order, &last);
	if (!only || (user.stream && user.stream != &only->hot) || space->heap->no_marks ||
	    !ca_order_is_user(order, only) || ca_order_has_foreign_user(order, block->born))
		return false;
	if (last >= block->born)
		user = (struct ca_user){ &only->hot, last };
	if (user.stream && ca_user_is_done(&user))
		user.stream = NULL;
	*ret_user = user;
	/* the space is quiet, but does that count? */
	return !user.stream || !ca_owned_is_finished_only(space);
}

static bool
may_give(const struct ca_magazine *magazine, const struct ca_block *block, bool locked,
	 struct ca_user *ret_user)
{
	struct ca_space *space = magazine->space;

	/* it is LIVE: whether it is of that space */
	if (magazine->own_live != block->space_and_state ||
	    atomic_load_explicit(&space->attention, memory_order_relaxed) ||
	    (!locked && is_over(magazine, block->bytes)) ||
	    (block->thread != magazine->thread && ca_owned_any(space)))
		return false;
	if (!block->user.stream && ca_order_is_untouched(&space->order, block->born)) {
		ret_user->stream = NULL;
		return true;
	}
	return quiet_user(space, block, ret_user);
}

static void
count_give(struct ca_counts *counts, const struct ca_block *block)
{
	counts->frees++;
	counts->requested.current -= ca_block_requested(block);
	counts->allocated.current -= block->bytes;
	if (block->user.stream)
		return;
	counts->active.current -= block->bytes;
	count_add(&counts->cached, block->bytes);
}

/* Before anybody can have the block. */
static CA_APART void
trace_give(const struct ca_block *block, const struct ca_user *user)
{
	struct ca_users users = { .n = 1, .user = { *user } };

	ca_trace_free_locked(block, user->stream ? &users : NULL);
}

bool
ca_magazine_give(struct ca_heap *heap, uint64_t address, bool locked)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_stack *stack = NULL;
	struct ca_block *block;
	struct ca_user user;

	if (ca_own.heap != heap->id)
		return false;
	ca_magazine_lock(magazine);
	block = ca_bases_claim(&heap->bases, address);
	if (block) {
		if (may_give(magazine, block, locked, &user))
			stack = ca_stack_for(magazine, ca_rounded(heap, ca_block_requested(block)));
		if (stack) {
			if (ca_tracing(heap))
				trace_give(block, &user);
			block->user = user;
			block->thread = (uint32_t)magazine->thread;
			ca_stack_push(magazine, stack, block);
			count_give(&magazine->counts, block);
		} else {
			atomic_store_explicit(&block->quick, address | CA_QUICK_LIVE,
					      memory_order_release);
		}
	}
	ca_magazine_unlock(magazine);
	return stack != NULL;
}
