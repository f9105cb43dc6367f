/* SPDX-License-Identifier: MIT */
#include "tests/stress/order/order.h"

#include "tests/stress/ranges.h"

size_t
size_pick(struct worker *w)
{
	return palette[rng_below(&w->rng, settings.pipe ? 2 : PALETTE_MAX)];
}

/* In microseconds; only a real clock cares. */
unsigned
spin_pick(struct worker *w)
{
	return (unsigned)rng_below(&w->rng, chance(w, 16) ? 300 : 8);
}

/* ----------------------------------------------------------- life, death --- */

struct block *
block_alloc(struct worker *w, struct place *place, size_t n_bytes)
{
	struct block *b;
	CUresult code;

	while (w->n_blocks == BLOCKS_MAX && !w->window)
		free_one(w);
	if (w->n_blocks == BLOCKS_MAX)
		return NULL;
	b = &w->blocks[w->n_blocks];
	*b = (struct block){ .place = place, .n_bytes = n_bytes, .fresh = true };
	place_enter(place);
	code = cuMemAlloc_v2(&b->ptr, n_bytes);
	w->operations++;
	if (code == CUDA_ERROR_OUT_OF_MEMORY) {
		w->ooms++;
		return NULL;
	}
	DO(code);
	range_add(b->ptr, n_bytes);
	w->allocs++;
	w->n_blocks++;
	return b;
}

void
block_forget(struct worker *w, int i)
{
	w->blocks[i] = w->blocks[--w->n_blocks];
}

void
block_free(struct worker *w, int i)
{
	struct block *b = &w->blocks[i];

	/* Freeing needs no particular context. */
	place_enter(chance(w, 4) && !w->window ? place_any(w) : b->place);
	range_remove(b->ptr);
	OP(w, cuMemFree_v2(b->ptr));
	w->frees++;
	block_forget(w, i);
}

void
block_free_async(struct worker *w, int i, int slot)
{
	struct block *b = &w->blocks[i];

	place_enter(b->place);
	range_remove(b->ptr);
	OP(w, cuMemFreeAsync(b->ptr, b->place->slots[slot].handle));
	w->frees++;
	block_forget(w, i);
}

/* ----------------------------------------------------------------- order --- */

static void
gather(struct worker *w, struct block *b, int slot)
{
	for (int from = 0; from < b->place->n_slots; from++)
		if (b->users & bit(from))
			order_slots(w, b->place, from, b->place, slot);
	for (int from = 0; b->other && from < b->other->n_slots; from++)
		if (b->other_users & bit(from))
			order_slots(w, b->other, from, b->place, slot);
	b->other = NULL;
	b->other_users = 0;
	b->users = b->ordered = bit(slot);
}

void
block_use(struct worker *w, struct block *b, int slot, bool write)
{
	b->fresh = false;
	if (write) {
		gather(w, b, slot);
		return;
	}
	if (b->users && !(b->ordered & bit(slot)))
		order_slots(w, b->place, __builtin_ctz(b->users), b->place, slot);
	b->users |= bit(slot);
	b->ordered |= bit(slot);
}

void
block_settle(struct worker *w, struct block *b)
{
	struct place *place = b->place;

	if (b->other)
		gather(w, b, SLOT_FIRST);
	for (int slot = 0; slot < place->n_slots; slot++) {
		bool private = place->slots[slot].owner != EVERYBODY || slot == SLOT_PER_THREAD;

		if (!private || !(b->ordered & bit(slot)))
			continue;
		if (b->users & bit(slot)) {
			order_slots(w, place, slot, place, SLOT_FIRST);
			b->users |= bit(SLOT_FIRST);
			b->ordered |= bit(SLOT_FIRST);
		}
		b->users &= ~bit(slot);
		b->ordered &= ~bit(slot);
	}
}

/* -------------------------------------------------------------- contents --- */

void
block_fill(struct worker *w, struct block *b, int slot, unsigned spin_us)
{
	size_t words = b->n_bytes / 4, n = words < TOUCHED_MAX ? words : TOUCHED_MAX;
	size_t start = chance(w, 8) ? words - n : 0;
	uint32_t value = (uint32_t)rng_next(&w->rng);
	uint64_t args[] = { b->ptr + 4 * start, n, value, spin_us };
	bool fresh = b->fresh;

	block_use(w, b, slot, true);
	if (fresh && !w->window && chance(w, 3))
		submit_programmatic(w, b->place, slot, b->place->fill, args, 4,
				    chance(w, 4) ? b->place->shared[rng_below(&w->rng, EVENTS_MAX)]
						 : NULL);
	else
		submit_kernel(w, b->place, slot, b->place->fill, args, 4);
	b->value = value;
	b->start = start;
	b->n_words = n;
}

void
block_check(struct worker *w, struct block *b, int slot, unsigned spin_us)
{
	uint64_t args[] = { b->ptr + 4 * b->start, b->n_words, b->value, b->place->errors,
			    spin_us };

	block_use(w, b, slot, false);
	submit_kernel(w, b->place, slot, b->place->check, args, 5);
}

void
block_copy(struct worker *w, struct block *to, struct block *from, int slot, unsigned spin_us)
{
	size_t room = to->n_bytes / 4, n = from->n_words < room ? from->n_words : room;
	uint64_t args[] = { to->ptr, from->ptr + 4 * from->start, n, spin_us };

	block_use(w, from, slot, false);
	block_use(w, to, slot, true);
	submit_kernel(w, to->place, slot, to->place->copy, args, 4);
	to->value = from->value;
	to->start = 0;
	to->n_words = n;
}
