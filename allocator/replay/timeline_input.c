/* SPDX-License-Identifier: MIT */
/*
 * Timelines from a recording and from a replay. A recording may begin in the middle of a program:
 * a segment that goes back to the driver, or is there at the end, and never came was there at the
 * start.
 */
#include "allocator/replay/timeline.h"

#include <errno.h>
#include <stdlib.h>

enum { GRAIN = 512 };

bool
ca_timeline_is_recorded(const struct ca_replay_input *input, unsigned device)
{
	size_t i;

	for (i = 0; i < input->n_acts; i++)
		if (input->acts[i].device == device)
			return true;
	return false;
}

/* ---- a recording */

static void
take_gap(void *arg, uint64_t address, uint64_t bytes)
{
	ca_timeline_take(arg, true, address, bytes);
}

/* The segments that were there before the first event. */
static int
add_first_segments(const struct ca_replay_input *input, unsigned device,
		   struct ca_timeline *timeline)
{
	struct ca_timeline *scratch = ca_timeline_create(0);
	size_t i;

	if (!scratch)
		return -ENOMEM;
	for (i = 0; i < input->n_acts; i++) {
		const struct ca_replay_act *act = &input->acts[i];

		if (act->device != device)
			continue;
		ca_timeline_set_road(timeline, act->road);
		if (act->kind == CA_REPLAY_RETURNED || act->kind == CA_REPLAY_HELD)
			ca_timeline_each_gap(scratch, act->address, act->bytes, take_gap, timeline);
		if (act->kind == CA_REPLAY_RETURNED)
			ca_timeline_return(scratch, act->address, act->bytes);
		else if (act->kind == CA_REPLAY_TAKEN || act->kind == CA_REPLAY_HELD)
			ca_timeline_take(scratch, false, act->address, act->bytes);
	}
	ca_timeline_destroy(scratch);
	return 0;
}

static void
add_act(struct ca_timeline *timeline, const struct ca_replay_act *act, uint64_t *waiting)
{
	ca_timeline_at(timeline, act->time_ns);
	ca_timeline_set_road(timeline, act->road);
	switch (act->kind) {
	case CA_REPLAY_TAKEN:
		ca_timeline_take(timeline, false, act->address, act->bytes);
		break;
	case CA_REPLAY_RETURNED:
		ca_timeline_return(timeline, act->address, act->bytes);
		break;
	case CA_REPLAY_REFUSED:
		ca_timeline_add(timeline, CA_TIMELINE_REFUSED, act->bytes);
		break;
	case CA_REPLAY_FAILED:
		ca_timeline_add(timeline, CA_TIMELINE_FAILED, act->bytes);
		break;
	case CA_REPLAY_SETTLING: /* right behind its free */
		*waiting += act->bytes;
		ca_timeline_set_waiting(timeline, *waiting);
		break;
	case CA_REPLAY_COMPLETED:
		*waiting -= act->bytes < *waiting ? act->bytes : *waiting;
		ca_timeline_add(timeline, CA_TIMELINE_COMPLETED, 0);
		ca_timeline_set_waiting(timeline, *waiting);
		break;
	}
}

static uint64_t
size_of(const struct ca_timeline *replayed, uint32_t block, const struct ca_replay_event *event)
{
	uint64_t size = replayed ? ca_timeline_size_of(replayed, block) : 0;

	return size >= event->bytes ? size : (event->bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static void
add_event(struct ca_timeline *timeline, const struct ca_replay_input *input, size_t number,
	  const struct ca_timeline *replayed)
{
	const struct ca_replay_event *event = &input->events[number];
	uint32_t block = input->blocks[number];

	ca_timeline_at(timeline, event->time_ns);
	switch (event->kind) {
	case CA_REPLAY_LIVE:
	case CA_REPLAY_ALLOC:
		ca_timeline_alloc(timeline, event->kind == CA_REPLAY_LIVE, block, event->id, event,
				  size_of(replayed, block, event));
		break;
	case CA_REPLAY_FREE:
		ca_timeline_free(timeline, block);
		break;
	case CA_REPLAY_PHASE:
		ca_timeline_add(timeline, CA_TIMELINE_WAITED, 0);
		break;
	}
}

int
ca_timeline_from_input(const struct ca_replay_input *input, unsigned device,
		       const struct ca_timeline *replayed, const uint64_t *waiting,
		       struct ca_timeline **ret_timeline)
{
	struct ca_timeline *timeline = ca_timeline_create(input->n_blocks);
	uint64_t settling = 0;
	size_t i, next = 0;

	if (!timeline || add_first_segments(input, device, timeline)) {
		ca_timeline_destroy(timeline);
		return -ENOMEM;
	}
	for (i = 0; i <= input->count; i++) {
		for (; next < input->n_acts && input->acts[next].before <= i; next++)
			if (input->acts[next].device == device)
				add_act(timeline, &input->acts[next], &settling);
		if (i == input->count || input->events[i].device != device)
			continue;
		add_event(timeline, input, i, replayed);
		if (waiting)
			ca_timeline_set_waiting(timeline, waiting[i]);
	}
	*ret_timeline = timeline;
	return 0;
}

/* ---- a replay */

static void
begin(void *arg, size_t number)
{
	struct ca_timeline_replay *replay = arg;
	const struct ca_replay_event *event = &replay->input->events[number];

	ca_timeline_at(replay->timeline, event->time_ns);
	ca_timeline_set_road(replay->timeline, event->road);
	if (event->kind == CA_REPLAY_FREE) /* segments may go back in its course */
		ca_timeline_free(replay->timeline, replay->input->blocks[number]);
	if (event->kind == CA_REPLAY_PHASE)
		ca_timeline_add(replay->timeline, CA_TIMELINE_WAITED, 0);
}

static void
segment(void *arg, enum ca_model_segment change, uint64_t address, uint64_t bytes)
{
	struct ca_timeline_replay *replay = arg;

	if (change == CA_MODEL_TAKEN)
		ca_timeline_take(replay->timeline, false, address, bytes);
	else if (change == CA_MODEL_RETURNED)
		ca_timeline_return(replay->timeline, address, bytes);
	else
		ca_timeline_add(replay->timeline, CA_TIMELINE_REFUSED, bytes);
}

static void
end(void *arg, size_t number, uint64_t address, uint64_t bytes, uint64_t waiting_bytes)
{
	struct ca_timeline_replay *replay = arg;
	const struct ca_replay_event *event = &replay->input->events[number];
	bool live = event->kind == CA_REPLAY_LIVE;

	if (live || event->kind == CA_REPLAY_ALLOC) {
		if (bytes)
			ca_timeline_alloc(replay->timeline, live, replay->input->blocks[number],
					  address, event, bytes);
		else
			ca_timeline_add(replay->timeline, CA_TIMELINE_FAILED, event->bytes);
	}
	ca_timeline_set_waiting(replay->timeline, waiting_bytes);
	replay->waiting[number] = waiting_bytes;
}

int
ca_timeline_replay_begin(struct ca_timeline_replay *replay, const struct ca_replay_input *input)
{
	*replay = (struct ca_timeline_replay){ .input = input };
	replay->observer = (struct ca_replay_observer){
		.arg = replay, .begin = begin, .segment = segment, .end = end
	};
	replay->timeline = ca_timeline_create(input->n_blocks);
	replay->waiting = calloc(input->count + 1, sizeof(*replay->waiting));
	if (replay->timeline && replay->waiting)
		return 0;
	ca_timeline_replay_clear(replay);
	return -ENOMEM;
}

void
ca_timeline_replay_clear(struct ca_timeline_replay *replay)
{
	ca_timeline_destroy(replay->timeline);
	free(replay->waiting);
	*replay = (struct ca_timeline_replay){ 0 };
}
