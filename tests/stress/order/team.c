/* SPDX-License-Identifier: MIT */
/*
 * Phases in a place of all. One worker, the leader, is alone there first and is handed memory whose
 * old users are not done; then all use it at the same time, on a stream they share.
 */
#include "tests/stress/order/order.h"

static int handed, elsewhere; /* slots of this phase; the leader writes, between two barriers */

struct place *
team_place(void)
{
	return &places[settings.n_devices];
}

/* Nobody has a block there. */
static void
team_renew(struct worker *w)
{
	struct place *place = team_place();

	if (place->alive && !chance(w, 3)) {
		for (int i = SLOT_FIRST; i < place->n_slots; i++)
			place_renew(w, place, i);
		return;
	}
	if (place->alive)
		place_close(w, place);
	place_open(place, (int)rng_below(&w->rng, settings.n_devices), false, EVERYBODY, &w->rng);
}

/* The leader alone submits there now; its handovers are the others' first blocks. */
void
team_prepare(struct worker *w)
{
	struct place *place = team_place();
	int n_created;

	team_renew(w);
	n_created = place->n_slots - SLOT_FIRST;
	handed = SLOT_FIRST + (int)rng_below(&w->rng, n_created);
	elsewhere = SLOT_FIRST + (int)rng_below(&w->rng, n_created);
	if (place->slots[elsewhere].owner != EVERYBODY) /* its owner may be renewing it */
		elsewhere = SLOT_FIRST + 1;
	for (int i = 0; i < EVENTS_MAX; i++)
		if (chance(w, 2)) {
			place_enter(place);
			OP(w, cuEventDestroy_v2(place->shared[i]));
			OP(w, cuEventCreate(&place->shared[i], CU_EVENT_DISABLE_TIMING));
		}
	for (int i = 0; i < settings.n_workers; i++) {
		struct block *b;

		while (w->n_blocks > BLOCKS_MAX - 2)
			free_one(w);
		b = scene_handover(w, place, handed, palette[0]);
		if (!b)
			continue;
		workers[i].given = *b;
		block_forget(w, w->n_blocks - 1);
	}
	submit_record(w, place, handed, place->shared[0]);
}

/* Half of them synchronise with the stream that the others submit to; what those then free had its
 * user submitted just before, during or just after. */
static void
team_sync(struct worker *w, struct place *place, int slot)
{
	for (int n = 0; n < 3; n++) {
		struct block *b;

		if (w->index % 2) {
			submit_sync(w, place, slot);
			submit_sync(w, place, slot);
			continue;
		}
		while (w->n_blocks > BLOCKS_MAX - 2)
			free_one(w);
		b = block_alloc(w, place, palette[1]);
		if (!b)
			return;
		block_fill(w, b, slot, spin_pick(w));
		block_free(w, w->n_blocks - 1);
		b = block_alloc(w, place, palette[1]);
		if (b)
			block_fill(w, b, place_pick_other(w, place, slot), spin_pick(w));
	}
}

void
team_begin(struct worker *w, struct rng *rng)
{
	struct place *place = team_place();
	int n_created = place->n_slots - SLOT_FIRST;
	int slot = SLOT_FIRST + (int)rng_below(rng, n_created);
	unsigned storm = settings.storm ? 1 : (unsigned)rng_below(rng, 3);

	if (place->slots[slot].owner != EVERYBODY)
		slot = SLOT_FIRST;
	if (storm == 0)
		team_sync(w, place, slot);
	else if (storm == 1)
		noise_storm(w, place, slot, elsewhere);
	while (w->n_blocks == BLOCKS_MAX)
		free_one(w);
	if (!w->given.ptr)
		return;
	w->blocks[w->n_blocks++] = w->given;
	w->given.ptr = 0;
	move_first_use(w, &w->blocks[w->n_blocks - 1], slot);
}

/* Its streams and blocks go away. */
void
team_end(struct worker *w)
{
	struct place *place = team_place();

	for (int i = 0; i < w->n_blocks; i++)
		if (w->blocks[i].other == place)
			block_use(w, &w->blocks[i], place_pick(w, w->blocks[i].place), true);
	free_all(w, place);
	if (settings.cross && w->home) /* may still copy from what was freed there */
		context_sync(w, w->home);
}
