/* SPDX-License-Identifier: MIT */
/*
 * The release threshold of a default pool that is raised (shim/driver/pools.h): the program sets
 * and reads its own. The driver is asked first, for its answer to bad arguments.
 */
#include "shim/driver/pools.h"
#include "shim/hooks/hook.h"

CUresult
cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CA_HOOK_REAL(real, cuMemPoolSetAttribute);

	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && value && ca_hook_active_process() &&
	    ca_pools_own_threshold(pool, NULL))
		return ca_pools_set_own(real, pool, *(const cuuint64_t *)value);
	return CA_INSIDE(real->cuMemPoolSetAttribute(pool, attr, value));
}

CUresult
cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CA_HOOK_REAL(real, cuMemPoolGetAttribute);
	CUresult rc = CA_INSIDE(real->cuMemPoolGetAttribute(pool, attr, value));

	if (!rc && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && ca_hook_active_process())
		(void)ca_pools_own_threshold(pool, value);
	return rc;
}
