/* SPDX-License-Identifier: MIT */
/* Road: cudaMalloc and cudaFree of the stand-in runtime, which initialises by itself. */
#include "tests/process/programs/road.h"
#include "tests/sim/cudart/cudart_abi.h"

#include <stdint.h>

static int
alloc(unsigned long long *ret_ptr, size_t n_bytes)
{
	void *ptr = NULL;
	int code = cudaMalloc(&ptr, n_bytes);

	*ret_ptr = (uintptr_t)ptr;
	return code ? code : (int)cudaMemsetAsync(ptr, 1, n_bytes, NULL);
}

static int
free_(unsigned long long ptr)
{
	return cudaFree((void *)(uintptr_t)ptr);
}

int
main(int argc, char **argv)
{
	const struct road road = { .alloc = alloc, .free = free_ };

	return road_walk(argc, argv, &road);
}
