/* SPDX-License-Identifier: MIT */
/* A world begins, takes its steps in the threads whose turn it is, and gives everything back. */
#include "tests/sequence/sequence.h"

#include <string.h>

#include "allocator/core/types.h"
#include "tests/sequence/actors.h"
#include "tests/sequence/keys.h"
#include "tests/sequence/world.h"

/* Of 256. The rest: nothing. From CALM on it is what makes the tracker of order forget, or wait:
 * half of the worlds do without it, and get further in all else. */
enum { CALM = 240 };
static const struct {
	unsigned below;
	void (*step)(struct world *w);
} steps[] = {
	{ 84, step_alloc },   { 154, step_free },    { 158, step_free_async },
	{ 216, step_launch }, { 217, step_work },    { 218, step_synchronize },
	{ 230, step_event },  { 234, step_open },    { 235, step_close },
	{ 239, step_charge }, { CALM, step_rare },   { 242, step_foreign },
	{ 246, step_adopt },  { 249, step_capture }, { 250, step_kill },
	{ 254, step_rare },
};

static void
step(struct world *w)
{
	unsigned dice = (unsigned)pick(w, w->calm ? CALM : 256), i;

	/* captures are short, or else they are all there is */
	if (w->capturing && pick(w, 16) == 0)
		capture_end(w);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (dice < steps[i].below) {
			steps[i].step(w);
			return;
		}
}

/* Until it is another's turn. */
static void
turn(void *arg)
{
	struct world *w = arg;
	unsigned next = w->actor;

	while (next == w->actor && source_step(&w->source)) {
		w->queries = 0;
		step(w);
		w->totals->steps++;
		if (++w->step % w->options->check_every == 0)
			reference_check(w);
		if (w->actors > 1 && pick(w, 8) == 0)
			next = (unsigned)pick(w, w->actors);
	}
	w->totals->switches += next != w->actor;
	w->actor = next;
}

/* What this thread submitted to was of another heap. */
static void
forget_heap(void *arg)
{
	ca_order_last_stream = NULL;
}

static void
begin(struct world *w)
{
	const struct sequence_options *options = w->options;
	unsigned odd = (unsigned)pick(w, 256), i;

	w->calm = options->eager || pick(w, 2);
	sequence_keys(&w->source, options->keys, &w->config, w->conf);
	if (options->mapped)
		w->config.expandable_segments = CA_EXPANDABLE_ON;
	if (pick(w, 2)) /* exposing begins beyond it */
		w->config.reuse_slack_bytes = pick(w, 3) * 16 * MIB;
	if (options->eager)
		w->config.reuse_slack_bytes = 0;
	w->pretend.capacity = (150 + pick(w, 2) * pick(w, 2048)) * MIB;
	w->pretend.granularity = odd & 1 ? 2 * MIB : 512;
	w->pretend.alignment = odd & 2 ? 2 * MIB : 512;
	w->pretend.no_marks = (odd & 0x1c) == 0x1c;
	/* nobody sleeps, and only a long wait finds work done */
	w->pretend.work_ns = (uint64_t)5 * 1000 * 1000 * 1000;
	w->unseen = (odd & 0xe0) == 0xe0;
	w->actors = options->actors ? options->actors
		    : pick(w, 2)    ? 1
				    : 1 + (unsigned)pick(w, ACTORS_MAX);
	for (i = 0; i < w->actors; i++)
		actors_do(i, forget_heap, w);
	require(!ca_model_create(&w->pretend, &w->model), "no model");
	reference_driver(w);
	require(!ca_heap_create(&w->config, &w->driver, &w->heap), "no heap");
	if (w->unseen)
		ca_order_finished_only(w->heap, NULL, CA_REASON_UNSEEN_CALL);
	for (i = 0; i < SPACES; i++) {
		w->contexts[i] = (void *)++w->last_context;
		require(!ca_space_create(w->heap, w->contexts[i], 0, &w->spaces[i]), "no space");
	}
	w->counting = w->config.disable == CA_DISABLE_COUNT;
	w->finished_only = w->unseen || w->counting || w->config.reuse_finished || w->config.zero ||
			   w->config.poison;
	w->shares = w->config.under_framework == CA_UNDER_PASS;
	if (w->shares)
		ca_heap_share(w->heap);
	w->failing = options->fault_in != 0;
	ca_model_fail(w->model, options->fault, options->fault_in, options->fault_for_ever,
		      options->fault_code);
}

/* Everything can be given back, whatever happened. */
static void
give_back(struct world *w)
{
	struct ca_space *space = NULL;
	unsigned i;

	w->totals->failed = ca_model_failed(w->model);
	ca_model_fail(w->model, 0, 0, false, 0);
	if (w->capturing)
		capture_end(w);
	for (i = 0; i < w->n_graphs; i++) {
		atomic_store(&w->graphs[i].gone, true);
		w->graphs[i].state = GRAPH_GONE;
	}
	while (w->n_live) {
		unsigned live = w->n_live;

		step_free_at(w, live - 1);
		require(w->n_live < live, "a block cannot be freed");
	}
	while (w->n_charges)
		ca_charge_drop(w->heap, CA_CHARGE_ADDRESS, w->charges[--w->n_charges].handle,
			       &space);
	streams_finish_all(w);
	reference_check(w);
}

/* Only a thread itself can ask its own per-thread stream. */
static void
trim_as_actor(void *arg)
{
	struct world *w = arg;
	unsigned i;

	for (i = 0; i < SPACES; i++)
		ca_auto_trim(w->spaces[i], true);
}

static void
check_nothing_left(struct world *w)
{
	struct ca_model_sums sums;
	unsigned i;

	if (w->config.max_cached_bytes != UINT64_MAX && !w->config.min_reserve_bytes &&
	    !w->failing && !w->counting) {
		for (i = 0; i < w->actors; i++)
			actors_do(i, trim_as_actor, w);
		require(reference_stats(w).reserved_bytes.current <= w->config.max_cached_bytes,
			"more is cached than max_cached_mb");
	}
	ca_trim(w->heap, 0);
	for (i = 0; i < SPACES; i++)
		while (ca_reclaim(w->spaces[i], GIB, NULL))
			;
	reference_check(w);
	for (i = 0; w->failing && i < SPACES; i++) {
		/* what is mapped in a context that answers with errors goes at its end */
		if (!w->spaces[i]->poisoned)
			continue;
		ca_model_context_destroy(w->model, w->contexts[i]);
		ca_space_kill(w->spaces[i]);
	}
	ca_model_sums(w->model, &sums);
	require(!sums.held_bytes, "memory is lost");
}

static void
end(struct world *w)
{
	struct ca_model_sums sums;
	unsigned i;

	give_back(w);
	check_nothing_left(w);
	for (i = 0; i < SPACES; i++) {
		ca_model_context_destroy(w->model, w->contexts[i]);
		ca_space_kill(w->spaces[i]);
		streams_of_space_died(w, i);
	}
	ca_model_sums(w->model, &sums);
	require(!sums.marks, "a mark was not dropped");
	ca_heap_destroy(w->heap);
	ca_model_destroy(w->model);
}

void
sequence_run(struct source source, const struct sequence_options *options,
	     struct sequence_totals *totals)
{
	struct world *w = &sequence_world;

	memset(w, 0, sizeof(*w));
	w->source = source;
	w->options = options;
	w->totals = totals;
	begin(w);
	while (w->source.left)
		actors_do(w->actor, turn, w);
	w->actor = 0;
	end(w);
}

void
sequence_stop(void)
{
	actors_stop();
}
