/* SPDX-License-Identifier: MIT */
/*
 * Freed blocks that wait for streams.
 *
 * A block that one stream may still use is STREAM_HELD by it: it lies in the stream's own pools,
 * where it can be found by size should it be exposed (handed out although the stream has not
 * finished: policy/search_early.c). It is in the list of the stream, smallest stamp first, so that
 * a stream's progress settles the head of its list and costs nothing otherwise. One that several
 * may still use is the business of multi_user.c.
 *
 * In a quiet space, with one stream that could submit, what that stream owns is as good as FREE:
 * whatever is submitted later comes after it.
 */
#include "allocator/deferred/deferred.h"

#include <limits.h>

#include "allocator/block/block.h"

bool
ca_held_pools_ready(struct ca_heap *heap, struct ca_stream_record *record)
{
	if (record->pools)
		return true;
	record->pools = ca_arena_alloc(&heap->fixed, 2 * sizeof(*record->pools));
	if (!record->pools)
		return false;
	ca_pools_init(record->pools);
	return true;
}

bool
ca_held_is_markable(const struct ca_users *users)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		if (atomic_load_explicit(&ca_held_record(&users->user[i])->lost,
					 memory_order_acquire))
			return false;
	return !users->context;
}

bool
ca_held_place_locked(struct ca_block *block, struct ca_users *users)
{
	struct ca_heap *heap = block->segment->space->heap;

	if ((ca_users_remove_finished(users) && !users->context) || block->segment->retired) {
		ca_block_drop_users_locked(block);
		ca_block_settle_locked(block);
		return true;
	}
	if (!ca_held_is_markable(users) || heap->no_marks)
		return false;
	if (users->n > 1 || ca_registered_overlaps(block))
		return ca_multi_place_locked(block, users);
	if (!ca_held_pools_ready(heap, ca_held_record(&users->user[0])))
		return false;
	ca_block_drop_users_locked(block);
	ca_block_own_locked(block, users->user[0], NULL);
	return true;
}

bool
ca_held_goes_on_locked(const struct ca_block *block)
{
	const struct ca_stream_record *record = ca_held_record(&block->user);

	return !ca_user_is_multi(&block->user) && record->pools && !block->segment->retired &&
	       !ca_registered_overlaps(block) && !ca_user_is_done(&block->user) &&
	       !atomic_load_explicit(&record->lost, memory_order_acquire) &&
	       !record->space->heap->no_marks;
}

void
ca_held_place_kept_locked(struct ca_block *block)
{
	struct ca_users users;

	ca_order_kept_unfinished(&block->segment->space->order, &block->user, &users);
	ca_held_place_or_mark_locked(block, &users);
}

void
ca_held_place_or_mark_locked(struct ca_block *block, struct ca_users *users)
{
	struct ca_list hand;

	if (ca_held_place_locked(block, users))
		return;
	ca_block_detach_locked(block);
	ca_block_set_state_locked(block, CA_BLOCK_MARK_HELD);
	ca_list_init(&hand);
	ca_list_insert(&hand, &block->waiting);
	ca_unmarked_add_locked(block->segment->space, &hand);
}

void
ca_held_place_again_locked(struct ca_block *block)
{
	struct ca_users users;

	ca_block_users(block, &users);
	ca_pool_unindex_locked(block);
	ca_list_remove(&block->waiting);
	ca_held_place_or_mark_locked(block, &users);
}

static bool
is_ready(const struct ca_block *block)
{
	struct ca_users users;

	ca_block_users(block, &users);
	return ca_users_remove_finished(&users) || !ca_held_is_markable(&users);
}

enum {
	SETTLE_LOOK = 8, /* blocks in vain: those behind them were freed later, most likely */
};

/* Blocks that one call settles. (A request after 100,000 were found finished: 6.8 ms with all; the
 * mean of what the 44 workloads reserve at 0 to 300 us and with two seeds: -0.26 to +0.14 %.) */
#define SOME 32u
#define ALL UINT_MAX

/* At most `*most` blocks, less those that were settled. */
static void
settle_stream(struct ca_stream_record *record, unsigned *most)
{
	struct ca_list *at = &record->waiting; /* up to here blocks stay */
	unsigned failures = 0;

	while (*most && at->next != &record->waiting && failures < SETTLE_LOOK) {
		struct ca_block *block = CA_CONTAINER_OF(at->next, struct ca_block, waiting);

		if (is_ready(block)) {
			ca_held_place_again_locked(block);
			--*most;
			continue;
		}
		if (!ca_block_multi(block))
			break;
		at = at->next;
		failures++;
	}
}

/* True: something was settled. */
static bool
settle(struct ca_space *space, unsigned most)
{
	uint64_t progress = atomic_load_explicit(&space->order.progress, memory_order_acquire);
	struct ca_stream_record *record;
	unsigned i, left = most;
	bool settled, asked;

	if (progress == space->settled)
		return false;
	for (i = 0; space->stream_held_blocks && (record = ca_record_at(&space->order, i)); i++)
		settle_stream(record, &left);
	settled = ca_unmarked_settle_locked(space);
	asked = ca_multi_settle_locked(space, &left, most == ALL);
	if (left && asked)
		space->settled = progress;
	return settled || left < most;
}

bool
ca_held_settle_locked(struct ca_space *space)
{
	return settle(space, ALL);
}

bool
ca_held_settle_some_locked(struct ca_space *space)
{
	return settle(space, SOME);
}

void
ca_held_forget(struct ca_space *space)
{
	struct ca_stream_record *record;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++) {
		ca_list_init(&record->waiting);
		if (record->pools)
			ca_pools_init(record->pools);
	}
}
