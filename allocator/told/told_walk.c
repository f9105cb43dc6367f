/* SPDX-License-Identifier: MIT */
#include "allocator/told/internal.h"

struct ca_told *
ca_told_walk_begin(struct ca_heap *heap)
{
	struct ca_told *told = atomic_load_explicit(&heap->told, memory_order_acquire);

	if (told)
		ca_told_lock(told);
	return told;
}

void
ca_told_walk_end(struct ca_told *told)
{
	if (told)
		ca_told_unlock(told);
}

static enum ca_told_part_kind
kind_of(const struct ca_told_block *block)
{
	bool waits;

	switch (block->state) {
	case CA_TOLD_LIVE: /* one without a serial is in a thread's hand */
		return block->serial ? CA_TOLD_PART_LIVE : CA_TOLD_PART_WAITS;
	case CA_TOLD_KEPT:
	case CA_TOLD_HELD:
		waits = !ca_user_is_done(&block->user);
		break;
	default:
		waits = block->state == CA_TOLD_SHARED;
	}
	return waits ? CA_TOLD_PART_WAITS : CA_TOLD_PART_FREE;
}

static void
visit_segment(const struct ca_told_segment *segment, ca_told_visit *visit, void *arg)
{
	struct ca_told_part part = { .address = segment->address,
				     .bytes = segment->bytes,
				     .kind = CA_TOLD_PART_SEGMENT,
				     .device = segment->pool->ordinal,
				     .pool = segment->pool->number };
	const struct ca_told_block *block;

	visit(arg, &part);
	for (block = segment->first; block; block = block->next) {
		part.address = block->address;
		part.bytes = block->bytes;
		part.kind = kind_of(block);
		part.requested = part.kind == CA_TOLD_PART_LIVE ? block->requested : 0;
		visit(arg, &part);
	}
}

void
ca_told_each_part(const struct ca_told *told, ca_told_visit *visit, void *arg)
{
	const struct ca_told_pool *pool;

	for (pool = told ? told->pools : NULL; pool; pool = pool->next)
		CA_LIST_EACH(const struct ca_told_segment, segment, &pool->segments, link)
			visit_segment(segment, visit, arg);
}
