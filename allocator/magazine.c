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

/*
 * Where several threads have magazines, what is not yet counted where others see it may be so many
 * bytes at most: true if `change` would make it more. It is asked where a new extreme is reached,
 * which is left to the unusual way.
 */
static bool
is_over(const struct ca_magazine *magazine, uint64_t change)
{
	return magazine->several &&
	       ca_counts_allocated(&magazine->counts) + change + CA_UNCOUNTED_MAX >
		       2 * CA_UNCOUNTED_MAX;
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
may_take(struct ca_magazine *magazine, struct ca_space *space, struct ca_block *block, bool locked)
{
	if (atomic_load_explicit(&space->attention, memory_order_relaxed) ||
	    magazine->serial == magazine->serials_end ||
	    (!locked && is_over(magazine, block->bytes)) ||
	    (block->rounded >= CA_BOUNDARY / CA_GRAIN && is_off_boundary(block)))
		return false;
	return !block->user.stream || expose(space, block);
}

/* Nothing but the sums changes for a block without a user that can be handed out at once. */
static inline __attribute__((always_inline)) bool
is_usual_take(const struct ca_magazine *magazine, const struct ca_space *space,
	      const struct ca_block *block, uint64_t size)
{
	return block && !block->user.stream && size <= magazine->counts.requested_below &&
	       block->bytes <= magazine->counts.clean_below &&
	       magazine->serial != magazine->serials_end &&
	       !atomic_load_explicit(&space->attention, memory_order_relaxed) &&
	       block->rounded < CA_BOUNDARY / CA_GRAIN;
}

static inline __attribute__((always_inline)) void
count_clean_take(struct ca_counts *counts, const struct ca_block *block, uint64_t size)
{
	counts->allocs++;
	counts->requested_below -= size;
	counts->requested_total += size;
	counts->clean_below -= block->bytes;
	counts->clean_above += block->bytes;
	counts->clean_total += block->bytes;
}

static void
count_used_take(struct ca_counts *counts, const struct ca_block *block, uint64_t size)
{
	counts->allocs++;
	counts->exposed += block->user.stream != NULL;
	counts->requested_below -= size;
	counts->requested_total += size;
	ca_counts_fold(counts);
	counts->used += block->bytes;
	counts->used_total += block->bytes;
	ca_peak_raise(&counts->allocated_peak, ca_counts_allocated(counts));
}

/* `used`: it came with a user. */
static void
count_take(struct ca_counts *counts, const struct ca_block *block, bool used, uint64_t size)
{
	if (size > counts->requested_below) {
		counts->requested_peak += size - counts->requested_below;
		counts->requested_below = size;
	}
	if (used) {
		count_used_take(counts, block, size);
		return;
	}
	if (block->bytes > counts->clean_below) {
		counts->clean_peak += block->bytes - counts->clean_below;
		counts->clean_below = block->bytes;
	}
	count_clean_take(counts, block, size);
}

/* The top of the stack becomes the program's, but nobody may see that yet. */
static inline __attribute__((always_inline)) void
take_out(struct ca_magazine *magazine, struct ca_stack *stack, struct ca_block *block,
	 uint64_t size, uint64_t born)
{
	ca_stack_pop(stack, block);
	atomic_store_explicit(&block->requested, size, memory_order_relaxed);
	atomic_store_explicit(&block->serial, magazine->serial++, memory_order_relaxed);
	block->born = born;
	block->thread = magazine->thread;
}

static inline __attribute__((always_inline)) void
publish(struct ca_block *block)
{
	atomic_store_explicit(&block->quick, block->address | CA_QUICK_LIVE, memory_order_release);
}

/* What need not be as usual. The magazine's lock is held, and is not afterwards. */
static __attribute__((noinline)) bool
take_otherwise(struct ca_magazine *magazine, struct ca_space *space, struct ca_stack *stack,
	       uint64_t size, bool locked, uint64_t *ret_address)
{
	struct ca_block *block = ca_stack_top(stack);
	bool used = block && block->user.stream;
	bool taken = block && may_take(magazine, space, block, locked);

	if (taken) {
		take_out(magazine, stack, block, size, ca_order_born(&space->order));
		count_take(&magazine->counts, block, used, size);
		*ret_address = block->address;
		if (ca_tracing(space->heap))
			ca_trace_alloc_locked(block);
		publish(block);
	}
	ca_magazine_unlock(magazine);
	return taken;
}

/* The calling thread has its magazine for itself from now on. */
static inline void
own(struct ca_magazine *magazine)
{
	if (__builtin_expect(!ca_magazine_try_own(magazine), 0))
		ca_magazine_wait(magazine, CA_OWNER);
}

bool
ca_magazine_is_locked_here(void)
{
	return ca_own.magazine &&
	       atomic_load_explicit(&ca_own.magazine->lock, memory_order_relaxed) == CA_OWNER;
}

bool
ca_magazine_take(struct ca_space *space, uint64_t size, uint64_t bytes, bool locked,
		 uint64_t *ret_address)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_stack *stack;

	if (ca_own.space != space->id)
		return false;
	stack = ca_stack_find(magazine, ca_grains(bytes));
	if (!stack || !ca_stack_top(stack))
		return false;
	own(magazine);
	return take_otherwise(magazine, space, stack, size, locked, ret_address);
}

/* Somebody has the magazine's lock. */
static __attribute__((noinline, cold)) bool
take_later(struct ca_magazine *magazine, struct ca_space *space, struct ca_stack *stack,
	   uint64_t size, uint64_t *ret_address)
{
	ca_magazine_wait(magazine, CA_OWNER);
	return take_otherwise(magazine, space, stack, size, false, ret_address);
}

/* Calls only what it ends with, so that it need not save registers. */
bool
ca_alloc_quick(struct ca_space *space, uint64_t size, uint64_t *ret_address)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_stack *stack;
	struct ca_block *block;
	uint64_t born;

	if (ca_own.quick_space != space->id || size - 1 >= CA_QUICK_MAX)
		return false;
	stack = ca_stack_find(magazine, (uint32_t)((size + CA_GRAIN - 1) / CA_GRAIN));
	if (!stack || !ca_stack_top(stack))
		return false;
	if (__builtin_expect(!ca_magazine_try_own(magazine), 0))
		return take_later(magazine, space, stack, size, ret_address);
	block = ca_stack_top(stack);
	born = atomic_load(&space->order.words.epoch);
	if (__builtin_expect(born & 1 || !is_usual_take(magazine, space, block, size), 0))
		return take_otherwise(magazine, space, stack, size, false, ret_address);
	take_out(magazine, stack, block, size, born);
	count_clean_take(&magazine->counts, block, size);
	*ret_address = block->address;
	publish(block);
	ca_magazine_unlock(magazine);
	return true;
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
	struct ca_space *space = block->segment->space;

	if (magazine->space != space ||
	    atomic_load_explicit(&space->attention, memory_order_relaxed) ||
	    (!locked && is_over(magazine, 0 - block->bytes)) ||
	    (block->thread != magazine->thread && ca_owned_any(space)))
		return false;
	if (!block->user.stream && ca_order_is_untouched(&space->order, block->born)) {
		ret_user->stream = NULL;
		return true;
	}
	return quiet_user(space, block, ret_user);
}

/* The thread's own block, which nobody has used, goes where there is room. */
static inline __attribute__((always_inline)) bool
is_usual_give(const struct ca_magazine *magazine, const struct ca_stack *stack,
	      const struct ca_block *block)
{
	struct ca_space *space = magazine->space;

	return block->segment->space == space &&
	       !atomic_load_explicit(&space->attention, memory_order_relaxed) &&
	       block->thread == magazine->thread && !block->user.stream &&
	       ca_order_is_untouched(&space->order, block->born) && stack && stack->room &&
	       block->bytes <= magazine->counts.clean_above;
}

static inline __attribute__((always_inline)) void
count_clean_give(struct ca_counts *counts, const struct ca_block *block)
{
	counts->frees++;
	counts->requested_below += atomic_load_explicit(&block->requested, memory_order_relaxed);
	counts->clean_below += block->bytes;
	counts->clean_above -= block->bytes;
}

static void
count_give(struct ca_counts *counts, const struct ca_block *block)
{
	if (!block->user.stream) {
		if (block->bytes > counts->clean_above)
			counts->clean_above = block->bytes;
		count_clean_give(counts, block);
		return;
	}
	counts->frees++;
	counts->requested_below += atomic_load_explicit(&block->requested, memory_order_relaxed);
	ca_counts_fold(counts);
	counts->used -= block->bytes;
}

/* Before anybody can have the block. */
static CA_APART void
trace_give(const struct ca_block *block, const struct ca_user *user)
{
	struct ca_users users = { .n = 1, .user = { *user } };

	ca_trace_free_locked(block, user->stream ? &users : NULL);
}

/* What need not be as usual, of a block that was claimed. The magazine's lock is held, and is not
 * afterwards. */
static __attribute__((noinline)) bool
give_otherwise(struct ca_magazine *magazine, struct ca_heap *heap, struct ca_block *block,
	       bool locked)
{
	struct ca_stack *stack = NULL;
	struct ca_user user;

	if (may_give(magazine, block, locked, &user))
		stack = ca_stack_for(magazine, block->rounded);
	if (stack) {
		if (ca_tracing(heap))
			trace_give(block, &user);
		block->user = user;
		block->thread = magazine->thread;
		ca_stack_push(stack, block);
		count_give(&magazine->counts, block);
	} else {
		publish(block);
	}
	ca_magazine_unlock(magazine);
	return stack != NULL;
}

bool
ca_magazine_give(struct ca_heap *heap, uint64_t address, bool locked)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_block *block;

	if (ca_own.heap != heap->id)
		return false;
	own(magazine);
	block = ca_bases_claim(&heap->bases, address);
	if (block)
		return give_otherwise(magazine, heap, block, locked);
	ca_magazine_unlock(magazine);
	return false;
}

/* It is not where it is most likely to be. The magazine's lock is held, and is not afterwards. */
static __attribute__((noinline)) bool
give_found(struct ca_magazine *magazine, struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block = ca_bases_claim(&heap->bases, address);

	if (block)
		return give_otherwise(magazine, heap, block, false);
	ca_magazine_unlock(magazine);
	return false;
}

/* Somebody has the magazine's lock. */
static __attribute__((noinline, cold)) bool
give_later(struct ca_magazine *magazine, struct ca_heap *heap, uint64_t address)
{
	ca_magazine_wait(magazine, CA_OWNER);
	return give_found(magazine, heap, address);
}

/* As ca_alloc_quick. */
bool
ca_free_quick(struct ca_heap *heap, uint64_t address)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_stack *stack;
	struct ca_block *block;

	if (ca_own.quick_heap != heap->id)
		return false;
	block = address % CA_GRAIN ? NULL : ca_bases_guess(&heap->bases, address / CA_GRAIN);
	if (__builtin_expect(!ca_magazine_try_own(magazine), 0))
		return give_later(magazine, heap, address);
	if (__builtin_expect(!block || !ca_block_claims_at(block, address), 0))
		return give_found(magazine, heap, address);
	stack = ca_stack_find(magazine, block->rounded);
	if (__builtin_expect(!is_usual_give(magazine, stack, block), 0))
		return give_otherwise(magazine, heap, block, false);
	ca_stack_push(stack, block);
	count_clean_give(&magazine->counts, block);
	ca_magazine_unlock(magazine);
	return true;
}
