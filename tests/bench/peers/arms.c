/* SPDX-License-Identifier: MIT */
#include "tests/bench/peers/arms.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static CUcontext context;
static void *fill;
static __thread CUstream stream;

static uint64_t
driver_take(const struct arm *arm, size_t bytes)
{
	CUdeviceptr address;

	if (api.cuMemAlloc_v2(&address, bytes))
		api_fail("cuMemAlloc_v2", (long)bytes);
	return address;
}

static void
driver_give(const struct arm *arm, uint64_t address, size_t bytes)
{
	if (api.cuMemFree_v2(address))
		api_fail("cuMemFree_v2", 0);
}

static uint64_t
library_take(const struct arm *arm, size_t bytes)
{
	void *block = arm->library_take(bytes);

	if (!block)
		api_fail(arm->name, (long)bytes);
	return (uint64_t)(uintptr_t)block;
}

static void
library_give(const struct arm *arm, uint64_t address, size_t bytes)
{
	arm->library_give((void *)(uintptr_t)address, bytes); // NOLINT: a number of ours
}

static void *
nothing_take(size_t bytes)
{
	return (void *)(uintptr_t)(bytes + 1); // NOLINT: a number of ours
}

static void
nothing_give(void *block, size_t bytes)
{
}

static CUresult
nothing_launch(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
	       unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream in,
	       void **arguments, void **extra)
{
	return CUDA_SUCCESS;
}

/* Libraries that are asked without the size ignore it: an argument in a register. */
#define PEER(NAME, LIBRARY, TAKE, GIVE)                                                            \
	{                                                                                          \
		.name = (NAME), .library = (LIBRARY), .take_name = (TAKE), .give_name = (GIVE),    \
		.take = library_take, .give = library_give, .launch = nothing_launch               \
	}

static struct arm arms[] = {
	{ .name = "null",
	  .take = library_take,
	  .give = library_give,
	  .launch = nothing_launch,
	  .library_take = nothing_take,
	  .library_give = nothing_give },
	{ .name = "cachealloc", .take = driver_take, .give = driver_give, .is_driver = true },
	PEER("cub", "libbench_cub.so", "g2_take", "g2_give"),
	PEER("rmm_pool", "libbench_rmm.so", "rmm_pool_take", "rmm_pool_give"),
	PEER("rmm_binning", "libbench_rmm.so", "rmm_binning_take", "rmm_binning_give"),
	PEER("mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free"),
	PEER("torch", "libbench_torch.so", "torch_take", "torch_give"),
};
static const size_t n_arms = sizeof(arms) / sizeof(arms[0]);

struct arm *
arm_named(const char *name, size_t length)
{
	for (size_t i = 0; i < n_arms; i++)
		if (strlen(arms[i].name) == length && !strncmp(arms[i].name, name, length))
			return &arms[i];
	return NULL;
}

static void
library_open(struct arm *arm)
{
	void *library = dlopen(arm->library, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		api_fail(arm->library, 0);
	}
	arm->library_take = (void *(*)(size_t))(uintptr_t)dlsym(library, arm->take_name);
	arm->library_give = (void (*)(void *, size_t))(uintptr_t)dlsym(library, arm->give_name);
	if (!arm->library_take || !arm->library_give)
		api_fail(arm->library, 0);
}

void
arm_open(struct arm *arm, unsigned long streams)
{
	CUstream idle;

	if (arm->library)
		library_open(arm);
	if (!arm->is_driver)
		return;
	context = api_open(ROAD_PROC);
	fill = api_kernel("sim_fill");
	arm->launch = api.cuLaunchKernel;
	arm_enter(arm);
	while (--streams)
		CALL(cuStreamCreate, &idle, 1);
}

void
arm_enter(const struct arm *arm)
{
	if (!arm->is_driver)
		return;
	CALL(cuCtxSetCurrent, context);
	CALL(cuStreamCreate, &stream, 1);
}

void
arm_work(const struct arm *arm, uint64_t address)
{
	uint64_t words = 1, value = 1, spin_us = 0;
	void *arguments[] = { &address, &words, &value, &spin_us };

	if (arm->launch(fill, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL))
		api_fail("cuLaunchKernel", 0);
}
