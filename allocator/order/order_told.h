/* SPDX-License-Identifier: MIT */
/*
 * Order of memory whose free names its stream (allocator/told): users, operations that stand for a
 * served call, marks and guards.
 */
#pragma once

#include "allocator/order/order.h"

enum { CA_TOLD_USERS_MAX = 64 };
/* Such a number is none of ca_record_note_reuse. */
#define CA_REUSED_TOLD ((uint64_t)1 << 63)
struct ca_told_users {
	unsigned n;
	bool more;            /* than fit, or can be named: whatever works now */
	uint64_t poll_serial; /* of `more`: the mark of all contexts that covers it; 0: none yet */
	struct ca_user user[CA_TOLD_USERS_MAX];
};
/* Users of memory that is freed in `stream`: that one first, stamped now, unless all its work is
 * known to have finished. */
void ca_told_users_of(struct ca_stream *stream, struct ca_told_users *ret_users);
/*
 * Puts a question to the driver: is everything finished that was submitted in any context before
 * now? A mark is recorded in the space's context, which stays pending over calls until it is done:
 * then true, and *ret_bound is the `bound` of the call that recorded it.
 */
bool ca_polled_mark_poll(struct ca_polled_mark *polled, struct ca_space *space, uint64_t bound,
			 uint64_t *ret_bound);
void ca_polled_mark_drop(struct ca_polled_mark *polled, const struct ca_driver *driver);
/* Work that was not seen has no stamp, and captures may have begun unseen. */
static inline bool
ca_order_sees_all(const struct ca_order *order)
{
	const unsigned unseen = CA_REASON_UNSEEN_CALL | CA_REASON_PRIVATE_TABLE |
				CA_REASON_CURRENT | CA_REASON_STREAMS | CA_REASON_GREEN |
				CA_REASON_CONTEXT_WAIT;

	return !(atomic_load_explicit(&order->finished_only, memory_order_relaxed) & unseen);
}
/* False: the stream's space has work that was not seen. Then memory is allocated by the driver, and
 * a free in a stream that is ordered with the legacy one has users that nobody can name. */
static inline bool
ca_told_sees_all(const struct ca_stream *stream)
{
	const struct ca_stream_record *record = (const struct ca_stream_record *)stream;

	return ca_order_sees_all(&record->space->order);
}
/* The driver orders the stream with others, the legacy stream with the blocking ones and these with
 * that, and one of them may have unfinished work that is stamped with more than `stamp`. Work that
 * was submitted before is seen, as `last` is raised before the submission returns; `active`, which
 * a settling thread clears for a moment, would not do. */
static inline __attribute__((always_inline)) bool
ca_told_is_ordered_with_later(const struct ca_stream_record *record, uint64_t stamp)
{
	const struct ca_order *order = &record->space->order;
	enum ca_stream_kind kind = atomic_load_explicit(&record->kind, memory_order_relaxed);
	unsigned i = 0;

	if (__builtin_expect(kind == CA_STREAM_NONBLOCKING, 1))
		return false;
	do {
		uint64_t bits = atomic_load_explicit(&order->ordered[kind != CA_STREAM_LEGACY][i],
						     memory_order_acquire);

		for (; bits; bits &= bits - 1) {
			const struct ca_stream_record *other =
				order->streams[i * 64 + (unsigned)__builtin_ctzll(bits)];
			uint64_t last =
				atomic_load_explicit(&other->stream.last, memory_order_acquire);

			if (last > stamp &&
			    last > atomic_load_explicit(&other->done, memory_order_acquire))
				return true;
		}
	} while (__builtin_expect(
		++i * 64 < atomic_load_explicit(&order->n_streams, memory_order_acquire), 0));
	return false;
}

/*
 * A call that a cache serves puts nothing into its stream, where natively an operation would have
 * come behind the work of streams that the driver orders that one with, and what follows behind it.
 * True: there is such work, which no operation of the stream was put behind.
 */
static inline __attribute__((always_inline)) bool
ca_told_is_unordered(const struct ca_stream_record *record)
{
	return ca_told_is_ordered_with_later(
		record, atomic_load_explicit(&record->joined, memory_order_acquire));
}
/* So one is to be put there, or there may be work that was not seen. */
static inline bool
ca_told_needs_operation(const struct ca_stream *stream)
{
	const struct ca_stream_record *record = (const struct ca_stream_record *)stream;

	return ca_told_is_unordered(record) ||
	       (!ca_told_sees_all(stream) && atomic_load(&record->kind) != CA_STREAM_NONBLOCKING);
}
/* Puts it there if it is needed, before the call is served. 0; -EBUSY: a capture is in the way, as
 * it would have been of the program's call. Where the driver fails, the host waits. */
int ca_told_put_operation(struct ca_stream *stream);
/* Around a call of the program's own that is such an operation, and no submission. 0: it is none
 * that is needed. The second after a first that was not 0, with that and whether it was `done`. */
uint64_t ca_told_operation_begin(struct ca_stream *stream);
void ca_told_operation_end(struct ca_stream *stream, uint64_t bound, bool done);
/* The space has a stream that the driver orders with the legacy one. */
static inline bool
ca_order_has_blocking(const struct ca_order *order)
{
	uint64_t blocking = 0;

	for (unsigned i = 0; i < CA_ACTIVE_WORDS; i++)
		blocking |= atomic_load_explicit(&order->ordered[0][i], memory_order_relaxed);
	return blocking;
}
/* Adds every stream of the space with unfinished work. */
void ca_told_users_add_all(struct ca_space *space, struct ca_told_users *users);
/* The next submission to `stream` comes after the user, or nothing has to: by what is known without
 * asking. `follows`: also by the program's own events. */
bool ca_told_is_after(struct ca_stream *stream, const struct ca_user *user, bool follows);
/* The stream was handed memory with unfinished users, by the allocation of that serial: its next
 * programmatic launch goes out without that attribute, and so do those of the streams that the
 * driver would have ordered behind the allocation. */
static inline void
ca_told_reused(struct ca_stream *stream, uint64_t serial)
{
	struct ca_stream_record *record = (struct ca_stream_record *)stream; /* it comes first */

	atomic_store_explicit(&record->reused_unordered, CA_REUSED_TOLD | serial,
			      memory_order_release);
}
/* Where there are other streams, the user's records a mark before its next submission. True: that
 * mark is going to cover nothing that is submitted from now on, which takes a stream that the
 * calling thread alone submits to. */
bool ca_told_arm(const struct ca_user *user);
/* It was true for the stream, to which nothing was submitted since: else a mark would have been
 * recorded first, or have been there. */
static inline __attribute__((always_inline)) bool
ca_told_is_armed(const struct ca_stream *stream)
{
	const struct ca_stream_record *record = (const struct ca_stream_record *)stream;
	uint64_t armed = atomic_load_explicit(&stream->armed, memory_order_acquire);

	return armed && armed == atomic_load_explicit(&record->told_armed, memory_order_relaxed);
}
/* No stream of the space has unfinished work, and all of it was seen. */
bool ca_told_is_idle(struct ca_space *space);
/*
 * Memory was freed in the stream, or its thread ends. Of a per-thread stream only its own thread
 * can make a mark: it does so now, if no mark of the context would tell others when the work before
 * has ended.
 */
void ca_told_mark_own(struct ca_stream *stream);
/* Asks the driver, without waiting, whether the user has finished. Where no mark covers it, one is
 * recorded; of a stream that cannot be marked, one of the context. */
bool ca_told_poll(const struct ca_user *user);
/* Later work of `stream` comes after the user, by a wait on its exact mark. 0; -EAGAIN: there is no
 * exact one; otherwise as struct ca_driver's stream_wait. */
int ca_told_guard(struct ca_stream *stream, const struct ca_user *user);
