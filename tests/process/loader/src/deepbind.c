/* SPDX-License-Identifier: MIT */
/*
 * A library that is opened with RTLD_DEEPBIND (Taichi, Apache's and PHP's modules) and looks the
 * driver up by its own dlsym. deepbind_use allocates and frees, and returns 0 if it could.
 */
#include <dlfcn.h>
#include <stddef.h>

int
deepbind_use(int count)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
	int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
	int (*allocate)(unsigned long long *, size_t), (*release)(unsigned long long);
	unsigned long long block;

	if (!driver)
		return 1;
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&allocate = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&release = dlsym(driver, "cuMemFree_v2");
	if (init(0) || retain(&context, 0) || set(context))
		return 2;
	for (int i = 0; i < count; i++)
		if (allocate(&block, 4096) || release(block))
			return 3;
	return 0;
}
