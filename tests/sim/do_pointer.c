/* SPDX-License-Identifier: MIT */
/*
 * Bodies: what can be asked about a pointer. One table gives each attribute's size, so that the
 * answer for memory that is not the driver's (all zero, and device -2) needs no second switch.
 * Booleans are written as 32 bits.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"
#include "tests/sim/engine_pool.h"
#include "tests/sim/engine_vmm.h"

enum { ATTRIBUTES = CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL + 1 };

/* Bytes written for each attribute; 0: no such attribute, or not built. */
static const unsigned char sizes[ATTRIBUTES] = {
	[CU_POINTER_ATTRIBUTE_CONTEXT] = 8,
	[CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = 4,
	[CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = 8,
	[CU_POINTER_ATTRIBUTE_HOST_POINTER] = 8,
	[CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = 4,
	[CU_POINTER_ATTRIBUTE_BUFFER_ID] = 8,
	[CU_POINTER_ATTRIBUTE_IS_MANAGED] = 4,
	[CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = 4,
	[CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = 4,
	[CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = 8,
	[CU_POINTER_ATTRIBUTE_RANGE_SIZE] = 8,
	[CU_POINTER_ATTRIBUTE_MAPPED] = 4,
	[CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = 8,
	[CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = 4,
	[CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = 8,
	[CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = 8,
	[CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = 8,
	[CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = 8,
	[CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = 8,
	[CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = 4,
	[CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL] = 4,
};

static bool
legacy_ipc(const struct sim_mem_info *info)
{
	return info->kind == SIM_MEM_DEVICE || info->kind == SIM_MEM_PITCH;
}

/* Of the current context's device: a pool says who reaches its memory. */
static unsigned
access_flags(const struct sim_mem_info *info)
{
	unsigned flags = SIM_ACCESS_ALL;
	int device;

	if (info->kind == SIM_MEM_MAPPED && !sim_ctx_get_device(&device))
		sim_range_get_access(info->base, device, &flags);

	if (info->kind == SIM_MEM_POOL && info->pool && !sim_ctx_get_device(&device))
		sim_pool_get_access(info->pool, SIM_LOCATION_DEVICE, device, &flags);
	return flags;
}

/* Attributes that differ for mapped memory: a range is the reservation, a mapping one mapping. */
static uint64_t
mapped_value(int attribute, CUdeviceptr ptr)
{
	struct sim_mapping_info mapping = { 0 };

	sim_mapping_lookup(ptr, &mapping);
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return mapping.range;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return mapping.n_range;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return mapping.handle_types;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return mapping.rdma;
	default:
		return mapping.phys_id;
	}
}

static bool
is_of_mappings(int attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
	       attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
	       attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES ||
	       attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE ||
	       attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
}

/* The attribute as a number of at most 8 bytes (little-endian,
 * so 4-byte attributes are its low half). */
static uint64_t
attribute_value(const struct sim_mem_info *info, int attribute, CUdeviceptr ptr)
{
	bool host = info->kind == SIM_MEM_HOST;

	if (info->kind == SIM_MEM_MAPPED && is_of_mappings(attribute))
		return mapped_value(attribute, ptr);
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return (uintptr_t)info->ctx; /* none: memory of a pool, mapped memory */
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return ptr;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return host || info->kind == SIM_MEM_MANAGED ? ptr : 0;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return info->sync_memops;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return info->id;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return info->kind == SIM_MEM_MANAGED;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return (uint64_t)info->device;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return legacy_ipc(info);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		return info->base;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		return info->n_bytes;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return 1;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return access_flags(info);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return (uintptr_t)info->pool;
	case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
		return UINT32_MAX; /* -1: in none */
	default:
		return 0;
	}
}

/* NULL info: memory that is not the driver's. */
static int
attribute_write(void *data, int attribute, const struct sim_mem_info *info, CUdeviceptr ptr)
{
	uint64_t value =
		attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)CU_DEVICE_INVALID : 0;

	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return simb_unbuilt("CU_POINTER_ATTRIBUTE_P2P_TOKENS");
	if (attribute < 0 || attribute >= ATTRIBUTES || !sizes[attribute] || !data)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "no such attribute, or no place for it");
	if (info)
		value = attribute_value(info, attribute, ptr);
	memcpy(data, &value, sizes[attribute]);
	return 0;
}

int
simb_do_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_mem_info info;
	int rc = sim_mem_lookup(ptr, &info);

	if (rc)
		return rc;
	if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && info.kind != SIM_MEM_HOST &&
	    info.kind != SIM_MEM_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	return attribute_write(data, (int)attribute, &info, ptr);
}

int
simb_do_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
			       void **data, CUdeviceptr ptr)
{
	struct sim_mem_info info;
	bool known;

	if (!numAttributes || !attributes || !data)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no attributes");
	known = !sim_mem_lookup(ptr, &info);
	for (unsigned i = 0; i < numAttributes; i++) {
		int rc = attribute_write(data[i], (int)attributes[i], known ? &info : NULL, ptr);

		if (rc)
			return rc;
	}
	return 0;
}

int
simb_do_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "only SYNC_MEMOPS can be set");
	return sim_mem_set_sync_memops(ptr, *(const unsigned *)value);
}

int
simb_do_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct sim_mem_info info;
	int rc = sim_mem_lookup(dptr, &info);

	if (rc)
		return rc == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_NOT_FOUND : rc;
	if (pbase)
		*pbase = info.base;
	if (psize)
		*psize = info.n_bytes;
	return 0;
}

/* The handle is unique for each allocation, as natively. */
int
simb_do_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct sim_mem_info info;
	struct sim_ipc ipc;
	int rc = pHandle ? sim_mem_lookup(dptr, &info) : CUDA_ERROR_INVALID_VALUE;

	if (rc)
		return rc;
	if (info.base != dptr || !legacy_ipc(&info))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "not the base of cuMemAlloc memory");
	rc = sim_ipc_export(dptr, &ipc);
	if (rc)
		return rc;
	memset(pHandle->reserved, 0, sizeof(pHandle->reserved));
	memcpy(pHandle->reserved, &ipc, sizeof(ipc));
	return 0;
}

int
simb_do_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct sim_ipc ipc;

	if (!simb_knobs()->ipc[0])
		return simb_unbuilt("opening memory without SIMCUDA_IPC");
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "flags must be LAZY_ENABLE_PEER_ACCESS");
	memcpy(&ipc, handle.reserved, sizeof(ipc));
	if (ipc.device < 0 || ipc.device >= sim_device_count() || !ipc.n_bytes)
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a handle of memory");
	return sim_ipc_open(&ipc, pdptr);
}

int
simb_do_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	return sim_ipc_close(dptr);
}
