/* SPDX-License-Identifier: MIT */
/*
 * The writer of traces (format: allocator/trace/format.h).
 *
 * Events go into a ring of records in memory of our own, without a lock: a thread takes the next
 * place by an atomic add and fills it in. The place is taken where the event happens (for a free:
 * before anybody else can have the memory; for an allocation: when the block is had), so that the
 * order of places is the order of events. A thread that finds enough in the ring writes it to the
 * file (drains it) once it has left the heap's lock; only when the ring is full does an event wait
 * for that.
 *
 * Small writes instead of a mapped file: a file that is cut short or whose disk is full can never
 * end the program that way (a mapping would: SIGBUS). The price: a process that is killed loses the
 * records that were not drained, at most CA_TRACE_RING, and no more than CA_TRACE_DRAIN of them and
 * the program's acts since its last call when the file takes the writes without delay.
 *
 * When the file cannot be written any more there is one line in the log, and no further events.
 * Thread-safe, no malloc, no stdio, errno kept. No function takes a lock, so all may be called with
 * the heap's lock held.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/driver.h"
#include "allocator/core/types.h"
#include "allocator/trace/format.h"

enum {
	CA_TRACE_RING = 4096,                  /* records; a power of two */
	CA_TRACE_DRAIN = 1024,                 /* records that are worth a write */
	CA_TRACE_DRAIN_NS = 100 * 1000 * 1000, /* or after that time, if something happens */
};

struct ca_tracer;

struct ca_trace_start {
	const char *pattern;    /* of the file: config/path.h */
	const char *program;    /* may be NULL */
	const char *settings;   /* lines, each ended by a newline; may be NULL */
	struct ca_driver clock; /* only clock_ns and self are used */
	bool counter;           /* that clock is the machine's: allocator/trace/trace_clock.h */
};

/* Makes the file and writes its header. -ENOMEM, or the -errno of the file. */
int ca_tracer_open(const struct ca_trace_start *start, struct ca_tracer **ret_tracer);
/* Writes CA_TRACE_END and the rest. Later events are dropped; the tracer stays valid for ever. */
void ca_tracer_close(struct ca_tracer *tracer);
/* In a forked child: the ring's records are the parent's to write. The file is closed, and events
 * are dropped. */
void ca_tracer_after_fork_child(struct ca_tracer *tracer);

/* The device has `bytes` of memory (0: not known); `name` may be NULL. Once a device. */
void ca_tracer_device(struct ca_tracer *tracer, unsigned ordinal, const char *name, uint64_t bytes);
/* The process was copied. In the parent. */
void ca_tracer_fork(struct ca_tracer *tracer);
/* Adds a record; its time is now. `urgent`: worth a write although the ring is nearly empty. */
void ca_tracer_add(struct ca_tracer *tracer, const struct ca_trace_record *record, bool urgent);

/* Read by everybody, written at the beginning and end of a drain. At the tracer's start. */
struct ca_tracer_words {
	_Alignas(64) _Atomic bool due;
	_Atomic bool stopped;
};

/* True if the ring is worth a drain: to be asked after every operation, without locks. */
static inline bool
ca_tracer_is_due(struct ca_tracer *tracer)
{
	return atomic_load_explicit(&((struct ca_tracer_words *)tracer)->due, memory_order_relaxed);
}
/* Writes what is complete; returns at once if another thread is doing that. */
void ca_tracer_drain(struct ca_tracer *tracer);
/* Events are no longer written. */
static inline bool
ca_tracer_is_stopped(const struct ca_tracer *tracer)
{
	return atomic_load_explicit(&((const struct ca_tracer_words *)tracer)->stopped,
				    memory_order_relaxed);
}
/* The file's name: CA_PATH_MAX bytes. */
const char *ca_tracer_path(const struct ca_tracer *tracer);

/* ---- trace_event.c: records of what happens */

/* A trace is being recorded: the functions below are for then. */
static inline bool
ca_tracing(const struct ca_heap *heap)
{
	return __builtin_expect(heap->tracer != NULL, 0);
}

/* Of whatever road: a record on the device, with the calling thread's number added to `b`. */
void ca_trace_add(struct ca_heap *heap, enum ca_trace_kind kind, unsigned device, uint16_t stream,
		  uint64_t a, uint64_t b);
/* The stream's number in the trace. */
uint16_t ca_trace_number_of(const struct ca_stream_record *record);

/* A block became the program's. */
void ca_trace_alloc_locked(const struct ca_block *block);
/* A block stops being the program's, and nobody else can have it so far. `users` as
 * ca_order_users tells; NULL: none. */
void ca_trace_free_locked(const struct ca_block *block, const struct ca_users *users);
/* The free that was recorded has failed: the block is still the program's. */
void ca_trace_kept_locked(const struct ca_block *block);
/* The program was refused `bytes`. */
void ca_trace_failed(struct ca_space *space, uint64_t bytes, int code);
/* A segment came or went. */
void ca_trace_segment_locked(const struct ca_segment *segment, enum ca_trace_kind kind);
/* The driver refused a segment. */
void ca_trace_rejected(struct ca_space *space, uint64_t bytes, int code);
/* Work submitted to the stream until lately has finished; `busy`: more was submitted since, and
 * `bound` is the largest stamp that has finished. `left`: streams of the space with unfinished
 * work.
 */
void ca_trace_finished(struct ca_stream_record *record, uint64_t left, bool busy, uint64_t bound);
/* The stream had nothing to do, and is given work. */
void ca_trace_work(struct ca_stream_record *record);
/* Until the calling thread's allocation the device may be asked more than once. */
void ca_trace_look(struct ca_space *space);
/* The program records its event in the stream, or lets the stream wait for it: only where there is
 * memory whose reuse depends on that. */
void ca_trace_event(struct ca_stream_record *record, enum ca_trace_kind kind, const void *event);
/* The record is another stream's now. */
void ca_trace_stream(struct ca_stream_record *record);
