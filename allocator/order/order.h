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

#include "allocator/api/heap.h"
#include "allocator/util/ticks.h"
#include "config/mutant.h"

enum ca_stream_kind {
	CA_STREAM_BLOCKING, /* ordered with the legacy stream by the driver */
	CA_STREAM_NONBLOCKING,
	CA_STREAM_LEGACY,
	CA_STREAM_PER_THREAD, /* blocking, and only its own thread can name it */
};

/* The words every submission reads; one a space. */
struct ca_order_words {
	/* G: even, starting at 2; one more once a stream was stamped with it */
	_Alignas(64) _Atomic uint64_t epoch;
	_Alignas(64) _Atomic uint64_t exposures; /* moves when something is exposed; starts at 1 */
	/* ticks without a submission that are a lull; 0: none is. Constant, as is a 16th of it */
	uint64_t lull, lull_grain;
};

/* What a submission reads and writes of its stream. Embedded at the start of the private record
 * (allocator/core/types.h); valid for the life of the process: a closed stream's record may later
 * serve another stream of the same space. */
struct ca_stream {
	_Alignas(64) struct ca_order_words *words; /* constant */
	/* `exposures` for which the guard has run; 0: never. And CA_WATCHED: memory was handed out
	 * unfinished with no mark to come, so the next submission behind a lull records one. */
	_Atomic uint64_t seen;
	_Atomic uint64_t armed; /* != 0: record a mark before the next submission */
	_Atomic uint64_t last;  /* largest stamp; 0: never submitted */
	/* watched: ticks of the last submission, or of one at most a grain before it */
	_Atomic uint64_t noted;
	_Atomic unsigned stamping; /* threads inside ca_submit_stamp */
};

/* ca_stream.seen */
#define CA_WATCHED ((uint64_t)1 << 63)

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
 * forgot): who submits to what decides what may be exposed. */
void ca_stream_note_thread(struct ca_stream *stream);

/* Of a record that will never be another space's. */
struct ca_space *ca_stream_space(const struct ca_stream *stream);

/* The stream of the calling thread's last submission; NULL: none. */
extern __thread struct ca_stream *ca_order_last_stream __attribute__((tls_model("initial-exec")));
/* A number for the calling thread: never 0, never another thread's. A block has room for the lower
 * 32 bits; a number that needs more has none there, and so is never equal to a block's. */
uint64_t ca_order_thread(void);

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
ca_lull_put_off(struct ca_stream *stream, uint64_t now)
{
	atomic_store_explicit(&stream->noted, now, memory_order_relaxed);
}

/* Before a submission to a watched stream: true, and noted, if the last one is not long ago.
 * Threads that share the stream would pass its line on each time, so what is noted may be a little
 * old. */
static inline bool
ca_lull_is_none(struct ca_stream *stream)
{
	uint64_t now = ca_ticks();
	uint64_t ago = now - atomic_load_explicit(&stream->noted, memory_order_relaxed);

	if ((int64_t)ago >= (int64_t)stream->words->lull) /* another processor's may be ahead */
		return false;
	if (ago > stream->words->lull_grain)
		ca_lull_put_off(stream, now);
	return true;
}

/* 0: nothing was exposed since the guard last ran for the stream, and it is neither armed nor
 * watched. CA_WATCHED: only that. */
static inline uint64_t
ca_submit_news(struct ca_stream *stream)
{
	uint64_t exposures = atomic_load_explicit(&stream->words->exposures, memory_order_acquire);

	return (exposures ^ atomic_load_explicit(&stream->seen, memory_order_relaxed)) |
	       atomic_load_explicit(&stream->armed, memory_order_relaxed) |
	       CA_MUTANT(STAMP_BEFORE_CALL);
}

static inline bool
ca_submit_needs_guard(struct ca_stream *stream)
{
	uint64_t news = ca_submit_news(stream);

	return __builtin_expect(news != 0, 0) && (news != CA_WATCHED || !ca_lull_is_none(stream));
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

/* What ca_submit_end does but for the stamp; true if that is needed, for *ret_epoch. */
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
bool ca_submit_must_serialize(struct ca_stream *stream);
/* After a launch that waited for all before it (the attribute was taken off, or it never had it)
 * went out: everything exposed before this thread's last ca_submit_must_serialize is behind it. An
 * ordinary launch may call both; it need not. */
void ca_submit_serialized(struct ca_stream *stream);
/* Work in another space may have touched memory of `space` (call after the real call returned). */
void ca_submit_foreign(struct ca_space *space);

/* Before a capture begins: marks what is exposed in every space and has no mark. While anything
 * captures none can be recorded, and a stream that captures cannot even be waited for by the host.
 */
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
enum { CA_CLOCK_PARTS = 8 };
struct ca_clock_part {
	struct ca_stream *stream;
	uint64_t stamp;
};
struct ca_event {
	_Atomic uint64_t sequence; /* odd: a record is in progress or nothing is known */
	_Atomic unsigned
		recording; /* records in progress: which comes last, only the driver knows */
	struct ca_stream *stream;
	uint64_t bound;
	struct ca_clock_part clock[CA_CLOCK_PARTS]; /* what the recorded stream was ordered after */
};

/*
 * Around the real record of `event` on `stream` (NULL: by a road that teaches nothing). Begin
 * before the call; end after, with its success; each begin has its end. Of records that overlap
 * nothing is learned.
 */
struct ca_event_record {
	uint64_t sequence;
	uint64_t bound;
	struct ca_clock_part clock[CA_CLOCK_PARTS];
};
struct ca_event_record ca_event_record_begin(struct ca_event *event, struct ca_stream *stream);
void ca_event_record_end(struct ca_event *event, struct ca_stream *stream,
			 struct ca_event_record record, bool done);
/* The event is about to be destroyed, or to be recorded by something that we shall not see. */
void ca_event_forget(struct ca_event *event);
/*
 * Around the real cuStreamWaitEvent, cuEventSynchronize or cuEventQuery: copy before, and use the
 * copy afterwards only if the call succeeded and the event is still the same.
 */
struct ca_event_copy {
	uint64_t sequence;
	struct ca_stream *stream; /* NULL: teaches nothing */
	uint64_t bound;
	struct ca_clock_part clock[CA_CLOCK_PARTS];
};
void ca_event_copy(struct ca_event *event, struct ca_event_copy *ret_copy);
/* `stream` now comes after the event (same space only; otherwise nothing is learned). */
void ca_event_waited(struct ca_event *event, const struct ca_event_copy *copy,
		     struct ca_stream *stream);
/* The event has completed: so has what it stands for, and what that was ordered after. */
void ca_event_finished(struct ca_event *event, const struct ca_event_copy *copy);

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
	X(DEVICE_GRAPH, "device_graph", "a graph that a device can launch was made")

enum {
#define X(name, text, why) CA_BIT_##name,
	CA_FINISHED_ONLY_REASONS(X)
#undef X
#define X(name, text, why) CA_REASON_##name = 1u << CA_BIT_##name,
		CA_FINISHED_ONLY_REASONS(X)
#undef X
};

/* From now on every freed block of `space` (NULL: of every space, present and future) needs a
 * context mark, and nothing is exposed. True the first time for this reason there (for the log). */
bool ca_order_finished_only(struct ca_heap *heap, struct ca_space *space, unsigned reason);
/*
 * For who knows more than submissions tell (the replay of a trace that names each block's stream):
 * from now on what is freed in `space` has no other user than `stream`, whatever else was submitted
 * to since it was allocated. NULL: as always, whoever was.
 */
void ca_order_set_sole_user(struct ca_space *space, struct ca_stream *stream);

/* Waits on the host for what is exposed in `space` (NULL: in every space), for work that no guard
 * can order is about to begin. Call after ca_order_finished_only. */
void ca_order_settle_exposed(struct ca_heap *heap, struct ca_space *space);

/* Waits on the host until nothing that is exposed in `space` (NULL: in every space) is unfinished.
 */
void ca_order_settle_exposed(struct ca_heap *heap, struct ca_space *space);

/*
 * An accessor that is no stream is given [address, address + bytes). Waits on the host for what the
 * inherited users of each block of ours there have not finished (counted as `settles`): exactly for
 * them where that is known, else, in a quiet space, for what was submitted to their stream so far.
 * From then on the space is not quiet any more, and memory of the range is handed out finished
 * only, until its segment is back at the driver. -ENOENT: nothing of ours is there;
 * -EBUSY: a capture of that very stream is in the way.
 */
int ca_register(struct ca_heap *heap, uint64_t address, uint64_t bytes);
/* Memory will be registered: no space of the heap is quiet any more, so that the first
 * registration, too, waits exactly for what it must. */
void ca_register_begins(struct ca_heap *heap);
