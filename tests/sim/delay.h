/* SPDX-License-Identifier: MIT */
/* The delays that SIMCUDA_LATENCY asks for, at both ends of a call. Thread-safe. */
#pragma once

#include "tests/sim/call.h"

void simb_delay_enter(struct simb_call *call);
void simb_delay_leave(const struct simb_call *call);
