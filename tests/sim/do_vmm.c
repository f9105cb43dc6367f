/* SPDX-License-Identifier: MIT */
/*
 * Bodies: virtual memory management. A CUmemGenericAllocationHandle is the engine's. Memory of
 * devices alone is modelled; not that of the host, fabric handles, or pools of tiles.
 */
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine_pool.h"
#include "tests/sim/engine_vmm.h"

static int
answer_check(const void *answer)
{
	return answer ? 0 : simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
}

static int
flags_check(unsigned long long flags)
{
	return flags ? simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0") : 0;
}

/* ---------------------------------------------------------------- memory --- */
/* The memory that the properties ask for, but for its size. */
static int
props_read(const CUmemAllocationProp *prop, struct sim_phys_info *ret_info)
{
	unsigned types = (unsigned)prop->requestedHandleTypes;

	if (simb_knobs()->no_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((int)prop->type != SIM_POOL_PINNED)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "not pinned memory");
	if ((int)prop->location.type == SIM_LOCATION_HOST ||
	    (int)prop->location.type == SIM_LOCATION_NUMA)
		return simb_unbuilt("memory of the host");
	if ((int)prop->location.type != SIM_LOCATION_DEVICE)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no location");
	if (prop->location.id < 0 || prop->location.id >= sim_device_count())
		return simb_misuse(CUDA_ERROR_INVALID_DEVICE, "no such device");
	if (types & ~(unsigned)SIM_POOL_FD)
		return simb_unbuilt("another handle type than a file descriptor");
	if (prop->win32HandleMetaData || prop->allocFlags.compressionType > 1)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such properties");
	if (prop->allocFlags.gpuDirectRDMACapable && !simb_knobs()->rdma)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->allocFlags.usage)
		return simb_unbuilt("memory for tiles");
	*ret_info = (struct sim_phys_info){ prop->location.id, 0, types,
					    prop->allocFlags.compressionType,
					    prop->allocFlags.gpuDirectRDMACapable };
	return 0;
}

int
simb_do_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				      CUmemAllocationGranularity_flags option)
{
	struct sim_phys_info info;
	int rc = answer_check(granularity);

	if (!rc)
		rc = answer_check(prop);
	if (!rc && (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such granularity");
	if (!rc)
		rc = props_read(prop, &info);
	if (!rc)
		*granularity = SIM_VMM_GRANULARITY;
	return rc;
}

int
simb_do_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		    const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sim_phys_info info;
	int rc = answer_check(handle);

	if (!rc)
		rc = answer_check(prop);
	if (!rc)
		rc = flags_check(flags);
	if (!rc)
		rc = props_read(prop, &info);
	if (rc)
		return rc;
	info.n_bytes = size;
	rc = sim_phys_create(&info, handle);
	if (!rc)
		simb_charge(size);
	return rc;
}

int
simb_do_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return sim_phys_release(handle);
}

int
simb_do_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	int rc = answer_check(handle);

	return rc ? rc : sim_phys_retain((uintptr_t)addr, handle);
}

int
simb_do_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
					       CUmemGenericAllocationHandle handle)
{
	struct sim_phys_info info;
	int rc = answer_check(prop);

	if (!rc)
		rc = sim_phys_look(handle, &info);
	if (rc)
		return rc;
	memset(prop, 0, sizeof(*prop));
	prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop->requestedHandleTypes = (CUmemAllocationHandleType)info.handle_types;
	prop->location = (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, info.device };
	return 0; /* asked for or not, nothing is compressed */
}

/* The descriptor is written to the answer, and comes back in the pointer itself. */
int
simb_do_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
				     CUmemAllocationHandleType handleType, unsigned long long flags)
{
	int rc = answer_check(shareableHandle);

	if (!rc)
		rc = flags_check(flags);
	if (!rc && (int)handleType != SIM_POOL_FD)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "not a file descriptor");
	return rc ? rc : sim_phys_export(handle, shareableHandle);
}

int
simb_do_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
				       CUmemAllocationHandleType shHandleType)
{
	int rc = answer_check(handle);

	if (!rc && (int)shHandleType != SIM_POOL_FD)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "not a file descriptor");
	return rc ? rc : sim_phys_import((int)(intptr_t)osHandle, handle);
}

/* ------------------------------------------------------------- addresses --- */
int
simb_do_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			    unsigned long long flags)
{
	int rc = answer_check(ptr);

	if (!rc)
		rc = flags_check(flags);
	if (!rc && simb_knobs()->no_vmm)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	return rc ? rc : sim_range_reserve(size, alignment, addr, ptr);
}

int
simb_do_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	return sim_range_free(ptr, size);
}

int
simb_do_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		 unsigned long long flags)
{
	int rc = flags_check(flags);

	return rc ? rc : sim_range_map(ptr, size, offset, handle);
}

int
simb_do_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	return sim_range_unmap(ptr, size);
}

/* ---------------------------------------------------------------- access --- */
int
simb_do_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	int rc = count ? answer_check(desc)
		       : simb_misuse(CUDA_ERROR_INVALID_VALUE, "access of nobody");

	for (size_t i = 0; !rc && i < count; i++) {
		if ((int)desc[i].location.type != SIM_LOCATION_DEVICE)
			return simb_unbuilt("access of another location than a device");
		rc = sim_range_set_access(ptr, size, desc[i].location.id, (unsigned)desc[i].flags);
	}
	return rc;
}

int
simb_do_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	unsigned got;
	int rc = answer_check(flags);

	if (!rc)
		rc = answer_check(location);
	if (!rc && (int)location->type != SIM_LOCATION_DEVICE)
		rc = simb_unbuilt("access of another location than a device");
	if (!rc)
		rc = sim_range_get_access(ptr, location->id, &got);
	if (!rc)
		*flags = got;
	return rc;
}
