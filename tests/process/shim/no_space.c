/* SPDX-License-Identifier: MIT */
/*
 * A stream is created in a second context while the library gets no memory of the host, and used
 * when it gets some again: no_space. A kernel on it still writes when memory is freed and allocated
 * for another stream.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/process/driver_api.h"
#include "tests/process/shim/refuse_mmap.h"

enum { BYTES = 4 << 20, NON_BLOCKING = 1, LATE_US = 100000 };

static void
check(int rc)
{
	if (!rc)
		return;
	printf("code %d\n", rc);
	exit(1);
}

static void
fill(void *kernel, CUdeviceptr memory, unsigned value, unsigned long us, CUstream stream)
{
	unsigned long words = BYTES / sizeof(unsigned), word = value, spin = us;
	void *params[] = { &memory, &words, &word, &spin };

	check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

int
main(void)
{
	CUstream first, second;
	CUdeviceptr memory, again;
	CUcontext context;
	void *module, *kernel;

	check(cuInit(0));
	check(cuDevicePrimaryCtxRetain(&context, 0));
	check(cuCtxSetCurrent(context));
	check(cuStreamCreate(&first, NON_BLOCKING));
	check(cuCtxCreate_v2(&context, 0, 0));
	refuses = true;
	check(cuStreamCreate(&first, NON_BLOCKING));
	refuses = false;
	check(cuStreamCreate(&second, NON_BLOCKING));
	check(cuMemAlloc_v2(&memory, BYTES));
	check(cuModuleLoadData(&module, "simcuda"));
	check(cuModuleGetFunction(&kernel, module, "sim_fill"));
	fill(kernel, memory, 1, LATE_US, first);
	check(cuMemFree_v2(memory));
	check(cuMemAlloc_v2(&again, BYTES));
	fill(kernel, again, 2, 0, second);
	check(cuCtxSynchronize());
	return 0;
}
