/* SPDX-License-Identifier: MIT */
/*
 * Segments: memory that the driver gave, and its way back.
 *
 * All records a new segment needs are had before the driver is asked, so nothing the driver gave
 * can be lost for want of them. While the driver is asked the lock is free: the space may die (the
 * driver has then freed the new segment with the context), and a segment being returned may already
 * have come back to another thread as new memory. Both are seen afterwards and forgotten without a
 * driver call.
 *
 * The driver never hands out memory that is in use. Records that overlap a new segment are
 * therefore stale: that memory was freed behind our back. They are dropped and counted.
 */
#include "allocator/block/block_inside.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/order/order.h"
#include "allocator/trace/trace.h"

struct parts {
	struct ca_segment *segment;
	struct ca_block *block;
	struct ca_block *rest;
};

static void
parts_put(struct ca_heap *heap, struct parts *parts)
{
	ca_objects_put(&heap->segments, parts->segment);
	if (parts->block)
		ca_block_put(heap, parts->block);
	if (parts->rest)
		ca_block_put(heap, parts->rest);
}

static int
parts_get(struct ca_heap *heap, struct parts *ret_parts)
{
	struct parts parts = {
		.segment = ca_objects_get(&heap->segments),
		.block = ca_block_new_locked(heap),
		.rest = ca_block_new_locked(heap),
	};

	if (!parts.segment || !parts.block || !parts.rest) {
		parts_put(heap, &parts);
		return -ENOMEM;
	}
	*ret_parts = parts;
	return 0;
}

static void
drop_overlapping(struct ca_space *space, uint64_t address, uint64_t bytes)
{
	struct ca_heap *heap = space->heap;

	for (;;) {
		struct ca_segment *segment = ca_segment_at_most_locked(heap, address + bytes - 1);

		if (!segment || segment->address + segment->bytes <= address)
			return;
		/* one in a hand is just being returned by us: nothing went behind our back */
		if (ca_list_empty(&segment->hand))
			CA_COUNT(space, stale_records);
		ca_segment_forget_locked(segment);
	}
}

static void
add_reserved(struct ca_space *space, uint64_t bytes)
{
	struct ca_gauge *reserved = &space->device->stats.reserved_bytes;
	uint64_t peak = reserved->peak;

	ca_gauge_add(reserved, bytes);
	if (reserved->peak != peak)
		atomic_store_explicit(&space->heap->at_peak, true, memory_order_relaxed);
}

void
ca_segment_list_locked(struct ca_segment *segment)
{
	struct ca_device *device = segment->space->device;

	ca_list_insert(&segment->space->segments, &segment->link);
	add_reserved(segment->space, segment->bytes);
	device->drainable_bytes += segment->bytes;
	device->mapped_bytes += segment->mapped ? segment->bytes : 0;
	if (ca_tracing(segment->space->heap))
		ca_trace_segment_locked(segment, CA_TRACE_TAKEN);
}

void
ca_segment_unlist_locked(struct ca_segment *segment)
{
	struct ca_device *device = segment->space->device;

	if (ca_tracing(segment->space->heap))
		ca_trace_segment_locked(segment, CA_TRACE_RETURNED);
	device->drainable_bytes -= segment->bytes;
	device->mapped_bytes -= segment->mapped ? segment->bytes : 0;
	device->generation++;
	ca_gauge_sub(&device->stats.reserved_bytes, segment->bytes);
	ca_list_remove(&segment->link);
}

static struct ca_block *
enter(struct ca_space *space, struct ca_pool *pool, struct parts *parts, uint64_t address,
      uint64_t bytes)
{
	struct ca_segment *segment = parts->segment;
	struct ca_block *block = parts->block;

	drop_overlapping(space, address, bytes);
	segment->space = space;
	segment->pool = pool;
	segment->first = block;
	segment->address = address;
	segment->bytes = bytes;
	segment->retired = space->poisoned;
	ca_list_init(&segment->hand);
	block->segment = segment;
	block->address = address;
	block->bytes = bytes;
	block->space_and_state = ca_block_word(space->number, CA_BLOCK_NEW);
	/* and of what is cut off: nobody else got it back */
	block->thread = (uint32_t)ca_order_thread();
	ca_tree_insert(&space->heap->by_address, &segment->by_address, address, 0);
	ca_segment_list_locked(segment);
	return block;
}

int
ca_segment_enter_locked(struct ca_space *space, uint64_t address, uint64_t bytes,
			struct ca_block **ret_block)
{
	struct parts parts;
	int r = parts_get(space->heap, &parts);

	if (r)
		return r;
	*ret_block = enter(space, ca_pool_for(space, bytes), &parts, address, bytes);
	ca_block_put(space->heap, parts.rest);
	return 0;
}

static int
driver_take(struct ca_space *space, uint64_t bytes, enum ca_segment_kind kind,
	    uint64_t *ret_address)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t begin, end;
	int r;

	space->device->taking_bytes += bytes;
	ca_outside_enter_locked(space);
	begin = driver->clock_ns(driver->self);
	r = kind == CA_SEGMENT_MANAGED
		    ? driver->managed_take(driver->self, space->context, bytes, ret_address)
		    : driver->segment_take(driver->self, space->context, bytes, ret_address);
	end = driver->clock_ns(driver->self);
	ca_outside_leave(space);
	space->device->taking_bytes -= bytes;
	if (r > 0 && ca_tracing(space->heap))
		ca_trace_rejected(space, bytes, r);
	CA_COUNT(space, driver_alloc_calls);
	space->device->stats.driver_ns += end - begin;
	return r;
}

int
ca_segment_take_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
		       enum ca_segment_kind kind, struct ca_block **ret_block)
{
	struct ca_heap *heap = space->heap;
	struct parts parts;
	uint64_t address = 0;
	int r;

	r = space->dead ? -ENODEV : parts_get(heap, &parts);
	if (r)
		return r;
	ca_bases_prepare_locked(&heap->bases);
	r = driver_take(space, segment_bytes, kind, &address);
	if (!r && space->dead)
		r = -ENODEV;
	if (r) {
		parts_put(heap, &parts);
		return r;
	}
	enter(space, ca_pool_for(space, bytes), &parts, address, segment_bytes);
	if (kind == CA_SEGMENT_CUT && ca_pool_splits(&heap->config, parts.block, bytes)) {
		ca_block_split_locked(parts.block, bytes, parts.rest);
		ca_block_settle_locked(parts.rest);
	} else {
		ca_block_put(heap, parts.rest);
	}
	if (kind == CA_SEGMENT_MANAGED) {
		parts.segment->managed = true;
		parts.segment->foreign = true;
		parts.segment->retired = true;
		space->device->managed_bytes += segment_bytes;
	}
	*ret_block = parts.block;
	return 0;
}

void
ca_segment_forget_blocks_locked(struct ca_segment *segment)
{
	struct ca_heap *heap = segment->space->heap;
	struct ca_block *block, *next;

	ca_block_claim_all_locked(segment);
	block = segment->first;
	do {
		next = block->next;
		if (block->state == CA_BLOCK_ALLOCATED && ca_tracing(heap))
			ca_trace_free_locked(block, NULL);
		ca_block_detach_locked(block);
		ca_block_set_state_locked(block, CA_BLOCK_NEW);
		if (block != segment->first)
			ca_block_put(heap, block);
	} while ((block = next));
	segment->first->next = NULL;
	segment->first->bytes = segment->bytes;
}

void
ca_segment_forget_locked(struct ca_segment *segment)
{
	ca_segment_forget_blocks_locked(segment);
	if (segment->managed)
		segment->space->device->managed_bytes -= segment->bytes;
	ca_segment_unlist_locked(segment);
	ca_segment_drop_locked(segment);
}

void
ca_segment_drop_locked(struct ca_segment *segment)
{
	struct ca_heap *heap = segment->space->heap;

	ca_tree_remove(&heap->by_address, &segment->by_address);
	ca_list_remove(&segment->hand);
	ca_block_put(heap, segment->first);
	ca_objects_put(&heap->segment_maps, segment->map);
	ca_objects_put(&heap->ranges, segment->registered);
	ca_objects_put(&heap->users, segment->left);
	ca_objects_put(&heap->segments, segment);
}

int
ca_segment_return_locked(struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t address = segment->address, begin, end;
	struct ca_list hand;
	int r;

	if (segment->mapped)
		return ca_extent_return_locked(segment);
	ca_list_init(&hand);
	ca_list_insert(&hand, &segment->hand);
	segment->returning = true;
	ca_outside_enter_locked(space);
	begin = driver->clock_ns(driver->self);
	r = driver->segment_return(driver->self, space->context, address);
	end = driver->clock_ns(driver->self);
	ca_outside_leave(space);
	space->device->stats.driver_ns += end - begin;
	if (r != -EBUSY)
		CA_COUNT(space, host_syncs);
	if (!r)
		CA_COUNT(space, driver_free_calls);
	if (ca_list_empty(&hand))
		return 0; /* died, or is somebody's new memory by now */
	ca_list_remove(&segment->hand);
	segment->returning = false;
	if (!r)
		ca_segment_forget_locked(segment);
	return r;
}

uint64_t
ca_segment_release_locked(struct ca_block *block, bool *ret_busy)
{
	struct ca_segment *segment = block->segment;
	uint64_t bytes = segment->bytes;
	int r;

	ca_pool_unindex_locked(block);
	ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
	r = ca_segment_return_locked(segment);
	if (!r)
		return bytes;
	segment->standing = r != -EBUSY ? CA_STUCK : 0;
	segment->space->stuck_segments += r != -EBUSY;
	if (r == -EBUSY && ret_busy)
		*ret_busy = true;
	if (segment->retired)
		ca_segment_make_due_locked(segment);
	else
		ca_block_settle_locked(block);
	return 0;
}

void
ca_segment_reset_stuck_locked(struct ca_space *space)
{
	if (!space->stuck_segments)
		return;
	space->stuck_segments = 0;
	CA_LIST_EACH(struct ca_segment, segment, &space->segments, link) {
		struct ca_block *block = segment->first;

		if (!(segment->standing & CA_STUCK))
			continue;
		segment->standing = 0;
		if (block->state == CA_BLOCK_FREE && !block->next)
			ca_pool_index_locked(block);
	}
}

void
ca_segment_retire_locked(struct ca_segment *segment)
{
	struct ca_block *block;

	segment->retired = true;
	ca_block_claim_all_locked(segment);
	for (block = segment->first; block; block = block->next)
		if (ca_block_is_free(block)) {
			ca_block_detach_locked(block);
			ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
		}
	if (!segment->live && ca_list_empty(&segment->hand))
		ca_segment_make_due_locked(segment);
}

static void
make_due_again(struct ca_segment *segment)
{
	ca_list_insert(&segment->space->due, &segment->hand);
	atomic_fetch_or(&segment->space->attention, CA_ATTENTION_ALWAYS);
}

void
ca_segment_make_due_locked(struct ca_segment *segment)
{
	segment->space->due_bound = ca_order_space_bound(segment->space);
	make_due_again(segment);
}

uint64_t
ca_segment_return_due_locked(struct ca_space *space, bool *ret_busy)
{
	uint64_t given = 0;

	while (!ca_list_empty(&space->due) && ca_order_has_finished(space, space->due_bound)) {
		struct ca_segment *segment =
			CA_CONTAINER_OF(space->due.next, struct ca_segment, hand);
		uint64_t bytes = segment->bytes;
		int r;

		ca_list_remove(&segment->hand);
		r = ca_segment_return_locked(segment);
		if (r) {
			given += bytes - segment->bytes; /* of an extent, an end may have gone */
			make_due_again(segment);
			if (r == -EBUSY && ret_busy)
				*ret_busy = true;
			break;
		}
		given += bytes;
	}
	if (!space->dead && !space->poisoned && ca_list_empty(&space->due))
		atomic_fetch_and(&space->attention, ~(unsigned)CA_ATTENTION_ALWAYS);
	return given;
}
