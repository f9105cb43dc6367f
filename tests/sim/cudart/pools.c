/* SPDX-License-Identifier: MIT */
/* Memory pools, which are the driver's own: only devices and errors are the runtime's. */
#include "tests/sim/cudart/state.h"

SIM_RT_EXPORT cudaError_t
cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemPoolCreate, memPool, poolProps);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemPoolDestroy(cudaMemPool_t memPool)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemPoolDestroy, memPool);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemPoolSetAttribute, memPool, attr, value);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemPoolGetAttribute, memPool, attr, value);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuMemPoolTrimTo, memPool, minBytesToKeep);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuDeviceGetDefaultMemPool, memPool, device);
	return sim_rt_error_note(code);
}
