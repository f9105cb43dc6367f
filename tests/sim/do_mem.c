/* SPDX-License-Identifier: MIT */
/*
 * Bodies: taking and giving back memory, page-locked host memory. Registered host
 * memory is only a list of ranges: the engine copies from it as from pageable memory, so it is
 * *less* asynchronous than natively.
 */
#include <pthread.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

enum {
	HOST_ALLOC_FLAGS = 7,    /* portable, device-mapped, write-combined */
	HOST_REGISTER_FLAGS = 3, /* portable, device-mapped */
	REGISTERED_MAX = 256,
};

static struct {
	uintptr_t base; /* 0: free entry */
	size_t n_bytes;
} registered[REGISTERED_MAX];
static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER; /* around registered[] */

static int
answer_check(const void *answer)
{
	if (answer)
		return 0;
	simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	return CUDA_ERROR_INVALID_VALUE;
}

int
simb_do_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	int rc = answer_check(dptr);

	if (!rc)
		rc = sim_mem_alloc(bytesize, dptr);
	if (!rc)
		simb_charge(bytesize);
	return rc;
}

int
simb_do_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			   unsigned int ElementSizeBytes)
{
	int rc = answer_check(dptr);

	if (!rc)
		rc = answer_check(pPitch);
	if (!rc)
		rc = sim_mem_alloc_pitch(WidthInBytes, Height, ElementSizeBytes, dptr, pPitch);
	if (!rc)
		simb_charge(*pPitch * Height);
	return rc;
}

int
simb_do_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	int rc = answer_check(dptr);

	return rc ? rc : sim_mem_alloc_managed(bytesize, flags, dptr);
}

int
simb_do_cuMemFree_v2(CUdeviceptr dptr)
{
	return sim_mem_free(dptr);
}

/* Native programs pass NULL for the half they do not want. */
int
simb_do_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	size_t n_free, n_total;
	int rc = sim_mem_get_info(&n_free, &n_total);

	if (!rc && free)
		*free = n_free;
	if (!rc && total)
		*total = n_total;
	return rc;
}

/* ---------------------------------------------------------- host memory --- */
int
simb_do_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	int rc = answer_check(pp);

	if (!rc && (Flags & ~(unsigned)HOST_ALLOC_FLAGS))
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags");
	if (!rc)
		rc = sim_mem_host_alloc(bytesize, pp);
	return rc ? rc : sim_mem_set_host_flags(*pp, Flags);
}

int
simb_do_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct sim_mem_info info;
	int rc = answer_check(pFlags);

	if (!rc)
		rc = sim_mem_lookup((CUdeviceptr)(uintptr_t)p, &info);
	if (!rc && info.kind != SIM_MEM_HOST)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "not page-locked host memory");
	if (!rc)
		*pFlags = info.host_flags;
	return rc;
}

int
simb_do_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return simb_do_cuMemHostAlloc(pp, bytesize, 0);
}

int
simb_do_cuMemFreeHost(void *p)
{
	return sim_mem_host_free(p);
}

int
simb_do_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct sim_mem_info info;
	int rc = answer_check(pdptr);

	if (!rc && Flags)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	if (!rc)
		rc = sim_mem_lookup((CUdeviceptr)(uintptr_t)p, &info);
	if (!rc && info.kind != SIM_MEM_HOST && info.kind != SIM_MEM_MANAGED)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "not page-locked host memory");
	if (!rc)
		*pdptr = (CUdeviceptr)(uintptr_t)p;
	return rc;
}

/* Index of the registered range that touches [base, base + n_bytes), or -1. */
static int
registered_find_locked(uintptr_t base, size_t n_bytes)
{
	for (int i = 0; i < REGISTERED_MAX; i++)
		if (registered[i].base && registered[i].base < base + n_bytes &&
		    base < registered[i].base + registered[i].n_bytes)
			return i;
	return -1;
}

int
simb_do_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	int rc = 0, at = 0;

	if (!p || !bytesize || (uintptr_t)p + bytesize < (uintptr_t)p)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no range");
	if (Flags & ~(unsigned)HOST_REGISTER_FLAGS)
		return simb_unbuilt("registering with these flags");
	pthread_mutex_lock(&registered_lock);
	if (registered_find_locked((uintptr_t)p, bytesize) >= 0) {
		rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		goto out;
	}
	while (at < REGISTERED_MAX && registered[at].base)
		at++;
	if (at == REGISTERED_MAX) {
		rc = CUDA_ERROR_OUT_OF_MEMORY;
		goto out;
	}
	registered[at].base = (uintptr_t)p;
	registered[at].n_bytes = bytesize;
out:
	pthread_mutex_unlock(&registered_lock);
	return rc;
}

int
simb_do_cuMemHostUnregister(void *p)
{
	int at, rc = 0;

	pthread_mutex_lock(&registered_lock);
	at = registered_find_locked((uintptr_t)p, 1);
	if (at < 0 || registered[at].base != (uintptr_t)p)
		rc = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	else
		registered[at].base = 0;
	pthread_mutex_unlock(&registered_lock);
	return rc ? simb_misuse(rc, "not a registered range's base") : 0;
}
