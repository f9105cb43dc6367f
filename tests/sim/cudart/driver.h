/* SPDX-License-Identifier: MIT */
/*
 * The driver as the stand-in runtime sees it: one pointer for each row of driver.def.
 *
 * All functions are thread-safe.
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "tests/sim/cudart/cudart_abi.h"

struct sim_rt_driver {
#define SIM_RT_NEED(symbol, base, version, flags, params) CUresult(*symbol) params;
#include "tests/sim/cudart/driver.def"
#undef SIM_RT_NEED
};

/* Version of the API that this runtime provides, as CUDART_VERSION. */
enum {
	SIM_RT_VERSION = 13000,
};

/*
 * Finds libcuda.so.1 and resolves every name; calls nothing of it but cuGetProcAddress_v2. The work
 * is done once, its outcome is kept. Members that this driver lacks are NULL.
 * cudaErrorInsufficientDriver: no libcuda.
 */
cudaError_t sim_rt_driver_find(const struct sim_rt_driver **ret_driver);

/*
 * The same, then cuInit, once. cudaErrorInsufficientDriver also when the driver's version is of an
 * older major release than SIM_RT_VERSION; a failure of cuInit is kept and returned by every call.
 */
cudaError_t sim_rt_driver_init(const struct sim_rt_driver **ret_driver);

/* The runtime's code for a driver's:
 * the same number where the runtime has it, else cudaErrorUnknown. */
cudaError_t sim_rt_error_from_driver(CUresult code);

/* The value of a driver call, mapped;
 * cudaErrorCallRequiresNewerDriver where the driver lacks the entry point. */
#define SIM_RT_CALL(driver, symbol, ...)                                                           \
	((driver)->symbol ? sim_rt_error_from_driver((driver)->symbol(__VA_ARGS__))                \
			  : cudaErrorCallRequiresNewerDriver)
