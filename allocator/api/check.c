/* SPDX-License-Identifier: MIT */
/*
 * The invariant walk: every record once, each claim of allocator/core/types.h looked at, sums
 * counted anew.
 *
 * It holds the lock and reads only. Blocks that a thread has in its hand right now are MARK_HELD or
 * RETIRED and on a list the walk cannot see; they are accepted.
 */
#include "allocator/api/heap.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/tcache/fast.h"
#include "allocator/told/told.h"
#include "config/text.h"

struct walk {
	const char *reason; /* of the first broken claim */
	uint64_t blocks;    /* seen, all spaces */
	uint64_t kept;      /* of those, in magazines */
	uint64_t bases;     /* of those, in the table of bases */
	uint64_t places;    /* of those, indexed */
};

struct sums {
	uint64_t requested, allocated, active, reserved, cached, drainable;
};

static bool
claim(struct walk *walk, bool holds, const char *reason)
{
	if (!holds && !walk->reason)
		walk->reason = reason;
	return holds;
}

/* A held block and its neighbour are all that has to be merged. Once another stream has got the
 * record of the one that held them nobody waits for it (`followed`). They are finished then, and
 * the next settle merges them. */
static bool
is_merged(const struct ca_block *block, const struct ca_block *next)
{
	return !ca_block_is_mergeable(block, next) ||
	       (block->state == CA_BLOCK_STREAM_HELD && ca_user_is_done(&block->user) &&
		ca_user_is_done(&next->user));
}

/* The users of the block. */
static void
users_check(struct walk *walk, const struct ca_block *block)
{
	const struct ca_block *next = block->next;
	bool owned = block->state == CA_BLOCK_STREAM_HELD, held = ca_block_is_held(block);
	bool is_multi = block->state == CA_BLOCK_MULTI_HELD;
	unsigned i, found = 0;
	const struct ca_multi_users *multi = ca_block_multi(block);

	claim(walk, !is_multi || multi, "a block waits for several users and has none");
	claim(walk, !held || block->user.stream, "a block waits for no stream");
	claim(walk, !owned || !ca_registered_overlaps(block), "registered memory can be exposed");
	if (held && block->user.stream)
		claim(walk, ca_held_record(&block->user)->space == block->segment->space,
		      "a block waits for a stream of another space");
	claim(walk, !held || !next || is_merged(block, next),
	      "neighbours of the same users not merged");
	for (i = 0; multi && i < multi->users.n; i++)
		found += multi->users.user[i].stream == block->user.stream &&
			 multi->users.user[i].stamp == block->user.stamp;
	claim(walk, !is_multi || found == 1, "a block waits for a stream that is not its user");
	claim(walk, !multi || (multi->users.n && !multi->users.context),
	      "the users of a block are not known");
	claim(walk, block->state == CA_BLOCK_ALLOCATED || !block->has_multi,
	      "a block that is not live has the users of one that is");
}

/* May the program's block, or one in a magazine, be where it is? (All magazines are locked.) */
static void
fast_check(struct walk *walk, const struct ca_block *block)
{
	uint64_t quick = atomic_load_explicit(&block->quick, memory_order_relaxed);
	const struct ca_heap *heap = block->segment->space->heap;
	bool live = block->state == CA_BLOCK_ALLOCATED;
	struct ca_block *base;
	uint64_t pad;

	claim(walk, !quick || live, "a magazine may have a block that is not live");
	claim(walk, !quick || !block->segment->retired, "a magazine may have a retired block");
	claim(walk, !quick || !block->sync_memops, "a magazine may have a block with a flag");
	claim(walk, !quick || !ca_registered_overlaps(block),
	      "a magazine may have registered memory");
	claim(walk,
	      !quick || quick == (block->address | CA_QUICK_LIVE) ||
		      quick == (block->address | CA_QUICK_KEPT),
	      "a block's word has another address");
	ca_block_usable(block, &pad);
	claim(walk, !quick || !pad || ca_rounded(heap, ca_block_requested(block)) < CA_ALIGNED_MIN,
	      "a magazine may have a block off its boundary");
	walk->kept += live && (quick & CA_QUICK_KEPT);
	base = ca_bases_find_locked(&heap->bases, block->address);
	claim(walk, !base || (live && base == block),
	      "found as live at an address where it is not");
	walk->bases += base != NULL;
}

static void
places_check(struct walk *walk, const struct ca_block *block)
{
	const struct ca_places *places = block->places;

	claim(walk, places->block == block, "the places of another block");
	claim(walk, places->by_size.key == ca_pool_key(block), "not indexed under its size");
	walk->places++;
}

/* A member of a union is there only in its own state. */
static void
link_check(struct walk *walk, const struct ca_block *block)
{
	const struct ca_list *waiting = &block->waiting;
	bool waits = ca_block_waits(block);

	claim(walk,
	      block->state == CA_BLOCK_ALLOCATED || ca_block_is_indexed(block) || !block->places,
	      "a block has a link of a state that it is not in");
	claim(walk, !waits || waiting->next != waiting, "a block waits and is in no list");
	claim(walk,
	      !waits || (waiting->next && waiting->prev && waiting->next->prev == waiting &&
			 waiting->prev->next == waiting),
	      "a block waits and its list is broken");
	claim(walk, block->state != CA_BLOCK_ALLOCATED || ca_block_requested(block) <= block->bytes,
	      "more was asked for than the block has");
	claim(walk, block->space == block->segment->space->number, "a block names another space");
}

static void
block_check(struct walk *walk, const struct ca_block *block, struct sums *sums)
{
	const struct ca_segment *segment = block->segment;
	bool live = ca_block_is_live(block), kept = block->state == CA_BLOCK_ALLOCATED && !live;
	bool clean = block->state == CA_BLOCK_FREE;
	bool indexed = ca_block_is_free(block);

	claim(walk, block->bytes > 0, "empty block");
	claim(walk, block->state != CA_BLOCK_NEW, "fresh block left behind");
	claim(walk, ca_block_is_indexed(block) == indexed, "block free but not indexed");
	claim(walk,
	      block->prev || (segment->by_whole.key != 0) ==
				     (clean && block->bytes == segment->bytes && !segment->mapped &&
				      !(segment->standing & CA_STUCK)),
	      "wrong in the index of whole segments");
	if (indexed && block->places)
		places_check(walk, block);
	link_check(walk, block);
	claim(walk, !indexed || !segment->retired, "clean block in a retired segment");
	claim(walk, !clean || !block->next || block->next->state != CA_BLOCK_FREE,
	      "clean neighbours not merged");
	users_check(walk, block);
	claim(walk,
	      ca_block_find_locked(segment->space->heap, block->address) == block &&
		      ca_block_find_locked(segment->space->heap,
					   block->address + block->bytes - 1) == block,
	      "not found by address");
	fast_check(walk, block);
	if (live)
		sums->requested += atomic_load_explicit(&block->requested, memory_order_relaxed);
	sums->allocated += live ? block->bytes : 0;
	sums->active +=
		live || (kept && block->user.stream) || ca_block_waits(block) ? block->bytes : 0;
	sums->cached += clean || (kept && !block->user.stream) ? block->bytes : 0;
}

static void
segment_check(struct walk *walk, const struct ca_segment *segment, struct sums *sums)
{
	const struct ca_block *block, *prev = NULL;
	uint64_t at = segment->address, live = 0;

	for (block = segment->first; block; prev = block, block = block->next) {
		claim(walk, block->segment == segment, "block of another segment");
		claim(walk, block->prev == prev, "block's neighbours disagree");
		claim(walk, block->address == at, "blocks do not tile their segment");
		at += block->bytes;
		live += block->state == CA_BLOCK_ALLOCATED;
		walk->blocks++;
		block_check(walk, block, sums);
	}
	claim(walk, at == segment->address + segment->bytes, "blocks do not fill their segment");
	claim(walk, live == segment->live, "live blocks miscounted");
	sums->reserved += segment->bytes;
	sums->drainable += live ? 0 : segment->bytes;
}

static void
stack_check(struct walk *walk, const struct ca_shelf *shelf, const struct ca_stack *stack)
{
	const struct ca_block *block;
	unsigned depth = 0;

	for (block = ca_stack_top(stack); block; block = block->below, depth++) {
		claim(walk, block->state == CA_BLOCK_ALLOCATED,
		      "a magazine has a block that is not live");
		claim(walk,
		      atomic_load_explicit(&block->quick, memory_order_relaxed) ==
			      (block->address | CA_QUICK_KEPT),
		      "a magazine has a block that it does not keep");
		claim(walk, block->segment->space == shelf->space,
		      "a magazine has a block of another space");
		claim(walk, ca_block_grains(shelf->space->heap, block) == stack->grains,
		      "a stack has blocks of two sizes");
	}
	claim(walk, depth == ca_stack_depth(stack), "the blocks of a stack are miscounted");
	claim(walk, depth <= CA_KEPT_EACH, "a stack has too many blocks");
}

static void
shelf_check(struct walk *walk, const struct ca_shelf *shelf)
{
	unsigned sum = 0, i;

	for (i = 0; i < CA_STACKS; i++) {
		const struct ca_stack *stack = &shelf->stacks[i];

		claim(walk,
		      (shelf->has_capacity[ca_stack_is_large(stack)][i / 64] >> i % 64 & 1) ==
			      (stack->capacity != 0),
		      "a stack is noted as one without room, or with");
		stack_check(walk, shelf, stack);
		sum += stack->capacity;
	}
	claim(walk, sum == ca_shelf_capacity(shelf), "the room of a shelf is miscounted");
}

static void
magazines_check(struct walk *walk, const struct ca_heap *heap)
{
	const struct ca_magazine *magazine;
	uint64_t kept = 0;
	unsigned i;

	for (magazine = heap->magazines; magazine; magazine = magazine->next) {
		for (i = 0; i < CA_SHELVES; i++) {
			const struct ca_shelf *shelf = magazine->shelf[i];

			if (!shelf)
				continue;
			claim(walk,
			      !shelf->space || (shelf->space->device == magazine->device &&
						shelf->space->number % CA_SHELVES == i),
			      "a shelf is not where it is looked for");
			shelf_check(walk, shelf);
			kept += ca_shelf_kept(shelf);
		}
	}
	claim(walk, kept == walk->kept, "a block that is kept is in no magazine, or in two");
	claim(walk, walk->bases == heap->bases.entered, "bases of blocks that are gone");
	claim(walk, walk->bases == ca_bases_count_locked(&heap->bases), "bases are miscounted");
}

/* Blocks in the indexes of two pools; NULL: there are no pools. */
static uint64_t
indexed_in(const struct ca_pool *pools)
{
	const struct ca_index_node *node;
	uint64_t n = 0;
	unsigned i;

	for (i = 0; pools && i < 2; i++)
		for (node = ca_index_first(&pools[i].by_size); node;
		     node = ca_index_next(&pools[i].by_size, node))
			n++;
	return n;
}

static void
space_check(struct walk *walk, const struct ca_space *space, struct sums *sums)
{
	uint64_t waiting[2] = { 0, 0 }, owned[2] = { 0, 0 };
	uint64_t count = 0, streams = 0, clean = 0;
	unsigned i;

	CA_LIST_EACH(const struct ca_segment, segment, &space->segments, link) {
		const struct ca_block *block;

		claim(walk, segment->space == space, "segment of another space");
		segment_check(walk, segment, sums);
		for (block = segment->first; block; block = block->next) {
			bool is_owned = block->state == CA_BLOCK_STREAM_HELD;

			clean += block->state == CA_BLOCK_FREE;
			if (!ca_block_waits(block))
				continue;
			(is_owned ? owned : waiting)[!segment->pool->small] += block->bytes;
			count += block->state == CA_BLOCK_MARK_HELD;
			streams += block->state != CA_BLOCK_MARK_HELD;
		}
	}
	for (i = 0; i < 2; i++) {
		claim(walk, waiting[i] == space->pools[i].waiting_bytes,
		      "waiting bytes miscounted");
		claim(walk, owned[i] == space->pools[i].owned_bytes, "owned bytes miscounted");
	}
	claim(walk, indexed_in(space->pools) == clean, "index holds blocks that are gone");
	claim(walk, count == space->mark_held_blocks, "waiting blocks miscounted");
	claim(walk, streams == space->stream_held_blocks,
	      "blocks that wait for streams miscounted");
	claim(walk, !space->dead || ca_list_empty(&space->segments), "segments in a dead space");
}

static uint64_t
waiting_list_check(struct walk *walk, const struct ca_space *space, const struct ca_list *blocks)
{
	uint64_t count = 0;

	CA_LIST_EACH(const struct ca_block, block, blocks, waiting) {
		claim(walk, block->state == CA_BLOCK_MARK_HELD,
		      "a mark has a block that does not wait");
		claim(walk, block->segment->space == space, "a mark has a block of another space");
		count++;
	}
	return count;
}

/* The blocks of a stream's list, smallest stamp first, and of its pools. */
static void
stream_check(struct walk *walk, const struct ca_stream_record *record, uint64_t *listed)
{
	uint64_t stamp = 0, owned = 0;

	CA_LIST_EACH(const struct ca_block, block, &record->waiting, waiting) {
		claim(walk, block->state == CA_BLOCK_STREAM_HELD,
		      "a stream's list has a block that does not wait for it");
		claim(walk, block->user.stream == &record->stream,
		      "a block is in a wrong stream's list");
		claim(walk, block->user.stamp >= stamp, "a stream's list is not in order");
		stamp = block->user.stamp;
		owned++;
	}
	claim(walk, owned == indexed_in(record->pools), "a stream's pools and its list disagree");
	*listed += owned;
}

/* The blocks of a set: their users are its streams. */
static void
set_check(struct walk *walk, const struct ca_user_set *set, uint64_t *listed)
{
	uint64_t stamp = 0, blocks = 0;
	unsigned i;

	CA_LIST_EACH(const struct ca_block, block, &set->blocks, waiting) {
		const struct ca_multi_users *multi = ca_block_multi(block);

		if (!claim(walk, block->state == CA_BLOCK_MULTI_HELD && multi && multi->set == set,
			   "a set has a block that is not its own"))
			return;
		claim(walk, !set->n || set->n == multi->users.n,
		      "a block of a set has more users, or fewer");
		for (i = 0; i < set->n && i < multi->users.n; i++)
			claim(walk, set->stream[i] == multi->users.user[i].stream,
			      "a block of a set has another user");
		claim(walk, !set->n || block->user.stamp >= stamp, "a set's list is not in order");
		stamp = block->user.stamp;
		blocks++;
	}
	claim(walk, blocks == indexed_in(set->pools), "a set's pools and its list disagree");
	*listed += blocks;
}

static void
streams_check(struct walk *walk, const struct ca_space *space)
{
	const struct ca_stream_record *record;
	uint64_t listed = 0;
	unsigned i;

	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		set_check(walk, set, &listed);
	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		stream_check(walk, record, &listed);
	claim(walk, listed == space->stream_held_blocks, "a block waits for no stream, or for two");
}

/* Every waiting block is on one list, unless a thread has it in its hand; every segment that is due
 * could go back. */
static void
lists_check(struct walk *walk, const struct ca_space *space)
{
	uint64_t listed = waiting_list_check(walk, space, &space->unmarked);

	listed += waiting_list_check(walk, space, &space->graph_held);
	CA_LIST_EACH(const struct ca_group, group, &space->pending, link)
		listed += waiting_list_check(walk, space, &group->blocks);
	claim(walk, listed <= space->mark_held_blocks, "a block waits on two lists");
	claim(walk, space->device->in_flight || listed == space->mark_held_blocks,
	      "a waiting block is on no list");
	CA_LIST_EACH(const struct ca_segment, segment, &space->due, hand) {
		claim(walk, segment->retired && !segment->live, "a segment in use is due");
		claim(walk, segment->space == space, "a segment of another space is due");
	}
}

/* The sums that magazines have not added to the device's yet, taken off (modulo 2^64). */
static void
not_counted_add(const struct ca_heap *heap, const struct ca_device *device, struct sums *sums)
{
	const struct ca_magazine *magazine;
	struct ca_changes changes;

	for (magazine = heap->magazines; magazine; magazine = magazine->next) {
		if (magazine->device != device)
			continue;
		changes = ca_counts_changes(&magazine->counts);
		sums->requested -= changes.requested.current;
		sums->allocated -= changes.allocated.current;
		sums->active -= changes.active.current;
		sums->cached -= changes.cached.current;
	}
}

static void
device_check(struct walk *walk, const struct ca_heap *heap, const struct ca_device *device)
{
	const struct ca_stats *stats = &device->stats;
	const struct ca_space *space;
	struct sums sums = { 0 };

	for (space = device->spaces; space; space = space->next_on_device) {
		claim(walk, space->device == device, "a device lists the space of another");
		space_check(walk, space, &sums);
		lists_check(walk, space);
		streams_check(walk, space);
	}
	not_counted_add(heap, device, &sums);
	claim(walk, sums.requested == stats->requested_bytes.current, "requested_bytes is wrong");
	claim(walk, sums.allocated == stats->allocated_bytes.current, "allocated_bytes is wrong");
	claim(walk, sums.active == stats->active_bytes.current, "active_bytes is wrong");
	claim(walk, sums.reserved == stats->reserved_bytes.current, "reserved_bytes is wrong");
	claim(walk, sums.cached == stats->cached_bytes.current, "cached_bytes is wrong");
	claim(walk, sums.drainable == device->drainable_bytes, "drainable bytes are wrong");
}

static void
addresses_check(struct walk *walk, const struct ca_heap *heap)
{
	const struct ca_tree_node *node;
	uint64_t end = 0, count = 0;

	for (node = ca_tree_first(&heap->by_address); node; node = ca_tree_next(node)) {
		const struct ca_segment *segment =
			CA_CONTAINER_OF(node, struct ca_segment, by_address);

		claim(walk, node->key == segment->address, "a segment is not found by address");
		claim(walk, segment->address >= end, "segments overlap");
		end = segment->address + segment->bytes;
		count++;
	}
	/* more are in the hands of threads that are in the driver */
	claim(walk, count <= heap->segments.used, "addresses of segments that are gone");
	claim(walk, walk->blocks <= heap->blocks.used, "records of blocks that are gone");
	claim(walk, walk->places == heap->places.used, "places of blocks that are gone");
}

int
ca_heap_check(struct ca_heap *heap, char *ret_reason, size_t size)
{
	const struct ca_device *device;
	struct walk walk = { 0 };

	ca_heap_lock(heap);
	ca_magazines_lock_locked(heap);
	for (device = heap->devices; device; device = device->next)
		device_check(&walk, heap, device);
	addresses_check(&walk, heap);
	magazines_check(&walk, heap);
	ca_magazines_unlock_locked(heap);
	ca_heap_unlock(heap);
	if (!walk.reason)
		return ca_told_check(heap, ret_reason, size);
	if (ret_reason)
		ca_text_format(ret_reason, size, "%s", walk.reason);
	return -EUCLEAN;
}
