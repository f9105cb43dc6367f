/* SPDX-License-Identifier: MIT */
/*
 * Bodies: what is said about managed memory. Where it is does not matter here: a prefetch is work
 * of its stream that reads what it moves, and an advice is checked and forgotten.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"

int
simb_mem_use(CUdeviceptr ptr, size_t n_bytes, enum sim_use use, CUstream stream)
{
	return sim_mem_use(ptr, n_bytes, use, simb_stream(stream));
}

int
simb_mem_use_all(const CUdeviceptr *ptrs, const size_t *sizes, size_t n, unsigned uses,
		 unsigned long long flags, CUstream stream)
{
	int rc = 0;

	if (!ptrs || !sizes || !n || flags)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no ranges, or flags");
	for (size_t i = 0; i < n; i++) {
		if (!rc && uses & 1u << SIM_USE_DISCARD)
			rc = simb_mem_use(ptrs[i], sizes[i], SIM_USE_DISCARD, stream);
		if (!rc && uses & 1u << SIM_USE_PREFETCH)
			rc = simb_mem_use(ptrs[i], sizes[i], SIM_USE_PREFETCH, stream);
	}
	return rc;
}

/* Of the whole allocation, which a length of 0 means too. */
int
simb_attach(CUdeviceptr ptr, size_t n_bytes, unsigned flags, CUstream stream)
{
	struct sim_mem_info info;
	int rc = sim_mem_lookup(ptr, &info);

	if (rc || info.base != ptr || (n_bytes && n_bytes != info.n_bytes))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "not a whole managed allocation");
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
	    flags != CU_MEM_ATTACH_SINGLE)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such way to attach");
	if (flags == CU_MEM_ATTACH_SINGLE && (!simb_stream(stream) || stream == CU_STREAM_LEGACY))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "attached to the default stream");
	return simb_mem_use(ptr, info.n_bytes, SIM_USE_ATTACH, stream);
}

int
simb_do_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	struct sim_mem_info info;
	int rc = sim_mem_lookup(devPtr, &info);

	if (rc || info.kind != SIM_MEM_MANAGED || !count ||
	    count > info.n_bytes - (devPtr - info.base) || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
	    advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no managed memory, or no advice");
	return 0;
}

int
simb_do_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
		       CUmemLocation location)
{
	return simb_do_cuMemAdvise(devPtr, count, advice, (CUdevice)location.id);
}
