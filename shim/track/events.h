/* SPDX-License-Identifier: MIT */
/*
 * The program's events: which of them teach us something, and what (allocator/order/order.h).
 *
 * Only an event whose birth in this process we saw teaches: not one of another process, nor one
 * that other processes may record (CU_EVENT_INTERPROCESS), nor one that a graph records at each of
 * its launches. To wait for an event of another process, or one of unknown birth, is to wait for
 * somebody we do not see.
 *
 * A destroyed handle may come back at once, so an event is forgotten before the real destroy. Its
 * record is reused for other events while a late thread may still hold it: a thread that copied or
 * began to record looks afterwards whether the record is still that event's, and what it learned
 * counts only if the record's sequence (struct ca_event) has not moved since. The sequence never
 * goes back.
 *
 * Thread-safe; no driver call; no malloc; errno kept. 100,000 events are nothing unusual.
 */
#pragma once

#include <stdbool.h>

#include "allocator/order/order.h"
#include "shim/bind/cuda_abi.h"

/* The driver made `event` in `context` (the current one) with these CU_EVENT_* flags. */
void ca_events_created(CUevent event, CUcontext context, unsigned flags);
/* The driver opened another process's event. */
void ca_events_opened(CUevent event);
/* Before the real destroy, whether or not it will succeed. */
void ca_events_destroyed(CUevent event);
/* The driver destroyed `context` and its events. */
void ca_events_context_died(CUcontext context);
/* From now on it teaches nothing: a graph that records it was made. */
void ca_events_silence(CUevent event);

/* An event for the duration of one call. */
struct ca_events_use {
	struct ca_event *event; /* NULL: teaches nothing */
	CUevent handle;
	uint64_t sequence; /* 0: teaches nothing, either */
	bool outside;      /* somebody outside this process, or unknown to us, may have to end it */
};

/* Around the real record; `stream` NULL: it teaches nothing. `done`: it succeeded, and did not
 * become part of a capture. */
void ca_events_record_begin(struct ca_events_use *use, CUevent event, struct ca_stream *stream);
void ca_events_record_end(struct ca_events_use *use, bool done);
/* Around a real call that records the event by a road that teaches nothing. Should the event be
 * destroyed meanwhile, and its handle come back, the end is still that of the same record. */
void ca_events_forget_begin(struct ca_events_use *use, CUevent event);
void ca_events_forget_end(struct ca_events_use *use);
/* Before a wait for the event; then, if that succeeded, one of the others. */
void ca_events_look(struct ca_events_use *use, CUevent event);
static inline void
ca_events_waited(const struct ca_events_use *use, struct ca_stream *stream)
{
	if (use->event)
		ca_event_waited(use->event, use->sequence, stream);
}
void ca_events_finished(struct ca_events_use *use);

void ca_events_after_fork_child(void);
