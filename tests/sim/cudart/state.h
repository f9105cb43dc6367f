/* SPDX-License-Identifier: MIT */
/*
 * What the runtime keeps for each thread (device, last error) and each device (primary context).
 *
 * All functions are thread-safe; "the thread" is the calling one.
 */
#pragma once

#include "tests/sim/cudart/driver.h"

#define SIM_RT_EXPORT __attribute__((visibility(SIM_RT_VISIBILITY)))

/*
 * Makes the thread ready for a call that needs a context: driver initialised, and a context
 * current. A context that the program made current itself is kept; otherwise it is the primary
 * context of the thread's device, retained here at its first use and again after a reset.
 */
cudaError_t sim_rt_context_enter(const struct sim_rt_driver **ret_driver);

/* Device of the thread's current context, or the one it chose by sim_rt_device_set(), or 0. */
cudaError_t sim_rt_device_get(const struct sim_rt_driver *drv, int *ret_device);

/* Chooses and makes the primary context current. cudaErrorInvalidDevice: no such device. */
cudaError_t sim_rt_device_set(const struct sim_rt_driver *drv, int device);

/* Destroys the primary context of the thread's device for the whole process. */
cudaError_t sim_rt_device_reset(const struct sim_rt_driver *drv);

/* Remembers a failure as the thread's last error; returns `code`. Every API call but the two
 * queries ends in it. */
cudaError_t sim_rt_error_note(cudaError_t code);
