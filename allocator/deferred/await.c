/* SPDX-License-Identifier: MIT */
/*
 * Memory that may still be used, and is to go back to the driver.
 *
 * No documentation says that the driver's free waits for work on the memory. So a segment that is
 * due goes back when everything that was submitted until it became due has finished, by our own
 * marks. That is asked; or the host waits for it, where the driver's free would have waited too: at
 * the end of the memory, and in the program's own free. Then each stream is waited for by its mark,
 * or as a whole. A stream that somebody else must let go on is never waited for: that may need the
 * calling thread. Where work is not seen, that takes a mark on the context, or its synchronisation;
 * in a capture neither is to be had, and the driver's free is relied upon after all. The work of
 * other contexts is not waited for, as natively it would not be.
 */
#include "allocator/deferred/deferred.h"

#include <errno.h>

#include "allocator/core/lock.h"

bool
ca_await_query_locked(struct ca_space *space, uint64_t bound)
{
	const struct ca_driver *driver = &space->heap->driver;

	if (ca_order_has_finished(space, bound))
		return true;
	ca_outside_enter_locked(space);
	if (!driver->capturing(driver->self)) {
		ca_order_mark_busy(space);
		ca_order_poll(space);
	}
	ca_outside_leave(space);
	if (!ca_order_has_nothing_unseen(space, bound))
		ca_context_mark_query_context_locked(space);
	ca_held_settle_locked(space);
	return ca_order_has_finished(space, bound);
}

static void
wait_for_stream(struct ca_stream_record *record, uint64_t bound)
{
	uint64_t last = atomic_load(&record->hot.last);
	struct ca_user user = { &record->hot, last < bound ? last : bound };

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
