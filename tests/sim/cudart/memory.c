/* SPDX-License-Identifier: MIT */
/*
 * Allocation as the real runtime does it above the driver: a size of zero succeeds with NULL and
 * frees of NULL succeed, both without asking the driver for memory (the driver itself refuses zero
 * bytes), yet both initialise. Outputs are untouched on failure.
 */
#include "tests/sim/cudart/state.h"

#include <string.h>

/* Common beginning: context, then the argument check; `code` != success: leave. */
static cudaError_t
begin(const struct sim_rt_driver **ret_driver, int arguments_valid)
{
	cudaError_t code = sim_rt_context_enter(ret_driver);

	return code == cudaSuccess && !arguments_valid ? cudaErrorInvalidValue : code;
}

static cudaError_t
end(cudaError_t code, void **out, CUdeviceptr ptr)
{
	if (code == cudaSuccess)
		*out = (void *)(uintptr_t)ptr;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMalloc(void **devPtr, size_t size)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, devPtr != NULL);
	CUdeviceptr ptr = 0;

	if (code == cudaSuccess && size)
		code = SIM_RT_CALL(drv, cuMemAlloc_v2, &ptr, size);
	return end(code, devPtr, ptr);
}

SIM_RT_EXPORT cudaError_t
cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, devPtr && pitch);
	size_t row_bytes = 0;
	CUdeviceptr ptr = 0;

	if (code == cudaSuccess && width && height)
		code = SIM_RT_CALL(drv, cuMemAllocPitch_v2, &ptr, &row_bytes, width, height, 4);
	if (code == cudaSuccess)
		*pitch = row_bytes;
	return end(code, devPtr, ptr);
}

SIM_RT_EXPORT cudaError_t
cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, devPtr && size);
	CUdeviceptr ptr = 0;

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemAllocManaged, &ptr, size, flags);
	return end(code, devPtr, ptr);
}

SIM_RT_EXPORT cudaError_t
cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, pHost != NULL);
	void *host = NULL;

	if (code == cudaSuccess && size)
		code = SIM_RT_CALL(drv, cuMemHostAlloc, &host, size, flags);
	return end(code, pHost, (uintptr_t)host);
}

SIM_RT_EXPORT cudaError_t
cudaMallocHost(void **ptr, size_t size)
{
	return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

SIM_RT_EXPORT cudaError_t
cudaFree(void *devPtr)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, 1);

	if (code == cudaSuccess && devPtr)
		code = SIM_RT_CALL(drv, cuMemFree_v2, (uintptr_t)devPtr);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaFreeHost(void *ptr)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, 1);

	if (code == cudaSuccess && ptr)
		code = SIM_RT_CALL(drv, cuMemFreeHost, ptr);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemGetInfo(size_t *free, size_t *total)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, 1);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemGetInfo_v2, free, total);
	return sim_rt_error_note(code);
}

enum {
	DRIVER_MEMORY_HOST = 1,   /* CU_MEMORYTYPE_HOST */
	DRIVER_MEMORY_DEVICE = 2, /* CU_MEMORYTYPE_DEVICE */
};

static enum cudaMemoryType
memory_type(unsigned driver_type, unsigned managed)
{
	if (managed)
		return cudaMemoryTypeManaged;
	if (driver_type == DRIVER_MEMORY_DEVICE)
		return cudaMemoryTypeDevice;
	return driver_type == DRIVER_MEMORY_HOST ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
}

SIM_RT_EXPORT cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = begin(&drv, attributes != NULL);
	struct cudaPointerAttributes answer;
	unsigned driver_type = 0, managed = 0;
	CUpointer_attribute wanted[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		CU_POINTER_ATTRIBUTE_HOST_POINTER,
	};
	void *data[] = { &driver_type, &managed, &answer.device, &answer.devicePointer,
			 &answer.hostPointer };

	memset(&answer, 0, sizeof(answer));
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuPointerGetAttributes, 5, wanted, data, (uintptr_t)ptr);
	if (code != cudaSuccess)
		return sim_rt_error_note(code);
	answer.type = memory_type(driver_type, managed & 0xff);
	if (answer.type == cudaMemoryTypeUnregistered) {
		answer.device = cudaInvalidDeviceId;
		answer.devicePointer = NULL;
		answer.hostPointer = (void *)(uintptr_t)ptr;
	}
	*attributes = answer;
	return cudaSuccess;
}
