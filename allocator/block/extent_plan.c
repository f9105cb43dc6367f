/* SPDX-License-Identifier: MIT */
/* The addresses that extents lie in, and the place at which a request needs the least new memory.
 */
#include "allocator/block/extent_inside.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/order/order.h"

/* ---- areas */

static bool
is_wanted(const struct ca_space *space, const struct ca_area *area)
{
	const struct ca_heap *heap = space->heap;

	return heap->config.expandable_segments && heap->driver.range_reserve && !area->rejected &&
	       !heap->mapping_ended && !space->dead && !space->poisoned;
}

static void
area_reserve(struct ca_space *space, struct ca_area *area)
{
	const struct ca_driver *driver = &space->heap->driver;
	unsigned char *begins;
	uint64_t address, bytes;
	bool is_late;
	int r;

	ca_outside_enter_locked(space);
	r = driver->range_reserve(driver->self, space->context, &address, &bytes);
	ca_outside_leave(space);
	if (r) {
		area->rejected = area->rejected || r == -ENOTSUP;
		ca_backoff_failed(&area->maps);
		return;
	}
	is_late = area->bytes || space->dead;
	begins = is_late ? NULL : ca_arena_alloc(&space->heap->records, bytes / CA_PAGE);
	if (begins) {
		area->begins = begins;
		area->address = address;
		area->bytes = bytes;
		return;
	}
	if (!is_late)
		ca_backoff_failed(&area->maps);
	ca_outside_enter_locked(space);
	driver->range_release(driver->self, space->context, address, bytes);
	ca_outside_leave(space);
}

bool
ca_area_is_ready_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_area *area = &space->areas[bytes > CA_SMALL_MAX];

	if (!is_wanted(space, area) || !ca_backoff_is_due(&area->maps))
		return false;
	if (!area->bytes)
		area_reserve(space, area);
	return area->bytes && is_wanted(space, area);
}

/* ---- where to grow */

/* New memory beside it becomes one block with it. */
static bool
is_growable(struct ca_space *space, const struct ca_block *block)
{
	const struct ca_stream_record *quiet;

	if (block->state == CA_BLOCK_FREE)
		return true;
	quiet = ca_held_quiet_locked(space);
	return block->state == CA_BLOCK_STREAM_HELD && quiet && !ca_block_multi(block) &&
	       ca_held_record(&block->user) == quiet;
}

/* A free block beside the gap, and the bytes of it that are of use to the request. */
struct side {
	const struct ca_block *block; /* NULL: none */
	uint64_t usable;
};

static struct side
side_below(const struct ca_segment *segment, uint64_t bytes)
{
	struct side side = { NULL, 0 };
	struct ca_block *block;
	uint64_t pad = 0;

	if (!segment || !ca_extent_is_open(segment))
		return side;
	block = ca_segment_last_block_locked(segment);
	if (!is_growable(segment->space, block))
		return side;
	if (bytes >= CA_ALIGNED_MIN)
		ca_block_usable(block, &pad);
	if (pad < block->bytes)
		side = (struct side){ block, block->bytes - pad };
	return side;
}

static struct side
side_above(const struct ca_segment *segment)
{
	struct side side = { NULL, 0 };

	if (segment && ca_extent_is_open(segment) && is_growable(segment->space, segment->first))
		side = (struct side){ segment->first, segment->first->bytes };
	return side;
}

/* Pages that are missing to `bytes`, at least one. */
static uint64_t
missing(uint64_t bytes, uint64_t usable)
{
	return usable < bytes ? ca_round_up(bytes - usable, CA_PAGE) : CA_PAGE;
}

/* The better one, at the lower address where both are alike. `high` alone: it ends where it does.
 */
static void
consider(struct ca_growth *best, uint64_t address, uint64_t bytes, uint64_t gap,
	 const struct side *low, const struct side *high)
{
	struct ca_area *area = best->area;

	if (best->bytes && best->bytes <= bytes)
		return;
	best->address = address;
	best->bytes = bytes;
	best->most = gap;
	best->from_above = !low;
	best->surplus = low && high ? low->usable + bytes + high->usable : 0;
	area->spared = low && low->block ? low->block->address : 0;
	area->spared_2 = high && high->block ? high->block->address : 0;
}

/* The gap from `from` to `to`. */
static void
look_at_gap(struct ca_growth *best, uint64_t from, uint64_t to, const struct side *low,
	    const struct side *high, uint64_t bytes)
{
	uint64_t gap = to - from;
	uint64_t upward = missing(bytes, low->usable), downward = missing(bytes, high->usable);

	if (!gap)
		return;
	if (upward <= gap)
		consider(best, from, upward, gap, low, NULL);
	if (downward <= gap && high->usable)
		consider(best, to - downward, downward, gap, NULL, high);
	if (upward > gap && downward > gap && low->usable + gap + high->usable >= bytes)
		consider(best, from, gap, gap, low, high);
}

/* The node's segment, if it is in the area; NULL: it is not. */
static struct ca_segment *
in_area(struct ca_tree_node *node, const struct ca_area *area)
{
	return node && node->key - area->address < area->bytes
		       ? CA_CONTAINER_OF(node, struct ca_segment, by_address)
		       : NULL;
}

bool
ca_extent_plan_locked(struct ca_space *space, uint64_t bytes, struct ca_growth *ret_growth)
{
	struct ca_area *area = &space->areas[bytes > CA_SMALL_MAX];
	struct ca_growth best = { .area = area, .handle_bytes = CA_PAGE };
	const struct ca_segment *lower = NULL, *upper;
	struct ca_tree_node *node;
	struct side low, high;
	uint64_t from;

	if (!ca_area_is_ready_locked(space, bytes))
		return false;
	from = area->address;
	node = ca_tree_at_least(&space->heap->by_address, from, 0);
	for (;; node = ca_tree_next(node)) {
		upper = in_area(node, area);
		low = side_below(lower, bytes);
		high = side_above(upper);
		look_at_gap(&best, from, upper ? upper->address : area->address + area->bytes, &low,
			    &high, bytes);
		if (!upper)
			break;
		lower = upper;
		from = ca_segment_end(upper);
	}
	if (!best.bytes)
		return false;
	*ret_growth = best;
	ret_growth->moves = ca_backoff_is_due(&best.area->moves);
	ret_growth->surplus -= ret_growth->surplus ? bytes : 0;
	ca_list_init(&ret_growth->sources);
	return true;
}
