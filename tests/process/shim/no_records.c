/* SPDX-License-Identifier: MIT */
/*
 * A program in which the library gets no more memory of the host, while the driver still has some
 * of its own: no_records N allocates N times BLOCK bytes, and frees all. Prints how many
 * allocations succeeded.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/process/driver_api.h"
#include "tests/process/shim/refuse_mmap.h"

enum { BLOCK = 4096, MANY = 100000 };

int
main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, i, n_done = 0;
	static CUdeviceptr blocks[MANY];
	CUcontext context;
	CUdevice device;

	if (!n || n > MANY || cuInit(0) || cuDeviceGet(&device, 0) ||
	    cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 2;
	for (i = 0; i < n; i++) {
		n_done += !cuMemAlloc_v2(&blocks[i], BLOCK);
		refuses = true;
	}
	for (i = 0; i < n; i++)
		if (blocks[i] && cuMemFree_v2(blocks[i]))
			return 1;
	printf("%lu\n", n_done);
	return 0;
}
