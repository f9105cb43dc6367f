/* SPDX-License-Identifier: MIT */
/* Steps that allocate and free. */
#include <errno.h>
#include <string.h>

#include "tests/sequence/world.h"

/* A few sizes, so that what is freed is soon asked for again. */
static uint64_t
random_size(struct world *w)
{
	static const uint64_t sizes[] = { 512,     4096,     700 * KIB, 3 * MIB / 2,
					  3 * MIB, 12 * MIB, 20 * MIB,  36 * MIB };

	switch (pick(w, 8)) {
	case 0:
		return 1 + pick(w, MIB);
	case 1:
		return 1 + pick(w, 60 * MIB);
	default:
		return sizes[pick(w, sizeof(sizes) / sizeof(sizes[0]))];
	}
}

static bool
goes_through(struct world *w, uint64_t size)
{
	return size < w->config.min_size_bytes || size > w->config.max_size_bytes ||
	       (w->shares && !pick(w, 3));
}

/* What another thread freed, or a stream, is waited for by nobody, however short memory is. (Marks
 * stand for more than the work on a piece: also for what its stream waits for.) Without marks of a
 * context nobody else can so much as ask about a thread's own stream. */
static bool
waits_for_nobody(struct world *w)
{
	bool idle = ca_model_finished(w->model) >= ca_model_submitted(w->model);
	unsigned i;

	for (i = 0; i < w->n_streams && idle; i++)
		idle = ca_model_stream_finished(w->model, name_of(i)) ==
		       ca_model_stream_submitted(w->model, name_of(i));
	return (!idle && w->async) || (w->actors > 1 && (!idle || w->pretend.no_marks));
}

/* Bytes of freed blocks that a graph may still run on: they are not ours to give. */
static uint64_t
held_bytes(struct world *w)
{
	uint64_t bytes = 0;
	unsigned i;

	for (i = 0; i < w->n_freed; i++)
		if (w->freed[i].graph && w->graphs[w->freed[i].graph - 1].state == GRAPH_HELD)
			bytes += w->freed[i].size;
	return bytes;
}

/* Beside what is live. What never fits is refused before all has gone back. */
static bool
never_fits(struct world *w, const struct piece *piece)
{
	const struct ca_config *config = &w->config;
	uint64_t taken = 0, most, bytes = piece->requested;
	enum ca_limit_kind kind;
	unsigned i;

	while (config->roundup.count && bytes & (bytes - 1)) /* at most to that power of two */
		bytes += bytes & -bytes;

	most = ca_limit_allowed(w->spaces[piece->space], &kind);
	if (!most || most > w->pretend.capacity)
		most = w->pretend.capacity;
	for (i = 0; i < w->n_live; i++)
		taken += w->live[i].requested;
	for (i = 0; i < w->n_charges; i++)
		taken += w->charges[i].bytes;
	return taken + bytes > most;
}

/* Nothing that is ours to give is left. */
static void
check_out_of_memory(struct world *w, const struct piece *piece, int r, bool excused)
{
	uint64_t left = ca_drainable_bytes(w->spaces[piece->space]), held = held_bytes(w);

	if (w->failing && r != CA_DRIVER_OUT_OF_MEMORY)
		return;
	if (r != CA_DRIVER_OUT_OF_MEMORY)
		broken("ca_alloc answers %d", r);
	w->ooms++;
	w->totals->ooms++;
	if (left > held && !w->failing && !w->capturing && !w->counting && !excused &&
	    !never_fits(w, piece))
		broken("out of memory while %llu bytes could be given back",
		       (unsigned long long)(left - held));
}

static void
learn_block(struct world *w, struct piece *piece, bool through)
{
	struct ca_block_info info;

	require(!ca_lookup(w->heap, piece->address, &info) && info.live &&
			info.address == piece->address,
		"what was handed out is no block");
	require(info.block_bytes >= piece->requested, "a block is smaller than the request");
	require(info.requested_bytes == piece->requested, "the request is not remembered");
	require(piece->address % 512 == 0, "a block is not aligned to 512 bytes");
	require(through || info.foreign || piece->requested < 2 * MIB ||
			w->pretend.alignment < 2 * MIB || piece->address % (64 << 10) == 0,
		"a large block is not aligned to 64 KiB");
	piece->size = info.block_bytes;
	piece->straight = through || info.foreign || w->counting;
}

void
step_alloc(struct world *w)
{
	struct piece piece = { .space = (unsigned)(pick(w, 8) == 0), .requested = random_size(w) };
	bool through = goes_through(w, piece.requested), excused = waits_for_nobody(w);
	int r;

	if (w->n_live == LIVE_MAX)
		return;
	r = (through ? ca_alloc_passthrough : ca_alloc)(w->spaces[piece.space], piece.requested,
							&piece.address);
	if (r) {
		require(!piece.address, "an output was written by a call that failed");
		check_out_of_memory(w, &piece, r, excused);
		return;
	}
	w->allocs++;
	w->totals->allocs++;
	if (w->capturing && w->n_graphs)
		piece.graph = w->n_graphs;
	learn_block(w, &piece, through);
	reference_handed_out(w, &piece);
}

static void
freed(struct world *w, unsigned live, int r)
{
	if (r) {
		require(w->going == &w->live[live], "a free that failed gave the memory back");
		w->going = NULL;
		if (!(w->counting && r == -EBUSY) && !w->failing)
			broken("ca_free answers %d", r);
		return;
	}
	w->frees++;
	reference_freed(w, live);
}

void
step_free_at(struct world *w, unsigned live)
{
	w->going = &w->live[live];
	freed(w, live, ca_free(w->heap, w->live[live].address));
}

void
step_free(struct world *w)
{
	if (!w->n_live)
		return;
	/* what has just been handed out has only users that it inherited */
	step_free_at(w, pick(w, 3) ? (unsigned)pick(w, w->n_live) : w->n_live - 1);
	if (ca_auto_trim_is_wanted(&w->config) && pick(w, 2))
		ca_auto_trim(w->spaces[0], true);
}

/* A stream of the piece's space that this thread may name. */
static bool
find_stream(struct world *w, unsigned space, unsigned *ret_stream)
{
	unsigned i, from = (unsigned)pick(w, STREAMS_MAX);

	for (i = 0; i < w->n_streams; i++) {
		const struct stream *stream = &w->streams[(from + i) % w->n_streams];

		if (stream->stream && stream->space == space &&
		    (stream->kind == CA_STREAM_NONBLOCKING || stream->kind == CA_STREAM_BLOCKING)) {
			*ret_stream = (from + i) % w->n_streams;
			return true;
		}
	}
	return false;
}

void
step_free_async(struct world *w)
{
	unsigned live, stream;
	struct ca_touch nothing = { .n = 0 };
	uint64_t submitted;
	int r;

	if (!w->n_live || w->counting)
		return;
	live = (unsigned)pick(w, w->n_live);
	if (!find_stream(w, w->live[live].space, &stream))
		return;
	ca_stream_note_thread(w->streams[stream].stream);
	ca_submit_begin(w->streams[stream].stream, &nothing);
	w->going = &w->live[live];
	r = ca_free_async(w->heap, w->live[live].address, w->streams[stream].stream);
	submitted = ca_model_stream_submitted(w->model, name_of(stream));
	if (!r && w->live[live].work[stream] < submitted)
		w->live[live].work[stream] = submitted;
	w->async = true;
	freed(w, live, r);
}

void
step_adopt(struct world *w)
{
	struct piece piece = { .space = (unsigned)(pick(w, 8) == 0), .straight = true };
	uint64_t size = random_size(w);
	struct ca_model_sums sums;

	ca_model_sums(w->model, &sums);
	if (w->n_live == LIVE_MAX || w->failing ||
	    w->driver.segment_take(w->model, w->contexts[piece.space], size, &piece.address))
		return;
	piece.size = size;
	piece.requested = size > 1 ? size - 1 : size;
	require(!ca_track_foreign(w->spaces[piece.space], piece.address, size, piece.requested),
		"memory of the program is not adopted");
	w->odd = true;
	w->allocs++;
	reference_handed_out(w, &piece);
}

void
step_bad_free(struct world *w)
{
	uint64_t address;
	int r;

	if (!w->n_freed)
		return;
	address = w->freed[pick(w, w->n_freed)].address + 1 + pick(w, 500);
	r = ca_free(w->heap, address);
	require(r == -EINVAL || r == -ENOENT, "a free of what is no block is accepted");
}
