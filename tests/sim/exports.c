/* SPDX-License-Identifier: MIT */
/*
 * The exported functions: one prologue for all (call.h), then the body. Twins and versions that
 * mean the same share a body; which stream a NULL means is in the call.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/names.h"

#define EXPORT __attribute__((visibility("default")))

#define SIM_ENTRY(symbol, body, flavour, when, params, args)                                       \
	EXPORT CUresult symbol params;                                                             \
	CUresult symbol params                                                                     \
	{                                                                                          \
		struct simb_call call;                                                             \
		int rc = simb_call_enter(&call, SIMB_NAME_##symbol, SIMB_##flavour, SIMB_##when);  \
                                                                                                   \
		if (!rc)                                                                           \
			rc = simb_do_##body args;                                                  \
		return simb_call_leave(&call, rc);                                                 \
	}
#include "tests/sim/entries.def"
#undef SIM_ENTRY
