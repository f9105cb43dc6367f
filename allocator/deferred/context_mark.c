/* SPDX-License-Identifier: MIT */
/*
 * Frees that wait for a context mark, since no stream mark covers all that may use the memory
 * (place.c has the others).
 *
 * Record first, publish after: a freed block leaves ALLOCATED, is seen by nobody else while the
 * lock is free, a mark is recorded behind everything submitted so far, and only then mark and block
 * enter the queue. A mark recorded before a free is never attached to it; one mark serves all
 * blocks that were in the hand before it was recorded. The queue is first in, first out: its head
 * is asked, and a mark that is not done ends the walk.
 *
 * A block that could not be marked (capture, no record to be had, a driver without marks) waits in
 * `unmarked`, for the next mark, for a host synchronisation that begins after that, or where all
 * work is seen until all that was submitted before is known to have finished, and if work of other
 * contexts used memory of the space, all of theirs, too: the program synchronises, or each stream's
 * own mark is done.
 * An answer that is an error is never taken for "done": the host synchronises instead, and if even
 * that fails the space is poisoned: nothing of it is reused again, every segment goes back to the
 * driver as soon as it can.
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/block/block.h"
#include "allocator/core/lock.h"
#include "config/mutant.h"

static void
settle_all(struct ca_list *blocks)
{
	while (!ca_list_empty(blocks)) {
		struct ca_block *block = CA_CONTAINER_OF(blocks->next, struct ca_block, waiting);

		ca_list_remove(&block->waiting);
		ca_block_settle_locked(block);
	}
}

void
ca_unmarked_add_locked(struct ca_space *space, struct ca_list *blocks)
{
	ca_list_splice(&space->unmarked, blocks);
	space->unmarked_bound = ca_order_space_bound(space);
}

enum elsewhere { NOT_KNOWN, UNFINISHED, FINISHED };

/* The work of other contexts on memory of the space. Their streams had been given all that may use
 * a block when it was freed. */
static enum elsewhere
look_elsewhere(struct ca_space *space)
{
	struct ca_space *other;
	bool finished = true;

	if (!ca_order_has_foreign_user(&space->order, 0))
		return FINISHED;
	if (atomic_load(&space->order.foreign_unknown))
		return NOT_KNOWN;
	for (other = space->heap->spaces; other; other = other->next) {
		uint64_t bound = ca_order_space_bound(other);

		if (other == space || other->dead)
			continue;
		if (other->poisoned || !ca_order_has_nothing_unseen(other, bound))
			return NOT_KNOWN;
		finished = finished && ca_order_has_finished(other, bound);
	}
	return finished ? FINISHED : UNFINISHED;
}

bool
ca_unmarked_waits_elsewhere_locked(struct ca_space *space)
{
	return !ca_list_empty(&space->unmarked) && look_elsewhere(space) == UNFINISHED;
}

/* Work that is not seen has no stamp: of that only a mark tells, or a synchronisation, which began
 * after the free. */
static bool
has_finished_unmarked(struct ca_space *space)
{
	return !space->dead && !space->poisoned &&
	       !(atomic_load(&space->order.finished_only) & ~CA_REASONS_SEEN) &&
	       ca_order_has_finished(space, space->unmarked_bound) &&
	       look_elsewhere(space) == FINISHED;
}

bool
ca_unmarked_settle_locked(struct ca_space *space)
{
	if (ca_list_empty(&space->unmarked) || !has_finished_unmarked(space))
		return false;
	settle_all(&space->unmarked);
	return true;
}

void
ca_context_mark_drop_segment_locked(struct ca_segment *segment)
{
	struct ca_block *block;

	for (block = segment->first; block; block = block->next)
		if (ca_block_waits(block)) {
			ca_block_detach_locked(block);
			ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
		}
	ca_segment_retire_locked(segment);
}

void
ca_context_mark_poison_locked(struct ca_space *space)
{
	if (space->poisoned || space->dead)
		return;
	space->poisoned = true;
	atomic_fetch_or(&space->attention, CA_ATTENTION_ALWAYS);
	CA_LIST_EACH(struct ca_segment, segment, &space->segments, link)
		ca_context_mark_drop_segment_locked(segment);
}

/* The blocks of a hand become FREE after a host wait, or unmarked in a capture. Lost: the hand is
 * as it was. */
static int
synchronize(struct ca_space *space, struct ca_list *hand)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t bound = ca_order_context_bound(&space->order);
	int r;

	ca_outside_enter_locked(space);
	r = driver->synchronize(driver->self, space->context);
	ca_outside_leave(space);
	if (r != -EBUSY)
		CA_COUNT(space, host_syncs);
	if (!r) {
		ca_order_context_finished(&space->order, bound);
		settle_all(hand);
	} else if (!ca_context_mark_is_lost(r)) {
		ca_unmarked_add_locked(space, hand);
	}
	space->device->generation++;
	return r;
}

/* 1: settled, or the space is poisoned, its blocks RETIRED; -EBUSY: unmarked again. */
static int
settle_by_wait(struct ca_space *space, struct ca_list *hand)
{
	int r = synchronize(space, hand);

	if (ca_context_mark_is_lost(r))
		ca_context_mark_poison_locked(space);
	return r < 0 && !ca_context_mark_is_lost(r) ? -EBUSY : 1;
}

int
ca_context_mark_sync_locked(struct ca_space *space)
{
	struct ca_list nothing;
	int r;

	ca_list_init(&nothing);
	r = settle_by_wait(space, &nothing);
	ca_held_settle_locked(space);
	return r;
}

bool
ca_context_mark_query_context_locked(struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t bound = ca_order_context_bound(&space->order);
	ca_mark mark;
	int r;

	if (space->heap->no_marks || space->dead || space->poisoned)
		return false;
	ca_outside_enter_locked(space);
	r = driver->mark_record(driver->self, space->context, &mark);
	if (!r) {
		r = driver->mark_query(driver->self, mark);
		driver->mark_drop(driver->self, mark);
	}
	ca_outside_leave(space);
	if (r)
		return false;
	ca_order_context_finished(&space->order, bound);
	return ca_held_settle_locked(space);
}

/* Drops the mark of a group in the hand, outside the lock, and the group. */
static void
group_drop(struct ca_space *space, struct ca_group *group)
{
	const struct ca_driver *driver = &space->heap->driver;

	ca_outside_enter_locked(space);
	driver->mark_drop(driver->self, group->mark);
	ca_outside_leave(space);
	ca_objects_put(&space->heap->groups, group);
}

/* The thread that freed all of the blocks, or 0. */
static uint64_t
freed_by(const struct ca_list *blocks)
{
	uint64_t thread = 0;

	CA_LIST_EACH(const struct ca_block, block, blocks, waiting)
		if (&block->waiting == blocks->next)
			thread = block->thread;
		else if (block->thread != thread)
			return 0;
	return thread;
}

/* Records a mark for the hand. 0: published; otherwise the hand is as it was, less what died. */
static int
mark(struct ca_space *space, struct ca_list *hand, bool late)
{
	struct ca_heap *heap = space->heap;
	const struct ca_driver *driver = &heap->driver;
	struct ca_group *group = ca_objects_get(&heap->groups);
	int r;

	if (!group)
		return -EBUSY; /* as in a capture: later */
	if (CA_MUTANT(BLOCK_BEFORE_MARK))
		settle_all(hand);
	group->bound = ca_order_context_bound(&space->order);
	ca_outside_enter_locked(space);
	r = driver->mark_record(driver->self, space->context, &group->mark);
	ca_outside_leave(space);
	if (r) {
		ca_objects_put(&heap->groups, group);
		return r;
	}
	CA_COUNT(space, order_marks);
	group->late = late;
	ca_list_take(&group->blocks, hand);
	group->thread = freed_by(&group->blocks);
	if (ca_list_empty(&group->blocks)) {
		group_drop(space, group);
		return 0;
	}
	group->number = space->device->generation++;
	ca_list_insert(&space->pending, &group->link);
	return 0;
}

/* -ENOTSUP, -EBUSY, -ENODATA: without a mark, the hand is as it was. */
static int
try_mark(struct ca_space *space, struct ca_list *hand, bool late)
{
	struct ca_heap *heap = space->heap;
	int r = heap->no_marks ? -ENOTSUP : mark(space, hand, late);

	if (r == -ENOTSUP)
		heap->no_marks = true;
	return r;
}

static bool
is_unmarked(int r)
{
	return r == -ENOTSUP || r == -EBUSY || r == -ENODATA;
}

/* Another error: the host waits. As ca_context_mark_submit_locked. */
static int
submit_by_wait(struct ca_space *space, struct ca_list *hand, const struct ca_saved_allocation *keep)
{
	int r = synchronize(space, hand);

	if (!ca_context_mark_is_lost(r))
		return 0;
	if (keep) {
		if (hand->next != &keep->block->waiting)
			return 0; /* died meanwhile: there is nothing left to fail */
		ca_list_remove(hand->next);
		atomic_store_explicit(&keep->block->requested, keep->requested,
				      memory_order_relaxed);
		atomic_store_explicit(&keep->block->serial, keep->serial, memory_order_relaxed);
		ca_block_set_state_locked(keep->block, CA_BLOCK_ALLOCATED);
	}
	ca_context_mark_poison_locked(space);
	return r;
}

int
ca_context_mark_submit_locked(struct ca_space *space, struct ca_list *hand,
			      const struct ca_saved_allocation *keep)
{
	int r = try_mark(space, hand, !keep);

	if (is_unmarked(r)) {
		ca_unmarked_add_locked(space, hand);
		space->device->generation++;
		return 0;
	}
	return r ? submit_by_wait(space, hand, keep) : 0;
}

void
ca_context_mark_mark_unmarked_locked(struct ca_space *space)
{
	struct ca_list hand;
	int r;

	if (space->heap->no_marks || space->poisoned || ca_list_empty(&space->unmarked))
		return;
	ca_list_take(&hand, &space->unmarked);
	r = try_mark(space, &hand, true);
	if (is_unmarked(r)) /* nothing has changed, nor has the bound */
		ca_list_splice(&space->unmarked, &hand);
	else if (r)
		(void)submit_by_wait(space, &hand, NULL);
}

static struct ca_group *
group_oldest(struct ca_space *space)
{
	struct ca_group *group;

	if (ca_list_empty(&space->pending))
		return NULL;
	group = CA_CONTAINER_OF(space->pending.next, struct ca_group, link);
	ca_list_remove(&group->link);
	return group;
}

/* Others may have been taken out meanwhile, and put back. */
static void
group_put_back(struct ca_space *space, struct ca_group *group)
{
	CA_LIST_EACH(struct ca_group, other, &space->pending, link)
		if (other->number > group->number) {
			ca_list_insert(&other->link, &group->link);
			return;
		}
	ca_list_insert(&space->pending, &group->link);
}

/* 1: settled; -EAGAIN, -EBUSY: back in its place in the queue. Errors end in a host wait. */
static int
group_query(struct ca_space *space, struct ca_group *group, int (*ask)(void *self, ca_mark mark))
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_list hand;
	int r;

	ca_outside_enter_locked(space);
	r = ask(driver->self, group->mark);
	if (r != -EAGAIN && r != -EBUSY)
		driver->mark_drop(driver->self, group->mark);
	ca_outside_leave(space);
	if (r == -EAGAIN || r == -EBUSY) {
		if (ca_list_empty(&group->blocks))
			group_drop(space, group);
		else
			group_put_back(space, group);
		return r;
	}
	ca_list_take(&hand, &group->blocks);
	if (!r)
		ca_order_context_finished(&space->order, group->bound);
	ca_objects_put(&space->heap->groups, group);
	if (r)
		return settle_by_wait(space, &hand);
	settle_all(&hand);
	space->device->generation++;
	return 1;
}

unsigned
ca_context_mark_poll_locked(struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_group *group;
	unsigned settled = 0;

	while ((group = group_oldest(space))) {
		if (group_query(space, group, driver->mark_query) < 0)
			break;
		settled++;
	}
	return settled;
}

/* The oldest group that the calling thread freed, with blocks. NULL: there is none, or others ask
 * it. */
static struct ca_group *
group_own(struct ca_space *space, enum ca_wait which)
{
	uint64_t thread = ca_order_thread();

	CA_LIST_EACH(struct ca_group, group, &space->pending, link)
		if (group->thread == thread && (!group->late || which == CA_WAIT_ANY) &&
		    !ca_list_empty(&group->blocks))
			return group;
	return NULL;
}

bool
ca_context_mark_has_own_locked(struct ca_space *space, enum ca_wait which)
{
	return group_own(space, which) != NULL;
}

bool
ca_context_mark_has_late_locked(struct ca_space *space)
{
	uint64_t thread = ca_order_thread();

	if (space->heap->no_marks || space->poisoned)
		return false;
	CA_LIST_EACH(struct ca_group, group, &space->pending, link)
		if (group->thread == thread && group->late && !ca_list_empty(&group->blocks))
			return true;
	return !ca_list_empty(&space->unmarked);
}

/* No mark is to be had, and nothing but a wait for all contexts tells of their unseen work. */
static bool
must_synchronize(struct ca_space *space)
{
	struct ca_space *other;

	if (!(atomic_load(&space->order.finished_only) & ~CA_REASONS_SEEN))
		return false;
	ca_context_mark_mark_unmarked_locked(space);
	if (ca_list_empty(&space->unmarked))
		return false;
	for (other = space->heap->spaces; other; other = other->next)
		if (ca_order_is_held_up(&other->order))
			return false;
	return true;
}

static bool
has_finished(struct ca_space *space, const void *what)
{
	const uint64_t *bound = what;

	return ca_order_has_finished(space, *bound);
}

/* Another thread may ask the group's mark at that moment, so that what has been settled tells. */
static int
await_group(struct ca_space *space, uint64_t bound)
{
	uint64_t held = space->mark_held_blocks;

	if (!ca_held_await_others_locked(space, bound, has_finished, &bound) ||
	    space->mark_held_blocks >= held)
		return 0;
	CA_COUNT(space, host_syncs);
	return 1;
}

int
ca_context_mark_wait_locked(struct ca_space *space, enum ca_wait which)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_group *group;
	struct ca_list hand;
	bool held_up = ca_wait_is_safe(which) && ca_order_is_held_up(&space->order);

	if (which == CA_WAIT_LATER && held_up)
		return 0;
	group = held_up ? NULL : group_own(space, which);
	if (group && which == CA_WAIT_LATER && ca_held_others_submit_locked(space))
		return await_group(space, group->bound);
	if (group) {
		ca_list_remove(&group->link);
		CA_COUNT(space, host_syncs);
		return group_query(space, group, driver->mark_wait);
	}
	if (space->poisoned || ca_list_empty(&space->unmarked))
		return 0;
	if (which != CA_WAIT_ANY && !space->heap->no_marks &&
	    (which == CA_WAIT_LATER || !must_synchronize(space)))
		return 0;
	ca_list_take(&hand, &space->unmarked);
	return settle_by_wait(space, &hand);
}

void
ca_context_mark_drop_all_locked(struct ca_space *space)
{
	struct ca_group *group;

	while ((group = group_oldest(space)))
		group_drop(space, group);
}
