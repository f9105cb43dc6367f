/* SPDX-License-Identifier: MIT */
/*
 * Allocations and frees that have more to do than to allocate and to free: the settings free_sync,
 * zero and poison, and trims that are due (max_cached_mb and its like). Each of these waits for the
 * device where the driver's own cuMemFree would, and nowhere else; a fill of memory is awaited for
 * some seconds at most.
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"
#include "shim/state/process.h"

/*
 * free_sync:host, before an allocation: the error that a fault of earlier work has left in the
 * current context, which the driver's own allocation would answer; 0: none that is known. Waits for
 * nothing, and asks nothing while something captures: memory is the driver's own then.
 */
int ca_settings_error(const struct ca_real *real);
/* The heap's answer to a free of `dptr`, as ca_free's. */
int ca_settings_free(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr);
/*
 * zero, poison: fills what ca_alloc just handed out in the current context. False: the fill goes on
 * and nobody may have the memory; it is lost, and the call is for the driver.
 */
bool ca_settings_alloc(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr,
		       size_t bytes);
