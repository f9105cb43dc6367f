/* SPDX-License-Identifier: MIT */
/*
 * From what happens to blocks, segments and streams to records (allocator/trace/format.h).
 *
 * A stream's number is made of its space's and of its place in that space; places are used again,
 * and a STREAM record says so. Spaces beyond the numbers' reach have streams without a number.
 */
#include "allocator/trace/trace.h"

#include <string.h>

#include "allocator/core/thread.h"

enum { SPACES_MAX = CA_TRACE_ANY_STREAM / CA_STREAMS_MAX };

static uint64_t
with_thread(uint64_t low)
{
	return (low & (((uint64_t)1 << CA_TRACE_BYTES_BITS) - 1)) | ca_order_thread()
									    << CA_TRACE_BYTES_BITS;
}

uint16_t
ca_trace_number_of(const struct ca_stream_record *record)
{
	if (record->space->number >= SPACES_MAX)
		return CA_TRACE_ANY_STREAM;
	return (uint16_t)(record->space->number * CA_STREAMS_MAX + record->index);
}

/* The one that the calling thread last submitted to, if that is the space's. */
static uint16_t
last_stream(const struct ca_space *space)
{
	const struct ca_stream_record *record =
		(const struct ca_stream_record *)ca_order_last_stream;

	return record && record->space == space ? ca_trace_number_of(record) : CA_TRACE_NO_STREAM;
}

void
ca_trace_add(struct ca_heap *heap, enum ca_trace_kind kind, unsigned device, uint16_t stream,
	     uint64_t a, uint64_t b)
{
	struct ca_trace_record record = {
		.kind = (uint8_t)kind,
		.device = device < CA_TRACE_NO_DEVICE ? (uint8_t)device : CA_TRACE_NO_DEVICE,
		.stream = stream,
		.a = a,
		.b = with_thread(b),
	};
	bool urgent = kind == CA_TRACE_FAILED || kind == CA_TRACE_REFUSED ||
		      kind == CA_TRACE_ASYNC_FAILED || kind == CA_TRACE_ASYNC_REFUSED;

	ca_tracer_add(heap->tracer, &record, urgent);
}

static void
add(struct ca_space *space, enum ca_trace_kind kind, uint16_t stream, uint64_t a, uint64_t b)
{
	ca_trace_add(space->heap, kind, space->device->ordinal, stream, a, b);
}

void
ca_trace_alloc_locked(const struct ca_block *block)
{
	struct ca_space *space = block->segment->space;

	add(space, block->segment->foreign ? CA_TRACE_ADOPT : CA_TRACE_ALLOC, last_stream(space),
	    block->address, block->requested);
}

void
ca_trace_kept_locked(const struct ca_block *block)
{
	struct ca_space *space = block->segment->space;

	add(space, CA_TRACE_KEPT, last_stream(space), block->address, block->requested);
}

void
ca_trace_free_locked(const struct ca_block *block, const struct ca_users *users)
{
	uint16_t number[1 + CA_TRACE_MORE_USERS] = { CA_TRACE_NO_STREAM, CA_TRACE_NO_STREAM,
						     CA_TRACE_NO_STREAM, CA_TRACE_NO_STREAM };
	unsigned n = 0;

	for (; users && n < users->n && n <= CA_TRACE_MORE_USERS; n++)
		number[n] = ca_trace_number_of((struct ca_stream_record *)users->user[n].stream);
	if (users && (users->context || n < users->n))
		number[n <= CA_TRACE_MORE_USERS ? n : CA_TRACE_MORE_USERS] = CA_TRACE_ANY_STREAM;
	add(block->segment->space, CA_TRACE_FREE, number[0], block->address,
	    number[1] | (uint64_t)number[2] << 16 | (uint64_t)number[3] << 32);
}

void
ca_trace_failed(struct ca_space *space, uint64_t bytes, int code)
{
	add(space, CA_TRACE_FAILED, last_stream(space), bytes, (uint32_t)code);
}

void
ca_trace_segment_locked(const struct ca_segment *segment, enum ca_trace_kind kind)
{
	add(segment->space, kind, CA_TRACE_NO_STREAM, segment->address, segment->bytes);
}

void
ca_trace_rejected(struct ca_space *space, uint64_t bytes, int code)
{
	add(space, CA_TRACE_REFUSED, CA_TRACE_NO_STREAM, bytes, (uint32_t)code);
}

void
ca_trace_finished(struct ca_stream_record *record, uint64_t left, bool busy, uint64_t bound)
{
	add(record->space, CA_TRACE_FINISHED, ca_trace_number_of(record), left,
	    busy ? bound << 1 | 1 : 0);
}

void
ca_trace_work(struct ca_stream_record *record)
{
	add(record->space, CA_TRACE_WORK, ca_trace_number_of(record), 0, 0);
}

void
ca_trace_look(struct ca_space *space)
{
	add(space, CA_TRACE_LOOK, CA_TRACE_NO_STREAM, 0, 0);
}

void
ca_trace_event(struct ca_stream_record *record, enum ca_trace_kind kind, const void *event)
{
	if (atomic_load_explicit(&record->space->heap->told, memory_order_relaxed))
		add(record->space, kind, ca_trace_number_of(record), (uintptr_t)event, 0);
}

void
ca_trace_stream(struct ca_stream_record *record)
{
	static const uint8_t sorts[] = {
		[CA_STREAM_BLOCKING] = CA_TRACE_STREAM_BLOCKING,
		[CA_STREAM_NONBLOCKING] = CA_TRACE_STREAM_NONBLOCKING,
		[CA_STREAM_LEGACY] = CA_TRACE_STREAM_LEGACY,
		[CA_STREAM_PER_THREAD] = CA_TRACE_STREAM_PER_THREAD,
	};

	add(record->space, CA_TRACE_STREAM, ca_trace_number_of(record), 0, sorts[record->kind]);
}

void
ca_tracer_device(struct ca_tracer *tracer, unsigned ordinal, const char *name, uint64_t bytes)
{
	struct ca_trace_record record = { .kind = CA_TRACE_DEVICE,
					  .device = (uint8_t)ordinal,
					  .stream = CA_TRACE_NO_STREAM,
					  .a = bytes };
	size_t length = name ? strlen(name) : 0, at;

	if (ordinal >= CA_TRACE_NO_DEVICE)
		return;
	ca_tracer_add(tracer, &record, false);
	for (at = 0; at < length; at += 16) {
		char piece[16] = { 0 };

		memcpy(piece, name + at, length - at < 16 ? length - at : 16);
		record.kind = CA_TRACE_NAME;
		record.stream = (uint16_t)(at / 16);
		memcpy(&record.a, piece, 8);
		memcpy(&record.b, piece + 8, 8);
		ca_tracer_add(tracer, &record, false);
	}
}

void
ca_tracer_fork(struct ca_tracer *tracer)
{
	struct ca_trace_record record = { .kind = CA_TRACE_FORK,
					  .device = CA_TRACE_NO_DEVICE,
					  .stream = CA_TRACE_NO_STREAM,
					  .b = with_thread(0) };

	ca_tracer_add(tracer, &record, false);
}
