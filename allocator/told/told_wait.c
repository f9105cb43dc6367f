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

/* The longest run of what has finished or waits, if some of it waits; else 0. */
static uint64_t
longest_run(const struct ca_told_segment *segment)
{
	const struct ca_told_block *block;
	uint64_t run = 0, longest = 0;
	bool waits = false;

	for (block = segment->first; block; block = block->next) {
		bool waiting = is_waiting(block);

		if (!waiting && block->state != CA_TOLD_FREE) {
			run = 0;
			waits = false;
			continue;
		}
		run += block->bytes;
		waits = waits || waiting;
		if (waits && run > longest)
			longest = run;
	}
	return longest;
}

bool
ca_told_has_waiting_for(struct ca_told_pool *pool, uint64_t size, uint64_t free_bytes)
{
	struct ca_told *told = pool->told;
	uint64_t bytes = ca_round_up(size, CA_GRAIN), whole = 0;
	struct ca_told_pool *other;
	bool serves = false;

	ca_told_lock(told);
	for (other = told->pools; other && !serves; other = other->next)
		if (other->ordinal == pool->ordinal)
			CA_LIST_EACH(const struct ca_told_segment, segment, &other->segments,
				     link) {
				uint64_t run = longest_run(segment);

				serves = serves || (other == pool && run >= bytes &&
						    segment->large == (bytes > CA_SMALL_MAX));
				whole += run == segment->bytes ? run : 0;
			}
	ca_told_unlock(told);
	return serves || (whole && whole + free_bytes >= bytes);
}
