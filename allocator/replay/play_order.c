/* SPDX-License-Identifier: MIT */
/*
 * The order between streams that the recorded program made, and what was seen of it: its events are
 * events of the order tracker here, too, but nothing that the pretend device knows of.
 */
#include "allocator/replay/play_inside.h"

#include <errno.h>
#include <stdlib.h>

/* NULL: no memory. */
static struct ca_event *
event_of(struct ca_replayer *p, uint64_t number)
{
	struct ca_event *event;
	uint32_t at;
	void *bigger;

	if (ca_replay_map_get(&p->event_of, number, 0, &at))
		return p->events[at];
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): it is an array of pointers */
	bigger = realloc(p->events, (p->n_events + 1) * sizeof(*p->events));
	if (!bigger)
		return NULL;
	p->events = bigger;
	event = calloc(1, sizeof(*event));
	if (!event || ca_replay_map_add(&p->event_of, number, 0, (uint32_t)p->n_events)) {
		free(event);
		return NULL;
	}
	p->events[p->n_events++] = event;
	return event;
}

static int
record(struct ca_replayer *p, const struct ca_replay_event *event, struct ca_stream *stream)
{
	struct ca_event *of = event_of(p, event->id);

	if (!of)
		return -ENOMEM;
	ca_event_record_end(of, ca_event_record_begin(of, stream), true);
	return 0;
}

static int
wait(struct ca_replayer *p, const struct ca_replay_event *event, struct ca_stream *stream)
{
	struct ca_event *of = event_of(p, event->id);

	if (!of)
		return -ENOMEM;
	if (stream)
		ca_event_waited(of, ca_event_look(of), stream);
	return 0;
}

int
ca_replay_order(struct ca_replayer *p, const struct ca_replay_event *event)
{
	unsigned at = 0;
	int r = ca_replay_streams_get(&p->streams, event->stream, &at);

	if (!r)
		r = event->kind == CA_REPLAY_RECORD ? record(p, event, p->streams.stream[at].stream)
						    : wait(p, event, p->streams.stream[at].stream);
	return r ? ca_replay_failure(p, event, "an event", r) : 0;
}

int
ca_replay_partly(struct ca_replayer *p, const struct ca_replay_event *event)
{
	unsigned at = 0;
	int r = ca_replay_streams_get(&p->streams, event->stream, &at);

	if (!r && p->streams.stream[at].stream &&
	    p->input->events[event->id].device == event->device)
		ca_order_finished(p->streams.stream[at].stream,
				  p->address[p->input->blocks[event->id]]);
	return r ? ca_replay_failure(p, event, "the end of work", r) : 0;
}

void
ca_replay_async_clear(struct ca_replayer *p)
{
	while (p->n_events)
		free(p->events[--p->n_events]);
	free(p->events);
	ca_replay_map_clear(&p->event_of);
	free(p->pools);
}
