/* SPDX-License-Identifier: MIT */
/*
 * Blocks that wait: whether they have finished, and waiting for them on the host.
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/block/block.h"
#include "allocator/core/lock.h"

uint64_t
ca_held_waiting_bytes_locked(struct ca_space *space, const struct ca_pool *pool)
{
	/* in a quiet space nobody has to wait for what is STREAM_HELD */
	return pool->waiting_bytes + (ca_held_quiet_locked(space) ? 0 : pool->owned_bytes);
}

bool
ca_held_waits_for_streams_locked(struct ca_space *space)
{
	const struct ca_stream_record *quiet, *record;
	unsigned i;

	if (!space->stream_held_blocks)
		return false;
	quiet = ca_held_quiet_locked(space);
	if (!quiet)
		return true;
	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		if (record != quiet && !ca_list_empty(&record->waiting))
			return true;
	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		if (!ca_list_empty(&set->blocks))
			return true;
	return false;
}

/* Asks the streams' marks. True: something was settled. */
static bool
poll_streams(struct ca_space *space)
{
	int r;

	if (!space->stream_held_blocks || space->poisoned)
		return false;
	ca_outside_enter_locked(space);
	r = ca_order_poll(space);
	ca_outside_leave(space);
	if (ca_context_mark_is_lost(r))
		ca_context_mark_sync_locked(space);
	return ca_held_settle_some_locked(space) || ca_context_mark_is_lost(r);
}

bool
ca_held_look_locked(struct ca_space *space)
{
	bool settled = ca_graph_look_locked(space->heap);

	if (ca_held_waits_for_streams_locked(space))
		settled = poll_streams(space) || settled;
	if (space->mark_held_blocks) {
		settled = ca_unmarked_settle_locked(space) || settled;
		ca_context_mark_mark_unmarked_locked(space);
		settled = ca_context_mark_poll_locked(space) || settled;
	}
	return settled;
}

void
ca_deferred_before_capture(struct ca_heap *heap)
{
	struct ca_space *space;

	CA_HEAP_LOCKED(heap);
	for (space = heap->spaces; space; space = space->next)
		if (space->mark_held_blocks && !space->dead)
			ca_held_look_locked(space);
}

/* Blocks of a list that are looked at from either end: a wait is not worth a long search. */
enum { OLDEST_LOOK = 256 };

/* The host can wait for all of its users that have not finished. (Not for what was freed while
 * nothing had to wait: no mark tells that from later work.) */
static bool
has_exact_marks(const struct ca_block *block)
{
	struct ca_users users;
	unsigned i;

	ca_block_users(block, &users);
	for (i = 0; i < users.n; i++)
		if (!ca_order_may_wait(&users.user[i]))
			return false;
	return true;
}

/* The calling thread freed it. */
static bool
is_own(const struct ca_block *block, enum ca_wait which)
{
	return block->thread == ca_order_thread() &&
	       (which == CA_WAIT_ANY || has_exact_marks(block));
}

/* Others may have many older ones. */
static struct ca_block *
oldest_of_latest(const struct ca_list *list, enum ca_wait which)
{
	const struct ca_list *at = list->prev;
	struct ca_block *oldest = NULL;
	unsigned looked;

	for (looked = 0; looked < OLDEST_LOOK && at != list; looked++, at = at->prev) {
		struct ca_block *block = CA_CONTAINER_OF(at, struct ca_block, waiting);

		if (is_own(block, which))
			oldest = block;
	}
	return oldest;
}

/* The oldest block of the list that the calling thread freed, and that can be waited for. */
static struct ca_block *
oldest_of(const struct ca_list *list, enum ca_wait which)
{
	unsigned looked = 0;

	CA_LIST_EACH(struct ca_block, block, list, waiting) {
		if (looked++ == OLDEST_LOOK)
			return oldest_of_latest(list, which);
		if (is_own(block, which))
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
		if (ca_record_is_held_up(ca_held_record(&users.user[i])))
			return true;
	return false;
}

/* The one to wait for first. */
static struct ca_block *
older(struct ca_block *best, const struct ca_list *list, enum ca_wait which)
{
	struct ca_block *block = oldest_of(list, which);

	if (!block || (best && best->user.stamp <= block->user.stamp) ||
	    (ca_wait_is_safe(which) && is_held_up(block)))
		return best;
	return block;
}

struct ca_block *
ca_held_oldest_locked(const struct ca_space *space, enum ca_wait which)
{
	const struct ca_stream_record *record;
	struct ca_block *best = NULL;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		best = older(best, &record->waiting, which);
	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		best = older(best, &set->blocks, which);
	return best;
}

void
ca_deferred_poll_locked(struct ca_space *space)
{
	poll_streams(space);
	ca_held_look_locked(space);
	ca_held_settle_locked(space);
}

/* ---- waiting on the host */

enum {
	/* An end is learned of at most an eighth of the wait too late. */
	PAUSE_FIRST_NS = 20 * 1000,
	PAUSE_LAST_NS = 1000 * 1000,
	MILLISECOND = 1000 * 1000,
};

/*
 * How long nothing may end. Each wait in vain halves it.
 *
 * Hardly anything takes a second, also of what was submitted while one stream was the only one,
 * which has no marks in between. (Two threads, 100 rounds each of up to 8 MiB and a kernel of 50
 * ms, of which 5 s are without a mark: 22 MiB are reserved where the wait has no end, 184 like
 * this, 492 with half a second and 8 ms; 42 where all have marks.)
 *
 * A little more memory lets held-up work go on; with kernels that last for seconds the cache would
 * grow to the whole device. So once it is too large, the wait is longer. (Two threads,
 * 30 rounds each of up to 64 MiB and a kernel of 1.5 s, slack 16 MiB: 182 MiB where the wait has no
 * end, 438 like this, 902 with a second always.)
 */
static const uint64_t PATIENCE_MS[] = { 1000, CA_PATIENCE_S * 1000 }; /* [1]: too large */
enum { PATIENCE_LEAST_MS = 125 };

/* Work of other spaces counts, too: only the program knows what waits for what. */
bool
ca_held_others_submit_locked(const struct ca_space *space)
{
	struct ca_space *other;

	for (other = space->heap->spaces; other; other = other->next)
		if (ca_order_others_submit(&other->order))
			return true;
	return false;
}

bool
ca_held_await_others_locked(struct ca_space *space, uint64_t bound,
			    bool (*is_over)(struct ca_space *space, const void *what),
			    const void *what)
{
	bool too_large = atomic_load_explicit(&space->too_large, memory_order_relaxed);
	unsigned *waits_failed = &space->waits_failed[too_large], failed = *waits_failed;
	uint64_t most = PATIENCE_MS[too_large] * MILLISECOND >> failed;
	uint64_t before = ca_order_progress_to(space, bound), waited = 0, longest = 0, now, pause;

	while (!is_over(space, what)) {
		if (waited >= most) {
			if (most / 2 >= PATIENCE_LEAST_MS * MILLISECOND && *waits_failed == failed)
				++*waits_failed;
			return false;
		}
		pause = waited / 8 < PAUSE_FIRST_NS ? PAUSE_FIRST_NS : waited / 8;
		pause = pause > PAUSE_LAST_NS ? PAUSE_LAST_NS : pause;
		ca_outside_pause(space->heap, (long)pause);
		if (space->dead || space->poisoned)
			return false;
		ca_deferred_poll_locked(space);
		now = ca_order_progress_to(space, bound);
		waited = now == before ? waited + pause : 0;
		longest = waited > longest ? waited : longest;
		before = now;
	}
	/* it was nearly in vain: there is work that takes so long */
	if (longest >= most / 2)
		*waits_failed = 0;
	return true;
}

static bool
is_done_or_lost(struct ca_space *space, const void *what)
{
	const struct ca_user *user = what;

	(void)space;
	return ca_user_is_done(user) || atomic_load(&ca_held_record(user)->lost);
}

static int
wait_for_stream(struct ca_space *space, enum ca_wait which)
{
	struct ca_block *block = space->stream_held_blocks && !space->poisoned
					 ? ca_held_oldest_locked(space, which)
					 : NULL;
	struct ca_users users;
	struct ca_user user;
	int r;

	if (!block)
		return 0;
	ca_block_users(block, &users);
	if (ca_users_remove_finished(&users)) /* all finished since anybody looked */
		return ca_held_settle_locked(space);
	user = users.user[0];
	if (which == CA_WAIT_LATER && ca_held_others_submit_locked(space) &&
	    !ca_held_await_others_locked(space, user.stamp, is_done_or_lost, &user))
		return -EAGAIN;
	ca_outside_enter_locked(space);
	r = ca_order_wait(space, &user);
	ca_outside_leave(space);
	if (r == -EBUSY)
		return r;
	if (ca_context_mark_is_lost(r))
		return ca_context_mark_sync_locked(space);
	if (r)
		return 0;
	CA_COUNT(space, host_syncs);
	ca_held_settle_locked(space);
	space->device->generation++;
	return 1;
}

int
ca_deferred_wait_locked(struct ca_space *space, enum ca_wait which)
{
	int r = wait_for_stream(space, which);

	if (r == -EAGAIN) /* in vain, and once is enough */
		return 0;
	return r ? r : ca_context_mark_wait_locked(space, which);
}

bool
ca_deferred_is_held_up_locked(struct ca_space *space)
{
	return ca_order_is_held_up(&space->order) &&
	       (ca_held_oldest_locked(space, CA_WAIT_EXACT) ||
		ca_context_mark_has_own_locked(space, CA_WAIT_EXACT));
}

static bool
others_in(const struct ca_list *list, uint64_t thread)
{
	CA_LIST_EACH(const struct ca_block, block, list, waiting)
		if (block->thread != thread)
			return true;
	return false;
}

bool
ca_held_others_wait_locked(const struct ca_space *space)
{
	uint64_t thread = ca_order_thread();
	const struct ca_stream_record *record;
	unsigned i;

	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		if (others_in(&set->blocks, thread))
			return true;
	for (i = 0; space->stream_held_blocks && (record = ca_record_at(&space->order, i)); i++)
		if (others_in(&record->waiting, thread))
			return true;
	CA_LIST_EACH(const struct ca_group, group, &space->pending, link)
		/* the segments of what it stood for may have gone back */
		if (group->thread != thread && !ca_list_empty(&group->blocks))
			return true;
	return others_in(&space->unmarked, thread);
}
