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
 * An event's snapshot (stream, bound, what is unfinished of the stream's clock: of the own space a
 * bit for each stream and the stamps of those, nothing to look up; where the space has few streams,
 * the stamps of all) is a seqlock: the sequence is odd from before the real record until after it,
 * and moves with every record that begins. Bound and clock are taken before the real record. A user
 * of the snapshot looks at the sequence before and after its own real call: if they differ, the
 * event may have stood for something else when the driver looked, and nothing is learned. Of two
 * records that overlap nobody but the driver knows which came last, so neither is published. That
 * excludes writers from each other, too: only a record that found no other in progress when it
 * began writes, and until it has ended there is no second one of that kind.
 */
#include "allocator/order/internal.h"

#include "config/mutant.h"

enum { FEW_STEP = 4 }; /* stamps that are copied at a time; an event has room for a multiple */
_Static_assert(CA_EVENT_PARTS % FEW_STEP == 0, "no copy goes beyond it");

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

/* Work has ended since that was last looked through. */
static void
forget_finished_ordered(struct ca_stream_record *record)
{
	const struct ca_order *order = ca_record_order(record);
	unsigned i;

	for (i = 0; i < CA_ACTIVE_WORDS; i++) {
		uint64_t left = record->unfinished[i];

		for (; left; left &= left - 1) {
			unsigned index = i * 64 + (unsigned)__builtin_ctzll(left);

			if (is_done(&order->streams[index]->stream, record->known[index]))
				record->unfinished[i] &= ~(left & -left);
		}
	}
}

/* The stamps of the own space's streams, and of others'. False: nothing of it is unfinished. */
static __attribute__((noinline)) bool
store_all_ordered(struct ca_event_clock *clock, const struct ca_stream_record *record,
		  unsigned streams)
{
	unsigned words = (streams + 63) / 64, parts = 0, i, n = 0;

	for (i = 0; i < words; i++) {
		uint64_t all = record->unfinished[i], left = all;
		const uint64_t *known = &record->known[(size_t)i * 64];

		for (; left && n < CA_EVENT_PARTS; left &= left - 1)
			__atomic_store_n(&clock->stamp[n++], known[__builtin_ctzll(left)],
					 __ATOMIC_RELEASE);
		__atomic_store_n(&clock->own[i], all & ~left, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&clock->words, words, __ATOMIC_RELEASE);
	__atomic_store_n(&clock->few, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&clock->stamps, n, __ATOMIC_RELEASE);
	for (i = 0; i < CA_CLOCK_PARTS && record->clock[i].stream; i++)
		if (!is_done(record->clock[i].stream, record->clock[i].stamp))
			part_store(&clock->part[parts++], record->clock[i]);
	__atomic_store_n(&clock->parts, parts, __ATOMIC_RELEASE);
	return n || i;
}

/* The same where there are few streams, and none of other spaces: to copy all takes less than to
 * choose. */
static inline bool
store_few_ordered(struct ca_event_clock *clock, const struct ca_stream_record *record, unsigned n,
		  uint64_t bound)
{
	const uint64_t *known = record->known;
	uint64_t *stamp = clock->stamp;
	unsigned i;

	for (; stamp < clock->stamp + n; stamp += FEW_STEP, known += FEW_STEP)
#pragma GCC unroll 4
		for (i = 0; i < FEW_STEP; i++)
			__atomic_store_n(&stamp[i], known[i], __ATOMIC_RELEASE);
	__atomic_store_n(&clock->stamp[record->index], bound, __ATOMIC_RELEASE);
	__atomic_store_n(&clock->own[0], record->unfinished[0], __ATOMIC_RELEASE);
	__atomic_store_n(&clock->few, n, __ATOMIC_RELEASE);
	return record->unfinished[0];
}

/* The unfinished part of the clock is copied, the rest forgotten. */
static __attribute__((noinline)) void
store_clock(struct ca_event_clock *clock, struct ca_stream_record *record, uint64_t bound)
{
	struct ca_order *order = ca_record_order(record);
	unsigned streams;
	uint64_t progress;
	bool some;

	ca_order_lock(order);
	progress = atomic_load(&order->progress);
	if (record->unfinished_at != progress) {
		forget_finished_ordered(record);
		record->unfinished_at = progress;
	}
	streams = atomic_load(&order->n_streams);
	if (__builtin_expect(streams <= CA_EVENT_PARTS && !record->clock[0].stream, 1))
		some = store_few_ordered(clock, record, streams, bound);
	else
		some = store_all_ordered(clock, record, streams);
	if (!some && !order->traced)
		atomic_store(&record->has_clock, false);
	ca_order_unlock(order);
}

uint64_t
ca_event_record_begin(struct ca_event *event, struct ca_stream *stream)
{
	bool alone = atomic_fetch_add(&event->recording, 1) == 0;
	uint64_t sequence = reset(event);
	struct ca_stream_record *record = ca_record(stream);
	uint64_t bound;

	if (!alone || !stream)
		return 0;
	__atomic_store_n(&event->stream, stream, __ATOMIC_RELEASE);
	bound = ca_order_bound(stream);
	__atomic_store_n(&event->bound, bound, __ATOMIC_RELEASE);
	if (atomic_load(&record->has_clock)) { /* what is learned at this moment it need not know */
		store_clock(&event->clock, record, bound);
		if (ca_record_order(record)->traced)
			ca_trace_event(record, CA_TRACE_EVENT, event);
	} else {
		__atomic_store_n(&event->clock.words, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&event->clock.few, 0, __ATOMIC_RELEASE);
	}
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

struct snapshot {
	struct ca_stream *stream;
	uint64_t bound;
	struct ca_event_clock clock;
};

static inline __attribute__((always_inline)) void
load_stamps(uint64_t *to, const struct ca_event_clock *clock, size_t n)
{
	const uint64_t *from = clock->stamp, *end = from + n;
	unsigned i;

	for (; from < end; from += FEW_STEP, to += FEW_STEP)
#pragma GCC unroll 4
		for (i = 0; i < FEW_STEP; i++)
			to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
}

static inline void
load_clock(struct ca_event_clock *to, const struct ca_event_clock *from)
{
	unsigned i;

	to->few = __atomic_load_n(&from->few, __ATOMIC_ACQUIRE);
	to->words = to->few ? 1 : __atomic_load_n(&from->words, __ATOMIC_ACQUIRE);
	to->stamps = to->parts = 0;
	if (!to->words)
		return;
	to->stamps = to->few;
	if (!to->few) {
		to->stamps = __atomic_load_n(&from->stamps, __ATOMIC_ACQUIRE);
		to->parts = __atomic_load_n(&from->parts, __ATOMIC_ACQUIRE);
	}
	for (i = 0; i < to->words; i++)
		to->own[i] = __atomic_load_n(&from->own[i], __ATOMIC_ACQUIRE);
	load_stamps(to->stamp, from, to->stamps);
	for (i = 0; i < to->parts; i++)
		to->part[i] = part_load(&from->part[i]);
}

static inline bool
is_unchanged(struct ca_event *event, uint64_t sequence)
{
	return CA_MUTANT(SNAPSHOT_UNCHECKED) || atomic_load(&event->sequence) == sequence;
}

/* False: the event was, or is being, recorded anew. */
static bool
copy(struct ca_event *event, uint64_t sequence, struct snapshot *ret_copy)
{
	if (!sequence)
		return false;
	ret_copy->stream = __atomic_load_n(&event->stream, __ATOMIC_ACQUIRE);
	ret_copy->bound = __atomic_load_n(&event->bound, __ATOMIC_ACQUIRE);
	load_clock(&ret_copy->clock, &event->clock);
	return is_unchanged(event, sequence);
}

/* As add_part, of all streams of the own space. Those behind the first that is not done are taken
 * for unfinished, too: done ones are forgotten when anything has ended again. */
static inline bool
add_own(struct ca_stream_record *record, const struct ca_event_clock *clock)
{
	const struct ca_order *order = ca_record_order(record);
	const uint64_t *stamp = clock->stamp;
	bool grew = false;
	unsigned i;

	for (i = 0; i < clock->words; i++) {
		uint64_t left = clock->own[i], added = 0;
		uint64_t *known = &record->known[(size_t)i * 64];

		for (; left; left &= left - 1, stamp++) {
			unsigned bit = (unsigned)__builtin_ctzll(left);

			if (known[bit] >= *stamp)
				continue;
			known[bit] = *stamp;
			if (!grew && is_done(&order->streams[i * 64 + bit]->stream, *stamp))
				continue;
			added |= (uint64_t)1 << bit;
			grew = true;
		}
		record->unfinished[i] |= added;
	}
	return grew;
}

/* The same of a clock of few streams, which has the event's own bound, too: `n` of them, and `own`
 * has bits of those that may be unfinished. */
static inline __attribute__((always_inline)) bool
add_few(struct ca_stream_record *record, const uint64_t *stamp, unsigned n, uint64_t own)
{
	const struct ca_order *order = ca_record_order(record);
	uint64_t *known = record->known, left = 0;
	const uint64_t *from = stamp;
	unsigned at;
	size_t i;

	for (at = 0; at < n; at += FEW_STEP, from += FEW_STEP, known += FEW_STEP) {
		uint64_t raised = 0;

#pragma GCC unroll 4
		for (i = 0; i < FEW_STEP; i++) {
			if (known[i] >= from[i])
				continue;
			known[i] = from[i];
			raised |= (uint64_t)1 << i;
		}
		left |= raised << at;
	}
	for (left &= own; left; left &= left - 1) {
		i = (size_t)__builtin_ctzll(left);
		if (is_done(&order->streams[i]->stream, stamp[i]))
			continue;
		record->unfinished[0] |= left;
		return true;
	}
	return false;
}

/* Some other stream waited for it. */
static inline void
note_followed(struct ca_stream *stream)
{
	if (!atomic_load(&ca_record(stream)->followed))
		atomic_store(&ca_record(stream)->followed, true);
}

/* An event that has no clock, or one of many streams, or of other spaces' too. */
static __attribute__((noinline)) void
waited_otherwise(struct ca_event *event, uint64_t sequence, struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	struct snapshot seen;
	bool grew;
	unsigned i;

	if (!copy(event, sequence, &seen) || ca_record(seen.stream)->space != record->space)
		return;
	if (seen.stream != stream)
		note_followed(seen.stream);
	ca_order_lock(ca_record_order(record));
	grew = add_part(record, seen.stream, seen.bound);
	grew |= add_own(record, &seen.clock);
	for (i = 0; i < seen.clock.parts; i++)
		add_foreign(record, seen.clock.part[i].stream, seen.clock.part[i].stamp);
	if (grew)
		note_growth(record);
	ca_order_unlock(ca_record_order(record));
	if (grew && ca_record_order(record)->traced)
		ca_trace_event(record, CA_TRACE_WAIT, event);
}

bool
ca_stream_space_is_held_up(struct ca_stream *stream)
{
	return ca_order_is_held_up(ca_record_order(ca_record(stream)));
}

void
ca_event_waited(struct ca_event *event, uint64_t sequence, struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	unsigned n = __atomic_load_n(&event->clock.few, __ATOMIC_ACQUIRE);
	uint64_t stamp[CA_EVENT_PARTS], own;
	struct ca_order *order = ca_record_order(record);
	struct ca_stream *seen;
	bool grew;

	if (__builtin_expect(!n, 0)) {
		waited_otherwise(event, sequence, stream);
		return;
	}
	seen = __atomic_load_n(&event->stream, __ATOMIC_ACQUIRE);
	own = __atomic_load_n(&event->clock.own[0], __ATOMIC_ACQUIRE);
	load_stamps(stamp, &event->clock, n);
	if (!sequence || !is_unchanged(event, sequence) ||
	    ca_record_order(ca_record(seen)) != order)
		return;
	if (seen != stream)
		note_followed(seen);
	ca_order_lock(order);
	grew = add_few(record, stamp, n, own | (uint64_t)1 << ca_record(seen)->index);
	if (grew)
		note_growth(record);
	ca_order_unlock(order);
	if (__builtin_expect(order->traced, 0) && grew)
		ca_trace_event(record, CA_TRACE_WAIT, event);
}

void
ca_event_finished(struct ca_event *event, uint64_t sequence)
{
	const uint64_t *stamp;
	struct snapshot seen;
	struct ca_order *order;
	unsigned i;

	if (!copy(event, sequence, &seen))
		return;
	order = ca_record_order(ca_record(seen.stream));
	stamp = seen.clock.stamp;
	ca_order_finished(seen.stream, seen.bound);
	for (i = 0; i < seen.clock.words; i++) {
		uint64_t left = seen.clock.own[i];

		/* as many stamps were copied as there are bits, or as there are streams */
		for (; left; left &= left - 1) {
			unsigned bit = (unsigned)__builtin_ctzll(left);

			/* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
			ca_order_finished(&order->streams[i * 64 + bit]->stream,
					  seen.clock.few ? stamp[bit] : *stamp++);
		}
	}
	for (i = 0; i < seen.clock.parts; i++)
		ca_order_finished(seen.clock.part[i].stream, seen.clock.part[i].stamp);
}
