/* SPDX-License-Identifier: MIT */
/*
 * The first halves of ca_told_alloc and ca_told_free, inline: a stream gets what it freed last of
 * that size, and keeps what it frees (told_keep.c). Where they answer false nothing was done.
 */
#pragma once

#include "allocator/told/internal.h"

/* The one user of memory that is freed in a stream whose space has seen all work, and no other
 * stream of which the driver would have ordered the free behind. */
static inline bool
ca_told_only_user(struct ca_stream *stream, struct ca_user *ret_user)
{
	const struct ca_stream_record *record = ca_told_record(stream);
	uint64_t epoch = atomic_load_explicit(&stream->words->epoch, memory_order_acquire);
	uint64_t last;

	if (atomic_load_explicit(&record->kind, memory_order_relaxed) != CA_STREAM_NONBLOCKING &&
	    atomic_load(&record->space->order.n_streams) > 1)
		return false;
	last = atomic_load_explicit(&stream->last, memory_order_acquire);
	*ret_user = (struct ca_user){ stream, epoch | 1 };
	if (last <= atomic_load(&record->done)) /* an idle stream is not stamped */
		ret_user->stamp = last;
	return last >= epoch || ret_user->stamp == last;
}

/* NULL: the stack is of another size, or full. */
static inline struct ca_told_stack *
ca_told_stack_to_keep_told(struct ca_told_group *group, uint64_t bytes)
{
	struct ca_told_stack *stack = &group->stacks[ca_told_hash(bytes, CA_TOLD_STACKS_LOG)];

	if (stack->top && (stack->bytes != bytes || stack->n == CA_TOLD_STACK_MAX))
		return NULL;
	stack->bytes = bytes;
	return stack;
}

/* `user` is the block's only one. */
static inline bool
ca_told_keep_told(struct ca_told_block *block, const struct ca_user *user)
{
	struct ca_told_pool *pool = block->segment->pool;
	struct ca_told_group *group = ca_told_group_find_told(pool, ca_told_record(user->stream));
	struct ca_told_stack *stack;

	if (!group || !atomic_load_explicit(&pool->handle, memory_order_relaxed))
		return false;
	stack = ca_told_stack_to_keep_told(group, ca_round_up(block->requested, CA_GRAIN));
	if (!stack)
		return false;
	block->exact = atomic_load_explicit(&group->record->space->order.candidates,
					    memory_order_relaxed) > 1 &&
		       ca_told_pool_may_wait(pool) && ca_told_arm(user);
	ca_told_count_back_told(block);
	block->state = CA_TOLD_KEPT;
	block->user = *user;
	block->below = stack->top;
	stack->top = block;
	stack->n++;
	ca_list_insert(&group->kept, &block->held);
	return true;
}

/* NULL: nothing is kept of that size. */
static inline struct ca_told_block *
ca_told_take_kept_told(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size)
{
	struct ca_told_group *group = ca_told_group_find_told(pool, ca_told_record(stream));
	uint64_t bytes = ca_round_up(size, CA_GRAIN);
	struct ca_told_stack *stack;
	struct ca_told_block *block;

	if (!group)
		return NULL;
	stack = &group->stacks[ca_told_hash(bytes, CA_TOLD_STACKS_LOG)];
	block = stack->top;
	if (!block || stack->bytes != bytes)
		return NULL;
	if (!ca_user_is_done(&block->user))
		ca_told_reused(stream);
	stack->top = block->below;
	stack->n--;
	ca_list_remove(&block->held);
	ca_told_count_out_told(block, size);
	return block;
}

static inline bool
ca_told_alloc_quick(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size,
		    uint64_t *ret_address)
{
	struct ca_told_block *block;

	if (size - 1 >= CA_SIZE_MAX)
		return false;
	ca_told_lock(pool->told);
	block = ca_told_take_kept_told(pool, stream, size);
	if (block)
		*ret_address = block->address;
	ca_told_unlock(pool->told);
	return block;
}

/* For no address of a pool that was destroyed, nor while such a pool has something to give back.
 * `stream` is of a space that has seen all work (ca_told_sees_all). */
static inline bool
ca_told_free_quick(struct ca_heap *heap, uint64_t address, struct ca_stream *stream)
{
	struct ca_told *told = atomic_load_explicit(&heap->told, memory_order_acquire);
	struct ca_told_block *block;
	struct ca_user user;
	bool kept;

	if (!told || heap->config.reuse_finished ||
	    atomic_load_explicit(&told->n_closed, memory_order_relaxed) ||
	    !ca_told_only_user(stream, &user))
		return false;
	ca_told_lock(told);
	block = ca_told_table_find_told(told, address);
	kept = block && block->state == CA_TOLD_LIVE && ca_told_keep_told(block, &user);
	ca_told_unlock(told);
	return kept;
}
