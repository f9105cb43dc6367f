/* SPDX-License-Identifier: MIT */
/*
 * Roads through cuGetProcAddress. ROAD_ABI: 1 the 4-argument one of 11.3, 2 the 5-argument one
 * of 12.0 (dlsym cuGetProcAddress_v2). ROAD_FLAGS: passed with every lookup. ROAD_SELF: the
 * resolver is looked up through itself before use: 1 cuGetProcAddress at 11030 (gives the
 * 4-argument one), 2 at 12000 (the 5-argument one), 3 both in a row, ending with the 5-argument
 * one.
 */
#include "shim/bind/cuda_abi.h"
#include "tests/process/programs/road.h"

#include <dlfcn.h>

#ifndef ROAD_FLAGS
#define ROAD_FLAGS 0
#endif
#ifndef ROAD_SELF
#define ROAD_SELF 0
#endif

typedef CUresult proc_v1_fn(const char *, void **, int, cuuint64_t);
typedef CUresult proc_v2_fn(const char *, void **, int, cuuint64_t,
			    CUdriverProcAddressQueryResult *);

/* Exactly one is set. */
static proc_v1_fn *proc_v1;
static proc_v2_fn *proc_v2;

static void *
find(const char *base, const char *symbol, int version)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	void *pfn = NULL;
	CUresult code = proc_v1 ? proc_v1(base, &pfn, version, ROAD_FLAGS)
				: proc_v2(base, &pfn, version, ROAD_FLAGS, &status);

	return code == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? pfn : NULL;
}

/* Goes on with the resolver that the present one finds for `version`. */
static int
find_self(int version)
{
	void *pfn = find("cuGetProcAddress", NULL, version);

	proc_v1 = NULL;
	proc_v2 = NULL;
	if (version >= 12000)
		*(void **)&proc_v2 = pfn;
	else
		*(void **)&proc_v1 = pfn;
	return pfn ? 0 : -1;
}

int
main(int argc, char **argv)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);

	if (!libcuda)
		return 1;
	if (ROAD_ABI == 1)
		*(void **)&proc_v1 = dlsym(libcuda, "cuGetProcAddress");
	else
		*(void **)&proc_v2 = dlsym(libcuda, "cuGetProcAddress_v2");
	if (!proc_v1 && !proc_v2)
		return 1;
	if ((ROAD_SELF & 1) && find_self(11030))
		return 1;
	if ((ROAD_SELF & 2) && find_self(12000))
		return 1;
	return road_walk_found(argc, argv, find);
}
