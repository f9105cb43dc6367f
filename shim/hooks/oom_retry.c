/* SPDX-License-Identifier: MIT */
#include "shim/hooks/oom_retry.h"

#include <stdatomic.h>

#include "shim/track/contexts.h"

static bool
make(struct ca_space *space, uint64_t bytes)
{
	CA_KEEP_ERRNO;

	return ca_reclaim(space, bytes);
}

bool
ca_make_capacity(const struct ca_real *real, uint64_t bytes)
{
	struct ca_process *process = ca_hook_process();
	struct ca_space *space = process && process->serves ? ca_context_space(real) : NULL;

	return space && make(space, bytes);
}

bool
ca_make_capacity_on(CUdevice device, uint64_t bytes)
{
	struct ca_process *process = ca_hook_process();
	struct ca_context *context;
	struct ca_space *space;

	if (!process || !process->serves)
		return false;
	for (context = ca_context_first(); context; context = ca_context_next(context)) {
		space = atomic_load_explicit(&context->space, memory_order_acquire);
		if (context->device == device && space)
			return make(space, bytes);
	}
	return false;
}
