/* SPDX-License-Identifier: MIT */
/*
 * Whole segments of a device go back to the driver: those that are finished and free, just enough;
 * and where those do not suffice such that still wait, behind what may use them
 * (deferred/await.c).
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/tcache.h"

__thread struct ca_tried ca_oom_tried __attribute__((tls_model("initial-exec")));

/*
 * The driver's free of memory of the space will not wait for what the calling thread has yet to do:
 * all that the space was given so far has finished. (Where a capture is in the way of every mark,
 * the driver has to be relied upon, for memory that has finished.)
 */
static bool
is_returnable(struct ca_space *space, struct ca_patience *patience)
{
	return ca_await_patiently_locked(space, ca_order_space_bound(space), patience) != -EAGAIN;
}

static uint64_t
return_due(const struct ca_device *device, struct ca_patience *patience, bool *ret_busy)
{
	uint64_t given = 0;
	struct ca_space *space;

	for (space = device->spaces; space; space = space->next_on_device)
		if (!ca_list_empty(&space->due) && is_returnable(space, patience))
			given += ca_segment_return_due_locked(space, ret_busy);
	return given;
}

void
ca_release_reset_rejected_locked(const struct ca_device *device)
{
	struct ca_space *space;

	for (space = device->spaces; space; space = space->next_on_device)
		ca_segment_reset_stuck_locked(space);
}

bool
ca_spaces_include(const struct ca_spaces *spaces, const struct ca_space *space)
{
	unsigned i;

	for (i = 0; i < spaces->n; i++)
		if (spaces->at[i] == space)
			return true;
	return false;
}

bool
ca_release_may_begin_locked(struct ca_space *space, struct ca_patience *patience,
			    struct ca_spaces *busy)
{
	if (is_returnable(space, patience))
		return true;
	if (busy->n == CA_SPACES_EXCEPT)
		return false;
	busy->at[busy->n++] = space;
	return true;
}

/* Bytes that the block would give back. */
static uint64_t
given_by(const struct ca_block *block, uint64_t bytes)
{
	uint64_t address;

	return block->segment->mapped ? ca_extent_drainable(block, bytes, &address) : block->bytes;
}

static bool
better(const struct ca_block *block, const struct ca_block *best, uint64_t bytes)
{
	uint64_t given = given_by(block, bytes), least = best ? given_by(best, bytes) : 0;

	return best && least >= bytes ? given >= bytes && given < least : given > least;
}

struct ca_block *
ca_release_better_locked(struct ca_space *space, struct ca_block *best, uint64_t bytes)
{
	struct ca_index_node *node;
	struct ca_block *block;

	ca_magazines_clear_locked(space);
	block = ca_extent_candidate_locked(space, bytes);
	if (block && better(block, best, bytes))
		best = block;
	node = ca_index_any_at_least(&space->wholes, bytes);
	if (!node)
		node = ca_index_last(&space->wholes);
	if (!node)
		return best;
	block = ca_whole_block(node);
	return better(block, best, bytes) ? block : best;
}

uint64_t
ca_release_block_locked(struct ca_block *block, uint64_t bytes, bool *ret_busy)
{
	return block->segment->mapped ? ca_extent_release_locked(block, bytes, ret_busy)
				      : ca_segment_release_locked(block, ret_busy);
}

uint64_t
ca_release_drainable_locked(const struct ca_device *device)
{
	uint64_t sum = device->drainable_bytes;
	const struct ca_space *space;

	for (space = device->spaces; device->mapped_bytes && space; space = space->next_on_device)
		sum += ca_extents_drainable_locked(space);
	return sum;
}

struct ca_block *
ca_release_candidate_locked(const struct ca_device *device, uint64_t bytes,
			    const struct ca_spaces *except)
{
	struct ca_block *best = NULL;
	struct ca_space *space;

	for (space = device->spaces; space; space = space->next_on_device)
		if (!except || !ca_spaces_include(except, space))
			best = ca_release_better_locked(space, best, bytes);
	return best;
}

/* The candidate, of a space that is returnable; NULL: there is none. */
static struct ca_block *
returnable(const struct ca_device *device, uint64_t bytes, struct ca_patience *patience,
	   struct ca_spaces *busy)
{
	struct ca_space *space = NULL;
	struct ca_block *block;

	while ((block = ca_release_candidate_locked(device, bytes, busy)) &&
	       block->segment->space != space) {
		space = block->segment->space;
		if (!ca_release_may_begin_locked(space, patience, busy))
			return NULL;
	}
	return block;
}

uint64_t
ca_release_locked(struct ca_space *space, uint64_t bytes, struct ca_patience *patience,
		  bool *ret_busy)
{
	/* All that there is now: what others take and give back meanwhile would never end. */
	uint64_t most = space->device->stats.reserved_bytes.current;
	uint64_t given = return_due(space->device, patience, ret_busy);
	struct ca_spaces busy = { 0 };

	bytes = ca_least(bytes, most);
	while (given < bytes && !*ret_busy) {
		struct ca_block *block = returnable(space->device, bytes - given, patience, &busy);
		uint64_t more;

		if (!block)
			break;
		more = ca_release_block_locked(block, bytes - given, ret_busy);
		given += more;
		ca_oom_tried.given_segments += more != 0;
	}
	if (given)
		CA_COUNT(space, flushes);
	ca_oom_tried.given_bytes += given;
	return given;
}

/* Makes whole segments without a live block due, until they are enough. */
static void
make_whole_due(struct ca_space *space, bool captured, uint64_t bytes, uint64_t *sum)
{
	ca_magazines_clear_locked(space);
	CA_LIST_EACH(struct ca_segment, segment, &space->segments, link) {
		if (*sum >= bytes)
			return;
		if (segment->live || segment->mapped || (segment->standing & CA_STUCK) ||
		    segment->captured != captured || !ca_list_empty(&segment->hand))
			continue;
		ca_segment_retire_locked(segment);
		*sum += segment->bytes;
	}
}

uint64_t
ca_release_needed_locked(struct ca_space *space, uint64_t bytes, bool segment)
{
	uint64_t free_bytes, total, refused = 0;

	if (space->heap->limited)
		refused = ca_limit_needed_locked(space, bytes, segment);
	if (refused)
		return refused;
	if (ca_limit_query_locked(space, &free_bytes, &total) || free_bytes >= bytes)
		return bytes;
	return bytes - free_bytes;
}

void
ca_oom_begin(bool capturing)
{
	ca_oom_tried = (struct ca_tried){ .capture = capturing };
}

/* Asks for all that the device runs, stream by stream. The memory of finished work is FREE then. */
static void
await_all(const struct ca_device *device, struct ca_patience *patience)
{
	struct ca_space *space;

	for (space = device->spaces; space; space = space->next_on_device)
		is_returnable(space, patience);
}

bool
ca_oom_release_busy_locked(struct ca_space *space, uint64_t request, struct ca_patience *patience)
{
	bool busy = false;
	uint64_t bytes = ca_release_needed_locked(space, request, true);
	uint64_t given = ca_release_locked(space, bytes, patience, &busy), sum, due;
	struct ca_space *other;
	int captured;

	if (!busy && given < bytes) {
		await_all(space->device, patience);
		given += ca_release_locked(space, bytes - given, patience, &busy);
	}
	if (busy || given >= bytes)
		return given > 0;
	sum = given;
	/* memory that a graph may use comes last; natively it would be gone, too */
	for (captured = 0; captured < 2; captured++)
		for (other = space->device->spaces; other; other = other->next_on_device)
			if (!other->dead)
				make_whole_due(other, captured, bytes, &sum);
	due = return_due(space->device, patience, &busy);
	ca_oom_tried.given_bytes += due;
	return given || due || (sum && !busy && !patience->over);
}

/* A free by another thread meanwhile changes the generation. */
void
ca_oom_clear_magazines_locked(const struct ca_device *device)
{
	struct ca_space *space;

	for (space = device->spaces; space; space = space->next_on_device)
		ca_magazines_clear_locked(space);
}

uint64_t
ca_oom_release_locked(struct ca_space *space, uint64_t bytes, bool *ret_busy)
{
	struct ca_patience patience = { 0 };

	ca_release_reset_rejected_locked(space->device);
	return ca_release_locked(space, bytes, &patience, ret_busy);
}

uint64_t
ca_release_pools_locked(const struct ca_device *device, uint64_t keep_bytes, bool graphs)
{
	struct ca_space *space = device->spaces;
	const struct ca_driver *driver;
	uint64_t given;

	if (!space || !space->heap->driver.pools_trim)
		return 0;
	driver = &space->heap->driver;
	ca_outside_enter_locked(space);
	given = driver->pools_trim(driver->self, device->ordinal, keep_bytes, graphs);
	ca_outside_leave(space);
	if (given)
		space->device->generation++;
	return given;
}

bool
ca_oom_release_pools_locked(struct ca_space *space)
{
	uint64_t given = ca_release_pools_locked(space->device, 0, true);

	if (!given)
		return false;
	CA_COUNT(space, flushes);
	ca_oom_tried.pool_bytes += given;
	return true;
}

/* Something in the segment waits; and the calling thread freed all of that, or any thread may have.
 */
static bool
has_waiting(const struct ca_segment *segment, bool of_any_thread)
{
	uint64_t thread = ca_order_thread();
	const struct ca_block *block;
	bool any = false;

	for (block = segment->first; block; block = block->next) {
		if (!ca_block_waits(block))
			continue;
		if (block->thread != thread && !of_any_thread)
			return false;
		any = true;
	}
	return any;
}

/* `captured`: what a graph may still use, whoever freed it (the driver's own free would not have
 * asked). */
static bool
release_own(struct ca_space *space, bool captured)
{
	CA_LIST_EACH(struct ca_segment, segment, &space->segments, link) {
		if (segment->live || segment->retired || segment->mapped ||
		    segment->captured != captured || !has_waiting(segment, captured) ||
		    !ca_list_empty(&segment->hand))
			continue;
		ca_context_mark_drop_segment_locked(segment);
		return true;
	}
	return false;
}

bool
ca_release_own_locked(struct ca_space *space)
{
	if (!space->mark_held_blocks && !space->stream_held_blocks)
		return false;
	ca_magazines_clear_locked(space);
	return release_own(space, false) || release_own(space, true);
}
