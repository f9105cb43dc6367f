/* SPDX-License-Identifier: MIT */
/*
 * Lazy initialisation. A thread that has no current context gets the primary context of its device
 * at its first call that needs one. A primary context is retained once for the process and never
 * released; cudaDeviceReset kills it in the driver, so each device has a generation that counts
 * resets: a thread whose current context is that primary context, entered in an older generation,
 * enters anew. Handles come back with the same value after a reset, which is why the handle alone
 * does not tell.
 *
 * The last error is per thread and sticks until cudaGetLastError takes it; a later success does not
 * clear it.
 */
#include "tests/sim/cudart/state.h"

#include <pthread.h>

enum {
	DEVICES_MAX = 64,
};

struct device_state {
	CUcontext primary;   /* handle of the primary context; NULL: never retained */
	int retained;        /* 0: not yet in this generation */
	unsigned generation; /* resets so far */
};

struct thread_state {
	int device;                    /* ordinal chosen by cudaSetDevice */
	unsigned entered[DEVICES_MAX]; /* generation in which it entered each primary context */
	cudaError_t last_error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards devices */
static struct device_state devices[DEVICES_MAX];
static _Thread_local struct thread_state self;

/* The device whose primary context `ctx` is; -1: a context of the program's own. */
static int
primary_find_locked(CUcontext ctx)
{
	for (int i = 0; i < DEVICES_MAX; i++)
		if (ctx && devices[i].primary == ctx)
			return i;
	return -1;
}

static cudaError_t
primary_enter(const struct sim_rt_driver *drv, int device)
{
	struct device_state *state = &devices[device];
	cudaError_t code = cudaSuccess;
	unsigned generation;
	CUcontext ctx;

	pthread_mutex_lock(&lock);
	if (!state->retained) {
		code = SIM_RT_CALL(drv, cuDevicePrimaryCtxRetain, &state->primary, device);
		state->retained = code == cudaSuccess;
	}
	ctx = state->primary;
	generation = state->generation;
	pthread_mutex_unlock(&lock);
	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuCtxSetCurrent, ctx);
	if (code == cudaSuccess)
		self.entered[device] = generation;
	return code;
}

/* The device whose primary context has to be entered before the thread can go on;
 * -1: none, `ctx` serves. */
static int
device_to_enter(CUcontext ctx)
{
	int device = self.device;

	if (!ctx)
		return device;
	pthread_mutex_lock(&lock);
	device = primary_find_locked(ctx);
	if (device >= 0 && devices[device].retained &&
	    devices[device].generation == self.entered[device])
		device = -1;
	pthread_mutex_unlock(&lock);
	return device;
}

cudaError_t
sim_rt_context_enter(const struct sim_rt_driver **ret_driver)
{
	const struct sim_rt_driver *drv;
	cudaError_t code = sim_rt_driver_init(&drv);
	CUcontext ctx = NULL;
	int device;

	if (code == cudaSuccess)
		code = SIM_RT_CALL(drv, cuCtxGetCurrent, &ctx);
	if (code != cudaSuccess)
		return code;
	device = device_to_enter(ctx);
	if (device >= 0)
		code = primary_enter(drv, device);
	if (code == cudaSuccess)
		*ret_driver = drv;
	return code;
}

cudaError_t
sim_rt_device_get(const struct sim_rt_driver *drv, int *ret_device)
{
	CUcontext ctx = NULL;
	cudaError_t code = SIM_RT_CALL(drv, cuCtxGetCurrent, &ctx);
	int device = self.device;

	if (code != cudaSuccess)
		return code;
	if (ctx) {
		pthread_mutex_lock(&lock);
		device = primary_find_locked(ctx);
		pthread_mutex_unlock(&lock);
	}
	if (device < 0)
		code = SIM_RT_CALL(drv, cuCtxGetDevice, &device);
	if (code == cudaSuccess)
		*ret_device = device;
	return code;
}

cudaError_t
sim_rt_device_set(const struct sim_rt_driver *drv, int device)
{
	int n = 0;
	cudaError_t code = SIM_RT_CALL(drv, cuDeviceGetCount, &n);

	if (code == cudaSuccess && (device < 0 || device >= n || device >= DEVICES_MAX))
		code = cudaErrorInvalidDevice;
	if (code == cudaSuccess)
		code = primary_enter(drv, device);
	if (code == cudaSuccess)
		self.device = device;
	return code;
}

cudaError_t
sim_rt_device_reset(const struct sim_rt_driver *drv)
{
	int device;
	cudaError_t code = sim_rt_device_get(drv, &device);

	if (code != cudaSuccess)
		return code;
	pthread_mutex_lock(&lock);
	code = SIM_RT_CALL(drv, cuDevicePrimaryCtxReset, device);
	if (code == cudaSuccess) {
		devices[device].retained = 0;
		devices[device].generation++;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* ---------------------------------------------------------- last error --- */

cudaError_t
sim_rt_error_note(cudaError_t code)
{
	if (code != cudaSuccess)
		self.last_error = code;
	return code;
}

SIM_RT_EXPORT cudaError_t
cudaPeekAtLastError(void)
{
	return self.last_error;
}

SIM_RT_EXPORT cudaError_t
cudaGetLastError(void)
{
	cudaError_t code = self.last_error;

	self.last_error = cudaSuccess;
	return code;
}
