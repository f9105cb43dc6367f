// SPDX-License-Identifier: MIT
// Latencies of every call that takes or gives back device memory, by size, in nanoseconds: idle, and while the device
// works. Driver calls only, without kernels, so it runs on any driver; a call that the driver refuses is named with
// its code instead. `alloc_latency [LARGEST]`: bytes, 1 GiB by default. One JSON line.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "need.hpp"

static std::map<std::string, std::map<size_t, std::vector<uint64_t>>> table;
static std::map<std::string, int> refused;
static CUstream stream;
static CUdeviceptr work; // what the device is kept busy with
static size_t work_bytes;
static int device_index;

// False: the driver refuses the call.
template <typename F> static bool timed(const std::string &name, size_t size, F call)
{
	uint64_t start = now_ns();
	int result = (int)call();
	uint64_t spent = now_ns() - start;

	if (result)
		refused[name] = result;
	else
		table[name][size].push_back(spent);
	return !result;
}

static void keep_busy()
{
	for (int i = 0; i < 4; i++)
		NEED(cuMemsetD8Async(work, (unsigned char)i, work_bytes, stream));
}

static void pairs(const std::string &when, size_t size, bool busy)
{
	CUdeviceptr block;
	size_t pitch;

	if (busy)
		keep_busy();
	if (timed("cuMemAlloc_v2" + when, size, [&] { return cuMemAlloc(&block, size); })) {
		if (busy)
			keep_busy();
		timed("cuMemFree_v2" + when, size, [&] { return cuMemFree(block); });
	}
	if (busy)
		keep_busy();
	if (timed("cuMemAllocPitch_v2" + when, size,
		  [&] { return cuMemAllocPitch(&block, &pitch, std::min<size_t>(size, 65536), (size + 65535) / 65536, 4); }))
		timed("cuMemFree_v2 (pitch)" + when, size, [&] { return cuMemFree(block); });
	if (busy)
		keep_busy();
	if (timed("cuMemAllocAsync" + when, size, [&] { return cuMemAllocAsync(&block, size, stream); }))
		timed("cuMemFreeAsync" + when, size, [&] { return cuMemFreeAsync(block, stream); });
	if (timed("cuMemAllocManaged" + when, size,
		  [&] { return cuMemAllocManaged(&block, size, CU_MEM_ATTACH_GLOBAL); }))
		timed("cuMemFree_v2 (managed)" + when, size, [&] { return cuMemFree(block); });
	NEED(cuStreamSynchronize(stream));
}

static void host(size_t size)
{
	void *memory;

	if (timed("cuMemHostAlloc", size, [&] { return cuMemHostAlloc(&memory, size, 0); }))
		timed("cuMemFreeHost", size, [&] { return cuMemFreeHost(memory); });
}

static void array(size_t size)
{
	CUDA_ARRAY_DESCRIPTOR form = {};
	CUarray memory;

	form.Width = std::min<size_t>(size / 4, 16384);
	form.Height = size / 4 / form.Width;
	form.Format = CU_AD_FORMAT_FLOAT;
	form.NumChannels = 1;
	if (timed("cuArrayCreate_v2", size, [&] { return cuArrayCreate(&memory, &form); }))
		timed("cuArrayDestroy", size, [&] { return cuArrayDestroy(memory); });
}

// Physical memory, addresses and the mapping of one to the other.
static void mapped(size_t size)
{
	CUmemAllocationProp prop = {};
	CUmemAccessDesc access = {};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device_index;
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	size = (size + (2 << 20) - 1) / (2 << 20) * (2 << 20);
	if (!timed("cuMemAddressReserve", size, [&] { return cuMemAddressReserve(&address, size, 0, 0, 0); }))
		return;
	if (timed("cuMemCreate", size, [&] { return cuMemCreate(&handle, size, &prop, 0); })) {
		if (timed("cuMemMap", size, [&] { return cuMemMap(address, size, 0, handle, 0); })) {
			timed("cuMemSetAccess", size, [&] { return cuMemSetAccess(address, size, &access, 1); });
			timed("cuMemUnmap", size, [&] { return cuMemUnmap(address, size); });
		}
		timed("cuMemRelease", size, [&] { return cuMemRelease(handle); });
	}
	timed("cuMemAddressFree", size, [&] { return cuMemAddressFree(address, size); });
}

// What programs ask beside it.
static void questions()
{
	size_t left, total, size;
	CUdeviceptr block, base;

	NEED(cuMemAlloc(&block, 1 << 20));
	for (int i = 0; i < 200; i++) {
		timed("cuMemGetInfo_v2", 0, [&] { return cuMemGetInfo(&left, &total); });
		timed("cuMemGetAddressRange_v2", 0, [&] { return cuMemGetAddressRange(&base, &size, block + 4); });
	}
	NEED(cuMemFree(block));
	// refused for want of memory
	for (int i = 0; i < 20; i++) {
		uint64_t start = now_ns();

		if (cuMemAlloc(&block, total * 2) != CUDA_ERROR_OUT_OF_MEMORY)
			exit(1);
		table["cuMemAlloc_v2 (out of memory)"][0].push_back(now_ns() - start);
	}
}

static void print(const char *device, int version)
{
	const char *outer = "";

	printf("{\"device\":\"%s\",\"driver_version\":%d,\"refused\":{", device, version);
	for (auto &call : refused) {
		printf("%s\"%s\":%d", outer, call.first.c_str(), call.second);
		outer = ",";
	}
	printf("},\"calls\":{");
	outer = "";
	for (auto &call : table) {
		const char *inner = "";

		printf("%s\"%s\":{", outer, call.first.c_str());
		outer = ",";
		for (auto &row : call.second) {
			std::vector<uint64_t> &v = row.second;

			std::sort(v.begin(), v.end());
			printf("%s\"%zu\":{\"n\":%zu,\"min_ns\":%llu,\"p50_ns\":%llu,\"p90_ns\":%llu,"
			       "\"p99_ns\":%llu,\"max_ns\":%llu}",
			       inner, row.first, v.size(), (unsigned long long)v[0],
			       (unsigned long long)v[v.size() / 2], (unsigned long long)v[v.size() * 9 / 10],
			       (unsigned long long)v[v.size() * 99 / 100], (unsigned long long)v.back());
			inner = ",";
		}
		printf("}");
	}
	printf("}}\n");
}

int main(int argc, char **argv)
{
	size_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : (size_t)1 << 30;
	char name[256];
	CUdevice device;
	int version;

	open_context(&device);
	NEED(cuDriverGetVersion(&version));
	device_index = (int)device;
	NEED(cuDeviceGetName(name, sizeof(name), device));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	work_bytes = std::min<size_t>(largest, 256 << 20);
	NEED(cuMemAlloc(&work, work_bytes));
	for (size_t size = 512; size <= largest; size *= size < (1 << 20) ? 16 : 4) {
		int rounds = size <= (64 << 20) ? 60 : 12;

		for (int i = 0; i < rounds; i++)
			pairs("", size, false);
		for (int i = 0; i < rounds / 3; i++)
			pairs(" while the device works", size, true);
		for (int i = 0; i < rounds / 3; i++) {
			host(size);
			if (size >= 4096)
				array(size);
			mapped(size);
		}
	}
	questions();
	NEED(cuMemFree(work));
	print(name, version);
	return 0;
}
