/* SPDX-License-Identifier: MIT */
/*
 * A charge is dropped before the real free, since the handle may come back to another thread before
 * that call returns, and restored if the free failed.
 */
#include "shim/hooks/foreign_limit.h"

#include "shim/track/contexts.h"

struct ca_road
ca_foreign_begin(const struct ca_real *real, CUdevice device, uint64_t bytes, bool counts)
{
	struct ca_road road = { .process = ca_hook_process(), .bytes = bytes };
	CA_KEEP_ERRNO;

	if (!road.process || !road.process->limited || !counts || !bytes)
		return road;
	road.space = device >= 0 ? ca_context_space_on(device) : NULL;
	if (!road.space)
		road.space = ca_context_space(real);
	if (road.space && !ca_charge(road.space, bytes)) {
		road.space = NULL;
		road.rejected = true;
	}
	return road;
}

void
ca_foreign_succeeded(const struct ca_real *real, const struct ca_road *road,
		     enum ca_charge_kind kind, uint64_t handle)
{
	struct ca_space *space;
	CA_KEEP_ERRNO;

	if (!road->process || !road->process->caches)
		return;
	space = road->space ? road->space : ca_context_space(real);
	if (space)
		ca_note_other_alloc(space);
	if (road->space)
		ca_charge_keep(road->space, kind, handle, road->bytes);
}

void
ca_foreign_segment_taken(const struct ca_road *road, uint64_t address)
{
	CA_KEEP_ERRNO;

	if (road->process && road->process->caches && road->space)
		ca_charge_keep(road->space, CA_CHARGE_ADDRESS, address, road->bytes);
}

void
ca_foreign_failed(const struct ca_road *road)
{
	if (road->space)
		ca_charge_abort(road->space, road->bytes);
}

struct ca_road
ca_foreign_end_begin(enum ca_charge_kind kind, uint64_t handle)
{
	struct ca_road road = { .process = ca_hook_process() };

	if (road.process && road.process->limited)
		road.bytes = ca_charge_drop(road.process->heap, kind, handle, &road.space);
	return road;
}

void
ca_foreign_end_done(const struct ca_road *road, CUresult rc, enum ca_charge_kind kind,
		    uint64_t handle)
{
	if (road->bytes && rc != CUDA_SUCCESS)
		ca_charge_restore(road->space, kind, handle, road->bytes);
}
