/* SPDX-License-Identifier: MIT */
#include "tests/sim/engine.h"
