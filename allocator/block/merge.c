/* SPDX-License-Identifier: MIT */
/*
 * A block that becomes free merges with neighbours that may be used in just the same way: FREE
 * with FREE, STREAM_HELD with STREAM_HELD by the same stream, MULTI_HELD with MULTI_HELD of the
 * same set of users (the larger stamp holds for both, of each user; an exact mark of it covers
 * nothing that was submitted after the later free). While nothing has to wait in the space,
 * STREAM_HELD is as good as FREE, and they merge into STREAM_HELD, unless others than its stream
 * may still use it. One record survives, the others go back; a record that is indexed and only
 * grows or shrinks keeps its place in the order of sizes if it can.
 */
#include "allocator/block/block_inside.h"

#include "config/mutant.h"

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
static inline void
join_users(struct ca_block *block, struct ca_block *other)
{
	struct ca_multi_users *multi = ca_block_multi(block), *more = ca_block_multi(other);

	if (multi || more)
		join_multi(block, other, multi, more);
	if (other->user.stamp > block->user.stamp && !CA_MUTANT(MERGED_STAMP_OLD))
		block->user.stamp = other->user.stamp;
}

/*
 * Two blocks of one stream become one, which is waited for up to the larger stamp: natively the
 * free with that one waited as long, so its thread may. If they are equal both did, and the caller
 * is more likely to ask for memory next. Of several streams no free needs to have waited for all.
 */
static inline void
join_owners(struct ca_block *block, const struct ca_block *other)
{
	if (ca_block_multi(block) || ca_block_multi(other))
		block->thread = 0;
	else if (other->user.stamp > block->user.stamp ||
		 (other->user.stamp == block->user.stamp && other->thread == ca_order_thread()))
		block->thread = other->thread;
}

/* `block` gets the bytes of `other`, which is in the same state. */
static inline void
share(struct ca_block *block, struct ca_block *other)
{
	if (!ca_block_is_held(block)) {
		join_threads(block, other);
	} else {
		ca_change(&block->segment->space->stream_held_blocks, (uint64_t)-1);
		if (other->thread != block->thread)
			join_owners(block, other);
		join_users(block, other);
	}
	block->bytes += other->bytes;
}

/* Gives block->prev, unindexed, in no list and in the same state, to `block`. */
static inline void
merge_prev(struct ca_block *block)
{
	struct ca_segment *segment = block->segment;
	struct ca_block *lower = block->prev;

	share(block, lower);
	block->address = lower->address;
	block->prev = lower->prev;
	if (block->prev)
		block->prev->next = block;
	else
		segment->first = block;
	ca_block_put(segment->space->heap, lower);
}

/* Appends block->next, unindexed, in no list and in the same state as `block`, to it. */
static inline void
merge_next(struct ca_block *block)
{
	struct ca_block *upper = block->next;

	share(block, upper);
	block->next = upper->next;
	if (block->next)
		block->next->prev = block;
	ca_block_put(block->segment->space->heap, upper);
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

/*
 * Blocks of a list that a block with an older stamp passes. Those that a magazine has kept may be
 * older than all that was freed since, so that a request that merged many of them took as long as
 * the square of their number. (1,024 kept and 20,000 that wait: 330 ms without a limit, 0.4 with
 * it.)
 */
enum { PASSED_MAX = 64 };

/* The block waits as if it had been freed with its neighbour in the list. (One of several users
 * has a stamp of each, and finds its own place.) */
static CA_APART void
wait_with(struct ca_block *block, const struct ca_block *neighbour)
{
	block->user.stamp = neighbour->user.stamp;
	block->thread = neighbour->thread;
}

/* By stamp. A new block has the largest, or nearly so. */
static void
list_by_stamp(struct ca_block *block)
{
	struct ca_list *head = block->state == CA_BLOCK_MULTI_HELD
				       ? &ca_block_multi(block)->set->blocks
				       : &ca_held_record(&block->user)->waiting;
	struct ca_list *place = head;
	unsigned passed = 0;

	for (; place->prev != head; place = place->prev) {
		const struct ca_block *before =
			CA_CONTAINER_OF(place->prev, struct ca_block, waiting);

		if (before->user.stamp <= block->user.stamp)
			break;
		if (passed++ >= PASSED_MAX && !ca_block_multi(block)) {
			wait_with(block, before);
			break;
		}
	}
	ca_list_insert(place, &block->waiting);
}

/* In its final state, after merging. */
static inline void
enter(struct ca_block *block)
{
	ca_pool_index_locked(block);
	if (ca_block_is_held(block))
		list_by_stamp(block);
}

/* One that is indexed has grown, and had that stamp. */
static inline void
enter_again(struct ca_block *block, uint64_t stamp)
{
	ca_pool_index_locked(block);
	if (!ca_block_is_held(block) || block->user.stamp == stamp)
		return;
	ca_list_remove(&block->waiting);
	list_by_stamp(block);
}

/*
 * A block, unindexed and in no list, whose neighbours are free just as it is, or not at all: which
 * of them is said. A record that is indexed stays so.
 */
static inline void
enter_between(struct ca_block *block, bool lower, bool upper)
{
	uint64_t stamp;

	if (lower && upper) {
		ca_pool_unindex_locked(block->next);
		if (ca_block_is_held(block))
			ca_list_remove(&block->next->waiting);
		merge_next(block);
	}
	if (lower) {
		block = block->prev;
		stamp = block->user.stamp;
		merge_next(block);
		enter_again(block, stamp);
	} else if (upper) {
		block = block->next;
		stamp = block->user.stamp;
		merge_prev(block);
		enter_again(block, stamp);
	} else {
		enter(block);
	}
}

/* `next_to_held`: a neighbour is STREAM_HELD. */
static inline void
enter_free(struct ca_block *block, bool next_to_held)
{
	if (next_to_held)
		enter(merge(block));
	else
		enter_between(block, ca_block_is_in(block->prev, CA_BLOCK_FREE),
			      ca_block_is_in(block->next, CA_BLOCK_FREE));
}

void
ca_block_settle_locked(struct ca_block *block)
{
	if (block->segment->retired) {
		ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
		return;
	}
	ca_block_set_state_locked(block, CA_BLOCK_FREE);
	enter_free(block, ca_block_is_next_to(block, CA_BLOCK_STREAM_HELD));
}

/* The neighbour of a STREAM_HELD block is free just as it is. */
static inline bool
is_like(const struct ca_block *block, const struct ca_block *neighbour)
{
	return ca_block_is_in(neighbour, CA_BLOCK_STREAM_HELD) &&
	       neighbour->user.stream == block->user.stream &&
	       (is_as_old(block, neighbour) ||
		ca_held_quiet_locked(block->segment->space) == ca_held_record(&block->user));
}

/* A free neighbour's users: those of one that the program has are no business of who has the lock.
 */
static inline bool
has_multi(const struct ca_block *block)
{
	return ca_block_is_in(block, CA_BLOCK_STREAM_HELD) && ca_block_multi(block);
}

/* `next_to_free`: a neighbour is FREE. */
static inline void
enter_owned(struct ca_block *block, bool next_to_free)
{
	if (next_to_free || has_multi(block) || has_multi(block->prev) || has_multi(block->next))
		enter(merge(block));
	else
		enter_between(block, is_like(block, block->prev), is_like(block, block->next));
}

void
ca_block_own_locked(struct ca_block *block, struct ca_user user, struct ca_multi_users *multi)
{
	ca_block_set_state_locked(block, CA_BLOCK_STREAM_HELD);
	block->user = user;
	if (multi)
		ca_pool_carry_locked(block, multi);
	enter_owned(block, ca_block_is_next_to(block, CA_BLOCK_FREE));
}

void
ca_block_put_back_locked(struct ca_block *block, bool simple)
{
	ca_block_live_change(block, (uint64_t)-1);
	block->segment->space->device->generation++;
	if (block->user.stream) {
		block->state = CA_BLOCK_STREAM_HELD;
		ca_owned_count(block, 1);
		enter_owned(block, !simple);
	} else if (block->segment->retired) {
		block->state = CA_BLOCK_FREE;
		ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
	} else {
		block->state = CA_BLOCK_FREE;
		enter_free(block, !simple);
	}
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
