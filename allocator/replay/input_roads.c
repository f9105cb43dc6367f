/* SPDX-License-Identifier: MIT */
/*
 * Records of stream-ordered memory become events and acts like those of cuMemAlloc's. Its pools are
 * known by the segments: a record of an allocation has no place for their numbers.
 *
 * Page-locked memory is not played, and becomes no event: what it held is counted as the library
 * itself counts it (shim/pinned/pinned_counts.c).
 */
#include "allocator/replay/input_trace_inside.h"

#include <errno.h>
#include <stdlib.h>

#include "allocator/util/list.h"

enum { SEGMENT, PINNED }; /* trees of ranges */

struct range {
	struct ca_tree_node node; /* by address */
	uint64_t bytes;
	uint64_t requested; /* PINNED, live; else 0 */
	uint16_t pool;      /* SEGMENT */
	bool used;          /* PINNED: not for the first time */
};

/* Frees of a stream that are not known to have finished. */
struct ca_trace_frees {
	struct {
		uint64_t stamp;
		uint32_t event;
	} * item; /* malloc; the stamps do not fall */
	size_t first, n, room;
};

bool
ca_trace_is_of_road(const struct ca_trace_record *record)
{
	return record->kind >= CA_TRACE_POOL && record->kind <= CA_TRACE_WAIT;
}

/* ---- ranges */

static struct range *
range_find(const struct ca_trace_reading *reading, uint64_t address, unsigned sort)
{
	struct ca_tree_node *node = ca_tree_find(&reading->ranges[sort], address, 0);

	return node ? CA_CONTAINER_OF(node, struct range, node) : NULL;
}

static void
range_drop(struct ca_trace_reading *reading, struct range *range, unsigned sort)
{
	if (!range)
		return;
	ca_tree_remove(&reading->ranges[sort], &range->node);
	free(range);
}

/* One that is there already is another one from now on. */
static int
range_add(struct ca_trace_reading *reading, const struct ca_trace_record *record, unsigned sort)
{
	struct range *range = calloc(1, sizeof(*range));

	if (!range)
		return -ENOMEM;
	range_drop(reading, range_find(reading, record->a, sort), sort);
	range->bytes = ca_trace_read_bytes_of(record);
	range->pool = record->stream;
	ca_tree_insert(&reading->ranges[sort], &range->node, record->a, 0);
	return 0;
}

void
ca_trace_reading_clear(struct ca_trace_reading *reading)
{
	struct ca_tree_node *node;

	for (unsigned sort = SEGMENT; sort <= PINNED; sort++)
		while ((node = ca_tree_first(&reading->ranges[sort])))
			range_drop(reading, CA_CONTAINER_OF(node, struct range, node), sort);
	for (unsigned i = 0; reading->frees && i < CA_TRACE_NUMBERS; i++)
		free(reading->frees[i].item);
	free(reading->frees);
	ca_replay_map_clear(&reading->live);
}

/* ---- stream-ordered memory */

/* Of the segment that holds the address; 0, which is some device's default one, if none does. */
static uint16_t
pool_of(const struct ca_trace_reading *reading, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&reading->ranges[SEGMENT], address);
	const struct range *range = node ? CA_CONTAINER_OF(node, struct range, node) : NULL;

	return range && address - node->key < range->bytes ? range->pool : 0;
}

/* Of a pool, or of an event of the program. */
static int
add(struct ca_trace_reading *reading, enum ca_replay_kind kind,
    const struct ca_trace_record *record, uint64_t ns)
{
	bool pool = kind == CA_REPLAY_POOL || kind == CA_REPLAY_TRIM;
	struct ca_replay_event event = {
		.id = record->a,
		.bytes = ca_trace_read_bytes_of(record),
		.time_ns = ns,
		.stream = pool ? 0 : ca_trace_read_stream_of(reading, record->stream),
		.where = reading->where,
		.pool = pool ? record->stream : 0,
		.device = record->device,
		.kind = (uint8_t)kind,
	};

	reading->input->has_pools = true;
	return ca_replay_input_add(reading->input, &event);
}

/* The stream has work for no other reason than that a segment is allocated in it, in the call that
 * ends with the next record of an allocation. */
static void
take_birth(struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	struct ca_replay_input *input = reading->input;
	struct ca_replay_event *last = input->count ? &input->events[input->count - 1] : NULL;

	if (!last || last->kind != CA_REPLAY_SUBMIT || last->device != record->device ||
	    last->thread != (uint16_t)ca_trace_read_thread_of(record))
		return;
	reading->birth = *last;
	input->count--;
}

static int
read_alloc(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t ns)
{
	struct ca_replay_input *input = reading->input;
	int r = ca_trace_read_alloc(reading, record, ns, CA_REPLAY_ASYNC,
				    pool_of(reading, record->a));

	if (!r)
		input->events[input->count - 1].birth = reading->birth.kind == CA_REPLAY_SUBMIT;
	reading->birth.kind = CA_REPLAY_LIVE;
	return r;
}

static int
read_failed(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t ns)
{
	/* of the pool that is current */
	int r = ca_trace_read_failed(reading, record, ns, CA_REPLAY_ASYNC, 0);

	if (!r && reading->birth.kind == CA_REPLAY_SUBMIT)
		r = ca_replay_input_add(reading->input, &reading->birth);
	reading->birth.kind = CA_REPLAY_LIVE;
	return r;
}

/* ---- which frees of a stream have finished */

static int
note_free(struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	struct ca_trace_frees *frees;

	if (!ca_trace_read_is_named(record->stream) || reading->input->count > UINT32_MAX)
		return 0;
	if (!reading->frees)
		reading->frees = calloc(CA_TRACE_NUMBERS, sizeof(*reading->frees));
	if (!reading->frees)
		return -ENOMEM;
	frees = &reading->frees[record->stream];
	if (frees->first == frees->n)
		frees->first = frees->n = 0;
	if (frees->n == frees->room) {
		size_t room = frees->room ? 2 * frees->room : 64;
		void *bigger = realloc(frees->item, room * sizeof(*frees->item));

		if (!bigger)
			return -ENOMEM;
		frees->item = bigger;
		frees->room = room;
	}
	frees->item[frees->n].stamp = ca_trace_read_bytes_of(record);
	frees->item[frees->n++].event = (uint32_t)(reading->input->count - 1);
	return 0;
}

static int
read_free(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t ns)
{
	size_t count = reading->input->count;
	int r = ca_trace_read_free(reading, record, ns, CA_REPLAY_ASYNC);

	return r || reading->input->count == count ? r : note_free(reading, record);
}

int
ca_trace_read_partly(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		     uint64_t ns)
{
	struct ca_trace_frees *frees = reading->frees ? &reading->frees[record->stream] : NULL;
	uint64_t bound = ca_trace_read_bytes_of(record) >> 1;
	struct ca_replay_event event = { .time_ns = ns,
					 .stream = ca_trace_read_stream_of(reading, record->stream),
					 .where = reading->where,
					 .device = record->device,
					 .kind = CA_REPLAY_PARTLY };
	bool any = false;

	for (; frees && frees->first < frees->n && frees->item[frees->first].stamp <= bound;
	     frees->first++) {
		event.id = frees->item[frees->first].event;
		any = true;
	}
	return any ? ca_replay_input_add(reading->input, &event) : 0;
}

static int
read_async(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t ns)
{
	int r = 0;

	switch (record->kind) {
	case CA_TRACE_POOL:
		return add(reading, CA_REPLAY_POOL, record, ns);
	case CA_TRACE_ASYNC_TRIM:
		return add(reading, CA_REPLAY_TRIM, record, ns);
	case CA_TRACE_EVENT:
		return add(reading, CA_REPLAY_RECORD, record, ns);
	case CA_TRACE_WAIT:
		return add(reading, CA_REPLAY_WAIT, record, ns);
	case CA_TRACE_ASYNC_ALLOC:
		return read_alloc(reading, record, ns);
	case CA_TRACE_ASYNC_FREE:
		return read_free(reading, record, ns);
	case CA_TRACE_ASYNC_FAILED:
		return read_failed(reading, record, ns);
	case CA_TRACE_ASYNC_TAKEN:
		take_birth(reading, record);
		r = range_add(reading, record, SEGMENT);
		break;
	case CA_TRACE_ASYNC_REFUSED:
		take_birth(reading, record);
		break;
	case CA_TRACE_ASYNC_RETURNED:
		range_drop(reading, range_find(reading, record->a, SEGMENT), SEGMENT);
		break;
	}
	return r ? r : ca_trace_read_segment(reading, record, ns, CA_REPLAY_ASYNC);
}

/* ---- page-locked memory */

static void
gauge_add(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current += bytes;
	gauge->total += bytes;
	if (gauge->current > gauge->peak)
		gauge->peak = gauge->current;
}

static void
gauge_take(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current -= bytes < gauge->current ? bytes : gauge->current;
}

static void
note_reserved(struct ca_replay_pinned *pinned)
{
	uint64_t bytes = pinned->bytes.current + pinned->cached.current;

	if (bytes > pinned->peak_reserved_bytes)
		pinned->peak_reserved_bytes = bytes;
}

static void
pinned_alloc(struct ca_replay_pinned *pinned, struct range *range, uint64_t bytes)
{
	pinned->allocs++;
	pinned->hits += range->used;
	if (range->used)
		gauge_take(&pinned->cached, range->bytes);
	range->used = true;
	range->requested = bytes;
	gauge_add(&pinned->bytes, range->bytes);
	pinned->live_bytes += bytes;
	if (pinned->live_bytes > pinned->peak_live_bytes)
		pinned->peak_live_bytes = pinned->live_bytes;
	note_reserved(pinned);
}

static void
pinned_free(struct ca_replay_pinned *pinned, struct range *range)
{
	pinned->frees++;
	pinned->live_bytes -= range->requested;
	range->requested = 0;
	gauge_take(&pinned->bytes, range->bytes);
}

static int
read_pinned(struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	struct ca_replay_pinned *pinned = &reading->input->pinned[record->device];
	struct range *range = range_find(reading, record->a, PINNED);

	reading->input->other_events++;
	pinned->taken += record->kind == CA_TRACE_PINNED_TAKEN;
	pinned->returned += record->kind == CA_TRACE_PINNED_RETURNED;
	if (record->kind == CA_TRACE_PINNED_TAKEN)
		return range_add(reading, record, PINNED);
	if (!range)
		return 0;
	if (record->kind == CA_TRACE_PINNED_ALLOC && !range->requested)
		pinned_alloc(pinned, range, ca_trace_read_bytes_of(record));
	if (record->kind == CA_TRACE_PINNED_FREE && range->requested) {
		pinned_free(pinned, range);
		gauge_add(&pinned->cached, range->bytes);
	}
	if (record->kind == CA_TRACE_PINNED_RETURNED) {
		if (range->requested)
			pinned_free(pinned, range);
		else
			gauge_take(&pinned->cached, range->bytes);
		range_drop(reading, range, PINNED);
	}
	return 0;
}

int
ca_trace_read_of_road(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		      uint64_t ns)
{
	return record->kind >= CA_TRACE_PINNED_ALLOC && record->kind <= CA_TRACE_PINNED_RETURNED
		       ? read_pinned(reading, record)
		       : read_async(reading, record, ns);
}
