/* SPDX-License-Identifier: MIT */
/*
 * The toolkit's own CachingDeviceAllocator as a peer, over a runtime whose memory is the stock
 * model's and whose events are done when the phase they were recorded in is over. Only to check
 * model_cub.c against.
 */
#include <cstdint>
#include <cstdlib>
#include <unordered_map>

#include "tests/traces/models/cub.hpp"
#include "tests/traces/models/model_stock.h"

namespace
{
struct runtime {
	struct stock *stock;
	std::unordered_map<std::uintptr_t, struct stock_memory *> live;
	std::uint64_t phase;
} runtime;

struct event {
	std::uint64_t phase;
};
} // namespace

extern "C" {

cudaError_t
cudaMalloc(void **pointer, size_t bytes)
{
	struct stock_memory *memory = stock_alloc(runtime.stock, bytes);

	if (!memory)
		return cudaErrorMemoryAllocation;
	runtime.live[memory->address] = memory;
	*pointer = reinterpret_cast<void *>(memory->address);
	return cudaSuccess;
}

cudaError_t
cudaFree(void *pointer)
{
	auto found = runtime.live.find(reinterpret_cast<std::uintptr_t>(pointer));

	if (found == runtime.live.end())
		return cudaErrorInvalidValue;
	stock_free(runtime.stock, found->second);
	runtime.live.erase(found);
	return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *created, unsigned int)
{
	*created = reinterpret_cast<cudaEvent_t>(new event{ runtime.phase });
	return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t destroyed)
{
	delete reinterpret_cast<event *>(destroyed);
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t recorded, cudaStream_t)
{
	reinterpret_cast<event *>(recorded)->phase = runtime.phase;
	return cudaSuccess;
}

cudaError_t
cudaEventQuery(cudaEvent_t asked)
{
	return reinterpret_cast<event *>(asked)->phase < runtime.phase ? cudaSuccess
								       : cudaErrorNotReady;
}
}

namespace
{
using allocator = cub::CachingDeviceAllocator;

void *
create(struct peer_device *device)
{
	runtime.stock = stock_create(device, false);
	return new allocator(false);
}

void *
create_g2(struct peer_device *device)
{
	runtime.stock = stock_create(device, false);
	return new allocator(2u, 9u);
}

void
destroy(void *self)
{
	delete static_cast<allocator *>(self);
	stock_destroy(runtime.stock);
}

void *
alloc(void *self, std::uint64_t bytes, std::uint32_t stream)
{
	/* small numbers name the runtime's own streams */
	auto named = reinterpret_cast<cudaStream_t>((std::uintptr_t)stream + 0x100);
	void *pointer = nullptr;

	if (static_cast<allocator *>(self)->DeviceAllocate(&pointer, bytes, named) != cudaSuccess)
		return nullptr;
	return pointer;
}

void
release(void *self, void *pointer)
{
	if (static_cast<allocator *>(self)->DeviceFree(pointer) != cudaSuccess)
		std::abort();
}

void
finish(void *)
{
	runtime.phase++;
}
} // namespace

extern "C" {
const struct peer peer_cub_real = { "cub-real", create, destroy, alloc, nullptr, release, finish };
const struct peer peer_cub_g2_real = { "cub-g2-real", create_g2, destroy, alloc,
				       nullptr,       release,   finish };
}
