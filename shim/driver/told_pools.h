/* SPDX-License-Identifier: MIT */
/*
 * async:pool. The driver's memory pools that allocator/told serves: each device's default pool, and
 * pools that the program makes for device memory that is not shared with anybody. Their segments
 * are allocations of the driver's pool of that very handle, so access, location and limits of the
 * pool hold for them.
 *
 * Thread-safe, no malloc, errno kept.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/told/told.h"
#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

/* async:pool is on. */
extern _Atomic bool ca_told_on __attribute__((visibility("hidden")));

/* The process serves stream-ordered memory from now on. */
void ca_told_pools_start(struct ca_heap *heap);
/* Learns the default pool and the current pool of the device, the first time. */
void ca_told_pools_note_device(CUdevice device);
enum { CA_TOLD_DEVICES_MAX = 64 };
extern struct ca_told_pool *_Atomic ca_told_current_pools[CA_TOLD_DEVICES_MAX]
	__attribute__((visibility("hidden")));
/* The pool that serves cuMemAllocAsync on a device; NULL: the driver does. */
static inline struct ca_told_pool *
ca_told_pools_current(unsigned device)
{
	if (__builtin_expect(device >= CA_TOLD_DEVICES_MAX, 0))
		return NULL;
	return atomic_load_explicit(&ca_told_current_pools[device], memory_order_acquire);
}
/* That pool, by the driver's handle; NULL: the driver serves it. */
struct ca_told_pool *ca_told_pools_find(CUmemoryPool handle);
/* The same; also a default pool of a device that the process has not worked with yet. */
struct ca_told_pool *ca_told_pools_find_early(const struct ca_real *real, CUmemoryPool handle);

/* The driver made that pool. */
void ca_told_pools_created(const struct ca_real *real, CUmemoryPool handle,
			   const CUmemPoolProps *props);
/* The driver may have made another pool the current one of the device: it is asked which. */
void ca_told_pools_note_current(const struct ca_real *real, CUdevice device);
/* Before the driver's destruction of the pool, and after it. */
struct ca_told_pool *ca_told_pools_destroying(const struct ca_real *real, CUmemoryPool handle);
void ca_told_pools_destroyed(const struct ca_real *real, struct ca_told_pool *pool,
			     CUmemoryPool handle, CUresult rc);

/* The driver serves memory of the pool by itself, or of some pool no more: its part of the high
 * mark. */
void ca_told_pools_note_foreign(const struct ca_real *real, struct ca_told_pool *pool);
void ca_told_pools_foreign_freed(const struct ca_real *real);
/* The program has set a release threshold. */
void ca_told_pools_set_threshold(struct ca_told_pool *pool, uint64_t bytes);
/* A synchronisation has something to give back: some pool has a finite one, or is destroyed. */
extern _Atomic bool ca_told_thresholds __attribute__((visibility("hidden")));
/* After a synchronisation idle segments go back, as far as a pool has reserved more than its
 * threshold. */
void ca_told_pools_synchronized(const struct ca_real *real);

/* Before and after a reset of the device. No documentation says whether memory of its pools
 * outlives that: what is idle goes back before, and none of what is cached is handed out any more.
 */
void ca_told_pools_resetting(const struct ca_real *real, CUdevice device);
void ca_told_pools_reset(const struct ca_real *real, CUdevice device);
/* Idle segments of the pool go back to the driver's, until it has no more reserved than
 * `keep_bytes` beside them. Returns their bytes. */
uint64_t ca_told_pools_shrink(const struct ca_real *real, struct ca_told_pool *pool,
			      uint64_t keep_bytes);
/* Before `more_bytes` more are asked of the pool idle segments beyond its budget go back. */
void ca_told_pools_make_budget(const struct ca_real *real, struct ca_told_pool *pool,
			       uint64_t more_bytes);
/* Segments of destroyed pools in which nothing is live. */
void ca_told_pools_tidy(void);
/* Idle segments of the device, down to `keep_bytes` reserved in each pool: back to the system.
 * Returns what the driver's reserved bytes fell by. */
uint64_t ca_told_pools_trim(const struct ca_real *real, unsigned device, uint64_t keep_bytes);
void ca_told_pools_after_fork_child(void);
