// SPDX-License-Identifier: MIT
// Latencies of stock driver calls, in nanoseconds: n, min, p50, p90, mean for each call and size (0: no size).
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "need.hpp"

typedef CUresult ctx_record_event_fn(CUcontext context, CUevent event);

static std::map<std::string, std::map<size_t, std::vector<uint64_t>>> table;

template <typename F> static void timed(const char *name, size_t size, F call)
{
	uint64_t start = now_ns();
	int result = (int)call();
	uint64_t spent = now_ns() - start;

	if (result && result != CUDA_ERROR_NOT_READY) {
		fprintf(stderr, "%s: %d\n", name, result);
		exit(1);
	}
	table[name][size].push_back(spent);
}

__global__ void nothing()
{
}

__global__ void spin(long long ns)
{
	long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - start < ns);
}

static void measure_memory(CUstream stream)
{
	static const size_t sizes[] = {512,       4096,      65536,     1 << 20,   2 << 20,
				       20 << 20, 256 << 20, 1ull << 30, 8ull << 30};
	CUdeviceptr small;

	NEED(cuMemAlloc(&small, 512));
	for (size_t size : sizes) {
		size_t count = std::min<size_t>(200, (16ull << 30) / size);
		std::vector<CUdeviceptr> blocks(count);

		for (int round = 0; round < 2; round++) {
			for (CUdeviceptr &block : blocks)
				timed("cuMemAlloc_v2", size, [&] { return cuMemAlloc(&block, size); });
			for (CUdeviceptr block : blocks)
				timed("cuMemFree_v2", size, [&] { return cuMemFree(block); });
		}
		for (int i = 0; i < 20; i++) {
			CUdeviceptr block;

			NEED(cuMemAlloc(&block, size));
			timed("alloc_after_free", size, [&] {
				NEED(cuMemFree(block));
				return cuMemAlloc(&block, size);
			});
			spin<<<1, 1, 0, (cudaStream_t)stream>>>(1000000);
			timed("cuMemFree_v2 behind a kernel of 1 ms", size, [&] { return cuMemFree(block); });
		}
		for (int i = 0; i < 100; i++) {
			CUdeviceptr block;

			timed("cuMemAllocAsync", size, [&] { return cuMemAllocAsync(&block, size, stream); });
			timed("cuMemFreeAsync", size, [&] { return cuMemFreeAsync(block, stream); });
			NEED(cuStreamSynchronize(stream));
		}
	}
	NEED(cuMemFree(small));
}

static void measure_calls(CUcontext context, CUstream stream, CUstream other)
{
	ctx_record_event_fn *ctx_record_event = NULL;
	CUdriverProcAddressQueryResult found;
	CUevent event, inexact;
	CUdeviceptr block;
	size_t free_bytes, total_bytes;

	NEED(cuGetProcAddress("cuCtxRecordEvent", (void **)&ctx_record_event, 12050, 0, &found));
	NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	NEED(cuEventCreate(&inexact, CU_EVENT_DISABLE_TIMING));
	NEED(cuMemAlloc(&block, 1 << 20));
	for (int i = 0; i < 2000; i++) {
		CUcontext current;
		CUstreamCaptureStatus status;
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
		CUdeviceptr base;
		size_t size;

		timed("cuCtxGetCurrent", 0, [&] { return cuCtxGetCurrent(&current); });
		timed("cuCtxSetCurrent", 0, [&] { return cuCtxSetCurrent(context); });
		timed("cuCtxPushCurrent_v2", 0, [&] { return cuCtxPushCurrent(context); });
		timed("cuCtxPopCurrent_v2", 0, [&] { return cuCtxPopCurrent(&current); });
		timed("cuLaunchKernel (empty)", 0, [&] {
			nothing<<<1, 1, 0, (cudaStream_t)stream>>>();
			return cudaGetLastError();
		});
		timed("cuEventRecord", 0, [&] { return cuEventRecord(event, stream); });
		timed("cuEventQuery", 0, [&] { return cuEventQuery(event); });
		timed("cuStreamWaitEvent", 0, [&] { return cuStreamWaitEvent(other, event, 0); });
		if (ctx_record_event)
			timed("cuCtxRecordEvent", 0, [&] { return ctx_record_event(context, inexact); });
		timed("cuStreamIsCapturing", 0, [&] { return cuStreamIsCapturing(stream, &status); });
		timed("cuThreadExchangeStreamCaptureMode", 0,
		      [&] { return cuThreadExchangeStreamCaptureMode(&mode); });
		NEED(cuThreadExchangeStreamCaptureMode(&mode));
		timed("cuMemsetD32Async", 4096, [&] { return cuMemsetD32Async(block, 0, 1024, stream); });
		timed("cuMemGetAddressRange_v2", 0, [&] { return cuMemGetAddressRange(&base, &size, block); });
		timed("cuStreamSynchronize", 0, [&] { return cuStreamSynchronize(stream); });
		timed("cuEventQuery (done)", 0, [&] { return cuEventQuery(event); });
		if (i % 20 == 0)
			timed("cuMemGetInfo_v2", 0, [&] { return cuMemGetInfo(&free_bytes, &total_bytes); });
	}
	NEED(cuMemFree(block));
	NEED(cuEventDestroy(event));
	NEED(cuEventDestroy(inexact));
}

static void print(const char *device, int version)
{
	const char *outer = "";

	printf("{\"device\":\"%s\",\"driver_version\":%d,\"calls\":{", device, version);
	for (auto &call : table) {
		const char *inner = "";

		printf("%s\"%s\":{", outer, call.first.c_str());
		outer = ",";
		for (auto &row : call.second) {
			std::vector<uint64_t> &v = row.second;
			uint64_t sum = 0;

			std::sort(v.begin(), v.end());
			for (uint64_t each : v)
				sum += each;
			printf("%s\"%zu\":{\"n\":%zu,\"min_ns\":%llu,\"p50_ns\":%llu,\"p90_ns\":%llu,"
			       "\"mean_ns\":%llu}",
			       inner, row.first, v.size(), (unsigned long long)v[0],
			       (unsigned long long)v[v.size() / 2], (unsigned long long)v[v.size() * 9 / 10],
			       (unsigned long long)(sum / v.size()));
			inner = ",";
		}
		printf("}");
	}
	printf("}}\n");
}

int main()
{
	char name[256];
	CUdevice device;
	CUcontext context;
	CUstream stream, other;
	int version;

	context = open_context(&device);
	NEED(cuDriverGetVersion(&version));
	NEED(cuDeviceGetName(name, sizeof(name), device));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	nothing<<<1, 1, 0, (cudaStream_t)stream>>>(); // loads the module
	spin<<<1, 1, 0, (cudaStream_t)stream>>>(1000);
	NEED(cudaGetLastError());
	NEED(cuStreamSynchronize(stream));
	measure_calls(context, stream, other);
	measure_memory(stream);
	print(name, version);
	return 0;
}
