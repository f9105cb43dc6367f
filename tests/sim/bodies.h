/* SPDX-License-Identifier: MIT */
/*
 * The bodies of the entry points, declared once for each row of entries.def (twins repeat the same
 * declaration). A body returns the driver's code, writes its outputs only on success, and runs on a
 * started engine unless its row says ANY.
 */
#pragma once

#include "tests/sim/abi.h"
#include "tests/sim/engine.h"

#define SIM_ENTRY(symbol, body, flavour, when, params, args) int simb_do_##body params;
#define SIM_TWINS(symbol, suffix, params, call)
#include "tests/sim/entries.def"
#undef SIM_ENTRY

enum {
	SIMB_ARGS_MAX = 8,
};
/* What a launch of `function` with these parameters means: the kernel, and its arguments into
 * SIMB_ARGS_MAX places. */
int simb_kernel_args(CUfunction function, void **params, void **extra, enum sim_kernel *ret_kernel,
		     uint64_t *args);
