/* SPDX-License-Identifier: MIT */
/*
 * Registered ranges: a short sorted list a segment.
 *
 * A block that overlaps a range waits as one of several users does (MULTI_HELD) while it has one,
 * and no magazine keeps it. Five places ask: where a freed block gets its place (deferred/place.c,
 * deferred/multi_user.c), where it is merged (block.c), where unfinished memory is handed out
 * (policy/search_early.c, policy/gather.c: not this), and where a magazine may have the block
 * (policy/alloc.c).
 */
#include "allocator/block/block.h"

#include <string.h>

bool
ca_registered_overlaps_some(const struct ca_block *block)
{
	const struct ca_registered *registered = block->segment->registered;
	uint64_t from = block->address, to = from + block->bytes;
	unsigned i;

	for (i = 0; i < registered->n; i++)
		if (registered->range[i].from < to && from < registered->range[i].to)
			return true;
	return false;
}

static bool
includes(const struct ca_registered *registered, uint64_t from, uint64_t to)
{
	unsigned i;

	for (i = 0; i < registered->n; i++)
		if (registered->range[i].from <= from && to <= registered->range[i].to)
			return true;
	return false;
}

static void
remove_at(struct ca_registered *registered, unsigned i)
{
	memmove(&registered->range[i], &registered->range[i + 1],
		(registered->n - i - 1) * sizeof(registered->range[0]));
	registered->n--;
}

/* Makes one of the two ranges with the least between them. */
static void
join_nearest(struct ca_registered *registered)
{
	unsigned best = 0, i;

	for (i = 1; i + 1 < registered->n; i++)
		if (registered->range[i + 1].from - registered->range[i].to <
		    registered->range[best + 1].from - registered->range[best].to)
			best = i;
	registered->range[best].to = registered->range[best + 1].to;
	remove_at(registered, best + 1);
}

static void
insert(struct ca_registered *registered, uint64_t from, uint64_t to)
{
	unsigned i = 0;

	while (i < registered->n) {
		if (registered->range[i].to < from || to < registered->range[i].from) {
			i++;
			continue;
		}
		if (registered->range[i].from < from)
			from = registered->range[i].from;
		if (registered->range[i].to > to)
			to = registered->range[i].to;
		remove_at(registered, i);
	}
	if (registered->n == CA_REGISTERED_MAX) {
		join_nearest(registered);
		insert(registered, from, to); /* it may touch what is one now */
		return;
	}
	for (i = registered->n; i && registered->range[i - 1].from > from; i--)
		registered->range[i] = registered->range[i - 1];
	registered->range[i] = (struct ca_registered_range){ from, to };
	registered->n++;
}

void
ca_registered_add_locked(struct ca_segment *segment, uint64_t from, uint64_t to)
{
	if (segment->retired)
		return; /* never handed out again */
	if (from < segment->address)
		from = segment->address;
	if (to > segment->address + segment->bytes)
		to = segment->address + segment->bytes;
	if (segment->registered && includes(segment->registered, from, to))
		return;
	if (!segment->registered)
		segment->registered = ca_objects_get(&segment->space->heap->ranges);
	if (!segment->registered) {
		ca_segment_retire_locked(segment);
		return;
	}
	insert(segment->registered, from, to);
	ca_block_claim_all_locked(segment);
}
