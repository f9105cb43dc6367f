/* SPDX-License-Identifier: MIT */
/*
 * The exported functions: one prologue for all (call.h), then the body. Twins and versions that
 * mean the same share a body; which stream a NULL means is in the call.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"
#include "tests/sim/names.h"

#define EXPORT __attribute__((visibility("default")))

#define FUNCTION(symbol, flavour, when, params, call)                                              \
	EXPORT CUresult symbol params;                                                             \
	CUresult symbol params                                                                     \
	{                                                                                          \
		struct simb_call entered;                                                          \
		int rc = simb_call_enter(&entered, SIMB_NAME_##symbol, SIMB_##flavour,             \
					 SIMB_##when);                                             \
                                                                                                   \
		if (!rc)                                                                           \
			rc = call;                                                                 \
		return simb_call_leave(&entered, rc);                                              \
	}
#define SIM_ENTRY(symbol, body, flavour, when, params, args)                                       \
	FUNCTION(symbol, flavour, when, params, simb_do_##body args)
#define SIM_TWINS(symbol, suffix, params, call)                                                    \
	FUNCTION(symbol, LEGACY, INIT, params, call)                                               \
	FUNCTION(symbol##suffix, PTSZ, INIT, params, call)
#include "tests/sim/entries.def"
#undef SIM_ENTRY
