/* SPDX-License-Identifier: MIT */
/*
 * The cache's budget (give_back:early): segments in which nothing is live or unfinished go back
 * before the cache outgrows what the program has needed. So a request that has a segment of its own
 * does not cut an idle one of twice its size either: that goes back when it is in the way, instead
 * of being pinned by a part of it. Where a segment that was given back is asked for again, the
 * budget is larger by that from then on, and segments are cut: a program whose steps repeat asks
 * the driver for nothing any more.
 */
#include "allocator/told/internal.h"

/* Of an entry of pool->given: bytes are multiples of more. */
#define LEFT_WHOLE ((uint64_t)1)

static bool
is_early(const struct ca_told_pool *pool)
{
	return !pool->told->heap->config.give_back_oom;
}

bool
ca_told_may_cut_told(const struct ca_told_block *block, uint64_t bytes)
{
	struct ca_told_segment *segment = block->segment;
	const struct ca_told_pool *pool = segment->pool;

	if (pool->cuts || !is_early(pool) || bytes < CA_LARGE_MIN || block->bytes / 2 < bytes ||
	    !ca_told_segment_is_idle(segment))
		return true;
	segment->left_whole = true;
	return false;
}

void
ca_told_budget_taken_told(struct ca_told_pool *pool, uint64_t bytes)
{
	unsigned i;

	for (i = 0; i < CA_TOLD_GIVEN; i++)
		if ((pool->given[i] & ~LEFT_WHOLE) == bytes) {
			pool->cuts = pool->cuts || pool->given[i] & LEFT_WHOLE;
			pool->given[i] = 0;
			pool->budget_bytes += bytes;
			break;
		}
	if (pool->budget_bytes < pool->segment_bytes)
		pool->budget_bytes = pool->segment_bytes;
}

static bool
has_waiting(struct ca_told_pool *pool)
{
	(void)ca_told_unkeep_told(pool);
	CA_LIST_EACH(const struct ca_told_group, group, &pool->all_groups, link)
		if (!ca_list_empty(&group->blocks))
			return true;
	return !ca_list_empty(&pool->shared);
}

bool
ca_told_look_is_due(struct ca_told_pool *pool, uint64_t more_bytes)
{
	bool is;

	ca_told_lock(pool->told);
	is = is_early(pool) && ca_told_pool_allows(pool, CA_TOLD_OPPORTUNISTIC) &&
	     pool->segment_bytes + more_bytes > pool->budget_bytes && has_waiting(pool) &&
	     ca_backoff_is_due(&pool->looks);
	ca_told_unlock(pool->told);
	return is;
}

void
ca_told_look_ends(struct ca_told_pool *pool, bool of_use)
{
	ca_told_lock(pool->told);
	if (of_use)
		ca_backoff_succeeded(&pool->looks);
	else
		ca_backoff_failed(&pool->looks);
	ca_told_unlock(pool->told);
}

struct ca_told_segment *
ca_told_idle_told(struct ca_told_pool *pool)
{
	struct ca_told_segment *best = NULL;

	(void)ca_told_unkeep_told(pool);
	CA_LIST_EACH(struct ca_told_segment, segment, &pool->segments, link)
		if (ca_told_segment_is_idle(segment) && (!best || segment->bytes > best->bytes))
			best = segment;
	return best;
}

bool
ca_told_take_surplus(struct ca_told_pool *pool, uint64_t more_bytes, struct ca_told_idle *ret_idle)
{
	struct ca_told_segment *segment = NULL;

	ca_told_lock(pool->told);
	if (is_early(pool) && pool->segment_bytes + more_bytes > pool->budget_bytes)
		segment = ca_told_idle_told(pool);
	if (segment)
		pool->given[pool->given_next++ % CA_TOLD_GIVEN] =
			segment->bytes | (segment->left_whole ? LEFT_WHOLE : 0);
	(void)ca_told_take_out_told(segment, ret_idle);
	ca_told_unlock(pool->told);
	return segment;
}
