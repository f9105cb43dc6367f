/* SPDX-License-Identifier: MIT */
/*
 * LIVE memory that was handed out before its former user had finished (block->user): who that is,
 * for a copy that names the memory, and waiting for it, for an accessor that is not a stream.
 */
#include "allocator/track.h"

#include <errno.h>

/* Adds an unfinished user. */
static void
users_add(struct ca_users *users, struct ca_user user)
{
	unsigned i;

	if (!user.stream || ca_user_is_done(&user))
		return;
	for (i = 0; i < users->n; i++) {
		if (users->user[i].stream != user.stream)
			continue;
		if (users->user[i].stamp < user.stamp)
			users->user[i].stamp = user.stamp;
		return;
	}
	if (users->n == CA_USERS_MAX)
		users->context = true;
	else
		users->user[users->n++] = user;
}

/* The block's. */
static void
users_add_all(struct ca_users *users, const struct ca_block *block)
{
	struct ca_users more;
	unsigned i;

	ca_block_users(block, &more);
	for (i = 0; i < more.n; i++)
		users_add(users, more.user[i]);
}

/* The block that holds `address`, or the first behind it. */
static struct ca_block *
first_from(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block = ca_block_find_locked(heap, address);
	struct ca_tree_node *node;

	if (block)
		return block;
	node = ca_tree_at_least(&heap->by_address, address, 0);
	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address)->first : NULL;
}

/* The next higher one. */
static struct ca_block *
next_of(const struct ca_block *block)
{
	struct ca_tree_node *node;

	if (block->next)
		return block->next;
	node = ca_tree_next(&block->segment->by_address);
	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address)->first : NULL;
}

static void
touch_range(struct ca_heap *heap, uint64_t address, uint64_t bytes, struct ca_users *users)
{
	struct ca_block *block = first_from(heap, address);

	while (block && (block->address <= address || block->address - address < bytes)) {
		if (ca_block_is_live(block))
			users_add_all(users, block);
		block = next_of(block);
	}
}

void
ca_touch_users(struct ca_space *space, const struct ca_touch *touch, struct ca_users *ret_users)
{
	unsigned i;

	ret_users->n = 0;
	ret_users->context = false;
	ca_heap_lock(space->heap);
	for (i = 0; i < touch->n; i++)
		touch_range(space->heap, touch->range[i].address, touch->range[i].bytes, ret_users);
	ca_heap_unlock(space->heap);
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

/* All of them. */
static int
wait_all_locked(struct ca_space *space, const struct ca_users *users)
{
	unsigned i;
	int r = 0;

	for (i = 0; !r && i < users->n; i++)
		r = wait_locked(space, &users->user[i]);
	return r;
}

int
ca_settle(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block;
	struct ca_users users = { .n = 0 };
	uint64_t serial;
	int r = 0;

	ca_heap_lock(heap);
	block = ca_block_find_settled_locked(heap, address);
	if (!block) {
		ca_heap_unlock(heap);
		return -ENOENT;
	}
	serial = atomic_load_explicit(&block->serial, memory_order_relaxed);
	if (ca_block_is_live(block))
		ca_block_users(block, &users);
	if (!ca_users_prune(&users)) {
		CA_COUNT(block->segment->space, settles);
		r = wait_all_locked(block->segment->space, &users);
		block = ca_block_find_locked(heap, address);
		if (!r && ca_users_prune(&users) && block && ca_block_is_live(block) &&
		    atomic_load_explicit(&block->serial, memory_order_relaxed) == serial)
			ca_block_drop_users_locked(block);
	}
	ca_heap_unlock(heap);
	return r;
}
