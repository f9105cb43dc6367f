/* SPDX-License-Identifier: MIT */
/*
 * The streams of a space: birth, death, and who submits to what.
 *
 * Records live as long as their space and are reused: stamps are numbers of the space that only
 * grow, so what an old holder of the pointer believes to be finished or ordered stays true of the
 * stream that has the record now. A closed stream's record is a *ghost* while its work goes on.
 *
 * The handle of a stream goes to the driver only between pin and unpin (pin.c); closing waits for
 * that.
 */
#include "allocator/order/internal.h"
#include "allocator/util/yield.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/mutant.h"

enum {
	GHOSTS_TOLERATED = 16,
	BARRIER_PAUSES = 100,    /* 10 ms */
	CROSSING_PAUSES = 10000, /* 1 s: a call that takes longer waits for the device */
};

struct ca_space *
ca_stream_space(const struct ca_stream *stream)
{
	return ((const struct ca_stream_record *)stream)->space;
}

void
ca_order_init(struct ca_space *space)
{
	struct ca_order *order = &space->order;

	atomic_init(&order->words.epoch, 2);
	atomic_init(&order->words.exposed_count, 1);
	order->words.lull = ca_host_pause_ticks(&space->heap->driver);
	order->words.lull_step = order->words.lull / 16;
	order->traced = ca_tracing(space->heap);
	order->counts = &space->device->order_counts;
	atomic_init(&order->finished_only, space->heap->finished_only);
	atomic_fetch_or(&order->counts->finished_only, space->heap->finished_only);
	if (space->heap->finished_only & ~CA_REASONS_SEEN)
		atomic_fetch_or(&space->attention, CA_ATTENTION_ORDER);
	order->needs_exact_marks = space->heap->registers;
	atomic_init(&order->candidates,
		    (space->heap->had_stream > 1) + order->needs_exact_marks); /* company */
	ca_objects_init(&order->points, &order->arena, sizeof(struct ca_stream_mark));
}

void
ca_order_destroy(struct ca_order *order)
{
	ca_arena_destroy(&order->arena);
}

static void
record_kill(struct ca_stream_record *record)
{
	atomic_store(&record->done, UINT64_MAX);
	atomic_store(&record->stream.armed, 0);
	atomic_store(&record->closed, true);
	record->handle = NULL;
}

void
ca_order_kill(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record;
	struct ca_list dropped;
	unsigned i;

	ca_list_init(&dropped);
	ca_order_lock(order);
	order->dead = true;
	atomic_store(&order->foreign_done, UINT64_MAX);
	for (i = 0; (record = ca_record_at(order, i)); i++) {
		record_kill(record);
		ca_stream_marks_collect_ordered(record, &dropped);
		ca_record_settle_ordered(record);
	}
	ca_order_note_progress(order);
	ca_order_unlock(order);
	ca_stream_marks_drop(space, &dropped);
	if (!atomic_exchange(&order->polled.busy, true)) /* else the one who asks is told */
		ca_polled_mark_drop(&order->polled, &space->heap->driver);
	ca_order_other_inactive(space);
}

void
ca_order_after_fork_child(struct ca_order *order)
{
	struct ca_stream_record *record;
	unsigned i;

	atomic_store(&order->lock.word, CA_LOCK_FREE);
	order->dead = true;
	order->had_stream = false;
	atomic_store(&order->submitting, 0);
	atomic_store(&order->polled.busy, true);
	atomic_store(&order->foreign_done, UINT64_MAX);
	for (i = 0; (record = ca_record_at(order, i)); i++) {
		record_kill(record);
		ca_list_init(&record->points);
		record->by_bound = (struct ca_tree){ NULL };
		ca_list_init(&record->waiting);
		record->calls = 0;
		record->submitting = 0;
	}
	for (i = 0; i < CA_ACTIVE_WORDS; i++)
		atomic_store(&order->active[i], 0);
}

/* Nothing of the former stream goes on, and nothing more will come: it has finished all that it was
 * marked and armed for, and what is submitted to the next one is stamped with more. */
static bool
is_free(struct ca_stream_record *record, struct ca_list *dropped)
{
	if (!atomic_load(&record->closed) || record->calls || ca_record_is_busy(record))
		return false;
	ca_raise(&record->done, ca_order_bound_over(ca_record_order(record), record->wanted));
	ca_stream_marks_collect_ordered(record, dropped);
	return ca_list_empty(&record->points);
}

static int
record_new(struct ca_order *order, struct ca_stream_record **ret_record)
{
	unsigned n = atomic_load(&order->n_streams);
	struct ca_stream_record *record;

	if (n == CA_STREAMS_MAX)
		return -ENOSPC;
	record = ca_arena_alloc_aligned(&order->arena, sizeof(*record),
					_Alignof(struct ca_stream_record));
	if (!record)
		return -ENOMEM;
	record->stream.words = &order->words;
	record->space = ca_order_space(order);
	record->index = n;
	ca_list_init(&record->points);
	ca_list_init(&record->waiting);
	order->streams[n] = record;
	atomic_store(&order->n_streams, n + 1);
	*ret_record = record;
	return 0;
}

static int
record_get(struct ca_order *order, struct ca_stream_record **ret_record, struct ca_list *dropped)
{
	struct ca_stream_record *record;
	unsigned i;

	for (i = 0; (record = ca_record_at(order, i)); i++)
		if (is_free(record, dropped)) {
			*ret_record = record;
			return 0;
		}
	return record_new(order, ret_record);
}

/* Work of the record is submitted after this only, and what it was before has none left. */
static void
set_kind(struct ca_stream_record *record, enum ca_stream_kind kind)
{
	struct ca_order *order = ca_record_order(record);
	uint64_t bit = (uint64_t)1 << record->index % 64;
	unsigned word = record->index / 64, legacy;

	atomic_store(&record->kind, kind);
	for (legacy = 0; legacy < 2; legacy++)
		if (kind != CA_STREAM_NONBLOCKING && (kind == CA_STREAM_LEGACY) == legacy)
			atomic_fetch_or(&order->ordered[legacy][word], bit);
		else
			atomic_fetch_and(&order->ordered[legacy][word], ~bit);
}

/* Nothing of a former stream of the record is left but stamps that are done. */
static void
record_start(struct ca_stream_record *record, enum ca_stream_kind kind, void *handle, bool known)
{
	set_kind(record, kind);
	record->handle = handle;
	record->thread = known || kind == CA_STREAM_PER_THREAD ? ca_order_thread() : 0;
	record->submitted = !known;
	memset(record->known, 0, sizeof(record->known));
	record->known[record->index] = UINT64_MAX; /* its own order */
	memset(record->clock, 0, sizeof(record->clock));
	memset(record->unfinished, 0, sizeof(record->unfinished));
	atomic_store(&record->has_clock, ca_record_order(record)->traced);
	record->known_epoch = 0;
	atomic_store(&record->unmade, 0);
	/* what was armed before the legacy stream was known */
	atomic_store(&record->stream.seen, kind == CA_STREAM_LEGACY ? CA_ORDERED_ARMED : 0);
	atomic_store(&record->stream.armed, 0);
	atomic_store(&record->reused_unordered, 0);
	atomic_store(&record->joined, 0);
	atomic_store(&record->lost, false);
	atomic_store(&record->followed, false);
	atomic_store(&record->closed, false);
}

/* True if it may be worth asking whether ghosts are through: they are many, or have the last
 * records. */
static bool
should_query_closed(struct ca_order *order)
{
	unsigned i, ghosts = 0, taken = 0;
	struct ca_stream_record *record;

	for (i = 0; (record = ca_record_at(order, i)); i++) {
		bool is_closed = atomic_load(&record->closed), is_busy = ca_record_is_busy(record);

		ghosts += is_closed && is_busy;
		taken += !is_closed || is_busy;
	}
	return ghosts >= GHOSTS_TOLERATED || (ghosts && taken == CA_STREAMS_MAX);
}

/* Ghosts whose work is done give up their records; those without a mark by a context mark. */
static void
reclaim_records(struct ca_space *space)
{
	ca_order_poll(space);
	if (should_query_closed(&space->order))
		ca_order_poll_context(space);
}

/* More streams than records: their work is never seen. */
static void
untracked(struct ca_space *space)
{
	ca_order_finished_only(space->heap, space, CA_REASON_STREAMS);
	ca_order_settle_exposed(space->heap, space);
}

int
ca_stream_open(struct ca_space *space, enum ca_stream_kind kind, void *handle, bool known,
	       struct ca_stream **ret_stream)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record = NULL;
	bool ends = false, everywhere = false;
	struct ca_list dropped;
	int r;

	if (should_query_closed(order))
		reclaim_records(space);
	ca_list_init(&dropped);
	ca_heap_lock(space->heap); /* for company: nobody submits here before all spaces know */
	ca_order_lock(order);
	r = order->dead ? -ENODEV : record_get(order, &record, &dropped);
	if (!r) {
		record_start(record, kind, handle, known);
		ends = ca_order_candidate_comes_ordered(order);
		*ret_stream = &record->stream;
	}
	ca_order_unlock(order);
	if (!r)
		everywhere = ca_order_other_active_locked(space);
	ca_heap_unlock(space->heap);
	if (!r && ca_tracing(space->heap))
		ca_trace_stream(record);
	ca_stream_marks_drop(space, &dropped);
	if (ends || everywhere)
		ca_order_mark_exposed_in(space, everywhere);
	if (r == -ENOSPC || r == -ENOMEM)
		untracked(space);
	return r;
}

static bool
is_covered(struct ca_stream_record *record)
{
	uint64_t last = atomic_load(&record->stream.last);

	return last <= atomic_load(&record->done) || ca_stream_mark_find_ordered(record, last);
}

/* When the last call that names the handle has returned. Leaves and retakes the lock. */
static void
release_handle_ordered(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);

	record->calls++; /* nobody else gets the record before we are through */
	while (record->calls > 1) {
		ca_order_unlock(order);
		ca_yield();
		ca_order_lock(order);
	}
	record->handle = NULL;
	record->calls--;
}

void
ca_stream_close(struct ca_stream *stream, bool gone)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	bool lost;

	if (!gone && ca_record_is_busy(record))
		ca_stream_mark_record_if_due(record);
	ca_order_lock(order);
	if (order->dead || atomic_load(&record->closed)) {
		ca_order_unlock(order);
		return;
	}
	if (ca_order_is_quiet_ordered(order))
		ca_raise(&record->exact_after, atomic_load(&record->stream.last));
	atomic_store(&record->closed, true);
	atomic_store(&record->stream.armed, 0);
	ca_order_candidates_change_ordered(order, -1);
	lost = !is_covered(record);
	release_handle_ordered(record);
	ca_order_unlock(order);
	if (lost)
		ca_record_set_lost(record);
	if (ca_order_last_stream == stream)
		ca_order_last_stream = NULL;
}

/* ---- operations of ours on the legacy stream */

unsigned
ca_order_open_kinds(struct ca_order *order)
{
	struct ca_stream_record *record;
	unsigned i, kinds = 0;

	for (i = 0; (record = ca_record_at(order, i)); i++)
		if (!atomic_load(&record->closed))
			kinds |= 1u << atomic_load(&record->kind);
	return kinds;
}

static bool
is_blocking(const struct ca_stream_record *record)
{
	enum ca_stream_kind kind = atomic_load(&record->kind);

	return kind == CA_STREAM_BLOCKING || kind == CA_STREAM_PER_THREAD;
}

static bool
is_first_ordered(struct ca_order *order)
{
	struct ca_stream_record *record;
	bool alone = true;
	unsigned i;

	for (i = 0; alone && (record = ca_record_at(order, i)); i++)
		alone = !is_blocking(record) ||
			(atomic_load(&record->closed) ? !ca_record_is_busy(record)
						      : !record->submitted);
	return alone;
}

bool
ca_order_legacy_begin(struct ca_space *space, bool or_idle)
{
	struct ca_order *order = &space->order;
	bool alone;

	atomic_fetch_add(&order->barriers, 1);
	ca_order_lock(order);
	alone = is_first_ordered(order);
	ca_order_unlock(order);
	if (!alone && or_idle)
		alone = ca_order_is_ours(order) && ca_order_is_idle(space);
	if (!alone)
		ca_order_legacy_end(space);
	return alone;
}

void
ca_order_legacy_end(struct ca_space *space)
{
	struct ca_order *order = &space->order;

	ca_order_lock(order);
	if (atomic_fetch_sub(&order->barriers, 1) == 1)
		order->passed = false;
	ca_order_unlock(order);
}

bool
ca_order_legacy_call_begin(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	bool allowed;

	ca_order_lock(order);
	allowed = !order->passed;
	if (allowed)
		atomic_fetch_add(&order->crossing, 1);
	ca_order_unlock(order);
	return allowed;
}

void
ca_order_legacy_call_end(struct ca_space *space)
{
	atomic_fetch_sub(&space->order.crossing, 1);
}

/* True: not within so many pauses. */
static bool
is_still_set(_Atomic unsigned *count, unsigned pauses)
{
	const struct timespec pause = { .tv_nsec = 100000 };

	while (atomic_load(count) && pauses--)
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	return atomic_load(count);
}

/* A submission that loses patience forbids further calls, and waits for those that go on: such an
 * operation must not come between two submissions. */
static void
await_barriers(struct ca_order *order)
{
	if (is_still_set(&order->barriers, BARRIER_PAUSES)) {
		ca_order_lock(order);
		order->passed = atomic_load(&order->barriers);
		ca_order_unlock(order);
	}
	is_still_set(&order->crossing, CROSSING_PAUSES);
}

void
ca_stream_note_thread(struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	uint64_t thread = ca_order_thread();

	ca_order_lock(order);
	if (record->thread != thread)
		record->thread = record->submitted ? 0 : thread;
	record->submitted = true;
	ca_order_unlock(order);
	if (is_blocking(record))
		await_barriers(order);
}
