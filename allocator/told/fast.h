/* SPDX-License-Identifier: MIT */
/*
 * The first halves of ca_told_alloc and ca_told_free, inline: a stream gets what it freed last of
 * that size, and keeps what it frees (told_keep.c). Where the two that are called quick answer
 * false nothing was done: the second halves do the same if it was only for the lock, and take
 * whatever time they need. Where there is a trace they always answer false, since they record
 * nothing.
 *
 * These are counted in instructions (tests/bench). So nothing is called unless it is rare, and what
 * a loop or a lock would have to find out is read from a word that was written when it changed.
 */
#pragma once

#include "allocator/order/order_told.h"
#include "allocator/told/internal.h"

/* The one user of memory that is freed in a stream whose space has seen all work: nothing that the
 * driver would have ordered the free behind is without an operation of the stream behind it. */
static inline __attribute__((always_inline)) bool
ca_told_only_user(struct ca_stream *stream, struct ca_user *ret_user)
{
	const struct ca_stream_record *record = ca_told_record(stream);
	uint64_t epoch, last;

	if (ca_told_is_unordered(record) && !CA_MUTANT(TOLD_LEGACY_ALONE))
		return false;
	/* behind the answer above: an operation that another thread put is at most of this epoch */
	epoch = atomic_load_explicit(&stream->words->epoch, memory_order_acquire);
	last = atomic_load_explicit(&stream->last, memory_order_acquire);
	*ret_user = (struct ca_user){ stream, epoch | 1 };
	if (last <= atomic_load(&record->done)) /* an idle stream is not stamped */
		ret_user->stamp = last;
	return last >= epoch || ret_user->stamp == last;
}

/* Several streams may want what this one frees, so that it is to be marked, and has not been armed
 * for that since its last submission. */
static inline __attribute__((always_inline)) bool
ca_told_must_arm(const struct ca_told_pool *pool, const struct ca_user *user, bool *ret_exact)
{
	const struct ca_stream_record *record = ca_told_record(user->stream);

	*ret_exact = false;
	if (atomic_load_explicit(&record->space->order.candidates, memory_order_relaxed) <= 1 ||
	    !ca_told_pool_may_wait(pool))
		return false;
	*ret_exact = ca_told_is_armed(user->stream);
	return !*ret_exact && !ca_user_is_done(user);
}

/* The same; or others may want what this thread frees in its own stream, and no mark is going to be
 * recorded unless the second half does (ca_told_mark_own). */
static inline __attribute__((always_inline)) bool
ca_told_must_mark(const struct ca_told_pool *pool, const struct ca_user *user, bool *ret_exact)
{
	const struct ca_stream_record *record = ca_told_record(user->stream);

	*ret_exact = false;
	if (atomic_load_explicit(&record->space->order.candidates, memory_order_relaxed) <= 1)
		return false;
	if (__builtin_expect(!ca_told_pool_may_wait(pool), 0))
		return atomic_load_explicit(&record->kind, memory_order_relaxed) ==
			       CA_STREAM_PER_THREAD &&
		       !ca_user_is_done(user);
	*ret_exact = ca_told_is_armed(user->stream);
	return !*ret_exact && !ca_user_is_done(user);
}

/* The mark of all stacks where there is a trace: ca_told_alloc_quick finds nothing then. */
enum { CA_TOLD_QUICK = 0, CA_TOLD_TRACED = 1 };

/* NULL: the stack is of another size, or full. */
static inline __attribute__((always_inline)) struct ca_told_stack *
ca_told_stack_to_keep_told(struct ca_told_group *group, uint64_t bytes, unsigned mark)
{
	struct ca_told_stack *stack = &group->stacks[ca_told_hash(bytes, CA_TOLD_STACK_SHIFT)];

	if (stack->top && (stack->bytes != (bytes | mark) || stack->n == CA_TOLD_STACK_MAX))
		return NULL;
	stack->bytes = bytes | mark;
	return stack;
}

/* `user` is the block's only one, and armed if it must be. */
static inline __attribute__((always_inline)) bool
ca_told_keep_told(struct ca_told_block *block, const struct ca_user *user, bool exact,
		  unsigned mark)
{
	struct ca_told_pool *pool = block->segment->pool;
	struct ca_told_group *group = ca_told_group_find_told(pool, ca_told_record(user->stream));
	uint64_t bytes = ca_round_up(block->requested, CA_GRAIN);
	struct ca_told_stack *stack;

	if (!group)
		return false;
	stack = ca_told_stack_to_keep_told(group, bytes, mark);
	if (!stack)
		return false;
	ca_told_count_back_told(pool, bytes);
	block->state = CA_TOLD_KEPT;
	block->exact = exact;
	block->user = *user;
	block->below = stack->top;
	stack->top = block;
	stack->n++;
	ca_list_insert(&group->kept, &block->held);
	return true;
}

/* NULL: nothing is kept of that size. */
static inline __attribute__((always_inline)) struct ca_told_block *
ca_told_take_kept_told(struct ca_told *told, struct ca_told_pool *pool, struct ca_stream *stream,
		       uint64_t size, unsigned mark)
{
	struct ca_told_group *group = ca_told_group_find_told(pool, ca_told_record(stream));
	uint64_t bytes = ca_round_up(size, CA_GRAIN);
	struct ca_told_stack *stack;
	struct ca_told_block *block;

	if (!group)
		return NULL;
	stack = &group->stacks[ca_told_hash(bytes, CA_TOLD_STACK_SHIFT)];
	block = stack->top;
	if (!block || stack->bytes != (bytes | mark))
		return NULL;
	stack->top = block->below;
	stack->n--;
	ca_list_unlink(&block->held);
	ca_told_count_out_told(told, pool, block, size);
	if (!ca_user_is_done(&block->user))
		ca_told_reused(stream, block->serial);
	return block;
}

/* The device of a stream's context. */
static inline unsigned
ca_told_device_of(const struct ca_stream *stream)
{
	return ca_told_record(stream)->space->device->ordinal;
}

static inline __attribute__((always_inline)) bool
ca_told_alloc_quick(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size,
		    uint64_t *ret_address)
{
	struct ca_told *told = pool->told;
	struct ca_told_block *block;

	if (size - 1 >= CA_SIZE_MAX || ca_told_is_unordered(ca_told_record(stream)) ||
	    !ca_told_trylock(told))
		return false;
	block = ca_told_take_kept_told(told, pool, stream, size, CA_TOLD_QUICK);
	if (block)
		*ret_address = block->address;
	ca_told_unlock(told);
	return block;
}

/* Under the lock: for no address of a pool that was destroyed, nor while such a pool has something
 * to give back. */
static inline __attribute__((always_inline)) bool
ca_told_free_kept_told(struct ca_told *told, uint64_t address, const struct ca_user *user)
{
	struct ca_told_block *block = ca_told_table_find_told(told, address);
	bool exact;

	return block && block->state == CA_TOLD_LIVE &&
	       !atomic_load_explicit(&told->n_closed, memory_order_relaxed) &&
	       !ca_told_must_mark(block->segment->pool, user, &exact) &&
	       ca_told_keep_told(block, user, exact, CA_TOLD_QUICK);
}

/* `stream` is of a space that has seen all work (ca_told_sees_all). */
static inline __attribute__((always_inline)) bool
ca_told_free_quick(struct ca_told *told, uint64_t address, struct ca_stream *stream)
{
	struct ca_user user;
	bool kept;

	if (!told || atomic_load_explicit(&told->slow, memory_order_relaxed) ||
	    !ca_told_only_user(stream, &user) || !ca_told_trylock(told))
		return false;
	kept = ca_told_free_kept_told(told, address, &user);
	ca_told_unlock(told);
	return kept;
}
