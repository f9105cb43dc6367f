/* SPDX-License-Identifier: MIT */
/*
 * How the programs of this folder reach the driver: by pointers, as the CUDA runtime does
 * (cuGetProcAddress), or by dlsym. Both end in the preloaded library when there is one.
 *
 * Every function here ends the program with status 2 and a line on stderr when something fails.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"

/* CUlaunchConfig of cuda.h, without attributes. */
struct launch_config {
	unsigned int grid[3], block[3], shared_bytes;
	CUstream stream;
	void *attributes;
	unsigned int n_attributes;
};

struct api {
#define API(symbol, base, flavour, params) CUresult(*symbol) params;
#include "tests/bench/api.def"
#undef API
};

extern struct api api;

enum road { ROAD_PROC, ROAD_DLSYM };

/* Loads libcuda.so.1, fills in `api`, and makes the primary context of device 0, which it returns,
 * current. */
CUcontext api_open(enum road road);

/* The simulator's built-in kernel of that name; the table that returns at once knows any name. */
void *api_kernel(const char *name);

/* Ends the program when code is not 0. */
void api_check(CUresult code, const char *what);
#define CALL(symbol, ...) api_check(api.symbol(__VA_ARGS__), #symbol)

_Noreturn void api_fail(const char *what, long code);

/* Monotonic clock. */
uint64_t now_ns(void);

/* This thread stays on that processor from now on; < 0: anywhere. */
void pin_to(int cpu);
