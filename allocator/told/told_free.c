/* SPDX-License-Identifier: MIT */
/*
 * The way of a free, and of segments that go back to the driver's pool. That is done only with
 * segments that are one FREE block: their work has finished.
 */
#include "allocator/told/fast.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "config/mutant.h"

static void
add_all_users(struct ca_heap *heap, struct ca_told_users *users)
{
	struct ca_space *space;

	users->n = 0;
	users->more = false;
	users->poll_serial = 0;
	CA_HEAP_LOCKED(heap);
	for (space = heap->spaces; space && !CA_MUTANT(TOLD_HOST_FREE); space = space->next)
		if (!space->dead)
			ca_told_users_add_all(space, users);
}

static void
free_told(struct ca_told_block *block, struct ca_stream *stream, struct ca_told_users *users)
{
	struct ca_told_pool *pool = block->segment->pool;
	struct ca_told_group *group =
		stream ? ca_told_group_find_told(pool, ca_told_record(stream)) : NULL;
	bool exact = false;

	if (stream && users->n == 1 && users->user[0].stream == stream &&
	    ca_told_pool_allows(pool, CA_TOLD_INTERNAL) && !pool->told->heap->config.reuse_finished)
		exact = ca_told_arm(&users->user[0]);
	if (group) /* that was freed before */
		(void)ca_told_unkeep_group_told(group);
	ca_told_take_back_told(block);
	ca_told_place_told(block, users, exact);
}

/* The same as ca_told_free_quick, if that was in the way of another thread, had to arm, or would
 * not have been recorded. */
static bool
keep_told(struct ca_told_block *block, struct ca_stream *stream)
{
	struct ca_told_pool *pool = block->segment->pool;
	struct ca_user user;
	bool exact;

	if (pool->told->heap->config.reuse_finished || pool->told->n_closed ||
	    !ca_told_sees_all(stream) || !ca_told_only_user(stream, &user))
		return false;
	if (ca_told_must_arm(pool, &user, &exact))
		exact = ca_told_arm(&user);
	return ca_told_keep_told(block, &user, exact,
				 ca_tracing(pool->told->heap) ? CA_TOLD_TRACED : CA_TOLD_QUICK);
}

static int
free_by(struct ca_heap *heap, uint64_t address, struct ca_stream *stream, bool is_known)
{
	struct ca_told *told = atomic_load_explicit(&heap->told, memory_order_acquire);
	struct ca_told_block *block;
	struct ca_told_users users;
	int r = 0;

	if (!told || !ca_told_any(heap))
		return -ENOENT;
	ca_told_lock(told);
	block = ca_told_table_find_told(told, address);
	if (block && block->state == CA_TOLD_LIVE && ca_tracing(heap))
		ca_told_trace_free_told(block, stream, is_known);
	if (block && block->state == CA_TOLD_LIVE && stream && keep_told(block, stream)) {
		r = 0;
	} else if (block && block->state == CA_TOLD_LIVE) {
		if (stream)
			ca_told_users_of(stream, &users);
		else
			add_all_users(heap, &users);
		users.more |= !is_known;
		free_told(block, stream, &users);
	} else {
		r = ca_told_segment_find_told(told, address) ? -EINVAL : -ENOENT;
	}
	ca_told_unlock(told);
	return r;
}

/* A free of memory that is not ours is none that is served. */
static int
put_operation(struct ca_heap *heap, uint64_t address, struct ca_stream *stream)
{
	struct ca_told_info info;

	if (!ca_told_needs_operation(stream) || ca_told_lookup(heap, address, &info))
		return 0;
	return ca_told_put_operation(stream);
}

int
ca_told_free(struct ca_heap *heap, uint64_t address, struct ca_stream *stream)
{
	int r = stream ? put_operation(heap, address, stream) : 0;

	if (!r)
		r = free_by(heap, address, stream, true);
	if (!r && stream)
		ca_told_mark_for_others(stream);
	return r;
}

int
ca_told_free_untracked(struct ca_heap *heap, uint64_t address)
{
	return free_by(heap, address, NULL, false);
}

void
ca_told_slow_begin(struct ca_heap *heap)
{
	atomic_fetch_add(&atomic_load(&heap->told)->slow, 1);
}

void
ca_told_slow_end(struct ca_heap *heap)
{
	atomic_fetch_sub(&atomic_load(&heap->told)->slow, 1);
}

/* ---- segments */

static __thread unsigned own_hand __attribute__((tls_model("initial-exec"))); /* segments */

bool
ca_told_take_out_told(struct ca_told_segment *segment, struct ca_told_idle *ret_idle)
{
	if (!segment)
		return false;
	*ret_idle = (struct ca_told_idle){ segment->pool, segment->address, segment->bytes,
					   segment->pool->number, segment->large };
	atomic_fetch_add(&segment->pool->in_hands, 1);
	own_hand++;
	ca_told_segment_leave_told(segment);
	return true;
}

bool
ca_told_take_idle(struct ca_heap *heap, struct ca_told_pool *only, unsigned ordinal,
		  struct ca_told_idle *ret_idle)
{
	struct ca_told *told = atomic_load(&heap->told);
	struct ca_told_pool *pool;
	bool taken = false;

	if (!told)
		return false;
	ca_told_lock(told);
	for (pool = told->pools; pool && !taken; pool = pool->next)
		if (only ? pool == only : pool->ordinal == ordinal)
			taken = ca_told_take_out_told(ca_told_idle_told(pool), ret_idle);
	ca_told_unlock(told);
	return taken;
}

bool
ca_told_take_closed(struct ca_heap *heap, struct ca_told_idle *ret_idle)
{
	struct ca_told *told = atomic_load(&heap->told);
	struct ca_told_pool *pool;
	bool taken = false;

	if (!told || !atomic_load(&told->n_closed))
		return false;
	ca_told_lock(told);
	for (pool = told->pools; pool && !taken; pool = pool->next)
		if (!pool->handle && !ca_list_empty(&pool->segments)) {
			ca_told_settle_told(pool);
			ca_told_poll_told(pool);
			if (!pool->handle) /* the lock was left: it may be another pool's now */
				taken = ca_told_take_out_told(ca_told_idle_told(pool), ret_idle);
		}
	ca_told_unlock(told);
	return taken;
}

/* Where there is no memory for the records it is lost. */
void
ca_told_put_back(const struct ca_told_idle *idle)
{
	struct ca_told *told = idle->pool->told;
	struct ca_told_users nobody = { .n = 0 };
	struct ca_told_pool *pool = idle->pool;
	struct ca_told_block *block = NULL;

	ca_told_lock(told);
	if (pool->number != idle->number)
		pool = ca_told_pool_retired_told(told, pool->ordinal);
	if (pool)
		block = ca_told_segment_enter_told(pool, idle->address, idle->bytes, idle->large);
	if (block)
		ca_told_place_told(block, &nobody, false);
	if (block && !pool->handle)
		atomic_fetch_add(&told->n_closed, 1);
	ca_told_unlock(told);
}

/* A thread with the heap's lock sees the hand full, or the change. */
void
ca_told_hand_empty(struct ca_told_pool *pool, unsigned segments)
{
	struct ca_heap *heap = pool->told->heap;
	struct ca_device *device;

	if (!segments)
		return;
	CA_HEAP_LOCKED_LEASED(heap);
	for (device = heap->devices; device; device = device->next)
		if (device->ordinal == pool->ordinal)
			device->generation++;
	atomic_fetch_sub(&pool->in_hands, segments);
	own_hand -= segments;
}

void
ca_told_hand_after_fork_child(void)
{
	own_hand = 0;
}

/* A signal handler asks, too, in the middle of a thread's giving back: own segments do not count.
 */
bool
ca_told_others_give(const struct ca_heap *heap, unsigned ordinal)
{
	const struct ca_told *told = atomic_load_explicit(&heap->told, memory_order_acquire);
	const struct ca_told_pool *pool = told ? atomic_load(&told->pools) : NULL;
	unsigned segments = 0;

	for (; pool; pool = pool->next)
		if (pool->ordinal == ordinal)
			segments += atomic_load(&pool->in_hands);
	return segments > own_hand;
}
