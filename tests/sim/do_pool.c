/* SPDX-License-Identifier: MIT */
/*
 * Bodies: memory pools, stream-ordered allocation, graph memory. A CUmemoryPool is the engine's.
 * Locality domains are not modelled.
 */
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine_pool.h"

enum {
	ATTRIBUTES_OF_PROPERTIES = 13010, /* version from which on properties can be asked for */
	MANAGED_POOLS = 13000,
};

static int
answer_check(const void *answer)
{
	return answer ? 0 : simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
}

/* ----------------------------------------------------------- alloc, free --- */
int
simb_do_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	int rc = answer_check(dptr);

	return rc ? rc : sim_mem_alloc_async(bytesize, simb_stream(hStream), dptr);
}

int
simb_do_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				CUstream hStream)
{
	int rc = answer_check(dptr);

	if (!rc && !pool)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "no pool");
	return rc ? rc : sim_pool_alloc(pool, bytesize, simb_stream(hStream), dptr);
}

int
simb_do_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	return sim_mem_free_async(dptr, simb_stream(hStream));
}

/* ------------------------------------------------------------------ life --- */
int
simb_do_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	struct sim_pool_props props;
	int rc = answer_check(pool);

	if (!rc)
		rc = answer_check(poolProps);
	if (rc)
		return rc;
	if ((int)poolProps->allocType == SIM_POOL_MANAGED &&
	    simb_knobs()->driver_version < MANAGED_POOLS)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "managed pools are of CUDA 13");
	props = (struct sim_pool_props){
		.type = (int)poolProps->allocType,
		.location = (int)poolProps->location.type,
		.id = poolProps->location.id,
		.handle_types = (unsigned)poolProps->handleTypes,
		.max_bytes = poolProps->maxSize,
		.usage = poolProps->usage,
	};
	if (props.location == SIM_LOCATION_HOST || props.location == SIM_LOCATION_NONE)
		props.id = 0;
	return sim_pool_create(&props, pool);
}

int
simb_do_cuMemPoolDestroy(CUmemoryPool pool)
{
	return sim_pool_destroy(pool);
}

/* ------------------------------------------------------ default, current --- */
int
simb_do_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	int rc = answer_check(pool_out);

	return rc ? rc : sim_pool_default(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, dev, pool_out);
}

int
simb_do_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	int rc = answer_check(pool);

	return rc ? rc : sim_pool_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, dev, pool);
}

int
simb_do_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	return sim_pool_set_current(SIM_POOL_PINNED, SIM_LOCATION_DEVICE, dev, pool);
}

/* NOLINTBEGIN(readability-non-const-parameter): the prototypes are cuda.h's */
int
simb_do_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
			       CUmemAllocationType type)
{
	int rc = answer_check(pool_out);

	if (!rc)
		rc = answer_check(location);
	return rc ? rc : sim_pool_default((int)type, (int)location->type, location->id, pool_out);
}

int
simb_do_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	int rc = answer_check(pool);

	if (!rc)
		rc = answer_check(location);
	return rc ? rc : sim_pool_current((int)type, (int)location->type, location->id, pool);
}

int
simb_do_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	int rc = answer_check(location);

	return rc ? rc : sim_pool_set_current((int)type, (int)location->type, location->id, pool);
}

/* ------------------------------------------------------------ attributes --- */
static bool
is_wide(CUmemPool_attribute attr)
{
	return (attr >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD &&
		attr <= CU_MEMPOOL_ATTR_USED_MEM_HIGH) ||
	       attr == CU_MEMPOOL_ATTR_MAX_POOL_SIZE;
}

int
simb_do_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	uint64_t got;
	int rc = answer_check(value);

	if (!rc && attr > CU_MEMPOOL_ATTR_USED_MEM_HIGH &&
	    simb_knobs()->driver_version < ATTRIBUTES_OF_PROPERTIES)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such attribute in this version");
	if (!rc)
		rc = sim_pool_get(pool, (enum sim_pool_attribute)attr, &got);
	if (!rc)
		memcpy(value, &got, is_wide(attr) ? sizeof(cuuint64_t) : sizeof(int));
	return rc;
}

int
simb_do_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	uint64_t set = 0;
	int rc = answer_check(value);

	if (rc)
		return rc;
	memcpy(&set, value, is_wide(attr) ? sizeof(cuuint64_t) : sizeof(int));
	return sim_pool_set(pool, (enum sim_pool_attribute)attr, set);
}

int
simb_do_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	return sim_pool_trim(pool, minBytesToKeep);
}

/* ---------------------------------------------------------------- access --- */
int
simb_do_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	int rc = count ? answer_check(map) : 0;

	for (size_t i = 0; !rc && i < count; i++) {
		if ((int)map[i].location.type != SIM_LOCATION_DEVICE)
			return simb_misuse(CUDA_ERROR_INVALID_VALUE, "access of no device");
		rc = sim_pool_set_access(pool, map[i].location.id, (unsigned)map[i].flags);
	}
	return rc;
}

int
simb_do_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	unsigned got;
	int rc = answer_check(flags);

	if (!rc)
		rc = answer_check(location);
	if (!rc)
		rc = sim_pool_get_access(memPool, (int)location->type, location->id, &got);
	if (!rc)
		*flags = (CUmemAccess_flags)got;
	return rc;
}

/* ---------------------------------------------------------------- shares --- */
int
simb_do_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
					 CUmemAllocationHandleType handleType,
					 unsigned long long flags)
{
	int rc = answer_check(handle_out);

	if (!rc && flags)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	return rc ? rc : sim_pool_export(pool, (unsigned)handleType, handle_out);
}

/* The descriptor comes in the pointer itself. */
int
simb_do_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
					   CUmemAllocationHandleType handleType,
					   unsigned long long flags)
{
	int rc = answer_check(pool_out);

	if (!rc && flags)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	return rc ? rc : sim_pool_import((int)(intptr_t)handle, (unsigned)handleType, pool_out);
}

int
simb_do_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct sim_pool_share share;
	int rc = answer_check(shareData_out);

	if (!rc)
		rc = sim_pool_export_pointer(ptr, &share);
	if (rc)
		return rc;
	memset(shareData_out, 0, sizeof(*shareData_out));
	memcpy(shareData_out->reserved, &share, sizeof(share));
	return 0;
}

int
simb_do_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
			       CUmemPoolPtrExportData *shareData)
{
	struct sim_pool_share share;
	int rc = answer_check(ptr_out);

	if (!rc)
		rc = answer_check(shareData);
	if (!rc && !simb_knobs()->ipc[0])
		rc = simb_unbuilt("importing a pointer without SIMCUDA_IPC");
	if (rc || !shareData)
		return rc;
	memcpy(&share, shareData->reserved, sizeof(share));
	return sim_pool_import_pointer(pool, &share, ptr_out);
}

/* ---------------------------------------------------------- graph memory --- */
int
simb_do_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			       const CUgraphNode *dependencies, size_t numDependencies,
			       CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	int rc = answer_check(phGraphNode);

	if (!rc)
		rc = answer_check(nodeParams);
	if (rc)
		return rc;
	if ((int)nodeParams->poolProps.location.type != SIM_LOCATION_DEVICE ||
	    (int)nodeParams->poolProps.allocType != SIM_POOL_PINNED ||
	    nodeParams->poolProps.handleTypes)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "not plain memory of a device");
	if (nodeParams->accessDescCount)
		return simb_unbuilt("access of other devices to a graph's memory");
	return sim_graph_add_alloc(hGraph, dependencies, numDependencies,
				   nodeParams->poolProps.location.id, nodeParams->bytesize,
				   phGraphNode, &nodeParams->dptr);
}

int
simb_do_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      CUdeviceptr dptr)
{
	int rc = answer_check(phGraphNode);

	return rc ? rc
		  : sim_graph_add_free(hGraph, dependencies, numDependencies, dptr, phGraphNode);
}

int
simb_do_cuDeviceGraphMemTrim(CUdevice device)
{
	return sim_graph_memory_trim(device);
}

int
simb_do_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	int rc = answer_check(value);

	return rc ? rc : sim_graph_memory_get(device, (enum sim_graph_memory_attribute)attr, value);
}

int
simb_do_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	int rc = answer_check(value);

	if (!rc && *(const cuuint64_t *)value)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "a mark can be reset to 0 only");
	return rc ? rc : sim_graph_memory_reset(device, (enum sim_graph_memory_attribute)attr);
}
/* NOLINTEND(readability-non-const-parameter) */
