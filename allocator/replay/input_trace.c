/* SPDX-License-Identifier: MIT */
/*
 * One pass over the records. Live blocks are kept by address, for two reasons: a free names the
 * block's users, which belong to its allocation; and frees of blocks whose allocation is not in the
 * trace are left out.
 */
#include "allocator/replay/input_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/replay/input_trace_inside.h"

enum { TICK_NS_MAX = 1000 * 1000 };

bool
ca_replay_is_trace(const uint8_t *data, size_t size)
{
	return size >= 8 && !memcmp(data, CA_TRACE_MAGIC, 8);
}

/* ---- header */

static int
check_header(const struct ca_trace_header *header, struct ca_replay_error *error)
{
	if (header->byte_order == __builtin_bswap32(CA_TRACE_BYTE_ORDER))
		return ca_replay_fail_byte(error, 8, "the trace has the other byte order");
	if (header->byte_order != CA_TRACE_BYTE_ORDER)
		return ca_replay_fail_byte(error, 8, "the byte order is not to be told");
	if (header->version != CA_TRACE_VERSION)
		return ca_replay_fail_byte(error, 12,
					   "the trace has version %u of its format; version %u "
					   "is what can be read here",
					   (unsigned)header->version, (unsigned)CA_TRACE_VERSION);
	if (header->fixed_bytes < sizeof(*header) || header->fixed_bytes % 8 ||
	    header->header_bytes < header->fixed_bytes || header->header_bytes % 8 ||
	    header->header_bytes > CA_TRACE_HEADER_MAX)
		return ca_replay_fail_byte(error, 16, "the header's size makes no sense");
	if (header->record_bytes < sizeof(struct ca_trace_record) || header->record_bytes % 8 ||
	    header->record_bytes > CA_TRACE_RECORD_MAX)
		return ca_replay_fail_byte(error, 24, "the records' size makes no sense");
	if (!header->tick_ns || header->tick_ns > TICK_NS_MAX)
		return ca_replay_fail_byte(error, 28, "the unit of time makes no sense");
	return 0;
}

/* A field's text; NULL: it is not all there, or there is no memory for it. */
static char *
field_text(const uint8_t *at, size_t length)
{
	return memchr(at, 0, length) ? NULL : strndup((const char *)at, length);
}

/* The words of the header for people. */
static void
read_fields(const struct ca_trace_header *header, const uint8_t *data, size_t size,
	    struct ca_replay_about *about)
{
	size_t end = header->header_bytes < size ? header->header_bytes : size;
	size_t at = header->fixed_bytes;
	struct ca_trace_field field;

	about->start_unix_ns = header->start_unix_ns;
	about->pid = header->pid;
	while (at < end && end - at >= sizeof(field)) {
		memcpy(&field, data + at, sizeof(field));
		at += sizeof(field);
		if (field.length > end - at)
			return;
		if (field.tag == CA_TRACE_FIELD_PROGRAM && !about->program)
			about->program = field_text(data + at, field.length);
		if (field.tag == CA_TRACE_FIELD_SETTINGS && !about->settings)
			about->settings = field_text(data + at, field.length);
		at += ((size_t)field.length + 7) / 8 * 8;
	}
}

/* ---- records */

/* The whole time, from its low half. */
static void
advance(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t *ret_ns)
{
	uint64_t start = reading->header.start_ns / reading->header.tick_ns, time, passed;

	if (record->kind == CA_TRACE_TIME && record->a > reading->time)
		reading->time = record->a;
	time = reading->time + (uint64_t)(int64_t)(int32_t)(record->time - (uint32_t)reading->time);
	if ((int64_t)(time - reading->time) > 0)
		reading->time = time;
	passed = (int64_t)(time - start) > 0 ? time - start : 0;
	if (__builtin_mul_overflow(passed, (uint64_t)reading->header.tick_ns, ret_ns))
		*ret_ns = CA_REPLAY_NO_TIME - 1;
}

/* The device is being asked in a call of the record's thread. */
static bool
is_in_look(const struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	return reading->look_ns != CA_REPLAY_NO_TIME &&
	       reading->looks == ca_trace_read_thread_of(record);
}

static int
add(struct ca_trace_reading *reading, enum ca_replay_kind kind,
    const struct ca_trace_record *record, uint64_t ns)
{
	bool sized = kind == CA_REPLAY_ALLOC || kind == CA_REPLAY_PLACE;
	bool named = kind == CA_REPLAY_ALLOC || kind == CA_REPLAY_SUBMIT || kind == CA_REPLAY_SEEN;
	struct ca_replay_event event = {
		.id = kind == CA_REPLAY_PHASE ? 0 : record->a,
		.bytes = sized ? ca_trace_read_bytes_of(record) : 0,
		.time_ns = ns,
		.stream = named ? ca_trace_read_stream_of(reading, record->stream) : 0,
		.where = reading->where,
		.thread = (uint16_t)ca_trace_read_thread_of(record),
		.device = record->device,
		.kind = (uint8_t)kind,
		.no_stream = record->stream == CA_TRACE_NO_STREAM,
	};

	return ca_replay_input_add(reading->input, &event);
}

int
ca_trace_read_alloc(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		    uint64_t ns, enum ca_replay_road road, uint16_t pool)
{
	size_t number = reading->input->count;
	int r;

	if (is_in_look(reading, record)) {
		ns = reading->look_ns; /* where the call began */
		reading->look_ns = CA_REPLAY_NO_TIME;
	}
	reading->rejected[record->device] = 0;
	if (!ca_trace_read_bytes_of(record))
		return ca_replay_fail_byte(reading->error, reading->where,
					   "an allocation of nothing");
	if (number >= UINT32_MAX)
		return ca_replay_fail_byte(reading->error, reading->where, "too many events");
	r = ca_replay_map_add(&reading->live, record->a, record->device, (uint32_t)number);
	if (r == -EEXIST)
		return ca_replay_fail_byte(reading->error, reading->where,
					   "address 0x%llx is allocated while it is live",
					   (unsigned long long)record->a);
	if (!r)
		r = add(reading, CA_REPLAY_ALLOC, record, ns);
	if (!r) {
		reading->input->events[number].road = (uint8_t)road;
		reading->input->events[number].pool = pool;
	}
	return r;
}

int
ca_trace_read_free(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		   uint64_t ns, enum ca_replay_road road)
{
	struct ca_replay_event *of;
	uint32_t number;
	int r;

	if (!ca_replay_map_take(&reading->live, record->a, record->device, &number)) {
		reading->input->other_events++;
		return 0;
	}
	of = &reading->input->events[number];
	if (of->road != road)
		return ca_replay_fail_byte(reading->error, reading->where,
					   "address 0x%llx is freed as memory of another kind",
					   (unsigned long long)record->a);
	if (road == CA_REPLAY_SYNC && record->stream == CA_TRACE_ANY_STREAM)
		reading->input->told = false; /* nor is it when they finish */
	if (road == CA_REPLAY_SYNC && ca_trace_read_is_named(record->stream))
		of->stream = ca_trace_read_stream_of(reading, record->stream);
	r = add(reading, CA_REPLAY_FREE, record, ns);
	if (!r && road == CA_REPLAY_ASYNC) {
		struct ca_replay_event *event = &reading->input->events[reading->input->count - 1];

		event->road = (uint8_t)road;
		event->stream = ca_trace_read_stream_of(reading, record->stream);
		event->no_stream = !ca_trace_read_is_named(record->stream);
	}
	return r;
}

static int
add_act(struct ca_trace_reading *reading, enum ca_replay_act_kind kind,
	const struct ca_trace_record *record, uint64_t ns, enum ca_replay_road road)
{
	bool sized = kind == CA_REPLAY_TAKEN || kind == CA_REPLAY_RETURNED;
	struct ca_replay_act act = { .time_ns = ns,
				     .address = sized ? record->a : 0,
				     .bytes = sized ? ca_trace_read_bytes_of(record) : record->a,
				     .device = record->device,
				     .kind = (uint8_t)kind,
				     .road = (uint8_t)road };

	return ca_replay_input_add_act(reading->input, &act);
}

static enum ca_replay_act_kind
act_of(const struct ca_trace_record *record)
{
	switch (record->kind) {
	case CA_TRACE_TAKEN:
	case CA_TRACE_ASYNC_TAKEN:
		return CA_REPLAY_TAKEN;
	case CA_TRACE_RETURNED:
	case CA_TRACE_ASYNC_RETURNED:
		return CA_REPLAY_RETURNED;
	default:
		return CA_REPLAY_REFUSED;
	}
}

int
ca_trace_read_segment(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		      uint64_t ns, enum ca_replay_road road)
{
	struct ca_replay_input *input = reading->input;
	uint64_t *reserved = road == CA_REPLAY_ASYNC
				     ? &input->recorded_async_reserved_bytes[record->device]
				     : &input->recorded_reserved_bytes[record->device];
	enum ca_replay_act_kind kind = act_of(record);
	uint64_t *rejected = &reading->rejected[record->device];
	uint64_t bytes = ca_trace_read_bytes_of(record);
	int r = add_act(reading, kind, record, ns, road);

	input->segment_events++;
	if (kind == CA_REPLAY_REFUSED && (!*rejected || record->a < *rejected))
		*rejected = record->a;
	if (kind == CA_REPLAY_TAKEN)
		*reserved += bytes;
	else if (kind == CA_REPLAY_RETURNED)
		*reserved -= bytes < *reserved ? bytes : *reserved;
	return !r && kind == CA_REPLAY_TAKEN && input->told
		       ? add(reading, CA_REPLAY_PLACE, record, CA_REPLAY_NO_TIME)
		       : r;
}

static void
read_stream(struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	uint64_t *word = &reading->legacy[record->stream / 64];
	uint64_t bit = (uint64_t)1 << record->stream % 64;

	if (ca_trace_read_bytes_of(record) == CA_TRACE_STREAM_LEGACY)
		*word |= bit;
	else
		*word &= ~bit;
}

int
ca_trace_read_failed(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		     uint64_t ns, enum ca_replay_road road, uint16_t pool)
{
	struct ca_replay_event event = { .bytes = record->a,
					 .time_ns = ns,
					 .stream = ca_trace_read_stream_of(reading, record->stream),
					 .where = reading->where,
					 .thread = (uint16_t)ca_trace_read_thread_of(record),
					 .device = record->device,
					 .road = (uint8_t)road,
					 .pool = pool,
					 .no_stream = record->stream == CA_TRACE_NO_STREAM };
	struct ca_replay_rejected *rejected;

	if (is_in_look(reading, record)) {
		event.time_ns = reading->look_ns;
		reading->look_ns = CA_REPLAY_NO_TIME;
	}
	reading->input->other_events++;
	rejected = ca_replay_input_reject(reading->input, &event);
	rejected->reserved_bytes = reading->input->recorded_reserved_bytes[record->device] +
				   reading->input->recorded_async_reserved_bytes[record->device];
	rejected->segment_bytes = reading->rejected[record->device];
	reading->rejected[record->device] = 0;
	return add_act(reading, CA_REPLAY_FAILED, record, ns, road);
}

/* An allocator that asks the device finds out again what was seen by asking. Where later work of
 * the stream goes on, it is not told what has finished. */
static int
read_finished(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t ns)
{
	bool looks = reading->input->told && is_in_look(reading, record);
	struct ca_trace_record seen = *record;

	if (!record->a && !ca_trace_read_bytes_of(record))
		reading->birth.kind = CA_REPLAY_LIVE; /* it is all over */
	if (!record->a && !ca_trace_read_bytes_of(record) && !looks)
		return add(reading, CA_REPLAY_PHASE, record, ns);
	if (ca_trace_read_bytes_of(record) || !reading->input->told) {
		reading->input->other_events++;
		return ca_trace_read_partly(reading, record, ns);
	}
	if (reading->birth.stream == ca_trace_read_stream_of(reading, record->stream))
		reading->birth.kind = CA_REPLAY_LIVE;
	seen.a = ns;
	return add(reading, CA_REPLAY_SEEN, &seen, looks ? reading->look_ns : ns);
}

static void
read_look(struct ca_trace_reading *reading, const struct ca_trace_record *record, uint64_t ns)
{
	reading->input->other_events++;
	if (is_in_look(reading, record))
		return;
	reading->look_ns = ns;
	reading->looks = ca_trace_read_thread_of(record);
}

static void
read_device(struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	struct ca_replay_about *about = &reading->input->about;
	size_t at = (size_t)record->stream * 16;

	if (record->device >= CA_REPLAY_DEVICES)
		return;
	if (record->kind == CA_TRACE_DEVICE)
		about->device_bytes[record->device] = record->a;
	else if (at + 16 < CA_REPLAY_NAME_BYTES)
		memcpy(&about->device_name[record->device][at], &record->a, 16);
}

static bool
has_device(const struct ca_trace_record *record)
{
	return (record->kind >= CA_TRACE_ALLOC && record->kind <= CA_TRACE_FINISHED) ||
	       record->kind == CA_TRACE_WORK || record->kind == CA_TRACE_LOOK ||
	       ca_trace_is_of_road(record);
}

static int
read_record(struct ca_trace_reading *reading, const struct ca_trace_record *record)
{
	uint64_t ns;

	advance(reading, record, &ns);
	if (has_device(record) && record->device >= CA_REPLAY_DEVICES)
		return ca_replay_fail_byte(reading->error, reading->where, "there is no device %u",
					   (unsigned)record->device);
	if (ca_trace_is_of_road(record))
		return ca_trace_read_of_road(reading, record, ns);
	switch (record->kind) {
	case CA_TRACE_ALLOC:
	case CA_TRACE_ADOPT:
	case CA_TRACE_KEPT:
		return ca_trace_read_alloc(reading, record, ns, CA_REPLAY_SYNC, 0);
	case CA_TRACE_FREE:
		return ca_trace_read_free(reading, record, ns, CA_REPLAY_SYNC);
	case CA_TRACE_TAKEN:
	case CA_TRACE_RETURNED:
	case CA_TRACE_REFUSED:
		return ca_trace_read_segment(reading, record, ns, CA_REPLAY_SYNC);
	case CA_TRACE_FAILED:
		return ca_trace_read_failed(reading, record, ns, CA_REPLAY_SYNC, 0);
	case CA_TRACE_FINISHED:
		return read_finished(reading, record, ns);
	case CA_TRACE_WORK:
		return add(reading, CA_REPLAY_SUBMIT, record, ns);
	case CA_TRACE_LOOK:
		read_look(reading, record, ns);
		return 0;
	case CA_TRACE_STREAM:
		read_stream(reading, record);
		break;
	case CA_TRACE_DEVICE:
	case CA_TRACE_NAME:
		read_device(reading, record);
		break;
	case CA_TRACE_END:
		reading->ended = true;
		break;
	}
	reading->input->other_events++;
	return 0;
}

int
ca_replay_read_trace(const uint8_t *data, size_t size, struct ca_replay_input *input,
		     struct ca_replay_error *error)
{
	struct ca_trace_reading reading = { .input = input,
					    .error = error,
					    .look_ns = CA_REPLAY_NO_TIME };
	struct ca_trace_record record;
	size_t step, at;
	int r;

	input->truncated = true;
	if (size < sizeof(reading.header))
		return 0;
	memcpy(&reading.header, data, sizeof(reading.header));
	r = check_header(&reading.header, error);
	step = reading.header.record_bytes;
	reading.time = reading.header.start_ns / (r ? 1 : reading.header.tick_ns);
	if (!r)
		read_fields(&reading.header, data, size, &input->about);
	input->told = !r && reading.header.minor >= CA_TRACE_MINOR_WORK;
	for (at = reading.header.header_bytes; !r && at <= size && size - at >= step; at += step) {
		memcpy(&record, data + at, sizeof(record));
		reading.where = at;
		r = read_record(&reading, &record);
	}
	input->truncated = !reading.ended || at != size;
	ca_trace_reading_clear(&reading);
	return r;
}
