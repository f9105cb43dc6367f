/* SPDX-License-Identifier: MIT */
/*
 * Other roads to device memory: managed, stream-ordered, virtual memory, arrays.
 *
 * The driver serves them, and gets our cached memory back when it has none (shim/room.h).
 */
#include "shim/context.h"
#include "shim/hook.h"
#include "shim/room.h"
#include "shim/submit.h"

/* `begun`: the stream that the call submits to, guarded. Stream-ordered memory is none of ours, but
 * an allocation may make its stream wait for another's free: it is part of the order. */
#define RETRIED_IN(begun, symbol, bytes, args)                                                     \
	CA_HOOK_REAL(real, symbol);                                                                \
	struct ca_stream *stream = begun;                                                          \
	struct ca_process *process = ca_hook_process();                                            \
	struct ca_space *space = NULL;                                                             \
	CUresult rc;                                                                               \
	int saved;                                                                                 \
                                                                                                   \
	rc = CA_INSIDE(real->symbol args);                                                         \
	saved = errno;                                                                             \
	if (process && process->serves && (rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY))  \
		space = ca_context_space(real);                                                    \
	while (rc == CUDA_ERROR_OUT_OF_MEMORY && space && ca_reclaim(space, bytes))                \
		rc = CA_INSIDE(real->symbol args);                                                 \
	ca_submission_end(stream);                                                                 \
	if (rc == CUDA_SUCCESS && space)                                                           \
		ca_note_other_alloc(space);                                                        \
	errno = saved;                                                                             \
	return rc

#define RETRIED(symbol, bytes, args) RETRIED_IN(NULL, symbol, bytes, args)
#define RETRIED_ASYNC(flavour, symbol, bytes, args)                                                \
	static const struct ca_touch nothing;                                                      \
	RETRIED_IN(ca_submission_begin(flavour, hStream, &nothing), symbol, bytes, args)

CUresult
cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	RETRIED(cuMemAllocManaged, bytesize, (dptr, bytesize, flags));
}

CUresult
cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	RETRIED_ASYNC(CA_FLAVOUR_LEGACY, cuMemAllocAsync, bytesize, (dptr, bytesize, hStream));
}

CUresult
cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	RETRIED_ASYNC(CA_FLAVOUR_PER_THREAD, cuMemAllocAsync_ptsz, bytesize,
		      (dptr, bytesize, hStream));
}

CUresult
cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	RETRIED_ASYNC(CA_FLAVOUR_LEGACY, cuMemAllocFromPoolAsync, bytesize,
		      (dptr, bytesize, pool, hStream));
}

CUresult
cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
			     CUstream hStream)
{
	RETRIED_ASYNC(CA_FLAVOUR_PER_THREAD, cuMemAllocFromPoolAsync_ptsz, bytesize,
		      (dptr, bytesize, pool, hStream));
}

CUresult
cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
	    unsigned long long flags)
{
	RETRIED(cuMemCreate, size, (handle, size, prop, flags));
}

CUresult
cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	RETRIED(cuArrayCreate_v2, CA_ROOM_STEP, (pHandle, pAllocateArray));
}

CUresult
cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	RETRIED(cuArray3DCreate_v2, CA_ROOM_STEP, (pHandle, pAllocateArray));
}

CUresult
cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
		       const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
		       unsigned int numMipmapLevels)
{
	RETRIED(cuMipmappedArrayCreate, CA_ROOM_STEP,
		(pHandle, pMipmappedArrayDesc, numMipmapLevels));
}
