// SPDX-License-Identifier: MIT
// A program of ours on RAPIDS's unmodified memory resources (the headers of the package librmm-cu12), compiled with g++:
// stream-ordered pools, a sub-allocator over them, buffers and vectors, several streams and threads. Kernels are the
// simulator's, launched through the driver. Prints what it saw, in which nothing depends on time; exit status 1: wrong.
#include <cuda.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>

namespace {

using resource = rmm::mr::device_memory_resource;

void expect(bool condition, const char *what)
{
	if (condition)
		return;
	std::fprintf(stderr, "not so: %s\n", what);
	std::exit(1);
}

void ok(CUresult rc, const char *call)
{
	if (rc == CUDA_SUCCESS)
		return;
	std::fprintf(stderr, "%s: %d\n", call, static_cast<int>(rc));
	std::exit(1);
}

struct kernels {
	CUmodule module{};
	CUfunction fill{}, check{};
	unsigned long long *errors{};

	kernels()
	{
		ok(cuModuleLoadData(&module, "simcuda"), "cuModuleLoadData");
		ok(cuModuleGetFunction(&fill, module, "sim_fill"), "cuModuleGetFunction");
		ok(cuModuleGetFunction(&check, module, "sim_check"), "cuModuleGetFunction");
		ok(cuMemHostAlloc(reinterpret_cast<void **>(&errors), sizeof(*errors), 0), "cuMemHostAlloc");
		*errors = 0;
	}

	void run(CUfunction function, rmm::cuda_stream_view stream, std::vector<std::uint64_t> arguments) const
	{
		std::vector<void *> places;

		for (auto &argument : arguments)
			places.push_back(&argument);
		ok(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream.value(), places.data(), nullptr), "cuLaunchKernel");
	}

	void use(rmm::cuda_stream_view stream, const void *memory, std::size_t bytes, unsigned value) const
	{
		auto address = reinterpret_cast<std::uint64_t>(memory);

		run(fill, stream, {address, bytes / 4, value, 20});
		run(check, stream, {address, bytes / 4, value, reinterpret_cast<std::uint64_t>(errors), 0});
	}

	void look(rmm::cuda_stream_view stream, const void *memory, std::size_t bytes, unsigned value) const
	{
		run(check, stream,
		    {reinterpret_cast<std::uint64_t>(memory), bytes / 4, value, reinterpret_cast<std::uint64_t>(errors), 20});
	}
};

// `later` goes on once everything that `earlier` has been given is done.
void order(rmm::cuda_stream_view earlier, rmm::cuda_stream_view later)
{
	cudaEvent_t event{};

	RMM_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	RMM_CUDA_TRY(cudaEventRecord(event, earlier.value()));
	RMM_CUDA_TRY(cudaStreamWaitEvent(later.value(), event, 0));
	RMM_CUDA_TRY(cudaEventDestroy(event));
}

// Memory is used on its stream and on another one after it, and goes at the end of its scope, on the last.
void buffers(const kernels &run, resource *memory, rmm::cuda_stream_pool &streams, unsigned seed)
{
	std::mt19937 chance{seed};
	std::vector<rmm::device_buffer> live;
	std::vector<unsigned> values;
	const std::size_t sizes[] = {4, 512, 516, 4096, 100000, 1 << 20, (1 << 20) + 4, 5 << 20};

	for (unsigned step = 0; step < 40; step++) {
		auto here = streams.get_stream(), there = streams.get_stream();
		auto size = sizes[chance() % 8];
		unsigned value = seed * 1000 + step;
		rmm::device_buffer buffer{size, here, memory};

		run.use(here, buffer.data(), size, value);
		order(here, there);
		run.look(there, buffer.data(), size, value);
		buffer.set_stream(there);
		if (chance() % 2) {
			live.push_back(std::move(buffer));
			values.push_back(value);
		}
		while (live.size() > chance() % 6) {
			run.look(live.back().stream(), live.back().data(), live.back().size(), values.back());
			live.pop_back();
			values.pop_back();
		}
	}
	for (std::size_t i = 0; i < live.size(); i++) {
		rmm::device_buffer copy{live[i], live[i].stream(), memory};

		run.look(copy.stream(), copy.data(), copy.size(), values[i]);
	}
	live.clear();
	for (std::size_t i = 0; i < streams.get_pool_size(); i++)
		streams.get_stream(i).synchronize();
}

void threads(const kernels &run, resource *memory, unsigned seed)
{
	rmm::cuda_stream_pool streams{6};
	std::vector<std::thread> all;

	for (unsigned i = 0; i < 3; i++)
		all.emplace_back([&, i] {
			RMM_CUDA_TRY(cudaSetDevice(0));
			buffers(run, memory, streams, seed + i);
		});
	for (auto &one : all)
		one.join();
}

// Vectors and scalars grow and are read back.
void vectors(resource *memory)
{
	rmm::cuda_stream stream;
	rmm::device_uvector<int> numbers{1000, stream.view(), memory};
	rmm::device_scalar<long> one{42, stream.view(), memory};
	std::vector<int> host(1000), back(5000);

	for (int i = 0; i < 1000; i++)
		host[i] = i;
	RMM_CUDA_TRY(cudaMemcpyAsync(numbers.data(), host.data(), 4000, cudaMemcpyHostToDevice, stream.value()));
	numbers.resize(5000, stream.view());
	numbers.set_element_to_zero_async(4999, stream.view());
	numbers.shrink_to_fit(stream.view());
	RMM_CUDA_TRY(cudaMemcpyAsync(back.data(), numbers.data(), 20000, cudaMemcpyDeviceToHost, stream.value()));
	stream.synchronize();
	expect(std::equal(host.begin(), host.end(), back.begin()) && back[4999] == 0, "contents of a vector that grew");
	expect(one.value(stream.view()) == 42, "a scalar");
}

void staging(const kernels &run, resource *memory)
{
	rmm::mr::pinned_host_memory_resource pinned;
	rmm::cuda_stream stream;
	rmm::device_buffer target{1 << 20, stream.view(), memory};

	for (unsigned turn = 0; turn < 20; turn++) {
		auto *host = static_cast<unsigned *>(pinned.allocate(1 << 20));

		std::fill_n(host, 1 << 18, turn);
		RMM_CUDA_TRY(cudaMemcpyAsync(target.data(), host, 1 << 20, cudaMemcpyHostToDevice, stream.value()));
		pinned.deallocate(host, 1 << 20);
		run.look(stream.view(), target.data(), 1 << 20, turn);
	}
	stream.synchronize();
}

// A pool is as large as it may be, and says so by RMM's own exception.
void limits()
{
	rmm::mr::cuda_async_memory_resource memory{0};
	rmm::cuda_stream stream;

	try {
		memory.allocate(std::size_t{1} << 40, stream.view());
		std::puts("more than the device: given");
	} catch (const rmm::out_of_memory &) {
		std::puts("more than the device: out_of_memory");
	}
}

} // namespace

int main(int argc, char **argv)
{
	unsigned seed = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;

	RMM_CUDA_TRY(cudaSetDevice(0));
	RMM_CUDA_TRY(cudaFree(nullptr));
	{
		kernels run;
		rmm::mr::cuda_memory_resource plain;
		rmm::mr::cuda_async_memory_resource own{1 << 20, 64 << 20};
		cudaMemPool_t handle{};
		RMM_CUDA_TRY(cudaDeviceGetDefaultMemPool(&handle, 0));
		rmm::mr::cuda_async_view_memory_resource of_device{handle};
		rmm::mr::pool_memory_resource<resource> cut{&own, 1 << 22};
		resource *all[] = {&plain, &own, &of_device, &cut};

		for (auto *memory : all) {
			rmm::mr::statistics_resource_adaptor<resource> counted{memory};

			// RMM's own pool hands memory that one stream took over from another to a third one, which waits
			// for the first alone (merge_lists of 25.2 records no event): natively a race on the simulator
			if (memory != &cut)
				threads(run, &counted, seed);
			vectors(&counted);
			staging(run, &counted);
			std::printf("%lld bytes in %lld allocations, %lld left\n",
				    static_cast<long long>(counted.get_bytes_counter().total),
				    static_cast<long long>(counted.get_allocations_counter().total),
				    static_cast<long long>(counted.get_bytes_counter().value));
		}
		limits();
		std::printf("errors %llu\n", *run.errors);
		expect(*run.errors == 0, "contents that kernels check");
	}
	RMM_CUDA_TRY(cudaDeviceSynchronize());
	std::puts("done");
	return 0;
}
