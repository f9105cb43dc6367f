/* SPDX-License-Identifier: MIT */
/*
 * The common part of the road programs: PROGRAM N [SIZE...] makes N allocations and N frees of the
 * given sizes in turn (bytes; default a mix), with a few blocks live at any time, and prints
 * nothing. Exit status: 0; 1 after a message on stderr.
 */
#pragma once

#include <stddef.h>

/* The entry points as one road delivers them, with the driver's prototypes. */
struct road {
	int (*init)(unsigned flags);
	int (*device_get)(int *ret_device, int ordinal);
	int (*primary_retain)(void **ret_ctx, int device);
	int (*set_current)(void *ctx);
	int (*alloc)(unsigned long long *ret_ptr, size_t n_bytes);
	int (*free)(unsigned long long ptr);
};

/* Looks one entry point up; NULL: not found. `base` and `version` as for cuGetProcAddress, `symbol`
 * as for dlsym. */
typedef void *road_find_fn(const char *base, const char *symbol, int version);

/* Fills the road by `find`, then as road_walk(). */
int road_walk_found(int argc, char **argv, road_find_fn *find);

/* Init, primary context of device 0, then the allocations.
 * init == NULL: the road needs none of the set-up. */
int road_walk(int argc, char **argv, const struct road *road);
