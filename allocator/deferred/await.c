/* SPDX-License-Identifier: MIT */
/*
 * Memory that may still be used, and is to go back to the driver.
 *
 * No documentation says that the driver's free waits for work on the memory. So a segment that is
 * due goes back when everything that was submitted until it became due has finished, by our own
 * marks. In the program's own free the host waits for that, as the driver's free would have: each
 * stream by its mark, or as a whole. A stream that somebody else must let go on is never waited
 * for: that may need the calling thread. The work of other contexts is not waited for, as natively
 * it would not be.
 *
 * An allocation waits for nothing natively, and a kernel may wait for what the calling thread
 * submits after it. Nor may the driver's free be called, which does wait for all that the context
 * was given, whatever became of the segment. So at the end of the memory the driver is asked, in
 * steps, until all that the context was given so far has finished; where it does not go on for some
 * time, the segment stays. Work of other threads that is submitted later does not count.
 *
 * Where work is not seen, it takes a mark on the context, or its synchronisation; in a capture
 * neither is to be had, and the driver's free is relied upon after all.
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "config/branch.h"

enum {
	/* A host that polls at this pace learns of an end at most so much later. */
	STEP_FIRST_NS = 20 * 1000,
	STEP_LAST_NS = 1000 * 1000,
	UNKNOWN_NS = 50 * 1000 * 1000,
};

/* In a quiet space nothing but the end of all tells that work goes on, and nobody but the host or
 * another process could hold it up. A callback may wait behind a long kernel; or it needs a lock
 * that the caller has. */
static const uint64_t PATIENCE_NS = (uint64_t)CA_PATIENCE_S * 1000 * 1000 * 1000,
		      PATIENCE_QUIET_NS = (uint64_t)60 * 1000 * 1000 * 1000,
		      PATIENCE_HELD_UP_NS = (uint64_t)30 * 1000 * 1000 * 1000;

static bool
needs_context(struct ca_space *space, uint64_t bound)
{
	return !ca_order_has_nothing_unseen(space, bound) ||
	       ca_order_needs_context_mark(space, bound);
}

static void
query_streams(struct ca_space *space)
{
	ca_outside_enter_locked(space);
	ca_order_mark_busy(space);
	ca_order_poll(space);
	ca_outside_leave(space);
}

bool
ca_await_query_locked(struct ca_space *space, uint64_t bound)
{
	if (ca_order_has_finished(space, bound))
		return true;
	query_streams(space);
	if (needs_context(space, bound))
		ca_context_mark_query_context_locked(space);
	ca_held_settle_locked(space);
	return ca_order_has_finished(space, bound);
}

static void
wait_for_stream(struct ca_stream_record *record, uint64_t bound)
{
	uint64_t last = atomic_load(&record->stream.last);
	struct ca_user user = { &record->stream, last < bound ? last : bound };

	if (!ca_record_has_finished(record, bound) && !ca_record_is_held_up(record))
		ca_order_wait_hard(&user);
}

static void
wait_for_context(struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t bound = ca_order_space_bound(space);
	int r;

	if (ca_order_is_held_up(&space->order))
		return;
	ca_outside_enter_locked(space);
	r = driver->context_synchronize(driver->self, space->context);
	if (!r)
		ca_order_space_finished(space, bound, false);
	ca_outside_leave(space);
	if (r != -EBUSY)
		CA_COUNT(space, host_syncs);
	if ((!r || r == -EBUSY) && space->awaited < bound)
		space->awaited = bound; /* in a capture nobody but the driver can tell */
	if (r == -EBUSY)
		space->untold = bound;
}

bool
ca_await_locked(struct ca_space *space, uint64_t bound)
{
	struct ca_stream_record *record;
	unsigned i;

	if (ca_order_has_finished(space, bound))
		return true;
	ca_outside_enter_locked(space);
	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		wait_for_stream(record, bound);
	ca_outside_leave(space);
	if (!ca_order_has_nothing_unseen(space, bound))
		wait_for_context(space);
	ca_held_settle_locked(space);
	if (!ca_order_has_finished(space, bound))
		return false;
	space->device->generation++;
	return true;
}

/* ---- asking, at the end of the memory */

struct wait {
	struct ca_space *space;
	uint64_t bound;
	ca_mark mark;        /* CA_MARK_NONE: none is needed so far, or to be had */
	uint64_t mark_bound; /* of the stamps that it covers */
	uint64_t progress;   /* ca_order_progress_to, when it was last looked at */
	uint64_t generation; /* of the device, at the beginning */
	uint64_t step_ns;
	bool exact;       /* what the driver's own free would have waited for is asked for, too */
	bool held_up;     /* and somebody else must let that go on */
	bool is_rejected; /* a capture, perhaps one whose begin was not seen, forbids the mark */
};

/* Nothing but a wait tells, and none is to be had in a capture. */
static void
rely_on_context(struct wait *wait, int r)
{
	struct ca_space *space = wait->space;

	wait->is_rejected = wait->is_rejected || r == -EBUSY;
	if (r == -ENOTSUP || r == -ENODATA ||
	    (r == -EBUSY && !ca_order_has_nothing_unseen(space, wait->bound)))
		wait_for_context(space);
	else if (ca_context_mark_is_lost(r))
		ca_context_mark_sync_locked(space);
}

static void
mark_context(struct wait *wait)
{
	struct ca_space *space = wait->space;
	const struct ca_driver *driver = &space->heap->driver;
	int r = -ENOTSUP;

	wait->mark_bound = ca_order_space_bound(space);
	ca_outside_enter_locked(space);
	if (!space->heap->no_marks)
		r = driver->mark_record(driver->self, space->context, &wait->mark);
	ca_outside_leave(space);
	if (r)
		rely_on_context(wait, r);
}

static void
drop_mark(struct wait *wait)
{
	struct ca_space *space = wait->space;
	const struct ca_driver *driver = &space->heap->driver;

	if (wait->mark == CA_MARK_NONE)
		return;
	ca_outside_enter_locked(space);
	driver->mark_drop(driver->self, wait->mark);
	ca_outside_leave(space);
	wait->mark = CA_MARK_NONE;
}

/* Of its own context: the work of others is not waited for. */
static void
query_context(struct wait *wait)
{
	struct ca_space *space = wait->space;
	const struct ca_driver *driver = &space->heap->driver;
	int r;

	if (wait->mark == CA_MARK_NONE)
		mark_context(wait);
	if (wait->mark == CA_MARK_NONE)
		return;
	ca_outside_enter_locked(space);
	r = driver->mark_query_own(driver->self, wait->mark);
	if (!r)
		ca_order_space_finished(space, wait->mark_bound, false);
	ca_outside_leave(space);
	if (!r && space->awaited < wait->mark_bound)
		space->awaited = wait->mark_bound;
	if (r && r != -EAGAIN && r != -EBUSY)
		rely_on_context(wait, r);
	if (r != -EAGAIN)
		drop_mark(wait);
}

/* True: all has finished. */
static bool
query(struct wait *wait)
{
	struct ca_space *space = wait->space;

	if (ca_order_has_finished(space, wait->bound))
		return true;
	query_streams(space);
	if (needs_context(space, wait->bound))
		query_context(wait);
	ca_held_settle_locked(space);
	return ca_order_has_finished(space, wait->bound);
}

static uint64_t
patience_ns(const struct wait *wait)
{
	if (CA_EXPOSURE_FORCED) /* a test that comes to the end of the memory all the time */
		return UNKNOWN_NS;
	if (wait->held_up)
		return PATIENCE_HELD_UP_NS;
	return ca_order_is_quiet(&wait->space->order) ? PATIENCE_QUIET_NS : PATIENCE_NS;
}

/* False: it was in vain for too long. */
static bool
step(struct wait *wait, struct ca_patience *patience)
{
	struct ca_space *space = wait->space;
	uint64_t progress = ca_order_progress_to(space, wait->bound);

	if (patience->over)
		return false;
	if (progress != wait->progress)
		patience->waited_ns = 0;
	wait->progress = progress;
	patience->over = patience->waited_ns >= patience_ns(wait);
	if (patience->over)
		return false;
	ca_outside_pause(space->heap, (long)wait->step_ns);
	patience->waited_ns += wait->step_ns;
	if (wait->step_ns < STEP_LAST_NS)
		wait->step_ns *= 2;
	return true;
}

/* A capture is in the way of all that could still be learned, and not for a moment only, as where
 * one begins. */
static bool
is_unknown(const struct wait *wait, const struct ca_patience *patience)
{
	const struct ca_driver *driver = &wait->space->heap->driver;

	return patience->waited_ns >= UNKNOWN_NS &&
	       ((wait->is_rejected && !ca_unmarked_waits_elsewhere_locked(wait->space)) ||
		driver->capturing(driver->self)) &&
	       !ca_order_has_mark_to_poll(wait->space, wait->bound);
}

/* 0: `is_over`; -EAGAIN: patience is; -EBUSY: it cannot be known. */
static int
await(struct wait *wait, struct ca_patience *patience, bool (*is_over)(struct wait *wait))
{
	struct ca_space *space = wait->space;
	bool waited = false;
	int r = 0;

	wait->step_ns = STEP_FIRST_NS;
	wait->progress = ca_order_progress_to(space, wait->bound);
	while (!is_over(wait)) {
		r = is_unknown(wait, patience) ? -EBUSY : step(wait, patience) ? 0 : -EAGAIN;
		if (r)
			break;
		waited = true;
	}
	drop_mark(wait);
	if (waited)
		CA_COUNT(space, host_syncs);
	return r;
}

int
ca_await_patiently_locked(struct ca_space *space, uint64_t bound, struct ca_patience *patience)
{
	uint64_t progress = ca_order_progress_to(space, bound);
	struct wait wait = { .space = space, .bound = bound };
	int r;

	if (ca_order_has_finished(space, bound))
		return 0;
	r = await(&wait, patience, query);
	if (r)
		return r;
	patience->waited_ns = 0;
	/* where work is not seen, each round of the ladder asks anew: no news by itself */
	space->device->generation += ca_order_progress_to(space, bound) != progress;
	return 0;
}

/* Nobody must let it go on any more: it can be waited for. */
static bool
was_held_up(const struct wait *wait)
{
	return wait->held_up && !ca_deferred_is_held_up_locked(wait->space);
}

/* Also what waits for a mark of the context, or for work of other contexts. */
static bool
query_any(struct wait *wait)
{
	struct ca_space *space = wait->space, *other;
	bool finished;

	ca_context_mark_poll_locked(space);
	if (ca_unmarked_waits_elsewhere_locked(space))
		for (other = space->heap->spaces; other; other = other->next)
			if (other != space && !other->dead)
				query_streams(other);
	finished = query(wait) && !ca_unmarked_waits_elsewhere_locked(space) &&
		   !(wait->exact && ca_context_mark_has_own_locked(space, CA_WAIT_ANY));
	return finished || was_held_up(wait) || space->device->generation != wait->generation;
}

int
ca_await_any_locked(struct ca_space *space, bool exact, struct ca_patience *patience)
{
	struct wait wait = { .space = space,
			     .bound = ca_order_space_bound(space),
			     .exact = exact,
			     .held_up = exact && ca_deferred_is_held_up_locked(space) };
	int r;

	ca_context_mark_mark_unmarked_locked(space);
	wait.is_rejected = !ca_list_empty(&space->unmarked);
	wait.generation = space->device->generation;
	r = await(&wait, patience, query_any);
	ca_context_mark_poll_locked(space);
	if (space->device->generation != wait.generation || was_held_up(&wait))
		return 1;
	return r == -EBUSY ? r : 0;
}
