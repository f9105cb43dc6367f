/* SPDX-License-Identifier: MIT */
/*
 * Bodies: the 32-bit ABI of CUDA 2, still exported under the unversioned names. They take 32-bit
 * addresses and sizes, so they can only fail for memory that lies higher: an allocation is given
 * back and reported as out of memory, any other use of a 32-bit address meets no live memory. They
 * are functions of their own and never lead to the 64-bit ones by name, because mixing the two up
 * is a mistake that interposers have made.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

/* Sizes that do not fit are cut to the largest that does. */
static unsigned int
cut(size_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (unsigned int)n;
}

int
simb_do_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t n;
	int rc = bytes ? simb_do_cuDeviceTotalMem_v2(&n, dev) : CUDA_ERROR_INVALID_VALUE;

	if (!rc)
		*bytes = cut(n);
	return rc;
}

int
simb_do_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	CUdeviceptr ptr;
	int rc = dptr ? simb_do_cuMemAlloc_v2(&ptr, bytesize) : CUDA_ERROR_INVALID_VALUE;

	if (rc)
		return rc;
	if (ptr > UINT32_MAX) {
		sim_mem_free(ptr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*dptr = (CUdeviceptr_v1)ptr;
	return 0;
}

int
simb_do_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			unsigned int Height, unsigned int ElementSizeBytes)
{
	CUdeviceptr ptr;
	size_t pitch;
	int rc = CUDA_ERROR_INVALID_VALUE;

	if (dptr && pPitch)
		rc = simb_do_cuMemAllocPitch_v2(&ptr, &pitch, WidthInBytes, Height,
						ElementSizeBytes);
	if (rc)
		return rc;
	if (ptr > UINT32_MAX || pitch > UINT32_MAX) {
		sim_mem_free(ptr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*dptr = (CUdeviceptr_v1)ptr;
	*pPitch = (unsigned int)pitch;
	return 0;
}

int
simb_do_cuMemFree(CUdeviceptr_v1 dptr)
{
	return sim_mem_free(dptr);
}

int
simb_do_cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	size_t n_free, n_total;
	int rc = sim_mem_get_info(&n_free, &n_total);

	if (!rc && free)
		*free = cut(n_free);
	if (!rc && total)
		*total = cut(n_total);
	return rc;
}

int
simb_do_cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
	CUdeviceptr base;
	size_t n;
	int rc = simb_do_cuMemGetAddressRange_v2(&base, &n, dptr);

	if (!rc && pbase)
		*pbase = (CUdeviceptr_v1)base;
	if (!rc && psize)
		*psize = cut(n);
	return rc;
}

int
simb_do_cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return simb_do_cuMemHostAlloc(pp, bytesize, 0);
}

int
simb_do_cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
	CUdeviceptr ptr;
	int rc = pdptr ? simb_do_cuMemHostGetDevicePointer_v2(&ptr, p, Flags)
		       : CUDA_ERROR_INVALID_VALUE;

	if (!rc && ptr > UINT32_MAX)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc)
		*pdptr = (CUdeviceptr_v1)ptr;
	return rc;
}

int
simb_do_cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount)
{
	return simb_do_cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}

int
simb_do_cuMemcpyDtoH(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return simb_do_cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}

int
simb_do_cuMemcpyDtoD(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return simb_do_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

int
simb_do_cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount,
			  CUstream hStream)
{
	return simb_do_cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

int
simb_do_cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
			  CUstream hStream)
{
	return simb_do_cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

int
simb_do_cuMemcpyDtoDAsync(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
			  unsigned int ByteCount, CUstream hStream)
{
	return simb_do_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

int
simb_do_cuMemsetD8(CUdeviceptr_v1 dstDevice, unsigned char uc, unsigned int N)
{
	return simb_do_cuMemsetD8_v2(dstDevice, uc, N);
}

int
simb_do_cuMemsetD16(CUdeviceptr_v1 dstDevice, unsigned short us, unsigned int N)
{
	return simb_do_cuMemsetD16_v2(dstDevice, us, N);
}

int
simb_do_cuMemsetD32(CUdeviceptr_v1 dstDevice, unsigned int ui, unsigned int N)
{
	return simb_do_cuMemsetD32_v2(dstDevice, ui, N);
}
