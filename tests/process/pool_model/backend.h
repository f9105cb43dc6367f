/* SPDX-License-Identifier: MIT */
/*
 * A model of PyTorch's backend:cudaMallocAsync: which calls it makes of the driver, in which order,
 * for what a program asks of it (c10/cuda/CUDAMallocAsyncAllocator.cpp, 2.0 to 2.13; the retry is
 * of pytorch #188110). On the driver's entry points; a device's context is made current where the
 * backend makes the device current.
 *
 * One thread. An outcome is what a program sees: 0, BACKEND_OUT_OF_MEMORY (OutOfMemoryError),
 * BACKEND_ASSERTION (an internal assertion), or the driver's code (AcceleratorError).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/process/driver_api.h"

enum {
	BACKEND_OUT_OF_MEMORY = -1,
	BACKEND_ASSERTION = -2,
	BACKEND_DEVICES_MAX = 4,
};

struct backend_stats {
	uint64_t used, used_high, reserved, reserved_high; /* bytes; attributes 7, 8, 5, 6 */
};

/* One context a device. retry: as newer versions, trim the pool and try again. */
void backend_open(const CUcontext *contexts, int n_devices, bool retry);

int backend_malloc(CUdeviceptr *ret_ptr, int device, size_t n_bytes, CUstream stream);
int backend_free(CUdeviceptr ptr);
/* The memory is used on the stream, too. */
int backend_record_stream(CUdeviceptr ptr, CUstream stream, int device);
/* torch.cuda.empty_cache() */
int backend_empty_cache(void);
/* torch.cuda.set_per_process_memory_fraction() */
int backend_set_fraction(double fraction, int device);
/* What cudnn's benchmarks ask before they take a workspace. */
int backend_cache_info(int device, CUstream stream, size_t *ret_guess);
int backend_stats(int device, struct backend_stats *ret_stats);
/* torch.cuda.reset_peak_memory_stats() */
int backend_reset_peaks(int device);
/* Before a capture begins, and before it ends on the stream. */
int backend_capture_begin(void);
int backend_capture_about_to_end(CUstream stream, int device);
/* Bytes that the backend itself counts. */
uint64_t backend_used(int device);
/* Frees that wait for the end of a capture, and, after it, for the next allocation. */
unsigned backend_deferred(void);
