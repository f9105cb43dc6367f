/* SPDX-License-Identifier: MIT */
/* What test programs link against instead of a driver,
 * like the stub in NVIDIA's toolkit: names only. */
#include "tests/process/driver_api.h"

#define DRV(symbol, base, version, flavour, params)                                                \
	CUresult symbol params                                                                     \
	{                                                                                          \
		return CUDA_ERROR_STUB_LIBRARY;                                                    \
	}
#include "tests/process/driver_api.def"
#undef DRV

CUresult
cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return CUDA_ERROR_STUB_LIBRARY;
}

CUresult
cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *symbolStatus)
{
	return CUDA_ERROR_STUB_LIBRARY;
}
