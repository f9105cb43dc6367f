/* SPDX-License-Identifier: MIT */
/*
 * Other roads to device memory than cuMemAlloc: the answer of CACHEALLOC_LIMIT to a call, and the
 * cache that makes room for it (shim/hooks/oom_retry.h).
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"
#include "shim/hooks/oom_retry.h"
#include "shim/state/process.h"

struct ca_road {
	struct ca_process *process; /* NULL: pass through */
	struct ca_space *space;     /* where the memory was charged; NULL: it was not */
	uint64_t bytes;
	bool rejected; /* out of memory by the limit: the driver is not to be asked */
};

/* Before a call that takes `bytes` of `device` (< 0: of the current context's); `counts` false: it
 * takes none. */
struct ca_road ca_foreign_begin(const struct ca_real *real, CUdevice device, uint64_t bytes,
				bool counts);
/* After it succeeded: the memory goes by `handle`. The second: it is a segment of ours, no
 * allocation of the program's. */
void ca_foreign_succeeded(const struct ca_real *real, const struct ca_road *road,
			  enum ca_charge_kind kind, uint64_t handle);
void ca_foreign_segment_taken(const struct ca_road *road, uint64_t address);
void ca_foreign_failed(const struct ca_road *road);

/* Before a call that frees what goes by `handle`, and after it. */
struct ca_road ca_foreign_end_begin(enum ca_charge_kind kind, uint64_t handle);
void ca_foreign_end_done(const struct ca_road *road, CUresult rc, enum ca_charge_kind kind,
			 uint64_t handle);
