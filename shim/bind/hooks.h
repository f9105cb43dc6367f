/* SPDX-License-Identifier: MIT */
/*
 * Our entry points: one exported function for each CA_HOOK of hooks.def, with libcuda's own name
 * and ABI.
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "shim/bind/graphics_abi.h"

#define CA_EXPORT __attribute__((visibility("default")))

#define CA_HOOK(symbol, base, version, flags, params, args) CA_EXPORT CUresult symbol params;
#include "shim/bind/hooks.def"
