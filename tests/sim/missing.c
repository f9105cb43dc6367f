/* SPDX-License-Identifier: MIT */
/*
 * The names that are not built. Every name of cuda.h gets a weak function here, and those of
 * entries.def override theirs when the library is linked; so a name can be forgotten in no list.
 * Calling one is loud and refused.
 */
#include "tests/sim/call.h"
#include "tests/sim/names.h"

#define CA_NAME(symbol, base, version, flavour)                                                    \
	__attribute__((weak, visibility("default"))) CUresult symbol(void);
#include "shim/bind/cuda_names.def"
#undef CA_NAME

#define CA_NAME(symbol, base, version, flavour)                                                    \
	CUresult symbol(void)                                                                      \
	{                                                                                          \
		return simb_call_missing(SIMB_NAME_##symbol);                                      \
	}
#include "shim/bind/cuda_names.def"
#undef CA_NAME
