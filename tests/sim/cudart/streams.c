/* SPDX-License-Identifier: MIT */
/*
 * Streams and events, as far as they do not depend on which default stream is meant (flavoured.c
 * has the others).
 */
#include "tests/sim/cudart/state.h"

SIM_RT_EXPORT cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);
	CUstream stream;

	if (code == cudaSuccess && !pStream)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuStreamCreate, &stream, flags);
	if (code == cudaSuccess)
		*pStream = stream;
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaStreamCreate(cudaStream_t *pStream)
{
	return cudaStreamCreateWithFlags(pStream, cudaStreamDefault);
}

SIM_RT_EXPORT cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuStreamDestroy_v2, stream);
	return sim_rt_error_note(code);
}

SIM_RT_EXPORT cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_context_enter(&drv);
	CUevent made;

	if (code == cudaSuccess && !event)
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuEventCreate, &made, flags);
	if (code == cudaSuccess)
		*event = made;
	return sim_rt_error_note(code);
}

/* cudaErrorNotReady is noted too:
 * programs that poll have to take it with cudaGetLastError, as natively. */
#define EVENT_CALL(name, symbol)                                                                   \
	SIM_RT_EXPORT cudaError_t name(cudaEvent_t event)                                          \
	{                                                                                          \
		const struct sim_rt_driver *drv;                                                   \
		cudaError_t code = sim_rt_context_enter(&drv);                                     \
                                                                                                   \
		if (code == cudaSuccess)                                                           \
			code = SIM_RT_CALL(drv, symbol, event);                                    \
		return sim_rt_error_note(code);                                                    \
	}

EVENT_CALL(cudaEventQuery, cuEventQuery)
EVENT_CALL(cudaEventSynchronize, cuEventSynchronize)
EVENT_CALL(cudaEventDestroy, cuEventDestroy_v2)
