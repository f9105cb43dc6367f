/* SPDX-License-Identifier: MIT */
/*
 * The real driver: one pointer for each row of hooks.def, taken from libcuda's own handle.
 *
 * ca_real() resolves at its first call (never in the dlsym path) and costs one load afterwards. It
 * finds a libcuda that the program has loaded already (RTLD_NOLOAD) and never loads one.
 * Thread-safe; no malloc of ours; errno kept. NULL: no libcuda in this process; the hook answers
 * CUDA_ERROR_NOT_INITIALIZED. Members that this driver lacks are NULL.
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "shim/bind/graphics_abi.h"

struct ca_real {
#define CA_HOOK(symbol, base, version, flags, params, args) CUresult(*symbol) params;
#define CA_NEED(symbol, base, version, flags, params) CUresult(*symbol) params;
#include "shim/bind/hooks.def"
};

const struct ca_real *ca_real(void);

/* The answer of the real cuGetProcAddress, of the newest ABI there is; 0: none. */
uintptr_t ca_real_query(const struct ca_real *real, const char *base, int version,
			cuuint64_t flags);
