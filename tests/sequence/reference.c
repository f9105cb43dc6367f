/* SPDX-License-Identifier: MIT */
/*
 * The naive reference. It knows every range that is live, and of every range that was freed the
 * work that was submitted to touch it. What must hold:
 *
 * - what is handed out overlaps nothing live, nothing retired, nothing that a graph may run on, and
 *   in a capture that prohibits allocations nothing that was ever handed out;
 * - work on it that is unfinished is of streams of its own space (it was exposed), and there is
 * none where exposing is forbidden;
 * - a submission that touches memory comes after all unfinished work on it from before it was
 *   handed out: by the program's own order or by the waits that were put in;
 * - nothing unfinished is handed out of a range that was given to somebody who is no stream;
 * - no memory that is live goes back to the driver;
 * - the figures are what the lists add up to.
 */
#include "tests/sequence/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world sequence_world;

void
broken(const char *format, ...)
{
	const struct world *w = &sequence_world;
	va_list args;

	fprintf(stderr,
		"sequence: step %llu, actor %u, CACHEALLOC_CONF=%s: ", (unsigned long long)w->step,
		w->actor, w->conf);
	va_start(args, format);
	vfprintf(stderr, format, args); // NOLINT(clang-analyzer-valist.Uninitialized): it is
	va_end(args);
	fputc('\n', stderr);
	abort();
}

void
require(bool condition, const char *claim)
{
	if (!condition)
		broken("%s", claim);
}

static bool
overlap(const struct piece *a, uint64_t address, uint64_t size)
{
	return a->address < address + size && address < a->address + a->size;
}

/* ---- segments, as the driver sees them */

static void
segment_add(struct world *w, void *context, uint64_t size, uint64_t address)
{
	require(w->n_segments < SEGMENTS_MAX, "more segments than the reference has room for");
	w->segments[w->n_segments++] = (struct segment){ address, size, context, false };
}

static int
eyes_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	struct world *w = &sequence_world;
	int r = w->real.segment_take(self, context, size, ret_address);

	if (!r)
		segment_add(w, context, size, *ret_address);
	return r;
}

static int
eyes_managed(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	struct world *w = &sequence_world;
	int r = w->real.managed_take(self, context, size, ret_address);

	if (!r)
		segment_add(w, context, size, *ret_address);
	return r;
}

static bool
is_held(struct world *w, const struct piece *piece)
{
	enum graph_state state = piece->graph ? w->graphs[piece->graph - 1].state : GRAPH_FREE;

	return state == GRAPH_CAPTURING || state == GRAPH_HELD || state == GRAPH_LOST;
}

static void
ranges_gone(struct world *w, const struct segment *segment)
{
	unsigned i;

	for (i = 0; i < w->n_registered;)
		if (w->registered[i].address - segment->address < segment->size)
			w->registered[i] = w->registered[--w->n_registered];
		else
			i++;
}

static void
segment_gone(struct world *w, struct segment *segment)
{
	unsigned i;

	for (i = 0; i < w->n_live; i++)
		if (overlap(&w->live[i], segment->address, segment->size)) {
			require(&w->live[i] == w->going, "live memory goes back to the driver");
			w->going = NULL;
		}
	for (i = 0; i < w->n_freed;) {
		if (!overlap(&w->freed[i], segment->address, segment->size)) {
			i++;
			continue;
		}
		w->freed[i] = w->freed[--w->n_freed];
	}
	ranges_gone(w, segment);
	*segment = w->segments[--w->n_segments];
}

static int
eyes_return(void *self, void *context, uint64_t address)
{
	struct world *w = &sequence_world;
	int r = w->real.segment_return(self, context, address);
	unsigned i;

	for (i = 0; !r && i < w->n_segments; i++)
		if (w->segments[i].address == address) {
			segment_gone(w, &w->segments[i]);
			break;
		}
	return r;
}

enum { QUERIES_MAX = 6 };

/* Whoever asks again and again finds the device gets on. */
static int
eyes_query(void *self, ca_mark mark)
{
	struct world *w = &sequence_world;

	if (++w->queries > QUERIES_MAX)
		streams_finish_all(w);
	return w->real.mark_query(self, mark);
}

void
reference_driver(struct world *w)
{
	ca_model_driver(w->model, &w->real);
	w->driver = w->real;
	w->driver.segment_take = eyes_take;
	w->driver.managed_take = eyes_managed;
	w->driver.segment_return = eyes_return;
	w->driver.mark_query = eyes_query;
	reference_map_driver(w);
}

void
reference_retire(struct world *w, uint64_t address)
{
	unsigned i;

	for (i = 0; i < w->n_segments; i++)
		if (address - w->segments[i].address < w->segments[i].size)
			w->segments[i].retired = true;
}

/* ---- work on memory */

static bool
is_unfinished(struct world *w, const struct piece *piece, unsigned stream)
{
	return piece->work[stream] > ca_model_stream_finished(w->model, name_of(stream));
}

bool
reference_is_idle(struct world *w, const struct piece *piece)
{
	unsigned i;

	for (i = 0; i < w->n_streams; i++)
		if (piece->work[i] && is_unfinished(w, piece, i))
			return false;
	return piece->foreign <= ca_model_finished(w->model);
}

bool
reference_is_idle_at_home(struct world *w, const struct piece *piece)
{
	unsigned i;

	for (i = 0; i < w->n_streams; i++)
		if (w->streams[i].space == piece->space && piece->work[i] &&
		    is_unfinished(w, piece, i))
			return false;
	return true;
}

/* Only captures care for what is idle: a list that grows long may forget it. */
static void
forget_idle(struct world *w)
{
	unsigned i;

	for (i = 0; i < w->n_freed;)
		if (reference_is_idle(w, &w->freed[i]) && !is_held(w, &w->freed[i]))
			w->freed[i] = w->freed[--w->n_freed];
		else
			i++;
}

void
reference_make_room(struct world *w)
{
	if (w->n_freed > FREED_MAX / 2)
		forget_idle(w);
	if (w->n_freed > FREED_MAX / 4 * 3) {
		streams_finish_all(w);
		forget_idle(w);
	}
}

void
reference_freed(struct world *w, unsigned live)
{
	if (!w->going) { /* it went to the driver at once */
		w->live[live] = w->live[--w->n_live];
		return;
	}
	w->going = NULL;
	reference_make_room(w);
	require(w->n_freed < FREED_MAX, "more freed pieces than the reference has room for");
	w->freed[w->n_freed++] = w->live[live];
	w->live[live] = w->live[--w->n_live];
}

void
reference_forget_space(struct world *w, unsigned space)
{
	unsigned i;

	for (i = 0; i < w->n_live;)
		if (w->live[i].space == space)
			w->live[i] = w->live[--w->n_live];
		else
			i++;
	for (i = 0; i < w->n_freed;)
		if (w->freed[i].space == space)
			w->freed[i] = w->freed[--w->n_freed];
		else
			i++;
	for (i = 0; i < w->n_segments;)
		if (w->segments[i].context == w->contexts[space]) {
			ranges_gone(w, &w->segments[i]);
			w->segments[i] = w->segments[--w->n_segments];
		} else {
			i++;
		}
}

/* Whatever is submitted to another of the users comes after what stream `j` did to the memory. */
static bool
is_stood_for(struct world *w, const uint64_t *unfinished, unsigned j)
{
	unsigned k;

	for (k = 0; k < w->n_streams; k++)
		if (k != j && unfinished[k] &&
		    ca_model_stream_after(w->model, name_of(k), name_of(j)) >= unfinished[j])
			return true;
	return false;
}

static bool
is_registered(struct world *w, const struct piece *piece)
{
	unsigned i;

	for (i = 0; i < w->n_registered; i++)
		if (overlap(piece, w->registered[i].address, w->registered[i].size))
			return true;
	return false;
}

static void
check_exposed(struct world *w, const struct piece *piece, const uint64_t *unfinished)
{
	unsigned j, users = 0;

	for (j = 0; j < w->n_streams; j++) {
		if (!unfinished[j])
			continue;
		if (w->streams[j].space != piece->space)
			broken("handed out while another context's stream uses it");
		users += !is_stood_for(w, unfinished, j);
	}
	w->totals->exposed += users != 0;
	w->totals->several += users > 1;
	require(!users || !w->finished_only, "unfinished memory handed out, which was forbidden");
	require(!users || !w->capturing, "unfinished memory handed out in a capture");
	require(!users || !is_registered(w, piece), "registered memory handed out unfinished");
	require(!users || !piece->straight, "unfinished memory taken from the driver");
}

void
reference_handed_out(struct world *w, const struct piece *piece)
{
	uint64_t unfinished[STREAMS_MAX] = { 0 };
	unsigned i, j;

	for (i = 0; i < w->n_live; i++)
		require(!overlap(&w->live[i], piece->address, piece->size),
			"two live blocks overlap");
	for (i = 0; i < w->n_segments; i++)
		require(!w->segments[i].retired ||
				piece->address - w->segments[i].address >= w->segments[i].size,
			"handed out from a retired segment");
	for (i = 0; i < w->n_freed; i++) {
		const struct piece *freed = &w->freed[i];

		if (!overlap(freed, piece->address, piece->size))
			continue;
		w->totals->reused++;
		require(!is_held(w, freed), "memory of a graph handed out");
		require(!w->prohibited, "memory handed out for a second time in a capture");
		require(freed->foreign <= ca_model_finished(w->model),
			"handed out while another context's work uses it");
		for (j = 0; j < w->n_streams; j++)
			if (unfinished[j] < freed->work[j] && is_unfinished(w, freed, j))
				unfinished[j] = freed->work[j];
	}
	check_exposed(w, piece, unfinished);
	w->live[w->n_live++] = *piece;
}

void
reference_submission(struct world *w, const struct piece *piece, unsigned stream)
{
	unsigned i, j;

	for (i = 0; i < w->n_freed; i++) {
		const struct piece *freed = &w->freed[i];

		if (!overlap(freed, piece->address, piece->size))
			continue;
		for (j = 0; j < w->n_streams; j++)
			if (freed->work[j] && is_unfinished(w, freed, j) &&
			    ca_model_stream_after(w->model, name_of(stream), name_of(j)) <
				    freed->work[j])
				broken("a submission to stream %u does not come after piece %llu "
				       "of stream %u",
				       stream, (unsigned long long)freed->work[j], j);
	}
}

static void
check_settled(struct world *w, const struct piece *piece)
{
	unsigned i;

	for (i = 0; i < w->n_freed; i++)
		if (overlap(&w->freed[i], piece->address, piece->size))
			require(reference_is_idle(w, &w->freed[i]),
				"settled while earlier work still uses it");
}

void
reference_registered(struct world *w, uint64_t address, uint64_t size, bool settled)
{
	unsigned i;

	for (i = 0; settled && i < w->n_live; i++)
		if (overlap(&w->live[i], address, size))
			check_settled(w, &w->live[i]);
	if (w->n_registered == REGISTERED_MAX)
		w->registered[pick(w, REGISTERED_MAX)] = (struct range){ address, size };
	else
		w->registered[w->n_registered++] = (struct range){ address, size };
}

uint64_t
reference_segment_end(struct world *w, uint64_t address)
{
	unsigned i;

	for (i = 0; i < w->n_segments; i++)
		if (address - w->segments[i].address < w->segments[i].size)
			return w->segments[i].address + w->segments[i].size;
	return 0;
}

/* ---- figures */

struct ca_stats
reference_stats(struct world *w)
{
	struct ca_stats stats;

	ca_heap_stats(w->heap, 0, &stats);
	return stats;
}

static void
check_blocks(struct world *w)
{
	struct ca_block_info info;
	unsigned i;

	for (i = 0; i < w->n_live; i++) {
		const struct piece *piece = &w->live[i];

		require(!ca_lookup(w->heap, piece->address + piece->requested - 1, &info) &&
				info.live && info.address == piece->address &&
				info.block_bytes == piece->size &&
				info.requested_bytes == piece->requested &&
				info.space == w->spaces[piece->space],
			"a live block is not what it was");
	}
}

void
reference_check(struct world *w)
{
	struct ca_stats stats = reference_stats(w);
	struct ca_model_sums sums;
	uint64_t requested = 0, allocated = 0;
	char reason[128] = "";
	unsigned i;

	ca_model_sums(w->model, &sums);
	if (ca_heap_check(w->heap, reason, sizeof(reason)))
		broken("invariant: %s", reason);
	check_blocks(w);
	for (i = 0; i < w->n_live; i++) {
		requested += w->live[i].requested;
		allocated += w->live[i].size;
	}
	require(!sums.errors, "the driver was misused");
	require(stats.reserved_bytes.current == sums.held_bytes,
		"reserved_bytes is not what the driver gave");
	require(stats.requested_bytes.current == requested, "requested_bytes is not what is live");
	require(stats.allocated_bytes.current == allocated, "allocated_bytes is not what is live");
	require(stats.alloc_calls == w->allocs, "alloc_calls is not the number of allocations");
	require(stats.free_calls == w->frees, "free_calls is not the number of frees");
	require(stats.ooms == w->ooms, "ooms is not the number of answers");
	require(stats.reserved_bytes.current <= stats.reserved_bytes.peak &&
			stats.requested_bytes.current <= stats.requested_bytes.peak,
		"a peak is below its current figure");
	if (w->config.limit.bytes && !w->odd && !w->counting)
		require(sums.held_bytes <= w->config.limit.bytes, "more is held than the limit");
}
