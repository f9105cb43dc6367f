/* SPDX-License-Identifier: MIT */
/*
 * Points: the marks recorded on a stream, in the order in which the driver's calls returned.
 *
 * The bound is taken before the driver's call, the point published after it. The first published
 * point that covers a stamp is the exact one: a thread that found the stream armed recorded and
 * published a point before submitting anything, so nothing submitted after the free lies before the
 * first. `armed` holds a number; it is cleared only if nobody armed the stream again meanwhile.
 *
 * A host far ahead of the device has thousands of points. Only one with a larger bound than all
 * that were published before is ever the first that covers a stamp; these are in a tree.
 */
#include "allocator/order/internal.h"

#include <errno.h>

#include "config/branch.h"

struct ca_stream_mark *
ca_stream_mark_find_ordered(struct ca_stream_record *record, uint64_t stamp)
{
	struct ca_tree_node *node = ca_tree_at_least(&record->by_bound, stamp, 0);

	return node ? CA_CONTAINER_OF(node, struct ca_stream_mark, node) : NULL;
}

struct ca_stream_mark *
ca_stream_mark_get(struct ca_stream_record *record, uint64_t stamp)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point;

	ca_order_lock(order);
	point = ca_stream_mark_find_ordered(record, stamp);
	if (point)
		point->references++;
	ca_order_unlock(order);
	return point;
}

static void
unreference_ordered(struct ca_stream_mark *point, struct ca_list *dropped)
{
	if (!--point->references)
		ca_list_insert(dropped, &point->link);
}

void
ca_stream_mark_put(struct ca_stream_record *record, struct ca_stream_mark *point)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_list dropped;

	ca_list_init(&dropped);
	ca_order_lock(order);
	unreference_ordered(point, &dropped);
	ca_order_unlock(order);
	ca_stream_marks_drop(record->space, &dropped);
}

void
ca_stream_marks_collect_ordered(struct ca_stream_record *record, struct ca_list *dropped)
{
	uint64_t done = atomic_load(&record->done);

	while (!ca_list_empty(&record->points)) {
		struct ca_stream_mark *point =
			CA_CONTAINER_OF(record->points.next, struct ca_stream_mark, link);

		if (point->bound > done)
			return;
		ca_list_remove(&point->link);
		ca_tree_remove(&record->by_bound, &point->node);
		unreference_ordered(point, dropped);
	}
}

void
ca_stream_marks_drop(struct ca_space *space, struct ca_list *dropped)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_order *order = &space->order;

	while (!ca_list_empty(dropped)) {
		struct ca_stream_mark *point =
			CA_CONTAINER_OF(dropped->next, struct ca_stream_mark, link);

		ca_list_remove(&point->link);
		driver->mark_drop(driver->self, point->mark);
		ca_order_lock(order);
		ca_objects_put(&order->points, point);
		ca_order_unlock(order);
	}
}

void
ca_record_set_lost(struct ca_stream_record *record)
{
	atomic_store(&record->lost, true);
	atomic_store(&record->stream.armed, 0);
	ca_order_note_progress(ca_record_order(record));
}

/* ---- recording */

/* Memory freed so far is followed by work that no point separates from it. */
static void
drop_exact(struct ca_stream_record *record, int r)
{
	struct ca_order *order = ca_record_order(record);

	CA_REACHED(POINT_REFUSED);
	ca_order_lock(order);
	ca_raise(&record->exact_after, atomic_load(&record->stream.last));
	ca_order_unlock(order);
	if (r != -EBUSY && r != -ENOMEM)
		ca_record_set_lost(record);
}

static void
publish(struct ca_stream_record *record, struct ca_stream_mark *point, uint64_t armed)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_list dropped;

	CA_REACHED(POINT_RECORDED);
	ca_list_init(&dropped);
	ca_order_lock(order);
	point->references = 1;
	ca_list_insert(&record->points, &point->link);
	if (ca_stream_mark_find_ordered(record, point->bound))
		CA_REACHED(POINT_SAME_BOUND);
	else
		ca_tree_insert(&record->by_bound, &point->node, point->bound, 0);
	ca_stream_marks_collect_ordered(record, &dropped); /* this one, too, if the space is dead */
	atomic_compare_exchange_strong(&record->stream.armed, &armed, 0);
	ca_order_unlock(order);
	ca_stream_marks_drop(record->space, &dropped);
}

static struct ca_stream_mark *
point_new(struct ca_order *order)
{
	struct ca_stream_mark *point;

	ca_order_lock(order);
	point = ca_objects_get(&order->points);
	if (point) {
		ca_list_init(&point->link);
		point->bound = ca_order_advance(order);
	}
	ca_order_unlock(order);
	return point;
}

static void
point_free(struct ca_order *order, struct ca_stream_mark *point)
{
	ca_order_lock(order);
	ca_objects_put(&order->points, point);
	ca_order_unlock(order);
}

static int
record_pinned(struct ca_stream_record *record, void *handle)
{
	struct ca_space *space = record->space;
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t armed = atomic_load(&record->stream.armed);
	struct ca_stream_mark *point = point_new(&space->order);
	int r;

	if (!point)
		return -ENOMEM;
	r = driver->stream_mark(driver->self, space->context, handle, &point->mark);
	if (r) {
		point_free(&space->order, point);
		return r;
	}
	atomic_fetch_add(&space->order.marks, 1);
	publish(record, point, armed);
	return 0;
}

int
ca_stream_mark_try(struct ca_stream_record *record)
{
	void *handle;
	int r;

	if (!ca_record_pin(record, &handle))
		return -ENODEV;
	r = record_pinned(record, handle);
	ca_record_unpin(record);
	return r;
}

int
ca_stream_mark_record(struct ca_stream_record *record)
{
	int r = ca_stream_mark_try(record);

	if (r && r != -ENODEV)
		drop_exact(record, r);
	return r;
}

/* True if a mark is missing; otherwise whatever armed the stream is served. */
static bool
is_due(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	uint64_t armed, last;
	bool due;

	ca_order_lock(order);
	armed = atomic_load(&record->stream.armed);
	last = atomic_load(&record->stream.last);
	due = last > atomic_load(&record->done) && !ca_stream_mark_find_ordered(record, last);
	if (!due)
		atomic_compare_exchange_strong(&record->stream.armed, &armed, 0);
	ca_order_unlock(order);
	return due;
}

int
ca_stream_mark_record_if_due(struct ca_stream_record *record)
{
	if (is_due(record))
		return ca_stream_mark_record(record);
	CA_REACHED(POINT_NOT_DUE);
	return 0;
}

bool
ca_record_is_unmarked_ordered(struct ca_stream_record *record)
{
	uint64_t exposed = atomic_load(&record->exposed);

	return exposed > atomic_load(&record->done) &&
	       !ca_stream_mark_find_ordered(record, exposed);
}

static struct ca_stream_record *
next_unmarked(struct ca_order *order, unsigned *at)
{
	struct ca_stream_record *record;

	ca_order_lock(order);
	for (; (record = ca_order_next_active_ordered(order, at)); ++*at)
		if (ca_record_is_unmarked_ordered(record))
			break;
	ca_order_unlock(order);
	return record;
}

void
ca_order_mark_exposed(struct ca_space *space)
{
	struct ca_stream_record *record;
	unsigned at;

	for (at = 0; (record = next_unmarked(&space->order, &at)); at++) {
		CA_REACHED(POINT_BEFOREHAND);
		ca_stream_mark_record(record);
	}
}

/* Exposed memory of a thread that has ended: no mark can be had, and in a capture no wait. */
static void
wait_for_lost(struct ca_space *space)
{
	struct ca_stream_record *record;
	unsigned at;

	for (at = 0; (record = next_unmarked(&space->order, &at)); at++)
		if (atomic_load(&record->lost))
			ca_order_wait_hard(&(struct ca_user){ &record->stream,
							      atomic_load(&record->exposed) });
}

void
ca_order_mark_before_capture(struct ca_heap *heap)
{
	struct ca_space *space;

	ca_heap_lock(heap);
	heap->hooks.flush_exposed(heap);
	space = heap->spaces;
	ca_heap_unlock(heap);
	for (; space; space = space->next) { /* spaces are never freed */
		ca_order_mark_exposed(space);
		ca_order_mark_busy(space); /* in the capture the ladder may have to wait for it */
		wait_for_lost(space);
	}
}

/* ---- asking */

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

/* 0: the point is done. An error other than "not yet": the stream is lost. */
static int
query(struct ca_stream_record *record, struct ca_stream_mark *point,
      int (*how)(void *self, ca_mark mark))
{
	int r = how(record->space->heap->driver.self, point->mark);

	if (!r) {
		CA_REACHED(POINT_FOUND_DONE);
		ca_order_finished(&record->stream, point->bound);
	} else if (r != -EAGAIN && r != -EBUSY) {
		ca_record_set_lost(record);
	}
	ca_stream_mark_put(record, point);
	return r;
}

/* For a question: no submission follows, so that a refusal by a capture costs no exact mark. */
static int
record_to_poll(struct ca_stream_record *record)
{
	int r = ca_stream_mark_try(record);

	if (r && r != -ENODEV && r != -EBUSY)
		drop_exact(record, r);
	return r;
}

static int
poll_stream(struct ca_stream_record *record)
{
	const struct ca_driver *driver = &record->space->heap->driver;
	bool want;
	int r = 0;

	while (!r) {
		struct ca_stream_mark *point = oldest_get(record, &want);

		if (point)
			r = query(record, point, driver->mark_query);
		else if (want)
			r = record_to_poll(record);
		else
			break;
	}
	return r == -EAGAIN || r == -ENODEV ? 0 : r;
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
	if (wants && !record_to_poll(record))
		point = ca_stream_mark_get(record, user->stamp);
	if (point)
		query(record, point, record->space->heap->driver.mark_query);
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

static bool
is_nameable(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	bool nameable;

	ca_order_lock(order);
	nameable = ca_record_is_nameable_ordered(record);
	ca_order_unlock(order);
	return nameable;
}

void
ca_order_mark_busy(struct ca_space *space)
{
	struct ca_stream_record *record;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		if (ca_record_is_busy(record) && !atomic_load(&record->lost) &&
		    is_nameable(record) && is_due(record))
			record_to_poll(record);
}

/* 0: there is an exact point, or one can be recorded (*ret_record); -EAGAIN. */
static int
exact_mark(struct ca_stream_record *record, uint64_t stamp, bool *ret_record)
{
	struct ca_order *order = ca_record_order(record);
	int r = -EAGAIN;

	*ret_record = false;
	ca_order_lock(order);
	if (stamp > atomic_load(&record->exact_after)) {
		if (ca_stream_mark_find_ordered(record, stamp))
			r = 0;
		else if (atomic_load(&record->stream.armed) &&
			 ca_record_is_nameable_ordered(record))
			*ret_record = true;
	}
	ca_order_unlock(order);
	return *ret_record ? 0 : r;
}

bool
ca_stream_mark_is_missing(struct ca_stream_record *record, uint64_t stamp, int *ret_code)
{
	bool missing;

	*ret_code = exact_mark(record, stamp, &missing);
	return missing;
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
	r = exact_mark(record, user->stamp, &missing);
	if (!r && missing)
		r = ca_stream_mark_record(record);
	if (r == -ENODEV || r == -ENOMEM || r == -ENOTSUP)
		r = -EAGAIN;
	point = r ? NULL : ca_stream_mark_get(record, user->stamp);
	if (point)
		r = query(record, point, space->heap->driver.mark_wait);
	return ca_user_is_done(user) ? 0 : r ? r : -EAGAIN;
}
