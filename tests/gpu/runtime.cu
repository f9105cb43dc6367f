// SPDX-License-Identifier: MIT
// Allocates, launches, checks contents and frees through the CUDA runtime; prints one JSON line.
// Blocks of many sizes live at once and are freed in another order, with work still running on two streams.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "need.hpp"

__global__ void fill(uint32_t *words, size_t n, uint32_t value)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		words[i] = value ^ (uint32_t)i;
}

__global__ void check(const uint32_t *words, size_t n, uint32_t value, unsigned long long *errors)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		if (words[i] != (value ^ (uint32_t)i))
			atomicAdd(errors, 1ull);
}

static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % below;
}

struct block {
	uint32_t *words;
	size_t n;
	uint32_t value;
	cudaStream_t stream;
};

int main()
{
	static const size_t sizes[] = {4, 512, 516, 4096, 100000, 1 << 20, (1 << 20) + 4, 5 << 20, 20 << 20, 64 << 20};
	std::vector<block> live;
	unsigned long long *errors, host_errors = 0, checksum = 0;
	size_t allocs = 1, free_bytes, total_bytes;
	cudaStream_t streams[2];

	for (cudaStream_t &stream : streams)
		NEED(cudaStreamCreate(&stream));
	NEED(cudaMalloc((void **)&errors, sizeof(*errors)));
	NEED(cudaMemset(errors, 0, sizeof(*errors)));
	for (int step = 0; step < 2000; step++) {
		if (live.size() < 40 && draw(100) < 55) {
			block one = {};

			one.n = sizes[draw(sizeof(sizes) / sizeof(*sizes))] / 4;
			one.value = (uint32_t)draw(1u << 31);
			one.stream = streams[draw(2)];
			NEED(cudaMalloc((void **)&one.words, one.n * 4));
			allocs++;
			fill<<<64, 256, 0, one.stream>>>(one.words, one.n, one.value);
			NEED(cudaGetLastError());
			checksum = checksum * 31 + one.value;
			live.push_back(one);
		} else if (!live.empty()) {
			size_t at = draw(live.size());
			block one = live[at];

			check<<<64, 256, 0, one.stream>>>(one.words, one.n, one.value, errors);
			NEED(cudaGetLastError());
			NEED(cudaFree(one.words)); // the check may still run: native cudaFree waits for it
			live.erase(live.begin() + (long)at);
		}
	}
	for (const block &one : live) {
		std::vector<uint32_t> host(one.n);

		NEED(cudaStreamSynchronize(one.stream));
		NEED(cudaMemcpy(host.data(), one.words, one.n * 4, cudaMemcpyDeviceToHost));
		for (size_t i = 0; i < one.n; i++)
			host_errors += host[i] != (one.value ^ (uint32_t)i);
		NEED(cudaFree(one.words));
	}
	NEED(cudaDeviceSynchronize());
	unsigned long long device_errors;
	NEED(cudaMemcpy(&device_errors, errors, sizeof(device_errors), cudaMemcpyDeviceToHost));
	NEED(cudaFree(errors));
	NEED(cudaMemGetInfo(&free_bytes, &total_bytes));
	printf("{\"allocs\":%zu,\"checksum\":%llu,\"errors\":%llu,\"free_bytes\":%zu,\"total_bytes\":%zu}\n", allocs,
	       checksum, host_errors + device_errors, free_bytes, total_bytes);
	return host_errors + device_errors ? 1 : 0;
}
