/* SPDX-License-Identifier: MIT */
/*
 * The resolver sequence of the real runtime, which is what an interposer has to survive:
 *
 *   dlopen("libcuda.so.1", RTLD_NOW)
 *   dlsym "cuGetProcAddress_v2"; called once with an empty name and version 0, to see whether it
 * works works:  every name of driver.def by it, with its version and flags else:   every exported
 * name of driver.def by plain dlsym, cuInit and cuGetProcAddress first
 *
 * The handle is never closed. dlsym is called through an ordinary reference, so that a preloaded
 * dlsym sees it.
 */
#include "tests/sim/cudart/driver.h"

#include <dlfcn.h>
#include <pthread.h>

static pthread_once_t found_once = PTHREAD_ONCE_INIT;
static pthread_once_t init_once = PTHREAD_ONCE_INIT;
static cudaError_t found_code, init_code;
static struct sim_rt_driver driver;

typedef CUresult resolver_fn(const char *, void **, int, cuuint64_t,
			     CUdriverProcAddressQueryResult *);

static void
resolve_by_proc_address(resolver_fn *resolver)
{
	CUdriverProcAddressQueryResult status;
	void *pfn;

#define SIM_RT_NEED(symbol, base, version, flags, params)                                          \
	pfn = NULL;                                                                                \
	if (resolver(#base, &pfn, version, flags, &status) == CUDA_SUCCESS)                        \
		*(void **)&driver.symbol = pfn;
#include "tests/sim/cudart/driver.def"
#undef SIM_RT_NEED
}

static void
resolve_by_dlsym(void *libcuda)
{
#define SIM_RT_NEED(symbol, base, version, flags, params)                                          \
	*(void **)&driver.symbol = dlsym(libcuda, #symbol);
#include "tests/sim/cudart/driver.def"
#undef SIM_RT_NEED
}

static void
driver_find_once(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	CUdriverProcAddressQueryResult status;
	resolver_fn *resolver;
	void *pfn = NULL;

	if (!libcuda) {
		found_code = cudaErrorInsufficientDriver;
		return;
	}
	*(void **)&resolver = dlsym(libcuda, "cuGetProcAddress_v2");
	if (resolver && resolver("", &pfn, 0, 0, &status) == CUDA_SUCCESS)
		resolve_by_proc_address(resolver);
	else
		resolve_by_dlsym(libcuda);
}

cudaError_t
sim_rt_driver_find(const struct sim_rt_driver **ret_driver)
{
	pthread_once(&found_once, driver_find_once);
	if (found_code == cudaSuccess)
		*ret_driver = &driver;
	return found_code;
}

static void
driver_init_once(void)
{
	const struct sim_rt_driver *drv;
	int version = 0;

	init_code = sim_rt_driver_find(&drv);
	if (init_code != cudaSuccess)
		return;
	init_code = SIM_RT_CALL(drv, cuDriverGetVersion, &version);
	if (init_code != cudaSuccess)
		return;
	if (version / 1000 < SIM_RT_VERSION / 1000)
		init_code = cudaErrorInsufficientDriver;
	else
		init_code = SIM_RT_CALL(drv, cuInit, 0);
}

cudaError_t
sim_rt_driver_init(const struct sim_rt_driver **ret_driver)
{
	pthread_once(&init_once, driver_init_once);
	if (init_code == cudaSuccess)
		*ret_driver = &driver;
	return init_code;
}
