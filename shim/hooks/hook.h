/* SPDX-License-Identifier: MIT */
/*
 * The beginning of every hook.
 */
#pragma once

#include "shim/bind/hooks.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/scope.h"
#include "shim/process/lifecycle.h"

/* The real table, or an early return: there is no libcuda, or not this function in it. */
#define CA_HOOK_REAL(real, symbol)                                                                 \
	const struct ca_real *real = ca_real();                                                    \
	if (!real || !real->symbol)                                                                \
	return real ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED

/* NULL when the call must go straight through: disabled, or entered from inside the driver. */
static inline struct ca_process *
ca_hook_process(void)
{
	return ca_inside ? NULL : ca_process();
}

/* The same; NULL also where the process only counts (CACHEALLOC_DISABLE=count). */
static inline struct ca_process *
ca_hook_active_process(void)
{
	struct ca_process *process = ca_hook_process();

	return process && process->caches ? process : NULL;
}
