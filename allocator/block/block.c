/* SPDX-License-Identifier: MIT */
/*
 * Blocks tile their segment from end to end; each is in one state, and the state decides which sums
 * hold its bytes (ALLOCATED: requested, allocated, active; MARK_HELD, STREAM_HELD, MULTI_HELD:
 * active; FREE: cached). Every change of state goes through ca_block_set_state_locked, so the sums
 * are exact by construction.
 *
 * A block that becomes free merges with neighbours that may be used in just the same way: FREE
 * with FREE, STREAM_HELD with STREAM_HELD by the same stream, MULTI_HELD with MULTI_HELD of the
 * same set of users (the larger stamp holds for both, of each user; an exact mark of it covers
 * nothing that was submitted after the later free). While nothing has to wait in the space,
 * STREAM_HELD is as good as FREE, and they merge into STREAM_HELD, unless others than its stream
 * may still use it. One record survives, the others go back; a record that is indexed and only
 * grows or shrinks keeps its place in the order of sizes if it can.
 */
#include "allocator/block/block.h"

#include "allocator/order/order.h"

enum {
	IN_USE = 1, /* requested, allocated */
	ACTIVE = 2,
	CACHED = 4,
	WAITS = 8, /* in the sums of what waits in the space */
};

/* The sums that hold a block's bytes, by its state. */
static const uint8_t sums_of[] = {
	[CA_BLOCK_NEW] = 0,
	[CA_BLOCK_ALLOCATED] = IN_USE | ACTIVE,
	[CA_BLOCK_MARK_HELD] = ACTIVE | WAITS,
	[CA_BLOCK_STREAM_HELD] = ACTIVE | WAITS,
	[CA_BLOCK_MULTI_HELD] = ACTIVE | WAITS,
	[CA_BLOCK_FREE] = CACHED,
	[CA_BLOCK_RETIRED] = 0,
	[CA_BLOCK_FLUSHED_FREE] = CACHED,
	[CA_BLOCK_FLUSHED_HELD] = ACTIVE,
};

static void
sums_leave(struct ca_stats *stats, const struct ca_block *block, unsigned sums)
{
	if (sums & IN_USE) {
		ca_gauge_sub(&stats->requested_bytes, ca_block_requested(block));
		ca_gauge_sub(&stats->allocated_bytes, block->bytes);
	}
	if (sums & ACTIVE)
		ca_gauge_sub(&stats->active_bytes, block->bytes);
	if (sums & CACHED)
		ca_gauge_sub(&stats->cached_bytes, block->bytes);
}

static void
sums_enter(struct ca_stats *stats, const struct ca_block *block, unsigned sums)
{
	if (sums & IN_USE) {
		ca_gauge_add(&stats->requested_bytes, ca_block_requested(block));
		ca_gauge_add(&stats->allocated_bytes, block->bytes);
	}
	if (sums & ACTIVE)
		ca_gauge_add(&stats->active_bytes, block->bytes);
	if (sums & CACHED)
		ca_gauge_add(&stats->cached_bytes, block->bytes);
}

/* The block becomes ALLOCATED (sign 1) or ceases to be (-1, modulo 2^64). */
static void
live_change(struct ca_block *block, uint64_t sign)
{
	struct ca_segment *segment = block->segment;
	struct ca_device *device = segment->space->device;
	struct ca_bases *bases = &segment->space->heap->bases;

	if (sign == 1) {
		ca_bases_enter_locked(bases, block);
	} else {
		ca_bases_leave_locked(bases, block);
		block->places = NULL; /* `birth`, or `below`, ends here */
	}

	if (segment->live == 0)
		device->drainable_bytes -= segment->bytes;
	segment->live += sign;
	if (segment->live == 0)
		device->drainable_bytes += segment->bytes;
}

/* Adds (sign 1) or takes away (-1, modulo 2^64) a block that waits. */
static void
waiting_count(struct ca_block *block, uint64_t sign)
{
	struct ca_segment *segment = block->segment;
	struct ca_space *space = segment->space;

	switch (block->state) {
	case CA_BLOCK_MARK_HELD:
		segment->pool->waiting_bytes += sign * block->bytes;
		ca_change(&space->mark_held_blocks, sign);
		break;
	case CA_BLOCK_MULTI_HELD:
		segment->pool->waiting_bytes += sign * block->bytes;
		ca_change(&space->stream_held_blocks, sign);
		break;
	case CA_BLOCK_STREAM_HELD:
		segment->pool->owned_bytes += sign * block->bytes;
		ca_change(&space->stream_held_blocks, sign);
		break;
	default:
		break;
	}
}

/* The usual change: the way by the table of sums takes longer. */
static void
free_to_live(struct ca_block *block, struct ca_stats *stats)
{
	uint64_t bytes = block->bytes;

	if (block->state == CA_BLOCK_FREE) {
		ca_gauge_add(&stats->active_bytes, bytes);
		ca_gauge_sub(&stats->cached_bytes, bytes);
	} else {
		waiting_count(block, (uint64_t)-1);
	}
	ca_gauge_add(&stats->requested_bytes, ca_block_requested(block));
	ca_gauge_add(&stats->allocated_bytes, bytes);
	block->state = CA_BLOCK_ALLOCATED;
	live_change(block, 1);
}

void
ca_block_set_state_locked(struct ca_block *block, enum ca_block_state state)
{
	struct ca_device *device = block->segment->space->device;
	unsigned was = sums_of[block->state], is = sums_of[state];

	if (state == CA_BLOCK_ALLOCATED && ca_block_is_free(block)) {
		free_to_live(block, &device->stats);
		return;
	}
	if (was & WAITS)
		waiting_count(block, (uint64_t)-1);
	block->state = state;
	if (is & WAITS)
		waiting_count(block, 1);
	sums_leave(&device->stats, block, was & ~is);
	sums_enter(&device->stats, block, is & ~was);
	if ((was ^ is) & IN_USE)
		live_change(block, is & IN_USE ? 1 : (uint64_t)-1);
	if (!(is & IN_USE))
		device->generation++;
}

/* All but `quick`: in fewer instructions than a call, or a string instruction, begins with. */
static void
zero(struct ca_block *block)
{
	block->prev = block->next = NULL;
	block->address = 0;
	block->segment = NULL;
	block->bytes = 0;
	block->waiting = (struct ca_list){ NULL, NULL };
	block->user = (struct ca_user){ NULL, 0 };
	block->places = NULL;
	block->thread = 0;
	block->space_and_state = ca_block_word(0, CA_BLOCK_NEW);
}

struct ca_block *
ca_block_new_locked(struct ca_heap *heap)
{
	struct ca_block *block = ca_slabs_again(&heap->blocks);

	if (block)
		zero(block);
	else
		block = ca_slabs_get(&heap->blocks);
	if (!block || heap->places.capacity >= heap->blocks.used ||
	    ca_slabs_reserve(&heap->places, heap->blocks.used))
		return block;
	ca_slabs_put(&heap->blocks, block);
	return NULL;
}

void
ca_block_drop_users_locked(struct ca_block *block)
{
	struct ca_multi_users *multi = ca_block_multi(block);

	if (multi && block->state == CA_BLOCK_ALLOCATED) {
		block->has_multi = false;
		block->birth = multi->birth;
	} else if (multi) {
		ca_slabs_put(&block->segment->space->heap->places, block->places);
		block->places = NULL;
	}
	if (multi)
		ca_objects_put(&block->segment->space->heap->users, multi);
	block->user.stream = NULL;
}

void
ca_block_keep_multi_locked(struct ca_block *block, uint64_t birth)
{
	struct ca_multi_users *multi = block->places->multi;

	ca_slabs_put(&block->segment->space->heap->places, block->places);
	multi->birth = birth;
	block->multi = multi;
	block->has_multi = true;
}

void
ca_block_come_out_locked(struct ca_block *block)
{
	block->state = block->user.stream ? CA_BLOCK_FLUSHED_HELD : CA_BLOCK_FLUSHED_FREE;
	live_change(block, (uint64_t)-1);
}

void
ca_block_go_out_locked(struct ca_block *block)
{
	if (block->state == CA_BLOCK_STREAM_HELD)
		waiting_count(block, (uint64_t)-1);
	block->state = CA_BLOCK_ALLOCATED;
	live_change(block, 1);
}

void
ca_block_split_locked(struct ca_block *block, uint64_t bytes, struct ca_block *upper)
{
	upper->segment = block->segment;
	upper->address = block->address + bytes;
	upper->bytes = block->bytes - bytes;
	upper->space_and_state = block->space_and_state;
	upper->thread = block->thread;
	upper->user = block->user;
	if (ca_block_is_held(block)) {
		ca_list_insert(block->waiting.next, &upper->waiting);
		ca_change(&block->segment->space->stream_held_blocks, 1);
	}
	upper->prev = block;
	upper->next = block->next;
	if (upper->next)
		upper->next->prev = upper;
	block->next = upper;
	block->bytes = bytes;
	ca_segment_map_note_locked(upper, upper->address, upper->bytes);
}

void
ca_block_split_lower_locked(struct ca_block *block, uint64_t bytes, struct ca_block *lower)
{
	struct ca_segment *segment = block->segment;

	lower->segment = segment;
	lower->address = block->address;
	lower->bytes = bytes;
	lower->space_and_state = block->space_and_state;
	lower->thread = block->thread;
	lower->user = block->user;
	ca_list_init(&lower->waiting);
	ca_change(&segment->space->stream_held_blocks, ca_block_is_held(block));
	lower->prev = block->prev;
	lower->next = block;
	if (lower->prev)
		lower->prev->next = lower;
	else
		segment->first = lower;
	block->prev = lower;
	block->address += bytes;
	block->bytes -= bytes;
	ca_segment_map_note_locked(lower, lower->address, lower->bytes);
}

/* Two free blocks become one. (Where one thread frees, who freed it is nobody's question.) */
static void
join_threads(struct ca_block *block, const struct ca_block *other)
{
	if (block->segment->space->multi_thread_free && other->thread != block->thread)
		block->thread = 0;
}

/* Of two blocks of which one has several: `multi`, `more`. */
static CA_APART void
join_multi(struct ca_block *block, struct ca_block *other, struct ca_multi_users *multi,
	   struct ca_multi_users *more)
{
	struct ca_users users;
	unsigned i;

	ca_block_users(more && !multi ? block : other, &users);
	if (more && !multi) {
		ca_slabs_put(&block->segment->space->heap->places, other->places);
		other->places = NULL;
		ca_pool_carry_locked(block, more);
		multi = more;
	} else if (more) {
		ca_block_drop_users_locked(other);
	}
	for (i = 0; i < users.n; i++)
		ca_users_raise(&multi->users, &users.user[i]);
}

/* The users of `other`, which is in no index, become the block's, too. */
static void
join_users(struct ca_block *block, struct ca_block *other)
{
	struct ca_multi_users *multi = ca_block_multi(block), *more = ca_block_multi(other);

	if (multi || more)
		join_multi(block, other, multi, more);
	if (other->user.stamp > block->user.stamp)
		block->user.stamp = other->user.stamp;
}

/* `block` gets the bytes of `other`, which is in the same state. */
static void
share(struct ca_block *block, struct ca_block *other)
{
	if (!ca_block_is_held(block)) {
		join_threads(block, other);
	} else {
		ca_change(&block->segment->space->stream_held_blocks, (uint64_t)-1);
		if (other->thread != block->thread)
			block->thread = 0;
		join_users(block, other);
	}
	block->bytes += other->bytes;
}

/* Gives block->prev, unindexed, in no list and in the same state, to `block`. */
static void
merge_prev(struct ca_block *block)
{
	struct ca_segment *segment = block->segment;
	struct ca_heap *heap = segment->space->heap;
	struct ca_block *lower = block->prev;

	share(block, lower);
	block->address = lower->address;
	block->prev = lower->prev;
	if (block->prev)
		block->prev->next = block;
	else
		segment->first = block;
	ca_segment_map_note_locked(block, lower->address, lower->bytes);
	ca_slabs_put(&heap->blocks, lower);
}

/* Appends block->next, unindexed, in no list and in the same state as `block`, to it. */
static void
merge_next(struct ca_block *block)
{
	struct ca_heap *heap = block->segment->space->heap;
	struct ca_block *upper = block->next;

	share(block, upper);
	block->next = upper->next;
	if (block->next)
		block->next->prev = block;
	ca_segment_map_note_locked(block, upper->address, upper->bytes);
	ca_slabs_put(&heap->blocks, upper);
}

/* A FREE block, unindexed, comes to share what is known of `owned`. */
static void
make_like(struct ca_block *block, const struct ca_block *owned)
{
	ca_block_set_state_locked(block, CA_BLOCK_STREAM_HELD);
	block->thread = owned->thread;
	block->user = owned->user;
}

static bool
users_fit(const struct ca_block *block, const struct ca_block *other)
{
	struct ca_users users, more;
	unsigned i, n;

	if (!ca_block_multi(block) && !ca_block_multi(other))
		return true;
	ca_block_users(block, &users);
	ca_block_users(other, &more);
	n = users.n;
	for (i = 0; i < more.n; i++)
		n += !ca_users_find(&users, more.user[i].stream);
	return n <= CA_USERS_MAX;
}

/* In an extent, where blocks lie side by side that would have segments of their own, a large one
 * held by a stream that others come to wait for merges with what that has used as long: the larger
 * stamp would keep it from a stream that comes after its last use, but not after the neighbour's.
 */
static bool
is_as_old(const struct ca_block *block, const struct ca_block *neighbour)
{
	const struct ca_segment *segment = block->segment;

	return !segment->mapped || segment->pool->small ||
	       block->user.stamp == neighbour->user.stamp ||
	       !atomic_load(&ca_held_record(&block->user)->followed);
}

bool
ca_block_is_mergeable(const struct ca_block *block, const struct ca_block *neighbour)
{
	const struct ca_user_set *set;

	if (block->state != neighbour->state || !ca_block_is_free(block))
		return false;
	if (block->state == CA_BLOCK_FREE)
		return true;
	if (block->state == CA_BLOCK_STREAM_HELD)
		return block->user.stream == neighbour->user.stream &&
		       is_as_old(block, neighbour) && users_fit(block, neighbour);
	set = ca_block_multi(block)->set;
	return set->n && set == ca_block_multi(neighbour)->set;
}

/* Nobody else comes to wait for either. */
static bool
is_only_users(const struct ca_block *block, const struct ca_block *neighbour,
	      const struct ca_stream_record *free_for_all)
{
	return free_for_all && block->state == CA_BLOCK_STREAM_HELD &&
	       ca_held_record(&block->user) == free_for_all &&
	       block->user.stream == neighbour->user.stream && users_fit(block, neighbour);
}

/* Takes a neighbour out of its index and makes both alike, if they may be merged. */
static bool
join(struct ca_block *block, struct ca_block *neighbour,
     const struct ca_stream_record *free_for_all)
{
	bool owned = block->state == CA_BLOCK_STREAM_HELD;

	if (!neighbour)
		return false;
	if (neighbour->state == block->state) {
		if (!ca_block_is_mergeable(block, neighbour) &&
		    !is_only_users(block, neighbour, free_for_all))
			return false;
		ca_pool_unindex_locked(neighbour);
		if (ca_block_is_held(neighbour))
			ca_list_remove(&neighbour->waiting);
		return true;
	}
	if (!free_for_all || block->state == CA_BLOCK_MULTI_HELD ||
	    neighbour->state != (owned ? CA_BLOCK_FREE : CA_BLOCK_STREAM_HELD) ||
	    ca_held_record(owned ? &block->user : &neighbour->user) != free_for_all ||
	    ca_block_multi(owned ? block : neighbour) ||
	    ca_registered_overlaps(owned ? neighbour : block))
		return false;
	ca_pool_unindex_locked(neighbour);
	if (owned) {
		make_like(neighbour, block);
	} else {
		ca_list_remove(&neighbour->waiting);
		make_like(block, neighbour);
	}
	return true;
}

/* A free block, in no index, with its neighbours, and theirs: a FREE one that becomes STREAM_HELD
 * may lie between two. Returns what they have become. */
static struct ca_block *
merge(struct ca_block *block)
{
	struct ca_stream_record *free_for_all;

	if (!(block->next && ca_block_is_free(block->next)) &&
	    !(block->prev && ca_block_is_free(block->prev)))
		return block;
	free_for_all = ca_held_quiet_locked(block->segment->space);
	/* a block that one side has made STREAM_HELD may have a like neighbour on the other */
	for (;;) {
		if (join(block, block->next, free_for_all)) {
			merge_next(block);
		} else if (join(block, block->prev, free_for_all)) {
			block = block->prev;
			merge_next(block);
		} else {
			return block;
		}
	}
}

/* By stamp. A new block has the largest, or nearly so. */
static void
list_by_stamp(struct ca_block *block)
{
	struct ca_list *head = block->state == CA_BLOCK_MULTI_HELD
				       ? &ca_block_multi(block)->set->blocks
				       : &ca_held_record(&block->user)->waiting;
	struct ca_list *place = head;

	while (place->prev != head &&
	       CA_CONTAINER_OF(place->prev, struct ca_block, waiting)->user.stamp >
		       block->user.stamp)
		place = place->prev;
	ca_list_insert(place, &block->waiting);
}

/* In its final state, after merging. */
static void
enter(struct ca_block *block)
{
	ca_pool_index_locked(block);
	if (ca_block_is_held(block))
		list_by_stamp(block);
}

static bool
is_in(const struct ca_block *block, enum ca_block_state state)
{
	return block && block->state == state;
}

static void
leave_list(struct ca_block *block)
{
	if (block->state == CA_BLOCK_STREAM_HELD)
		ca_list_remove(&block->waiting);
}

/*
 * A block, unindexed and in no list, whose neighbours are free just as it is, or not at all: which
 * of them is said. A record that is indexed stays so.
 */
static void
enter_between(struct ca_block *block, bool lower, bool upper)
{
	if (lower && upper) {
		ca_pool_unindex_locked(block->next);
		leave_list(block->next);
		merge_next(block);
	}
	if (lower) {
		block = block->prev;
		leave_list(block);
		merge_next(block);
	} else if (upper) {
		block = block->next;
		leave_list(block);
		merge_prev(block);
	}
	enter(block);
}

void
ca_block_settle_locked(struct ca_block *block)
{
	if (block->segment->retired) {
		ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
		return;
	}
	if (block->state == CA_BLOCK_FLUSHED_FREE) { /* no sum changes */
		block->state = CA_BLOCK_FREE;
		block->segment->space->device->generation++;
	} else {
		ca_block_set_state_locked(block, CA_BLOCK_FREE);
	}
	if (is_in(block->prev, CA_BLOCK_STREAM_HELD) || is_in(block->next, CA_BLOCK_STREAM_HELD))
		enter(merge(block));
	else
		enter_between(block, is_in(block->prev, CA_BLOCK_FREE),
			      is_in(block->next, CA_BLOCK_FREE));
}

/* The neighbour of a STREAM_HELD block is free just as it is. */
static bool
is_like(const struct ca_block *block, const struct ca_block *neighbour)
{
	return is_in(neighbour, CA_BLOCK_STREAM_HELD) &&
	       neighbour->user.stream == block->user.stream &&
	       (is_as_old(block, neighbour) ||
		ca_held_quiet_locked(block->segment->space) == ca_held_record(&block->user));
}

/* A free neighbour's users: those of one that the program has are no business of who has the lock.
 */
static bool
has_multi(const struct ca_block *block)
{
	return is_in(block, CA_BLOCK_STREAM_HELD) && ca_block_multi(block);
}

void
ca_block_own_locked(struct ca_block *block, struct ca_user user, struct ca_multi_users *multi)
{
	if (block->state == CA_BLOCK_FLUSHED_HELD) { /* no other sum changes */
		block->state = CA_BLOCK_STREAM_HELD;
		waiting_count(block, 1);
		block->segment->space->device->generation++;
	} else {
		ca_block_set_state_locked(block, CA_BLOCK_STREAM_HELD);
	}
	block->user = user;
	if (multi)
		ca_pool_carry_locked(block, multi);
	if (is_in(block->prev, CA_BLOCK_FREE) || is_in(block->next, CA_BLOCK_FREE) || multi ||
	    has_multi(block->prev) || has_multi(block->next))
		enter(merge(block));
	else
		enter_between(block, is_like(block, block->prev), is_like(block, block->next));
}

void
ca_block_wait_locked(struct ca_block *block, struct ca_multi_users *multi)
{
	ca_block_set_state_locked(block, CA_BLOCK_MULTI_HELD);
	block->user = multi->users.user[0];
	ca_pool_carry_locked(block, multi);
	enter(merge(block));
}

struct ca_block *
ca_block_gather_locked(struct ca_block *first, struct ca_block *last)
{
	struct ca_block *end = last->next, *block;

	for (block = first; block != end; block = block->next) {
		ca_block_detach_locked(block);
		ca_block_set_state_locked(block, CA_BLOCK_FREE);
	}
	while (first->next != end)
		merge_next(first);
	return first;
}

void
ca_block_detach_locked(struct ca_block *block)
{
	ca_pool_unindex_locked(block);
	if (ca_block_waits(block))
		ca_list_remove(&block->waiting);
	ca_block_drop_users_locked(block);
}
