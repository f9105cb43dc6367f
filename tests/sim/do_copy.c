/* SPDX-License-Identifier: MIT */
/*
 * Bodies: one-dimensional copies and sets, synchronous and not. The synchronous ones run on the
 * default stream of their flavour; what the host waits for is the engine's affair.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"
#include "tests/sim/engine.h"

static uint64_t
address(const void *host)
{
	return (uint64_t)(uintptr_t)host;
}

static int
copy_sync(uint64_t dst, uint64_t src, size_t n, enum sim_copy_kind kind)
{
	return sim_copy(dst, src, n, kind, simb_stream(NULL), true);
}

static int
copy_async(uint64_t dst, uint64_t src, size_t n, enum sim_copy_kind kind, CUstream stream)
{
	return sim_copy(dst, src, n, kind, simb_stream(stream), false);
}

int
simb_do_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return copy_sync(dst, src, ByteCount, SIM_COPY_ANY);
}

int
simb_do_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy_sync(dstDevice, address(srcHost), ByteCount, SIM_COPY_HTOD);
}

int
simb_do_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_sync(address(dstHost), srcDevice, ByteCount, SIM_COPY_DTOH);
}

int
simb_do_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_sync(dstDevice, srcDevice, ByteCount, SIM_COPY_DTOD);
}

int
simb_do_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return copy_async(dst, src, ByteCount, SIM_COPY_ANY, hStream);
}

/* When the source is read is the driver's to choose; in the stream's order is always right. */
int
simb_do_cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
				    CUmemcpyAttributes *attr, CUstream hStream)
{
	if (!attr)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no attributes");
	return copy_async(dst, src, size, SIM_COPY_ANY, hStream);
}

int
simb_do_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
			     CUstream hStream)
{
	return copy_async(dstDevice, address(srcHost), ByteCount, SIM_COPY_HTOD, hStream);
}

int
simb_do_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
			     CUstream hStream)
{
	return copy_async(address(dstHost), srcDevice, ByteCount, SIM_COPY_DTOH, hStream);
}

int
simb_do_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
			     CUstream hStream)
{
	return copy_async(dstDevice, srcDevice, ByteCount, SIM_COPY_DTOD, hStream);
}

int
simb_do_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
		     CUcontext srcContext, size_t ByteCount)
{
	int rc = simb_peers_check(dstContext, srcContext);

	return rc ? rc : copy_sync(dstDevice, srcDevice, ByteCount, SIM_COPY_DTOD);
}

int
simb_do_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			  CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	int rc = simb_peers_check(dstContext, srcContext);

	return rc ? rc : copy_async(dstDevice, srcDevice, ByteCount, SIM_COPY_DTOD, hStream);
}

int
simb_do_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return sim_set(dstDevice, uc, 1, N, simb_stream(NULL), true);
}

int
simb_do_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return sim_set(dstDevice, us, 2, N, simb_stream(NULL), true);
}

int
simb_do_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return sim_set(dstDevice, ui, 4, N, simb_stream(NULL), true);
}

int
simb_do_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return sim_set(dstDevice, uc, 1, N, simb_stream(hStream), false);
}

int
simb_do_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return sim_set(dstDevice, us, 2, N, simb_stream(hStream), false);
}

int
simb_do_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return sim_set(dstDevice, ui, 4, N, simb_stream(hStream), false);
}
