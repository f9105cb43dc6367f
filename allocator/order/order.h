/* SPDX-License-Identifier: MIT */
/*
 * The order tracker: which work of which stream may still touch what was freed.
 *
 * Every space (allocator/api/heap.h) has an *epoch*, a number that moves rarely. A submission
 * *stamps* its stream with the epoch read after the driver's call returned (made odd: births are
 * even, so that one look at the epoch tells whether anything was stamped since). A mark on a
 * stream, or a synchronisation, takes its *bound* before its own driver call and moves the epoch
 * on: work is covered if its stamp is at most the bound, nothing else. Marks are pooled events of
 * the driver (allocator/core/driver.h: stream_mark, mark_query ...).
 *
 * A *quiet* space has one stream that could submit, no other space has any, and nothing of ours is
 * recorded, queried or waited for, but behind a pause of the host (host_pause.c). Otherwise a free
 * *arms* the streams of the block's users: a mark is recorded before the next submission to them,
 * or when one is first needed, so that it covers nothing submitted after the free: a wait on it can
 * never depend on work that waits for us.
 *
 * Handing out memory that stream s has not finished with (s, t) *exposes* it; the *guard* then
 * orders later submissions to other streams behind (s, t), unless they are known to be (vector
 * clocks learned from the program's own events, waits and synchronisations).
 *
 * Thread-safe. Nothing here is called with the driver's or a caller's lock held; driver functions
 * are called without any lock of ours. No malloc, no stdio, errno kept.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/order_types.h"
#include "allocator/core/thread.h"
#include "allocator/core/types.h"
#include "allocator/util/ticks.h"
#include "config/mutant.h"

/* ---- life of streams (called by shim/) */

/*
 * A stream of `space`, opened by the thread that made it (a per-thread stream: by its thread; any
 * other that the program used without our seeing its birth: by its first user, `known` false).
 * `handle` goes back to the driver functions as it is. If this ends a quiet space (this one, or,
 * as the first stream of the second space that has one, another), marks are recorded for what is
 * exposed there. -ENOMEM; -ENODEV: the space is dead; -ENOSPC: more streams than are
 * tracked (the space is on finished memory only from now on).
 */
int ca_stream_open(struct ca_space *space, enum ca_stream_kind kind, void *handle, bool known,
		   struct ca_stream **ret_stream);
/*
 * Before the stream is destroyed (or its thread has ended: `gone` true, no driver call can name it
 * any more): records a last mark if it has unfinished work and one can be had, and forgets the
 * handle. The record stays as a ghost until that work is done. No submission may follow.
 */
void ca_stream_close(struct ca_stream *stream, bool gone);
/* The calling thread submits to `stream` for the first time (or again after the shim's cache
 * forgot): exposure depends on which thread submits to which stream. */
void ca_stream_note_thread(struct ca_stream *stream);

/* Bits 1 << kind of the streams that are open. */
unsigned ca_order_open_kinds(struct ca_order *order);
/*
 * Around operations of ours on the legacy stream, which stand between the earlier and the later
 * work of all blocking streams. True: no other blocking stream has unfinished work or was ever
 * submitted to (`or_idle`: or all is finished, and no other thread has submitted to an open
 * stream), and a thread's first submission to one waits for the end, for 10 ms at most: the end
 * may depend on it. False: such a stream is there, and nothing is to be ended.
 */
bool ca_order_legacy_begin(struct ca_space *space, bool or_idle);
void ca_order_legacy_end(struct ca_space *space);
/* Around each call in between. False: a submission did not wait, and no call may be made. */
bool ca_order_legacy_call_begin(struct ca_space *space);
void ca_order_legacy_call_end(struct ca_space *space);

/* Of a record that will never be another space's. */
struct ca_space *ca_stream_space(const struct ca_stream *stream);

/* ---- submissions */

/* The memory that a one-dimensional copy or set names. */
struct ca_touch {
	unsigned n; /* 0 to 2; 0: it touches nothing of ours */
	struct {
		uint64_t address;
		uint64_t bytes;
	} range[2];
};

/* Guards a submission to `stream`. `touch` NULL: it may touch anything. Slow path of
 * ca_submit_begin. Never fails: where a mark or a wait cannot be had, the host waits. */
void ca_submit_guard(struct ca_stream *stream, const struct ca_touch *touch);
/* Guards a submission to `stream` that may touch memory of another space, too: `touch` is what it
 * names, NULL: it may touch anything there. After ca_submit_begin; never fails, either. */
void ca_submit_guard_other(struct ca_stream *stream, struct ca_space *other,
			   const struct ca_touch *touch);
/* Slow path of ca_submit_end: the stamp is older than the epoch. */
void ca_submit_stamp(struct ca_stream *stream, uint64_t epoch);

/* Something is submitted to a watched stream, or its memory handed out, now. */
static inline void
ca_host_pause_put_off(struct ca_stream *stream, uint64_t now)
{
	atomic_store_explicit(&stream->noted, now, memory_order_relaxed);
}

/* Before a submission to a watched stream: true, and noted, if the last one is not long ago.
 * Threads that share the stream would pass its line on each time, so what is noted may be a little
 * old. */
static inline bool
ca_host_pause_is_none(struct ca_stream *stream)
{
	uint64_t now = ca_ticks();
	uint64_t ago = now - atomic_load_explicit(&stream->noted, memory_order_relaxed);

	if ((int64_t)ago >= (int64_t)stream->words->lull) /* another processor's may be ahead */
		return false;
	if (ago > stream->words->lull_step)
		ca_host_pause_put_off(stream, now);
	return true;
}

/* 0: nothing was exposed since the guard last ran for the stream, and it is neither armed nor
 * watched. CA_WATCHED: only that. */
static inline uint64_t
ca_submit_news(struct ca_stream *stream)
{
	uint64_t exposures =
		atomic_load_explicit(&stream->words->exposed_count, memory_order_acquire);

	return (exposures ^ atomic_load_explicit(&stream->seen, memory_order_relaxed)) |
	       atomic_load_explicit(&stream->armed, memory_order_relaxed) |
	       CA_MUTANT(STAMP_BEFORE_CALL);
}

static inline bool
ca_submit_needs_guard(struct ca_stream *stream)
{
	uint64_t news = ca_submit_news(stream);

	return __builtin_expect(news != 0, 0) &&
	       (news != CA_WATCHED || !ca_host_pause_is_none(stream));
}

/* Before the real call; not for a capturing stream. */
static inline void
ca_submit_begin(struct ca_stream *stream, const struct ca_touch *touch)
{
	if (__builtin_expect(ca_submit_needs_guard(stream), 0))
		ca_submit_guard(stream, touch);
	if (CA_MUTANT(STAMP_BEFORE_CALL))
		ca_submit_stamp(stream, atomic_load(&stream->words->epoch));
}

/* All of ca_submit_end but the stamp; true if that is needed, for *ret_epoch. */
static inline bool
ca_submit_needs_stamp(struct ca_stream *stream, uint64_t *ret_epoch)
{
	*ret_epoch = atomic_load_explicit(&stream->words->epoch, memory_order_acquire);
	ca_order_last_stream = stream;
	return atomic_load_explicit(&stream->last, memory_order_acquire) < *ret_epoch &&
	       !CA_MUTANT(STAMP_BEFORE_CALL);
}

/* After the real call has returned, also when it failed. */
static inline void
ca_submit_end(struct ca_stream *stream)
{
	uint64_t epoch;

	if (__builtin_expect(ca_submit_needs_stamp(stream, &epoch), 0))
		ca_submit_stamp(stream, epoch);
}

/*
 * Around a submission whose end depends on somebody outside its stream: wait for a value, external
 * semaphore, host function, event of another process, cooperative launch over several devices. The
 * first before the real call: marks what is exposed, so that no wait for it depends on the
 * operation; from then on nothing of the stream is exposed. The second after it (and after
 * ca_submit_end), always: if it was `submitted`, the stream is a user of every block until it is
 * done.
 */
void ca_submit_hazard_begin(struct ca_stream *stream);
void ca_submit_hazard_end(struct ca_stream *stream, bool submitted);
/*
 * Before a programmatic launch: true if the attribute must be taken off, since unfinished memory of
 * the stream, or of one that the legacy stream's barrier puts before it, was handed out after its
 * last submission that waited for all before.
 */
bool ca_submit_must_be_serial(struct ca_stream *stream);
/* After a launch that waited for all before it (the attribute was taken off, or it never had it)
 * went out: everything exposed before this thread's last ca_submit_must_be_serial is behind it. An
 * ordinary launch may call both; it need not. */
void ca_submit_serial(struct ca_stream *stream);
/* Work that `stream`, of another space, was given may touch memory of `space` (call after
 * ca_submit_end). NULL: of a stream that is not known. */
void ca_submit_foreign(struct ca_space *space, const struct ca_stream *stream);

/* Before a capture begins: marks what is exposed in every space and has no mark, and waits for what
 * this thread cannot mark. While anything captures none can be recorded, and neither a stream that
 * captures nor another thread's own can even be waited for by the host. */
void ca_order_mark_before_capture(struct ca_heap *heap);

/* ---- what the program's own calls teach */

/* Before a synchronising or querying call on the stream: its bound. */
uint64_t ca_order_bound(struct ca_stream *stream);
/* After it succeeded: everything of `stream` stamped at most `bound` has finished. */
void ca_order_finished(struct ca_stream *stream, uint64_t bound);
/* The same for all streams of a space; `blocking`: only the legacy, blocking and the caller's own
 * per-thread ones (synchronising copies on the legacy stream). */
uint64_t ca_order_space_bound(struct ca_space *space);
void ca_order_space_finished(struct ca_space *space, uint64_t bound, bool blocking);

/*
 * An event of the program, as far as we know what its last record stands for. Zero-initialised:
 * teaches nothing. The owner (shim/) keeps it alive during calls.
 */
struct ca_event {
	_Atomic uint64_t sequence; /* odd: a record is in progress or nothing is known */
	_Atomic unsigned
		recording; /* records in progress: which comes last, only the driver knows */
	struct ca_stream *stream;
	uint64_t bound;
	struct ca_event_clock clock;
};

/*
 * Around the real record of `event` on `stream` (NULL: by a road that teaches nothing). Begin
 * before the call; end after, with its success and what begin answered; each begin has its end. Of
 * records that overlap nothing is learned.
 */
uint64_t ca_event_record_begin(struct ca_event *event, struct ca_stream *stream);
void ca_event_record_end(struct ca_event *event, uint64_t sequence, bool done);
/* The event is about to be destroyed, or to be recorded by something that we shall not see. */
void ca_event_forget(struct ca_event *event);
/*
 * Around the real cuStreamWaitEvent, cuEventSynchronize or cuEventQuery: look before, and one of
 * the others afterwards with what it answered, only if the call succeeded and the event is still
 * the same.
 */
static inline uint64_t
ca_event_look(struct ca_event *event)
{
	uint64_t sequence = atomic_load(&event->sequence);

	return sequence & 1 ? 0 : sequence;
}
/* Some stream of this one's space waits for somebody. */
bool ca_stream_space_is_held_up(struct ca_stream *stream);
/* Before a wait by `stream`: the event is of another space, of which a stream is held up by
 * somebody (ca_submit_hazard_begin). The wait is to be a hazard then, for nothing else tells of
 * that here. */
static inline bool
ca_event_is_held_up_elsewhere(const struct ca_event *event, const struct ca_stream *stream)
{
	struct ca_stream *seen = __atomic_load_n(&event->stream, __ATOMIC_ACQUIRE);

	return seen && __builtin_expect(seen->words != stream->words, 0) &&
	       ca_stream_space_is_held_up(seen);
}
/* `stream` now comes after the event (same space only; otherwise nothing is learned). */
void ca_event_waited(struct ca_event *event, uint64_t sequence, struct ca_stream *stream);
/* The event has completed: so has what it stands for, and what that was ordered after. */
void ca_event_finished(struct ca_event *event, uint64_t sequence);

/* ---- fallback and accessors */

/* Why reuse is restricted to finished memory. Bits; written to the statistics as
 * `finished_only_reasons`. */
#define CA_FINISHED_ONLY_REASONS(X)                                                                \
	X(UNSEEN_CALL, "unseen_call", "an unknown driver function was called")                     \
	X(PRIVATE_TABLE, "private_table", "a private driver table is in use")                      \
	X(PEER_ACCESS, "peer_access", "another context has access to this memory")                 \
	X(IPC, "ipc", "memory of another process was opened")                                      \
	X(CURRENT, "current_context", "the driver did not say which context is current")           \
	X(NETWORK, "network_library",                                                              \
	  "a network or storage library is used in a way not followed")                            \
	X(STREAMS, "too_many_streams", "more streams than are tracked")                            \
	X(GREEN, "green_context", "a green context was made")                                      \
	X(CONTEXT_WAIT, "context_wait", "a whole context was made to wait for an event")           \
	X(DEVICE_GRAPH, "device_graph", "a graph that a device can launch was made")               \
	X(LEGACY_RECORD, "legacy_record",                                                          \
	  "a mark on a blocking stream does not come after the legacy stream's work")              \
	X(CONTEXT_RECORD, "context_record",                                                        \
	  "a mark of a context does not come after the work of all its streams")                   \
	X(NO_TRIAL, "no_trial", "the order that this driver keeps could not be tried")

enum {
#define X(name, text, why) CA_BIT_##name,
	CA_FINISHED_ONLY_REASONS(X)
#undef X
#define X(name, text, why) CA_REASON_##name = 1u << CA_BIT_##name,
		CA_FINISHED_ONLY_REASONS(X)
#undef X
};

/* Reasons under which there is no work that is not seen. */
#define CA_REASONS_SEEN                                                                            \
	((unsigned)(CA_REASON_NETWORK | CA_REASON_LEGACY_RECORD | CA_REASON_CONTEXT_RECORD |       \
		    CA_REASON_NO_TRIAL))

/* From now on every freed block of `space` (NULL: of every space, present and future) needs a
 * context mark (but for CA_REASONS_SEEN), and nothing is exposed. True the first time for this
 * reason there (for the log). */
bool ca_order_finished_only(struct ca_heap *heap, struct ca_space *space, unsigned reason);
/*
 * For who knows more than submissions tell (the replay of a trace that names each block's stream):
 * from now on what is freed in `space` has no other user than `stream`, whatever else was submitted
 * to since it was allocated. NULL: as always, whoever was.
 */
void ca_order_set_only_user(struct ca_space *space, struct ca_stream *stream);

/* Waits on the host for what is exposed in `space` (NULL: in every space), for work that no guard
 * can order is about to begin. Call after ca_order_finished_only. */
void ca_order_settle_exposed(struct ca_heap *heap, struct ca_space *space);

/* ======== for the blocks: a function that takes a struct ca_order makes no driver call and may be
 * called with the heap's lock held; one that takes a space wants no lock, and may call the driver
 * ======== */

/* ---- life of the tracker */
void ca_order_init(struct ca_space *space);
/* The context is gone: drops all points, forgets handles; every stamp counts as finished. */
void ca_order_kill(struct ca_space *space);
/* The space is as if it had one stream more from now on: frees get exact marks. */
void ca_order_end_quiet(struct ca_space *space);
/* Unmaps the records; no call is in progress. */
void ca_order_destroy(struct ca_order *order);
/* As ca_order_kill, but the locks are remade and nothing is walked or dropped. */
void ca_order_after_fork_child(struct ca_order *order);

/* Records a mark on every stream of the space that is busy and has none for its last work, for
 * ca_order_poll to ask. */
void ca_order_mark_busy(struct ca_space *space);

/* ---- stamps and users */

/* As long as it is the epoch of a birth, no stream was stamped since then, and no work of another
 * space came: the epoch is never below that work's stamp, either (ca_submit_foreign). */
static inline uint64_t
ca_order_epoch(struct ca_order *order)
{
	return atomic_load(&order->words.epoch);
}
uint64_t ca_order_birth_after_stamp(struct ca_order *order, uint64_t epoch);
/* The birth of an allocation: every stamp so far is smaller. */
static inline uint64_t
ca_order_birth(struct ca_order *order)
{
	uint64_t epoch = ca_order_epoch(order);

	return __builtin_expect(epoch & 1, 0) ? ca_order_birth_after_stamp(order, epoch) : epoch;
}
/* Work of another space may touch what was born then. */
static inline bool
ca_order_has_foreign_user(struct ca_order *order, uint64_t birth)
{
	uint64_t foreign = atomic_load(&order->foreign);

	return foreign >= birth && foreign > atomic_load(&order->foreign_done);
}

/*
 * The usual case of a free, found cheaply, without a lock. True only if no stream was stamped since
 * `birth`: the present epoch is the one of the birth, and nobody was stamped with it.
 */
static inline bool
ca_order_is_untouched(struct ca_order *order, uint64_t birth)
{
	return !(atomic_load(&order->finished_only) & ~CA_REASONS_SEEN) &&
	       ca_order_epoch(order) == birth && !atomic_load(&order->hazards);
}

/*
 * The users of a block at its free: of `inherited` those that have not finished, and every stream
 * stamped at `birth` or later; without those that another one stands for. Arms them unless the
 * space is quiet. *ret_users is not *inherited.
 */
void ca_order_users(struct ca_order *order, uint64_t birth, const struct ca_users *inherited,
		    struct ca_users *ret_users);
/* A free takes effect behind what was submitted to the stream, and what the driver orders before
 * it, which may be what makes other streams' later use of the memory come first. */
void ca_order_free_in(struct ca_stream *stream);
static inline bool
ca_user_is_done(const struct ca_user *user)
{
	const struct ca_stream_record *record = (const struct ca_stream_record *)user->stream;

	return atomic_load(&record->done) >= user->stamp; /* `stream` comes first */
}

/*
 * As ca_order_users, of a block with one user at most, *inherited (its stream NULL: none), for a
 * magazine. True: *ret_user, or none if its stream is NULL. False: there are others, no mark covers
 * one, or it is not for a magazine; nothing was armed.
 */
bool ca_order_kept_users(struct ca_order *order, uint64_t birth, const struct ca_user *inherited,
			 struct ca_user *ret_user);
/* All that such a *user (which has a stream) stands for has finished. */
bool ca_order_kept_is_done(const struct ca_order *order, const struct ca_user *user);
/* Those of them that have not, each with a stamp of its own. */
void ca_order_kept_unfinished(const struct ca_order *order, const struct ca_user *user,
			      struct ca_users *ret_users);

/* Takes finished users out. True: none is left. */
bool ca_users_remove_finished(struct ca_users *users);
bool ca_order_is_quiet(struct ca_order *order);
static inline bool
ca_record_has_hazard(const struct ca_stream_record *record)
{
	return atomic_load(&record->hazard) > atomic_load(&record->done);
}
/* Something outside must end the work of the stream, or of one that it waits for. */
bool ca_record_is_held_up(struct ca_stream_record *record);
/* Something outside must end the work of some stream of the space. */
bool ca_order_is_held_up(struct ca_order *order);
/* The candidate, if it is the one stream of a quiet space and has unfinished work, or NULL. */
struct ca_stream_record *ca_order_is_only_stream(struct ca_order *order,
						 struct ca_stream_record *only);
/* The one stream of a quiet space that has unfinished work, or NULL. */
static inline struct ca_stream_record *
ca_order_only_stream(struct ca_order *order)
{
	struct ca_stream_record *only = atomic_load(&order->only_stream);

	if (!only)
		return NULL;
	if (__builtin_expect(atomic_load(&order->candidates) > 1 || atomic_load(&order->hazards),
			     0))
		return ca_order_is_only_stream(order, only);
	return atomic_load(&only->stream.last) > atomic_load(&only->done) ? only : NULL;
}
/* False: the caller of ca_order_set_only_user has said that it is no user of anything. */
static inline bool
ca_order_is_user(const struct ca_order *order, const struct ca_stream_record *record)
{
	const struct ca_stream_record *sole = atomic_load(&order->only_user);

	return !sole || sole == record;
}
/* Another stream than that one may have unfinished work. */
bool ca_order_others_are_active(struct ca_order *order, const struct ca_stream_record *only);
/*
 * The one stream that may use what a free gives back, without a lock: the space is quiet, no other
 * stream has unfinished work, and what is freed now is marked if the space ceases to be quiet.
 * *ret_last: that stream's last stamp. NULL: it is not known to be so simple.
 */
static inline struct ca_stream_record *
ca_order_quiet_stream(struct ca_order *order, uint64_t *ret_last)
{
	struct ca_stream_record *only = atomic_load(&order->only_stream);

	if (!only || atomic_load(&only->kind) == CA_STREAM_PER_THREAD ||
	    atomic_load(&order->finished_only) || atomic_load(&order->hazards) ||
	    (atomic_load(&order->n_streams) > 1 && ca_order_others_are_active(order, only)))
		return NULL;
	*ret_last = atomic_load(&only->stream.last);
	/* a thread that ends the quiet from now on finds that stamp */
	if (atomic_load(&order->hazards) || atomic_load(&order->candidates) > 1 ||
	    atomic_load(&order->only_stream) != only || atomic_load(&only->lost))
		return NULL;
	return only;
}

/* ---- exposure */

/* Something captures, or is about to: nothing unfinished may be handed out any more. Asked under
 * the heap's lock or a magazine's, which ca_order_mark_before_capture takes afterwards: it misses
 * no exposure. */
bool ca_order_may_capture(const struct ca_heap *heap);
/* Every stream is submitted to by the calling thread only. */
bool ca_order_is_ours(struct ca_order *order);
/* Some stream with unfinished work has been submitted to by a thread that is not the calling one.
 */
bool ca_order_others_submit(struct ca_order *order);
/* The next submission to `record` comes after `user` by waits that it has made. */
bool ca_order_is_after(struct ca_stream_record *record, const struct ca_users *users);
/* If what `users` have not finished is handed to `record`, no other stream that has work comes to
 * wait: each comes after them anyway, or `record` comes after all of its work. */
bool ca_order_exposes_freely(struct ca_stream_record *record, const struct ca_users *users);
/* May memory with these users be handed to the calling thread? Yes in a quiet space, or if, for
 * each of them, every other stream has only the calling thread as submitter, and an exact mark is
 * to be had. */
bool ca_order_may_expose(struct ca_order *order, const struct ca_users *users);
/* Such memory was handed out. Called before the block leaves the heap's lock. */
void ca_order_expose(struct ca_order *order, const struct ca_user *user);

/* ---- marks: these call the driver */

/* Asks the oldest points of every stream, recording a mark where blocks wait for one and there is
 * none. 0, or the first error (> 0 the driver's, -EIO); -EBUSY: a capture is in the way. */
int ca_order_poll(struct ca_space *space);
/* Asks whether this user has finished: its mark, or, where it has none, the stream. Records none.
 */
bool ca_order_poll_user(const struct ca_user *user);
/* An exact mark of this user is to be had, or none is needed. */
bool ca_order_may_wait(const struct ca_user *user);
/* Waits on the host for exactly this user. 0: done; -EAGAIN: no exact mark is to be had; -EBUSY;
 * > 0, -EIO: errors. */
int ca_order_wait(struct ca_space *space, const struct ca_user *user);
/* Waits on the host for `user` by whatever road works: 0, or the last error. */
int ca_order_wait_hard(const struct ca_user *user);
/* A context mark covers everything stamped before this was taken; once it is done, tell. Where work
 * is not seen, no two are equal. */
uint64_t ca_order_context_bound(struct ca_order *order);
void ca_order_context_finished(struct ca_order *order, uint64_t bound);

/* Streams by index, without a lock: NULL at the end. */
static inline struct ca_stream_record *
ca_record_at(const struct ca_order *order, unsigned index)
{
	return index < atomic_load(&order->n_streams) ? order->streams[index] : NULL;
}
/* The stream's work that was stamped up to `bound`, or all of it, has finished. */
static inline bool
ca_record_has_finished(const struct ca_stream_record *record, uint64_t bound)
{
	uint64_t done = atomic_load(&record->done);

	return done >= bound || atomic_load(&record->stream.last) <= done;
}

/* ---- devices: the heap's lock is held */

/* Work of the space that is not seen has finished, as far as it was stamped up to `bound`, or there
 * is none. */
bool ca_order_has_nothing_unseen(const struct ca_space *space, uint64_t bound);
/* All that the space runs and that was stamped up to `bound` is known to have finished. True also
 * if the space is dead or poisoned. */
bool ca_order_has_finished(struct ca_space *space, uint64_t bound);

/* No work of the space is unfinished, as far as is known, and none is not seen. Needs no lock. */
bool ca_order_is_idle(struct ca_space *space);
/* Some stream of the space that has not finished up to `bound` has a mark that can be asked. */
bool ca_order_has_mark_to_poll(struct ca_space *space, uint64_t bound);
/* A stream of the space has unfinished work up to `bound` of which no mark is to be had. */
bool ca_order_needs_context_mark(struct ca_space *space, uint64_t bound);
/* A number that grows whenever work stamped up to `bound` is seen to have finished. */
uint64_t ca_order_progress_to(struct ca_space *space, uint64_t bound);

/* No work of the space's device is unfinished, as far as is known. */
bool ca_device_is_idle_locked(const struct ca_space *space);
/*
 * All that the device was ever given came from the calling thread. Another thread could submit,
 * just before the driver's free begins to wait, what waits for the caller's next submission.
 */
bool ca_device_is_only_ours_locked(const struct ca_space *space);

/* ---- what is handed out */

static inline struct ca_stream_record *
ca_held_record(const struct ca_user *user)
{
	return CA_CONTAINER_OF(user->stream, struct ca_stream_record, stream);
}

/* Nothing unfinished is handed out. Needs no lock. */
static inline bool
ca_held_is_finished_only(const struct ca_space *space)
{
	return __atomic_load_n(&space->heap->config.reuse_finished, __ATOMIC_RELAXED) ||
	       atomic_load_explicit(&space->order.finished_only, memory_order_relaxed);
}
/* The stream whose unfinished memory is as good as FREE: the one stream of a quiet space. NULL:
 * there is none. */
static inline struct ca_stream_record *
ca_held_quiet_locked(struct ca_space *space)
{
	struct ca_stream_record *only = ca_order_only_stream(&space->order);

	return only && !ca_held_is_finished_only(space) ? only : NULL;
}
