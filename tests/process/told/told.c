/* SPDX-License-Identifier: MIT */
#include "tests/process/told/told.h"

const struct order_case *const order_cases[] = { told_attack,       told_edges,  told_order,
						 told_roads,        told_pools,  told_random,
						 told_driver_order, told_misuse, told_legacy,
						 told_hands,        told_scarce, NULL };

CUcontext
told_start(void)
{
	static const size_t sizes[] = { BIG, PART, PART, MIB, SMALL, SMALL };
	enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
	CUcontext context = order_start();
	CUdeviceptr x[COUNT];

	if (getenv("TOLD_WARM")) {
		for (int i = 0; i < COUNT; i++)
			x[i] = told_take(sizes[i], NULL);
		for (int i = 0; i < COUNT; i++)
			told_give(x[i], NULL);
		OK(cuCtxSynchronize());
	}
	return context;
}

CUdeviceptr
told_take(size_t bytes, CUstream stream)
{
	CUdeviceptr memory;
	CUresult rc = cuMemAllocAsync(&memory, bytes, stream);

	if (rc)
		fprintf(stderr, "cuMemAllocAsync of %zu = %d, in use %llu of %llu\n", bytes,
			(int)rc,
			(unsigned long long)told_attribute(told_default(),
							   CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
			(unsigned long long)told_attribute(told_default(),
							   CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	OK(rc);
	return memory;
}

void
told_give(CUdeviceptr memory, CUstream stream)
{
	OK(cuMemFreeAsync(memory, stream));
}

void
told_join(CUstream before, CUstream after)
{
	CUevent event = order_event();

	OK(cuEventRecord(event, before));
	OK(cuStreamWaitEvent(after, event, 0));
	OK(cuEventDestroy_v2(event));
}

CUmemoryPool
told_default(void)
{
	CUmemoryPool pool;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

cuuint64_t
told_attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
	cuuint64_t value = 77;

	OK(cuMemPoolGetAttribute(pool, which, &value));
	return value;
}

void
told_set(CUmemoryPool pool, CUmemPool_attribute which, cuuint64_t value)
{
	OK(cuMemPoolSetAttribute(pool, which, &value));
}
