/* SPDX-License-Identifier: MIT */
/*
 * CUB's CachingDeviceAllocator for hits.c and peers/turns.c, over a runtime that costs nothing:
 * memory is a number from a counter, and all work is finished as soon as it is submitted.
 * Everything freed is kept, so that nothing but the class itself is measured; above 2 MiB only with
 * growth 2 (`g2`), which is what users choose for large blocks. Each thread has a stream of its
 * own.
 */
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/traces/models/cub.hpp"

namespace
{
std::atomic<std::uintptr_t> next_address{ std::uintptr_t{ 1 } << 40 };
std::atomic<std::uintptr_t> next_stream{ 0x100 };
thread_local const std::uintptr_t stream = next_stream++;

cub::CachingDeviceAllocator &
the_allocator()
{
	static cub::CachingDeviceAllocator allocator(8, 3, 7, SIZE_MAX, true);

	return allocator;
}

cub::CachingDeviceAllocator &
the_allocator_g2()
{
	static cub::CachingDeviceAllocator allocator(2u, 9u);

	return allocator;
}

void *
take(cub::CachingDeviceAllocator &from, size_t bytes)
{
	void *pointer = nullptr;

	if (from.DeviceAllocate(&pointer, bytes, reinterpret_cast<cudaStream_t>(stream)))
		return nullptr;
	return pointer;
}
} // namespace

extern "C" {

cudaError_t
cudaMalloc(void **pointer, size_t bytes)
{
	*pointer = reinterpret_cast<void *>(next_address.fetch_add((bytes + 511) / 512 * 512));
	return cudaSuccess;
}

cudaError_t
cudaFree(void *)
{
	return cudaSuccess;
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
cudaEventQuery(cudaEvent_t)
{
	return cudaSuccess;
}

/* An allocation. It never fails. */
__attribute__((visibility("default"))) void *
peer_take(size_t bytes)
{
	return take(the_allocator(), bytes);
}

__attribute__((visibility("default"))) void
peer_give(void *pointer)
{
	(void)the_allocator().DeviceFree(pointer);
}

__attribute__((visibility("default"))) void *
g2_take(size_t bytes)
{
	return take(the_allocator_g2(), bytes);
}

__attribute__((visibility("default"))) void
g2_give(void *pointer)
{
	(void)the_allocator_g2().DeviceFree(pointer);
}
}
