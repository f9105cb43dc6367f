/* SPDX-License-Identifier: MIT */
/*
 * Freed blocks that wait for streams.
 *
 * A block that one stream may still use is OWNED by it: it lies in the stream's own pools, where it
 * can be found by size should it be exposed (handed out although the stream has not finished:
 * policy/search_early.c). It is in the list of the stream, smallest stamp first, so that a stream's
 * progress settles the head of its list and costs nothing otherwise. One that several may still use
 * is the business of multi_user.c.
 *
 * In a quiet space, with one stream that could submit, what that stream owns is as good as CLEAN:
 * whatever is submitted later comes after it.
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/policy/internal.h"
#include "allocator/tcache/tcache.h"

bool
ca_owned_is_quiet_for(struct ca_space *space, const struct ca_user *user)
{
	return ca_owned_quiet_locked(space) == ca_owned_record(user);
}

bool
ca_owned_pools_ready(struct ca_heap *heap, struct ca_stream_record *record)
{
	if (record->pools)
		return true;
	record->pools = ca_arena_alloc(&heap->fixed, 2 * sizeof(*record->pools));
	if (!record->pools)
		return false;
	ca_pool_init(&record->pools[0], true);
	ca_pool_init(&record->pools[1], false);
	return true;
}

bool
ca_owned_is_markable(const struct ca_users *users)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		if (atomic_load_explicit(&ca_owned_record(&users->user[i])->lost,
					 memory_order_acquire))
			return false;
	return !users->context;
}

bool
ca_owned_place_locked(struct ca_block *block, struct ca_users *users)
{
	struct ca_heap *heap = block->segment->space->heap;

	if ((ca_users_prune(users) && !users->context) || block->segment->retired) {
		ca_block_drop_users_locked(block);
		ca_block_settle_locked(block);
		return true;
	}
	if (!ca_owned_is_markable(users) || heap->no_marks)
		return false;
	if (users->n > 1 || ca_registered_overlaps(block))
		return ca_several_place_locked(block, users);
	if (!ca_owned_pools_ready(heap, ca_owned_record(&users->user[0])))
		return false;
	ca_block_drop_users_locked(block);
	ca_block_own_locked(block, users->user[0], NULL);
	return true;
}

void
ca_owned_place_kept_locked(struct ca_block *block)
{
	struct ca_stream_record *record = ca_owned_record(&block->user);
	struct ca_users users;

	if (record->pools && !block->segment->retired && !ca_registered_overlaps(block) &&
	    !ca_user_is_done(&block->user) &&
	    !atomic_load_explicit(&record->lost, memory_order_acquire) &&
	    !record->space->heap->no_marks) {
		ca_block_own_locked(block, block->user, NULL);
		return;
	}
	users.n = 1;
	users.context = false;
	users.user[0] = block->user;
	ca_owned_place_or_mark_locked(block, &users);
}

void
ca_owned_place_or_mark_locked(struct ca_block *block, struct ca_users *users)
{
	if (ca_owned_place_locked(block, users))
		return;
	ca_block_detach_locked(block);
	ca_block_set_state_locked(block, CA_BLOCK_WAITING);
	ca_list_insert(&block->segment->space->unmarked, &block->waiting);
}

void
ca_owned_place_again_locked(struct ca_block *block)
{
	struct ca_users users;

	ca_block_users(block, &users);
	ca_pool_unindex_locked(block);
	ca_list_remove(&block->waiting);
	ca_owned_place_or_mark_locked(block, &users);
}

static bool
is_ready(const struct ca_block *block)
{
	struct ca_users users;

	ca_block_users(block, &users);
	return ca_users_prune(&users) || !ca_owned_is_markable(&users);
}

enum { SETTLE_LOOK = 8 }; /* blocks in vain: those behind them were freed later, most likely */

static bool
settle_stream(struct ca_stream_record *record)
{
	struct ca_list *at = &record->waiting; /* up to here blocks stay */
	unsigned in_vain = 0;
	bool settled = false;

	while (at->next != &record->waiting && in_vain < SETTLE_LOOK) {
		struct ca_block *block = CA_CONTAINER_OF(at->next, struct ca_block, waiting);

		if (is_ready(block)) {
			ca_owned_place_again_locked(block);
			settled = true;
			continue;
		}
		if (!ca_block_several(block))
			break;
		at = at->next;
		in_vain++;
	}
	return settled;
}

bool
ca_owned_settle_locked(struct ca_space *space)
{
	uint64_t progress = atomic_load_explicit(&space->order.progress, memory_order_acquire);
	bool settled = false;
	unsigned i;

	if (progress == space->settled)
		return false;
	space->settled = progress;
	for (i = 0; space->owned_blocks && i < ca_owned_streams(space); i++)
		if (space->order.streams[i])
			settled = settle_stream(space->order.streams[i]) || settled;
	return ca_several_settle_locked(space) || settled;
}

/* A block that is not cut, or is of the small pool, is nothing that the budget would keep. */
struct ca_block *
ca_owned_find_best_locked(struct ca_space *space, const struct ca_pool *pool, uint64_t bytes)
{
	struct ca_block *block = ca_pool_find_locked(&space->heap->config, pool, bytes);

	if (!block || pool->small || block->bytes - bytes <= CA_SMALL_MAX)
		return block;
	return ca_budget_choose_locked(space, block, bytes);
}

/* A block of the quiet space's stream is as good as CLEAN: but for what others still use, streams
 * that are gone. */
static struct ca_block *
if_quiet(struct ca_space *space, struct ca_block *block)
{
	struct ca_several *several = block ? ca_block_several(block) : NULL;

	return several && !ca_order_may_expose(&space->order, &several->users) ? NULL : block;
}

/* Best fit of what the quiet space's stream owns. */
static struct ca_block *
find_quiet(struct ca_space *space, uint64_t bytes)
{
	const struct ca_stream_record *quiet = ca_owned_quiet_locked(space);

	if (!quiet || !quiet->pools)
		return NULL;
	return if_quiet(space, ca_owned_find_best_locked(space, &quiet->pools[bytes > CA_SMALL_MAX],
							 bytes));
}

static struct ca_block *
find(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *clean;

	if (space->dead || space->poisoned)
		return NULL;
	ca_owned_settle_locked(space);
	clean = ca_owned_find_best_locked(space, ca_pool_for(space, bytes), bytes);
	if (!space->owned_blocks || ca_order_may_capture(space->heap))
		return clean;
	return ca_owned_better(clean, find_quiet(space, bytes));
}

/* Best fit of what no request of its pool has much use for: too small for any, or, where requests
 * of several sizes share a segment, without a boundary for those that need one. */
struct ca_block *
ca_owned_hole_in_locked(const struct ca_space *space, const struct ca_pool *pool, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	struct ca_block *block = ca_pool_find_locked(config, pool, bytes);

	if (!block || block->bytes <= CA_SMALL_MAX)
		return block;
	return ca_pool_is_shared(config, block) && !ca_pool_usable(block) ? block : NULL;
}

struct ca_block *
ca_owned_find_hole_locked(struct ca_space *space, uint64_t bytes)
{
	const struct ca_stream_record *quiet;
	struct ca_block *block;

	if (bytes > CA_SMALL_MAX || space->dead || space->poisoned)
		return NULL;
	block = ca_owned_hole_in_locked(space, &space->pools[1], bytes);
	if (!space->owned_blocks || ca_order_may_capture(space->heap))
		return block;
	quiet = ca_owned_quiet_locked(space);
	if (!quiet)
		return ca_owned_better(block, ca_owned_exposable_hole_locked(space, bytes));
	if (!quiet->pools)
		return block;
	return ca_owned_better(
		block, if_quiet(space, ca_owned_hole_in_locked(space, &quiet->pools[1], bytes)));
}

/* False: no free block is just as large. */
static bool
has_about(struct ca_space *space, uint64_t bytes)
{
	const struct ca_stream_record *quiet;

	if (ca_index_has_about(&ca_pool_for(space, bytes)->by_size, bytes))
		return true;
	if (!space->owned_blocks)
		return false;
	quiet = ca_owned_quiet_locked(space);
	return quiet && quiet->pools &&
	       ca_index_has_about(&quiet->pools[bytes > CA_SMALL_MAX].by_size, bytes);
}

struct ca_block *
ca_owned_find_locked(struct ca_space *space, uint64_t bytes)
{
	ca_magazines_clear_locked(space);
	return find(space, bytes);
}

/* Small blocks stay where they are as long as anything else can be cut: pieces of a small segment
 * are pieces of one anyway. */
static struct ca_block *
find_small(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block;

	ca_magazine_clear_own_locked(space, CA_KEPT_LARGE);
	block = find(space, bytes);
	if (block)
		return block;
	ca_magazine_clear_own_locked(space, CA_KEPT_ANY);
	return find(space, bytes);
}

struct ca_block *
ca_owned_find_own_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block;

	if (bytes <= CA_SMALL_MAX)
		return find_small(space, bytes);
	/* what fits as it is cannot become better; before another is cut, all is merged */
	if (has_about(space, bytes)) {
		block = find(space, bytes);
		if (block && block->bytes == bytes && ca_pool_is_whole(block, bytes))
			return block;
	}
	ca_magazine_clear_own_locked(space, CA_KEPT_ANY);
	return find(space, bytes);
}

uint64_t
ca_owned_waiting_bytes_locked(struct ca_space *space, const struct ca_pool *pool)
{
	/* in a quiet space nobody has to wait for what is OWNED */
	return pool->waiting_bytes + (ca_owned_quiet_locked(space) ? 0 : pool->owned_bytes);
}

/* Something waits for a stream, although in a quiet space nothing has to wait for its one. */
static bool
waits_for_streams(struct ca_space *space)
{
	struct ca_stream_record *quiet;
	unsigned i;

	if (!space->owned_blocks)
		return false;
	quiet = ca_owned_quiet_locked(space);
	if (!quiet)
		return true;
	for (i = 0; i < ca_owned_streams(space); i++)
		if (space->order.streams[i] && space->order.streams[i] != quiet &&
		    !ca_list_empty(&space->order.streams[i]->waiting))
			return true;
	return ca_several_next(space, NULL) != NULL;
}

bool
ca_owned_poll_locked(struct ca_space *space)
{
	int r;

	if (!space->owned_blocks || space->poisoned)
		return false;
	ca_outside_enter_locked(space);
	r = ca_order_poll(space);
	ca_outside_leave(space);
	if (ca_pending_is_lost(r))
		ca_pending_rescue_locked(space);
	return ca_owned_settle_locked(space) || ca_pending_is_lost(r);
}

bool
ca_owned_is_waiting_locked(struct ca_space *space)
{
	return space->waiting_blocks || waits_for_streams(space);
}

bool
ca_owned_look_locked(struct ca_space *space)
{
	bool settled = ca_graph_look_locked(space->heap);

	if (waits_for_streams(space))
		settled = ca_owned_poll_locked(space) || settled;
	if (space->waiting_blocks) {
		ca_pending_mark_unmarked_locked(space);
		settled = ca_pending_poll_locked(space) || settled;
	}
	return settled;
}

enum { OLDEST_LOOK = 256 }; /* entries of a list: a wait is not worth a long search */

/* The oldest block of the list that the thread freed. */
static struct ca_block *
oldest_of(const struct ca_list *list, uint64_t thread)
{
	const struct ca_list *link;
	unsigned looked = 0;

	for (link = list->next; link != list && looked++ < OLDEST_LOOK; link = link->next) {
		struct ca_block *block =
			CA_CONTAINER_OF((struct ca_list *)link, struct ca_block, waiting);

		if (block->thread == thread)
			return block;
	}
	return NULL;
}

static bool
is_held_up(const struct ca_block *block)
{
	struct ca_users users;
	unsigned i;

	ca_block_users(block, &users);
	for (i = 0; i < users.n; i++)
		if (ca_record_is_held_up(ca_owned_record(&users.user[i])))
			return true;
	return false;
}

/* The one to wait for first. */
static struct ca_block *
older(struct ca_block *best, const struct ca_list *list, enum ca_wait which)
{
	struct ca_block *block = oldest_of(list, ca_order_thread());

	if (!block || (best && best->user.stamp <= block->user.stamp) ||
	    (which == CA_WAIT_LATER && is_held_up(block)))
		return best;
	return block;
}

struct ca_block *
ca_owned_oldest_locked(const struct ca_space *space, enum ca_wait which)
{
	const struct ca_user_set *set;
	struct ca_block *best = NULL;
	unsigned i;

	for (i = 0; i < ca_owned_streams(space); i++)
		if (space->order.streams[i])
			best = older(best, &space->order.streams[i]->waiting, which);
	for (set = NULL; (set = ca_several_next(space, set));)
		best = older(best, &set->blocks, which);
	return best;
}

int
ca_owned_wait_locked(struct ca_space *space, enum ca_wait which)
{
	struct ca_block *block = space->owned_blocks && !space->poisoned
					 ? ca_owned_oldest_locked(space, which)
					 : NULL;
	struct ca_users users;
	struct ca_user user;
	int r;

	if (!block)
		return 0;
	ca_block_users(block, &users);
	if (ca_users_prune(&users)) /* all finished since anybody looked */
		return ca_owned_settle_locked(space);
	user = users.user[0];
	ca_outside_enter_locked(space);
	r = ca_order_wait(space, &user);
	ca_outside_leave(space);
	if (r == -EBUSY)
		return r;
	if (ca_pending_is_lost(r) || (r && which == CA_WAIT_ANY))
		return ca_pending_rescue_locked(space);
	if (r)
		return 0;
	CA_COUNT(space, host_syncs);
	ca_owned_settle_locked(space);
	space->device->generation++;
	return 1;
}

static bool
others_in(const struct ca_list *list, uint64_t thread)
{
	const struct ca_list *link;

	for (link = list->next; link != list; link = link->next)
		if (CA_CONTAINER_OF((struct ca_list *)link, struct ca_block, waiting)->thread !=
		    thread)
			return true;
	return false;
}

bool
ca_owned_others_wait_locked(const struct ca_space *space)
{
	uint64_t thread = ca_order_thread();
	const struct ca_user_set *set;
	const struct ca_list *link;
	unsigned i;

	for (set = NULL; (set = ca_several_next(space, set));)
		if (others_in(&set->blocks, thread))
			return true;
	for (i = 0; space->owned_blocks && i < ca_owned_streams(space); i++)
		if (space->order.streams[i] && others_in(&space->order.streams[i]->waiting, thread))
			return true;
	for (link = space->pending.next; link != &space->pending; link = link->next) {
		const struct ca_group *group =
			CA_CONTAINER_OF((struct ca_list *)link, struct ca_group, link);

		/* the segments of what it stood for may have gone back */
		if (group->thread != thread && !ca_list_empty(&group->blocks))
			return true;
	}
	return others_in(&space->unmarked, thread);
}

void
ca_owned_forget(struct ca_space *space)
{
	unsigned i;

	for (i = 0; i < ca_owned_streams(space); i++) {
		struct ca_stream_record *record = space->order.streams[i];

		if (!record)
			continue;
		ca_list_init(&record->waiting);
		if (record->pools) {
			ca_pool_init(&record->pools[0], true);
			ca_pool_init(&record->pools[1], false);
		}
	}
}
