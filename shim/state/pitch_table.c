/* SPDX-License-Identifier: MIT */
#include "shim/state/pitch_table.h"

_Atomic uint64_t ca_pitch_table[CA_PITCH_SLOTS];
