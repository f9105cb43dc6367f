/* SPDX-License-Identifier: MIT */
/* The handle of a device's default pool; device is a valid ordinal. */
#pragma once

#include "tests/sim/abi.h"

CUmemoryPool simb_pool(int device);
