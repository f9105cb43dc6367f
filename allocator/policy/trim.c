/* SPDX-License-Identifier: MIT */
/*
 * Automatic trims. There is no thread: a due trim is done in a call of the program.
 *
 * Giving a segment back may wait for the device, and a wait that the program does not expect may be
 * for ever (a kernel may wait for what the caller submits next). So it is done where the driver
 * would have waited as well, in the program's own free of memory of the same context; or wherever
 * the device has nothing to do, as far as the order tracker knows.
 *
 * How long a segment has been unused is noticed, not measured: a look marks those that are whole
 * and free, and handing out memory of one takes the mark off.
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "config/mutant.h"

enum {
	DUE_EVERY = 1,
	DUE_IDLE = 2,
	DUE_CACHED = 4,
	DUE_THRESHOLD = 8,
};

bool
ca_auto_trim_is_wanted(const struct ca_config *config)
{
	return config->disable == CA_DISABLE_OFF &&
	       (config->max_cached_bytes != UINT64_MAX || config->trim_idle_ms ||
		config->trim_every || config->gc_threshold);
}

/* Marks the segments that are whole and free. */
static void
mark(struct ca_segment *segment, uint64_t now)
{
	if (segment->standing & CA_RESTS)
		return;
	segment->standing |= CA_RESTS;
	segment->rests_since = segment->space->heap->serial;
	segment->rests_since_ns = now;
}

/* A mutant's: the first block of the extent that a stream holds is taken for a FREE one. */
static void
held_to_free(const struct ca_segment *segment)
{
	struct ca_block *block = segment->first;

	while (block && (block->state != CA_BLOCK_STREAM_HELD || block->bytes < CA_PAGE))
		block = block->next;
	if (!block)
		return;
	ca_block_detach_locked(block);
	ca_block_settle_locked(block);
}

/* An extent rests while no memory of it is handed out. */
static void
mark_resting(struct ca_space *space, uint64_t now)
{
	struct ca_index_node *node;

	for (node = ca_index_first(&space->wholes); node;
	     node = ca_index_next(&space->wholes, node))
		mark(ca_whole_block(node)->segment, now);
	if (!space->device->mapped_bytes)
		return;
	CA_LIST_EACH(struct ca_segment, segment, &space->segments, link) {
		if (segment->mapped)
			mark(segment, now);
		if (segment->mapped && CA_MUTANT(HELD_UNMAPPED))
			held_to_free(segment);
	}
}

/* The block's segment has been unused for longer; the lower one, where both are as long. */
static bool
rests_longer(const struct ca_block *block, const struct ca_block *other)
{
	const struct ca_segment *a = block->segment, *b = other->segment;

	return a->rests_since < b->rests_since ||
	       (a->rests_since == b->rests_since && block->address < other->address);
}

/* FREE, with a whole handle, of an extent that rests since then; the longest. */
static struct ca_block *
resting_in_extents(struct ca_space *space, uint64_t until_ns)
{
	struct ca_block *best = NULL;
	struct ca_index_node *node;
	uint64_t address;
	unsigned i;

	for (i = 0; space->device->mapped_bytes && i < 2; i++)
		for (node = ca_index_any_at_least(&space->pools[i].by_size, CA_PAGE); node;
		     node = ca_index_next(&space->pools[i].by_size, node)) {
			struct ca_block *block =
				CA_CONTAINER_OF(node, struct ca_places, by_size)->block;
			const struct ca_segment *segment = block->segment;

			if (segment->mapped && (segment->standing & CA_RESTS) &&
			    segment->rests_since_ns <= until_ns &&
			    ca_extent_drainable(block, CA_PAGE, &address) &&
			    (!best || rests_longer(block, best)))
				best = block;
		}
	return best;
}

/* The segment unused for longest, and at least since `until_ns`, that min_reserve_mb does not keep.
 */
static struct ca_block *
longest_resting(struct ca_space *space, uint64_t until_ns)
{
	uint64_t floor = space->heap->config.min_reserve_bytes;
	uint64_t reserved = space->device->stats.reserved_bytes.current;
	struct ca_block *best = NULL;
	struct ca_index_node *node;

	if (reserved > floor)
		best = resting_in_extents(space, until_ns);
	for (node = ca_index_first(&space->wholes); node;
	     node = ca_index_next(&space->wholes, node)) {
		struct ca_block *block = ca_whole_block(node);
		const struct ca_segment *segment = block->segment;

		if (!(segment->standing & CA_RESTS) || segment->rests_since_ns > until_ns ||
		    reserved < floor + segment->bytes)
			continue;
		if (!best || rests_longer(block, best))
			best = block;
	}
	return best;
}

/* Bytes given back; 0: there is no such segment, or the driver did not take it. */
static uint64_t
return_longest_idle(struct ca_space *space, uint64_t until_ns, uint64_t bytes)
{
	uint64_t reserved = space->device->stats.reserved_bytes.current;
	uint64_t most = ca_excess(reserved, space->heap->config.min_reserve_bytes);
	struct ca_block *block = longest_resting(space, until_ns);
	uint64_t given = block ? ca_release_block_locked(block, ca_least(bytes, most), NULL) : 0;

	if (given)
		CA_COUNT(space, trims);
	return given;
}

/* Freed memory of the device that is kept, finished or not. */
static uint64_t
kept(const struct ca_space *space)
{
	const struct ca_stats *stats = &space->device->stats;

	return stats->reserved_bytes.current - stats->allocated_bytes.current;
}

/* In the program's own free: waits for what may still use it. */
static uint64_t
return_due(struct ca_space *space)
{
	if (!ca_list_empty(&space->due))
		ca_await_locked(space, space->due_bound);
	return ca_segment_return_due_locked(space, NULL);
}

/* Waits for what the calling thread freed, as the driver's own free would have. */
static bool
wait_for_one(struct ca_space *space)
{
	int r = ca_deferred_wait_locked(space, CA_WAIT_EXACT);

	if (!r && ca_release_own_locked(space))
		r = return_due(space) > 0;
	return r > 0;
}

static void
shrink(struct ca_space *space, uint64_t keep, bool may_wait, uint64_t now)
{
	while (kept(space) > keep && !space->dead) {
		if (may_wait && return_due(space))
			continue;
		mark_resting(space, now);
		if (return_longest_idle(space, UINT64_MAX, kept(space) - keep))
			continue;
		if (longest_resting(space, UINT64_MAX) || !may_wait ||
		    !ca_device_is_drainable(space->device) || !wait_for_one(space))
			break; /* refused, kept by min_reserve_mb, or in use */
	}
}

static unsigned
what_is_due(struct ca_space *space, uint64_t now)
{
	const struct ca_config *config = &space->heap->config;
	struct ca_device *device = space->device;
	unsigned due = 0;

	if (config->trim_every && !device->next_trim)
		device->next_trim = config->trim_every;
	if (config->trim_every && device->stats.alloc_calls >= device->next_trim)
		due |= DUE_EVERY;
	if (config->trim_idle_ms && now >= device->next_look_ns)
		due |= DUE_IDLE;
	if (kept(space) > config->max_cached_bytes && ca_device_is_drainable(device))
		due |= DUE_CACHED;
	if (device->gc_wanted)
		due |= DUE_THRESHOLD;
	return due;
}

static void
trim_idle(struct ca_space *space, uint64_t now)
{
	uint64_t ns = space->heap->config.trim_idle_ms * 1000 * 1000;

	space->device->next_look_ns = now + ns / 2;
	while (now >= ns && return_longest_idle(space, now - ns, UINT64_MAX))
		;
}

static void
return_wanted(struct ca_space *space)
{
	struct ca_device *device = space->device;
	uint64_t given;

	while (device->gc_wanted &&
	       (given = return_longest_idle(space, UINT64_MAX, device->gc_wanted)))
		device->gc_wanted = ca_excess(device->gc_wanted, given);
}

static void
tend(struct ca_space *space, unsigned due, bool may_wait, uint64_t now)
{
	const struct ca_config *config = &space->heap->config;
	struct ca_device *device = space->device;

	ca_deferred_poll_locked(space);
	mark_resting(space, now);
	if (due & DUE_THRESHOLD)
		return_wanted(space);
	device->gc_wanted = 0;
	if (due & DUE_EVERY) {
		device->next_trim = device->stats.alloc_calls + config->trim_every;
		shrink(space, 0, may_wait, now);
	}
	if (due & DUE_IDLE)
		trim_idle(space, now);
	if (due & DUE_CACHED)
		shrink(space, config->max_cached_bytes, may_wait, now);
	if (due & (DUE_EVERY | DUE_IDLE | DUE_CACHED))
		(void)ca_release_pools_locked(device, 0, false);
}

void
ca_auto_trim(struct ca_space *space, bool may_wait)
{
	struct ca_heap *heap = space->heap;
	uint64_t now = heap->driver.clock_ns(heap->driver.self);
	unsigned due;

	if (heap->driver.capturing(heap->driver.self))
		return;
	CA_HEAP_LOCKED(heap);
	due = space->dead || space->poisoned ? 0 : what_is_due(space, now);
	if (due && (may_wait || ca_device_is_idle_locked(space)))
		tend(space, due, may_wait, now);
}

bool
ca_device_is_idle(struct ca_space *space)
{
	CA_HEAP_LOCKED(space->heap);
	return ca_device_is_idle_locked(space);
}

/* Of all spaces of the device. */
static void
return_all(struct ca_device *device, uint64_t now)
{
	struct ca_space *space;

	for (space = device->spaces; space && device->gc_wanted; space = space->next_on_device) {
		if (space->dead)
			continue;
		mark_resting(space, now);
		return_wanted(space);
	}
	device->gc_wanted = 0;
}

void
ca_auto_trim_growth_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_device *device = space->device;
	uint64_t limit, threshold;

	ca_limit_update_locked(space);
	limit = ca_limit_of_segments(space);
	if (limit == UINT64_MAX)
		return;
	threshold = ca_limit_share(limit, space->heap->config.gc_threshold);
	if (device->stats.reserved_bytes.current + bytes <= threshold)
		return;
	device->gc_wanted = device->stats.reserved_bytes.current + bytes - threshold;
	/* not later than now: trim_idle_ms must not take it for older */
	if (ca_device_is_idle_locked(space))
		return_all(device, device->next_look_ns);
	else
		mark_resting(space, device->next_look_ns);
}
