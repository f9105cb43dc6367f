/* SPDX-License-Identifier: MIT */
/*
 * Pretend streams: counters, and a vector of what each stream's next piece of work comes after. A
 * mark on a stream carries the vector along, a wait merges it.
 */
#include "allocator/fake/internal.h"

#include <errno.h>
#include <stdlib.h>

static struct stream *
stream_get(struct ca_model *model, void *name)
{
	unsigned i;

	for (i = 0; i < model->n_streams; i++)
		if (model->streams[i].name == name)
			return &model->streams[i];
	if (model->n_streams == CA_MODEL_STREAMS)
		abort(); /* a test with too many streams proves nothing */
	model->streams[model->n_streams].name = name;
	return &model->streams[model->n_streams++];
}

static unsigned
index_of(const struct ca_model *model, const struct stream *stream)
{
	return (unsigned)(stream - model->streams);
}

static void
merge(uint64_t *into, const uint64_t *from)
{
	unsigned i;

	for (i = 0; i < CA_MODEL_STREAMS; i++)
		if (into[i] < from[i])
			into[i] = from[i];
}

static void finish_up_to(struct ca_model *model, const uint64_t *end);

static void
stream_finish(struct ca_model *model, struct stream *stream, uint64_t work)
{
	struct edge **at;

	if (work > stream->submitted)
		work = stream->submitted;
	if (work <= stream->finished)
		return;
	stream->finished = work;
	for (at = &stream->edges; *at;) {
		struct edge *edge = *at;

		if (edge->at >= work) {
			at = &edge->next;
			continue;
		}
		*at = edge->next;
		finish_up_to(model, edge->end);
		ca_objects_put(&model->edges, edge);
		at = &stream->edges; /* the walk may have come through here */
	}
}

/* Work that has ended by the clock. */
static void
pass(struct ca_model *model, struct stream *stream)
{
	struct work *work;

	while ((work = stream->works) && work->end_ns <= model->now_ns) {
		stream->works = work->next;
		stream_finish(model, stream, work->work);
		ca_objects_put(&model->works, work);
	}
}

void
ca_model_await(struct ca_model *model, uint64_t now_ns)
{
	unsigned i;

	if (model->now_ns < now_ns)
		model->now_ns = now_ns;
	for (i = 0; i < model->n_streams; i++)
		pass(model, &model->streams[i]);
}

uint64_t
ca_model_next_end(const struct ca_model *model)
{
	uint64_t end_ns = UINT64_MAX;
	unsigned i;

	for (i = 0; i < model->n_streams; i++)
		if (model->streams[i].works && model->streams[i].works->end_ns < end_ns)
			end_ns = model->streams[i].works->end_ns;
	return end_ns;
}

/* All of it, and what it waits for with nothing behind the wait. */
static void
stream_drain(struct ca_model *model, struct stream *stream)
{
	ca_model_await(model, stream->ready_ns);
	stream_finish(model, stream, UINT64_MAX);
	finish_up_to(model, stream->after);
}

static void
finish_up_to(struct ca_model *model, const uint64_t *end)
{
	uint64_t all[CA_MODEL_STREAMS];
	unsigned i;

	for (i = 0; i < CA_MODEL_STREAMS; i++)
		all[i] = end[i];
	for (i = 0; i < model->n_streams; i++)
		stream_finish(model, &model->streams[i], all[i]);
}

void
ca_model_mark_everything(struct ca_model *model, struct mark *mark)
{
	unsigned i;

	mark->work = model->submitted;
	for (i = 0; i < model->n_streams; i++) {
		mark->end[i] = model->streams[i].submitted;
		if (mark->end_ns < model->streams[i].ready_ns)
			mark->end_ns = model->streams[i].ready_ns;
	}
}

bool
ca_model_mark_is_done(const struct ca_model *model, const struct mark *mark)
{
	unsigned i;

	for (i = 0; i < model->n_streams; i++)
		if (model->streams[i].finished < mark->end[i])
			return false;
	return model->finished >= mark->work;
}

void
ca_model_mark_finish(struct ca_model *model, const struct mark *mark)
{
	if (model->finished < mark->work)
		model->finished = mark->work;
	finish_up_to(model, mark->end);
}

void
ca_model_finish_all(struct ca_model *model)
{
	unsigned i;

	model->finished = model->submitted;
	for (i = 0; i < model->n_streams; i++)
		ca_model_await(model, model->streams[i].ready_ns);
	for (i = 0; i < model->n_streams; i++)
		stream_finish(model, &model->streams[i], UINT64_MAX);
}

/* ---- struct ca_driver's */

static bool
is_anothers(const struct stream *stream)
{
	return stream->private && !pthread_equal(stream->owner, pthread_self());
}

/* A call that names the stream begins. */
static int
begin_naming(struct ca_model *model, enum ca_model_function function, void *context, void *name,
	     struct stream **ret_stream)
{
	struct stream *stream = stream_get(model, name);
	int r = ca_model_begin_in(model, function, context);

	*ret_stream = stream;
	if (!r && model->capturing)
		r = -EBUSY;
	return !r && is_anothers(stream) ? -ENOTSUP : r;
}

/* All that was submitted to the stream so far, and what that comes after. */
static void
set_mark(const struct ca_model *model, const struct stream *stream, struct mark *mark)
{
	mark->stream = true;
	merge(mark->end, stream->after);
	mark->end[index_of(model, stream)] = stream->submitted;
	mark->end_ns = stream->ready_ns;
}

int
ca_model_stream_mark(void *self, void *context, void *name, ca_mark *ret_mark)
{
	struct ca_model *model = self;
	struct stream *stream;
	struct mark *mark;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_STREAM_MARK);
	r = begin_naming(model, CA_MODEL_STREAM_MARK, context, name, &stream);
	if (r)
		return r;
	mark = ca_model_mark_new(model, ret_mark);
	if (!mark)
		return -ENOMEM;
	set_mark(model, stream, mark);
	return 0;
}

static int
add_edge(struct ca_model *model, struct stream *stream, const struct mark *mark)
{
	struct edge *edge = ca_objects_get(&model->edges);

	if (!edge)
		return -ENOMEM;
	edge->at = stream->submitted;
	merge(edge->end, mark->end);
	edge->end[index_of(model, stream)] = 0; /* its own order */
	merge(stream->after, edge->end);
	if (stream->ready_ns < mark->end_ns)
		stream->ready_ns = mark->end_ns;
	edge->next = stream->edges;
	stream->edges = edge;
	return 0;
}

int
ca_model_stream_wait(void *self, void *context, void *name, ca_mark id)
{
	struct ca_model *model = self;
	struct mark *mark;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_STREAM_WAIT);
	mark = ca_model_mark_find(model, id);
	r = ca_model_begin_in(model, CA_MODEL_STREAM_WAIT, context);
	if (r)
		return r;
	if (!mark || !mark->stream) {
		model->sums.errors++;
		return INVALID_VALUE;
	}
	return add_edge(model, stream_get(model, name), mark);
}

int
ca_model_stream_query(void *self, void *context, void *name)
{
	struct ca_model *model = self;
	struct mark now = { 0 };
	struct stream *stream;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_STREAM_QUERY);
	r = begin_naming(model, CA_MODEL_STREAM_QUERY, context, name, &stream);
	if (r)
		return r;
	set_mark(model, stream, &now);
	return ca_model_mark_is_done(model, &now) ? 0 : -EAGAIN;
}

int
ca_model_stream_synchronize(void *self, void *context, void *name)
{
	struct ca_model *model = self;
	struct stream *stream;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_STREAM_SYNCHRONIZE);
	stream = stream_get(model, name);
	r = ca_model_begin_in(model, CA_MODEL_STREAM_SYNCHRONIZE, context);
	if (!r && is_anothers(stream))
		r = -ENOTSUP;
	if (!r)
		stream_drain(model, stream);
	return r;
}

/* ---- the test's side */

uint64_t
ca_model_stream_submit(struct ca_model *model, void *name)
{
	struct stream *stream;

	CA_MODEL_LOCKED(model);
	stream = stream_get(model, name);
	stream->submitted++;
	model->paused_ns = 0;
	if (model->config.finish_at_once)
		stream_finish(model, stream, stream->submitted);
	return stream->submitted;
}

/* All work submitted to the stream so far ends at `end_ns`. */
static int
ends(struct ca_model *model, struct stream *stream, uint64_t end_ns)
{
	struct work *work = ca_objects_get(&model->works);

	if (!work)
		return -ENOMEM;
	*work = (struct work){ .work = stream->submitted, .end_ns = end_ns };
	*(stream->works ? stream->works_end : &stream->works) = work;
	stream->works_end = &work->next;
	pass(model, stream);
	return 0;
}

int
ca_model_stream_run(struct ca_model *model, void *name, uint64_t lasts_ns)
{
	struct stream *stream;

	CA_MODEL_LOCKED(model);
	stream = stream_get(model, name);
	if (stream->ready_ns < model->now_ns)
		stream->ready_ns = model->now_ns;
	stream->ready_ns += lasts_ns;
	stream->submitted++;
	model->paused_ns = 0;
	return ends(model, stream, stream->ready_ns);
}

void
ca_model_stream_finish(struct ca_model *model, void *name, uint64_t work)
{
	CA_MODEL_LOCKED(model);
	if (work == UINT64_MAX)
		stream_drain(model, stream_get(model, name));
	else
		stream_finish(model, stream_get(model, name), work);
}

int
ca_model_stream_end(struct ca_model *model, void *name, uint64_t end_ns)
{
	CA_MODEL_LOCKED(model);
	return ends(model, stream_get(model, name), end_ns);
}

uint64_t
ca_model_stream_finished(struct ca_model *model, void *name)
{
	CA_MODEL_LOCKED(model);
	return stream_get(model, name)->finished;
}

uint64_t
ca_model_stream_submitted(struct ca_model *model, void *name)
{
	CA_MODEL_LOCKED(model);
	return stream_get(model, name)->submitted;
}

uint64_t
ca_model_stream_after(struct ca_model *model, void *name, void *before)
{
	struct stream *stream, *other;
	uint64_t work;

	CA_MODEL_LOCKED(model);
	stream = stream_get(model, name);
	other = stream_get(model, before);
	work = stream == other ? other->submitted : stream->after[index_of(model, other)];
	return work < other->finished ? other->finished : work;
}

void
ca_model_stream_set_private(struct ca_model *model, void *name)
{
	struct stream *stream;

	CA_MODEL_LOCKED(model);
	stream = stream_get(model, name);
	stream->private = true;
	stream->owner = pthread_self();
}
