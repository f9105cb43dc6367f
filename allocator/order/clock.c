/* SPDX-License-Identifier: MIT */
/*
 * The lessons of the program's own events.
 *
 * A stream's clock says what its next submission comes after: a stamp for each other stream. It
 * grows by the waits that the guard or the program inserts. Of the own space every stream is kept
 * in `known`, and `unfinished` says which of these stamps may not be done; of other spaces the few
 * learned last: forgetting one only costs a wait that was not needed. `known_epoch` is read after
 * the wait's real call has returned, and a bound is taken before its own: a bound that is not
 * smaller belongs to a mark behind the wait.
 *
 * An event's snapshot (stream, bound, what is unfinished of the stream's clock) is a seqlock: the
 * sequence is odd from before the real record until after it, and moves with every record that
 * begins. Bound and clock are taken before the real record. A user of the snapshot looks at the
 * sequence before and after its own real call: if they differ, the event may have stood for
 * something else when the driver looked, and nothing is learned. Of two records that overlap nobody
 * but the driver knows which came last, so neither is published. That excludes writers from each
 * other, too: only a record that found no other in progress when it began writes, and until it has
 * ended there is no second one of that kind.
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
is_done(const struct ca_stream *stream, uint64_t stamp)
{
	return atomic_load(&ca_record((struct ca_stream *)(uintptr_t)stream)->done) >= stamp;
}

/* The part of another space's stream, or else one that may be overwritten. */
static struct ca_clock_part *
part_for(struct ca_stream_record *record, const struct ca_stream *stream)
{
	unsigned i;

	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (record->clock[i].stream == stream)
			return &record->clock[i];
	for (i = 0; i < CA_CLOCK_PARTS; i++)
		if (!record->clock[i].stream ||
		    is_done(record->clock[i].stream, record->clock[i].stamp))
			return &record->clock[i];
	return &record->clock[record->clock_next++ % CA_CLOCK_PARTS];
}

static void
add_foreign(struct ca_stream_record *record, struct ca_stream *stream, uint64_t stamp)
{
	struct ca_clock_part *part = part_for(record, stream);

	if (is_done(stream, stamp) || (part->stream == stream && part->stamp >= stamp))
		return;
	*part = (struct ca_clock_part){ stream, stamp };
	atomic_store(&record->has_clock, true);
}

/* True: what stands for all that is known must be behind this wait from now on. Nobody has to wait
 * for a stamp that is done. */
static bool
add_part(struct ca_stream_record *record, struct ca_stream *stream, uint64_t stamp)
{
	struct ca_stream_record *other = ca_record(stream);
	unsigned index = other->index;

	if (other == record)
		return false;
	if (__builtin_expect(other->space != record->space, 0)) {
		add_foreign(record, stream, stamp);
		return false;
	}
	if (record->known[index] >= stamp)
		return false;
	record->known[index] = stamp;
	if (atomic_load(&other->done) >= stamp)
		return false;
	record->unfinished[index / 64] |= (uint64_t)1 << index % 64;
	return true;
}

static void
note_growth(struct ca_stream_record *record)
{
	atomic_store(&record->has_clock, true);
	record->known_epoch = atomic_load(&record->stream.words->epoch);
	atomic_fetch_add(&record->known_generation, 1);
}

void
ca_clock_update_ordered(struct ca_stream_record *record, struct ca_stream *stream, uint64_t stamp)
{
	if (add_part(record, stream, stamp))
		note_growth(record);
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

/* The unfinished part of the clock is copied, the rest forgotten. Returns the number of parts. */
static CA_APART unsigned
add_clock(struct ca_event *event, struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_clock_part part;
	uint64_t any = 0;
	unsigned i, n = 0;

	ca_order_lock(order);
	for (i = 0; i < CA_ACTIVE_WORDS; i++) {
		uint64_t left = record->unfinished[i], all = left;

		for (; left && n < CA_EVENT_PARTS; left &= left - 1) {
			unsigned index = i * 64 + (unsigned)__builtin_ctzll(left);

			part.stream = &order->streams[index]->stream;
			part.stamp = record->known[index];
			if (is_done(part.stream, part.stamp))
				all &= ~(left & -left);
			else
				part_store(&event->clock[n++], part);
		}
		record->unfinished[i] = all;
		any |= all;
	}
	for (i = 0; i < CA_CLOCK_PARTS && record->clock[i].stream; i++) {
		part = record->clock[i];
		any = 1;
		if (n < CA_EVENT_PARTS && !is_done(part.stream, part.stamp))
			part_store(&event->clock[n++], part);
	}
	atomic_store(&record->has_clock, any != 0);
	ca_order_unlock(order);
	return n;
}

uint64_t
ca_event_record_begin(struct ca_event *event, struct ca_stream *stream)
{
	bool alone = atomic_fetch_add(&event->recording, 1) == 0;
	uint64_t sequence = reset(event);
	struct ca_stream_record *record = ca_record(stream);
	unsigned parts = 0;

	if (!alone || !stream)
		return 0;
	__atomic_store_n(&event->stream, stream, __ATOMIC_RELEASE);
	__atomic_store_n(&event->bound, ca_order_bound(stream), __ATOMIC_RELEASE);
	if (atomic_load(&record->has_clock)) /* what is learned at this moment it need not know */
		parts = add_clock(event, record);
	__atomic_store_n(&event->parts, parts, __ATOMIC_RELEASE);
	return sequence;
}

void
ca_event_record_end(struct ca_event *event, uint64_t sequence, bool done)
{
	/* One that began between our count and our sequence is still counted, or has moved the
	 * sequence at its end. If it is not published it stays invalid. */
	if (!sequence)
		reset(event);
	else if (done && atomic_load(&event->recording) == 1)
		atomic_compare_exchange_strong(&event->sequence, &sequence, sequence + 1);
	atomic_fetch_sub(&event->recording, 1);
}

void
ca_event_forget(struct ca_event *event)
{
	reset(event);
}

uint64_t
ca_event_look(struct ca_event *event)
{
	uint64_t sequence = atomic_load(&event->sequence);

	return sequence & 1 ? 0 : sequence;
}

struct snapshot {
	struct ca_stream *stream;
	uint64_t bound;
	unsigned parts;
	struct ca_clock_part clock[CA_EVENT_PARTS];
};

/* False: the event was, or is being, recorded anew. */
static bool
copy(struct ca_event *event, uint64_t sequence, struct snapshot *ret_copy)
{
	unsigned i;

	if (!sequence)
		return false;
	ret_copy->stream = __atomic_load_n(&event->stream, __ATOMIC_ACQUIRE);
	ret_copy->bound = __atomic_load_n(&event->bound, __ATOMIC_ACQUIRE);
	ret_copy->parts = __atomic_load_n(&event->parts, __ATOMIC_ACQUIRE);
	for (i = 0; i < ret_copy->parts; i++)
		ret_copy->clock[i] = part_load(&event->clock[i]);
	return CA_MUTANT(SNAPSHOT_UNCHECKED) || atomic_load(&event->sequence) == sequence;
}

void
ca_event_waited(struct ca_event *event, uint64_t sequence, struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	struct snapshot seen;
	bool grew;
	unsigned i;

	if (!copy(event, sequence, &seen) || ca_record(seen.stream)->space != record->space)
		return;
	ca_order_lock(ca_record_order(record));
	grew = add_part(record, seen.stream, seen.bound);
	for (i = 0; i < seen.parts; i++)
		grew |= add_part(record, seen.clock[i].stream, seen.clock[i].stamp);
	if (grew)
		note_growth(record);
	ca_order_unlock(ca_record_order(record));
}

void
ca_event_finished(struct ca_event *event, uint64_t sequence)
{
	struct snapshot seen;
	unsigned i;

	if (!copy(event, sequence, &seen))
		return;
	ca_order_finished(seen.stream, seen.bound);
	for (i = 0; i < seen.parts; i++)
		ca_order_finished(seen.clock[i].stream, seen.clock[i].stamp);
}
