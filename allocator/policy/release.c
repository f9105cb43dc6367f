/* SPDX-License-Identifier: MIT */
/*
 * Whole segments of a device go back to the driver: those that are finished and free, just enough;
 * and where those do not suffice such that still wait, behind what may use them
 * (deferred/await.c).
 */
#include "allocator/policy/internal.h"

#include <errno.h>
#include <string.h>

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
return_due(struct ca_device *device, struct ca_heap *heap, struct ca_patience *patience,
	   bool *ret_busy)
{
	uint64_t given = 0;
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		if (space->device == device && !ca_list_empty(&space->due) &&
		    is_returnable(space, patience))
			given += ca_segment_return_due_locked(space, ret_busy);
	return given;
}

void
ca_release_reset_rejected_locked(struct ca_heap *heap, const struct ca_device *device)
{
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		if (space->device == device)
			ca_segment_unstick_locked(space);
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

struct ca_block *
ca_release_candidate_locked(struct ca_space *own, uint64_t bytes, const struct ca_spaces *except)
{
	const struct ca_device *device = own->device;
	struct ca_heap *heap = own->heap;
	struct ca_block *best = NULL;
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next) {
		struct ca_tree_node *node;
		struct ca_block *block;
		bool better;

		if (space->device != device || (except && ca_spaces_include(except, space)))
			continue;
		ca_magazines_clear_locked(space);
		node = ca_index_at_least(&space->wholes, bytes, 0);
		if (!node)
			node = ca_index_last(&space->wholes);
		if (!node)
			continue;
		block = ca_whole_block(node);
		if (best && best->bytes >= bytes)
			better = block->bytes >= bytes && block->bytes < best->bytes;
		else
			better = !best || block->bytes > best->bytes;
		if (better)
			best = block;
	}
	return best;
}

/* The candidate, of a space that is returnable; NULL: there is none. */
static struct ca_block *
returnable(struct ca_space *own, uint64_t bytes, struct ca_patience *patience,
	   struct ca_spaces *busy)
{
	struct ca_space *space = NULL;
	struct ca_block *block;

	while ((block = ca_release_candidate_locked(own, bytes, busy)) &&
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
	struct ca_device *device = space->device;
	struct ca_heap *heap = space->heap;
	uint64_t given = return_due(device, heap, patience, ret_busy);
	struct ca_spaces busy = { 0 };

	while (given < bytes && !*ret_busy) {
		struct ca_block *block = returnable(space, bytes - given, patience, &busy);
		uint64_t block_bytes;
		int r;

		if (!block)
			break;
		block_bytes = block->bytes;
		r = ca_segment_release_locked(block);
		if (!r) {
			given += block_bytes;
			ca_oom_tried.given_segments++;
		} else if (r == -EBUSY)
			*ret_busy = true;
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
	struct ca_list *link;

	ca_magazines_clear_locked(space);
	for (link = space->segments.next; link != &space->segments && *sum < bytes;
	     link = link->next) {
		struct ca_segment *segment = CA_CONTAINER_OF(link, struct ca_segment, link);

		if (segment->live || (segment->standing & CA_STUCK) ||
		    segment->captured != captured || !ca_list_empty(&segment->hand))
			continue;
		ca_segment_retire_locked(segment);
		*sum += segment->bytes;
	}
}

/*
 * How much must come back before `bytes` fit, for a segment or another call: first by the limits
 * that the user set. Where the driver says that it has as much, it is in pieces of no use, and all
 * of it is wanted.
 */
uint64_t
ca_release_needed_locked(struct ca_space *space, uint64_t bytes, bool segment)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t free_bytes, total, refused = 0;
	int r;

	if (space->heap->limited)
		refused = ca_limit_needed_locked(space, bytes, segment);
	if (refused)
		return refused;
	ca_outside_enter_locked(space);
	r = driver->memory_info(driver->self, space->context, &free_bytes, &total);
	ca_outside_leave(space);
	return !r && free_bytes < bytes ? bytes - free_bytes : bytes;
}

void
ca_oom_begin(bool capturing)
{
	memset(&ca_oom_tried, 0, sizeof(ca_oom_tried));
	ca_oom_tried.capture = capturing;
}

/* Asks for all that the device runs, stream by stream. The memory of finished work is FREE then. */
static void
await_all(struct ca_heap *heap, const struct ca_device *device, struct ca_patience *patience)
{
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		if (space->device == device)
			is_returnable(space, patience);
}

uint64_t
ca_oom_release_busy_locked(struct ca_space *space, uint64_t request, struct ca_patience *patience)
{
	struct ca_heap *heap = space->heap;
	bool busy = false;
	uint64_t bytes = ca_release_needed_locked(space, request, true);
	uint64_t given = ca_release_locked(space, bytes, patience, &busy), sum;
	struct ca_space *other;
	int captured;

	if (!busy && given < bytes) {
		await_all(heap, space->device, patience);
		given += ca_release_locked(space, bytes - given, patience, &busy);
	}
	if (busy || given >= bytes)
		return given;
	sum = given;
	/* memory that a graph may use comes last; natively it would be gone, too */
	for (captured = 0; captured < 2; captured++)
		for (other = heap->spaces; other; other = other->next)
			if (other->device == space->device && !other->dead)
				make_whole_due(other, captured, bytes, &sum);
	sum = return_due(space->device, heap, patience, &busy);
	ca_oom_tried.given_bytes += sum;
	return given + sum;
}

/* A free by another thread meanwhile changes the generation. */
void
ca_oom_clear_magazines_locked(struct ca_heap *heap, const struct ca_device *device)
{
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		if (space->device == device)
			ca_magazines_clear_locked(space);
}

uint64_t
ca_oom_release_locked(struct ca_space *space, uint64_t bytes, bool *ret_busy)
{
	struct ca_patience patience = { 0 };

	ca_release_reset_rejected_locked(space->heap, space->device);
	return ca_release_locked(space, bytes, &patience, ret_busy);
}

/* Something in the segment waits, and the calling thread freed all of that. */
static bool
has_own_waiting(const struct ca_segment *segment)
{
	uint64_t thread = ca_order_thread();
	const struct ca_block *block;
	bool any = false;

	for (block = segment->first; block; block = block->next) {
		if (!ca_block_waits(block))
			continue;
		if (block->thread != thread)
			return false;
		any = true;
	}
	return any;
}

/* `captured`: also what a graph may still use (the driver's own free would not have asked). */
static bool
release_own(struct ca_space *space, bool captured)
{
	struct ca_list *link;

	for (link = space->segments.next; link != &space->segments; link = link->next) {
		struct ca_segment *segment = CA_CONTAINER_OF(link, struct ca_segment, link);

		if (segment->live || segment->retired || segment->captured != captured ||
		    !has_own_waiting(segment) || !ca_list_empty(&segment->hand))
			continue;
		ca_context_mark_drop_segment_locked(segment);
		return true;
	}
	return false;
}

bool
ca_release_own_locked(struct ca_space *space)
{
	if (!space->waiting_blocks && !space->owned_blocks)
		return false;
	ca_magazines_clear_locked(space);
	return release_own(space, false) || release_own(space, true);
}
