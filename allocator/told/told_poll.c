/* SPDX-License-Identifier: MIT */
/*
 * Whether freed memory has finished: by what is known, and by asking the marks.
 *
 * A group's blocks are in the order of their frees, so the head of the list is asked about first:
 * as long as it has not finished, the others have not either, or not much of them.
 */
#include "allocator/told/internal.h"

#include "allocator/core/lock.h"
#include "config/mutant.h"

enum { SHARED_ASK = 16 };

static void
settle(struct ca_told_block *block)
{
	struct ca_told_users users;
	bool exact = block->exact;

	ca_told_block_users(block, &users);
	ca_told_detach_told(block);
	ca_told_place_told(block, &users, exact);
}

bool
ca_told_settle_group_told(struct ca_told_group *group)
{
	bool settled = false;

	while (!ca_list_empty(&group->blocks)) {
		struct ca_told_block *block =
			CA_CONTAINER_OF(group->blocks.next, struct ca_told_block, held);

		if (!ca_user_is_done(&block->user))
			break;
		settle(block);
		settled = true;
	}
	return settled;
}

static bool
is_all_idle(struct ca_heap *heap)
{
	struct ca_space *space;
	bool idle = true;

	CA_HEAP_LOCKED(heap);
	for (space = heap->spaces; idle && space; space = space->next)
		idle = space->dead || ca_told_is_idle(space);
	return idle;
}

static bool
settle_shared(struct ca_told_pool *pool)
{
	bool settled = false, idle = false, looked = false;

	CA_LIST_EACH_SAFE(struct ca_told_block, block, &pool->shared, held) {
		struct ca_told_users users;
		unsigned before;

		ca_told_block_users(block, &users);
		before = users.n;
		if (users.more && !looked) {
			idle = is_all_idle(pool->told->heap);
			looked = true;
		}
		if (users.more && idle)
			block->users->more = users.more = false;
		if (ca_told_remove_finished_told(pool->told, &users) ||
		    (!users.more && users.n < before)) {
			settle(block);
			settled = true;
		}
	}
	return settled;
}

bool
ca_told_settle_told(struct ca_told_pool *pool)
{
	bool settled = ca_told_unkeep_told(pool);

	CA_LIST_EACH(struct ca_told_group, group, &pool->all_groups, link)
		settled = ca_told_settle_group_told(group) || settled;
	return (!ca_list_empty(&pool->shared) && settle_shared(pool)) || settled;
}

/* ---- asking */

/* The users that stand at the heads. A list of list, since the lock is left for them. */
struct poll_list {
	unsigned n;
	bool more; /* users without a record */
	struct ca_user user[CA_STREAMS_MAX];
};

static void
add(struct poll_list *list, const struct ca_user *user)
{
	unsigned i;

	for (i = 0; i < list->n; i++)
		if (list->user[i].stream == user->stream)
			return;
	if (list->n < CA_STREAMS_MAX && !ca_user_is_done(user))
		list->user[list->n++] = *user;
}

static void
collect(struct ca_told_pool *pool, struct poll_list *list)
{
	unsigned asked = 0, i;

	list->n = 0;
	list->more = false;
	CA_LIST_EACH(const struct ca_told_group, group, &pool->all_groups, link)
		if (!ca_list_empty(&group->blocks))
			add(list,
			    &CA_CONTAINER_OF(group->blocks.next, struct ca_told_block, held)->user);
	CA_LIST_EACH(const struct ca_told_block, block, &pool->shared, held) {
		if (asked++ == SHARED_ASK)
			break;
		list->more |= block->users->more;
		for (i = 0; i < block->users->n; i++)
			add(list, &block->users->user[i]);
	}
}

static bool
poll_user(const struct ca_user *user)
{
	if (CA_MUTANT(TOLD_MARK_EARLY)) {
		ca_order_finished(user->stream, user->stamp);
		return true;
	}
	return ca_told_poll(user);
}

static struct ca_space *
any_space(struct ca_heap *heap)
{
	struct ca_space *space;

	CA_HEAP_LOCKED(heap);
	for (space = heap->spaces; space && space->dead; space = space->next)
		;
	return space; /* it is never freed */
}

/* A mark of all contexts: memory freed before it was recorded has finished when it is done. */
static bool
poll_everything(struct ca_told *told)
{
	struct ca_space *space = any_space(told->heap);
	uint64_t done;

	if (!space || !ca_polled_mark_poll(&told->polled, space,
					   atomic_fetch_add(&told->next_serial, 1), &done))
		return false;
	if (done > atomic_load(&told->serial_done))
		atomic_store(&told->serial_done, done);
	return true;
}

uint64_t
ca_told_submitted(struct ca_heap *heap)
{
	struct ca_told *told = atomic_load(&heap->told);

	return told ? atomic_load(&told->next_serial) : 0;
}

bool
ca_told_poll_submitted(struct ca_heap *heap, uint64_t number)
{
	struct ca_told *told = atomic_load(&heap->told);

	return !told || number <= atomic_load(&told->serial_done) ||
	       (poll_everything(told) && number <= atomic_load(&told->serial_done));
}

bool
ca_told_poll_told(struct ca_told_pool *pool)
{
	struct poll_list list;
	bool settled = false, finished = true;
	unsigned i;

	while (finished) {
		collect(pool, &list);
		finished = false;
		ca_told_unlock(pool->told);
		for (i = 0; i < list.n; i++)
			finished = poll_user(&list.user[i]) || finished;
		finished = (list.more && poll_everything(pool->told)) || finished;
		ca_told_lock(pool->told);
		if (finished)
			settled = ca_told_settle_told(pool) || settled;
	}
	return settled;
}

bool
ca_told_poll_all(struct ca_heap *heap, unsigned ordinal)
{
	struct ca_told *told = atomic_load(&heap->told);
	struct ca_told_pool *pool;
	bool settled = false;

	if (!told)
		return false;
	ca_told_lock(told);
	for (pool = told->pools; pool; pool = pool->next)
		if (pool->ordinal == ordinal) {
			settled = ca_told_settle_told(pool) || settled;
			settled = ca_told_poll_told(pool) || settled;
		}
	ca_told_unlock(told);
	return settled;
}
