/* SPDX-License-Identifier: MIT */
#include "allocator/replay/streams.h"

#include <errno.h>
#include <stdlib.h>

static void *
handle(unsigned stream)
{
	return (void *)(uintptr_t)(0x100 + stream);
}

static int
open_stream(struct ca_replay_streams *streams, unsigned at, uint64_t recorded)
{
	struct ca_replay_stream *stream = &streams->stream[at];
	int r = ca_replay_map_add(&streams->by_recorded, recorded, 0, at);

	if (r)
		return r;
	stream->recorded = recorded;
	stream->stream = NULL;
	streams->different++;
	r = ca_stream_open(streams->space, CA_STREAM_NONBLOCKING, handle(at), true,
			   &stream->stream);
	if (!r)
		ca_stream_note_thread(stream->stream);
	/* too many ghosts: the tracker is on finished memory only, as in a program */
	return r == -ENOSPC ? 0 : r;
}

/* The place of the stream that was used longest ago. */
static unsigned
make_place(struct ca_replay_streams *streams)
{
	unsigned oldest = 0, i;
	uint32_t nothing;

	if (streams->count < CA_REPLAY_STREAMS)
		return streams->count++;
	for (i = 1; i < CA_REPLAY_STREAMS; i++)
		if (streams->stream[i].used < streams->stream[oldest].used)
			oldest = i;
	if (streams->stream[oldest].stream)
		ca_stream_close(streams->stream[oldest].stream, false);
	ca_replay_map_take(&streams->by_recorded, streams->stream[oldest].recorded, 0, &nothing);
	return oldest;
}

int
ca_replay_streams_get(struct ca_replay_streams *streams, uint64_t recorded, unsigned *ret)
{
	uint32_t at = 0;
	int r = 0;

	if (!ca_replay_map_get(&streams->by_recorded, recorded, 0, &at)) {
		at = make_place(streams);
		r = open_stream(streams, at, recorded);
	}
	streams->stream[at].used = ++streams->now;
	*ret = at;
	return r;
}

static int
work_grow(struct ca_replay_streams *streams)
{
	size_t room = streams->work_room ? 2 * streams->work_room : 1024, i;
	struct ca_replay_work *bigger = malloc(room * sizeof(*bigger));

	if (!bigger)
		return -ENOMEM;
	for (i = 0; i < streams->work_count; i++)
		bigger[i] = streams->work[(streams->work_first + i) & (streams->work_room - 1)];
	free(streams->work);
	streams->work = bigger;
	streams->work_first = 0;
	streams->work_room = room;
	return 0;
}

int
ca_replay_streams_submit(struct ca_replay_streams *streams, unsigned at, uint64_t time_ns,
			 uint64_t lasts_ns)
{
	struct ca_replay_stream *stream = &streams->stream[at];
	uint64_t piece = 0;
	size_t last;
	int r = 0;

	if (stream->stream)
		ca_submit_begin(stream->stream, NULL);
	if (streams->rate_kind == CA_REPLAY_LAGS)
		r = ca_model_stream_run(streams->model, handle(at), lasts_ns);
	else
		piece = ca_model_stream_submit(streams->model, handle(at));
	if (stream->stream)
		ca_submit_end(stream->stream);
	if (streams->rate_kind != CA_REPLAY_KEEPS_UP || time_ns == UINT64_MAX)
		return r;
	if (streams->work_count == streams->work_room && work_grow(streams))
		return -ENOMEM;
	last = (streams->work_first + streams->work_count++) & (streams->work_room - 1);
	streams->work[last] = (struct ca_replay_work){ time_ns, piece, at };
	return 0;
}

void
ca_replay_streams_advance(struct ca_replay_streams *streams, uint64_t time_ns, uint64_t ago_ns)
{
	while (streams->work_count) {
		struct ca_replay_work *work = &streams->work[streams->work_first];

		if (work->time_ns > time_ns || time_ns - work->time_ns < ago_ns)
			break;
		ca_model_stream_finish(streams->model, handle(work->stream), work->piece);
		streams->work_first = (streams->work_first + 1) & (streams->work_room - 1);
		streams->work_count--;
	}
}

int
ca_replay_streams_end(struct ca_replay_streams *streams, unsigned at, uint64_t clock_ns)
{
	return ca_model_stream_end(streams->model, handle(at), clock_ns);
}

void
ca_replay_streams_finish(struct ca_replay_streams *streams)
{
	uint64_t bound = ca_order_space_bound(streams->space);
	unsigned i;

	for (i = 0; i < streams->count; i++)
		ca_model_stream_finish(streams->model, handle(i), UINT64_MAX);
	streams->work_count = 0;
	ca_order_space_finished(streams->space, bound, false);
}

void
ca_replay_streams_clear(struct ca_replay_streams *streams)
{
	ca_order_last_stream = NULL; /* it goes with the heap */
	ca_replay_map_clear(&streams->by_recorded);
	free(streams->work);
}
