/* SPDX-License-Identifier: MIT */
/*
 * Prototypes of the driver entry points in driver_api.def, for test programs that link against
 * libcuda directly. The program finds the library through LD_LIBRARY_PATH; no run path is recorded.
 */
#pragma once

#include "shim/bind/cuda_abi.h"

#define DRV(symbol, base, version, flavour, params) CUresult symbol params;
#include "tests/process/driver_api.def"
#undef DRV

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolStatus);
