/* SPDX-License-Identifier: MIT */
/* What must be true of every input that a reader accepts, whatever the bytes were. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "allocator/replay/timeline.h"

static inline void
require(bool condition)
{
	if (!condition)
		abort();
}

static inline void
check_event(const struct ca_replay_input *input, size_t i)
{
	const struct ca_replay_event *event = &input->events[i];
	bool block = event->kind <= CA_REPLAY_FREE;

	require(event->kind <= CA_REPLAY_POOL && event->device < CA_REPLAY_DEVICES);
	require(!block || (event->bytes && input->blocks[i] < input->n_blocks));
	require(event->kind != CA_REPLAY_LIVE || !i || input->events[i - 1].kind == CA_REPLAY_LIVE);
}

/* Each block begins once and ends at most once, in this order. */
static inline void
check_input(const struct ca_replay_input *input)
{
	uint8_t *seen = calloc((size_t)input->n_blocks + 1, 1);
	size_t i;

	require(seen != NULL && input->count <= input->room);
	for (i = 0; i < input->count; i++) {
		check_event(input, i);
		if (input->events[i].kind <= CA_REPLAY_FREE)
			require(seen[input->blocks[i]]++ ==
				(input->events[i].kind == CA_REPLAY_FREE));
	}
	free(seen);
}

/* Of each device that has any; whatever addresses and sizes there are. */
static inline void
check_timelines(const struct ca_replay_input *input)
{
	FILE *nowhere = fopen("/dev/null", "wb");
	struct ca_timeline *timeline;
	unsigned device;

	require(nowhere != NULL);
	for (device = 0; device < CA_REPLAY_DEVICES; device++) {
		if (!ca_timeline_is_recorded(input, device))
			continue;
		require(!ca_timeline_from_input(input, device, NULL, NULL, &timeline));
		require(!ca_timeline_write(timeline, input, device, "recorded", nowhere));
		ca_timeline_destroy(timeline);
	}
	fclose(nowhere);
}

/* Reads, resolves, checks. */
static inline void
try_reader(ca_replay_reader *reader, const uint8_t *data, size_t size)
{
	struct ca_replay_error error = { .where = UINT64_MAX };
	struct ca_replay_input input = { 0 };
	int r = reader(data, size, &input, &error);

	if (!r)
		r = ca_replay_input_resolve(&input, &error);
	if (!r)
		check_input(&input);
	else
		require(error.text[0] && memchr(error.text, 0, sizeof(error.text)));
	if (!r)
		check_timelines(&input);
	ca_replay_input_clear(&input);
}
