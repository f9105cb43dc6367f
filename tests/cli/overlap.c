/* SPDX-License-Identifier: MIT */
/* A broken allocator: every allocation gets the same memory.
 * Tests that look at contents must notice. */
#include <dlfcn.h>
#include <stddef.h>

int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuMemFree_v2(unsigned long long address);

int
cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
	static unsigned long long shared;
	int (*real)(unsigned long long *, size_t) =
		(int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	int result = shared ? 0 : real(&shared, 1ul << 30);

	*address = shared;
	return result;
}

int
cuMemFree_v2(unsigned long long address)
{
	return 0;
}
