/* SPDX-License-Identifier: MIT */
/*
 * async:keep. By default a device's pool gives what is unused back to the system at each
 * synchronisation (cuda.h, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD is 0), so that each step of a program
 * pays for the same memory anew. Here the threshold of the default pools is raised, the program
 * reads and sets one of its own, and the memory goes back when it is missed.
 *
 * Thread-safe, no malloc.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

/* Raises the threshold of the device's default pool. Without effect where the driver has no pools,
 * or does not tell what one holds. errno kept. */
void ca_pools_keep(CUdevice device);
/* True if the threshold of that pool was raised; *ret_own (may be NULL) receives the program's. */
bool ca_pools_own_threshold(CUmemoryPool pool, cuuint64_t *ret_own);
/* The program's threshold from now on; the driver's stays raised. 0 or the driver's code. */
CUresult ca_pools_set_own(const struct ca_real *real, CUmemoryPool pool, cuuint64_t own);
/* struct ca_driver. */
uint64_t ca_pools_trim(void *self, unsigned device, uint64_t keep_bytes, bool graphs);
void ca_pools_after_fork_child(void);
