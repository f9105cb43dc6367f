/* SPDX-License-Identifier: MIT */
/*
 * Users of memory whose free names its stream (allocator/told/told.h).
 *
 * The program has ordered all use of such memory before the free, so the stream is the one user:
 * its stamp is the epoch at the free. Whatever makes a bound cover that stamp (a mark, an event of
 * the program, a synchronisation) read the bound afterwards, and so stands behind the work that the
 * stream was given before the free. A stream that is known to have finished all that it was given
 * is no user.
 *
 * But what a cache serves puts nothing into the stream. Where the driver itself would have ordered
 * that operation behind other streams, the legacy one and the blocking ones of a context, and later
 * work of theirs behind it, an operation is put there (ca_told_put_operation): for what reuses the
 * memory, and what tells of its end, may come later by nothing else. Their work that the operation
 * is not known to stand behind has users of what is freed, too.
 */
#include "allocator/order/internal.h"

#include <errno.h>

#include "config/mutant.h"

static uint64_t
stamp_now(struct ca_stream *stream)
{
	uint64_t epoch = atomic_load_explicit(&stream->words->epoch, memory_order_acquire);

	if (atomic_load_explicit(&stream->last, memory_order_acquire) < epoch)
		ca_submit_stamp(stream, epoch);
	return epoch | 1;
}

/* All that was submitted is known to have finished. */
static bool
is_through(struct ca_stream *stream)
{
	uint64_t last = atomic_load_explicit(&stream->last, memory_order_acquire);

	return last <= atomic_load(&ca_record(stream)->done);
}

static bool
is_blocking_with(const struct ca_stream_record *record, const struct ca_stream_record *other)
{
	enum ca_stream_kind kind = atomic_load(&record->kind), its = atomic_load(&other->kind);

	return record != other && its != CA_STREAM_NONBLOCKING &&
	       (kind == CA_STREAM_LEGACY || its == CA_STREAM_LEGACY);
}

static void
add(struct ca_told_users *users, struct ca_stream *stream)
{
	if (users->n == CA_TOLD_USERS_MAX)
		users->more = true;
	else
		users->user[users->n++] = (struct ca_user){ stream, atomic_load(&stream->last) };
}

/* Adds the streams that the driver orders with this one, and that have unfinished work stamped with
 * more than `joined`. */
static void
add_busy(struct ca_order *order, struct ca_stream_record *record, uint64_t joined,
	 struct ca_told_users *users)
{
	struct ca_stream_record *other;
	unsigned at;

	ca_order_lock(order);
	for (at = 0; (other = ca_order_next_active_ordered(order, &at)); at++)
		if (is_blocking_with(record, other) && atomic_load(&other->stream.last) > joined)
			add(users, &other->stream);
	ca_order_unlock(order);
}

void
ca_told_users_of(struct ca_stream *stream, struct ca_told_users *ret_users)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	uint64_t joined = atomic_load(&record->joined); /* before the stream may be seen through */

	ret_users->n = 0;
	ret_users->more = !ca_order_sees_all(order);
	ret_users->poll_serial = 0;
	if (ret_users->more || !is_through(stream))
		ret_users->user[ret_users->n++] = (struct ca_user){ stream, stamp_now(stream) };
	if (atomic_load(&record->kind) != CA_STREAM_NONBLOCKING && !CA_MUTANT(TOLD_LEGACY_ALONE))
		add_busy(order, record, joined, ret_users);
}

void
ca_told_users_add_all(struct ca_space *space, struct ca_told_users *users)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record;
	unsigned at;

	ca_order_lock(order);
	for (at = 0; (record = ca_order_next_active_ordered(order, &at)); at++)
		add(users, &record->stream);
	ca_order_unlock(order);
	if (!ca_order_sees_all(order))
		users->more = true;
}

bool
ca_told_is_after(struct ca_stream *stream, const struct ca_user *user, bool follows)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	bool after;

	if (user->stream == stream || ca_user_is_done(user))
		return true;
	if (!follows)
		return false;
	ca_order_lock(order);
	after = CA_MUTANT(TOLD_FOLLOWS_ANY)
			? ca_clock_includes_ordered(record, user->stream, 1)
			: ca_clock_includes_ordered(record, user->stream, user->stamp);
	ca_order_unlock(order);
	return after;
}

bool
ca_told_arm(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	struct ca_order *order = ca_record_order(record);
	bool armed;

	if (atomic_load_explicit(&order->candidates, memory_order_relaxed) <= 1)
		return false;
	ca_order_lock(order);
	armed = !atomic_load(&record->closed) && !record->submitting &&
		record->thread == ca_order_thread() && user->stamp > atomic_load(&record->done);
	if (armed) {
		atomic_store(&record->told_armed, record->arms + 1);
		ca_record_arm_ordered(record);
	}
	ca_order_unlock(order);
	return armed;
}

void
ca_told_mark_own(struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	const struct ca_heap *heap = record->space->heap;
	const struct ca_driver *driver = &heap->driver;

	if (atomic_load(&record->kind) != CA_STREAM_PER_THREAD || !atomic_load(&heap->told) ||
	    !driver->has_marks || driver->has_marks(driver->self))
		return;
	if (ca_stream_mark_is_due(record))
		(void)ca_stream_mark_record_to_poll(record, NULL);
}

bool
ca_told_is_idle(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	unsigned at = 0;
	bool idle;

	ca_order_lock(order);
	idle = !ca_order_next_active_ordered(order, &at);
	ca_order_unlock(order);
	return idle && ca_order_sees_all(order);
}

/* ---- operations */

uint64_t
ca_told_operation_begin(struct ca_stream *stream)
{
	return ca_told_needs_operation(stream)
		       ? ca_order_advance(ca_record_order(ca_record(stream)))
		       : 0;
}

void
ca_told_operation_end(struct ca_stream *stream, uint64_t bound, bool done)
{
	(void)stamp_now(stream);
	if (done)
		ca_raise(&ca_record(stream)->joined, bound);
}

/* The driver did not take it. */
static void
wait_for_ordered(struct ca_stream_record *record)
{
	struct ca_stream_record *other;
	unsigned i;

	for (i = 0; (other = ca_record_at(ca_record_order(record), i)); i++)
		if (is_blocking_with(record, other))
			(void)ca_order_wait_hard(&(struct ca_user){
				&other->stream, atomic_load(&other->stream.last) });
}

/* The mark of an earlier free comes before it: what the operation comes behind may wait for work
 * that waits for that mark. */
static int
put(struct ca_stream_record *record, void *handle)
{
	const struct ca_driver *driver = &record->space->heap->driver;
	static const struct ca_touch nothing;
	uint64_t bound;
	int r;

	ca_submit_begin(&record->stream, &nothing);
	bound = ca_order_advance(ca_record_order(record));
	r = driver->stream_operation(driver->self, record->space->context, handle);
	ca_told_operation_end(&record->stream, bound, !r);
	return r;
}

int
ca_told_put_operation(struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	void *handle;
	int r;

	if (!ca_told_needs_operation(stream) || !record->space->heap->driver.stream_operation ||
	    CA_MUTANT(TOLD_NO_OPERATION) || CA_MUTANT(TOLD_LEGACY_ALONE) ||
	    !ca_record_pin(record, &handle))
		return 0;
	r = put(record, handle);
	ca_record_unpin(record);
	if (r && r != -EBUSY)
		wait_for_ordered(record);
	return r == -EBUSY ? r : 0;
}
