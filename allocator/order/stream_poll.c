/* SPDX-License-Identifier: MIT */
/*
 * The driver is asked about streams, or waited for.
 *
 * Where many wait the oldest mark of each stream is asked, and recorded before where blocks wait
 * for one. Of a single user its own mark is asked; where it has none, nothing was submitted since
 * the free, or nearly so, and the stream itself tells as much, with one call instead of two.
 */
#include "allocator/order/internal.h"

#include <errno.h>

#include "config/branch.h"

/* The oldest unfinished point, for a question to the driver, with a reference. A mark on a stream
 * that is not armed may cover work submitted after a free. */
static struct ca_stream_mark *
oldest_get(struct ca_stream_record *record, bool *ret_record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point;

	ca_order_lock(order);
	point = ca_stream_mark_find_ordered(record, atomic_load(&record->done) + 1);
	if (point)
		point->references++;
	*ret_record = !point && ca_record_is_busy(record) &&
		      ca_record_is_nameable_ordered(record) && !atomic_load(&record->lost) &&
		      (atomic_load(&record->stream.armed) || ca_order_is_quiet_ordered(order));
	if (*ret_record && !atomic_load(&record->stream.armed))
		ca_raise(&record->exact_after, atomic_load(&record->stream.last));
	ca_order_unlock(order);
	return point;
}

static int
poll_stream(struct ca_stream_record *record)
{
	const struct ca_driver *driver = &record->space->heap->driver;
	bool want;
	int r = 0;

	while (!r) {
		struct ca_stream_mark *point = oldest_get(record, &want);

		if (want)
			r = ca_stream_mark_record_to_poll(record, &point);
		if (r || !point)
			break;
		r = ca_stream_mark_query(record, point, driver->mark_query);
	}
	return r == -EAGAIN || r == -ENODEV ? 0 : r;
}

/* Nothing was submitted since the free that armed the stream, or no mark tells: the stream itself
 * does. It is pinned. */
static bool
query_stream(struct ca_stream_record *record, void *handle)
{
	const struct ca_driver *driver = &record->space->heap->driver;
	uint64_t bound = ca_order_bound(&record->stream);
	int r = driver->stream_query(driver->self, record->space->context, handle);

	ca_stream_mark_note_answer(record, NULL, bound, r);
	return !r;
}

bool
ca_order_poll_user(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point;
	bool pinned = false;
	void *handle;

	ca_order_lock(order);
	point = ca_stream_mark_find_ordered(record, user->stamp);
	if (point)
		point->references++;
	else
		pinned = !atomic_load(&record->lost) && ca_record_pin_ordered(record, &handle);
	ca_order_unlock(order);
	if (point)
		return !ca_stream_mark_query(record, point, record->space->heap->driver.mark_query);
	return pinned && query_stream(record, handle);
}

/* ---- memory whose free named its stream */

/* The point that covers the user, with a reference; or NULL, and whether one can be recorded. */
static struct ca_stream_mark *
told_get(struct ca_stream_record *record, uint64_t stamp, bool *ret_record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point;

	ca_order_lock(order);
	point = ca_stream_mark_find_ordered(record, stamp);
	if (point)
		point->references++;
	*ret_record =
		!point && ca_record_is_nameable_ordered(record) && !atomic_load(&record->lost);
	if (*ret_record && !atomic_load(&record->stream.armed) && ca_order_is_quiet_ordered(order))
		ca_raise(&record->exact_after, atomic_load(&record->stream.last));
	ca_order_unlock(order);
	return point;
}

bool
ca_polled_mark_poll(struct ca_polled_mark *polled, struct ca_space *space, uint64_t bound,
		    uint64_t *ret_bound)
{
	const struct ca_driver *driver = &space->heap->driver;
	int r = 0;

	if (atomic_exchange(&polled->busy, true))
		return false;
	if (polled->mark == CA_MARK_NONE) {
		r = driver->mark_record(driver->self, space->context, &polled->mark);
		polled->bound = bound;
	}
	if (!r) {
		r = driver->mark_query(driver->self, polled->mark);
		*ret_bound = polled->bound;
		if (r != -EAGAIN && r != -EBUSY)
			ca_polled_mark_drop(polled, driver);
	}
	atomic_store(&polled->busy, false);
	return !r;
}

void
ca_polled_mark_drop(struct ca_polled_mark *polled, const struct ca_driver *driver)
{
	if (polled->mark != CA_MARK_NONE)
		driver->mark_drop(driver->self, polled->mark);
	polled->mark = CA_MARK_NONE;
}

void
ca_order_poll_context(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	uint64_t bound;

	if (ca_polled_mark_poll(&order->polled, space, ca_order_context_bound(order), &bound))
		ca_order_context_finished(order, bound);
}

bool
ca_told_poll(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	struct ca_stream_mark *point;
	bool wants;

	if (ca_user_is_done(user))
		return true;
	point = told_get(record, user->stamp, &wants);
	if (wants)
		(void)ca_stream_mark_record_to_poll(record, &point);
	if (point)
		ca_stream_mark_query(record, point, record->space->heap->driver.mark_query);
	else if (!wants && !ca_user_is_done(user))
		ca_order_poll_context(record->space);
	return ca_user_is_done(user);
}

/* Points that something else than a point has overtaken. */
static void
drop_covered(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record;
	struct ca_list dropped;
	unsigned i;

	ca_list_init(&dropped);
	ca_order_lock(order);
	for (i = 0; (record = ca_record_at(order, i)); i++)
		ca_stream_marks_collect_ordered(record, &dropped);
	ca_order_unlock(order);
	ca_stream_marks_drop(space, &dropped);
}

int
ca_order_poll(struct ca_space *space)
{
	struct ca_stream_record *record;
	int first = 0;
	unsigned i;

	drop_covered(space);
	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		if (ca_record_is_busy(record)) {
			int r = poll_stream(record);

			if (!first)
				first = r;
		}
	return first;
}

bool
ca_order_may_wait(const struct ca_user *user)
{
	int r;

	if (ca_user_is_done(user))
		return true;
	(void)ca_stream_mark_is_missing(ca_record(user->stream), user->stamp, &r);
	return !r;
}

int
ca_order_wait(struct ca_space *space, const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	struct ca_stream_mark *point;
	bool missing;
	int r;

	if (ca_user_is_done(user))
		return 0;
	missing = ca_stream_mark_is_missing(record, user->stamp, &r);
	if (!r && missing)
		r = ca_stream_mark_record(record);
	if (r == -ENODEV || r == -ENOMEM || r == -ENOTSUP)
		r = -EAGAIN;
	point = r ? NULL : ca_stream_mark_get(record, user->stamp);
	if (point)
		r = ca_stream_mark_query(record, point, space->heap->driver.mark_wait);
	return ca_user_is_done(user) ? 0 : r ? r : -EAGAIN;
}
