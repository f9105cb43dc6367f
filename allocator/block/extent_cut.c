/* SPDX-License-Identifier: MIT */
/* Whole handles inside FREE blocks of extents go back to the driver: which, how they are cut out,
 * and the end of the space. */
#include "allocator/block/block_inside.h"
#include "allocator/block/extent_inside.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "config/mutant.h"

/* ---- giving back */

/* The begin of the handle that ends at `end`. */
static uint64_t
handle_below(const struct ca_area *area, uint64_t end)
{
	uint64_t begin = end - CA_PAGE;

	while (!*ca_area_begins_at(area, begin) && !CA_MUTANT(HANDLE_CUT))
		begin -= CA_PAGE;
	return begin;
}

/* A handle ends, at most at `address`, in the extent. */
static uint64_t
boundary_at_most(const struct ca_segment *segment, uint64_t address)
{
	const struct ca_area *area = ca_area_of(segment);

	if (address == ca_segment_end(segment))
		return address;
	address -= (address - area->address) % CA_PAGE;
	while (address > segment->address && !*ca_area_begins_at(area, address) &&
	       !CA_MUTANT(HANDLE_CUT))
		address -= CA_PAGE;
	return address;
}

uint64_t
ca_extent_handles(const struct ca_block *block, uint64_t bytes, uint64_t most,
		  uint64_t *ret_address)
{
	const struct ca_segment *segment = block->segment;
	uint64_t end, begin, lower;

	if (block->bytes < CA_PAGE || segment->retired || (segment->standing & CA_STUCK) ||
	    !ca_list_empty(&segment->hand))
		return 0;
	begin = end = boundary_at_most(segment, block->address + block->bytes);
	while (begin > block->address && end - begin < bytes) {
		lower = handle_below(ca_area_of(segment), begin);
		if (lower < block->address || end - lower > most)
			break;
		begin = lower;
	}
	*ret_address = begin;
	return begin < end ? end - begin : 0;
}

uint64_t
ca_extent_drainable(const struct ca_block *block, uint64_t bytes, uint64_t *ret_address)
{
	const struct ca_segment *segment = block->segment;

	if (block->state != CA_BLOCK_FREE || (segment->registered && block->bytes < segment->bytes))
		return 0;
	if (segment->registered)
		bytes = segment->bytes; /* as a segment: as a whole, or not at all */
	return ca_extent_handles(block, bytes, UINT64_MAX, ret_address);
}

bool
ca_extent_is_spared(const struct ca_block *block)
{
	const struct ca_area *area = ca_area_of(block->segment);

	return block->address == area->spared || block->address == area->spared_2;
}

static struct ca_block *
candidate_in(const struct ca_pool *pool, struct ca_block *best, uint64_t *most, uint64_t bytes)
{
	struct ca_index_node *node;
	uint64_t address, given;

	for (node = ca_index_any_at_least(&pool->by_size, CA_PAGE); node && *most < bytes;
	     node = ca_index_next(&pool->by_size, node)) {
		struct ca_block *block = ca_pool_block(node);

		if (!block->segment->mapped || ca_extent_is_spared(block))
			continue;
		given = ca_extent_drainable(block, bytes, &address);
		if (given > *most) {
			*most = given;
			best = block;
		}
	}
	return best;
}

struct ca_block *
ca_extent_candidate_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *best;
	uint64_t most = 0;

	if ((!space->areas[0].bytes && !space->areas[1].bytes) ||
	    (space->is_leaving && !CA_MUTANT(LEFT_UNCOUNTED)))
		return NULL;
	best = candidate_in(&space->pools[1], NULL, &most, bytes);
	return candidate_in(&space->pools[0], best, &most, bytes);
}

uint64_t
ca_extents_drainable_locked(const struct ca_space *space)
{
	uint64_t sum = 0, address;
	unsigned i;

	for (i = 0; i < 2; i++) {
		const struct ca_index *index = &space->pools[i].by_size;
		struct ca_index_node *node =
			space->areas[i].bytes ? ca_index_any_at_least(index, CA_PAGE) : NULL;

		for (; node; node = ca_index_next(index, node)) {
			const struct ca_block *block = ca_pool_block(node);

			if (block->segment->mapped && block->segment->live)
				sum += ca_extent_drainable(block, UINT64_MAX, &address);
		}
	}
	return sum;
}

/* Records that cutting out takes. */
struct parts {
	struct ca_block *lower, *upper;
	struct ca_segment *segment, *segment_2;
	struct ca_multi_users *multi, *multi_2; /* of a block with several users */
};

static bool
parts_get(const struct ca_block *block, struct parts *parts)
{
	struct ca_heap *heap = block->segment->space->heap;
	const struct ca_multi_users *multi = ca_block_multi(block);

	*parts = (struct parts){ .lower = ca_block_new_locked(heap),
				 .upper = ca_block_new_locked(heap),
				 .segment = ca_objects_get(&heap->segments),
				 .segment_2 = ca_objects_get(&heap->segments) };
	if (multi) {
		parts->multi = ca_objects_get(&heap->users);
		parts->multi_2 = ca_objects_get(&heap->users);
	}
	if (!parts->lower || !parts->upper || !parts->segment || !parts->segment_2 ||
	    (multi && (!parts->multi || !parts->multi_2)))
		return false;
	if (multi)
		*parts->multi = *parts->multi_2 = *multi;
	return true;
}

static void
parts_put(struct ca_heap *heap, const struct parts *parts)
{
	if (parts->lower)
		ca_block_put(heap, parts->lower);
	if (parts->upper)
		ca_block_put(heap, parts->upper);
	ca_objects_put(&heap->segments, parts->segment);
	ca_objects_put(&heap->segments, parts->segment_2);
	ca_objects_put(&heap->users, parts->multi);
	ca_objects_put(&heap->users, parts->multi_2);
}

/* A part that has been cut off, and its users. */
static void
enter_part(struct ca_block *part, struct ca_multi_users **multi)
{
	if (*multi)
		ca_pool_carry_locked(part, *multi);
	*multi = NULL;
	ca_pool_index_locked(part);
}

static void
cut_lower(struct ca_block *block, uint64_t bytes, struct parts *parts)
{
	ca_block_split_lower_locked(block, bytes, parts->lower);
	if (ca_block_is_held(block))
		ca_list_insert(&block->waiting, &parts->lower->waiting);
	enter_part(parts->lower, &parts->multi);
	parts->lower = NULL;
}

static void
cut_upper(struct ca_block *block, uint64_t bytes, struct parts *parts)
{
	ca_block_split_locked(block, bytes, parts->upper);
	enter_part(parts->upper, &parts->multi_2);
	parts->upper = NULL;
}

/* Uses up some of `parts`. */
static void
cut_out(struct ca_block *block, uint64_t address, uint64_t bytes, struct parts *parts)
{
	ca_pool_unindex_locked(block);
	if (block->address < address)
		cut_lower(block, address - block->address, parts);
	if (block->bytes > bytes)
		cut_upper(block, bytes, parts);
	ca_block_detach_locked(block);
	ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
	if (block->prev) {
		ca_extent_split_locked(block->segment, block, parts->segment);
		parts->segment = NULL;
	}
	if (block->next) {
		ca_extent_split_locked(block->segment, block->next, parts->segment_2);
		parts->segment_2 = NULL;
	}
}

struct ca_segment *
ca_extent_cut_locked(struct ca_block *block, uint64_t address, uint64_t bytes,
		     struct ca_block **ret_lower)
{
	struct ca_heap *heap = block->segment->space->heap;
	struct parts parts;
	bool has_all = parts_get(block, &parts);

	if (has_all && ret_lower)
		*ret_lower = block->address < address ? parts.lower : NULL;
	if (has_all)
		cut_out(block, address, bytes, &parts);
	parts_put(heap, &parts);
	return has_all ? block->segment : NULL;
}

uint64_t
ca_extent_release_locked(struct ca_block *block, uint64_t bytes, bool *ret_busy)
{
	struct ca_segment *segment = block->segment;
	struct ca_space *space = segment->space;
	uint64_t address, given = ca_extent_drainable(block, bytes, &address);
	bool passes;
	int r;

	if (!given)
		return 0;
	if (!ca_extent_cut_locked(block, address, given, NULL)) {
		segment->standing = CA_STUCK;
		space->stuck_segments++;
		return 0;
	}
	segment = block->segment;
	r = ca_extent_return_locked(segment);
	if (!r)
		return given;
	if (r == -EBUSY && ret_busy)
		*ret_busy = true;
	passes = r == -EBUSY || r == -EINPROGRESS;
	segment->standing = passes ? 0 : CA_STUCK;
	space->stuck_segments += !passes;
	given -= segment->bytes; /* the rest of it is there still */
	if (segment->retired) {
		ca_segment_make_due_locked(segment);
		return given;
	}
	ca_extent_join_adjacent_locked(segment);
	ca_block_settle_locked(block);
	return given;
}

/* All RETIRED blocks of the segment become one. False: not all are. */
static bool
is_one_block(struct ca_segment *segment)
{
	struct ca_block *block;

	for (block = segment->first; block; block = block->next)
		if (block->state != CA_BLOCK_RETIRED)
			return false;
	block = ca_segment_last_block_locked(segment);
	if (block != segment->first) {
		block = ca_block_gather_locked(segment->first, block);
		ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
	}
	return true;
}

/* So much of it is still mapped, from below. */
static void
shrink(struct ca_segment *segment, uint64_t bytes)
{
	uint64_t gone = segment->bytes - bytes;
	struct ca_device *device = segment->space->device;

	if (!gone)
		return;
	ca_gauge_sub(&device->stats.reserved_bytes, gone);
	device->drainable_bytes -= gone;
	device->mapped_bytes -= gone;
	device->generation++;
	segment->bytes = segment->first->bytes = bytes;
}

int
ca_extent_return_locked(struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_area *area = ca_area_of(segment);
	uint64_t address = segment->address, bytes = segment->bytes, begin_ns, end_ns,
		 end = address + bytes, untold;
	struct ca_list hand;
	bool died;
	int r;

	if (space->poisoned)
		return -EBUSY;
	if (!is_one_block(segment)) /* a block waits for a mark still; others need not */
		return -EAGAIN;
	ca_list_init(&hand);
	ca_list_insert(&hand, &segment->hand);
	segment->returning = true;
	space->in_hand++;
	untold = segment->retired ? space->untold : 0;
	/* memory is gone when it is mapped nowhere, and counts until then */
	r = ca_extent_leave_finished_locked(space);
	if (!r && space->is_leaving)
		r = -EINPROGRESS;
	r = CA_MUTANT(LEFT_UNCOUNTED) ? 0 : r;
	ca_outside_enter_locked(space);
	begin_ns = driver->clock_ns(driver->self);
	if (!r && untold)
		r = driver->context_synchronize(driver->self, space->context);
	if (!r)
		r = ca_extent_unmap(space, area, address, end, &end);
	end_ns = driver->clock_ns(driver->self);
	ca_outside_leave(space);
	space->device->stats.driver_ns += end_ns - begin_ns;
	if (untold && !r && space->untold == untold)
		space->untold = 0;
	if (!r)
		CA_COUNT(space, driver_free_calls);
	died = ca_list_empty(&hand);
	if (died && !CA_MUTANT(EXTENT_UNMAPPED_ONCE))
		ca_extent_unmap_dead_locked(space, area, address, end);
	space->device->taking_bytes -= died ? bytes : 0;
	space->in_hand--;
	if (died)
		return 0;
	ca_list_remove(&segment->hand);
	segment->returning = false;
	if (!r)
		ca_segment_forget_locked(segment);
	else
		shrink(segment, end - address);
	return r;
}

/* ---- the end */

/* Nobody's memory from now on: one RETIRED block, in no list of the space and no sum. */
static void
empty(struct ca_segment *segment)
{
	ca_segment_forget_blocks_locked(segment);
	ca_objects_put(&segment->space->heap->segment_maps, segment->map);
	segment->map = NULL;
	ca_block_set_state_locked(segment->first, CA_BLOCK_RETIRED);
	ca_segment_unlist_locked(segment);
	ca_list_remove(&segment->hand);
	segment->retired = true;
}

void
ca_extents_forget_locked(struct ca_space *space)
{
	CA_LIST_EACH_SAFE(struct ca_segment, segment, &space->segments, link) {
		if (!segment->mapped)
			continue;
		space->device->taking_bytes += segment->bytes;
		if (segment->returning && !CA_MUTANT(EXTENT_HAND_IGNORED))
			continue; /* who has it in its hand unmaps it */
		space->ending_bytes += segment->bytes;
		empty(segment);
		ca_list_insert(&space->leaving, &segment->hand);
	}
	space->leaving_bytes = 0;
}

void
ca_extents_end(struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_area *area;
	uint64_t address, end;
	unsigned i;

	ca_heap_lock(space->heap);
	ca_extent_leave_dead_locked(space);
	space->device->taking_bytes -= space->ending_bytes;
	space->device->generation++;
	ca_heap_unlock(space->heap);
	for (i = 0; i < 2; i++) {
		bool is_mine;

		area = &space->areas[i];
		ca_heap_lock(space->heap);
		address = area->address;
		end = area->bytes;
		is_mine = end && !space->keeps_addresses &&
			  (!space->in_hand || CA_MUTANT(EXTENT_ADDRESSES_GONE));
		area->bytes = 0;
		area->rejected = true;
		ca_heap_unlock(space->heap);
		if (is_mine) /* else addresses stay reserved for nobody */
			driver->range_release(driver->self, space->context, address, end);
	}
}
