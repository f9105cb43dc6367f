/* SPDX-License-Identifier: MIT */
/*
 * The cache's budget (give_back:early): segments in which nothing is live or unfinished go back
 * before the cache outgrows what the program has needed. Nor does a request that has a segment of
 * its own cut an idle one of twice its size then, or where little of the device is left: that goes
 * back when it is in the way, instead of being pinned by a part of it. The budget is as in
 * policy/budget.c, so that a program reserves no more by this road than by cuMemAlloc. Where a
 * segment that was given back is asked for again, the budget is larger by that from then on, and
 * segments are cut: a program whose steps repeat asks the driver for nothing any more.
 */
#include "allocator/told/internal.h"

/* Of an entry of pool->given: bytes are multiples of more. */
#define LEFT_WHOLE ((uint64_t)1)

/* Of what is needed; bytes. */
enum { SPARE_PERCENT = 4, WORTH_LOOKING = 16 << 20 };

static bool
is_early(const struct ca_told_pool *pool)
{
	return !pool->told->heap->config.give_back_oom;
}

/* As in policy/budget.c: the bytes held of the device beyond the most that the program has needed,
 * something for the pieces between, and segments that went back in vain. */
static uint64_t
too_much(const struct ca_told_pool *pool, uint64_t more_bytes)
{
	const struct ca_config *config = &pool->told->heap->config;
	const struct ca_gauge *used = &pool->counts->used;
	uint64_t bytes = pool->counts->reserved.current + more_bytes;
	uint64_t allowed = used->current + more_bytes;

	if (!is_early(pool))
		return 0;
	if (allowed < used->peak)
		allowed = used->peak;
	if (allowed / 100 * SPARE_PERCENT < config->large_segment_size_bytes)
		allowed += config->large_segment_size_bytes;
	else
		allowed += allowed / 100 * SPARE_PERCENT;
	allowed += pool->repeated_bytes;
	return bytes > allowed ? bytes - allowed : 0;
}

/* Less than a fifth of the device is left: a piece of it is in the way of the next large request.
 */
static bool
is_low(const struct ca_told_pool *pool, uint64_t bytes)
{
	return pool->total_bytes &&
	       pool->counts->reserved.current + bytes > pool->total_bytes / 5 * 4;
}

/* Nothing would go back otherwise. */
static bool
is_whole_of_use(const struct ca_told_pool *pool, uint64_t bytes)
{
	return is_early(pool) && (is_low(pool, bytes) || too_much(pool, bytes));
}

bool
ca_told_may_cut_told(const struct ca_told_block *block, uint64_t bytes)
{
	struct ca_told_segment *segment = block->segment;
	const struct ca_told_pool *pool = segment->pool;

	if (pool->cuts || bytes < CA_LARGE_MIN || block->bytes / 2 < bytes ||
	    !ca_told_segment_is_idle(segment) || !is_whole_of_use(pool, bytes))
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
			pool->repeated_bytes += bytes;
			break;
		}
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
	is = too_much(pool, more_bytes) >= WORTH_LOOKING &&
	     ca_told_pool_allows(pool, CA_TOLD_OPPORTUNISTIC) && has_waiting(pool) &&
	     ca_backoff_is_due(&pool->looks);
	ca_told_unlock(pool->told);
	return is;
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
ca_told_look_goes_on(struct ca_told_pool *pool)
{
	bool goes_on;

	ca_told_lock(pool->told);
	goes_on = has_waiting(pool);
	ca_told_unlock(pool->told);
	return goes_on;
}

void
ca_told_look_ends(struct ca_told_pool *pool, bool served)
{
	ca_told_lock(pool->told);
	if (served || ca_told_idle_told(pool))
		ca_backoff_succeeded(&pool->looks);
	else
		ca_backoff_failed(&pool->looks);
	ca_told_unlock(pool->told);
}

bool
ca_told_take_surplus(struct ca_told_pool *pool, uint64_t more_bytes, struct ca_told_idle *ret_idle)
{
	struct ca_told_segment *segment = NULL;

	ca_told_lock(pool->told);
	if (too_much(pool, more_bytes))
		segment = ca_told_idle_told(pool);
	if (segment)
		pool->given[pool->given_next++ % CA_TOLD_GIVEN] =
			segment->bytes | (segment->left_whole ? LEFT_WHOLE : 0);
	(void)ca_told_take_out_told(segment, ret_idle);
	ca_told_unlock(pool->told);
	return segment;
}
