/* SPDX-License-Identifier: MIT */
#include "shim/hooks/oom_retry.h"

#include "shim/track/contexts.h"

static bool
make(struct ca_space *space, uint64_t bytes, struct ca_rounds *rounds)
{
	CA_KEEP_ERRNO;

	return ca_reclaim(space, bytes, rounds);
}

bool
ca_make_capacity(const struct ca_real *real, uint64_t bytes, struct ca_rounds *rounds)
{
	struct ca_space *space = ca_hook_active_process() ? ca_context_space(real) : NULL;

	return space && make(space, bytes, rounds);
}

bool
ca_make_capacity_on(CUdevice device, uint64_t bytes, struct ca_rounds *rounds)
{
	struct ca_space *space = ca_hook_active_process() ? ca_context_space_on(device) : NULL;

	return space && make(space, bytes, rounds);
}
