/* SPDX-License-Identifier: MIT */
/*
 * Devices and versions. Properties come from the driver's attributes; one that the driver does not
 * know (it answers CUDA_ERROR_INVALID_VALUE, as a driver older than the attribute does) stays 0.
 */
#include "tests/sim/cudart/state.h"

#include <string.h>

SIM_RT_EXPORT cudaError_t
cudaGetDeviceCount(int *count)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);
	int n = 0;

	if (code == cudaSuccess && !count)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDeviceGetCount, &n);
	if (code == cudaSuccess && n == 0)
		code = cudaErrorNoDevice;
	if (code == cudaSuccess)
		*count = n;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaGetDevice(int *device)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);

	if (code == cudaSuccess)
		code = device ? sim_rt_device_get(drv, device) : cudaErrorInvalidValue;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaSetDevice(int device)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);

	if (code == cudaSuccess)
		code = sim_rt_device_set(drv, device);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaDeviceReset(void)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);

	if (code == cudaSuccess)
		code = sim_rt_device_reset(drv);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaDeviceSynchronize(void)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = drv->cuCtxSynchronize ? sim_rt_error_from_driver(drv->cuCtxSynchronize())
					     : cudaErrorCallRequiresNewerDriver;
	return sim_rt_error_note(code);
}

/* The driver's numbers; which it does not know is its to say. */
SIM_RT_EXPORT cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);
	int found = 0;

	if (code == cudaSuccess && !value)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDeviceGetAttribute, &found, (int)attr, device);
	if (code == cudaSuccess)
		*value = found;
	return sim_rt_error_note(code);
}

/* Needs no device: 0 where there is no driver. */
SIM_RT_EXPORT cudaError_t
cudaDriverGetVersion(int *driverVersion)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = driverVersion ? cudaSuccess : cudaErrorInvalidValue;
	int version = 0;

	if (code == cudaSuccess && sim_rt_driver_find(&drv) == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDriverGetVersion, &version);
	if (code == cudaSuccess)
		*driverVersion = version;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaRuntimeGetVersion(int *runtimeVersion)
{
	if (!runtimeVersion)
		return sim_rt_error_note(cudaErrorInvalidValue);
	*runtimeVersion = SIM_RT_VERSION;
	return cudaSuccess;
}

/* ---------------------------------------------------------- properties --- */

/* PROPERTY(field, number):
 * `number` is the CU_DEVICE_ATTRIBUTE_* of cuda.h 13.0 that fills the field. */
#define PROPERTIES(PROPERTY)                                                                       \
	PROPERTY(maxThreadsPerBlock, 1)                                                            \
	PROPERTY(maxThreadsDim[0], 2)                                                              \
	PROPERTY(maxThreadsDim[1], 3)                                                              \
	PROPERTY(maxThreadsDim[2], 4)                                                              \
	PROPERTY(maxGridSize[0], 5)                                                                \
	PROPERTY(maxGridSize[1], 6)                                                                \
	PROPERTY(maxGridSize[2], 7)                                                                \
	PROPERTY(sharedMemPerBlock, 8)                                                             \
	PROPERTY(totalConstMem, 9)                                                                 \
	PROPERTY(warpSize, 10)                                                                     \
	PROPERTY(memPitch, 11)                                                                     \
	PROPERTY(regsPerBlock, 12)                                                                 \
	PROPERTY(textureAlignment, 14)                                                             \
	PROPERTY(multiProcessorCount, 16)                                                          \
	PROPERTY(integrated, 18)                                                                   \
	PROPERTY(canMapHostMemory, 19)                                                             \
	PROPERTY(surfaceAlignment, 30)                                                             \
	PROPERTY(concurrentKernels, 31)                                                            \
	PROPERTY(ECCEnabled, 32)                                                                   \
	PROPERTY(pciBusID, 33)                                                                     \
	PROPERTY(pciDeviceID, 34)                                                                  \
	PROPERTY(tccDriver, 35)                                                                    \
	PROPERTY(memoryBusWidth, 37)                                                               \
	PROPERTY(l2CacheSize, 38)                                                                  \
	PROPERTY(maxThreadsPerMultiProcessor, 39)                                                  \
	PROPERTY(asyncEngineCount, 40)                                                             \
	PROPERTY(unifiedAddressing, 41)                                                            \
	PROPERTY(pciDomainID, 50)                                                                  \
	PROPERTY(texturePitchAlignment, 51)                                                        \
	PROPERTY(major, 75)                                                                        \
	PROPERTY(minor, 76)                                                                        \
	PROPERTY(streamPrioritiesSupported, 78)                                                    \
	PROPERTY(sharedMemPerMultiprocessor, 81)                                                   \
	PROPERTY(regsPerMultiprocessor, 82)                                                        \
	PROPERTY(managedMemory, 83)                                                                \
	PROPERTY(pageableMemoryAccess, 88)                                                         \
	PROPERTY(concurrentManagedAccess, 89)                                                      \
	PROPERTY(cooperativeLaunch, 95)                                                            \
	PROPERTY(sharedMemPerBlockOptin, 97)                                                       \
	PROPERTY(maxBlocksPerMultiProcessor, 106)                                                  \
	PROPERTY(reservedSharedMemPerBlock, 111)                                                   \
	PROPERTY(memoryPoolsSupported, 115)                                                        \
	PROPERTY(gpuDirectRDMASupported, 116)                                                      \
	PROPERTY(memoryPoolSupportedHandleTypes, 119)                                              \
	PROPERTY(clusterLaunch, 120)                                                               \
	PROPERTY(ipcEventSupported, 125)

static cudaError_t
attribute_get(const struct sim_rt_driver *drv, int attribute, int device, int *ret_value)
{
	cudaError_t code = SIM_RT_CALL(drv, cuDeviceGetAttribute, ret_value, attribute, device);

	if (code == cudaErrorInvalidValue) {
		*ret_value = 0;
		code = cudaSuccess;
	}
	return code;
}

static cudaError_t
properties_get(const struct sim_rt_driver *drv, int device, struct cudaDeviceProp *prop)
{
	cudaError_t code =
		SIM_RT_CALL(drv, cuDeviceGetName, prop->name, sizeof(prop->name), device);
	CUuuid uuid;
	int value;

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDeviceTotalMem_v2, &prop->totalGlobalMem, device);
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDeviceGetUuid, &uuid, device);
	if (code == cudaSuccess)
		memcpy(prop->uuid, uuid.bytes, sizeof(prop->uuid));
#define PROPERTY(field, number)                                                                    \
	if (code == cudaSuccess)                                                                   \
		code = attribute_get(drv, number, device, &value);                                 \
	if (code == cudaSuccess)                                                                   \
		prop->field = value;
	PROPERTIES(PROPERTY)
#undef PROPERTY
	return code;
}

SIM_RT_EXPORT cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);
	struct cudaDeviceProp answer;
	CUdevice handle;

	if (code == cudaSuccess && !prop)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDeviceGet, &handle, device);
	memset(&answer, 0, sizeof(answer));
	if (code == cudaSuccess)
		code = properties_get(drv, handle, &answer);
	if (code == cudaSuccess)
		*prop = answer;
	return sim_rt_error_note(code);
}
