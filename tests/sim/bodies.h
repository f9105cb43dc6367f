/* SPDX-License-Identifier: MIT */
/*
 * The bodies of the entry points, declared once for each row of entries.def (twins repeat the same
 * declaration). A body returns the driver's code, writes its outputs only on success, and runs on a
 * started engine unless its row says ANY.
 */
#pragma once

#include "tests/sim/abi.h"

#define SIM_ENTRY(symbol, body, flavour, when, params, args) int simb_do_##body params;
#include "tests/sim/entries.def"
#undef SIM_ENTRY
