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

/* So many marks of a stream are recorded for one question about them. With 32 a stream of which the
 * program asks nothing, and that works off each submission before the next, has 63 at most. */
enum { MARKS_A_QUESTION = 32 };
/* In a row, for want of memory. A device that was full for a moment has events again. */
enum { UNMADE_MAX = 8 };

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

void
ca_stream_mark_unreference_ordered(struct ca_stream_mark *point, struct ca_list *dropped)
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
	ca_stream_mark_unreference_ordered(point, &dropped);
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
		ca_stream_mark_unreference_ordered(point, dropped);
	}
}

void
ca_stream_marks_drop(struct ca_space *space, struct ca_list *dropped)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_order *order = &space->order;

	if (ca_list_empty(dropped))
		return;
	CA_LIST_EACH(struct ca_stream_mark, point, dropped, link)
		driver->mark_drop(driver->self, point->mark);
	ca_order_lock(order);
	CA_LIST_EACH_SAFE(struct ca_stream_mark, point, dropped, link) {
		ca_list_remove(&point->link);
		ca_objects_put(&order->points, point);
	}
	ca_order_unlock(order);
}

void
ca_record_set_lost(struct ca_stream_record *record)
{
	atomic_store(&record->lost, true);
	atomic_store(&record->stream.armed, 0);
	ca_order_note_progress(ca_record_order(record));
}

/* ---- answers */

void
ca_stream_mark_note_answer(struct ca_stream_record *record, struct ca_stream_mark *point,
			   uint64_t bound, int r)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_list dropped;

	ca_list_init(&dropped);
	ca_order_lock(order);
	if (!r)
		ca_record_finished_ordered(record, bound, &dropped);
	if (point)
		ca_stream_mark_unreference_ordered(point, &dropped);
	else
		record->calls--;
	ca_order_unlock(order);
	if (r && r != -EAGAIN && r != -EBUSY)
		ca_record_set_lost(record);
	ca_stream_marks_drop(record->space, &dropped);
}

int
ca_stream_mark_query(struct ca_stream_record *record, struct ca_stream_mark *point,
		     int (*how)(void *self, ca_mark mark))
{
	int r = how(record->space->heap->driver.self, point->mark);

	if (!r)
		CA_REACHED(POINT_FOUND_DONE);
	ca_stream_mark_note_answer(record, point, point->bound, r);
	return r;
}

/* Asks about the middle one of the marks, so that they do not pile up where nobody else asks: twice
 * as many stay as there is work of. */
static void
poll_marks(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point;
	uint64_t done;

	ca_order_lock(order);
	done = atomic_load(&record->done);
	point = ca_record_is_busy(record)
			? ca_stream_mark_find_ordered(
				  record, done + (atomic_load(&record->stream.last) - done) / 2)
			: NULL;
	if (point)
		point->references++;
	ca_order_unlock(order);
	if (point)
		(void)ca_stream_mark_query(record, point, record->space->heap->driver.mark_query);
}

/* ---- recording */

/* Of the stream's work, or what it was armed for. */
static uint64_t
largest_wanted_ordered(struct ca_stream_record *record)
{
	uint64_t last = atomic_load(&record->stream.last);

	return last > record->wanted ? last : record->wanted;
}

/* Memory freed so far is followed by work that no point separates from it, unless only a poll
 * wanted the mark. */
static void
note_failed(struct ca_stream_record *record, int r, bool to_poll)
{
	struct ca_order *order = ca_record_order(record);
	bool lost;

	CA_REACHED(POINT_REFUSED);
	ca_order_lock(order);
	if (!to_poll || r != -ENOMEM)
		ca_raise(&record->exact_after, largest_wanted_ordered(record));
	lost = r != -EBUSY &&
	       (r != -ENOMEM || atomic_fetch_add(&record->unmade, 1) + 1 == UNMADE_MAX);
	ca_order_unlock(order);
	if (lost)
		ca_record_set_lost(record);
}

/* A mark that is being recorded; the stream's handle is pinned. */
struct recording {
	struct ca_stream_mark *point;
	void *handle;
	uint64_t armed; /* the stream's, before the bound */
};

/* If not, whatever armed the stream is served. */
static bool
is_due_ordered(struct ca_stream_record *record)
{
	uint64_t armed = atomic_load(&record->stream.armed);
	uint64_t stamp = largest_wanted_ordered(record);

	if (stamp > atomic_load(&record->done) && !ca_stream_mark_find_ordered(record, stamp))
		return true;
	atomic_compare_exchange_strong(&record->stream.armed, &armed, 0);
	return false;
}

/* 0; -ENODEV: the handle is not to be named; -ENOMEM; -EALREADY: it was to be recorded if due, and
 * is not. */
static int
recording_begin(struct ca_stream_record *record, bool if_due, struct recording *recording)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point = NULL;
	int r = -ENODEV;

	ca_order_lock(order);
	if (if_due && !is_due_ordered(record)) {
		r = -EALREADY;
	} else if (ca_record_pin_ordered(record, &recording->handle)) {
		point = ca_objects_get(&order->points);
		r = point ? 0 : -ENOMEM;
	}
	if (point) {
		ca_list_init(&point->link);
		recording->armed = atomic_load(&record->stream.armed);
		point->bound = ca_order_advance(order);
	} else if (r == -ENOMEM) {
		record->calls--;
	}
	ca_order_unlock(order);
	recording->point = point;
	return r;
}

/* The mark is published; unless *ret_point is NULL it has a reference of the caller's. True: it is
 * time for poll_marks. */
static bool
recording_end(struct ca_stream_record *record, struct recording *recording,
	      struct ca_stream_mark **ret_point)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point = recording->point;
	struct ca_list dropped;
	bool asks;

	CA_REACHED(POINT_RECORDED);
	ca_list_init(&dropped);
	ca_order_lock(order);
	record->calls--;
	atomic_store_explicit(&record->unmade, 0, memory_order_relaxed);
	asks = !(++record->marked % MARKS_A_QUESTION);
	point->references = 1 + (ret_point != NULL);
	ca_list_insert(&record->points, &point->link);
	if (ca_stream_mark_find_ordered(record, point->bound))
		CA_REACHED(POINT_SAME_BOUND);
	else
		ca_tree_insert(&record->by_bound, &point->node, point->bound, 0);
	ca_stream_marks_collect_ordered(record, &dropped); /* this one, too, if the space is dead */
	atomic_compare_exchange_strong(&record->stream.armed, &recording->armed, 0);
	ca_order_unlock(order);
	if (ret_point)
		*ret_point = point;
	ca_stream_marks_drop(record->space, &dropped);
	return asks;
}

static CA_APART void
recording_give_up(struct ca_stream_record *record, struct recording *recording)
{
	struct ca_order *order = ca_record_order(record);

	ca_order_lock(order);
	record->calls--;
	ca_objects_put(&order->points, recording->point);
	ca_order_unlock(order);
}

/* As ca_stream_mark_try; `ret_point` not NULL: the mark, with a reference. */
static int
record_mark(struct ca_stream_record *record, bool if_due, struct ca_stream_mark **ret_point)
{
	struct ca_space *space = record->space;
	const struct ca_driver *driver = &space->heap->driver;
	struct recording recording;
	int r = recording_begin(record, if_due, &recording);

	if (r)
		return r;
	r = driver->stream_mark(driver->self, space->context, recording.handle,
				&recording.point->mark);
	if (r) {
		recording_give_up(record, &recording);
		return r;
	}
	atomic_fetch_add(&space->order.counts->marks, 1);
	if (recording_end(record, &recording, ret_point))
		poll_marks(record);
	return 0;
}

int
ca_stream_mark_try(struct ca_stream_record *record)
{
	return record_mark(record, false, NULL);
}

int
ca_stream_mark_record(struct ca_stream_record *record)
{
	int r = ca_stream_mark_try(record);

	if (r && r != -ENODEV)
		note_failed(record, r, false);
	return r;
}

int
ca_stream_mark_record_if_due(struct ca_stream_record *record)
{
	int r = record_mark(record, true, NULL);

	if (r == -EALREADY) {
		CA_REACHED(POINT_NOT_DUE);
		return 0;
	}
	if (r && r != -ENODEV)
		note_failed(record, r, false);
	return r;
}

/* No submission follows, so that a refusal by a capture costs no exact mark. */
int
ca_stream_mark_record_to_poll(struct ca_stream_record *record, struct ca_stream_mark **ret_point)
{
	int r = record_mark(record, false, ret_point);

	if (r && r != -ENODEV && r != -EBUSY)
		note_failed(record, r, true);
	return r;
}

bool
ca_stream_mark_is_due(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	bool due;

	ca_order_lock(order);
	due = is_due_ordered(record);
	ca_order_unlock(order);
	return due;
}

bool
ca_record_is_unmarked_ordered(struct ca_stream_record *record)
{
	uint64_t exposed = atomic_load(&record->exposed);

	return exposed > atomic_load(&record->done) &&
	       !ca_stream_mark_find_ordered(record, exposed);
}

bool
ca_record_is_unmarked(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	bool unmarked;

	ca_order_lock(order);
	unmarked = ca_record_is_unmarked_ordered(record);
	ca_order_unlock(order);
	return unmarked;
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

/* Exposed memory of a thread's own stream, which only that thread could mark and may have ended, or
 * on a full device: no mark can be had, and in a capture no wait. */
static void
wait_for_unmarked(struct ca_space *space)
{
	struct ca_stream_record *record;
	unsigned at;

	for (at = 0; (record = next_unmarked(&space->order, &at)); at++)
		if (atomic_load(&record->lost) || atomic_load(&record->unmade) ||
		    !is_nameable(record))
			ca_order_wait_hard(&(struct ca_user){ &record->stream,
							      atomic_load(&record->exposed) });
}

void
ca_order_mark_busy(struct ca_space *space)
{
	struct ca_stream_record *record;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		if (ca_record_is_busy(record) && !atomic_load(&record->lost) &&
		    is_nameable(record) && ca_stream_mark_is_due(record))
			ca_stream_mark_record_to_poll(record, NULL);
}

bool
ca_stream_mark_is_missing(struct ca_stream_record *record, uint64_t stamp, int *ret_code)
{
	struct ca_order *order = ca_record_order(record);
	bool missing = false;

	*ret_code = -EAGAIN;
	ca_order_lock(order);
	if (stamp > atomic_load(&record->exact_after)) {
		if (ca_stream_mark_find_ordered(record, stamp))
			*ret_code = 0;
		else
			missing = atomic_load(&record->stream.armed) &&
				  ca_record_is_nameable_ordered(record);
	}
	ca_order_unlock(order);
	if (missing)
		*ret_code = 0;
	return missing;
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
		wait_for_unmarked(space);
	}
}
