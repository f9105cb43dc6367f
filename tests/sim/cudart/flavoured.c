/* SPDX-License-Identifier: MIT */
/*
 * Calls whose default stream depends on how the program was compiled. This file is compiled twice:
 * plainly, and with CUDA_API_PER_THREAD_DEFAULT_STREAM, by which the header renames each of these
 * functions to its _ptds or _ptsz twin and the driver's twin is called.
 */
#include "tests/sim/cudart/state.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define PTDS(symbol) symbol##_ptds
#define PTSZ(symbol) symbol##_ptsz
#else
#define PTDS(symbol) symbol
#define PTSZ(symbol) symbol
#endif
/* The twin's name is made before SIM_RT_CALL looks at it. */
#define CALL(driver, ...) SIM_RT_CALL(driver, __VA_ARGS__)

SIM_RT_EXPORT cudaError_t
cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);
	CUdeviceptr ptr = 0;

	if (code == cudaSuccess && !devPtr)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess && size)
		code = CALL(drv, PTSZ(cuMemAllocAsync), &ptr, size, hStream);
	if (code == cudaSuccess)
		*devPtr = (void *)(uintptr_t)ptr;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);
	CUdeviceptr memory = 0;

	if (code == cudaSuccess && !ptr)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess && size)
		code = CALL(drv, PTSZ(cuMemAllocFromPoolAsync), &memory, size, memPool, stream);
	if (code == cudaSuccess)
		*ptr = (void *)(uintptr_t)memory;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = CALL(drv, PTSZ(cuMemFreeAsync), (uintptr_t)devPtr, hStream);
	return sim_rt_error_note(code);
}

static cudaError_t
copy(const struct sim_rt_driver *drv, void *dst, const void *src, size_t n,
     enum cudaMemcpyKind kind)
{
	CUdeviceptr to = (uintptr_t)dst, from = (uintptr_t)src;

	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CALL(drv, PTDS(cuMemcpyHtoD_v2), to, src, n);
	case cudaMemcpyDeviceToHost:
		return CALL(drv, PTDS(cuMemcpyDtoH_v2), dst, from, n);
	case cudaMemcpyDeviceToDevice:
		return CALL(drv, PTDS(cuMemcpyDtoD_v2), to, from, n);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return CALL(drv, PTDS(cuMemcpy), to, from, n);
	}
	return cudaErrorInvalidMemcpyDirection;
}

static cudaError_t
copy_async(const struct sim_rt_driver *drv, void *dst, const void *src, size_t n,
	   enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUdeviceptr to = (uintptr_t)dst, from = (uintptr_t)src;

	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CALL(drv, PTSZ(cuMemcpyHtoDAsync_v2), to, src, n, stream);
	case cudaMemcpyDeviceToHost:
		return CALL(drv, PTSZ(cuMemcpyDtoHAsync_v2), dst, from, n, stream);
	case cudaMemcpyDeviceToDevice:
		return CALL(drv, PTSZ(cuMemcpyDtoDAsync_v2), to, from, n, stream);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return CALL(drv, PTSZ(cuMemcpyAsync), to, from, n, stream);
	}
	return cudaErrorInvalidMemcpyDirection;
}

SIM_RT_EXPORT cudaError_t
cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess && count)
		code = copy(drv, dst, src, count, kind);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
		cudaStream_t stream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess && count)
		code = copy_async(drv, dst, src, count, kind, stream);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemset(void *devPtr, int value, size_t count)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess && count)
		code = CALL(drv, PTDS(cuMemsetD8_v2), (uintptr_t)devPtr, (unsigned char)value,
			    count);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess && count)
		code = CALL(drv, PTSZ(cuMemsetD8Async), (uintptr_t)devPtr, (unsigned char)value,
			    count, stream);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = CALL(drv, PTSZ(cuStreamSynchronize), stream);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = CALL(drv, PTSZ(cuStreamWaitEvent), stream, event, flags);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = CALL(drv, PTSZ(cuEventRecord), event, stream);
	return sim_rt_error_note(code);
}
