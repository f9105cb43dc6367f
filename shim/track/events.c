/* SPDX-License-Identifier: MIT */
/*
 * One record an event, found through a table of handles. `owner` is the handle while the event
 * teaches, and is cleared before the sequence moves: a thread that moved or read the sequence first
 * finds it moved when it is done, and one that came later finds the owner gone.
 */
#include "shim/track/events.h"

#include <stdatomic.h>

#include "shim/state/handle_table.h"
#include "shim/state/leaf_lock.h"
#include "shim/state/record_arena.h"

struct record {
	struct ca_event event;
	_Atomic uintptr_t owner; /* the handle; 0: teaches nothing */
	_Atomic bool outside;    /* other processes may record it */
	CUcontext context;       /* where it was made; NULL: unknown */
	struct record *next;     /* in a free list; under free_lock */
};

static struct ca_handles handles;
static struct record *free_records;
static struct ca_leaf_lock free_lock;

/* NULL: no memory. */
static struct record *
take_record(CUcontext context)
{
	struct record *record;

	ca_leaf_lock_enter(&free_lock);
	record = free_records;
	if (record)
		free_records = record->next;
	ca_leaf_lock_leave(&free_lock);
	if (!record)
		record = ca_slab_take(sizeof(*record));
	if (record)
		record->context = context;
	return record;
}

static void
silence(struct record *record)
{
	atomic_store(&record->owner, 0);
	ca_event_forget(&record->event);
}

/* The record is in no table any more. */
static void
return_record(struct record *record)
{
	silence(record);
	ca_leaf_lock_enter(&free_lock);
	record->next = free_records;
	free_records = record;
	ca_leaf_lock_leave(&free_lock);
}

/* The record that the calling thread asked for last: who records an event waits for it next, most
 * often. It is right if its owner is the event. */
static struct record nobody;
static __thread struct record *last __attribute__((tls_model("initial-exec"))) = &nobody;

static __attribute__((noinline)) struct record *
look_up(CUevent event)
{
	struct record *record = (struct record *)(uintptr_t)ca_handles_get(&handles, event);

	if (record)
		__atomic_store_n(&last, record, __ATOMIC_RELAXED);
	return record;
}

/* NULL: none. `event` is not NULL. */
static inline struct record *
find(CUevent event)
{
	struct record *record = __atomic_load_n(&last, __ATOMIC_RELAXED); /* once: handlers look */

	return atomic_load(&record->owner) == (uintptr_t)event ? record : look_up(event);
}

/* The calling thread's last one is the event's, and teaches: then nobody else records it, either
 * (`outside`). NULL: it is not. */
static inline struct record *
find_last(CUevent event)
{
	struct record *record = __atomic_load_n(&last, __ATOMIC_RELAXED);

	return event && atomic_load(&record->owner) == (uintptr_t)event ? record : NULL;
}

/* NULL, or the part that teaches. */
static inline struct ca_event *
find_valid(CUevent event)
{
	struct record *record = find_last(event);

	if (__builtin_expect(!record, 0)) {
		record = event ? look_up(event) : NULL;
		if (!record || !atomic_load(&record->owner))
			return NULL;
	}
	return &record->event;
}

/* Is it still the event that was looked up? */
static bool
is_still(const struct ca_event *event, CUevent handle)
{
	return atomic_load(&((const struct record *)event)->owner) == (uintptr_t)handle;
}

static void
enter(CUevent event, CUcontext context, bool outside)
{
	struct record *record = take_record(context);
	uint64_t old = 0;

	if (record) {
		atomic_store(&record->outside, outside);
		atomic_store(&record->owner, outside ? 0 : (uintptr_t)event);
	}
	if (!record || ca_handles_put(&handles, event, (uintptr_t)record, &old)) {
		old = ca_handles_remove(&handles, event);
		if (record)
			return_record(record);
	}
	if (old) /* its end was not seen: the handle has a new bearer */
		return_record((struct record *)(uintptr_t)old);
}

void
ca_events_created(CUevent event, CUcontext context, unsigned flags)
{
	enter(event, context, flags & CU_EVENT_INTERPROCESS);
}

void
ca_events_opened(CUevent event)
{
	enter(event, NULL, true);
}

void
ca_events_destroyed(CUevent event)
{
	uint64_t word = event ? ca_handles_remove(&handles, event) : 0;

	if (word)
		return_record((struct record *)(uintptr_t)word);
}

static bool
was_of_context(uint64_t word, void *arg)
{
	struct record *record = (struct record *)(uintptr_t)word;

	if (record->context != arg)
		return false;
	return_record(record);
	return true;
}

void
ca_events_context_died(CUcontext context)
{
	ca_handles_scan(&handles, was_of_context, context);
}

/* As long as it goes on the record teaches nothing, whose event's it comes to be. */
void
ca_events_forget_begin(struct ca_events_use *use, CUevent event)
{
	struct record *record = event ? find(event) : NULL;

	*use = (struct ca_events_use){ .event = record ? &record->event : NULL, .handle = event };
	if (record)
		(void)ca_event_record_begin(&record->event, NULL);
}

void
ca_events_forget_end(struct ca_events_use *use)
{
	if (use->event)
		ca_event_record_end(use->event, 0, false);
}

void
ca_events_silence(CUevent event)
{
	struct record *record = event ? find(event) : NULL;

	if (record)
		silence(record);
}

void
ca_events_record_begin(struct ca_events_use *use, CUevent event, struct ca_stream *stream)
{
	use->event = find_valid(event);
	use->handle = event;
	if (use->event)
		use->sequence = ca_event_record_begin(use->event, stream);
}

void
ca_events_record_end(struct ca_events_use *use, bool done)
{
	if (use->event)
		ca_event_record_end(use->event, use->sequence,
				    done && is_still(use->event, use->handle));
}

/* Of another than the last one. */
static __attribute__((noinline)) struct record *
find_for_look(struct ca_events_use *use, CUevent event)
{
	struct record *record = event ? look_up(event) : NULL;

	use->outside = !record || atomic_load(&record->outside);
	return record && atomic_load(&record->owner) == (uintptr_t)event ? record : NULL;
}

void
ca_events_look(struct ca_events_use *use, CUevent event)
{
	struct record *record = find_last(event);

	use->event = NULL;
	use->handle = event;
	use->outside = false;
	if (__builtin_expect(!record, 0) && !(record = find_for_look(use, event)))
		return;
	use->sequence = ca_event_look(&record->event);
	if (is_still(&record->event, event))
		use->event = &record->event;
}

void
ca_events_finished(struct ca_events_use *use)
{
	if (use->event)
		ca_event_finished(use->event, use->sequence);
}

void
ca_events_after_fork_child(void)
{
	last = &nobody;
	ca_handles_after_fork_child(&handles);
	free_records = NULL;
	ca_leaf_lock_leave(&free_lock);
}
