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
#include "allocator/block/extent_inside.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/order/order.h"
#include "allocator/trace/trace.h"
#include "config/mutant.h"

/* Of a dead space's memory: the driver frees a context's by itself, but not what is mapped. */
enum { UNMAP_TRIES = 3 };

/* ---- two extents become one, and one two */

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
	struct ca_block *last = ca_segment_last_block_locked(lower), *first = upper->first;

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
}

/* A segment of one block, in no index, becomes one with the extents that it touches. */
void
ca_extent_join_adjacent_locked(struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	struct ca_segment *lower, *upper = ca_segment_next_locked(segment);

	if (!ca_extent_is_open(segment))
		return;
	if (upper && upper->space == space && upper->address == ca_segment_end(segment) &&
	    upper->pool == segment->pool && ca_extent_is_open(upper))
		join(segment, upper);
	lower = ca_segment_at_most_locked(space->heap, segment->address - 1);
	if (lower && lower->space == space && ca_segment_end(lower) == segment->address &&
	    lower->pool == segment->pool && ca_extent_is_open(lower))
		join(lower, segment);
}

/* From `block` on, which is not its first one, it is the segment `upper`, so far empty. */
void
ca_extent_split_locked(struct ca_segment *segment, struct ca_block *block, struct ca_segment *upper)
{
	upper->space = segment->space;
	upper->pool = segment->pool;
	upper->mapped = true;
	upper->first = block;
	upper->address = block->address;
	upper->bytes = ca_segment_end(segment) - block->address;
	upper->standing = segment->standing;
	upper->rests_since = segment->rests_since;
	upper->rests_since_ns = segment->rests_since_ns;
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
}

/* ---- growing */

/* Of a handle that begins there: the next one begins on a multiple. */
static uint64_t
handle_bytes(const struct ca_growth *growth, uint64_t address, uint64_t end)
{
	uint64_t most = growth->handle_bytes;
	uint64_t bytes = most - (address - growth->area->address) % most;

	return bytes < end - address ? bytes : end - address;
}

/* Without the lock, from *ret_end on. *ret_end: up to there it was done. */
static int
map_all(struct ca_space *space, const struct ca_growth *growth, uint64_t *ret_end,
	uint64_t *ret_calls)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t address = *ret_end, end = growth->address + growth->bytes, bytes;
	int r = 0;

	for (; address < end; address += bytes) {
		bytes = handle_bytes(growth, address, end);
		++*ret_calls;
		r = driver->range_map(driver->self, space->context, address, bytes);
		if (r)
			break;
		*ca_area_begins_at(growth->area, address) = 1;
	}
	*ret_end = address;
	return r;
}

/* Without the lock, from above. *ret_end: so much is still there. */
int
ca_extent_unmap(struct ca_space *space, const struct ca_area *area, uint64_t address, uint64_t end,
		uint64_t *ret_end)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t begin;
	int r = 0;

	while (!r && end > address) {
		begin = end - CA_PAGE;
		while (!*ca_area_begins_at(area, begin))
			begin -= CA_PAGE;
		r = driver->range_unmap(driver->self, space->context, begin, end - begin);
		if (r)
			break;
		*ca_area_begins_at(area, begin) = 0;
		end = begin;
	}
	*ret_end = end;
	return r;
}

void
ca_extent_unmap_dead_locked(struct ca_space *space, const struct ca_area *area, uint64_t address,
			    uint64_t end)
{
	unsigned tries = UNMAP_TRIES;

	ca_outside_enter_locked(space);
	while (tries && ca_extent_unmap(space, area, address, end, &end))
		tries--;
	ca_outside_leave(space);
	space->keeps_addresses |= !tries;
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
			ca_block_put(heap, block);
		return NULL;
	}
	segment->space = space;
	segment->pool = &space->pools[growth->area - space->areas];
	segment->mapped = true;
	segment->returning = true;
	segment->first = block;
	segment->address = growth->address;
	segment->bytes = growth->bytes;
	ca_list_init(&segment->hand);
	block->segment = segment;
	block->address = growth->address;
	block->bytes = growth->bytes;
	block->space_and_state = ca_block_word(space->number, CA_BLOCK_RETIRED);
	block->thread = (uint32_t)ca_order_thread();
	ca_tree_insert(&heap->by_address, &segment->by_address, segment->address, 0);
	return segment;
}

/* Nobody else maps anything there now, or has. */
static bool
is_unmapped(const struct ca_space *space, const struct ca_growth *growth)
{
	const struct ca_segment *segment =
		ca_segment_at_most_locked(space->heap, growth->address + growth->bytes - 1);

	return !segment || ca_segment_end(segment) <= growth->address;
}

void
ca_extent_enter_locked(struct ca_segment *segment, const struct ca_users *users)
{
	struct ca_space *space = segment->space;
	struct ca_block *block = segment->first;
	struct ca_users of = *users;

	segment->returning = false;
	segment->retired = space->poisoned;
	ca_list_remove(&segment->hand);
	ca_segment_list_locked(segment);
	ca_block_set_state_locked(block, CA_BLOCK_NEW);
	block->user.stream = NULL;
	ca_extent_join_adjacent_locked(segment);
	if (of.n)
		space->heap->hooks.place(block, &of);
	else
		ca_block_settle_locked(block);
}

/* More may move there than is missing. */
static void
make_room(struct ca_growth *growth)
{
	uint64_t more = growth->moved > growth->bytes ? growth->moved - growth->bytes : 0;

	growth->bytes += more;
	growth->address -= growth->from_above ? more : 0;
}

/* NULL with *ret_code: they are somebody else's by now, or there are no records. */
static struct ca_segment *
claim(struct ca_space *space, struct ca_growth *growth, int *ret_code)
{
	struct ca_segment *segment = NULL;

	make_room(growth);
	*ret_code = -EAGAIN;
	if (is_unmapped(space, growth)) {
		segment = claim_pages(space, growth);
		*ret_code = segment ? 0 : -ENOMEM;
	}
	if (!segment)
		ca_extent_put_back_locked(space, growth);
	return segment;
}

/* Without the lock: first the sources, then new memory. */
static int
fill(struct ca_space *space, struct ca_growth *growth, struct ca_list *ret_aliased,
     uint64_t *ret_end, uint64_t *ret_calls)
{
	uint64_t end = growth->address, moved_end;
	int r = ca_extent_alias_all(space, growth, ret_aliased, &end, ret_calls);

	moved_end = end;
	if (!r)
		r = map_all(space, growth, &end, ret_calls);
	if (r) /* what stays for want of an unmapping is free memory */
		ca_extent_unmap(space, growth->area, moved_end, end, &end);
	*ret_end = end;
	return r;
}

/* The space has died: nothing of the growth is mapped any more, here or there. */
static void
abandon(struct ca_space *space, struct ca_growth *growth, uint64_t end)
{
	ca_extent_unmap_dead_locked(space, growth->area, growth->address, end);
	CA_LIST_EACH(const struct ca_segment, segment, &growth->sources, hand)
		ca_extent_unmap_dead_locked(space, ca_area_of(segment), segment->address,
					    ca_segment_end(segment));
	CA_LIST_EACH_SAFE(struct ca_segment, segment, &growth->sources, hand) {
		space->device->taking_bytes -= segment->bytes;
		ca_segment_drop_locked(segment);
	}
}

/* Where the driver failed once, it may not another time; it is asked more and more seldom. */
static void
note_result(const struct ca_growth *growth, int r)
{
	struct ca_area *area = growth->area;
	bool in_move = !ca_list_empty(&growth->sources);

	if (!r)
		ca_backoff_succeeded(growth->moved ? &area->moves : &area->maps);
	else if (r > 0 && r != CA_DRIVER_OUT_OF_MEMORY)
		ca_backoff_failed(in_move ? &area->moves : &area->maps);
	else if (r == -ENOTSUP)
		*(in_move ? &area->no_moves : &area->rejected) = true;
}

int
ca_extent_grow_locked(struct ca_space *space, struct ca_growth *growth)
{
	struct ca_device *device = space->device;
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t end, calls = 0, begin_ns, end_ns, fresh;
	struct ca_list aliased;
	struct ca_segment *segment;
	int r;

	if (space->dead && !CA_MUTANT(EXTENT_GROWS_DEAD)) {
		space->in_hand++;
		abandon(space, growth, growth->address);
		space->in_hand--;
		return -ENODEV;
	}
	segment = claim(space, growth, &r);
	if (!segment)
		return r;
	ca_list_init(&aliased);
	space->in_hand++;
	fresh = growth->bytes - growth->moved;
	device->taking_bytes += fresh;
	ca_outside_enter_locked(space);
	begin_ns = driver->clock_ns(driver->self);
	r = fill(space, growth, &aliased, &end, &calls);
	end_ns = driver->clock_ns(driver->self);
	ca_outside_leave(space);
	ca_extent_note_locked(space, begin_ns, end_ns);
	device->stats.driver_alloc_calls += calls;
	note_result(growth, r);
	if (space->dead) {
		ca_list_splice(&growth->sources, &aliased);
		abandon(space, growth, end);
		end = growth->address;
	}
	device->taking_bytes -= fresh;
	space->in_hand--;
	segment->bytes = segment->first->bytes = end - growth->address;
	if (segment->bytes)
		ca_extent_enter_locked(segment, &growth->users);
	else
		ca_segment_drop_locked(segment);
	if (!ca_list_empty(&growth->sources)) {
		ca_extent_put_back_locked(space, growth);
		r = r == CA_DRIVER_OUT_OF_MEMORY ? r : -EAGAIN;
	}
	ca_extent_leaves_locked(space, &aliased);
	if (r > 0 && ca_tracing(space->heap))
		ca_trace_rejected(space, growth->bytes - (end - growth->address), r);
	return space->dead ? -ENODEV : r;
}
