/* SPDX-License-Identifier: MIT */
/*
 * Whether it is of use to wait for freed memory that has not finished: by what a request could be
 * served from then, a run of neighbours in one segment, or whole segments that go back to the
 * driver.
 */
#include "allocator/told/internal.h"

static bool
is_waiting(const struct ca_told_block *block)
{
	return block->state == CA_TOLD_HELD || (block->state == CA_TOLD_SHARED && block->users);
}

/* The longest run of what has finished or waits. */
static uint64_t
longest_run(const struct ca_told_segment *segment)
{
	const struct ca_told_block *block;
	uint64_t run = 0, longest = 0;

	for (block = segment->first; block; block = block->next) {
		run = is_waiting(block) || block->state == CA_TOLD_FREE ? run + block->bytes : 0;
		if (run > longest)
			longest = run;
	}
	return longest;
}

static bool
has_waiting(const struct ca_told_pool *pool)
{
	CA_LIST_EACH(const struct ca_told_group, group, &pool->all_groups, link)
		if (!ca_list_empty(&group->blocks))
			return true;
	return !ca_list_empty(&pool->shared);
}

bool
ca_told_has_waiting_for(struct ca_told_pool *pool, uint64_t size, uint64_t free_bytes)
{
	struct ca_told *told = pool->told;
	uint64_t bytes = ca_round_up(size, CA_GRAIN), whole = free_bytes;
	bool waits = false, serves = false, large = bytes > CA_SMALL_MAX;
	struct ca_told_pool *other;

	ca_told_lock(told);
	for (other = told->pools; other; other = other->next) {
		if (other->ordinal != pool->ordinal)
			continue;
		(void)ca_told_unkeep_told(other);
		waits = waits || has_waiting(other);
		CA_LIST_EACH(const struct ca_told_segment, segment, &other->segments, link) {
			uint64_t run = longest_run(segment);

			/* a small request takes any hole */
			if (other == pool && segment->large >= large && run >= bytes)
				serves = true;
			whole += run == segment->bytes ? run : 0;
		}
	}
	ca_told_unlock(told);
	return waits && (serves || whole >= bytes);
}
