// SPDX-License-Identifier: MIT
// The program that everybody writes first: each step allocates what it needs with cudaMalloc, works, and frees it all.
// `naive [STEPS [SCALE]]`: sizes are divided by SCALE. No kernels, so it also runs on the simulator. One JSON line.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "need.hpp"

// As in a small network: activations of each layer, and their gradients on the way back.
static const size_t layers[] = {40 << 20, 24 << 20, 24 << 20, 12 << 20, 12 << 20, 6 << 20, 3 << 20, 1 << 20, 64 << 10, 4000};
enum { LAYERS = sizeof(layers) / sizeof(*layers) };

static unsigned long allocs, wrong;

static char *take(size_t bytes)
{
	void *memory;

	NEED(cudaMalloc(&memory, bytes));
	allocs++;
	return (char *)memory;
}

static void step(cudaStream_t stream, int value, size_t scale)
{
	char *forward[LAYERS], *backward = NULL;
	unsigned char first = 0;

	for (int i = 0; i < LAYERS; i++) {
		size_t bytes = std::max<size_t>(layers[i] / scale, 512);

		forward[i] = take(bytes);
		NEED(cudaMemsetAsync(forward[i], value + i, bytes, stream));
	}
	for (int i = LAYERS - 1; i >= 0; i--) {
		size_t bytes = std::max<size_t>(layers[i] / scale, 512);
		char *gradient = take(bytes);

		NEED(cudaMemcpyAsync(gradient, forward[i], bytes, cudaMemcpyDeviceToDevice, stream));
		NEED(cudaFree(forward[i]));
		if (backward)
			NEED(cudaFree(backward));
		backward = gradient;
	}
	NEED(cudaStreamSynchronize(stream));
	NEED(cudaMemcpy(&first, backward, 1, cudaMemcpyDeviceToHost));
	wrong += first != (unsigned char)value;
	NEED(cudaFree(backward));
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 300;
	size_t scale = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, left, total;
	std::vector<double> times;
	cudaStream_t stream;

	NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int i = 0; i < steps; i++) {
		uint64_t start = now_ns();

		step(stream, i % 200, scale ? scale : 1);
		times.push_back((double)(now_ns() - start) / 1e3);
	}
	NEED(cudaMemGetInfo(&left, &total));
	NEED(cudaDeviceSynchronize());
	double first = times.empty() ? 0 : times[0];
	std::sort(times.begin(), times.end());
	printf("{\"steps\":%d,\"allocs\":%lu,\"wrong\":%lu,\"first_step_us\":%.1f,\"step_us\":{\"p50\":%.1f,\"p90\":%.1f},"
	       "\"used_bytes\":%zu}\n",
	       steps, allocs, wrong, first, times.empty() ? 0 : times[times.size() / 2],
	       times.empty() ? 0 : times[times.size() * 9 / 10], total - left);
	return wrong != 0;
}
