/* SPDX-License-Identifier: MIT */
/*
 * Streams of green contexts, in primary contexts, one green context a stream. They come when a
 * worker's own stream is made anew, so that memory is there that was handed out before the first
 * one.
 */
#include "tests/stress/order/order.h"

static CUdevResourceDesc
description(int device)
{
	CUdevResourceDesc desc;
	CUdevResource all;

	DO(calls.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
	DO(calls.cuDevResourceGenerateDesc(&desc, &all, 1));
	return desc;
}

bool
green_create(const struct place *place, struct slot *slot, struct rng *rng)
{
	if (!settings.green || !place->primary || rng_below(rng, 2))
		return false;
	DO(calls.cuGreenCtxCreate(&slot->green, description(place->device), place->device,
				  CU_GREEN_CTX_DEFAULT_STREAM));
	/* 1: CU_STREAM_NON_BLOCKING, which is a must */
	DO(calls.cuGreenCtxStreamCreate(&slot->handle, slot->green, 1, 0));
	slot->blocking = false;
	return true;
}

/* Before or after its stream. */
void
green_destroy(struct worker *w, struct slot *slot)
{
	CUgreenCtx green = slot->green;
	bool before = chance(w, 2);

	if (before && green)
		OP(w, calls.cuGreenCtxDestroy(green));
	OP(w, cuStreamDestroy_v2(slot->handle));
	if (!before && green)
		OP(w, calls.cuGreenCtxDestroy(green));
	slot->green = NULL;
}

bool
green_record(struct worker *w, const struct slot *slot, CUevent event)
{
	if (!slot->green || w->window || chance(w, 2))
		return false;
	OP(w, calls.cuGreenCtxRecordEvent(slot->green, event));
	return true;
}
