/* SPDX-License-Identifier: MIT */
/*
 * Calls that nobody here relies on. Several threads record, wait for and ask the same events at the
 * same time, so who learns what from them depends on luck; an interposer that believes too much of
 * it leaves out an order that was needed.
 */
#include "tests/stress/order/order.h"

static void
ask(struct worker *w, struct place *place, CUevent event)
{
	CUresult code;

	if (w->window)
		return;
	place_enter(place);
	code = cuEventQuery(event);
	OP(w, code == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : code);
}

static void
look(struct worker *w)
{
	struct block *b;
	CUdeviceptr base;
	size_t n_bytes;

	if (!w->n_blocks || w->window || settings.cross)
		return;
	b = &w->blocks[rng_below(&w->rng, w->n_blocks)];
	place_enter(b->place);
	OP(w, cuMemGetAddressRange_v2(&base, &n_bytes, b->ptr));
	order_check(base == b->ptr && n_bytes == b->n_bytes ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN,
		    "cuMemGetAddressRange_v2 knows another block");
}

static void
whole(struct worker *w, struct place *place, CUevent event)
{
	if (w->window)
		return;
	pthread_rwlock_rdlock(&place->calm);
	place_enter(place);
	OP(w, calls.cuCtxRecordEvent(place->ctx, event));
	pthread_rwlock_unlock(&place->calm);
}

void
noise_any(struct worker *w, struct place *place)
{
	CUevent event = place->shared[rng_below(&w->rng, EVENTS_MAX)];
	int slot = place_pick(w, place);

	switch (rng_below(&w->rng, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		submit_record(w, place, slot, event);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
		submit_wait(w, place, slot, event);
		break;
	case 8:
		ask(w, place, event);
		break;
	case 9:
		if (!w->window && chance(w, 2))
			OP(w, cuEventSynchronize(event));
		break;
	case 10:
		if (!w->window)
			submit_query(w, place, slot);
		break;
	case 11:
	case 12:
		if (!w->window && (place->owner == EVERYBODY || chance(w, 3)))
			submit_sync(w, place, slot);
		break;
	case 13:
		whole(w, place, event);
		break;
	case 14:
		if (chance(w, 2))
			look(w);
		else
			rows_managed(w, place, slot);
		break;
	default:
		if (chance(w, 3))
			context_sync(w, place);
	}
}

void
noise_storm(struct worker *w, struct place *place, int slot, int other)
{
	CUevent event = place->shared[0];

	if (w->index % 2) {
		submit_record(w, place, other, event);
	} else {
		submit_wait(w, place, slot, event);
		w->last = slot;
	}
}
