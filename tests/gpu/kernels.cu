// SPDX-License-Identifier: MIT
// The simulator's built-in kernels (tests/sim/README.md) for a real device: same names, same arguments of 8 bytes
// each, words of 32 bits. spin_us is the time one block spins before it touches memory.
#include <cstdint>

typedef unsigned long long arg;

static __device__ void spin(arg microseconds)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < microseconds * 1000);
}

extern "C" __global__ void sim_fill(arg ptr, arg n_words, arg value, arg spin_us)
{
	volatile uint32_t *words = (volatile uint32_t *)ptr;

	spin(spin_us);
	for (arg i = blockIdx.x * (arg)blockDim.x + threadIdx.x; i < n_words; i += (arg)gridDim.x * blockDim.x)
		words[i] = (uint32_t)value;
}

extern "C" __global__ void sim_check(arg ptr, arg n_words, arg value, arg errors_ptr, arg spin_us)
{
	volatile uint32_t *words = (volatile uint32_t *)ptr;

	spin(spin_us);
	for (arg i = blockIdx.x * (arg)blockDim.x + threadIdx.x; i < n_words; i += (arg)gridDim.x * blockDim.x)
		if (words[i] != (uint32_t)value)
			atomicAdd((unsigned long long *)errors_ptr, 1ull);
}

extern "C" __global__ void sim_copy(arg dst, arg src, arg n_words, arg spin_us)
{
	volatile uint32_t *to = (volatile uint32_t *)dst, *from = (volatile uint32_t *)src;

	spin(spin_us);
	for (arg i = blockIdx.x * (arg)blockDim.x + threadIdx.x; i < n_words; i += (arg)gridDim.x * blockDim.x)
		to[i] = from[i];
}

extern "C" __global__ void sim_wait(arg ptr, arg value)
{
	volatile uint32_t *word = (volatile uint32_t *)ptr;

	if (blockIdx.x == 0 && threadIdx.x == 0)
		while (*word != (uint32_t)value)
			__nanosleep(200);
	__threadfence_system();
}

extern "C" __global__ void sim_signal(arg ptr, arg value)
{
	__threadfence_system();
	if (blockIdx.x == 0 && threadIdx.x == 0)
		*(volatile uint32_t *)ptr = (uint32_t)value;
}
