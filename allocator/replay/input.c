/* SPDX-License-Identifier: MIT */
/*
 * The list of events that readers fill, and what is the same for all formats: which block an id
 * names at the moment (ids come back, addresses above all), and which blocks were there before the
 * trace began.
 */
#include "allocator/replay/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/replay/map.h"

enum { ROOM_MIN = 1024 };

int
ca_replay_input_add(struct ca_replay_input *input, const struct ca_replay_event *event)
{
	if (input->count == input->room) {
		size_t room = input->room ? 2 * input->room : ROOM_MIN;
		struct ca_replay_event *bigger =
			room <= SIZE_MAX / sizeof(*bigger)
				? realloc(input->events, room * sizeof(*bigger))
				: NULL;

		if (!bigger)
			return -ENOMEM;
		input->events = bigger;
		input->room = room;
	}
	input->events[input->count++] = *event;
	return 0;
}

int
ca_replay_input_add_act(struct ca_replay_input *input, const struct ca_replay_act *act)
{
	if (input->n_acts == input->room_acts) {
		size_t room = input->room_acts ? 2 * input->room_acts : ROOM_MIN;
		void *bigger = room <= SIZE_MAX / sizeof(*input->acts)
				       ? realloc(input->acts, room * sizeof(*input->acts))
				       : NULL;

		if (!bigger)
			return -ENOMEM;
		input->acts = bigger;
		input->room_acts = room;
	}
	input->acts[input->n_acts] = *act;
	input->acts[input->n_acts++].before = input->count;
	return 0;
}

struct ca_replay_rejected *
ca_replay_input_reject(struct ca_replay_input *input, const struct ca_replay_event *event)
{
	struct ca_replay_rejected *rejected = &input->rejected[event->device];
	uint64_t *largest = &input->recorded_failed_bytes[event->device];

	input->recorded_failed_calls[event->device]++;
	if (event->bytes > *largest)
		*largest = event->bytes;
	*rejected = (struct ca_replay_rejected){ .event = *event,
						 .before = input->count,
						 .reserved_bytes = UINT64_MAX,
						 .free_bytes = UINT64_MAX };
	rejected->event.kind = CA_REPLAY_ALLOC;
	return rejected;
}

void
ca_replay_input_clear(struct ca_replay_input *input)
{
	free(input->events);
	free(input->acts);
	free(input->about.program);
	free(input->about.settings);
	free(input->blocks);
	*input = (struct ca_replay_input){ 0 };
}

static int __attribute__((format(printf, 4, 0)))
fail(struct ca_replay_error *error, uint64_t where, bool line, const char *format, va_list args)
{
	error->where = where;
	error->line = line;
	vsnprintf(error->text, sizeof(error->text), format, args);
	return -EINVAL;
}

int
ca_replay_fail_line(struct ca_replay_error *error, uint64_t line, const char *format, ...)
{
	va_list args;
	int r;

	va_start(args, format);
	r = fail(error, line, true, format, args);
	va_end(args);
	return r;
}

int
ca_replay_fail_byte(struct ca_replay_error *error, uint64_t offset, const char *format, ...)
{
	va_list args;
	int r;

	va_start(args, format);
	r = fail(error, offset, false, format, args);
	va_end(args);
	return r;
}

int
ca_replay_fail(struct ca_replay_error *error, const char *format, ...)
{
	va_list args;
	int r;

	va_start(args, format);
	r = fail(error, UINT64_MAX, false, format, args);
	va_end(args);
	return r;
}

/* ---- resolving */

struct resolver {
	struct ca_replay_input *input;
	struct ca_replay_error *error;
	struct ca_replay_map live;        /* (id, device) to block */
	struct block *blocks;             /* n_blocks of them */
	struct ca_replay_event *at_start; /* LIVE events, in the order in which they were met */
	uint32_t *at_start_blocks;
	size_t n_at_start, room_at_start;
	uint64_t time_ns[CA_REPLAY_DEVICES];
};

struct block {
	uint64_t bytes;
	uint64_t stream;
};

static int
print_error(struct resolver *r, const struct ca_replay_event *event, const char *what)
{
	struct ca_replay_error *error = r->error;

	error->where = event->where;
	error->line = r->input->lines;
	snprintf(error->text, sizeof(error->text), "block %s%" PRIx64 " %s",
		 event->id > UINT32_MAX ? "0x" : "", event->id, what);
	if (event->id <= UINT32_MAX)
		snprintf(error->text, sizeof(error->text), "block %" PRIu64 " %s", event->id, what);
	return -EINVAL;
}

/* A block that is live from now on. */
static int
block_begin(struct resolver *r, const struct ca_replay_event *event, uint32_t *ret_block)
{
	struct ca_replay_input *input = r->input;
	int result;

	if (!event->bytes)
		return print_error(r, event, "has no bytes");
	if (input->n_blocks == UINT32_MAX)
		return ca_replay_fail(r->error, "more than %" PRIu32 " blocks", UINT32_MAX);
	result = ca_replay_map_add(&r->live, event->id, event->device, input->n_blocks);
	if (result == -EEXIST)
		return print_error(r, event, "is allocated, and it is live already");
	if (result)
		return result;
	r->blocks[input->n_blocks] = (struct block){ event->bytes, event->stream };
	*ret_block = input->n_blocks++;
	return 0;
}

static int
at_start(struct resolver *r, const struct ca_replay_event *event, uint32_t block)
{
	if (r->n_at_start == r->room_at_start) {
		size_t room = r->room_at_start ? 2 * r->room_at_start : ROOM_MIN;
		void *events = realloc(r->at_start, room * sizeof(*r->at_start));
		void *blocks;

		if (!events)
			return -ENOMEM;
		r->at_start = events;
		blocks = realloc(r->at_start_blocks, room * sizeof(*r->at_start_blocks));
		if (!blocks)
			return -ENOMEM;
		r->at_start_blocks = blocks;
		r->room_at_start = room;
	}
	r->at_start[r->n_at_start] = *event;
	r->at_start[r->n_at_start].kind = CA_REPLAY_LIVE;
	r->at_start[r->n_at_start].time_ns = CA_REPLAY_NO_TIME;
	r->at_start_blocks[r->n_at_start++] = block;
	return 0;
}

/* A free of what is not known is one of a block that was live at the start, if it tells enough. */
static int
resolve_free(struct resolver *r, struct ca_replay_event *event, uint32_t *ret_block)
{
	int result;

	if (!ca_replay_map_take(&r->live, event->id, event->device, ret_block)) {
		if (!event->bytes)
			return print_error(r, event, "is freed, and it is not live");
		result = block_begin(r, event, ret_block);
		if (!result)
			result = at_start(r, event, *ret_block);
		if (result)
			return result;
		ca_replay_map_take(&r->live, event->id, event->device, ret_block);
	}
	event->bytes = r->blocks[*ret_block].bytes;
	if (event->road != CA_REPLAY_ASYNC) /* whose frees name their own */
		event->stream = r->blocks[*ret_block].stream;
	return 0;
}

static int
resolve_event(struct resolver *r, struct ca_replay_event *event, uint32_t *ret_block)
{
	int result;

	if (event->device >= CA_REPLAY_DEVICES)
		return print_error(r, event, "is on a device whose number is too large");
	if (event->time_ns != CA_REPLAY_NO_TIME) {
		if (event->time_ns < r->time_ns[event->device])
			event->time_ns = r->time_ns[event->device];
		r->time_ns[event->device] = event->time_ns;
	}
	if (event->kind == CA_REPLAY_FREE)
		return resolve_free(r, event, ret_block);
	if (event->kind != CA_REPLAY_LIVE && event->kind != CA_REPLAY_ALLOC)
		return 0;
	result = block_begin(r, event, ret_block);
	if (!result && event->kind == CA_REPLAY_LIVE)
		result = at_start(r, event, *ret_block);
	return result;
}

/* Resolves in place, LIVE events taken out; n_blocks may be as many as events. (In formats that
 * have acts, LIVE events stand behind all others.) */
static int
resolve_all(struct resolver *r)
{
	struct ca_replay_input *input = r->input;
	size_t i, kept = 0;

	for (i = 0; i < input->count; i++) {
		struct ca_replay_event event = input->events[i];
		uint32_t block = 0;
		int result = resolve_event(r, &event, &block);

		if (result)
			return result;
		if (event.kind == CA_REPLAY_LIVE)
			continue;
		input->events[kept] = event;
		input->blocks[kept++] = block;
	}
	input->count = kept;
	return 0;
}

static int
put_in_front(struct resolver *r)
{
	struct ca_replay_input *input = r->input;
	size_t n = r->n_at_start, count = input->count + n, i;
	void *events, *blocks;

	for (i = 0; i < CA_REPLAY_DEVICES; i++)
		input->rejected[i].before += n;
	if (!n)
		return 0;
	events = realloc(input->events, count * sizeof(*input->events));
	if (!events)
		return -ENOMEM;
	input->events = events;
	input->room = count;
	blocks = realloc(input->blocks, count * sizeof(*input->blocks));
	if (!blocks)
		return -ENOMEM;
	input->blocks = blocks;
	memmove(input->events + n, input->events, input->count * sizeof(*input->events));
	memmove(input->blocks + n, input->blocks, input->count * sizeof(*input->blocks));
	memcpy(input->events, r->at_start, n * sizeof(*input->events));
	memcpy(input->blocks, r->at_start_blocks, n * sizeof(*input->blocks));
	input->count = count;
	for (i = 0; i < input->n_acts; i++)
		input->acts[i].before += n;
	return 0;
}

int
ca_replay_input_resolve(struct ca_replay_input *input, struct ca_replay_error *error)
{
	struct resolver r = { .input = input, .error = error };
	int result = -ENOMEM;

	input->n_blocks = 0;
	free(input->blocks);
	input->blocks = malloc((input->count + 1) * sizeof(*input->blocks));
	r.blocks = malloc((input->count + 1) * sizeof(*r.blocks));
	if (input->blocks && r.blocks)
		result = resolve_all(&r);
	if (!result)
		result = put_in_front(&r);
	if (result == -ENOMEM)
		ca_replay_fail(error, "out of host memory");
	ca_replay_map_clear(&r.live);
	free(r.blocks);
	free(r.at_start);
	free(r.at_start_blocks);
	return result;
}
