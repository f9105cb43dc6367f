/* SPDX-License-Identifier: MIT */
/*
 * Stream capture.
 *
 * A capturing stream has a frontier: the nodes its next captured operation comes after. Submitting
 * appends a node and makes it the frontier; recording an event copies the frontier into the event;
 * waiting for such an event adds the event's nodes to the frontier of the waiting stream, which
 * joins the capture if it was in none. What is forbidden meanwhile spoils captures: they are marked
 * invalid, every further use gives 901, and ending gives 901 too. Sources: comments of
 * cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode, cuStreamIsCapturing and cuCtxRecordEvent
 * in cuda.h 13.0, and the programming guide's section on prohibited and unhandled operations.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static __thread struct {
	CUstreamCaptureMode mode;
	uint64_t generation;
} thread_mode;

/* ------------------------------------------------------------ forbidding --- */
int
sim_capture_spoil_locked(struct sim_capture *capture, int code)
{
	capture->invalid = true;
	return code;
}

static CUstreamCaptureMode *
mode_of_thread(void)
{
	if (thread_mode.generation != sim_g.generation)
		thread_mode.mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	thread_mode.generation = sim_g.generation;
	return &thread_mode.mode;
}

int
sim_capture_unsafe_locked(void)
{
	CUstreamCaptureMode mode = *mode_of_thread();
	int rc = 0;

	if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return 0;
	for (struct sim_capture *c = sim_g.captures; c; c = c->next) {
		bool mine = c->thread == sim_thread_id();

		if ((mine && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
		    (!mine && mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		     c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
			rc = sim_capture_spoil_locked(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return rc;
}

int
sim_capture_legacy_locked(struct sim_ctx *ctx)
{
	int rc = 0;

	if (!sim_g.captures)
		return 0;
	for (struct sim_stream *s = ctx->streams; s; s = s->next)
		if (s->capture && s->blocking)
			rc = sim_capture_spoil_locked(s->capture,
						      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	return rc;
}

int
sim_capture_ctx_locked(struct sim_ctx *ctx)
{
	int rc = 0;

	if (!sim_g.captures)
		return 0;
	for (struct sim_stream *s = ctx->streams; s; s = s->next)
		if (s->capture)
			rc = sim_capture_spoil_locked(s->capture,
						      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	for (struct sim_ctx *green = ctx->greens; green; green = green->next_green)
		if (sim_capture_ctx_locked(green))
			rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return rc;
}

static struct sim_capture *
capture_by_id(uint64_t id)
{
	struct sim_capture *c = sim_g.captures;

	while (c && c->id != id)
		c = c->next;
	return c;
}

int
sim_capture_event_use_locked(struct sim_event *event)
{
	struct sim_capture *capture;

	if (!event->capture_id)
		return 0;
	capture = capture_by_id(event->capture_id);
	if (capture)
		sim_capture_spoil_locked(capture, 0);
	return CUDA_ERROR_CAPTURED_EVENT;
}

/* --------------------------------------------------------------- leaving --- */
static void
stream_detach(struct sim_stream *stream)
{
	free(stream->frontier);
	free(stream->shown);
	stream->shown = NULL;
	stream->frontier = NULL;
	stream->n_frontier = 0;
	stream->capture = NULL;
}

/* Ends a capture for all its streams. Its graph is the caller's. */
static void
capture_close(struct sim_capture *capture)
{
	struct sim_capture **p = &sim_g.captures;

	for (size_t i = 0; i < sim_g.streams.n_used; i++) {
		struct sim_stream *s = (void *)(sim_g.streams.base + i * sim_g.streams.size);

		if (s->handle.life != SIM_DEAD && s->capture == capture)
			stream_detach(s);
	}
	while (*p != capture)
		p = &(*p)->next;
	*p = capture->next;
	free(capture);
}

static void
graph_drop(struct sim_graph *graph)
{
	sim_graph_free_nodes(graph);
	sim_slab_put(&sim_g.graphs, graph);
}

void
sim_capture_leave_locked(struct sim_stream *stream)
{
	struct sim_capture *capture = stream->capture;

	if (capture->origin != stream) {
		capture->invalid = true;
		stream_detach(stream);
		return;
	}
	if (!capture->into)
		graph_drop(capture->graph);
	capture_close(capture);
}

void
sim_captures_free_locked(void)
{
	while (sim_g.captures) {
		if (!sim_g.captures->into)
			graph_drop(sim_g.captures->graph);
		capture_close(sim_g.captures);
	}
	for (size_t i = 0; i < sim_g.graphs.n_used; i++) {
		struct sim_graph *graph = (void *)(sim_g.graphs.base + i * sim_g.graphs.size);

		if (graph->handle.life != SIM_DEAD)
			sim_graph_free_nodes(graph);
	}
}

/* ------------------------------------------------------------- recording --- */
static unsigned *
indices_copy(const unsigned *from, unsigned n)
{
	unsigned *to = sim_xcalloc(n, sizeof(*to));

	if (n)
		memcpy(to, from, n * sizeof(*to));
	return to;
}

int
sim_capture_record_locked(struct sim_stream *stream, const struct sim_work *work)
{
	struct sim_capture *capture = stream->capture;
	struct sim_graph *graph = capture->graph;
	unsigned n;

	if (capture->invalid) {
		free(work->staged);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	n = sim_graph_add_locked(graph, &(struct sim_node){
						.work = *work,
						.ctx = stream->ctx,
						.ctx_id = stream->ctx->id,
						.stream_id = stream->id,
						.deps = stream->frontier,
						.n_deps = stream->n_frontier,
						.chain = stream->chain,
					});
	stream->frontier = indices_copy(&n, 1);
	stream->n_frontier = 1;
	return 0;
}

int
sim_capture_event_record_locked(struct sim_stream *stream, struct sim_event *event)
{
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	sim_event_clear_locked(event);
	free(event->nodes);
	event->nodes = indices_copy(stream->frontier, stream->n_frontier);
	event->n_nodes = stream->n_frontier;
	event->capture_id = stream->capture->id;
	return 0;
}

static void
frontier_add(struct sim_stream *stream, unsigned node)
{
	for (unsigned i = 0; i < stream->n_frontier; i++)
		if (stream->frontier[i] == node)
			return;
	stream->frontier = sim_xrealloc(stream->frontier, stream->n_frontier + 1, sizeof(node));
	stream->frontier[stream->n_frontier++] = node;
}

/* A stream that captures waits for an event recorded outside, or in another capture. */
static int
wait_across(struct sim_capture *mine, struct sim_capture *other, const struct sim_event *event)
{
	if (other) {
		other->invalid = true;
		return sim_capture_spoil_locked(mine, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (!event->op && !event->capture_id)
		return 0;
	return sim_capture_spoil_locked(mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

int
sim_capture_event_wait_locked(struct sim_stream *stream, struct sim_event *event)
{
	struct sim_capture *from = event->capture_id ? capture_by_id(event->capture_id) : NULL;

	if (!stream->capture && !event->capture_id)
		return -EAGAIN;
	if ((stream->capture && stream->capture->invalid) || (from && from->invalid))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->capture && stream->capture != from)
		return wait_across(stream->capture, from, event);
	if (!from)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (stream->is_legacy)
		return sim_capture_spoil_locked(from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (!stream->capture) {
		stream->capture = from;
		stream->chain = from->graph->n_chains++;
	}
	for (unsigned i = 0; i < event->n_nodes; i++)
		frontier_add(stream, event->nodes[i]);
	return 0;
}

/* ------------------------------------------------------------ begin, end --- */
/* `into`: NULL for a new graph. */
static int
begin_locked(struct sim_stream *stream, CUstreamCaptureMode mode, struct sim_graph *into)
{
	struct sim_capture *capture;

	if (stream->is_legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = sim_xcalloc(1, sizeof(*capture));
	capture->into = into;
	capture->graph = into ? into : sim_slab_get(&sim_g.graphs);
	if (!capture->graph) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->id = ++sim_g.next_capture;
	capture->mode = mode;
	capture->thread = sim_thread_id();
	capture->origin = stream;
	capture->n_before = capture->graph->n_nodes;
	capture->next = sim_g.captures;
	sim_g.captures = capture;
	stream->capture = capture;
	stream->chain = capture->graph->n_chains++;
	return 0;
}

int
sim_capture_begin(CUstream handle, CUstreamCaptureMode mode)
{
	struct sim_stream *stream;
	int rc;

	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		rc = begin_locked(stream, mode, NULL);
	sim_unlock();
	return rc;
}

int
sim_capture_begin_into(CUstream handle, CUgraph graph_handle, const CUgraphNode *nodes, size_t n,
		       CUstreamCaptureMode mode)
{
	struct sim_stream *stream;
	struct sim_graph *graph;
	unsigned *deps = NULL;
	int rc = CUDA_ERROR_INVALID_VALUE;

	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return rc;
	sim_lock();
	graph = sim_graph_find_locked(graph_handle);
	for (struct sim_capture *c = sim_g.captures; c; c = c->next)
		if (c->graph == graph)
			graph = NULL;
	if (graph)
		deps = sim_node_indices_locked(graph, nodes, n);
	if (!deps)
		goto out;
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		rc = begin_locked(stream, mode, graph);
	if (rc) {
		free(deps);
		goto out;
	}
	stream->frontier = deps;
	stream->n_frontier = (unsigned)n;
out:
	sim_unlock();
	return rc;
}

int
sim_capture_look(CUstream handle, CUgraph *ret_graph, const CUgraphNode **ret_nodes, size_t *ret_n)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && (!stream->capture || stream->capture->invalid))
		rc = CUDA_ERROR_ILLEGAL_STATE;
	if (rc)
		goto out;
	free(stream->shown);
	stream->shown = sim_xcalloc(stream->n_frontier, sizeof(CUgraphNode));
	for (unsigned i = 0; i < stream->n_frontier; i++)
		stream->shown[i] =
			sim_node_handle_locked(stream->capture->graph, stream->frontier[i]);
	*ret_graph = (CUgraph)(void *)stream->capture->graph;
	*ret_nodes = stream->shown;
	*ret_n = stream->n_frontier;
out:
	sim_unlock();
	return rc;
}

int
sim_capture_update(CUstream handle, const CUgraphNode *nodes, size_t n, bool replace)
{
	struct sim_stream *stream;
	unsigned *deps;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && !stream->capture)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	if (!rc && stream->capture->invalid)
		rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (rc)
		goto out;
	rc = CUDA_ERROR_INVALID_VALUE;
	deps = sim_node_indices_locked(stream->capture->graph, nodes, n);
	if (!deps)
		goto out;
	rc = 0;
	/* What is no longer in the set need not be joined. */
	if (replace) {
		stream->capture->edited = true;
		stream->n_frontier = 0;
	}
	for (size_t i = 0; i < n; i++)
		frontier_add(stream, deps[i]);
	free(deps);
out:
	sim_unlock();
	return rc;
}

/* Marks all ancestors of the nodes; deps are always older, so one pass backwards does. */
static bool *
ancestors(const struct sim_graph *graph, const unsigned *nodes, unsigned n)
{
	bool *in = sim_xcalloc(graph->n_nodes, sizeof(*in));

	for (unsigned i = 0; i < n; i++)
		in[nodes[i]] = true;
	for (unsigned i = graph->n_nodes; i-- > 0;)
		for (unsigned d = 0; in[i] && d < graph->node[i].n_deps; d++)
			in[graph->node[i].deps[d]] = true;
	return in;
}

static bool
all_joined(const struct sim_capture *capture)
{
	bool *in =
		ancestors(capture->graph, capture->origin->frontier, capture->origin->n_frontier);
	bool ok = true;

	for (unsigned i = capture->n_before; ok && i < capture->graph->n_nodes; i++)
		ok = in[i] || !capture->graph->node[i].stream_id;
	free(in);
	return ok;
}

int
sim_capture_end(CUstream handle, CUgraph *ret_graph)
{
	struct sim_stream *stream;
	struct sim_capture *capture;
	struct sim_graph *graph;
	bool into;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (rc)
		goto out;
	capture = stream->capture;
	if (!capture)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	else if (capture->origin != stream)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
		 capture->thread != sim_thread_id())
		rc = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (rc)
		goto out;
	graph = capture->graph;
	if (capture->invalid)
		rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!capture->edited && !all_joined(capture))
		rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	into = capture->into;
	capture_close(capture);
	if (rc && !into)
		graph_drop(graph);
	if (!rc)
		*ret_graph = (CUgraph)(void *)graph;
out:
	sim_unlock();
	return rc;
}

/* ------------------------------------------------------------- questions --- */
int
sim_capture_info(CUstream handle, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (rc)
		goto out;
	for (struct sim_stream *s = stream->is_legacy ? stream->ctx->streams : NULL; s; s = s->next)
		if (s->capture && s->blocking)
			rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (rc)
		goto out;
	*ret_status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
		      : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (ret_id && *ret_status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*ret_id = stream->capture->id;
out:
	sim_unlock();
	return rc;
}

int
sim_capture_exchange_mode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old;

	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	old = *mode_of_thread();
	thread_mode.mode = *mode;
	sim_unlock();
	*mode = old;
	return 0;
}
