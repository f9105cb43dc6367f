/* SPDX-License-Identifier: MIT */
/*
 * Neighbours of different users, put together for a request that none of them is large enough for.
 *
 * Where one stream works, all that is free merges. Where several do, blocks merge only with their
 * like, so that one stream's memory does not come to wait for another's; and the cache falls into
 * pieces. So before the cache grows for want of a large piece, or the host waits, a row of
 * neighbours is looked for that together would do: each of them clean, or to be exposed on the same
 * terms as if it were large enough by itself. Together they have all their users, each with the
 * larger stamp. The smallest row is taken, so that no more than needed gets users it never had.
 */
#include "allocator/policy/internal.h"

#include "allocator/deferred/deferred.h"
#include "config/branch.h"

enum {
	/* Bounds of a search that no workload of the 44 reaches: 16 and 256 rows, and 256 blocks,
	 * give the same. */
	ROWS_LOOK = 64,     /* rows large enough, of which the smallest is taken */
	BLOCKS_LOOK = 1024, /* blocks asked for their users: about 100 us */
	/* Blocks passed. (Without a limit an allocation beside 60,000 blocks of a program's takes
	 * up to 27 ms, beside 150,000 up to 229.) */
	PASSED_MAX = 16384,
};

struct row {
	struct ca_block *first, *last;
	uint64_t bytes;
	struct ca_users users; /* of all together, unfinished */
};

struct search {
	uint64_t bytes;
	bool freely;
	unsigned rows, blocks; /* to look at still */
	unsigned passes;       /* the same of all blocks */
	struct row best;       /* without a block: there is none so far */
};

/* Together they are large enough. */
static bool
fits(const struct ca_block *first, uint64_t row_bytes, uint64_t bytes)
{
	struct ca_block whole = { .segment = first->segment };

	whole.address = first->address;
	whole.bytes = row_bytes;
	return ca_pool_fits(&whole, bytes);
}

/* One more block at the end of the row. */
static bool
row_extend(struct row *row, struct ca_block *block, bool freely)
{
	struct ca_users users;
	unsigned i;

	if (ca_registered_overlaps(block))
		return false; /* it would have unfinished users */
	if (block->state != CA_BLOCK_FREE) {
		if (!ca_held_may_take_locked(block, freely))
			return false;
		ca_block_users(block, &users);
		ca_users_remove_finished(&users);
		for (i = 0; i < users.n; i++)
			if (!ca_users_raise(&row->users, &users.user[i]))
				return false;
	}
	row->last = block;
	row->bytes += block->bytes;
	return true;
}

/* The shortest row from `first` on that is large enough. */
static bool
row_from(struct search *search, struct ca_block *first, struct row *ret_row)
{
	struct ca_block *block;

	*ret_row = (struct row){ .first = first };
	for (block = first; block && ca_block_is_free(block) && search->blocks;
	     block = block->next) {
		search->blocks--;
		if (!row_extend(ret_row, block, search->freely))
			return false;
		if (fits(first, ret_row->bytes, search->bytes))
			return true;
	}
	return false;
}

/* The first block behind the row of free ones, and how much that is. */
static struct ca_block *
after_row(struct search *search, struct ca_block *block, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	for (; block && ca_block_is_free(block) && search->passes; block = block->next) {
		*ret_bytes += block->bytes;
		search->passes--;
	}
	return block;
}

/* Looks at the rows of a segment. */
static void
look_in(struct search *search, const struct ca_segment *segment)
{
	struct ca_block *block = segment->first, *end;
	uint64_t row_bytes;
	struct row row;

	for (; block && search->rows && search->blocks && search->passes; block = end) {
		search->passes--;
		end = after_row(search, block, &row_bytes);
		for (; block != end && row_bytes >= search->bytes; block = block->next) {
			if (row_from(search, block, &row)) {
				search->rows--;
				if (!search->best.first || row.bytes < search->best.bytes)
					search->best = row;
			}
			if (!search->rows || !search->blocks)
				return;
			row_bytes -= block->bytes;
		}
		if (end)
			end = end->next;
	}
}

/* One block of them all, in its place. There it may have become one with a neighbour of the same
 * users that is not for the caller: another thread's, or a registered one. */
static struct ca_block *
put_together(struct row *row, bool freely)
{
	struct ca_block *block = row->first;
	uint64_t address = block->address;
	struct ca_heap *heap = block->segment->space->heap;

	CA_REACHED(EXPOSED_GATHERED);
	block = ca_block_gather_locked(row->first, row->last);
	block->thread = (uint32_t)ca_order_thread();
	ca_held_place_or_mark_locked(block, &row->users);
	block = ca_block_find_locked(heap, address);
	if (!ca_block_is_free(block))
		return NULL;
	return block->state == CA_BLOCK_FREE || ca_held_may_take_locked(block, freely) ? block
										       : NULL;
}

struct ca_block *
ca_gather_locked(struct ca_space *space, uint64_t bytes, bool freely)
{
	const struct ca_pool *pool = ca_pool_for(space, bytes);
	struct search search = { .bytes = bytes,
				 .freely = freely,
				 .rows = ROWS_LOOK,
				 .blocks = BLOCKS_LOOK,
				 .passes = PASSED_MAX };

	if (ca_held_quiet_locked(space) || !ca_held_needs_space_locked(space))
		return NULL;
	CA_LIST_EACH(const struct ca_segment, segment, &space->segments, link) {
		if (!search.rows || !search.blocks || !search.passes)
			break;
		if (segment->pool == pool && !segment->retired && !ca_segment_is_ended(segment) &&
		    segment->bytes >= bytes && segment->first->next)
			look_in(&search, segment);
	}
	return search.best.first ? put_together(&search.best, freely) : NULL;
}
