/* SPDX-License-Identifier: MIT */
/*
 * Neighbours put together for a request that none of them is large enough for: blocks that have
 * finished, and those that the stream itself freed. They are not merged before, since then memory
 * that all streams may have would be that stream's alone; but before the pool grows they are worth
 * more as one. The smallest row that does is taken, so that no more than needed becomes that
 * stream's.
 */
#include "allocator/told/internal.h"

enum { BLOCKS_LOOK = 4096 }; /* a bound on the search: about 20 us */

struct row {
	struct ca_told_block *first, *last;
	uint64_t bytes;
};

static bool
is_usable(const struct ca_told_block *block, const struct ca_stream *stream)
{
	return block->state == CA_TOLD_FREE ||
	       (block->state == CA_TOLD_HELD && block->user.stream == stream);
}

/* The shortest row that begins with `first`; without a block: none does. A block that is large
 * enough alone has been found before, and is better left whole. */
static struct row
row_from(struct ca_told_block *first, const struct ca_stream *stream, uint64_t bytes,
	 unsigned *looks)
{
	struct row row = { .first = first };
	struct ca_told_block *block;

	for (block = first; block && is_usable(block, stream) && *looks; block = block->next) {
		--*looks;
		row.last = block;
		row.bytes += block->bytes;
		if (row.bytes >= bytes)
			break;
	}
	if (row.bytes < bytes || row.last == first)
		row.first = NULL;
	return row;
}

static struct row
smallest_row(const struct ca_told_pool *pool, const struct ca_stream *stream, uint64_t bytes)
{
	bool large = bytes > CA_SMALL_MAX;
	unsigned looks = BLOCKS_LOOK;
	struct row best = { .first = NULL };

	CA_LIST_EACH(const struct ca_told_segment, segment, &pool->segments, link) {
		struct ca_told_block *block;

		if (segment->large != large || segment->bytes < bytes)
			continue;
		for (block = segment->first; block && looks; block = block->next) {
			struct row row = row_from(block, stream, bytes, &looks);

			if (row.first && (!best.first || row.bytes < best.bytes))
				best = row;
		}
	}
	return best;
}

/* Each has no user but the stream, whose last free counts. */
static struct ca_told_block *
put_together(const struct row *row)
{
	struct ca_told_block *block = row->first, *next = block->next, *end = row->last->next;
	struct ca_told_users users = { .n = 0 };
	bool exact = false;

	for (;;) {
		if (block->state == CA_TOLD_HELD &&
		    (!users.n || block->user.stamp > users.user[0].stamp)) {
			users.user[0] = block->user;
			users.n = 1;
			exact = block->exact;
		}
		ca_told_detach_told(block);
		if (block != row->first)
			ca_told_join_told(row->first, block);
		if (next == end)
			break;
		block = next;
		next = block->next;
	}
	ca_told_place_told(row->first, &users, exact);
	return row->first;
}

struct ca_told_block *
ca_told_gather_told(struct ca_told_pool *pool, const struct ca_stream *stream, uint64_t bytes)
{
	struct row row = smallest_row(pool, stream, bytes);

	return row.first && row.last ? put_together(&row) : NULL;
}
