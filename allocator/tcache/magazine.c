/* SPDX-License-Identifier: MIT */
/*
 * Programs free a block and ask for one of just that size again. Merging it with what is free
 * around it, only to cut it off once more, would be most of the work of both calls, and a lock for
 * all threads would make each wait for the others. So a thread keeps the blocks that it freed as
 * they are, in stacks by size, and its next request of that size takes the latest.
 *
 * Which blocks: those that nobody uses any more; those that one stream may still use; and those
 * that several may, of which one is another thread's. Such a one is handed out when its streams
 * have finished, which the driver is asked; that of one stream also unfinished, if the space is
 * quiet, or if no stream comes to wait because of it. That is defined in allocator/order/order.h
 * and deferred/place.c; here it is asked without the heap's lock, and whatever is not as usual is
 * left to the way with it.
 *
 * A request that the thread's magazine does not serve has some of it merged before it cuts anything
 * (policy/search.c), and all of it, and then others' magazines, before the cache grows. Anything
 * else that looks for free memory empties the magazines first (flush.c).
 *
 * A free claims its block by one compare-and-swap on the block's `quick` word, which holds the
 * address: of two frees of one address only one succeeds, and a record that means another block by
 * now is not mistaken for this one. The holder of the heap's lock takes an ALLOCATED block away
 * from all magazines by setting the word to 0.
 */
#include "allocator/tcache/fast.h"

#include <errno.h>

#include "allocator/deferred/deferred.h"
#include "allocator/trace/trace.h"
#include "config/mutant.h"

__thread struct ca_own ca_own __attribute__((tls_model("initial-exec")));

static bool
attention(const struct ca_space *space)
{
	return atomic_load_explicit(&space->attention, memory_order_relaxed) & CA_ATTENTION_ALWAYS;
}

/* ---- allocation */

/* The calling thread's last stream goes on with what it has used itself, and no other comes to wait
 * because of that. */
static CA_APART bool
goes_on_freely(struct ca_space *space, const struct ca_block *block)
{
	struct ca_users users;

	if (block->user.stream != ca_order_last_stream || block->thread != ca_order_thread())
		return false;
	users.n = 1;
	users.context = false;
	users.user[0] = block->user;
	return ca_order_exposes_freely(ca_held_record(&block->user), &users) &&
	       ca_order_may_expose(&space->order, &users);
}

/* The block's streams may have more to do with it: true if it may be handed out all the same. */
static inline __attribute__((always_inline)) bool
expose(struct ca_space *space, struct ca_block *block)
{
	if (ca_order_kept_is_done(&space->order, &block->user) || CA_MUTANT(KEPT_UNFINISHED)) {
		if (ca_user_is_multi(&block->user))
			CA_REACHED(QUICK_TAKEN_SEVERAL);
		block->user.stream = NULL;
		return true;
	}
	if (ca_user_is_multi(&block->user))
		return false;
	/* asked for under the magazine's lock, by which ca_magazines_pass_locked misses nothing */
	if (ca_order_may_capture(space->heap) ||
	    (!ca_held_is_quiet_for(space, &block->user) && !goes_on_freely(space, block)) ||
	    atomic_load(&ca_held_record(&block->user)->lost))
		return false;
	ca_order_expose(&space->order, &block->user);
	return true;
}

/* The magazine may hand the block out, as far as its users allow. */
static bool
is_allowed(const struct ca_magazine *magazine, const struct ca_space *space,
	   const struct ca_block *block, bool locked)
{
	return !attention(space) && magazine->serial != magazine->serials_end &&
	       (locked || !ca_magazine_is_over(magazine, block->bytes));
}

static inline __attribute__((always_inline)) bool
may_take(struct ca_magazine *magazine, struct ca_space *space, struct ca_block *block, bool locked)
{
	return is_allowed(magazine, space, block, locked) &&
	       (!block->user.stream || expose(space, block));
}

/* The top of the stack, if it may be handed out. */
static inline __attribute__((always_inline)) bool
take_top(struct ca_magazine *magazine, struct ca_space *space, struct ca_stack *stack,
	 uint64_t size, bool locked, uint64_t *ret_address)
{
	struct ca_block *block = ca_stack_top(stack);
	bool used = block && block->user.stream;

	if (!block || !may_take(magazine, space, block, locked))
		return false;
	CA_REACHED(QUICK_TAKEN);
	ca_quick_take(magazine, stack, block, size, magazine->serial,
		      ca_order_birth(&space->order));
	ca_counts_take(&magazine->counts, block->bytes, used, block->user.stream, size);
	*ret_address = ca_block_kept_address(block);
	if (ca_tracing(space->heap))
		ca_trace_alloc_locked(block);
	ca_quick_publish(block, *ret_address);
	return true;
}

/*
 * The driver is asked whether the streams have finished with the top of the stack. If so, returns
 * the stack of that size, NULL otherwise. No lock is held in the driver's call, and a callback of
 * the driver's may come here, too.
 */
static CA_APART struct ca_stack *
poll_top(struct ca_magazine *magazine, const struct ca_space *space, const struct ca_stack *stack)
{
	const struct ca_block *block = ca_stack_top(stack);
	struct ca_shelf *shelf = ca_own.shelf;
	uint32_t grains = stack->grains;
	struct ca_users users;
	int saved = errno;
	bool done = true;
	unsigned i;

	if (!block || !block->user.stream || ca_order_kept_is_done(&space->order, &block->user) ||
	    !is_allowed(magazine, space, block, false) || /* nor would it be afterwards */
	    ca_order_may_capture(space->heap) || shelf->polls.pass)
		return NULL;
	ca_order_kept_unfinished(&space->order, &block->user, &users);
	ca_magazine_unlock(magazine);
	for (i = 0; i < users.n && done; i++)
		done = ca_order_poll_user(&users.user[i]);
	errno = saved;
	(void)ca_own_turn(space->heap, ca_own_live(space)); /* such a callback may have left */
	ca_magazine_own(magazine);
	if (done)
		ca_backoff_succeeded(&shelf->polls);
	else
		ca_backoff_failed(&shelf->polls);
	return done && ca_own.shelf == shelf && ca_own.space == space->id
		       ? ca_stack_find(shelf, grains)
		       : NULL;
}

/* The same of a top that is not to be had as it is: its stream is asked about. The magazine's lock
 * is held, and is not afterwards. */
static CA_APART bool
take_polled(struct ca_magazine *magazine, struct ca_space *space, struct ca_stack *stack,
	    uint64_t size, uint64_t *ret_address)
{
	bool taken = false;

	while (!taken && (stack = poll_top(magazine, space, stack)))
		taken = take_top(magazine, space, stack, size, false, ret_address);
	ca_magazine_unlock(magazine);
	return taken;
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
	struct ca_stack *stack;
	bool taken;

	if (ca_own.space != space->id && !ca_own_turn(space->heap, ca_own_live(space)))
		return false;
	stack = ca_stack_find(ca_own.shelf, ca_grains(bytes));
	if (!stack || !ca_stack_top(stack))
		return false;
	ca_magazine_own(ca_own.magazine);
	if (!locked)
		return ca_magazine_take_on(space, size, stack, ret_address);
	taken = take_top(ca_own.magazine, space, stack, size, true, ret_address);
	ca_magazine_unlock(ca_own.magazine);
	return taken;
}

bool
ca_magazine_take_on(struct ca_space *space, uint64_t size, struct ca_stack *stack,
		    uint64_t *ret_address)
{
	struct ca_magazine *magazine = ca_own.magazine;

	if (!take_top(magazine, space, stack, size, false, ret_address))
		return take_polled(magazine, space, stack, size, ret_address);
	ca_magazine_unlock(magazine);
	return true;
}

/* ---- free */

/* In a quiet space: its one stream, if that may still use the block, else none. False: ask with
 * the locks. */
static inline bool
quiet_user(struct ca_space *space, const struct ca_block *block, struct ca_user *ret_user)
{
	struct ca_order *order = &space->order;
	struct ca_user user = block->user;
	struct ca_stream_record *only;
	uint64_t last;

	if (CA_MUTANT(INHERITED_DROPPED))
		user.stream = NULL;
	only = ca_order_quiet_stream(order, &last);
	if (!only || (user.stream && user.stream != &only->stream) || space->heap->no_marks ||
	    !ca_order_is_user(order, only) || ca_order_has_foreign_user(order, block->birth))
		return false;
	if (last >= block->birth)
		user = (struct ca_user){ &only->stream, last };
	if (user.stream && ca_user_is_done(&user))
		user.stream = NULL;
	*ret_user = user;
	/* the space is quiet, but does that count? */
	return !user.stream || !ca_held_is_finished_only(space);
}

/*
 * Elsewhere: the streams that may still use the block, or none. Where the driver was asked in vain
 * when such a block was wanted, they are kept more and more seldom: then the best fit of all
 * that waits, merged, is the better choice. What another thread allocated is left to the way that
 * may hold this one back.
 */
static CA_APART bool
kept_users(const struct ca_magazine *magazine, struct ca_shelf *shelf, const struct ca_block *block,
	   struct ca_user *ret_user)
{
	struct ca_space *space = shelf->space;
	struct ca_user inherited = block->user;

	if (block->thread != magazine->thread || space->heap->no_marks ||
	    atomic_load_explicit(&space->too_large, memory_order_relaxed) ||
	    !ca_backoff_is_due(&shelf->polls))
		return false;
	if (CA_MUTANT(INHERITED_DROPPED))
		inherited.stream = NULL;
	return ca_order_kept_users(&space->order, block->birth, &inherited, ret_user);
}

static inline __attribute__((always_inline)) bool
may_give(const struct ca_magazine *magazine, struct ca_shelf *shelf, const struct ca_block *block,
	 bool locked, struct ca_user *ret_user)
{
	struct ca_space *space = shelf->space;

	/* it is ALLOCATED: whether it is of that space */
	if (shelf->own_live != block->space_and_state || attention(space) ||
	    (!locked && ca_magazine_is_over(magazine, 0 - block->bytes)) ||
	    (block->thread != magazine->thread && ca_held_any(space)))
		return false;
	if (!block->user.stream && ca_order_is_untouched(&space->order, block->birth)) {
		ret_user->stream = NULL;
		return true;
	}
	return quiet_user(space, block, ret_user) || kept_users(magazine, shelf, block, ret_user);
}

static inline void
count_give(struct ca_counts *counts, const struct ca_block *block)
{
	counts->frees++;
	counts->requested -= ca_block_requested(block);
	if (block->user.stream) {
		ca_counts_merge(counts);
		counts->used -= block->bytes;
		return;
	}
	counts->clean -= block->bytes;
	if ((int64_t)counts->clean < (int64_t)counts->clean_least)
		counts->clean_least = counts->clean;
}

/* Before anybody can have the block. */
static CA_APART void
trace_give(const struct ca_block *block, const struct ca_user *user)
{
	struct ca_users users = { .n = 0 };

	if (user->stream)
		ca_order_kept_unfinished(&block->segment->space->order, user, &users);
	ca_trace_free_locked(block, users.n ? &users : NULL);
}

/* Blocks of a stack that the next one is compared with. With 64 the rows are the same. */
enum { SORTED = 8 };

/* Large blocks in extents go out from the lowest address on, as they do without a magazine: so the
 * upper ones come to be free together. (Without that a step of W1b maps 14 to 18 handles instead of
 * 4 to 6.) */
static CA_APART void
push_by_address(struct ca_stack *stack, struct ca_block *block)
{
	struct ca_block *at = ca_stack_top(stack);
	unsigned i;

	if (!at || block->address < at->address) {
		ca_stack_push(stack, block);
		return;
	}
	for (i = 1; i < SORTED && at->below && at->below->address < block->address; i++)
		at = at->below;
	block->below = at->below;
	at->below = block;
	stack->available--;
}

/* Where something may be unusual, of a block that was claimed. The magazine's lock is held, and is
 * not afterwards. */
static inline __attribute__((always_inline)) bool
give(struct ca_magazine *magazine, struct ca_heap *heap, struct ca_block *block, bool locked)
{
	struct ca_shelf *shelf = ca_own.shelf;
	struct ca_stack *stack = NULL;
	struct ca_user user;

	if (may_give(magazine, shelf, block, locked, &user))
		stack = ca_stack_for(shelf, ca_block_grains(heap, block));
	if (stack) {
		CA_REACHED(QUICK_GIVEN);
		if (ca_tracing(heap))
			trace_give(block, &user);
		block->user = user;
		block->thread = (uint32_t)magazine->thread;
		if (__builtin_expect(heap->config.expandable_segments, 0) &&
		    ca_stack_is_large(stack))
			push_by_address(stack, block);
		else
			ca_stack_push(stack, block);
		count_give(&magazine->counts, block);
	} else {
		ca_quick_publish(block, block->address);
	}
	ca_magazine_unlock(magazine);
	return stack != NULL;
}

/* The same, where that is not the usual way. */
static CA_APART bool
give_otherwise(struct ca_magazine *magazine, struct ca_heap *heap, struct ca_block *block,
	       bool locked)
{
	return give(magazine, heap, block, locked);
}

bool
ca_magazine_give(struct ca_heap *heap, uint64_t address, bool locked)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_block *block;

	if (ca_own.heap != heap->id)
		return false;
	ca_magazine_own(magazine);
	block = ca_bases_claim(&heap->bases, address);
	if (block)
		return give_otherwise(magazine, heap, block, locked);
	ca_magazine_unlock(magazine);
	return false;
}

/* A block of another space than the last one's, which nothing was done with so far. Its shelf may
 * be in another magazine, so it has to be claimed again. */
static CA_APART bool
give_there(struct ca_heap *heap, struct ca_block *block)
{
	uint64_t address = block->address;
	uint32_t own_live = block->space_and_state;

	ca_quick_publish(block, address);
	ca_magazine_unlock(ca_own.magazine);
	if (!ca_own_turn(heap, own_live))
		return false;
	if (ca_free_quick(heap, address, &block))
		return true;
	return block ? give_otherwise(ca_own.magazine, heap, block, false)
		     : ca_magazine_give(heap, address, false);
}

bool
ca_magazine_give_on(struct ca_heap *heap, struct ca_block *block)
{
	if (ca_own.shelf->own_live != block->space_and_state)
		return give_there(heap, block);
	return give(ca_own.magazine, heap, block, false);
}
