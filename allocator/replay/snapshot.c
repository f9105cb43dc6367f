/* SPDX-License-Identifier: MIT */
#include "allocator/replay/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "allocator/replay/map.h"
#include "allocator/replay/snapshot_inside.h"

struct reader {
	const struct ca_snapshot_source *source;
	struct ca_replay_input *input;
	struct ca_replay_error *error;
	/* by (address, device): the blocks that the trace says are live at its end */
	struct ca_replay_map live;
	/* the same: freed by the program, not yet by PyTorch */
	struct ca_replay_map requested;
	uint16_t device;   /* of the trace that is being read */
	uint64_t block_at; /* of the segment that is being read: where its next block begins */
};

/* The action for each item of a list. */
typedef int item_fn(struct reader *r, const struct ca_snapshot_value *item, uint64_t number,
		    const struct ca_snapshot_record *of);

static const char *const key_names[] = {
#define X(name) #name,
	CA_SNAPSHOT_KEYS(X)
#undef X
};

static const size_t key_lengths[] = {
#define X(name) sizeof(#name) - 1,
	CA_SNAPSHOT_KEYS(X)
#undef X
};

enum ca_snapshot_key
ca_snapshot_key(struct ca_replay_text name)
{
	unsigned i;

	for (i = 0; i < CA_SNAPSHOT_KEY_COUNT; i++)
		if (name.length == key_lengths[i] && !memcmp(name.at, key_names[i], name.length))
			return (enum ca_snapshot_key)i;
	return CA_SNAPSHOT_KEY_COUNT;
}

static int
each(struct reader *r, const struct ca_snapshot_value *list, const struct ca_snapshot_record *of,
     item_fn *item)
{
	struct ca_snapshot_cursor cursor = { .list = list->number };
	struct ca_snapshot_value value;
	uint64_t number;
	int result;

	for (number = 0;; number++) {
		result = r->source->next(r->source->self, &cursor, &value, r->error);
		if (result <= 0)
			return result;
		result = item(r, &value, number, of);
		if (result)
			return result;
	}
}

static int
record(struct reader *r, const struct ca_snapshot_value *value, const char *what, uint64_t near,
       struct ca_snapshot_record *ret)
{
	if (value->type != CA_SNAPSHOT_DICT) {
		*ret = (struct ca_snapshot_record){ 0 };
		return ca_replay_fail_byte(r->error, near, "%s is not a dictionary", what);
	}
	return r->source->record(r->source->self, value, ret, r->error);
}

static int
number(struct reader *r, const struct ca_snapshot_record *of, enum ca_snapshot_key key,
       uint64_t *ret_value)
{
	if (of->value[key].type == CA_SNAPSHOT_NUMBER) {
		*ret_value = of->value[key].number;
		return 0;
	}
	return ca_replay_fail_byte(r->error, of->where, "'%s' is %s", key_names[key],
				   of->value[key].type == CA_SNAPSHOT_ABSENT
					   ? "missing"
					   : "not a whole number from 0 on");
}

/* The same, or `otherwise` if it is not there. */
static int
number_or(struct reader *r, const struct ca_snapshot_record *of, enum ca_snapshot_key key,
	  uint64_t otherwise, uint64_t *ret_value)
{
	*ret_value = otherwise;
	return of->value[key].type == CA_SNAPSHOT_ABSENT ? 0 : number(r, of, key, ret_value);
}

/* ---- device_traces */

static int
add_alloc(struct reader *r, struct ca_replay_event *event)
{
	int result = ca_replay_map_add(&r->live, event->id, event->device, 0);

	event->kind = CA_REPLAY_ALLOC;
	if (!result || result == -EEXIST) /* resolving complains of it */
		result = ca_replay_input_add(r->input, event);
	return result;
}

static int
add_free(struct reader *r, struct ca_replay_event *event)
{
	uint32_t nothing;

	ca_replay_map_take(&r->live, event->id, event->device, &nothing);
	event->kind = CA_REPLAY_FREE;
	return ca_replay_input_add(r->input, event);
}

static int
add_act(struct reader *r, enum ca_replay_act_kind kind, const struct ca_replay_event *event)
{
	struct ca_replay_act act = { .time_ns = event->time_ns,
				     .address = event->id,
				     .bytes = event->bytes,
				     .device = event->device,
				     .kind = (uint8_t)kind };

	return ca_replay_input_add_act(r->input, &act);
}

static int
free_requested(struct reader *r, struct ca_replay_event *event)
{
	int result = ca_replay_map_add(&r->requested, event->id, event->device, 0);

	if (!result || result == -EEXIST)
		result = add_free(r, event);
	return result ? result : add_act(r, CA_REPLAY_SETTLING, event);
}

/* Memory that was completed at once has not waited. */
static int
end_settling(struct reader *r, const struct ca_replay_event *event)
{
	struct ca_replay_input *input = r->input;
	const struct ca_replay_act *last = input->n_acts ? &input->acts[input->n_acts - 1] : NULL;

	if (!last || last->kind != CA_REPLAY_SETTLING || last->address != event->id ||
	    last->before != input->count)
		return add_act(r, CA_REPLAY_COMPLETED, event);
	input->n_acts--;
	return 0;
}

/* The first event kept of a block may be this one. */
static int
free_completed(struct reader *r, struct ca_replay_event *event)
{
	uint32_t nothing;

	if (!ca_replay_map_take(&r->requested, event->id, event->device, &nothing))
		return add_free(r, event);
	r->input->other_events++;
	return end_settling(r, event);
}

/* Segments that came or went behind the device's refusal: what was held then is known when the
 * segments of the end are. Modulo 2^64. */
static int
segment_taken(struct reader *r, struct ca_replay_event *event)
{
	r->input->rejected[r->device].reserved_bytes -= event->bytes;
	return add_act(r, CA_REPLAY_TAKEN, event);
}

static int
segment_returned(struct reader *r, struct ca_replay_event *event)
{
	r->input->rejected[r->device].reserved_bytes += event->bytes;
	return add_act(r, CA_REPLAY_RETURNED, event);
}

static int
event_fields(struct reader *r, const struct ca_snapshot_record *of, struct ca_replay_event *event)
{
	uint64_t time_us;
	int result = number(r, of, CA_SNAPSHOT_addr, &event->id);

	if (!result)
		result = number(r, of, CA_SNAPSHOT_size, &event->bytes);
	if (!result)
		result = number_or(r, of, CA_SNAPSHOT_stream, 0, &event->stream);
	if (!result)
		result = number_or(r, of, CA_SNAPSHOT_time_us, UINT64_MAX, &time_us);
	if (!result)
		event->time_ns =
			time_us > (UINT64_MAX - 1) / 1000 ? CA_REPLAY_NO_TIME : time_us * 1000;
	return result;
}

/* Out of memory, snapshot, what comes later. */
static int
other_event(struct reader *r, const struct ca_snapshot_record *of, struct ca_replay_event *event)
{
	const struct ca_replay_text action = of->value[CA_SNAPSHOT_action].text;
	const struct ca_snapshot_value *left = &of->value[CA_SNAPSHOT_device_free];
	const struct ca_snapshot_value *size = &of->value[CA_SNAPSHOT_size];
	const struct ca_snapshot_value *stream = &of->value[CA_SNAPSHOT_stream];
	struct ca_replay_rejected *rejected;
	uint64_t time_us;

	if (action.length < 8 || memcmp(action.at, "segment_", 8))
		r->input->other_events++;
	if (!ca_replay_text_is(action, "oom") || size->type != CA_SNAPSHOT_NUMBER || !size->number)
		return 0;
	number_or(r, of, CA_SNAPSHOT_time_us, UINT64_MAX, &time_us);
	event->bytes = size->number;
	event->time_ns = time_us > (UINT64_MAX - 1) / 1000 ? CA_REPLAY_NO_TIME : time_us * 1000;
	if (stream->type == CA_SNAPSHOT_NUMBER)
		event->stream = stream->number;
	rejected = ca_replay_input_reject(r->input, event);
	rejected->reserved_bytes = 0;
	if (left->type == CA_SNAPSHOT_NUMBER)
		rejected->free_bytes = left->number;
	return add_act(r, CA_REPLAY_FAILED, event);
}

static int
trace_event(struct reader *r, const struct ca_snapshot_value *item, uint64_t n,
	    const struct ca_snapshot_record *of)
{
	static const struct {
		const char *name;
		int (*add)(struct reader *, struct ca_replay_event *);
	} actions[] = {
		{ "alloc", add_alloc },
		{ "free_requested", free_requested },
		{ "free_completed", free_completed },
		{ "free", add_free },
		{ "segment_alloc", segment_taken },
		{ "segment_map", segment_taken },
		{ "segment_free", segment_returned },
		{ "segment_unmap", segment_returned },
	};
	struct ca_snapshot_record fields;
	struct ca_replay_event event = { .device = r->device };
	const struct ca_snapshot_value *action = &fields.value[CA_SNAPSHOT_action];
	int result = record(r, item, "an event of device_traces", of->where, &fields);
	size_t i;

	if (result)
		return result;
	if (action->type != CA_SNAPSHOT_TEXT)
		return ca_replay_fail_byte(r->error, fields.where, "an event without an action");
	event.where = fields.where;
	if (action->text.length >= 8 && !memcmp(action->text.at, "segment_", 8))
		r->input->segment_events++;
	for (i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (ca_replay_text_is(action->text, actions[i].name)) {
			result = event_fields(r, &fields, &event);
			return result ? result : actions[i].add(r, &event);
		}
	return other_event(r, &fields, &event);
}

static int
trace_device(struct reader *r, const struct ca_snapshot_value *item, uint64_t n,
	     const struct ca_snapshot_record *of)
{
	if (item->type != CA_SNAPSHOT_LIST)
		return ca_replay_fail_byte(r->error, of->where,
					   "device_traces holds something that is not a list");
	if (n >= CA_REPLAY_DEVICES)
		return ca_replay_fail_byte(r->error, of->where, "more than %d devices",
					   CA_REPLAY_DEVICES);
	r->device = (uint8_t)n;
	return each(r, item, of, trace_event);
}

/* ---- segments */

/* The address of a block, its own or that at which the blocks before it end. */
static int
block_place(struct reader *r, const struct ca_snapshot_record *fields,
	    const struct ca_snapshot_record *segment, struct ca_replay_event *event)
{
	bool tiles = fields->value[CA_SNAPSHOT_address].type == CA_SNAPSHOT_ABSENT &&
		     segment->value[CA_SNAPSHOT_address].type == CA_SNAPSHOT_NUMBER;
	int result = number_or(r, fields, CA_SNAPSHOT_address, r->block_at, &event->id);

	if (!result && tiles)
		result = number(r, fields, CA_SNAPSHOT_size, &event->bytes);
	else if (!result)
		result = number_or(r, fields, CA_SNAPSHOT_size, 0, &event->bytes);
	if (!result && __builtin_add_overflow(event->id, event->bytes, &r->block_at))
		return ca_replay_fail_byte(r->error, fields->where,
					   "a block that ends behind 2^64");
	return result;
}

/* The size of the newest allocation in the block, in older snapshots; else what *bytes is. */
static int
history_size(struct reader *r, const struct ca_snapshot_record *fields, uint64_t *bytes)
{
	const struct ca_snapshot_value *history = &fields->value[CA_SNAPSHOT_history];
	struct ca_snapshot_cursor cursor = { .list = history->number };
	struct ca_snapshot_value item;
	struct ca_snapshot_record newest;
	int result = 0;

	if (history->type == CA_SNAPSHOT_LIST)
		result = r->source->next(r->source->self, &cursor, &item, r->error);
	if (result <= 0)
		return result;
	result = record(r, &item, "an item of a history", fields->where, &newest);
	return result ? result : number_or(r, &newest, CA_SNAPSHOT_real_size, *bytes, bytes);
}

static int
block_bytes(struct reader *r, const struct ca_snapshot_record *fields, uint64_t *bytes)
{
	uint64_t size = *bytes;
	int result = 0;

	if (fields->value[CA_SNAPSHOT_requested_size].type == CA_SNAPSHOT_ABSENT)
		result = history_size(r, fields, bytes);
	else
		result = number(r, fields, CA_SNAPSHOT_requested_size, bytes);
	*bytes = *bytes ? *bytes : size;
	return result;
}

/* Live now, and not allocated in the trace: live at the start. */
static int
block(struct reader *r, const struct ca_snapshot_value *item, uint64_t n,
      const struct ca_snapshot_record *segment)
{
	struct ca_snapshot_record fields;
	struct ca_replay_event event = { .time_ns = CA_REPLAY_NO_TIME, .kind = CA_REPLAY_LIVE };
	const struct ca_snapshot_value *state = &fields.value[CA_SNAPSHOT_state];
	uint64_t device = 0;
	uint32_t nothing;
	int result = record(r, item, "a block", segment->where, &fields);

	if (result)
		return result;
	if (state->type != CA_SNAPSHOT_TEXT)
		return ca_replay_fail_byte(r->error, fields.where, "a block without a state");
	result = block_place(r, &fields, segment, &event);
	if (result || !ca_replay_text_is(state->text, "active_allocated"))
		return result;
	if (fields.value[CA_SNAPSHOT_address].type == CA_SNAPSHOT_ABSENT &&
	    segment->value[CA_SNAPSHOT_address].type == CA_SNAPSHOT_ABSENT)
		return number(r, &fields, CA_SNAPSHOT_address, &event.id);
	event.where = fields.where;
	number_or(r, segment, CA_SNAPSHOT_device, 0, &device);
	number_or(r, segment, CA_SNAPSHOT_stream, 0, &event.stream);
	event.device = (uint8_t)device;
	result = block_bytes(r, &fields, &event.bytes);
	if (result || ca_replay_map_get(&r->live, event.id, event.device, &nothing))
		return result;
	return ca_replay_input_add(r->input, &event);
}

static int
segment(struct reader *r, const struct ca_snapshot_value *item, uint64_t n,
	const struct ca_snapshot_record *of)
{
	struct ca_snapshot_record fields;
	uint64_t device, total, stream;
	int result = record(r, item, "a segment", of->where, &fields);

	if (!result)
		result = number_or(r, &fields, CA_SNAPSHOT_device, 0, &device);
	if (!result)
		result = number_or(r, &fields, CA_SNAPSHOT_stream, 0, &stream);
	if (!result)
		result = number_or(r, &fields, CA_SNAPSHOT_total_size, 0, &total);
	if (!result)
		result = number_or(r, &fields, CA_SNAPSHOT_address, 0, &r->block_at);
	if (result)
		return result;
	if (device >= CA_REPLAY_DEVICES)
		return ca_replay_fail_byte(r->error, fields.where,
					   "device %" PRIu64 " is too large", device);
	if (__builtin_add_overflow(r->input->recorded_reserved_bytes[device], total,
				   &r->input->recorded_reserved_bytes[device]))
		return ca_replay_fail_byte(r->error, fields.where,
					   "the segments are larger than 2^64 bytes");
	result = add_act(r, CA_REPLAY_HELD,
			 &(struct ca_replay_event){ .id = r->block_at,
						    .bytes = total,
						    .time_ns = CA_REPLAY_NO_TIME,
						    .device = (uint8_t)device });
	if (result)
		return result;
	if (fields.value[CA_SNAPSHOT_blocks].type != CA_SNAPSHOT_LIST)
		return ca_replay_fail_byte(r->error, fields.where, "a segment without blocks");
	return each(r, &fields.value[CA_SNAPSHOT_blocks], &fields, block);
}

static int
read_top(struct reader *r, const struct ca_snapshot_value *top)
{
	struct ca_snapshot_record fields = { 0 };
	struct ca_snapshot_value *segments = &fields.value[CA_SNAPSHOT_segments];
	struct ca_snapshot_value *traces = &fields.value[CA_SNAPSHOT_device_traces];
	const struct ca_snapshot_value *carried = &fields.value[CA_SNAPSHOT_cachealloc_trace];
	unsigned i;
	int result = 0;

	if (top->type == CA_SNAPSHOT_LIST)
		*segments = *top;
	else
		result = record(r, top, "the snapshot", 0, &fields);
	if (result)
		return result;
	if (carried->type == CA_SNAPSHOT_LIST)
		return ca_snapshot_read_trace(r->source, carried, r->input, r->error);
	if (traces->type != CA_SNAPSHOT_LIST && segments->type != CA_SNAPSHOT_LIST)
		return ca_replay_fail(r->error,
				      "no list of device_traces or segments: not a snapshot");
	if (traces->type == CA_SNAPSHOT_LIST)
		result = each(r, traces, &fields, trace_device);
	if (!result && segments->type == CA_SNAPSHOT_LIST)
		result = each(r, segments, &fields, segment);
	for (i = 0; i < CA_REPLAY_DEVICES; i++)
		if (segments->type == CA_SNAPSHOT_LIST)
			r->input->rejected[i].reserved_bytes +=
				r->input->recorded_reserved_bytes[i];
		else
			r->input->rejected[i].reserved_bytes = UINT64_MAX;
	return result;
}

int
ca_snapshot_read(const struct ca_snapshot_source *source, const struct ca_snapshot_value *top,
		 struct ca_replay_input *input, struct ca_replay_error *error)
{
	struct reader r = { .source = source, .input = input, .error = error };
	int result = read_top(&r, top);

	ca_replay_map_clear(&r.live);
	ca_replay_map_clear(&r.requested);
	return result;
}
