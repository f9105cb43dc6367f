/* SPDX-License-Identifier: MIT */
/*
 * Which unfinished memory is handed out, and to whom.
 *
 * First what the calling thread's own stream has used last, or comes after by the waits that it has
 * made: no wait is needed for it. Where no other stream comes to wait because of it either, it is
 * taken at once; otherwise, as rather the cache grows than that streams come to wait for each other
 * which do not, only beyond the slack. Beyond the slack, too, what other streams or several of them
 * use, as each of these users has an exact mark to wait for on the device: the driver's own free
 * would have made the host wait for the same; but only while no other thread submits anything. The
 * oldest come first, for they are the likeliest to be finished by the time that anybody waits. At
 * the end of the memory it does not matter who freed a block.
 */
#include "allocator/policy/internal.h"

#include "allocator/deferred/deferred.h"
#include "config/branch.h"

/*
 * Memory that another thread freed, or the program with its own asynchronous free, is nothing that
 * the driver would have made this thread wait for: its last users may wait for this thread's next
 * submission. (In a quiet space nothing waits for it.)
 */
static bool
is_ours(struct ca_space *space, const struct ca_block *block)
{
	return block->thread == ca_order_thread() ||
	       (block->state == CA_BLOCK_STREAM_HELD &&
		ca_held_record(&block->user) == ca_held_quiet_locked(space));
}

/* At the end of the memory, where natively the answer would be an error while the other thread's
 * free still waits, anybody's. */
static bool
may_expose(struct ca_space *space, const struct ca_block *block, bool anybody)
{
	struct ca_users users;

	if (ca_registered_overlaps(block) ||
	    (!anybody && !CA_EXPOSURE_FORCED && !is_ours(space, block)))
		return false;
	ca_block_users(block, &users);
	return ca_order_may_expose(&space->order, &users);
}

static bool
is_after(struct ca_stream_record *last, const struct ca_block *block)
{
	struct ca_users users;

	ca_block_users(block, &users);
	return ca_order_is_after(last, &users);
}

static struct ca_block *
find_in(struct ca_space *space, const struct ca_pool *pools, uint64_t bytes)
{
	return pools ? ca_search_best_locked(space, &pools[bytes > CA_SMALL_MAX], bytes) : NULL;
}

static struct ca_block *
exposable_in(struct ca_space *space, const struct ca_pool *pools, uint64_t bytes, bool anybody)
{
	struct ca_block *block = find_in(space, pools, bytes);

	return block && may_expose(space, block, anybody) ? block : NULL;
}

/* The record of the calling thread's last submission, if that was in this space. */
static struct ca_stream_record *
last_stream(const struct ca_space *space)
{
	struct ca_user user = { .stream = ca_order_last_stream };

	if (!user.stream || ca_held_record(&user)->space != space)
		return NULL;
	return ca_held_record(&user);
}

/* Unfinished memory is handed out at all, and there is some. */
static bool
has_exposable(const struct ca_space *space)
{
	return !space->dead && !space->poisoned && space->stream_held_blocks &&
	       !ca_held_is_finished_only(space);
}

struct ca_stream_record *
ca_held_last_locked(const struct ca_space *space)
{
	return has_exposable(space) ? last_stream(space) : NULL;
}

/* Blocks of a list: the next best is a wait. Mean waste of the 44 workloads with 4: -0.4 points
 * (W7b -11), with 64: +0.1. */
enum { OLDEST_LOOK = 16 };

/* Of the oldest blocks of a list the best fit; `last` not NULL: that the stream is behind. */
static struct ca_block *
exposable_oldest(struct ca_space *space, const struct ca_list *list, struct ca_stream_record *last,
		 uint64_t bytes)
{
	struct ca_block *best = NULL;
	unsigned looked = 0;

	CA_LIST_EACH(struct ca_block, block, list, waiting) {
		if (looked++ == OLDEST_LOOK || (last && !is_after(last, block)))
			break;
		if (ca_pool_fits(block, bytes) && ca_budget_allows_locked(space, block, bytes) &&
		    may_expose(space, block, false))
			best = ca_search_better(best, block);
	}
	return best;
}

/* Of one list and its pools: memory that the next submission to `last` comes after as it is. The
 * best fit may have been freed too late: so the oldest that are large enough, too. */
static struct ca_block *
after_in(struct ca_space *space, const struct ca_pool *pools, const struct ca_list *list,
	 struct ca_stream_record *last, uint64_t bytes)
{
	struct ca_block *block = find_in(space, pools, bytes);

	if (block && is_after(last, block) && may_expose(space, block, false))
		return block;
	return block ? exposable_oldest(space, list, last, bytes) : NULL;
}

static struct ca_block *
exposable_after(struct ca_space *space, struct ca_stream_record *last, uint64_t bytes)
{
	struct ca_stream_record *record;
	struct ca_block *block;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++) {
		if (record == last)
			continue;
		block = after_in(space, record->pools, &record->waiting, last, bytes);
		if (block) {
			CA_REACHED(EXPOSED_BEHIND);
			return block;
		}
	}
	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link) {
		block = after_in(space, set->pools, &set->blocks, last, bytes);
		if (block) {
			CA_REACHED(EXPOSED_BEHIND_SET);
			return block;
		}
	}
	return NULL;
}

void
ca_held_take_over_locked(struct ca_space *space)
{
	struct ca_stream_record *last = has_exposable(space) ? last_stream(space) : NULL;

	if (last)
		ca_multi_take_over_locked(space, last);
}

struct ca_block *
ca_search_exposable_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_stream_record *last = has_exposable(space) ? last_stream(space) : NULL;
	struct ca_block *block;

	if (!last)
		return NULL;
	block = exposable_in(space, last->pools, bytes, false);
	if (!block)
		return exposable_after(space, last, bytes);
	CA_REACHED(EXPOSED_OWN);
	return block;
}

struct ca_block *
ca_search_exposable_free_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block = ca_search_exposable_locked(space, bytes);
	struct ca_users users;

	if (!block)
		return NULL;
	ca_block_users(block, &users);
	return ca_order_exposes_freely(last_stream(space), &users) ? block : NULL;
}

bool
ca_held_may_take_locked(const struct ca_block *block, bool freely)
{
	struct ca_space *space = block->segment->space;
	struct ca_stream_record *last = last_stream(space);
	struct ca_users users;

	ca_block_users(block, &users);
	if (freely &&
	    (!last || !ca_order_is_after(last, &users) || !ca_order_exposes_freely(last, &users)))
		return false;
	return may_expose(space, block, false);
}

struct ca_block *
ca_search_exposable_hole_locked(struct ca_space *space, uint64_t bytes)
{
	const struct ca_stream_record *last = last_stream(space);
	struct ca_block *block;

	if (!has_exposable(space) || !last || !last->pools)
		return NULL;
	block = ca_search_hole_in_locked(space, &last->pools[1], bytes);
	return block && ca_held_may_take_locked(block, true) ? block : NULL;
}

/* The oldest that fit, or the best fit. */
static struct ca_block *
late_in(struct ca_space *space, const struct ca_pool *pools, const struct ca_list *list,
	uint64_t bytes)
{
	struct ca_block *block = find_in(space, pools, bytes), *oldest;

	if (!block)
		return NULL;
	oldest = exposable_oldest(space, list, NULL, bytes);
	if (oldest)
		return oldest;
	return may_expose(space, block, false) ? block : NULL;
}

struct ca_block *
ca_search_exposable_late_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_stream_record *record;
	struct ca_block *block = NULL;
	unsigned i;

	if (!has_exposable(space) || !ca_order_is_ours(&space->order))
		return NULL;
	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		block = ca_search_better(block, late_in(space, set->pools, &set->blocks, bytes));
	if (block)
		CA_REACHED(EXPOSED_LATE_SET);
	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		block = ca_search_better(block,
					 late_in(space, record->pools, &record->waiting, bytes));
	if (block)
		CA_REACHED(EXPOSED_LATE);
	return block;
}

bool
ca_held_needs_space_locked(struct ca_space *space)
{
	struct ca_block *block = NULL;

	if (has_exposable(space) && ca_order_is_ours(&space->order))
		block = ca_held_oldest_locked(space, CA_WAIT_LATER);
	return block && may_expose(space, block, false);
}

struct ca_block *
ca_search_exposable_any_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_stream_record *record;
	struct ca_block *block;
	unsigned i;

	ca_held_take_over_locked(space);
	block = ca_search_exposable_locked(space, bytes);
	if (block || !has_exposable(space))
		return block;
	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		block = ca_search_better(block, exposable_in(space, record->pools, bytes, true));
	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		block = ca_search_better(block, exposable_in(space, set->pools, bytes, true));
	if (block)
		CA_REACHED(EXPOSED_AT_THE_END);
	return block;
}
