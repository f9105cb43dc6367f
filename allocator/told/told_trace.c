/* SPDX-License-Identifier: MIT */
/* Records of the told heap (allocator/trace/format.h). An allocation's pool is not in its record: a
 * reader knows it by the segment. */
#include "allocator/told/internal.h"

static void
add(const struct ca_told_pool *pool, enum ca_trace_kind kind, uint16_t stream, uint64_t a,
    uint64_t b)
{
	ca_trace_add(pool->told->heap, kind, pool->ordinal, stream, a, b);
}

static uint16_t
number_of(const struct ca_told_pool *pool)
{
	return pool->number < CA_TRACE_ANY_STREAM ? (uint16_t)pool->number : CA_TRACE_ANY_STREAM;
}

void
ca_told_trace_alloc_told(const struct ca_told_block *block, const struct ca_stream *stream)
{
	add(block->segment->pool, CA_TRACE_ASYNC_ALLOC, ca_trace_number_of(ca_told_record(stream)),
	    block->address, block->requested);
}

void
ca_told_trace_free_told(const struct ca_told_block *block, const struct ca_stream *stream,
			bool is_known)
{
	uint16_t number = is_known ? CA_TRACE_NO_STREAM : CA_TRACE_ANY_STREAM;
	uint64_t stamp = 0;

	if (stream) {
		number = ca_trace_number_of(ca_told_record(stream));
		stamp = atomic_load(&stream->words->epoch) | 1;
	}
	add(block->segment->pool, CA_TRACE_ASYNC_FREE, number, block->address, stamp);
}

void
ca_told_trace_segment_told(const struct ca_told_segment *segment, enum ca_trace_kind kind)
{
	add(segment->pool, kind, number_of(segment->pool), segment->address, segment->bytes);
}

void
ca_told_trace_pool(struct ca_told_pool *pool)
{
	static const unsigned bits[CA_TOLD_RULES] = {
		[CA_TOLD_FOLLOWS] = CA_TRACE_POOL_FOLLOWS,
		[CA_TOLD_OPPORTUNISTIC] = CA_TRACE_POOL_OPPORTUNISTIC,
		[CA_TOLD_INTERNAL] = CA_TRACE_POOL_INTERNAL,
	};
	uint64_t rules = atomic_load(&pool->limited) ? CA_TRACE_POOL_LIMITED : 0;

	for (unsigned i = 0; i < CA_TOLD_RULES; i++)
		rules |= atomic_load(&pool->allows[i]) ? bits[i] : 0;
	add(pool, CA_TRACE_POOL, number_of(pool), rules, atomic_load(&pool->handle) != NULL);
}

void
ca_told_note_rejected(struct ca_told_pool *pool, uint64_t bytes, int code)
{
	if (ca_tracing(pool->told->heap))
		add(pool, CA_TRACE_ASYNC_REFUSED, number_of(pool), bytes, (uint32_t)code);
}

void
ca_told_note_failed(struct ca_told_pool *pool, const struct ca_stream *stream, uint64_t size,
		    int code)
{
	if (ca_tracing(pool->told->heap))
		add(pool, CA_TRACE_ASYNC_FAILED,
		    stream ? ca_trace_number_of(ca_told_record(stream)) : CA_TRACE_NO_STREAM, size,
		    (uint32_t)code);
}

void
ca_told_note_trim(struct ca_told_pool *pool, uint64_t keep_bytes)
{
	if (ca_tracing(pool->told->heap))
		add(pool, CA_TRACE_ASYNC_TRIM, number_of(pool), keep_bytes, 0);
}
