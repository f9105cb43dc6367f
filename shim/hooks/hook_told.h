/* SPDX-License-Identifier: MIT */
/*
 * Stream-ordered calls that the told heap serves (async:pool, shim/driver/told_pools.h).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/told_pools.h"
#include "shim/hooks/submission.h"

struct ca_told_call {
	const struct ca_real *real;
	enum ca_flavour flavour;
	CUstream stream;   /* as the program named it */
	CUmemoryPool pool; /* NULL: the current one of the stream's device */
	size_t bytes;
	CUdeviceptr *dptr;
};

/* False: the driver has to be asked. Otherwise done. */
bool ca_told_alloc_async(const struct ca_told_call *call);
/* An allocation is served. */
static inline bool
ca_told_allocs(const struct ca_told_call *call)
{
	return __builtin_expect(atomic_load_explicit(&ca_told_on, memory_order_relaxed), 0) &&
	       ca_told_alloc_async(call);
}

/* The driver has served an allocation, or a free, by itself. */
void ca_told_driver_allocated(const struct ca_told_call *call, CUresult rc);
static inline void
ca_told_driver_freed(const struct ca_real *real)
{
	if (__builtin_expect(atomic_load_explicit(&ca_told_on, memory_order_relaxed), 0))
		ca_told_pools_foreign_freed(real);
}

/* A free in `stream`, and by a call without one. False: the memory is not ours. *ret_rc: the
 * program's answer. */
bool ca_told_free_async(const struct ca_real *real, CUdeviceptr dptr, CUstream stream,
			enum ca_flavour flavour, CUresult *ret_rc);
bool ca_told_free_host(const struct ca_real *real, CUdeviceptr dptr, CUresult *ret_rc);
/* Whether the address lies in memory of the told heap. */
bool ca_told_holds(CUdeviceptr dptr, struct ca_told_info *ret_info);
