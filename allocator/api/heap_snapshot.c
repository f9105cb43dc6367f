/* SPDX-License-Identifier: MIT */
/*
 * One walk under the locks, with all magazines locked, too, so that nothing moves. How many rows it
 * will take is known only then: where there is not enough memory for them the lock is left, more is
 * mapped, and the walk begins anew.
 */
#include "allocator/api/heap_snapshot.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "allocator/api/heap.h"
#include "allocator/block/block.h"
#include "allocator/core/lock.h"
#include "allocator/tcache/tcache.h"
#include "allocator/told/told.h"

enum { TRIES = 8, SPARE_ROWS = 256 };

bool
ca_heap_is_at_peak(struct ca_heap *heap)
{
	return atomic_load_explicit(&heap->at_peak, memory_order_relaxed) &&
	       atomic_exchange_explicit(&heap->at_peak, false, memory_order_relaxed);
}

static enum ca_snapshot_kind
kind_of(const struct ca_block *block)
{
	if (ca_block_is_live(block))
		return CA_SNAPSHOT_LIVE;
	if (block->state == CA_BLOCK_ALLOCATED) /* in a magazine */
		return block->user.stream ? CA_SNAPSHOT_WAITS : CA_SNAPSHOT_FREE;
	return ca_block_waits(block) ? CA_SNAPSHOT_WAITS : CA_SNAPSHOT_FREE;
}

static void
add(struct ca_heap_snapshot *snapshot, const struct ca_segment *segment)
{
	struct ca_snapshot_row *row = &snapshot->rows[snapshot->count];
	unsigned ordinal = segment->space->device->ordinal;
	const struct ca_block *block;

	*row++ = (struct ca_snapshot_row){
		.address = segment->address,
		.bytes = segment->bytes,
		.kind = CA_SNAPSHOT_SEGMENT,
		.device = (uint16_t)(ordinal | (segment->mapped ? CA_SNAPSHOT_EXTENT : 0))
	};
	for (block = segment->first; block; block = block->next) {
		enum ca_snapshot_kind kind = kind_of(block);

		*row++ = (struct ca_snapshot_row){
			.address = block->address,
			.bytes = block->bytes,
			.requested = kind == CA_SNAPSHOT_LIVE ? ca_block_requested(block) : 0,
			.kind = kind,
		};
	}
	snapshot->count = (size_t)(row - snapshot->rows);
	snapshot->reserved_bytes += segment->bytes;
	if (ordinal >= snapshot->devices)
		snapshot->devices = ordinal + 1;
}

static void
fill_locked(const struct ca_heap *heap, struct ca_heap_snapshot *snapshot)
{
	const struct ca_device *device;
	const struct ca_space *space;

	for (device = heap->devices; device; device = device->next)
		for (space = device->spaces; space; space = space->next_on_device)
			CA_LIST_EACH(const struct ca_segment, segment, &space->segments, link)
				add(snapshot, segment);
}

/* ---- of pools */

static void
add_part(void *arg, const struct ca_told_part *part)
{
	static const enum ca_snapshot_kind kinds[] = {
		[CA_TOLD_PART_SEGMENT] = CA_SNAPSHOT_SEGMENT,
		[CA_TOLD_PART_LIVE] = CA_SNAPSHOT_LIVE,
		[CA_TOLD_PART_WAITS] = CA_SNAPSHOT_WAITS,
		[CA_TOLD_PART_FREE] = CA_SNAPSHOT_FREE,
	};
	struct ca_heap_snapshot *snapshot = arg;

	snapshot->rows[snapshot->count++] =
		(struct ca_snapshot_row){ .address = part->address,
					  .bytes = part->bytes,
					  .requested = part->requested,
					  .kind = kinds[part->kind],
					  .device = (uint16_t)part->device,
					  .pool = (uint16_t)(part->pool + 1) };
	if (part->kind != CA_TOLD_PART_SEGMENT)
		return;
	snapshot->reserved_bytes += part->bytes;
	if (part->device >= snapshot->devices)
		snapshot->devices = part->device + 1;
}

static void
count_part(void *arg, const struct ca_told_part *part)
{
	*(size_t *)arg += sizeof(struct ca_snapshot_row);
}

/* ---- all */

/* Every block and every segment has a record, in use. */
static size_t
bytes_wanted_locked(const struct ca_heap *heap)
{
	return (heap->blocks.used + heap->segments.used) * sizeof(struct ca_snapshot_row);
}

static bool
fill(struct ca_heap *heap, struct ca_heap_snapshot *snapshot, size_t *ret_bytes)
{
	struct ca_told *told;
	bool fits;

	told = ca_told_walk_begin(heap); /* before the heap's lock */
	ca_heap_lock(heap);
	*ret_bytes = bytes_wanted_locked(heap);
	ca_told_each_part(told, count_part, ret_bytes);
	fits = snapshot->rows && *ret_bytes <= snapshot->room_bytes;
	if (fits) {
		ca_magazines_lock_locked(heap);
		fill_locked(heap, snapshot);
		ca_magazines_unlock_locked(heap);
		ca_told_each_part(told, add_part, snapshot);
	}
	ca_heap_unlock(heap);
	ca_told_walk_end(told);
	return fits;
}

static int
map_rows(struct ca_heap_snapshot *snapshot, size_t bytes)
{
	int saved = errno;
	void *rows;

	ca_heap_snapshot_clear(snapshot);
	bytes += bytes / 4 + SPARE_ROWS * sizeof(*snapshot->rows);
	rows = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = saved;
	if (rows == MAP_FAILED)
		return -ENOMEM;
	snapshot->rows = rows;
	snapshot->room_bytes = bytes;
	return 0;
}

int
ca_heap_snapshot_take(struct ca_heap *heap, struct ca_heap_snapshot *snapshot)
{
	size_t bytes;
	unsigned tries;
	int r = 0;

	for (tries = 0; !r && tries < TRIES; tries++) {
		snapshot->count = snapshot->devices = 0;
		snapshot->reserved_bytes = 0;
		if (fill(heap, snapshot, &bytes))
			return 0;
		r = map_rows(snapshot, bytes);
	}
	return -ENOMEM;
}

void
ca_heap_snapshot_clear(struct ca_heap_snapshot *snapshot)
{
	int saved = errno;

	if (snapshot->rows)
		munmap(snapshot->rows, snapshot->room_bytes);
	*snapshot = (struct ca_heap_snapshot){ 0 };
	errno = saved;
}
