/* SPDX-License-Identifier: MIT */
#include "tests/stress/order/order.h"

#include "tests/stress/ranges.h"

#include <stdio.h>
#include <stdlib.h>

void
order_check(CUresult code, const char *what)
{
	if (code == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %d\n", what, (int)code);
	exit(2);
}

void
place_enter(const struct place *place)
{
	DO(cuCtxSetCurrent(place->ctx));
}

/* What used its array and the like may not be done, and the new stream comes after nothing. */
static void
slot_open(struct slot *slot)
{
	slot->array = NULL;
	slot->managed = 0;
	slot->semaphore = NULL;
	slot->green = NULL;
	slot->open = true;
}

static void
slot_create(struct slot *slot, struct rng *rng)
{
	unsigned flags = (unsigned)rng_below(rng, 2);

	slot->blocking = !flags;
	if (rng_below(rng, 3))
		DO(cuStreamCreate(&slot->handle, flags));
	else
		DO(calls.cuStreamCreateWithPriority(&slot->handle, flags, -(int)rng_below(rng, 2)));
}

/* By the worker that will submit to it. */
static void
slot_renew(struct place *place, struct slot *slot, struct rng *rng)
{
	slot_open(slot);
	if (!green_create(place, slot, rng))
		slot_create(slot, rng);
	DO(cuMemsetD8Async(place->errors, 0, 0, slot->handle));
}

/*
 * Nothing, submitted by the thread whose stream it is: the library hands out unfinished memory only
 * where it has seen who submits to each stream.
 */
void
place_introduce(const struct worker *w)
{
	for (int p = 0; p < PLACES_MAX; p++) {
		struct place *place = &places[p];

		for (int i = SLOT_FIRST; place->alive && i < place->n_slots; i++) {
			struct slot *slot = &place->slots[i];
			bool mine = slot->owner == w->index ||
				    (slot->owner == EVERYBODY &&
				     (place->owner == EVERYBODY ? w->index == 0
								: place->owner == w->index));

			if (!mine || !slot->open || !slot->handle)
				continue;
			place_enter(place);
			DO(cuMemsetD8Async(place->errors, 0, 0, slot->handle));
		}
	}
}

static void
slots_open(struct place *place, struct rng *rng)
{
	bool quiet = settings.quiet ||
		     (place->owner != EVERYBODY && !settings.wide && rng_below(rng, 2));
	bool defaults = !quiet && rng_below(rng, 2);

	place->n_slots = SLOT_FIRST + settings.n_streams;
	for (int i = 0; i < place->n_slots; i++) {
		struct slot *slot = &place->slots[i];

		*slot = (struct slot){ .owner = EVERYBODY };
		if (place->owner == EVERYBODY && i > SLOT_FIRST + 1)
			slot->owner = i % settings.n_workers;
		if (i < SLOT_FIRST)
			slot->open = defaults || place->primary;
		else if (!quiet || i == SLOT_FIRST) {
			slot_open(slot);
			slot_create(slot, rng);
		}
	}
	if (!defaults && !quiet && place->owner != EVERYBODY && rng_below(rng, 2))
		place->slots[SLOT_LEGACY].open = true;
}

static void
kernels_load(struct place *place)
{
	void *module;

	DO(cuModuleLoadData(&module, "simcuda"));
	DO(cuModuleGetFunction(&place->fill, module, "sim_fill"));
	DO(cuModuleGetFunction(&place->check, module, "sim_check"));
	DO(cuModuleGetFunction(&place->copy, module, "sim_copy"));
	DO(cuModuleGetFunction(&place->wait, module, "sim_wait"));
	DO(cuModuleGetFunction(&place->signal, module, "sim_signal"));
}

/* One block for both, set in the first created stream, so that the default streams stay unused. */
static void
words_open(struct place *place)
{
	const size_t n = 8 + sizeof(uint32_t) * WORKERS_MAX * WORDS_MAX;
	CUstream s = place->slots[SLOT_FIRST].handle;

	DO(cuMemAlloc_v2(&place->errors, n));
	DO(cuMemsetD8Async(place->errors, 0, n, s));
	DO(cuStreamSynchronize(s));
	place->words = place->errors + 8;
	for (int i = 0; i < WORKERS_MAX; i++)
		place->next_word[i] = 0;
}

void
place_open(struct place *place, int device, bool primary, int owner, struct rng *rng)
{
	CUdevice dev;

	*place = (struct place){
		.device = device, .primary = primary, .owner = owner, .alive = true
	};
	pthread_rwlock_init(&place->calm, NULL);
	DO(cuDeviceGet(&dev, device));
	if (primary)
		DO(cuDevicePrimaryCtxRetain(&place->ctx, dev));
	else
		DO(cuCtxCreate_v2(&place->ctx, 0, dev));
	place_enter(place);
	kernels_load(place);
	slots_open(place, rng);
	for (int i = 0; i < EVENTS_MAX; i++) {
		DO(cuEventCreate(&place->shared[i], CU_EVENT_DISABLE_TIMING));
		for (int t = 0; t < settings.n_workers; t++)
			if (owner == EVERYBODY || owner == t)
				DO(cuEventCreate(&place->own[t][i], CU_EVENT_DISABLE_TIMING));
	}
	words_open(place);
}

unsigned long
place_wrong(struct place *place)
{
	uint64_t wrong = 0;

	place_enter(place);
	DO(cuCtxSynchronize());
	DO(cuMemcpyDtoH_v2(&wrong, place->errors, 8));
	if (wrong)
		fprintf(stderr, "sim_check found %llu wrong words on device %d\n",
			(unsigned long long)wrong, place->device);
	return wrong;
}

void
place_close(struct worker *w, struct place *place)
{
	for (int i = w->n_graphs - 1; i >= 0; i--)
		if (w->graphs[i].place == place)
			graph_close(w, i);
	for (int i = w->n_blocks - 1; i >= 0; i--) {
		struct block *b = &w->blocks[i];

		if (b->place == place) {
			range_remove(b->ptr);
			block_forget(w, i);
		} else if (b->other == place) {
			b->other = NULL;
			b->other_users = 0;
		}
	}
	/* copies of other contexts may still read what was freed here: its death does not wait for
	 * them */
	for (int i = 0; settings.cross && i <= settings.n_devices; i++)
		if (places[i].alive && &places[i] != place)
			context_sync(w, &places[i]);
	if (settings.cross && w->home && w->home != place)
		context_sync(w, w->home);
	if (chance(w, 3)) /* else its death is the only wait */
		w->wrong_words += place_wrong(place);
	else
		DO(cuCtxSetCurrent(NULL));
	OP(w, cuCtxDestroy_v2(place->ctx));
	pthread_rwlock_destroy(&place->calm);
	place->alive = false;
}

struct place *
place_unused(void)
{
	for (int i = 0; i < PLACES_MAX; i++)
		if (!places[i].alive)
			return &places[i];
	abort();
}

static bool
may_use(const struct worker *w, const struct place *place, int slot)
{
	const struct slot *s = &place->slots[slot];

	if (w->window && slot == SLOT_LEGACY)
		return false; /* it would spoil the capture of a blocking stream */
	/* another worker's own slot may be changing */
	return (s->owner == EVERYBODY || s->owner == w->index) && s->open;
}

int
place_pick(struct worker *w, struct place *place)
{
	int slot = w->last;

	if (slot < place->n_slots && may_use(w, place, slot) && chance(w, 2))
		return slot;
	slot = (int)rng_below(&w->rng, place->n_slots);
	return may_use(w, place, slot) ? slot : SLOT_FIRST;
}

int
place_pick_other(struct worker *w, struct place *place, int slot)
{
	int from = (int)rng_below(&w->rng, place->n_slots);

	for (int i = 0; i < place->n_slots; i++) {
		int other = (from + i) % place->n_slots;

		if (other != slot && may_use(w, place, other))
			return other;
	}
	return slot;
}

struct place *
place_any(struct worker *w)
{
	if (w->home && (settings.solo || chance(w, 2)))
		return w->home;
	for (;;) {
		struct place *place = &places[rng_below(&w->rng, settings.n_devices + 1)];

		if (place->alive && place->owner == EVERYBODY)
			return place;
	}
}

void
place_widen(struct worker *w)
{
	struct place *place = w->home;

	if (!place || settings.quiet)
		return;
	for (int i = place->n_slots - 1; i >= 0; i--) {
		struct slot *slot = &place->slots[i];

		if (slot->open || (i < SLOT_FIRST && chance(w, 2)))
			continue;
		place_enter(place);
		if (i >= SLOT_FIRST)
			slot_renew(place, slot, &w->rng);
		slot->open = true;
		return;
	}
}

static void
move_users(struct worker *w, struct block *b, int from, int to)
{
	if (!(b->ordered & bit(from)))
		return;
	if (b->users & bit(from))
		b->users |= bit(to);
	b->ordered |= bit(to);
	b->users &= ~bit(from);
	b->ordered &= ~bit(from);
}

/* What is still wanted of its order moves to another stream first. */
void
place_renew(struct worker *w, struct place *place, int slot)
{
	int other = place_pick_other(w, place, slot);
	bool wanted = false;

	if (slot < SLOT_FIRST || other == slot || w->window)
		return;
	for (int i = 0; i < w->n_blocks; i++) {
		struct block *b = &w->blocks[i];

		wanted |= b->place == place && b->ordered & bit(slot);
		wanted |= b->other == place && b->other_users & bit(slot);
	}
	for (int g = 0; g < w->n_graphs; g++)
		wanted |= w->graphs[g].place == place;
	if (wanted)
		order_slots(w, place, slot, place, other);
	for (int i = 0; i < w->n_blocks; i++) {
		struct block *b = &w->blocks[i];

		if (b->place == place)
			move_users(w, b, slot, other);
		if (b->other == place && b->other_users & bit(slot))
			b->other_users = (b->other_users & ~bit(slot)) | bit(other);
	}
	for (int g = 0; g < w->n_graphs; g++)
		for (int i = 0; i < w->graphs[g].n_blocks && w->graphs[g].place == place; i++)
			move_users(w, &w->graphs[g].blocks[i], slot, other);
	place_enter(place);
	green_destroy(w, &place->slots[slot]);
	slot_renew(place, &place->slots[slot], &w->rng);
}
