/* SPDX-License-Identifier: MIT */
/* Steps that submit, synchronise, record and wait. */
#include <string.h>

#include "tests/sequence/actors.h"
#include "tests/sequence/world.h"

static bool
is_default(const struct stream *stream)
{
	return stream->kind == CA_STREAM_LEGACY || stream->kind == CA_STREAM_PER_THREAD;
}

/* In one space either the legacy stream or per-thread ones: nobody here could play the driver's
 * part between the two. */
static bool
may_open(struct world *w, unsigned space, enum ca_stream_kind kind)
{
	unsigned i;

	for (i = 0; i < w->n_streams; i++) {
		const struct stream *other = &w->streams[i];

		if (!other->stream || other->space != space || !is_default(other))
			continue;
		if (kind == CA_STREAM_LEGACY ||
		    (kind == CA_STREAM_PER_THREAD &&
		     (other->kind == CA_STREAM_LEGACY || other->actor == w->actor)))
			return false;
	}
	/* the legacy stream's barriers are made of the driver's own marks */
	return kind != CA_STREAM_LEGACY || (!w->failing && !w->capturing);
}

void
step_open(struct world *w)
{
	static const enum ca_stream_kind kinds[] = { CA_STREAM_NONBLOCKING, CA_STREAM_NONBLOCKING,
						     CA_STREAM_NONBLOCKING, CA_STREAM_BLOCKING,
						     CA_STREAM_BLOCKING,    CA_STREAM_LEGACY,
						     CA_STREAM_PER_THREAD };
	unsigned most = w->options->streams ? w->options->streams : OPEN_MAX;
	struct stream *stream = &w->streams[w->n_streams];
	enum ca_stream_kind kind = kinds[pick(w, sizeof(kinds) / sizeof(kinds[0]))];
	unsigned space = most > 1 && pick(w, 5) == 0;

	if (w->n_streams == STREAMS_MAX || w->n_open >= most || !may_open(w, space, kind))
		return;
	if (kind == CA_STREAM_PER_THREAD)
		ca_model_stream_set_private(w->model, name_of(w->n_streams));
	*stream = (struct stream){ .kind = kind, .space = space, .actor = w->actor };
	require(!ca_stream_open(w->spaces[space], kind, name_of(w->n_streams), true,
				&stream->stream),
		"no stream");
	w->n_streams++;
	w->n_open++;
}

/* One that this thread may name; `spaces` a bit per space. */
static bool
pick_stream(struct world *w, unsigned *ret_stream)
{
	unsigned i, n = w->n_open ? (unsigned)pick(w, w->n_open) : 0;

	for (i = 0; i < w->n_streams; i++) {
		const struct stream *stream = &w->streams[i];

		if (!stream->stream || n--)
			continue;
		*ret_stream = i;
		return stream->kind != CA_STREAM_PER_THREAD || stream->actor == w->actor;
	}
	return false;
}

void
step_close(struct world *w)
{
	unsigned i;

	if (!pick_stream(w, &i) || w->streams[i].kind == CA_STREAM_LEGACY)
		return;
	ca_stream_close(w->streams[i].stream,
			w->streams[i].kind == CA_STREAM_PER_THREAD || pick(w, 4) == 0);
	w->streams[i].stream = NULL;
	w->n_open--;
}

void
streams_of_space_died(struct world *w, unsigned space)
{
	unsigned i;

	for (i = 0; i < w->n_streams; i++) {
		if (w->streams[i].space != space || !w->streams[i].stream)
			continue;
		ca_model_stream_finish(w->model, name_of(i), UINT64_MAX);
		w->streams[i].stream = NULL;
		w->n_open--;
	}
	for (i = 0; i < EVENTS; i++) {
		if (w->events[i].space != space || !w->events[i].mark)
			continue;
		w->real.mark_drop(w->model, w->events[i].mark);
		memset(&w->events[i], 0, sizeof(w->events[i]));
	}
}

/* What the driver itself does around the legacy stream. */
static void
order_legacy(struct world *w, unsigned to)
{
	const struct stream *self = &w->streams[to];
	void *context = w->contexts[self->space];
	ca_mark mark;
	unsigned i;

	for (i = 0; i < w->n_streams; i++) {
		const struct stream *other = &w->streams[i];

		if (!other->stream || i == to || other->space != self->space ||
		    other->kind == CA_STREAM_NONBLOCKING || self->kind == CA_STREAM_NONBLOCKING ||
		    (other->kind != CA_STREAM_LEGACY && self->kind != CA_STREAM_LEGACY))
			continue;
		require(!w->real.stream_mark(w->model, context, name_of(i), &mark) &&
				!w->real.stream_wait(w->model, context, name_of(to), mark),
			"the driver's own barrier could not be made");
		w->real.mark_drop(w->model, mark);
	}
}

static unsigned
pick_touched(struct world *w, unsigned space, struct piece *touched[3])
{
	unsigned i, n = 0;

	for (i = 0; i < 3 && w->n_live; i++) {
		struct piece *piece = &w->live[pick(w, w->n_live)];

		if (piece->space == space)
			touched[n++] = piece;
	}
	return n;
}

static struct ca_touch
touch_of(const struct piece *piece)
{
	struct ca_touch touch = { .n = 1 };

	touch.range[0].address = piece->address;
	touch.range[0].bytes = piece->requested;
	return touch;
}

static void
submit(struct world *w, unsigned stream, struct piece **touched, unsigned n)
{
	uint64_t work;
	unsigned i;

	order_legacy(w, stream);
	for (i = 0; i < n; i++)
		reference_submission(w, touched[i], stream);
	work = ca_model_stream_submit(w->model, name_of(stream));
	for (i = 0; i < n; i++)
		touched[i]->work[stream] = work;
	ca_submit_end(w->streams[stream].stream);
	w->totals->launches++;
}

/* A copy to or from memory of the other context. */
static void
launch_across(struct world *w, unsigned stream)
{
	struct stream *self = &w->streams[stream];
	unsigned other = !self->space;
	struct piece *touched[3];
	struct ca_touch touch;

	if (!pick_touched(w, other, touched))
		return;
	touch = touch_of(touched[0]);
	ca_submit_begin(self->stream, &touch);
	ca_submit_guard_other(self->stream, w->spaces[other], &touch);
	submit(w, stream, touched, 1);
	ca_submit_foreign(w->spaces[other], NULL);
}

void
step_launch(struct world *w)
{
	struct piece *touched[3];
	struct ca_touch touch;
	unsigned stream, n;

	if (!pick_stream(w, &stream))
		return;
	if (w->capturing && w->streams[stream].kind != CA_STREAM_NONBLOCKING)
		return;
	ca_stream_note_thread(w->streams[stream].stream);
	if (!pick(w, 16)) {
		launch_across(w, stream);
		return;
	}
	n = pick_touched(w, w->streams[stream].space, touched);
	if (n && pick(w, 3) == 0) {
		n = 1;
		touch = touch_of(touched[0]);
		ca_submit_begin(w->streams[stream].stream, &touch);
	} else {
		ca_submit_begin(w->streams[stream].stream, NULL);
	}
	submit(w, stream, touched, n);
}

/* Work that no stream of ours knows, of which only the context is told. */
void
step_foreign(struct world *w)
{
	struct piece *piece;

	if (!w->n_live)
		return;
	piece = &w->live[pick(w, w->n_live)];
	piece->foreign = ca_model_submit(w->model);
	ca_submit_foreign(w->spaces[piece->space], NULL);
}

void
streams_finish_all(struct world *w)
{
	unsigned i;

	for (i = 0; i < w->n_streams; i++)
		ca_model_stream_finish(w->model, name_of(i), UINT64_MAX);
	ca_model_finish(w->model, UINT64_MAX);
}

static void
synchronize_space(struct world *w)
{
	unsigned space = (unsigned)pick(w, SPACES), i;
	uint64_t bound = ca_order_space_bound(w->spaces[space]);

	for (i = 0; i < w->n_streams; i++)
		if (w->streams[i].space == space)
			ca_model_stream_finish(w->model, name_of(i), UINT64_MAX);
	ca_order_space_finished(w->spaces[space], bound, false);
}

/* The program's own synchronisation and queries teach. */
void
step_synchronize(struct world *w)
{
	unsigned stream;
	uint64_t bound;
	bool waits = pick(w, 2);

	if (pick(w, 4) == 0) {
		synchronize_space(w);
		return;
	}
	if (!pick_stream(w, &stream))
		return;
	bound = ca_order_bound(w->streams[stream].stream);
	if (waits)
		ca_model_stream_finish(w->model, name_of(stream), UINT64_MAX);
	if (ca_model_stream_finished(w->model, name_of(stream)) ==
	    ca_model_stream_submitted(w->model, name_of(stream)))
		ca_order_finished(w->streams[stream].stream, bound);
}

/* The device gets on. */
void
step_work(struct world *w)
{
	unsigned stream = w->n_streams ? (unsigned)pick(w, w->n_streams) : 0;

	if (w->n_streams)
		ca_model_stream_finish(w->model, name_of(stream),
				       ca_model_stream_finished(w->model, name_of(stream)) +
					       pick(w, 20));
	if (pick(w, 2))
		ca_model_finish(w->model, ca_model_finished(w->model) + pick(w, 40));
}

static void
event_record(struct world *w, struct event *event, unsigned stream)
{
	struct stream *on = &w->streams[stream];
	uint64_t begun;

	if (event->mark)
		w->real.mark_drop(w->model, event->mark);
	event->space = on->space;
	begun = ca_event_record_begin(&event->event, on->stream);
	require(!w->real.stream_mark(w->model, w->contexts[on->space], name_of(stream),
				     &event->mark),
		"the program's own event could not be recorded");
	ca_event_record_end(&event->event, begun, true);
}

static void
event_use(struct world *w, struct event *event, unsigned stream)
{
	struct stream *on = &w->streams[stream];
	uint64_t seen;

	seen = ca_event_look(&event->event);
	switch (pick(w, 4)) {
	case 0:
		if (!w->real.mark_query(w->model, event->mark))
			ca_event_finished(&event->event, seen);
		break;
	case 1:
		require(!w->real.mark_wait(w->model, event->mark), "the program's own wait failed");
		ca_event_finished(&event->event, seen);
		break;
	default:
		require(!w->real.stream_wait(w->model, w->contexts[on->space], name_of(stream),
					     event->mark),
			"the program's own wait failed");
		ca_event_waited(&event->event, seen, on->stream);
	}
}

void
step_event(struct world *w)
{
	struct event *event = &w->events[pick(w, EVENTS)];
	unsigned stream;

	if (w->failing || w->capturing || !pick_stream(w, &stream))
		return;
	if (!event->mark || pick(w, 2))
		event_record(w, event, stream);
	else
		event_use(w, event, stream);
}
