/* SPDX-License-Identifier: MIT */
#include "tests/traces/models/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	const char *path;
	struct trace trace;
	size_t room;         /* of trace.events */
	unsigned char *live; /* by id */
	size_t live_room;
	size_t line;
};

static int
refuse(const struct reading *reading, const char *why)
{
	fprintf(stderr, "%s:%zu: %s\n", reading->path, reading->line, why);
	return -1;
}

/* A number below `end`, after one blank; *text then stands behind it. */
static bool
number_next(const char **text, uint64_t end, uint64_t *ret_number)
{
	const char *at = *text;
	uint64_t number = 0;

	if (*at++ != ' ' || *at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++) {
		if (number > (UINT64_MAX - 9) / 10)
			return false;
		number = 10 * number + (uint64_t)(*at - '0');
	}
	*text = at;
	*ret_number = number;
	return number < end;
}

static bool
event_parse(const char *text, struct trace_event *ret_event)
{
	uint64_t id = 0, bytes = 0, stream = 0;
	char kind = *text++;
	bool good = true;

	if (!kind || !strchr("IAFUP", kind))
		return false;
	if (kind != 'P')
		good = number_next(&text, TRACE_IDS, &id);
	if (good && (kind == 'I' || kind == 'A'))
		good = number_next(&text, INT64_MAX, &bytes) && bytes;
	if (good && kind != 'P' && kind != 'F')
		good = number_next(&text, TRACE_STREAMS, &stream);
	*ret_event = (struct trace_event){
		.kind = kind, .id = (uint32_t)id, .stream = (uint32_t)stream, .bytes = bytes
	};
	return good && (!*text || !strcmp(text, "\n") || !strcmp(text, "\r\n"));
}

static void *
grown(void *array, size_t *room, size_t needed, size_t size)
{
	size_t more = *room ? *room : 1024;
	char *bigger;

	if (needed <= *room)
		return array;
	while (more < needed)
		more *= 2;
	bigger = realloc(array, more * size);
	if (!bigger) {
		perror("realloc");
		exit(1);
	}
	memset(bigger + *room * size, 0, (more - *room) * size);
	*room = more;
	return bigger;
}

static int
event_add(struct reading *reading, const struct trace_event *event)
{
	struct trace *trace = &reading->trace;
	bool taken = event->kind == 'I' || event->kind == 'A';

	trace->events =
		grown(trace->events, &reading->room, trace->n_events + 1, sizeof(*trace->events));
	trace->events[trace->n_events++] = *event;
	if (event->kind == 'P')
		return 0;
	reading->live = grown(reading->live, &reading->live_room, (size_t)event->id + 1, 1);
	if (event->id >= trace->n_ids)
		trace->n_ids = (size_t)event->id + 1;
	if (taken && reading->live[event->id])
		return refuse(reading, "the block is live already");
	if (!taken && !reading->live[event->id])
		return refuse(reading, "the block is not live");
	if (event->kind != 'U')
		reading->live[event->id] = taken;
	return 0;
}

static int
lines_read(struct reading *reading, FILE *file)
{
	struct trace_event event;
	char line[128];

	while (fgets(line, sizeof(line), file)) {
		reading->line++;
		if (!event_parse(line, &event))
			return refuse(reading, "not an event");
		if (event_add(reading, &event))
			return -1;
	}
	return ferror(file) ? refuse(reading, strerror(errno)) : 0;
}

int
trace_read(const char *path, struct trace *ret_trace)
{
	struct reading reading = { .path = path };
	bool standard = !strcmp(path, "-");
	FILE *file = standard ? stdin : fopen(path, "r");
	int r;

	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	r = lines_read(&reading, file);
	if (!standard)
		fclose(file);
	free(reading.live);
	if (r)
		free(reading.trace.events);
	else
		*ret_trace = reading.trace;
	return r;
}
