/* SPDX-License-Identifier: MIT */
/* Steps that a program takes now and then. */
#include <errno.h>
#include <string.h>

#include "tests/sequence/world.h"

/* ---- captures and graphs */

static void
capture_begin(struct world *w)
{
	if (w->n_graphs == GRAPHS_MAX)
		return;
	ca_order_mark_before_capture(w->heap);
	w->capture_serial = ca_graph_serial(w->heap);
	atomic_store(&w->graphs[w->n_graphs].gone, false);
	w->graphs[w->n_graphs++].state = GRAPH_CAPTURING;
	w->capturing = true;
	w->prohibited = pick(w, 4) != 0;
	if (w->prohibited)
		ca_model_set_capturing(w->model, true);
	else
		ca_model_set_capturing_relaxed(w->model);
	w->totals->captures++;
}

/* With a graph whose end we shall learn of, with one of which we shall not, or without. */
void
capture_end(struct world *w)
{
	struct graph *graph = &w->graphs[w->n_graphs - 1];
	uint64_t last = ca_graph_serial(w->heap);

	switch (pick(w, 3)) {
	case 0:
		graph->state = GRAPH_FREE;
		break;
	case 1:
		graph->state = GRAPH_LOST;
		ca_graph_retire(w->heap, w->capture_serial, last);
		break;
	default:
		graph->state = GRAPH_HELD;
		w->totals->graphs++;
		require(!ca_graph_hold(w->heap, w->capture_serial, last, &graph->gone),
			"no record of a graph");
	}
	ca_model_set_capturing(w->model, w->capturing = w->prohibited = false);
}

void
step_capture(struct world *w)
{
	struct graph *graph;

	if (w->capturing) {
		capture_end(w);
	} else if (w->n_graphs && pick(w, 2)) {
		graph = &w->graphs[pick(w, w->n_graphs)];
		if (graph->state == GRAPH_HELD) {
			graph->state = GRAPH_GONE;
			atomic_store(&graph->gone, true);
		}
	} else {
		capture_begin(w);
	}
}

/* ---- contexts */

static void
charges_of_space_died(struct world *w, unsigned space)
{
	struct ca_space *found = NULL;
	unsigned i;

	for (i = 0; i < w->n_charges;)
		if (w->charges[i].space == space) {
			require(!ca_charge_drop(w->heap, CA_CHARGE_ADDRESS, w->charges[i].handle,
						&found),
				"a charge outlives its context");
			w->charges[i] = w->charges[--w->n_charges];
		} else {
			i++;
		}
}

void
step_kill(struct world *w)
{
	unsigned space = (unsigned)pick(w, SPACES);

	if (w->capturing)
		return;
	streams_finish_all(w);
	reference_forget_space(w, space);
	ca_model_context_destroy(w->model, w->contexts[space]);
	ca_space_kill(w->spaces[space]);
	streams_of_space_died(w, space);
	charges_of_space_died(w, space);
	w->contexts[space] = (void *)++w->last_context;
	require(!ca_space_create(w->heap, w->contexts[space], 0, &w->spaces[space]), "no space");
	w->totals->kills++;
}

/* ---- limits */

void
step_charge(struct world *w)
{
	struct ca_space *space = NULL;
	uint64_t bytes = 1 + pick(w, 30 * MIB);
	unsigned at = (unsigned)pick(w, SPACES);

	if (w->n_charges && pick(w, 2)) {
		struct charge *last = &w->charges[--w->n_charges];
		uint64_t dropped = ca_charge_drop(w->heap, CA_CHARGE_ADDRESS, last->handle, &space);

		require(dropped == last->bytes ||
				(!dropped && !w->config.limit.bytes && !w->config.limit.share),
			"another charge is dropped than was kept");
		return;
	}
	if (w->n_charges == CHARGES_MAX || !ca_charge(w->spaces[at], bytes))
		return;
	if (pick(w, 8) == 0) {
		ca_charge_abort(w->spaces[at], bytes);
		return;
	}
	ca_charge_keep(w->spaces[at], CA_CHARGE_ADDRESS, ++w->last_handle, bytes);
	w->charges[w->n_charges++] = (struct charge){ w->last_handle, bytes, at };
}

/* ---- all else */

static void
retire(struct world *w)
{
	const struct piece *piece;

	if (!w->n_live)
		return;
	piece = &w->live[pick(w, w->n_live)];
	require(!ca_retire(w->heap, piece->address + pick(w, piece->size)),
		"a block's segment is not found");
	w->retired = true;
	reference_retire(w, piece->address);
}

static void
give_away(struct world *w)
{
	static const uint64_t sizes[] = { 1, 512, 64 * KIB, 3 * MIB, 64 * MIB };
	const struct piece *piece;
	uint64_t size, end;
	int r;

	if (!w->n_live)
		return;
	piece = &w->live[pick(w, w->n_live)];
	size = pick(w, 2) ? piece->size : sizes[pick(w, 5)];
	end = reference_segment_end(w, piece->address);
	if (!end) /* mapped: how much is behind it is not known */
		end = piece->address + piece->size;
	if (size > end - piece->address)
		size = end - piece->address;
	r = ca_register(w->heap, piece->address, size);
	require(!r || w->failing || (r == -EBUSY && w->capturing), "a block is not settled");
	reference_registered(w, piece->address, size, !r);
}

static void
trim(struct world *w)
{
	uint64_t keep = pick(w, 64) * MIB, before = reference_stats(w).reserved_bytes.current;
	uint64_t given = ca_trim(w->heap, keep);

	require(before - given == reference_stats(w).reserved_bytes.current,
		"a trim says other than it did");
	require(!w->capturing || !given, "a trim in a capture");
}

/* Not where the driver's own barriers would meet it. */
static void
plan_fault(struct world *w)
{
	static const int codes[] = { 700, CA_DRIVER_OUT_OF_MEMORY, -EBUSY, -ENOMEM };

	unsigned i;

	for (i = 0; i < w->n_streams; i++)
		if (w->streams[i].stream && w->streams[i].kind == CA_STREAM_LEGACY)
			return;
	if (w->failing || !w->options->faults)
		return;
	w->failing = true;
	ca_model_fail(w->model, (enum ca_model_function)pick(w, CA_MODEL_FUNCTIONS),
		      1 + (unsigned)pick(w, 20), false, codes[pick(w, 4)]);
}

void
step_rare(struct world *w)
{
	unsigned space = (unsigned)pick(w, SPACES);

	switch (pick(w, w->calm ? 16 : 9)) {
	case 0:
		retire(w);
		break;
	case 1:
		give_away(w);
		break;
	case 2:
		trim(w);
		break;
	case 3:
		ca_reclaim(w->spaces[space], (1 + pick(w, 64)) * MIB, NULL);
		break;
	case 4:
		ca_auto_trim(w->spaces[space], pick(w, 2));
		break;
	case 5:
		ca_model_set_clock(w->model, w->real.clock_ns(w->model) + pick(w, 256) * 1000000);
		break;
	case 6:
		plan_fault(w);
		break;
	case 7:
		ca_note_other_alloc(w->spaces[space]);
		ca_note_fill(w->spaces[space], pick(w, 2));
		break;
	case 8:
		step_bad_free(w);
		if (!pick(w, 32)) /* the rest of the sequence is without mapped memory */
			ca_expand_end(w->heap);
		break;
	default:
		break;
	}
}
