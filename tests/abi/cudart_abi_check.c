/* SPDX-License-Identifier: MIT */
/*
 * The stand-in runtime's header against the toolkit's. Both define the same names, so no source can
 * include both: this one is compiled twice, against the toolkit's header with -DCUDART_ABI_TOOLKIT
 * and against ours without, and each time yields a table of sizes, offsets and values; main()
 * compares the two. Prototypes and error codes are compared by the compiler, from api.def and
 * errors.def.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef CUDART_ABI_TOOLKIT
#include <cuda_runtime_api.h>
#define TABLE cudart_abi_toolkit
#else
#include "tests/sim/cudart/cudart_abi.h"
#define TABLE cudart_abi_ours
#endif

struct row {
	const char *name;
	long long value;
};
extern const struct row cudart_abi_toolkit[], cudart_abi_ours[];

/* A list like this sends clang-format ever further to the right. */
/* clang-format off */
#define DEVICE_PROP_FIELDS(FIELD) \
	FIELD(name) FIELD(uuid) FIELD(luid) FIELD(luidDeviceNodeMask) FIELD(totalGlobalMem) \
	FIELD(sharedMemPerBlock) FIELD(regsPerBlock) FIELD(warpSize) FIELD(memPitch) \
	FIELD(maxThreadsPerBlock) FIELD(maxThreadsDim) FIELD(maxGridSize) FIELD(totalConstMem) \
	FIELD(major) FIELD(minor) FIELD(textureAlignment) FIELD(texturePitchAlignment) \
	FIELD(multiProcessorCount) FIELD(integrated) FIELD(canMapHostMemory) FIELD(maxTexture1D) \
	FIELD(maxTexture1DMipmap) FIELD(maxTexture2D) FIELD(maxTexture2DMipmap) \
	FIELD(maxTexture2DLinear) FIELD(maxTexture2DGather) FIELD(maxTexture3D) \
	FIELD(maxTexture3DAlt) FIELD(maxTextureCubemap) FIELD(maxTexture1DLayered) \
	FIELD(maxTexture2DLayered) FIELD(maxTextureCubemapLayered) FIELD(maxSurface1D) \
	FIELD(maxSurface2D) FIELD(maxSurface3D) FIELD(maxSurface1DLayered) \
	FIELD(maxSurface2DLayered) FIELD(maxSurfaceCubemap) FIELD(maxSurfaceCubemapLayered) \
	FIELD(surfaceAlignment) FIELD(concurrentKernels) FIELD(ECCEnabled) FIELD(pciBusID) \
	FIELD(pciDeviceID) FIELD(pciDomainID) FIELD(tccDriver) FIELD(asyncEngineCount) \
	FIELD(unifiedAddressing) FIELD(memoryBusWidth) FIELD(l2CacheSize) \
	FIELD(persistingL2CacheMaxSize) FIELD(maxThreadsPerMultiProcessor) \
	FIELD(streamPrioritiesSupported) FIELD(globalL1CacheSupported) \
	FIELD(localL1CacheSupported) FIELD(sharedMemPerMultiprocessor) \
	FIELD(regsPerMultiprocessor) FIELD(managedMemory) FIELD(isMultiGpuBoard) \
	FIELD(multiGpuBoardGroupID) FIELD(hostNativeAtomicSupported) FIELD(pageableMemoryAccess) \
	FIELD(concurrentManagedAccess) FIELD(computePreemptionSupported) \
	FIELD(canUseHostPointerForRegisteredMem) FIELD(cooperativeLaunch) \
	FIELD(sharedMemPerBlockOptin) FIELD(pageableMemoryAccessUsesHostPageTables) \
	FIELD(directManagedMemAccessFromHost) FIELD(maxBlocksPerMultiProcessor) \
	FIELD(accessPolicyMaxWindowSize) FIELD(reservedSharedMemPerBlock) \
	FIELD(hostRegisterSupported) FIELD(sparseCudaArraySupported) \
	FIELD(hostRegisterReadOnlySupported) FIELD(timelineSemaphoreInteropSupported) \
	FIELD(memoryPoolsSupported) FIELD(gpuDirectRDMASupported) \
	FIELD(gpuDirectRDMAFlushWritesOptions) FIELD(gpuDirectRDMAWritesOrdering) \
	FIELD(memoryPoolSupportedHandleTypes) FIELD(deferredMappingCudaArraySupported) \
	FIELD(ipcEventSupported) FIELD(clusterLaunch) FIELD(unifiedFunctionPointers) \
	FIELD(deviceNumaConfig) FIELD(deviceNumaId) FIELD(mpsEnabled) FIELD(hostNumaId) \
	FIELD(gpuPciDeviceID) FIELD(gpuPciSubsystemID) FIELD(hostNumaMultinodeIpcSupported) \
	FIELD(reserved)
/* clang-format on */

/* clang-format off */
#define POOL_ROWS \
	SIZE(struct cudaMemPoolProps) OFFSET(struct cudaMemPoolProps, allocType) \
	OFFSET(struct cudaMemPoolProps, handleTypes) OFFSET(struct cudaMemPoolProps, location.type) \
	OFFSET(struct cudaMemPoolProps, location.id) OFFSET(struct cudaMemPoolProps, maxSize) \
	OFFSET(struct cudaMemPoolProps, usage) OFFSET(struct cudaMemPoolProps, reserved) \
	VALUE(cudaMemPoolReuseFollowEventDependencies) VALUE(cudaMemPoolAttrReleaseThreshold) \
	VALUE(cudaMemPoolAttrUsedMemCurrent) VALUE(cudaDevAttrMaxThreadsPerBlock) \
	VALUE(cudaDevAttrMemoryPoolsSupported) VALUE(cudaHostAllocDefault)
/* clang-format on */

#define SIZE(type) { "sizeof " #type, sizeof(type) },
#define VALUE(constant) { #constant, (long long)(constant) },
#define OFFSET(type, field) { #type "." #field, offsetof(type, field) },
#define PROP(field)                                                                                \
	OFFSET(struct cudaDeviceProp, field){ "sizeof cudaDeviceProp." #field,                     \
					      sizeof(((struct cudaDeviceProp *)0)->field) },

const struct row TABLE[] = {
	SIZE(cudaError_t) SIZE(enum cudaMemcpyKind) SIZE(enum cudaMemoryType) SIZE(
		struct cudaPointerAttributes) OFFSET(struct cudaPointerAttributes,
						     type) OFFSET(struct cudaPointerAttributes,
								  device)
		OFFSET(struct cudaPointerAttributes, devicePointer) OFFSET(
			struct cudaPointerAttributes,
			hostPointer) OFFSET(struct cudaPointerAttributes,
					    reserved) SIZE(struct
							   cudaDeviceProp) DEVICE_PROP_FIELDS(PROP)
			VALUE(cudaStreamDefault) VALUE(cudaStreamNonBlocking) VALUE(
				cudaEventDefault) VALUE(cudaEventBlockingSync)
				VALUE(cudaEventDisableTiming) VALUE(cudaMemAttachGlobal) VALUE(
					cudaMemAttachHost) VALUE(cudaInvalidDeviceId)
					VALUE(cudaMemcpyHostToHost) VALUE(
						cudaMemcpyHostToDevice) VALUE(cudaMemcpyDeviceToHost)
						VALUE(cudaMemcpyDeviceToDevice) VALUE(
							cudaMemcpyDefault)
							VALUE(cudaMemoryTypeUnregistered) VALUE(
								cudaMemoryTypeHost)
								VALUE(cudaMemoryTypeDevice) VALUE(
									cudaMemoryTypeManaged){
									"cudaStreamLegacy",
									(long long)(size_t)
										cudaStreamLegacy },
	{ "cudaStreamPerThread", (long long)(size_t)cudaStreamPerThread },
	POOL_ROWS{ NULL, 0 },
};

#define SIM_RT_ERROR(name, code, text) _Static_assert((int)(name) == (code), #name);
#include "tests/sim/cudart/errors.def"
#undef SIM_RT_ERROR

#define SIM_RT_API(name, params)                                                                   \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), cudaError_t(*) params),     \
		       "prototype of " #name);
#include "tests/sim/cudart/api.def"
#undef SIM_RT_API

#ifndef CUDART_ABI_TOOLKIT
int
main(void)
{
	int i, differ = 0;

	for (i = 0; cudart_abi_ours[i].name; i++) {
		if (cudart_abi_ours[i].value == cudart_abi_toolkit[i].value)
			continue;
		printf("%s: ours %lld, toolkit %lld\n", cudart_abi_ours[i].name,
		       cudart_abi_ours[i].value, cudart_abi_toolkit[i].value);
		differ++;
	}
	printf("%d compared, %d differ\n", i, differ);
	return differ != 0;
}
#endif
