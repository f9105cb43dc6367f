/* SPDX-License-Identifier: MIT */
/*
 * Sums are kept per device under the heap's lock, so current, peak and total are exact; the figures
 * are worked out when somebody asks.
 */
#include "allocator/api/heap.h"

#include "allocator/block/block.h"
#include "allocator/core/lock.h"
#include "allocator/tcache/tcache.h"

static void
values(const struct ca_space *space, struct ca_stats *stats)
{
	uint64_t used, largest;
	unsigned i;

	ca_magazines_look_locked(space, &used, &largest);
	if (largest > stats->largest_free_block_bytes)
		stats->largest_free_block_bytes = largest;
	for (i = 0; i < 2; i++) {
		const struct ca_index_node *node = ca_index_last(&space->pools[i].by_size);

		if (node && ca_pool_block(node)->bytes > stats->largest_free_block_bytes)
			stats->largest_free_block_bytes = ca_pool_block(node)->bytes;
	}
	stats->pending_blocks += space->mark_held_blocks + space->stream_held_blocks + used;
}

/* Counts that several threads still keep may make a peak too high; it was within the segments. */
static void
bound_peaks(struct ca_stats *stats)
{
	struct ca_gauge *gauges[] = { &stats->requested_bytes, &stats->allocated_bytes,
				      &stats->active_bytes, &stats->cached_bytes };
	unsigned i;

	for (i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++)
		if (gauges[i]->peak > stats->reserved_bytes.peak)
			gauges[i]->peak = stats->reserved_bytes.peak;
}

/* The order tracker's counts, without the heap's lock. */
static void
order_counts(const struct ca_order_counts *counts, struct ca_stats *stats)
{
	stats->order_marks += atomic_load_explicit(&counts->marks, memory_order_relaxed);
	stats->order_waits += atomic_load_explicit(&counts->waits, memory_order_relaxed);
	stats->pdl_stripped += atomic_load_explicit(&counts->stripped, memory_order_relaxed);
	stats->order_fallbacks += atomic_load_explicit(&counts->fallbacks, memory_order_relaxed);
	stats->finished_only_reasons |=
		atomic_load_explicit(&counts->finished_only, memory_order_relaxed);
}

void
ca_heap_stats(struct ca_heap *heap, unsigned device, struct ca_stats *ret_stats)
{
	struct ca_stats stats = { 0 };
	const struct ca_device *at;
	const struct ca_space *space;

	CA_HEAP_LOCKED(heap);
	ca_magazines_count_locked(heap);
	for (at = heap->devices; at; at = at->next) {
		if (at->ordinal != device)
			continue;
		stats = at->stats;
		order_counts(&at->order_counts, &stats);
		for (space = at->spaces; space; space = space->next_on_device)
			values(space, &stats);
	}
	bound_peaks(&stats);
	*ret_stats = stats;
}

unsigned
ca_heap_device_count(struct ca_heap *heap)
{
	const struct ca_device *at;
	unsigned count = 0;

	CA_HEAP_LOCKED(heap);
	for (at = heap->devices; at; at = at->next)
		if (at->ordinal >= count)
			count = at->ordinal + 1;
	return count;
}

void
ca_note_fill(struct ca_space *space, bool filled)
{
	CA_HEAP_LOCKED(space->heap);
	if (filled)
		CA_COUNT(space, fills);
	else
		CA_COUNT(space, fills_skipped);
}
