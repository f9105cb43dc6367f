/* SPDX-License-Identifier: MIT */
#include "tests/process/framework/workspace.h"

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef THROUGH_DRIVER

int cuMemAlloc_v2(unsigned long long *dptr, size_t bytesize);
int cuMemFree_v2(unsigned long long dptr);

EXPORT void *
workspace_take(size_t n_bytes)
{
	unsigned long long address;

	return cuMemAlloc_v2(&address, n_bytes) ? NULL : (void *)(uintptr_t)address;
}

EXPORT int
workspace_give(void *pointer)
{
	return cuMemFree_v2((uintptr_t)pointer);
}

#else

#include "tests/sim/cudart/cudart_abi.h"

EXPORT void *
workspace_take(size_t n_bytes)
{
	void *pointer;

	if (!cudaMalloc(&pointer, n_bytes))
		return pointer;
	cudaGetLastError();
	return NULL;
}

EXPORT int
workspace_give(void *pointer)
{
	return cudaFree(pointer);
}

#endif
