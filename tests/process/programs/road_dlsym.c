/* SPDX-License-Identifier: MIT */
/* Road: dlopen, then dlsym on the handle (default),
 * or dlsym(RTLD_DEFAULT) when built with -DROAD_DEFAULT. */
#include "tests/process/programs/road.h"

#include <dlfcn.h>

static void *handle;

static void *
find(const char *base, const char *symbol, int version)
{
	return dlsym(handle, symbol);
}

int
main(int argc, char **argv)
{
#ifdef ROAD_DEFAULT
	if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
		return 1;
	handle = RTLD_DEFAULT;
#else
	handle = dlopen("libcuda.so.1", RTLD_NOW);
	if (!handle)
		return 1;
#endif
	return road_walk_found(argc, argv, find);
}
