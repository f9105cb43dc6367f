/* SPDX-License-Identifier: MIT */
/*
 * ALLOCATED memory that was handed out before its former user had finished (block->user): the
 * search for that user, for a copy that names the memory, and waiting for it, for an accessor that
 * is not a stream.
 *
 * Such an accessor may keep its way to the memory by address for longer than the block lives, so
 * the range stays noted (block/registered.c).
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/block/block.h"
#include "allocator/core/lock.h"
#include "config/mutant.h"

/* Adds those of the block that have not finished. */
static void
users_add(struct ca_users *users, const struct ca_block *block)
{
	struct ca_users more;
	unsigned i;

	ca_block_users(block, &more);
	for (i = 0; i < more.n; i++)
		if (!ca_user_is_done(&more.user[i]) && !ca_users_raise(users, &more.user[i]))
			users->context = true;
}

/* The lowest of a segment, by its node in the heap's tree; NULL: NULL. */
static struct ca_block *
first_in(struct ca_tree_node *node)
{
	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address)->first : NULL;
}

/* The block that holds `address`, or the first behind it. */
static struct ca_block *
first_from(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block = ca_block_find_locked(heap, address);

	return block ? block : first_in(ca_tree_at_least(&heap->by_address, address, 0));
}

/* The next higher one. */
static struct ca_block *
next_of(const struct ca_block *block)
{
	return block->next ? block->next : first_in(ca_tree_next(&block->segment->by_address));
}

static void
touch_range(struct ca_heap *heap, uint64_t address, uint64_t bytes, struct ca_users *users)
{
	struct ca_block *block = first_from(heap, address);

	while (block && (block->address <= address || block->address - address < bytes)) {
		if (ca_block_is_live(block))
			users_add(users, block);
		block = next_of(block);
	}
}

void
ca_touch_users(struct ca_space *space, const struct ca_touch *touch, struct ca_users *ret_users)
{
	unsigned i;

	ret_users->n = 0;
	ret_users->context = false;
	CA_HEAP_LOCKED(space->heap);
	for (i = 0; i < touch->n; i++)
		touch_range(space->heap, touch->range[i].address, touch->range[i].bytes, ret_users);
}

/*
 * 0: the user has finished, or the space is poisoned; -EBUSY. Where there is no exact mark, since
 * the space was quiet, one that is recorded now has to do; a program that shows its memory to
 * somebody who is no stream will do so again, so its frees get marks from now on.
 */
static int
wait_locked(struct ca_space *space, const struct ca_user *user)
{
	int r;

	ca_outside_enter_locked(space);
	r = ca_order_wait(space, user);
	if (r == -EAGAIN)
		ca_order_end_quiet(space);
	if (r) {
		r = ca_order_wait_hard(user);
		ca_outside_leave(space);
		return r == -EBUSY ? r : 0;
	}
	ca_outside_leave(space);
	CA_COUNT(space, host_syncs);
	return 0;
}

/* Waits for the users of an ALLOCATED block, which may be gone afterwards. 0 or -EBUSY. */
static int
settle_locked(struct ca_block *block)
{
	struct ca_space *space = block->segment->space;
	uint64_t address = block->address;
	uint64_t serial = atomic_load_explicit(&block->serial, memory_order_relaxed);
	struct ca_users users;
	unsigned i;
	int r = 0;

	ca_block_users(block, &users);
	CA_COUNT(space, settles);
	for (i = 0; !r && i < users.n; i++)
		r = wait_locked(space, &users.user[i]);
	block = ca_block_find_locked(space->heap, address);
	if (!r && ca_users_remove_finished(&users) && block && ca_block_is_live(block) &&
	    atomic_load_explicit(&block->serial, memory_order_relaxed) == serial)
		ca_block_drop_users_locked(block);
	return r;
}

static bool
is_unsettled(const struct ca_block *block)
{
	struct ca_users users;

	if (!ca_block_is_live(block) || CA_MUTANT(SETTLE_SKIPPED))
		return false;
	ca_block_users(block, &users);
	return !ca_users_remove_finished(&users);
}

static bool
is_below(const struct ca_block *block, uint64_t end)
{
	return block && block->address < end;
}

/* A block of the segment that a stream owns although it overlaps what is registered. */
static struct ca_block *
owned_overlapping(const struct ca_segment *segment)
{
	struct ca_block *block;

	for (block = segment->first; block; block = block->next)
		if (block->state == CA_BLOCK_STREAM_HELD && ca_registered_overlaps(block))
			return block;
	return NULL;
}

static void
register_in(struct ca_segment *segment, uint64_t from, uint64_t to)
{
	struct ca_block *block;

	ca_registered_add_locked(segment, from, to);
	while ((block = owned_overlapping(segment)))
		ca_held_place_again_locked(block);
}

/* The ranges first: memory that is handed out while the lock is away has finished. True if
 * something of ours is there; *ret_space: whose memory may be handed out again, NULL: none. */
static bool
note_locked(struct ca_heap *heap, uint64_t address, uint64_t end, struct ca_space **ret_space)
{
	struct ca_block *block = first_from(heap, address);
	bool found = false;

	*ret_space = NULL;
	while (is_below(block, end)) {
		struct ca_segment *segment = block->segment;
		struct ca_tree_node *next = ca_tree_next(&segment->by_address);

		found = true;
		if (!segment->retired)
			*ret_space = segment->space;
		if (!CA_MUTANT(REGISTRATION_LOST))
			register_in(segment, address, end);
		block = first_in(next);
	}
	return found;
}

/* The first of the range, from `*at` on, whose user has not finished; *at moves behind it. */
static struct ca_block *
next_unsettled(struct ca_heap *heap, uint64_t *at, uint64_t end)
{
	struct ca_block *block = first_from(heap, *at);

	while (is_below(block, end) && !is_unsettled(block))
		block = next_of(block);
	if (!is_below(block, end))
		return NULL;
	*at = block->address + block->bytes;
	return block;
}

int
ca_register(struct ca_heap *heap, uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes, at = address;
	struct ca_space *space;
	struct ca_block *block;
	int r, result = 0;
	bool found;

	if (!bytes || end < address)
		return -ENOENT;
	ca_heap_lock(heap);
	ca_block_find_settled_locked(heap, address);
	found = note_locked(heap, address, end, &space);
	while ((block = next_unsettled(heap, &at, end))) {
		r = settle_locked(block);
		if (r)
			result = r;
	}
	ca_heap_unlock(heap);
	/* a program that gives memory away will do so again: frees have exact marks from now on */
	if (space)
		ca_order_end_quiet(space);
	return found ? result : -ENOENT;
}

void
ca_register_begins(struct ca_heap *heap)
{
	struct ca_space *space;

	ca_heap_lock(heap);
	heap->registers = true;
	space = heap->spaces;
	ca_heap_unlock(heap);
	for (; space; space = space->next) /* spaces are never freed */
		ca_order_end_quiet(space);
}
