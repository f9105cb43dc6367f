/* SPDX-License-Identifier: MIT */
/*
 * A free block that was found for a request leaves its place, counted; its unfinished users are
 * exposed.
 */
#include "allocator/policy/internal.h"

#include "allocator/deferred/deferred.h"
#include "config/branch.h"
#include "config/mutant.h"

uint64_t
ca_alloc_waiting_bytes_locked(struct ca_space *space)
{
	return ca_held_waiting_bytes_locked(space, &space->pools[0]) +
	       ca_held_waiting_bytes_locked(space, &space->pools[1]);
}

bool
ca_alloc_waiting_exceeds_slack_locked(struct ca_space *space)
{
	return ca_alloc_waiting_bytes_locked(space) > space->heap->config.reuse_slack_bytes;
}

__thread uint64_t ca_alloc_in_debt __attribute__((tls_model("initial-exec")));

/* Each of the users that have not finished. */
static void
expose(struct ca_space *space, struct ca_block *block, const struct ca_users *users)
{
	struct ca_multi_users *multi = ca_block_multi(block);
	bool quiet = ca_held_quiet_locked(space) != NULL;
	unsigned i;

	for (i = CA_MUTANT(ONE_USER_UNGUARDED) && users->n > 1; i < users->n; i++)
		ca_order_expose(&space->order, &users->user[i]);
	if (quiet || (users->n == 1 && users->user[0].stream == ca_order_last_stream))
		CA_COUNT(space, taken_same_stream);
	else
		CA_COUNT(space, taken_exposed);
	if (users->n > 1) {
		CA_COUNT(space, exposed_several);
		CA_REACHED(EXPOSED_SEVERAL);
		multi->users = *users;
	} else if (multi) {
		ca_block_drop_users_locked(block);
	}
	block->user = users->user[0];
}

/* The block leaves its stream; its unfinished users are exposed. */
static void
count_hit(struct ca_space *space, struct ca_block *block, bool waited)
{
	struct ca_users users;

	CA_COUNT(space, cache_hits);
	if (block->state != CA_BLOCK_FREE) {
		ca_block_users(block, &users);
		if (!ca_users_remove_finished(&users)) {
			expose(space, block, &users);
			return;
		}
		ca_block_drop_users_locked(block);
	}
	block->user.stream = NULL;
	if (waited)
		CA_COUNT(space, taken_pending_done);
	else
		CA_COUNT(space, taken_clean);
}

struct ca_block *
ca_alloc_hit_locked(struct ca_space *space, struct ca_block *block, uint64_t bytes, bool waited)
{
	if (block)
		block = ca_pool_cut_locked(block, bytes);
	if (!block)
		return NULL;
	ca_alloc_note_backpressure_locked(space, block);
	count_hit(space, block, waited);
	return block;
}

struct ca_block *
ca_alloc_hit_whole_locked(struct ca_space *space, struct ca_block *block)
{
	if (!block)
		return NULL;
	count_hit(space, ca_pool_take_whole_locked(block), false);
	return block;
}
