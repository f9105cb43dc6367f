/* SPDX-License-Identifier: MIT */
/* Copies and sets: synchronous ones, which happen on a default stream, and asynchronous ones. */
#include "tests/stress/order/order.h"

#include <stdio.h>
#include <string.h>

static size_t
words_of(const struct block *b)
{
	return b->n_bytes / 4 < TOUCHED_MAX ? b->n_bytes / 4 : TOUCHED_MAX;
}

static void
note(struct block *b, uint32_t value, size_t n)
{
	b->value = value;
	b->start = 0;
	b->n_words = n;
}

/* A default stream that is open here, for a synchronous form; -1: none. */
static int
default_slot(struct worker *w, const struct place *place)
{
	int slot = chance(w, 3) ? SLOT_PER_THREAD : SLOT_LEGACY;

	if (w->window)
		return -1;
	return place->slots[slot].open ? slot : place->slots[SLOT_LEGACY].open ? SLOT_LEGACY : -1;
}

void
io_write(struct worker *w, struct block *b, int slot)
{
	int pinned = (int)rng_below(&w->rng, PINNED_MAX), sync = default_slot(w, b->place);
	uint32_t pageable[TOUCHED_MAX], value = (uint32_t)rng_next(&w->rng);
	const uint32_t *from = pageable;
	size_t n = words_of(b);

	if (pinned) {
		from = w->pinned[pinned];
		value = w->pinned_value[pinned];
	} else {
		for (size_t i = 0; i < n; i++)
			pageable[i] = value;
	}
	if (sync < 0 || chance(w, 2)) {
		block_use(w, b, slot, true);
		submit_write(w, b->place, slot, b->ptr, from, 4 * n);
	} else {
		block_use(w, b, sync, true);
		place_enter(b->place);
		w->last = sync;
		OP(w, (sync == SLOT_LEGACY ? cuMemcpyHtoD_v2 : cuMemcpyHtoD_v2_ptds)(b->ptr, from,
										     4 * n));
	}
	note(b, value, n);
}

static void
compare(struct worker *w, const struct block *b, const uint32_t *words)
{
	unsigned long wrong = 0;

	for (size_t i = 0; i < b->n_words; i++)
		wrong += words[i] != b->value;
	if (wrong)
		fprintf(stderr, "block %#llx of %zu bytes: %lu of %zu words wrong\n", b->ptr,
			b->n_bytes, wrong, b->n_words);
	w->wrong_words += wrong;
}

void
io_read(struct worker *w, struct block *b, int slot)
{
	uint32_t pageable[TOUCHED_MAX], *to = chance(w, 2) ? pageable : w->pinned[0];
	int sync = default_slot(w, b->place);
	CUdeviceptr from = b->ptr + 4 * b->start;

	if (sync < 0 || chance(w, 2)) {
		block_use(w, b, slot, false);
		submit_read(w, b->place, slot, to, from, 4 * b->n_words);
		submit_sync(w, b->place, slot);
	} else {
		block_use(w, b, sync, false);
		place_enter(b->place);
		w->last = sync;
		OP(w, (sync == SLOT_LEGACY ? cuMemcpyDtoH_v2
					   : cuMemcpyDtoH_v2_ptds)(to, from, 4 * b->n_words));
	}
	compare(w, b, to);
}

static void
io_set(struct worker *w, struct block *b, int slot)
{
	unsigned char value = (unsigned char)rng_next(&w->rng);
	int sync = default_slot(w, b->place);
	size_t n = words_of(b);

	if (sync < 0 || chance(w, 2)) {
		block_use(w, b, slot, true);
		submit_set(w, b->place, slot, b->ptr, value, 4 * n);
	} else {
		block_use(w, b, sync, true);
		place_enter(b->place);
		w->last = sync;
		OP(w, (sync == SLOT_LEGACY ? cuMemsetD8_v2 : cuMemsetD8_v2_ptds)(b->ptr, value,
										 4 * n));
	}
	note(b, value * 0x01010101u, n);
}

/* From another block of the place; synchronous ones wait for nothing on the host. */
static void
io_copy(struct worker *w, struct block *b, int slot)
{
	struct block *from = &w->blocks[rng_below(&w->rng, w->n_blocks)];
	int sync = default_slot(w, b->place);
	size_t n = words_of(b);

	if (from == b || from->place != b->place || !from->n_words)
		return;
	n = from->n_words < n ? from->n_words : n;
	if (sync >= 0)
		slot = sync;
	block_use(w, from, slot, false);
	block_use(w, b, slot, true);
	if (sync < 0) {
		submit_copy(w, b->place, slot, b->ptr, from->ptr + 4 * from->start, 4 * n);
	} else {
		place_enter(b->place);
		w->last = sync;
		OP(w, (sync == SLOT_LEGACY ? cuMemcpyDtoD_v2 : cuMemcpyDtoD_v2_ptds)(
			      b->ptr, from->ptr + 4 * from->start, 4 * n));
	}
	note(b, from->value, n);
}

static void
io_table(struct worker *w, struct block *b, int slot)
{
	const struct simb_private_table *table;
	uint32_t value = (uint32_t)rng_next(&w->rng);
	CUuuid id;

	if (w->window)
		return;
	memcpy(id.bytes, SIMB_PRIVATE_TABLE_ID, sizeof(id.bytes));
	block_use(w, b, slot, true);
	place_enter(b->place);
	OP(w, calls.cuGetExportTable((const void **)&table, &id));
	OP(w, table->fill(b->ptr, value, words_of(b),
			  slot == SLOT_PER_THREAD ? CU_STREAM_PER_THREAD
						  : b->place->slots[slot].handle));
	note(b, value, words_of(b));
}

void
io_any(struct worker *w, struct block *b, int slot)
{
	if (settings.table && chance(w, 4)) {
		io_table(w, b, slot);
		return;
	}
	switch (rng_below(&w->rng, 5)) {
	case 0:
		io_write(w, b, slot);
		break;
	case 1:
		if (b->n_words && !w->window)
			io_read(w, b, slot);
		break;
	case 2:
		io_set(w, b, slot);
		break;
	default:
		io_copy(w, b, slot);
	}
}

/* A copy in another context reads the block. */
void
io_cross(struct worker *w, int i)
{
	struct place *place = place_any(w);
	int slot = place_pick(w, place);
	struct block *from, *to;
	size_t n_bytes = w->blocks[i].n_bytes;

	if (w->blocks[i].place == place || !w->blocks[i].n_words || w->n_blocks == BLOCKS_MAX ||
	    (w->blocks[i].other && w->blocks[i].other != place))
		return;
	to = block_alloc(w, place, n_bytes);
	from = &w->blocks[i];
	if (!to)
		return;
	if (from->users)
		order_slots(w, from->place, __builtin_ctz(from->users), place, slot);
	block_use(w, to, slot, true);
	place_enter(place);
	if (chance(w, 2))
		OP(w, cuMemcpyPeerAsync(to->ptr + 4 * from->start, place->ctx,
					from->ptr + 4 * from->start, from->place->ctx,
					4 * from->n_words,
					slot == SLOT_PER_THREAD ? CU_STREAM_PER_THREAD
								: place->slots[slot].handle));
	else
		submit_copy(w, place, slot, to->ptr + 4 * from->start, from->ptr + 4 * from->start,
			    4 * from->n_words);
	to->value = from->value;
	to->start = from->start;
	to->n_words = from->n_words;
	from->other = place;
	from->other_users |= bit(slot);
	if (!settings.cross) /* what a free waits for natively is its own context */
		block_use(w, from, place_pick(w, from->place), true);
}
