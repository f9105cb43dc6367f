/* SPDX-License-Identifier: MIT */
/*
 * Memory pools as the program sees them. The driver is asked first, for its answer to bad
 * arguments.
 *
 * async:keep: the release threshold of a default pool is raised (shim/driver/pools.h), and the
 * program sets and reads its own. async:pool: to the driver a segment of ours is in use, whatever
 * the program has of it (shim/driver/told_pools.h); what it has reserved is the driver's own
 * figure.
 */
#include "shim/driver/pool_calls.h"
#include "shim/driver/pools.h"
#include "shim/driver/told_pools.h"
#include "shim/hooks/hook.h"

/* The pool, if the told heap serves it. */
static struct ca_told_pool *
told_pool(CUmemoryPool handle)
{
	return atomic_load_explicit(&ca_told_on, memory_order_relaxed) && ca_hook_active_process()
		       ? ca_told_pools_find(handle)
		       : NULL;
}

static void
note_setting(struct ca_told_pool *pool, CUmemPool_attribute attr, const void *value)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		ca_told_pool_set_reuse(pool, CA_TOLD_FOLLOWS, *(const int *)value);
		break;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		ca_told_pool_set_reuse(pool, CA_TOLD_OPPORTUNISTIC, *(const int *)value);
		break;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		ca_told_pool_set_reuse(pool, CA_TOLD_INTERNAL, *(const int *)value);
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		ca_told_pools_set_threshold(pool, *(const cuuint64_t *)value);
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		ca_told_pool_reset_high(pool);
		break;
	default:
		break;
	}
}

/* The driver's figure counts the segments; the program's, what it has of them. */
static void
correct_stats(const struct ca_real *real, CUmemoryPool handle, struct ca_told_pool *pool,
	      CUmemPool_attribute attr, cuuint64_t *value)
{
	struct ca_told_stats stats;
	cuuint64_t used = 0, others;

	if (attr != CU_MEMPOOL_ATTR_USED_MEM_CURRENT && attr != CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return;
	if (ca_pool_get(real, handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
		return;
	ca_told_pool_stats(pool, &stats);
	others = used > stats.segment_bytes ? used - stats.segment_bytes : 0;
	*value =
		attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? stats.used_high : stats.used_bytes + others;
}

CUresult
cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CA_HOOK_REAL(real, cuMemPoolSetAttribute);
	struct ca_told_pool *told;
	CUresult rc;

	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && value && ca_hook_active_process() &&
	    ca_pools_own_threshold(pool, NULL))
		return ca_pools_set_own(real, pool, *(const cuuint64_t *)value);
	rc = CA_INSIDE(real->cuMemPoolSetAttribute(pool, attr, value));
	if (rc || !value)
		return rc;
	told = told_pool(pool);
	if (!told && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && ca_hook_active_process())
		told = ca_told_pools_find_early(real, pool);
	if (told)
		note_setting(told, attr, value);
	return rc;
}

CUresult
cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CA_HOOK_REAL(real, cuMemPoolGetAttribute);
	CUresult rc = CA_INSIDE(real->cuMemPoolGetAttribute(pool, attr, value));
	struct ca_told_pool *told;

	if (!rc && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && ca_hook_active_process())
		(void)ca_pools_own_threshold(pool, value);
	told = rc ? NULL : told_pool(pool);
	if (told)
		correct_stats(real, pool, told, attr, value);
	return rc;
}

CUresult
cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CA_HOOK_REAL(real, cuMemPoolCreate);
	CUresult rc = CA_INSIDE(real->cuMemPoolCreate(pool, poolProps));

	if (!rc && ca_hook_active_process() && atomic_load(&ca_told_on))
		ca_told_pools_created(real, *pool, poolProps);
	return rc;
}

CUresult
cuMemPoolDestroy(CUmemoryPool pool)
{
	CA_HOOK_REAL(real, cuMemPoolDestroy);
	struct ca_told_pool *told = told_pool(pool) ? ca_told_pools_destroying(real, pool) : NULL;
	CUresult rc = CA_INSIDE(real->cuMemPoolDestroy(pool));

	if (atomic_load_explicit(&ca_told_on, memory_order_relaxed) && ca_hook_active_process())
		ca_told_pools_destroyed(real, told, pool, rc);
	return rc;
}

CUresult
cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CA_HOOK_REAL(real, cuMemPoolTrimTo);
	struct ca_told_pool *told = told_pool(pool);

	if (told) {
		ca_told_pools_tidy();
		ca_told_note_trim(told, minBytesToKeep);
		(void)ca_told_pools_shrink(real, told, minBytesToKeep);
	}
	return CA_INSIDE(real->cuMemPoolTrimTo(pool, minBytesToKeep));
}

CUresult
cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CA_HOOK_REAL(real, cuDeviceSetMemPool);
	CUresult rc = CA_INSIDE(real->cuDeviceSetMemPool(dev, pool));

	if (!rc && ca_hook_active_process())
		ca_told_pools_note_current(real, dev);
	return rc;
}

CUresult
cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CA_HOOK_REAL(real, cuMemSetMemPool);
	CUresult rc = CA_INSIDE(real->cuMemSetMemPool(location, type, pool));

	if (!rc && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    type == CU_MEM_ALLOCATION_TYPE_PINNED && ca_hook_active_process())
		ca_told_pools_note_current(real, location->id);
	return rc;
}
