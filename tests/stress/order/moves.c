/* SPDX-License-Identifier: MIT */
#include "tests/stress/order/order.h"

void
move_touch(struct worker *w, struct block *b, int slot)
{
	struct block *from = &w->blocks[rng_below(&w->rng, w->n_blocks)];

	if (from != b && from->place == b->place && from->n_words && chance(w, 4))
		block_copy(w, b, from, slot, spin_pick(w));
	else if (b->n_words && chance(w, 2))
		block_check(w, b, slot, spin_pick(w));
	else
		block_fill(w, b, slot, spin_pick(w));
}

void
move_first_use(struct worker *w, struct block *b, int slot)
{
	switch (rng_below(&w->rng, 6)) {
	case 0:
		io_write(w, b, slot);
		break;
	case 1:
		io_any(w, b, slot);
		break;
	default:
		block_fill(w, b, slot, spin_pick(w));
	}
}

/* Often with work of several streams on it that nobody waits for. */
static void
free_block(struct worker *w, int i)
{
	struct block *b = &w->blocks[i];

	if (b->n_words && !b->other && !w->window)
		for (int n = (int)rng_below(&w->rng, 3); n > 0; n--)
			block_check(w, b, place_pick(w, b->place), spin_pick(w));
	block_free(w, i);
}

void
free_one(struct worker *w)
{
	free_block(w, (int)rng_below(&w->rng, w->n_blocks));
}

void
free_all(struct worker *w, const struct place *place)
{
	for (int i = w->n_graphs - 1; i >= 0; i--)
		if (w->graphs[i].place == place || !place)
			graph_close(w, i);
	for (int i = w->n_blocks - 1; i >= 0; i--)
		if (w->blocks[i].place == place || !place)
			block_free(w, i);
}

static void
move_alloc(struct worker *w)
{
	struct place *place = place_any(w);
	struct block *b = block_alloc(w, place, size_pick(w));

	if (!b && w->n_blocks)
		free_one(w);
	else if (b && !chance(w, 6))
		move_first_use(w, b, place_pick(w, place));
}

static void
move_free_async(struct worker *w, int i)
{
	struct block *b = &w->blocks[i];
	int slot = place_pick(w, b->place);

	if (slot == SLOT_PER_THREAD || b->fresh || settings.cross)
		return;
	block_use(w, b, slot, true);
	block_free_async(w, i, slot);
}

/* Its own place: another context, or another stream in it. */
static void
move_home(struct worker *w)
{
	int slot;

	if (!w->home)
		return;
	if (chance(w, settings.pipe ? 60 : 20)) {
		place_close(w, w->home);
		place_open(w->home, (int)rng_below(&w->rng, settings.n_devices), false, w->index,
			   &w->rng);
		return;
	}
	slot = SLOT_FIRST + (int)rng_below(&w->rng, w->home->n_slots - SLOT_FIRST);
	if (!w->home->slots[slot].open || chance(w, 2))
		place_widen(w);
	else
		place_renew(w, w->home, slot);
}

/* A private stream in a place of all. */
static void
move_renew(struct worker *w)
{
	struct place *place = place_any(w);
	int slot = place_pick(w, place);

	if (place->slots[slot].owner == w->index)
		place_renew(w, place, slot);
}

static void
move_block(struct worker *w)
{
	int i = (int)rng_below(&w->rng, w->n_blocks);
	struct block *b = &w->blocks[i];

	switch (rng_below(&w->rng, settings.pipe ? 6 : 12)) {
	case 0:
	case 1:
	case 2:
		free_block(w, i);
		break;
	case 3:
		io_any(w, b, place_pick(w, b->place));
		break;
	case 4:
		if (chance(w, 2))
			io_cross(w, i);
		else if (chance(w, 2))
			move_free_async(w, i);
		break;
	default:
		move_touch(w, b, place_pick(w, b->place));
	}
}

void
move_any(struct worker *w)
{
	unsigned dice = (unsigned)rng_below(&w->rng, 100);

	if (dice < (settings.pipe ? 35u : 15u))
		scene_any(w);
	else if (dice < 40)
		move_alloc(w);
	else if (dice < 50)
		noise_any(w, place_any(w));
	else if (dice < 53 && !settings.cross)
		graph_any(w);
	else if (dice < 55)
		move_home(w);
	else if (dice < (settings.green ? 67u : 57u))
		move_renew(w);
	else if (w->n_blocks)
		move_block(w);
	else
		move_alloc(w);
}
