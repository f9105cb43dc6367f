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
 * But the free puts nothing into the stream. Where the driver itself would have ordered that
 * operation behind other streams, the legacy one and the blocking ones of a context, these are
 * users as well, as far as they are busy: a mark on the named stream does not cover them. Nor does
 * an allocation put anything there, so that order, between the legacy stream and the blocking ones,
 * is no reason to hand out unfinished memory: a later use elsewhere would come after the allocation
 * only.
 */
#include "allocator/order/internal.h"

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

static void
add_busy(struct ca_order *order, struct ca_stream_record *record, struct ca_told_users *users)
{
	struct ca_stream_record *other;
	unsigned at;

	ca_order_lock(order);
	for (at = 0; (other = ca_order_next_active_ordered(order, &at)); at++)
		if (is_blocking_with(record, other))
			add(users, &other->stream);
	ca_order_unlock(order);
}

void
ca_told_users_of(struct ca_stream *stream, struct ca_told_users *ret_users)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);

	ret_users->n = 0;
	ret_users->more = false;
	ret_users->poll_serial = 0;
	if (!ca_order_sees_all(order) || !is_through(stream))
		ret_users->user[ret_users->n++] = (struct ca_user){ stream, stamp_now(stream) };
	if (atomic_load(&record->kind) == CA_STREAM_NONBLOCKING)
		return;
	if (!ca_order_sees_all(order))
		ret_users->more = true;
	if (atomic_load(&order->n_streams) > 1 && !CA_MUTANT(TOLD_LEGACY_ALONE))
		add_busy(order, record, ret_users);
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

void
ca_told_reused(struct ca_stream *stream)
{
	ca_record_note_reuse(ca_record(stream));
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
	if (armed)
		atomic_store(&record->stream.armed, ++record->arms);
	ca_order_unlock(order);
	return armed;
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
