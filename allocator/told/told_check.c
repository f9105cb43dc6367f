/* SPDX-License-Identifier: MIT */
/* Walks the told heap and compares every sum, for the tests. */
#include "allocator/told/internal.h"

#include <errno.h>

#include "config/text.h"

struct walk {
	const char *wrong; /* the first finding */
	uint64_t tabled, used_bytes, segment_bytes;
};

static void
expect(struct walk *walk, bool holds, const char *wrong)
{
	if (!holds && !walk->wrong)
		walk->wrong = wrong;
}

static void
check_block(struct walk *walk, const struct ca_told_block *block)
{
	const struct ca_told_block *next = block->next;
	bool indexed = block->by_size.key != 0;

	expect(walk, block->bytes && block->address % CA_GRAIN == 0, "a block's range");
	expect(walk,
	       !next || (next->prev == block && next->address == block->address + block->bytes),
	       "blocks do not tile their segment");
	expect(walk, indexed == (block->state == CA_TOLD_FREE || block->state == CA_TOLD_HELD),
	       "a block is in no index, or in one too many");
	expect(walk, (block->state == CA_TOLD_SHARED) == (block->users != NULL),
	       "users of a block");
	expect(walk,
	       !next || block->state != next->state || block->state == CA_TOLD_LIVE ||
		       block->state == CA_TOLD_KEPT || block->state == CA_TOLD_SHARED ||
		       (block->state == CA_TOLD_HELD && block->user.stream != next->user.stream),
	       "neighbours that are not merged");
	if (block->state == CA_TOLD_KEPT || block->state == CA_TOLD_LIVE) {
		expect(walk,
		       ca_told_table_find_told(block->segment->pool->told, block->address) == block,
		       "a live or kept block is not in the table");
		walk->tabled++;
	}
	if (block->state == CA_TOLD_LIVE)
		walk->used_bytes += ca_round_up(block->requested, CA_GRAIN);
}

static void
check_segment(struct walk *walk, const struct ca_told_segment *segment)
{
	const struct ca_told_block *block;
	uint64_t bytes = 0;

	for (block = segment->first; block; block = block->next) {
		check_block(walk, block);
		bytes += block->bytes;
	}
	block = segment->first;
	expect(walk, bytes == segment->bytes && block && block->address == segment->address,
	       "the bytes of a segment");
	walk->segment_bytes += segment->bytes;
}

int
ca_told_check(struct ca_heap *heap, char *ret_reason, size_t size)
{
	struct ca_told *told = atomic_load(&heap->told);
	struct walk walk = { 0 };
	struct ca_told_pool *pool;

	if (!told)
		return 0;
	ca_told_lock(told);
	for (pool = told->pools; pool; pool = pool->next) {
		walk.used_bytes = walk.segment_bytes = 0;
		CA_LIST_EACH(const struct ca_told_segment, segment, &pool->segments, link)
			check_segment(&walk, segment);
		expect(&walk, walk.used_bytes == pool->used_bytes, "used bytes of a pool");
		expect(&walk, walk.segment_bytes == pool->segment_bytes, "segment bytes of a pool");
	}
	expect(&walk, walk.tabled == told->n_tabled, "blocks in the table");
	ca_told_unlock(told);
	if (walk.wrong && ret_reason)
		ca_text_format(ret_reason, size, "%s", walk.wrong);
	return walk.wrong ? -EUCLEAN : 0;
}
