/* SPDX-License-Identifier: MIT */
/*
 * RMM's pool and its binning resource over a runtime that costs nothing: memory is a number from a
 * counter, an event is done as soon as it is recorded. Compiled by peers.py, which says where RMM
 * is: the resources are headers, and the few functions behind them a library. The pool starts with
 * half of a device of 80 GiB, which is RMM's advice; the bins are those of its own benchmarks, 256
 * KiB to 4 MiB. Each thread has a stream of its own.
 */
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{
constexpr std::size_t device_bytes = std::size_t{ 80 } << 30, boundary = std::size_t{ 2 } << 20;
constexpr std::int8_t smallest_bin = 18, largest_bin = 22; /* log2 of bytes */

std::atomic<std::uintptr_t> next_address{ std::uintptr_t{ 1 } << 40 };
std::atomic<std::uintptr_t> next_stream{ 0x100 };
thread_local const std::uintptr_t stream = next_stream++;

using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;
using binning = rmm::mr::binning_memory_resource<pool>;

/* Never destroyed: threads may outlive the statics of a library. */
pool &
new_pool()
{
	return *new pool(new rmm::mr::cuda_memory_resource, device_bytes / 2);
}

pool &
the_pool()
{
	static pool &only = new_pool();

	return only;
}

binning &
the_binning()
{
	static binning &only = *new binning(&new_pool(), smallest_bin, largest_bin);

	return only;
}

rmm::cuda_stream_view
this_stream()
{
	return rmm::cuda_stream_view{ reinterpret_cast<cudaStream_t>(stream) };
}
} // namespace

/* ---------------------------------------------------------------------------- the runtime --- */

extern "C" {

cudaError_t
cudaMalloc(void **pointer, std::size_t bytes)
{
	bytes = (bytes + boundary - 1) & ~(boundary - 1);
	*pointer = reinterpret_cast<void *>(next_address.fetch_add(bytes));
	return cudaSuccess;
}

cudaError_t
cudaFree(void *)
{
	return cudaSuccess;
}

cudaError_t
cudaMemGetInfo(std::size_t *available, std::size_t *total)
{
	*available = *total = device_bytes;
	return cudaSuccess;
}

cudaError_t
cudaGetDevice(int *device)
{
	*device = 0;
	return cudaSuccess;
}

cudaError_t
cudaSetDevice(int)
{
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceCount(int *count)
{
	*count = 1;
	return cudaSuccess;
}

cudaError_t
cudaGetLastError(void)
{
	return cudaSuccess;
}

const char *
cudaGetErrorName(cudaError_t)
{
	return "an error";
}

const char *
cudaGetErrorString(cudaError_t)
{
	return "an error of a runtime that has none";
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *created, unsigned int)
{
	*created = reinterpret_cast<cudaEvent_t>(&next_stream);
	return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t)
{
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t, cudaStream_t)
{
	return cudaSuccess;
}

cudaError_t
cudaEventSynchronize(cudaEvent_t)
{
	return cudaSuccess;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int)
{
	return cudaSuccess;
}

cudaError_t
cudaStreamGetId(cudaStream_t of, unsigned long long *id)
{
	*id = reinterpret_cast<std::uintptr_t>(of);
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t)
{
	return cudaSuccess;
}
}

/* Those of RMM's own library ask the runtime that is linked into it, which refuses a driver without
 * a device. */
namespace rmm
{
int
get_num_cuda_devices()
{
	return 1;
}

cuda_device_id
get_current_cuda_device()
{
	return cuda_device_id{ 0 };
}

void
cuda_stream_view::synchronize() const
{
}
} // namespace rmm

/* -------------------------------------------------------------------- asked for by turns.c --- */

EXPORT void *
rmm_pool_take(std::size_t bytes)
{
	return the_pool().allocate(this_stream(), bytes);
}

EXPORT void
rmm_pool_give(void *pointer, std::size_t bytes)
{
	the_pool().deallocate(this_stream(), pointer, bytes);
}

EXPORT void *
rmm_binning_take(std::size_t bytes)
{
	return the_binning().allocate(this_stream(), bytes);
}

EXPORT void
rmm_binning_give(void *pointer, std::size_t bytes)
{
	the_binning().deallocate(this_stream(), pointer, bytes);
}
