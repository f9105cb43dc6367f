/* SPDX-License-Identifier: MIT */
/* Road: linked against libcuda; every call goes through the program's own symbol references. */
#include "tests/process/driver_api.h"
#include "tests/process/programs/road.h"

static int
init(unsigned flags)
{
	return cuInit(flags);
}

static int
device_get(int *ret_device, int ordinal)
{
	return cuDeviceGet(ret_device, ordinal);
}

static int
primary_retain(void **ret_ctx, int device)
{
	return cuDevicePrimaryCtxRetain((CUcontext *)ret_ctx, device);
}

static int
set_current(void *ctx)
{
	return cuCtxSetCurrent(ctx);
}

static int
alloc(unsigned long long *ret_ptr, size_t n_bytes)
{
	return cuMemAlloc_v2(ret_ptr, n_bytes);
}

static int
free_(unsigned long long ptr)
{
	return cuMemFree_v2(ptr);
}

int
main(int argc, char **argv)
{
	const struct road road = { init, device_get, primary_retain, set_current, alloc, free_ };

	return road_walk(argc, argv, &road);
}
