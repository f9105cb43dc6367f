/* SPDX-License-Identifier: MIT */
/*
 * Extents: segments that grow and shrink (expandable_segments).
 *
 * Each pool of a space has one area of reserved addresses. An extent is a row of handles in it,
 * mapped without a gap, and a segment like any other: blocks tile it. A request that nothing free
 * is large enough for needs new memory only for what a free block at the end of an extent lacks, so
 * it grows there: the new memory is a segment of one block, which is joined with the extents that
 * it touches, and its block is merged with what is free beside it. The other way, whole handles
 * inside a free block are cut out as a segment of their own, which goes back as any segment does.
 * So memory in pieces is no loss but for what is smaller than a handle, and two extents never
 * touch, but where one of them is on its way, retired or has registered memory.
 *
 * A segment of pages that a thread is about to map, or to unmap, looks the same: one RETIRED block,
 * in that thread's hand, and among the heap's addresses, so that nobody else maps anything there.
 * It is in its space's list, and in the sums, only while it is mapped.
 *
 * The driver's free of a segment waits for work on it; an unmapping does not. So only FREE memory
 * is cut out; and where a capture kept anybody but the driver from knowing whether the work on a
 * retired extent has finished, its context is waited for before that goes back.
 */
#include "allocator/block/block.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/order/order.h"
#include "allocator/trace/trace.h"

/* Bytes in use from which large handles are made: below, all that is saved is a few driver calls.
 */
#define LARGE_FROM ((uint64_t)512 << 20)

static unsigned char *
begins_at(const struct ca_area *area, uint64_t address)
{
	return &area->begins[(address - area->address) / CA_PAGE];
}

static uint64_t
end_of(const struct ca_segment *segment)
{
	return segment->address + segment->bytes;
}

static struct ca_segment *
next_of(const struct ca_segment *segment)
{
	struct ca_tree_node *node = ca_tree_next(&segment->by_address);

	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address) : NULL;
}

/* ---- areas */

static bool
is_wanted(const struct ca_space *space, const struct ca_area *area)
{
	const struct ca_heap *heap = space->heap;

	return heap->config.expandable_segments && heap->driver.range_reserve && !area->rejected &&
	       !space->dead && !space->poisoned;
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
		area->rejected = true;
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
	area->rejected = area->rejected || !is_late;
	ca_outside_enter_locked(space);
	driver->range_release(driver->self, space->context, address, bytes);
	ca_outside_leave(space);
}

bool
ca_area_is_ready_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_area *area = &space->areas[bytes > CA_SMALL_MAX];

	if (!is_wanted(space, area))
		return false;
	if (!area->bytes)
		area_reserve(space, area);
	return area->bytes && is_wanted(space, area);
}

/* ---- where to grow */

/* Others may grow into it, and it into them. */
static bool
is_open(const struct ca_segment *segment)
{
	return segment->mapped && !segment->retired && !segment->returning &&
	       !segment->registered && ca_list_empty(&segment->hand);
}

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

static struct ca_block *
last_block(const struct ca_segment *segment)
{
	return ca_block_find_locked(segment->space->heap, end_of(segment) - 1);
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

	if (!segment || !is_open(segment))
		return side;
	block = last_block(segment);
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

	if (segment && is_open(segment) && is_growable(segment->space, segment->first))
		side = (struct side){ segment->first, segment->first->bytes };
	return side;
}

/* Pages that are missing to `bytes`, at least one. */
static uint64_t
missing(uint64_t bytes, uint64_t usable)
{
	return usable < bytes ? ca_round_up(bytes - usable, CA_PAGE) : CA_PAGE;
}

/* The better one, at the lower address where both are alike. */
static void
consider(struct ca_growth *best, uint64_t address, uint64_t bytes, const struct side *low,
	 const struct side *high)
{
	struct ca_area *area = best->area;

	if (best->bytes && best->bytes <= bytes)
		return;
	best->address = address;
	best->bytes = bytes;
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
		consider(best, from, upward, low, NULL);
	if (downward <= gap && high->usable)
		consider(best, to - downward, downward, NULL, high);
	if (upward > gap && downward > gap && low->usable + gap + high->usable >= bytes)
		consider(best, from, gap, low, high);
}

static struct ca_segment *
first_in_area(const struct ca_space *space, const struct ca_area *area)
{
	struct ca_tree_node *node = ca_tree_at_least(&space->heap->by_address, area->address, 0);
	struct ca_segment *segment =
		node ? CA_CONTAINER_OF(node, struct ca_segment, by_address) : NULL;

	return segment && segment->address - area->address < area->bytes ? segment : NULL;
}

static struct ca_segment *
next_in_area(const struct ca_segment *segment, const struct ca_area *area)
{
	struct ca_segment *next = next_of(segment);

	return next && next->address - area->address < area->bytes ? next : NULL;
}

bool
ca_extent_plan_locked(struct ca_space *space, uint64_t bytes, struct ca_growth *ret_growth)
{
	struct ca_area *area = &space->areas[bytes > CA_SMALL_MAX];
	struct ca_growth best = { .area = area };
	const struct ca_segment *lower = NULL, *upper;
	struct side low, high;
	uint64_t from;

	if (!ca_area_is_ready_locked(space, bytes))
		return false;
	from = area->address;
	for (upper = first_in_area(space, area);; upper = next_in_area(upper, area)) {
		low = side_below(lower, bytes);
		high = side_above(upper);
		look_at_gap(&best, from, upper ? upper->address : area->address + area->bytes, &low,
			    &high, bytes);
		if (!upper)
			break;
		lower = upper;
		from = end_of(upper);
	}
	if (best.bytes)
		*ret_growth = best;
	return best.bytes != 0;
}

/* ---- two extents become one, and one two */

/* The map, after `first` and all behind it have come, or some have gone. */
static void
remap(struct ca_segment *segment, struct ca_block *first)
{
	unsigned char map_log = ca_segment_map_log(segment->bytes);
	struct ca_block *block;

	if (map_log != segment->map_log)
		first = segment->first;
	segment->map_log = map_log;
	if (!segment->map && !segment->first->next)
		return; /* one block needs none */
	for (block = first; block; block = block->next)
		ca_segment_map_note_locked(block, block->address, block->bytes);
}

static void
drainable_change(struct ca_segment *segment, uint64_t sign)
{
	if (!segment->live)
		segment->space->device->drainable_bytes += sign * segment->bytes;
}

/* The blocks from `first` on are the segment's. */
static void
take_blocks(struct ca_segment *segment, struct ca_segment *from, struct ca_block *first)
{
	struct ca_block *block;

	for (block = first; block; block = block->next) {
		block->segment = segment;
		segment->live += block->state == CA_BLOCK_ALLOCATED;
		from->live -= block->state == CA_BLOCK_ALLOCATED;
	}
}

/* `upper` begins where `lower` ends. */
static void
join(struct ca_segment *lower, struct ca_segment *upper)
{
	struct ca_heap *heap = lower->space->heap;
	struct ca_block *last = last_block(lower), *first = upper->first;

	drainable_change(lower, (uint64_t)-1);
	drainable_change(upper, (uint64_t)-1);
	last->next = first;
	first->prev = last;
	take_blocks(lower, upper, first);
	lower->bytes += upper->bytes;
	lower->standing |= upper->standing & CA_STUCK;
	drainable_change(lower, 1);
	ca_tree_remove(&heap->by_address, &upper->by_address);
	ca_list_remove(&upper->link);
	ca_objects_put(&heap->segment_maps, upper->map);
	ca_objects_put(&heap->segments, upper);
	remap(lower, first);
}

/* A segment of one block, in no index, becomes one with the extents that it touches. */
static void
join_adjacent(struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	struct ca_segment *lower, *upper = next_of(segment);

	if (!is_open(segment))
		return;
	if (upper && upper->space == space && upper->address == end_of(segment) &&
	    upper->pool == segment->pool && is_open(upper))
		join(segment, upper);
	lower = ca_segment_at_most_locked(space->heap, segment->address - 1);
	if (lower && lower->space == space && end_of(lower) == segment->address &&
	    lower->pool == segment->pool && is_open(lower))
		join(lower, segment);
}

/* From `block` on, which is not its first one, it is the segment `upper`, so far empty. */
static void
split(struct ca_segment *segment, struct ca_block *block, struct ca_segment *upper)
{
	upper->space = segment->space;
	upper->pool = segment->pool;
	upper->mapped = true;
	upper->first = block;
	upper->address = block->address;
	upper->bytes = end_of(segment) - block->address;
	upper->standing = segment->standing;
	upper->rests_since = segment->rests_since;
	upper->rests_since_ns = segment->rests_since_ns;
	upper->map_log = ca_segment_map_log(upper->bytes);
	ca_list_init(&upper->hand);
	drainable_change(segment, (uint64_t)-1);
	block->prev->next = NULL;
	block->prev = NULL;
	take_blocks(upper, segment, block);
	segment->bytes -= upper->bytes;
	drainable_change(segment, 1);
	drainable_change(upper, 1);
	ca_list_insert(&segment->space->segments, &upper->link);
	ca_tree_insert(&segment->space->heap->by_address, &upper->by_address, upper->address, 0);
	remap(segment, NULL);
	remap(upper, block);
}

/* ---- growing */

/* Of a handle that begins there, at most: large ones begin on multiples of their size. */
static uint64_t
handle_bytes(const struct ca_area *area, uint64_t address, uint64_t end, bool large)
{
	uint64_t bytes = large ? CA_HANDLE - (address - area->address) % CA_HANDLE : CA_PAGE;

	return bytes < end - address ? bytes : end - address;
}

/* Without the lock. *ret_end: up to there it was done. */
static int
map_all(struct ca_space *space, const struct ca_growth *growth, bool large, uint64_t *ret_end,
	uint64_t *ret_calls)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t address = growth->address, end = address + growth->bytes, bytes;
	int r = 0;

	for (*ret_calls = 0; address < end; address += bytes) {
		bytes = handle_bytes(growth->area, address, end, large);
		++*ret_calls;
		r = driver->range_map(driver->self, space->context, address, bytes);
		if (r)
			break;
		*begins_at(growth->area, address) = 1;
	}
	*ret_end = address;
	return r;
}

/* Without the lock, from above. *ret_end: so much is still there. */
static int
unmap_all(struct ca_space *space, const struct ca_area *area, uint64_t address, uint64_t end,
	  uint64_t *ret_end)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t begin;
	int r = 0;

	while (!r && end > address) {
		begin = end - CA_PAGE;
		while (!*begins_at(area, begin))
			begin -= CA_PAGE;
		r = driver->range_unmap(driver->self, space->context, begin, end - begin);
		if (r)
			break;
		*begins_at(area, begin) = 0;
		end = begin;
	}
	*ret_end = end;
	return r;
}

/* The segment of pages that are to be mapped, in no list. NULL: no records. */
static struct ca_segment *
claim_pages(struct ca_space *space, const struct ca_growth *growth)
{
	struct ca_heap *heap = space->heap;
	struct ca_segment *segment = ca_objects_get(&heap->segments);
	struct ca_block *block = ca_block_new_locked(heap);

	if (!segment || !block) {
		ca_objects_put(&heap->segments, segment);
		if (block)
			ca_slabs_put(&heap->blocks, block);
		return NULL;
	}
	segment->space = space;
	segment->pool = &space->pools[growth->area - space->areas];
	segment->mapped = true;
	segment->returning = true;
	segment->first = block;
	segment->address = growth->address;
	segment->bytes = growth->bytes;
	segment->map_log = ca_segment_map_log(growth->bytes);
	ca_list_init(&segment->hand);
	block->segment = segment;
	block->address = growth->address;
	block->bytes = growth->bytes;
	block->space_and_state = ca_block_word(space->number, CA_BLOCK_RETIRED);
	block->thread = (uint32_t)ca_order_thread();
	ca_tree_insert(&heap->by_address, &segment->by_address, segment->address, 0);
	return segment;
}

static void
drop_pages(struct ca_segment *segment)
{
	struct ca_heap *heap = segment->space->heap;

	ca_tree_remove(&heap->by_address, &segment->by_address);
	ca_slabs_put(&heap->blocks, segment->first);
	ca_objects_put(&heap->segments, segment);
}

/* Nobody else maps anything there now, or has. */
static bool
is_unmapped(const struct ca_space *space, const struct ca_growth *growth)
{
	const struct ca_segment *segment =
		ca_segment_at_most_locked(space->heap, growth->address + growth->bytes - 1);

	return !segment || end_of(segment) <= growth->address;
}

/* It is mapped, and becomes free. */
static void
enter_pages(struct ca_segment *segment)
{
	struct ca_block *block = segment->first;

	segment->returning = false;
	segment->retired = segment->space->poisoned;
	ca_segment_list_locked(segment);
	ca_block_set_state_locked(block, CA_BLOCK_NEW);
	join_adjacent(segment);
	ca_block_settle_locked(block);
}

int
ca_extent_grow_locked(struct ca_space *space, const struct ca_growth *growth)
{
	struct ca_device *device = space->device;
	const struct ca_driver *driver = &space->heap->driver;
	bool large = growth->area == &space->areas[1] && !device->budget.exhausted &&
		     device->stats.allocated_bytes.current > LARGE_FROM;
	struct ca_segment *segment;
	uint64_t end, calls, begin_ns, end_ns;
	int r;

	if (!is_unmapped(space, growth))
		return -EAGAIN;
	segment = claim_pages(space, growth);
	if (!segment)
		return -ENOMEM;
	growth->area->in_hand++;
	device->taking_bytes += growth->bytes;
	ca_outside_enter_locked(space);
	begin_ns = driver->clock_ns(driver->self);
	r = map_all(space, growth, large, &end, &calls);
	if (r) /* what stays for want of an unmapping is free memory */
		unmap_all(space, growth->area, growth->address, end, &end);
	end_ns = driver->clock_ns(driver->self);
	ca_outside_leave(space);
	device->taking_bytes -= growth->bytes;
	device->stats.driver_ns += end_ns - begin_ns;
	device->stats.driver_alloc_calls += calls;
	if (r && r != CA_DRIVER_OUT_OF_MEMORY)
		growth->area->rejected = true;
	if (space->dead && end > growth->address) {
		ca_outside_enter_locked(space);
		unmap_all(space, growth->area, growth->address, end, &end);
		ca_outside_leave(space);
		end = growth->address;
	}
	growth->area->in_hand--;
	segment->bytes = segment->first->bytes = end - growth->address;
	if (segment->bytes)
		enter_pages(segment);
	else
		drop_pages(segment);
	if (r > 0 && ca_tracing(space->heap))
		ca_trace_rejected(space, growth->bytes - (end - growth->address), r);
	return space->dead ? -ENODEV : r;
}

/* ---- giving back */

/* The begin of the handle that ends at `end`. */
static uint64_t
handle_below(const struct ca_area *area, uint64_t end)
{
	uint64_t begin = end - CA_PAGE;

	while (!*begins_at(area, begin))
		begin -= CA_PAGE;
	return begin;
}

/* A handle ends, at most at `address`, in the extent. */
static uint64_t
boundary_at_most(const struct ca_segment *segment, uint64_t address)
{
	const struct ca_area *area = ca_area_of(segment);

	if (address == end_of(segment))
		return address;
	address -= (address - area->address) % CA_PAGE;
	while (address > segment->address && !*begins_at(area, address))
		address -= CA_PAGE;
	return address;
}

uint64_t
ca_extent_drainable(const struct ca_block *block, uint64_t bytes, uint64_t *ret_address)
{
	const struct ca_segment *segment = block->segment;
	uint64_t end, begin, lower;

	if (block->state != CA_BLOCK_FREE || block->bytes < CA_PAGE || segment->retired ||
	    (segment->registered && block->bytes < segment->bytes) ||
	    (segment->standing & CA_STUCK) || !ca_list_empty(&segment->hand))
		return 0;
	begin = end = boundary_at_most(segment, block->address + block->bytes);
	while (begin > block->address && end - begin < bytes) {
		lower = handle_below(ca_area_of(segment), begin);
		if (lower < block->address)
			break;
		begin = lower;
	}
	if (segment->registered)
		begin = segment->address; /* as a segment: as a whole, or not at all */
	*ret_address = begin;
	return begin < end ? end - begin : 0;
}

static bool
is_spared(const struct ca_block *block)
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
		struct ca_block *block = CA_CONTAINER_OF(node, struct ca_places, by_size)->block;

		if (!block->segment->mapped || is_spared(block))
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
	uint64_t most = 0;
	struct ca_block *best = NULL;

	if (!space->areas[0].bytes && !space->areas[1].bytes)
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
			const struct ca_block *block =
				CA_CONTAINER_OF(node, struct ca_places, by_size)->block;

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
};

static bool
parts_get(struct ca_heap *heap, struct parts *parts)
{
	parts->lower = ca_block_new_locked(heap);
	parts->upper = ca_block_new_locked(heap);
	parts->segment = ca_objects_get(&heap->segments);
	parts->segment_2 = ca_objects_get(&heap->segments);
	return parts->lower && parts->upper && parts->segment && parts->segment_2;
}

static void
parts_put(struct ca_heap *heap, const struct parts *parts)
{
	if (parts->lower)
		ca_slabs_put(&heap->blocks, parts->lower);
	if (parts->upper)
		ca_slabs_put(&heap->blocks, parts->upper);
	ca_objects_put(&heap->segments, parts->segment);
	ca_objects_put(&heap->segments, parts->segment_2);
}

/* [address, address + bytes) of the FREE block becomes a segment of one RETIRED block. Uses up
 * some of `parts`. */
static void
cut_out(struct ca_block *block, uint64_t address, uint64_t bytes, struct parts *parts)
{
	ca_pool_unindex_locked(block);
	if (block->address < address) {
		ca_block_split_lower_locked(block, address - block->address, parts->lower);
		ca_pool_index_locked(parts->lower);
		parts->lower = NULL;
	}
	if (block->bytes > bytes) {
		ca_block_split_locked(block, bytes, parts->upper);
		ca_pool_index_locked(parts->upper);
		parts->upper = NULL;
	}
	ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
	if (block->prev) {
		split(block->segment, block, parts->segment);
		parts->segment = NULL;
	}
	if (block->next) {
		split(block->segment, block->next, parts->segment_2);
		parts->segment_2 = NULL;
	}
}

uint64_t
ca_extent_release_locked(struct ca_block *block, uint64_t bytes, bool *ret_busy)
{
	struct ca_segment *segment = block->segment;
	struct ca_space *space = segment->space;
	struct ca_heap *heap = space->heap;
	struct parts parts;
	uint64_t address, given = ca_extent_drainable(block, bytes, &address);
	int r;

	if (!given)
		return 0;
	if (!parts_get(heap, &parts)) {
		parts_put(heap, &parts);
		segment->standing = CA_STUCK;
		space->stuck_segments++;
		return 0;
	}
	cut_out(block, address, given, &parts);
	parts_put(heap, &parts);
	segment = block->segment;
	r = ca_extent_return_locked(segment);
	if (!r)
		return given;
	if (r == -EBUSY && ret_busy)
		*ret_busy = true;
	segment->standing = r != -EBUSY ? CA_STUCK : 0;
	space->stuck_segments += r != -EBUSY;
	if (segment->retired) {
		ca_segment_make_due_locked(segment);
		return 0;
	}
	join_adjacent(segment);
	ca_block_settle_locked(block);
	return 0;
}

/* All RETIRED blocks of the segment become one. False: not all are. */
static bool
is_one_block(struct ca_segment *segment)
{
	struct ca_block *block;

	for (block = segment->first; block; block = block->next)
		if (block->state != CA_BLOCK_RETIRED)
			return false;
	block = last_block(segment);
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
	remap(segment, NULL);
}

int
ca_extent_return_locked(struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_area *area = ca_area_of(segment);
	uint64_t address = segment->address, begin_ns, end_ns, end = end_of(segment), untold;
	struct ca_list hand;
	int r;

	if (space->poisoned || !is_one_block(segment))
		return -EBUSY;
	ca_list_init(&hand);
	ca_list_insert(&hand, &segment->hand);
	segment->returning = true;
	area->in_hand++;
	untold = segment->retired ? space->untold : 0;
	ca_outside_enter_locked(space);
	begin_ns = driver->clock_ns(driver->self);
	r = untold ? driver->context_synchronize(driver->self, space->context) : 0;
	if (!r)
		r = unmap_all(space, area, address, end, &end);
	end_ns = driver->clock_ns(driver->self);
	ca_outside_leave(space);
	area->in_hand--;
	space->device->stats.driver_ns += end_ns - begin_ns;
	if (untold && !r && space->untold == untold)
		space->untold = 0;
	if (!r)
		CA_COUNT(space, driver_free_calls);
	if (ca_list_empty(&hand))
		return 0; /* died */
	ca_list_remove(&segment->hand);
	segment->returning = false;
	if (!r)
		ca_segment_forget_locked(segment);
	else
		shrink(segment, end - address);
	return r;
}

/* ---- the end */

/* One extent of the dead space leaves the records. False: there is none any more. */
static bool
take_out(struct ca_space *space, struct ca_area **ret_area, uint64_t *ret_address,
	 uint64_t *ret_end)
{
	CA_HEAP_LOCKED(space->heap);
	CA_LIST_EACH_SAFE(struct ca_segment, segment, &space->segments, link) {
		bool mine = segment->mapped && !segment->returning;

		*ret_area = ca_area_of(segment);
		*ret_address = segment->address;
		*ret_end = end_of(segment);
		ca_segment_forget_locked(segment);
		if (mine)
			return true;
	}
	return false;
}

void
ca_extents_end(struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_area *area;
	uint64_t address, end;
	bool stays = false;
	unsigned i, tries;

	while (take_out(space, &area, &address, &end)) {
		for (tries = 2; tries && unmap_all(space, area, address, end, &end);)
			tries--;
		stays = stays || !tries; /* the driver does not take it */
	}
	for (i = 0; i < 2; i++) {
		bool is_mine;

		area = &space->areas[i];
		ca_heap_lock(space->heap);
		address = area->address;
		end = area->bytes;
		is_mine = end && !area->in_hand && !stays;
		area->bytes = 0;
		area->rejected = true;
		ca_heap_unlock(space->heap);
		if (is_mine) /* else addresses stay reserved for nobody */
			driver->range_release(driver->self, space->context, address, end);
	}
}
