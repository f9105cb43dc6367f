/* SPDX-License-Identifier: MIT */
/*
 * Captures and what comes of them. A graph has blocks of its own, which every launch writes; they
 * are freed, with the last launch perhaps still running, when no executable can run it any more.
 * The capturing streams are made for one capture each and do not block, and nobody else makes
 * context-wide calls meanwhile.
 */
#include "tests/stress/order/order.h"

#include "tests/stress/ranges.h"

static void
captured_kernel(struct worker *w, struct place *place, CUstream s, void *kernel, uint64_t *args,
		int n)
{
	void *params[5];

	for (int i = 0; i < n; i++)
		params[i] = &args[i];
	place_enter(place);
	OP(w, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void
captured_fill(struct worker *w, struct graph *g, CUstream s, struct block *b)
{
	size_t n = b->n_bytes / 4 < TOUCHED_MAX ? b->n_bytes / 4 : TOUCHED_MAX;
	uint64_t args[] = { b->ptr, n, (uint32_t)rng_next(&w->rng), spin_pick(w) };

	b->value = (uint32_t)args[2];
	b->n_words = n;
	captured_kernel(w, g->place, s, g->place->fill, args, 4);
}

static void
captured_copy(struct worker *w, struct graph *g, CUstream s, struct block *to,
	      const struct block *from)
{
	size_t room = to->n_bytes / 4, n = from->n_words < room ? from->n_words : room;
	uint64_t args[] = { to->ptr, from->ptr, n, spin_pick(w) };

	to->value = from->value;
	to->n_words = n;
	captured_kernel(w, g->place, s, g->place->copy, args, 4);
}

static void
nothing(void *data)
{
}

/* Fills the first block, copies it to the others on a second stream, and looks at it meanwhile. */
static void
capture_body(struct worker *w, struct graph *g, CUstream s, CUstream fork, CUevent event)
{
	struct block *b = g->blocks;
	uint64_t args[5];

	captured_fill(w, g, s, &b[0]);
	if (chance(w, 4))
		OP(w, calls.cuLaunchHostFunc(s, nothing, NULL));
	OP(w, cuEventRecord(event, s));
	OP(w, cuStreamWaitEvent(fork, event, 0));
	for (int i = 1; i < g->n_blocks; i++)
		captured_copy(w, g, fork, &b[i], &b[0]);
	args[0] = b->ptr;
	args[1] = b->n_words;
	args[2] = b->value;
	args[3] = g->place->errors;
	args[4] = 0;
	captured_kernel(w, g->place, s, g->place->check, args, 5);
	OP(w, cuEventRecord(event, fork));
	OP(w, cuStreamWaitEvent(s, event, 0));
}

/* What may be done while the worker itself captures. */
static void
window_moves(struct worker *w, struct place *place, bool relaxed)
{
	for (int n = (int)rng_below(&w->rng, 4); n >= 0; n--) {
		struct block *b = NULL;
		int slot = place_pick(w, place);

		if (relaxed && chance(w, 3))
			b = block_alloc(w, place, size_pick(w));
		else if (relaxed && w->n_blocks && chance(w, 6))
			block_free(w, (int)rng_below(&w->rng, w->n_blocks));
		if (!b && w->n_blocks)
			b = &w->blocks[rng_below(&w->rng, w->n_blocks)];
		if (!b || b->place != place || b->other)
			continue;
		if (chance(w, 4))
			io_any(w, b, slot);
		else
			move_touch(w, b, slot);
	}
}

static void
capture(struct worker *w, struct graph *g, bool window)
{
	struct place *place = g->place;
	bool relaxed = chance(w, 2);
	CUevent event = place->own[w->index][0];
	CUstream s, fork;

	place_enter(place);
	DO(cuStreamCreate(&s, 1));
	DO(cuStreamCreate(&fork, 1));
	pthread_rwlock_wrlock(&place->calm);
	OP(w, cuStreamBeginCapture_v2(s, relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
						 : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	w->window = true;
	if (window && chance(w, 2))
		window_moves(w, place, relaxed);
	capture_body(w, g, s, fork, event);
	if (window)
		window_moves(w, place, relaxed);
	place_enter(place);
	OP(w, cuStreamEndCapture(s, &g->graph));
	w->window = false;
	pthread_rwlock_unlock(&place->calm);
	DO(cuStreamDestroy_v2(s));
	DO(cuStreamDestroy_v2(fork));
	/* it was recorded in a capture: not to be waited for outside */
	submit_record(w, place, place_pick(w, place), event);
}

/* The graph, a clone of it, or another one that has it as a child. */
static void
instantiate(struct worker *w, struct graph *g)
{
	CUgraph graph = g->graph, other = NULL;
	CUgraphNode node;

	place_enter(g->place);
	if (chance(w, 3)) {
		OP(w, calls.cuGraphClone(&other, graph));
	} else if (chance(w, 3)) {
		OP(w, calls.cuGraphCreate(&other, 0));
		OP(w, calls.cuGraphAddChildGraphNode(&node, other, NULL, 0, graph));
	}
	if (other)
		OP(w, cuGraphDestroy(graph));
	if (other)
		g->graph = graph = other;
	if (chance(w, 2))
		OP(w, calls.cuGraphAddEventRecordNode(
			      &node, graph, NULL, 0,
			      g->place->shared[rng_below(&w->rng, EVENTS_MAX)]));
	OP(w, calls.cuGraphInstantiateWithFlags(&g->exec, graph, 0));
	if (chance(w, 2)) {
		OP(w, cuGraphDestroy(graph));
		g->graph = NULL;
	}
}

static void
launch(struct worker *w, struct graph *g)
{
	int slot = place_pick(w, g->place);
	CUstream s = slot == SLOT_PER_THREAD ? CU_STREAM_PER_THREAD : g->place->slots[slot].handle;

	for (int i = 0; i < g->n_blocks; i++)
		block_use(w, &g->blocks[i], slot, true);
	place_enter(g->place);
	OP(w, (chance(w, 2) && s ? calls.cuGraphLaunch_ptsz : calls.cuGraphLaunch)(g->exec, s));
	w->last = slot;
	g->launched++;
}

static void
graph_open(struct worker *w, struct place *place, bool window)
{
	struct graph *g = &w->graphs[w->n_graphs];

	*g = (struct graph){ .place = place };
	for (int n = 1 + (int)rng_below(&w->rng, GRAPH_BLOCKS); n > 0; n--) {
		struct block *b = block_alloc(w, place, size_pick(w));

		if (!b)
			break;
		g->blocks[g->n_blocks++] = *b;
		w->n_blocks--;
	}
	if (!g->n_blocks)
		return;
	w->n_graphs++;
	capture(w, g, window);
	instantiate(w, g);
	launch(w, g);
}

void
graph_close(struct worker *w, int i)
{
	struct graph g = w->graphs[i];

	place_enter(g.place);
	if (g.graph)
		OP(w, cuGraphDestroy(g.graph));
	OP(w, calls.cuGraphExecDestroy(g.exec));
	for (int n = 0; n < g.n_blocks; n++) {
		range_remove(g.blocks[n].ptr);
		OP(w, cuMemFree_v2(g.blocks[n].ptr));
		w->frees++;
	}
	w->graphs[i] = w->graphs[--w->n_graphs];
}

void
graph_window(struct worker *w, struct place *place)
{
	if (w->n_graphs == GRAPHS_MAX)
		graph_close(w, 0);
	if (!w->window && place->slots[SLOT_FIRST].open)
		graph_open(w, place, true);
}

void
graph_any(struct worker *w)
{
	struct graph *g;
	int i;

	if (!w->n_graphs || (w->n_graphs < GRAPHS_MAX && chance(w, 4))) {
		graph_open(w, place_any(w), chance(w, 2));
		return;
	}
	i = (int)rng_below(&w->rng, w->n_graphs);
	g = &w->graphs[i];
	if (chance(w, 6)) {
		graph_close(w, i);
	} else if (chance(w, 3)) {
		struct block *b = &g->blocks[rng_below(&w->rng, g->n_blocks)];

		block_check(w, b, place_pick(w, g->place), spin_pick(w));
	} else {
		launch(w, g);
	}
}
