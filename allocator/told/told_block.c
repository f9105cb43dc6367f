/* SPDX-License-Identifier: MIT */
/*
 * Segments are tiled by blocks. A freed block is FREE, HELD by one stream or SHARED by several;
 * neighbours that are FREE are merged, and so are neighbours held by the same stream, with the
 * larger stamp of the two; where no other stream could want them, FREE ones with those that the one
 * stream holds. Those that several share wait for themselves: they are few.
 */
#include "allocator/told/internal.h"

#include <string.h>

enum {
	SHARED_REST = 256 << 10,
	STAMP_STEPS = 8, /* from the last block to the place of one with a smaller stamp */
};

/* ---- blocks by address */

static struct ca_told_block **
slot_of(const struct ca_told *told, uint64_t address)
{
	return &told->table[ca_told_hash(address, told->table_shift)];
}

/* Chains become longer if there is no memory; the old table stays in the arena. */
static void
table_grow(struct ca_told *told)
{
	struct ca_told_block **old = told->table, *block;
	size_t n = (size_t)1 << (64 - told->table_shift), i;
	struct ca_told_block **fresh =
		ca_arena_alloc(&told->arena, 2 * n * sizeof(struct ca_told_block *));

	if (!fresh)
		return;
	told->table = fresh;
	told->table_shift--;
	for (i = 0; i < n; i++)
		while ((block = old[i])) {
			struct ca_told_block **slot = slot_of(told, block->address);

			old[i] = block->chain;
			block->chain = *slot;
			*slot = block;
		}
}

static void
drop_users(struct ca_told_block *block)
{
	ca_objects_put(&block->segment->pool->told->users, block->users);
	block->users = NULL;
	block->user.stream = NULL;
}

void
ca_told_hand_out_told(struct ca_told_block *block, uint64_t size)
{
	struct ca_told *told = block->segment->pool->told;
	struct ca_told_block **slot;

	if (told->n_tabled >> (64 - told->table_shift))
		table_grow(told);
	drop_users(block);
	slot = slot_of(told, block->address);
	block->chain = *slot;
	*slot = block;
	told->n_tabled++;
	ca_told_count_out_told(told, block->segment->pool, block, size);
}

void
ca_told_table_remove_told(struct ca_told_block *block)
{
	struct ca_told *told = block->segment->pool->told;
	struct ca_told_block **at = slot_of(told, block->address);

	while (*at != block)
		at = &(*at)->chain;
	*at = block->chain;
	block->chain = NULL;
	block->serial = 0;
	ca_list_init(&block->held);
	told->n_tabled--;
}

void
ca_told_take_back_told(struct ca_told_block *block)
{
	ca_told_table_remove_told(block);
	ca_told_count_back_told(block->segment->pool, ca_round_up(block->requested, CA_GRAIN));
}

/* ---- segments */

struct ca_told_segment *
ca_told_segment_find_told(const struct ca_told *told, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&told->segment_tree, address);
	struct ca_told_segment *segment;

	if (!node)
		return NULL;
	segment = CA_CONTAINER_OF(node, struct ca_told_segment, by_address);
	return address - segment->address < segment->bytes ? segment : NULL;
}

struct ca_told_block *
ca_told_segment_enter_told(struct ca_told_pool *pool, uint64_t address, uint64_t bytes, bool large)
{
	struct ca_told *told = pool->told;
	struct ca_told_segment *segment = ca_objects_get(&told->segments);
	struct ca_told_block *block = ca_objects_get(&told->blocks);

	if (!segment || !block) {
		ca_objects_put(&told->segments, segment);
		ca_objects_put(&told->blocks, block);
		return NULL;
	}
	segment->pool = pool;
	segment->first = block;
	segment->address = block->address = address;
	segment->bytes = block->bytes = bytes;
	segment->large = large;
	block->segment = segment;
	block->state = CA_TOLD_LIVE;
	ca_list_init(&block->held);
	ca_tree_insert(&told->segment_tree, &segment->by_address, address, 0);
	ca_list_insert(&pool->segments, &segment->link);
	pool->segment_bytes += bytes;
	ca_gauge_add(&pool->counts->reserved, bytes);
	if (pool->counts->reserved.current == pool->counts->reserved.peak)
		atomic_store_explicit(&told->heap->at_peak, true, memory_order_relaxed);
	atomic_fetch_add(&told->n_segments, 1);
	if (ca_tracing(told->heap))
		ca_told_trace_segment_told(segment, CA_TRACE_ASYNC_TAKEN);
	return block;
}

void
ca_told_segment_leave_told(struct ca_told_segment *segment)
{
	struct ca_told_pool *pool = segment->pool;
	struct ca_told *told = pool->told;

	if (ca_tracing(told->heap))
		ca_told_trace_segment_told(segment, CA_TRACE_ASYNC_RETURNED);
	ca_told_detach_told(segment->first);
	ca_objects_put(&told->blocks, segment->first);
	ca_tree_remove(&told->segment_tree, &segment->by_address);
	ca_list_remove(&segment->link);
	pool->segment_bytes -= segment->bytes;
	ca_gauge_sub(&pool->counts->reserved, segment->bytes);
	atomic_fetch_sub(&told->n_segments, 1);
	if (!pool->handle)
		atomic_fetch_sub(&told->n_closed, 1);
	ca_objects_put(&told->segments, segment);
}

/* ---- the places of freed blocks */

/* A group exists for whatever is HELD: it was there, or was made for it. */
static struct ca_told_group *
group_of(const struct ca_told_block *block)
{
	return ca_told_group_told(block->segment->pool, ca_told_record(block->user.stream));
}

static struct ca_index *
index_of(const struct ca_told_block *block)
{
	bool large = block->segment->large;

	return block->state == CA_TOLD_FREE ? &block->segment->pool->free[large]
					    : &group_of(block)->index[large];
}

bool
ca_told_remove_finished_told(const struct ca_told *told, struct ca_told_users *users)
{
	unsigned i;

	if (users->more && users->poll_serial &&
	    users->poll_serial <= atomic_load(&told->serial_done)) {
		users->n = 0; /* it covers them, too */
		users->more = false;
	}
	for (i = 0; i < users->n;)
		if (ca_user_is_done(&users->user[i]))
			users->user[i] = users->user[--users->n];
		else
			i++;
	return !users->n && !users->more;
}

/* As many as there are: the whole is large. */
static void
users_copy(struct ca_told_users *to, const struct ca_told_users *from)
{
	to->n = from->n;
	to->more = from->more;
	to->poll_serial = from->poll_serial;
	memcpy(to->user, from->user, from->n * sizeof(from->user[0]));
}

void
ca_told_block_users(const struct ca_told_block *block, struct ca_told_users *ret_users)
{
	if (block->users) {
		users_copy(ret_users, block->users);
		return;
	}
	ret_users->more = false;
	ret_users->poll_serial = 0;
	ret_users->n = block->user.stream != NULL;
	ret_users->user[0] = block->user;
}

void
ca_told_detach_told(struct ca_told_block *block)
{
	if (block->state == CA_TOLD_FREE || block->state == CA_TOLD_HELD)
		ca_index_remove(index_of(block), &block->by_size);
	ca_list_remove(&block->held);
	block->state = CA_TOLD_LIVE;
}

/* Memory of that stream alone is as good as finished: there is no other one that could want it. */
static bool
is_quiet_for(const struct ca_told_block *held)
{
	const struct ca_order *order = &ca_told_record(held->user.stream)->space->order;

	return atomic_load(&order->candidates) <= 1 &&
	       !held->segment->pool->told->heap->config.reuse_finished;
}

static bool
is_mergeable(const struct ca_told_block *a, const struct ca_told_block *b)
{
	if (a->state == CA_TOLD_FREE)
		return b->state == CA_TOLD_FREE || (b->state == CA_TOLD_HELD && is_quiet_for(b));
	if (a->state != CA_TOLD_HELD)
		return false;
	return b->state == CA_TOLD_FREE
		       ? is_quiet_for(a)
		       : b->state == CA_TOLD_HELD && a->user.stream == b->user.stream;
}

void
ca_told_join_told(struct ca_told_block *block, struct ca_told_block *behind)
{
	block->next = behind->next;
	if (block->next)
		block->next->prev = block;
	block->bytes += behind->bytes;
	ca_objects_put(&block->segment->pool->told->blocks, behind);
}

/* `block` is in no index; its neighbour `other` goes into it. */
static void
absorb(struct ca_told_block *block, struct ca_told_block *other)
{
	ca_index_remove(index_of(other), &other->by_size);
	/* of two with one stamp the block is the one that was freed last */
	if (other->state == CA_TOLD_HELD &&
	    (block->state == CA_TOLD_FREE || other->user.stamp > block->user.stamp)) {
		block->state = CA_TOLD_HELD;
		block->exact = other->exact;
		block->user = other->user;
	}
	ca_list_remove(&other->held);
	if (other->address > block->address) {
		ca_told_join_told(block, other);
	} else {
		block->address = other->address;
		block->prev = other->prev;
		if (block->prev)
			block->prev->next = block;
		else
			block->segment->first = block;
		block->bytes += other->bytes;
		ca_objects_put(&block->segment->pool->told->blocks, other);
	}
}

static uint64_t
stamp_at(const struct ca_list *held)
{
	return CA_CONTAINER_OF(held, struct ca_told_block, held)->user.stamp;
}

/* Only what is cut from older memory comes with a smaller stamp than the last: near it, or near the
 * first. */
static void
insert_by_stamp(struct ca_list *blocks, struct ca_told_block *block)
{
	uint64_t stamp = block->user.stamp;
	struct ca_list *at = blocks;
	unsigned steps = 0;

	while (at->prev != blocks && stamp_at(at->prev) > stamp && steps++ < STAMP_STEPS)
		at = at->prev;
	if (steps > STAMP_STEPS)
		for (at = blocks->next; stamp_at(at) <= stamp;)
			at = at->next;
	ca_list_insert(at, &block->held);
}

/* A block that is FREE or HELD, and in no index and no list, takes in its neighbours. */
static void
index_merged(struct ca_told_block *block)
{
	if (block->prev && is_mergeable(block, block->prev))
		absorb(block, block->prev);
	if (block->next && is_mergeable(block, block->next))
		absorb(block, block->next);
	ca_index_set(index_of(block), &block->by_size, block->bytes);
	if (block->state == CA_TOLD_HELD)
		insert_by_stamp(&group_of(block)->blocks, block);
}

static bool
hold(struct ca_told_block *block, const struct ca_user *user, bool exact)
{
	if (!ca_told_group_told(block->segment->pool, ca_told_record(user->stream)))
		return false;
	block->user = *user;
	block->exact = exact;
	block->state = CA_TOLD_HELD;
	index_merged(block);
	return true;
}

void
ca_told_place_told(struct ca_told_block *block, struct ca_told_users *users, bool exact)
{
	struct ca_told_pool *pool = block->segment->pool;
	struct ca_told_users *own;

	drop_users(block);
	if (ca_told_remove_finished_told(pool->told, users)) {
		block->state = CA_TOLD_FREE;
		index_merged(block);
		return;
	}
	if (users->n == 1 && !users->more && hold(block, &users->user[0], exact))
		return;
	if (users->more && !users->poll_serial)
		users->poll_serial = atomic_load(&pool->told->next_serial);
	own = ca_objects_get(&pool->told->users);
	block->state = CA_TOLD_SHARED;
	if (own) {
		users_copy(own, users);
		block->users = own;
		ca_list_insert(&pool->shared, &block->held);
	} /* else nobody gets it any more: there is no memory to say when */
}

/* As in block/pool.c: a piece of a segment that requests of several sizes share may be a hole, for
 * a small request that finds nothing else. */
static uint64_t
least_rest(const struct ca_told_block *block)
{
	if (!block->segment->large || block->bytes <= CA_SMALL_MAX)
		return CA_GRAIN;
	return (ca_told_is_shared(block->segment) ? SHARED_REST : CA_SMALL_MAX) + CA_GRAIN;
}

void
ca_told_cut_told(struct ca_told_block *block, uint64_t bytes, const struct ca_told_users *users,
		 bool exact)
{
	struct ca_told *told = block->segment->pool->told;
	uint64_t rest_bytes = block->bytes - bytes;
	struct ca_told_users left;
	struct ca_told_block *rest;

	if (rest_bytes < least_rest(block) || !(rest = ca_objects_get(&told->blocks)))
		return;
	rest->segment = block->segment;
	rest->address = block->address + bytes;
	rest->bytes = rest_bytes;
	rest->prev = block;
	rest->next = block->next;
	if (rest->next)
		rest->next->prev = rest;
	block->next = rest;
	block->bytes = bytes;
	rest->state = CA_TOLD_LIVE;
	ca_list_init(&rest->held);
	users_copy(&left, users);
	ca_told_place_told(rest, &left, exact);
}
