// SPDX-License-Identifier: MIT
// What the programs of this folder share: a call that fails ends them with status 1; how they begin; the clock.
// Include it after the headers of CUDA.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

// The driver's codes.
static inline void need(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s: %d\n", what, result);
		exit(1);
	}
}

#ifdef CUDART_VERSION
static inline void need(cudaError_t result, const char *what)
{
	if (result != cudaSuccess) {
		fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
		exit(1);
	}
}
#endif

#define NEED(call) need(call, #call)

#ifdef CUDA_VERSION
// The primary context of device 0, which becomes current.
static inline CUcontext open_context(CUdevice *ret_device)
{
	CUcontext context;

	NEED(cuInit(0));
	NEED(cuDeviceGet(ret_device, 0));
	NEED(cuDevicePrimaryCtxRetain(&context, *ret_device));
	NEED(cuCtxSetCurrent(context));
	return context;
}
#endif

// Monotonic.
static inline uint64_t now_ns()
{
	timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
