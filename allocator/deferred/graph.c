/* SPDX-License-Identifier: MIT */
/*
 * Memory that was handed out in a capture: the graph made from the capture names it, and runs again
 * long after the program has freed it. It stays out of reuse until the last graph that can run it
 * is gone; a graph that is gone may still be running, so a context mark follows.
 *
 * Memory freed in a capture is held at once, before anybody knows whether a graph will come of it;
 * when nothing captures any more and no graph has claimed it, it is ordinary memory.
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/block/block.h"
#include "allocator/core/lock.h"

uint64_t
ca_graph_serial(struct ca_heap *heap)
{
	CA_HEAP_LOCKED(heap);
	return heap->serial;
}

int
ca_graph_hold(struct ca_heap *heap, uint64_t first, uint64_t last, _Atomic bool *ended)
{
	struct ca_hold *hold;

	CA_HEAP_LOCKED(heap);
	hold = ca_objects_get(&heap->holds);
	if (!hold)
		return -ENOMEM;
	hold->first = first;
	hold->last = last;
	hold->ended = ended;
	ca_list_insert(&heap->graphs, &hold->link);
	return 0;
}

static bool
birth_between(const struct ca_segment *segment, uint64_t first, uint64_t last)
{
	const struct ca_block *block = segment->first;
	uint64_t serial = block->state == CA_BLOCK_ALLOCATED ? block->serial : segment->serial;

	return segment->captured && serial > first && serial <= last;
}

/* One segment that was handed out in the capture and is not retired. */
static struct ca_segment *
segment_of(struct ca_heap *heap, uint64_t first, uint64_t last)
{
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		CA_LIST_EACH(struct ca_segment, segment, &space->segments, link)
			if (!segment->retired && birth_between(segment, first, last))
				return segment;
	return NULL;
}

void
ca_graph_retire(struct ca_heap *heap, uint64_t first, uint64_t last)
{
	struct ca_segment *segment;

	CA_HEAP_LOCKED(heap);
	while ((segment = segment_of(heap, first, last)))
		ca_segment_retire_locked(segment);
}

static bool
is_held(const struct ca_heap *heap, uint64_t serial)
{
	CA_LIST_EACH(const struct ca_hold, hold, &heap->graphs, link)
		if (serial > hold->first && serial <= hold->last)
			return true;
	return false;
}

bool
ca_graph_keeps_locked(struct ca_block *block)
{
	struct ca_space *space = block->segment->space;

	if (!block->segment->captured)
		return false;
	if (!is_held(space->heap, block->serial))
		space->heap->undecided = true;
	block->segment->serial = block->serial;
	ca_block_set_state_locked(block, CA_BLOCK_MARK_HELD);
	ca_list_insert(&space->graph_held, &block->waiting);
	return true;
}

/* Forgets graphs that are gone. True if there were any. */
static bool
scan(struct ca_heap *heap)
{
	bool swept = false;

	CA_LIST_EACH_SAFE(struct ca_hold, hold, &heap->graphs, link) {
		if (!atomic_load_explicit(hold->ended, memory_order_acquire))
			continue;
		ca_list_remove(&hold->link);
		ca_objects_put(&heap->holds, hold);
		swept = true;
	}
	return swept;
}

/* Memory that was handed out up to `decided`, and that no graph holds, waits for a mark. */
static bool
drop_hold(struct ca_space *space, uint64_t decided)
{
	struct ca_list hand;
	bool any;

	ca_list_init(&hand);
	CA_LIST_EACH_SAFE(struct ca_block, block, &space->graph_held, waiting) {
		uint64_t serial = block->segment->serial;

		if (serial > decided || is_held(space->heap, serial))
			continue;
		ca_list_remove(&block->waiting);
		block->segment->captured = false;
		ca_list_insert(&hand, &block->waiting);
	}
	any = !ca_list_empty(&hand);
	if (any)
		ca_unmarked_add_locked(space, &hand);
	return any;
}

/* The serial up to which memory of captures is decided: those captures have ended, and their graphs
 * are known. 0: something captures. */
static uint64_t
decided(struct ca_heap *heap)
{
	uint64_t serial = heap->serial;
	bool capturing;

	heap->undecided = false;
	ca_heap_unlock(heap);
	capturing = heap->driver.capturing(heap->driver.self);
	ca_heap_lock(heap);
	return capturing ? 0 : serial;
}

bool
ca_graph_look_locked(struct ca_heap *heap)
{
	bool swept = scan(heap), any = false;
	struct ca_space *space;
	uint64_t until;

	if (!swept && !heap->undecided)
		return false;
	until = decided(heap);
	for (space = heap->spaces; until && space; space = space->next)
		any = drop_hold(space, until) || any;
	heap->undecided = heap->undecided || !until;
	return any;
}
