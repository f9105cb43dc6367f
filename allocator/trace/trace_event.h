/* SPDX-License-Identifier: MIT */
/* Records of what happens, for the tracer. Only if ca_tracing(). */
#pragma once

#include <stdint.h>

#include "allocator/trace/format.h"

struct ca_block;
struct ca_segment;
struct ca_space;
struct ca_stream_record;
struct ca_users;

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
void ca_trace_refused(struct ca_space *space, uint64_t bytes, int code);
/* What was submitted to the stream until lately has finished. */
void ca_trace_finished_ordered(struct ca_stream_record *record);
/* The stream had nothing to do, and is given work. */
void ca_trace_work(struct ca_stream_record *record);
/* Until the calling thread's allocation the device may be asked more than once. */
void ca_trace_look(struct ca_space *space);
/* The record is another stream's now. */
void ca_trace_stream(struct ca_stream_record *record);
