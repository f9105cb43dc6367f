/* SPDX-License-Identifier: MIT */
/*
 * Code, and limits of a context: the driver keeps both in the device's memory. Code may be loaded
 * as late as when a function is first asked for.
 */
#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"

#define CA_HOOK_ROOM(symbol, base, version, params, args)                                          \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		return CA_ROOM(real, real->symbol args);                                           \
	}
#include "shim/bind/hooks.def"
