/* SPDX-License-Identifier: MIT */
/*
 * Mapped memory, as the reference sees it: memory that is mapped at a second address has been used
 * there by whatever used it at the first one; nothing is unmapped while work may use it, or where
 * it is live.
 */
#include "tests/sequence/world.h"

static bool
overlaps(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

/* The part of the piece that lies in [from, from + size), moved to `to`. */
static struct piece
part(const struct piece *piece, uint64_t from, uint64_t size, uint64_t to)
{
	uint64_t low = piece->address > from ? piece->address : from;
	uint64_t end = piece->address + piece->size;
	struct piece moved = *piece;

	if (end > from + size)
		end = from + size;
	moved.address = low - from + to;
	moved.size = end - low;
	return moved;
}

static void
add(struct world *w, const struct piece *piece)
{
	if (!piece->size)
		return;
	require(w->n_freed < FREED_MAX, "more freed pieces than the reference has room for");
	w->freed[w->n_freed++] = *piece;
}

static int
eyes_alias(void *self, void *context, uint64_t from, uint64_t to, uint64_t size)
{
	struct world *w = &sequence_world;
	int r = w->real.range_alias(self, context, from, to, size);
	unsigned i, n;

	reference_make_room(w);
	n = w->n_freed;
	for (i = 0; !r && i < w->n_registered; i++)
		require(!overlaps(w->registered[i].address, w->registered[i].size, from, size),
			"registered memory moves");
	for (i = 0; !r && i < w->n_live; i++)
		require(!overlaps(w->live[i].address, w->live[i].size, from, size),
			"live memory moves");
	for (i = 0; !r && i < n; i++) {
		struct piece moved;

		if (!overlaps(w->freed[i].address, w->freed[i].size, from, size))
			continue;
		require(!w->capturing || reference_is_idle(w, &w->freed[i]),
			"unfinished memory moves in a capture");
		moved = part(&w->freed[i], from, size, to);
		add(w, &moved);
	}
	return r;
}

/* A registered range goes as a whole, from above: what is below is registered still. */
static void
forget_registered(struct world *w, unsigned i, uint64_t from, uint64_t size)
{
	struct range *range = &w->registered[i];

	if (range->address < from)
		range->size = from - range->address;
	else
		*range = w->registered[--w->n_registered];
}

/* Nothing of what is freed lies there any more. */
static void
forget(struct world *w, uint64_t from, uint64_t size)
{
	unsigned i;

	for (i = w->n_freed; i--;) {
		struct piece piece = w->freed[i], rest;

		if (!overlaps(piece.address, piece.size, from, size))
			continue;
		w->freed[i] = w->freed[--w->n_freed];
		rest = piece;
		rest.size = piece.address < from ? from - piece.address : 0;
		add(w, &rest);
		rest.address = from + size;
		rest.size = piece.address + piece.size > rest.address
				    ? piece.address + piece.size - rest.address
				    : 0;
		add(w, &rest);
	}
	for (i = w->n_registered; i--;)
		if (overlaps(w->registered[i].address, w->registered[i].size, from, size))
			forget_registered(w, i, from, size);
}

static int
eyes_unmap(void *self, void *context, uint64_t address, uint64_t size)
{
	struct world *w = &sequence_world;
	int r = w->real.range_unmap(self, context, address, size);
	unsigned i;

	if (r)
		return r;
	for (i = 0; i < w->n_live; i++)
		require(!overlaps(w->live[i].address, w->live[i].size, address, size) ||
				&w->live[i] == w->going,
			"live memory is unmapped");
	for (i = 0; i < w->n_freed; i++)
		require(!overlaps(w->freed[i].address, w->freed[i].size, address, size) ||
				reference_is_idle(w, &w->freed[i]) ||
				(w->retired && reference_is_idle_at_home(w, &w->freed[i])),
			"memory is unmapped while work may use it");
	reference_make_room(w);
	forget(w, address, size);
	return 0;
}

void
reference_map_driver(struct world *w)
{
	w->driver.range_alias = eyes_alias;
	w->driver.range_unmap = eyes_unmap;
}
