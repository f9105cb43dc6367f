/* SPDX-License-Identifier: MIT */
/*
 * The lessons of the program's own events.
 *
 * A stream's clock says what its next submission comes after: parts (other stream, stamp). It grows
 * by the waits that the guard or the program inserts. Of the own space every stream is kept;
 * besides, the few parts learned last, for the events that are recorded: forgetting one only costs
 * a wait that was not needed. `known_epoch` is read after the wait's real call has returned, and a
 * bound is taken before its own: a bound that is not smaller belongs to a mark behind the wait.
 *
 * An event's snapshot (stream, bound, the stream's clock) is a seqlock: the sequence is odd from
 * before the real record until after it, and moves with every record that begins. Bound and clock
 * are taken before the real record. A user of the snapshot looks at the sequence before and after
 * its own real call: if they differ, the event may have stood for something else when the driver
 * looked, and nothing is learned. Of two records that overlap nobody but the driver knows which
 * came last, so neither is published. Writers of one event exclude each other by the order lock of
 * their space.
 */
#include "allocator/order/internal.h"

#include "config/mutant.h"

/* ---- clocks */

bool
ca_clock_includes_ordered(const struct ca_stream_record *record, const struct ca_stream *stream,
			  uint64_t stamp)
{
	const struct ca_stream_record *other = (const struct ca_stream_record *)stream;
	unsigned i;

	if (other->space == record->space)
		return record->known[other->index] >= stamp;
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (record->clock[i].stream == stream)
			return record->clock[i].stamp >= stamp;
	return false;
}

static bool
is_after_ordered(const struct ca_stream_record *record, const struct ca_users *users)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		if (users->user[i].stream != &record->stream && !ca_user_is_done(&users->user[i]) &&
		    !ca_clock_includes_ordered(record, users->user[i].stream, users->user[i].stamp))
			return false;
	return !users->context;
}

bool
ca_order_is_after(struct ca_stream_record *record, const struct ca_users *users)
{
	struct ca_order *order = ca_record_order(record);
	bool result;

	ca_order_lock(order);
	result = is_after_ordered(record, users);
	ca_order_unlock(order);
	return result;
}

static bool
is_useless(const struct ca_clock_part *part)
{
	return !part->stream || atomic_load(&ca_record(part->stream)->done) >= part->stamp;
}

/* The part of `stream`, or else one that may be overwritten. */
static struct ca_clock_part *
part_for(struct ca_stream_record *record, const struct ca_stream *stream)
{
	unsigned i;

	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (record->clock[i].stream == stream)
			return &record->clock[i];
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (is_useless(&record->clock[i]))
			return &record->clock[i];
	return &record->clock[record->clock_next++ % CA_CLOCK_PARTS];
}

/* `done`: nobody has to wait for the stamp, so what stands for it need not be behind the wait. */
static void
includes(struct ca_stream_record *record, uint64_t *known, uint64_t stamp, bool done)
{
	if (*known >= stamp)
		return;
	*known = stamp;
	if (done)
		return;
	record->known_epoch = atomic_load(&record->stream.words->epoch);
	atomic_fetch_add(&record->known_generation, 1);
}

void
ca_clock_update_ordered(struct ca_stream_record *record, struct ca_stream *stream, uint64_t stamp)
{
	struct ca_clock_part *part;
	bool done = atomic_load(&ca_record(stream)->done) >= stamp;

	if (stream == &record->stream)
		return;
	if (ca_record(stream)->space == record->space)
		includes(record, &record->known[ca_record(stream)->index], stamp, done);
	if (done)
		return;
	part = part_for(record, stream);
	if (part->stream != stream)
		*part = (struct ca_clock_part){ stream, stamp };
	else if (part->stamp < stamp)
		part->stamp = stamp;
}

/* ---- snapshots: every word is atomic, for readers look while a writer writes */

static void
part_store(struct ca_clock_part *place, struct ca_clock_part part)
{
	__atomic_store_n(&place->stream, part.stream, __ATOMIC_RELEASE);
	__atomic_store_n(&place->stamp, part.stamp, __ATOMIC_RELEASE);
}

static struct ca_clock_part
part_load(const struct ca_clock_part *place)
{
	struct ca_clock_part part;

	part.stream = __atomic_load_n(&place->stream, __ATOMIC_ACQUIRE);
	part.stamp = __atomic_load_n(&place->stamp, __ATOMIC_ACQUIRE);
	return part;
}

/* Odd, and a number that nobody else has. */
static uint64_t
reset(struct ca_event *event)
{
	uint64_t was = atomic_load(&event->sequence), is;

	do
		is = was + (was & 1 ? 2 : 1);
	while (!atomic_compare_exchange_weak(&event->sequence, &was, is));
	return is;
}

struct ca_event_record
ca_event_record_begin(struct ca_event *event, struct ca_stream *stream)
{
	struct ca_event_record begun = { 0 };
	struct ca_stream_record *record = ca_record(stream);
	bool alone = atomic_fetch_add(&event->recording, 1) == 0;
	unsigned i;

	begun.sequence = reset(event);
	if (!alone)
		begun.sequence = 0; /* never the sequence of a record in progress */
	if (!stream || !alone)
		return begun;
	begun.bound = ca_order_bound(stream);
	ca_order_lock(ca_record_order(record));
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (!is_useless(&record->clock[i]))
			begun.clock[i] = record->clock[i];
	ca_order_unlock(ca_record_order(record));
	return begun;
}

static void
publish_ordered(struct ca_event *event, struct ca_stream *stream,
		const struct ca_event_record *begun)
{
	uint64_t sequence = begun->sequence;
	unsigned i;

	/* One that began between our count and our sequence is still counted, or has moved the
	 * sequence at its end. */
	if (atomic_load(&event->recording) != 1 || atomic_load(&event->sequence) != sequence)
		return;
	__atomic_store_n(&event->stream, stream, __ATOMIC_RELEASE);
	__atomic_store_n(&event->bound, begun->bound, __ATOMIC_RELEASE);
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		part_store(&event->clock[i], begun->clock[i]);
	atomic_compare_exchange_strong(&event->sequence, &sequence, sequence + 1);
}

void
ca_event_record_end(struct ca_event *event, struct ca_stream *stream, struct ca_event_record record,
		    bool done)
{
	struct ca_order *order = stream ? ca_record_order(ca_record(stream)) : NULL;

	if (order && done && record.sequence) { /* else it stays invalid */
		ca_order_lock(order);
		publish_ordered(event, stream, &record);
		ca_order_unlock(order);
	}
	if (!record.sequence)
		reset(event);
	atomic_fetch_sub(&event->recording, 1);
}

void
ca_event_forget(struct ca_event *event)
{
	reset(event);
}

void
ca_event_copy(struct ca_event *event, struct ca_event_copy *ret_copy)
{
	struct ca_event_copy copy = { 0 };
	unsigned i;

	copy.sequence = atomic_load(&event->sequence);
	copy.stream = __atomic_load_n(&event->stream, __ATOMIC_ACQUIRE);
	copy.bound = __atomic_load_n(&event->bound, __ATOMIC_ACQUIRE);
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		copy.clock[i] = part_load(&event->clock[i]);
	if (copy.sequence & 1 || atomic_load(&event->sequence) != copy.sequence)
		copy.stream = NULL;
	*ret_copy = copy;
}

static bool
is_still(struct ca_event *event, const struct ca_event_copy *copy)
{
	return copy->stream &&
	       (CA_MUTANT(SNAPSHOT_UNCHECKED) || atomic_load(&event->sequence) == copy->sequence);
}

void
ca_event_waited(struct ca_event *event, const struct ca_event_copy *copy, struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	unsigned i;

	if (!is_still(event, copy) || ca_record(copy->stream)->space != record->space)
		return;
	ca_order_lock(order);
	ca_clock_update_ordered(record, copy->stream, copy->bound);
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (copy->clock[i].stream)
			ca_clock_update_ordered(record, copy->clock[i].stream,
						copy->clock[i].stamp);
	ca_order_unlock(order);
}

void
ca_event_finished(struct ca_event *event, const struct ca_event_copy *copy)
{
	unsigned i;

	if (!is_still(event, copy))
		return;
	ca_order_finished(copy->stream, copy->bound);
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (copy->clock[i].stream)
			ca_order_finished(copy->clock[i].stream, copy->clock[i].stamp);
}
