/* SPDX-License-Identifier: MIT */
/* Cases whose every line must be the same with and without the preload. */
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>
#include <sys/wait.h>

#include "tests/process/shim/cases.h"

static void
bad_frees(void)
{
	CUdeviceptr small, large, managed;
	char host[64];

	case_start();
	SHOW(cuMemFree_v2(0));
	OK(cuMemAlloc_v2(&small, 1000));
	OK(cuMemAlloc_v2(&large, 32 * MIB));
	OK(cuMemAllocManaged(&managed, 4096, 1));
	SHOW(cuMemFree_v2(small + 8));
	SHOW(cuMemFree_v2(small + 512));
	SHOW(cuMemFree_v2(large + 2 * MIB));
	SHOW(cuMemFree_v2((CUdeviceptr)(uintptr_t)host));
	SHOW(cuMemFree_v2(0x1000));
	SHOW(cuMemFree_v2(small));
	SHOW(cuMemFree_v2(small));
	SHOW(cuMemFree_v2(large));
	SHOW(cuMemFree_v2(large));
	SHOW(cuMemFree_v2(large + 1));
	SHOW(cuMemFree_v2(managed));
	SHOW(cuMemFree_v2(managed));
}

static void
odd_sizes(void)
{
	CUdeviceptr pointer = 77;
	size_t pitch = 78;

	case_start();
	SHOW(cuMemAlloc_v2(&pointer, 0));
	EXPECT(pointer == 77);
	SHOW(cuMemAlloc_v2(&pointer, (size_t)1 << 62));
	EXPECT(pointer == 77);
	SHOW(cuMemAlloc_v2(&pointer, SIZE_MAX));
	EXPECT(pointer == 77);
	SHOW(cuMemAlloc_v2(&pointer, (size_t)1 << 50));
	EXPECT(pointer == 77);
	SHOW(cuMemAlloc_v2(NULL, 512));
	SHOW(cuMemAllocPitch_v2(&pointer, &pitch, 0, 10, 4));
	SHOW(cuMemAllocPitch_v2(&pointer, &pitch, 100, 10, 3));
	SHOW(cuMemAllocPitch_v2(&pointer, &pitch, (size_t)1 << 40, 1 << 20, 4));
	EXPECT(pointer == 77 && pitch == 78);
}

static void
no_context(void)
{
	CUdeviceptr pointer = 77;
	size_t free_bytes = 1, total_bytes = 2;

	SHOW(cuMemAlloc_v2(&pointer, 512));
	SHOW(cuMemFree_v2(0x200));
	OK(cuInit(0));
	SHOW(cuMemAlloc_v2(&pointer, 512));
	SHOW(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	EXPECT(pointer == 77 && free_bytes == 1 && total_bytes == 2);
}

static void
dead_context(void)
{
	CUdeviceptr first, second, third = 77;
	CUcontext context = case_context(0);

	OK(cuMemAlloc_v2(&first, 4096));
	OK(cuMemAlloc_v2(&second, 4096));
	OK(cuMemFree_v2(second));
	OK(cuCtxDestroy_v2(context));
	SHOW(cuMemFree_v2(first));
	SHOW(cuMemFree_v2(second));
	SHOW(cuMemAlloc_v2(&third, 512));
	EXPECT(third == 77);
	SHOW(cuCtxDestroy_v2(context));
	/* a new context, very likely with the same handle, owns nothing of the old one */
	case_context(0);
	SHOW(cuMemFree_v2(first));
	OK(cuMemAlloc_v2(&third, 4096));
	case_fill(third, 1024, 5, 0, NULL);
	EXPECT(case_wrong_words(third, 1024, 5) == 0);
	SHOW(cuMemFree_v2(third));
}

/* A context with two usages dies at the second detach. */
static void
detached_context(void)
{
	CUcontext context = case_context(0), again;
	CUdeviceptr pointer;

	SHOW(cuCtxAttach(&again, 0));
	EXPECT(again == context);
	OK(cuMemAlloc_v2(&pointer, 4096));
	SHOW(cuCtxDetach(context));
	SHOW(cuMemFree_v2(pointer));
	OK(cuMemAlloc_v2(&pointer, 4096));
	SHOW(cuCtxDetach(context));
	SHOW(cuMemFree_v2(pointer));
	SHOW(cuCtxDetach(NULL));
	SHOW(cuCtxDestroy_v2(NULL));
}

static void
primary_reset(void)
{
	CUdeviceptr first, second;
	CUcontext context = case_start();

	for (int round = 0; round < 3; round++) {
		OK(cuMemAlloc_v2(&first, 4096));
		OK(cuMemAlloc_v2(&second, 4 * MIB));
		OK(cuMemFree_v2(second));
		OK(cuDevicePrimaryCtxReset_v2(0));
		case_context_died();
		SHOW(cuMemFree_v2(first));
		OK(cuDevicePrimaryCtxRetain(&context, 0));
		OK(cuCtxSetCurrent(context));
		OK(cuMemAlloc_v2(&second, 4 * MIB));
		case_fill(second, MIB, 9, 0, NULL);
		EXPECT(case_wrong_words(second, MIB, 9) == 0);
		SHOW(cuMemFree_v2(second));
	}
	/* two usages: the first release does not end it */
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuMemAlloc_v2(&first, 4096));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	SHOW(cuMemFree_v2(first));
	OK(cuMemAlloc_v2(&first, 4096));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	SHOW(cuMemFree_v2(first));
}

static void
show_range(CUdeviceptr pointer, CUdeviceptr base, size_t offset)
{
	CUdeviceptr found = 1;
	size_t size = 2;
	CUresult rc = cuMemGetAddressRange_v2(&found, &size, pointer + offset);

	if (rc == CUDA_SUCCESS)
		printf("range at +%zu: base %s, size %zu\n", offset,
		       found == base ? "right" : "wrong", size);
	else
		printf("range at +%zu: code %d, outputs %s\n", offset, (int)rc,
		       found == 1 && size == 2 ? "kept" : "changed");
}

static void
show_attributes(CUdeviceptr pointer, CUdeviceptr base)
{
	CUdeviceptr start = 1, device = 1;
	size_t size = 2;
	unsigned type = 3;
	int managed = 4, ordinal = 5;
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
	};
	void *data[] = { &start, &size, &type, &device, &managed, &ordinal };
	CUresult rc = cuPointerGetAttributes(6, names, data, pointer);

	printf("attributes: code %d, start %s, size %zu, type %u, pointer %s, managed %d, ordinal "
	       "%d\n",
	       (int)rc, start == base ? "base" : (start ? "other" : "null"), size, type,
	       device == pointer ? "itself" : (device ? "other" : "null"), managed, ordinal);
	size = 2;
	rc = cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer);
	printf("size alone: code %d, %zu\n", (int)rc, size);
	type = 3;
	rc = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
	printf("type alone: code %d, %u\n", (int)rc, type);
}

static void
ranges(void)
{
	static const size_t sizes[] = { 1, 511, 512, 513, 1000000, 3 * MIB + 5, 64 * MIB };
	CUdeviceptr pointers[7];

	case_start();
	for (int i = 0; i < 7; i++)
		OK(cuMemAlloc_v2(&pointers[i], sizes[i]));
	for (int i = 0; i < 7; i++) {
		show_range(pointers[i], pointers[i], 0);
		show_range(pointers[i], pointers[i], sizes[i] - 1);
		show_range(pointers[i], pointers[i], sizes[i] / 2);
		show_attributes(pointers[i], pointers[i]);
		show_attributes(pointers[i] + sizes[i] - 1, pointers[i]);
	}
	SHOW(cuMemGetAddressRange_v2(NULL, NULL, pointers[0]));
	for (int i = 0; i < 7; i++)
		OK(cuMemFree_v2(pointers[i]));
	for (int i = 0; i < 7; i++) {
		show_range(pointers[i], pointers[i], 0);
		show_attributes(pointers[i], pointers[i]);
	}
}

static void
buffer_ids(void)
{
	unsigned long long first = 0, second = 0, again = 0;
	CUdeviceptr pointer;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 4096));
	OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
	OK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer + 100));
	OK(cuMemFree_v2(pointer));
	OK(cuCtxSynchronize());
	OK(cuMemAlloc_v2(&pointer, 4096));
	OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
	printf("ids: first %s, stable %d, unique %d\n", first ? "set" : "0", first == again,
	       first != second);
}

static void
free_async(void)
{
	CUdeviceptr pointer, other;
	CUstream stream;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	OK(cuMemAlloc_v2(&pointer, 4096));
	case_fill(pointer, 1024, 3, 2000, stream);
	SHOW(cuMemFreeAsync(pointer + 512, stream));
	SHOW(cuMemFreeAsync(pointer, stream));
	SHOW(cuMemFreeAsync(pointer, stream));
	SHOW(cuMemFree_v2(pointer));
	OK(cuMemAlloc_v2(&other, 4096));
	case_fill(other, 1024, 4, 0, NULL);
	OK(cuCtxSynchronize());
	EXPECT(case_wrong_words(other, 1024, 4) == 0);
	SHOW(cuMemFree_v2(other));
	OK(cuMemAllocAsync(&pointer, 4096, stream));
	SHOW(cuMemFreeAsync(pointer, stream));
}

static void
info(void)
{
	size_t before, during, after, total;
	CUdeviceptr pointer;

	case_start();
	OK(cuMemGetInfo_v2(&before, &total));
	OK(cuMemAlloc_v2(&pointer, 64 * MIB));
	OK(cuMemGetInfo_v2(&during, &total));
	OK(cuMemFree_v2(pointer));
	OK(cuMemGetInfo_v2(&after, &total));
	printf("taken %zu, given back %zu\n", before - during, after - during);
	SHOW(cuMemGetInfo_v2(NULL, &total));
	SHOW(cuMemGetInfo_v2(&before, NULL));
}

static void
forked_child(void)
{
	CUdeviceptr pointer, other = 77;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 4096));
	fflush(stdout);
	pid_t child = fork();

	if (child == 0) {
		SHOW(cuMemAlloc_v2(&other, 4096));
		SHOW(cuMemFree_v2(pointer));
		fflush(stdout);
		_exit(other == 77 ? 0 : 1);
	}
	int status;

	waitpid(child, &status, 0);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	SHOW(cuMemFree_v2(pointer));
}

static pthread_barrier_t in_loader;

static int
stay_in_loader(struct dl_phdr_info *info, size_t size, void *arg)
{
	pthread_barrier_wait(&in_loader);
	pthread_barrier_wait(&in_loader);
	return 1;
}

static void *
hold_loader(void *arg)
{
	dl_iterate_phdr(stay_in_loader, NULL);
	return arg;
}

/* The child has the loader's lock as it was, and not the thread that would leave it. */
static void
forked_while_another_thread_loads(void)
{
	CUdeviceptr pointer, other = 77;
	size_t free_bytes, total;
	CUstream stream;
	pthread_t thread;
	int status;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 4096));
	fflush(stdout);
	pthread_barrier_init(&in_loader, NULL, 2);
	pthread_create(&thread, NULL, hold_loader, NULL);
	pthread_barrier_wait(&in_loader);
	pid_t child = fork();

	if (child == 0) {
		alarm(20);
		SHOW(cuMemFree_v2(pointer));
		SHOW(cuMemAlloc_v2(&other, 4096));
		SHOW(cuMemGetInfo_v2(&free_bytes, &total));
		SHOW(cuStreamCreate(&stream, 0));
		SHOW(cuCtxSynchronize());
		fflush(stdout);
		_exit(other == 77 ? 0 : 1);
	}
	pthread_barrier_wait(&in_loader);
	pthread_join(thread, NULL);
	waitpid(child, &status, 0);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	SHOW(cuMemFree_v2(pointer));
}

static void
pitch(void)
{
	CUdeviceptr pointer;
	size_t row;

	case_start();
	OK(cuMemAllocPitch_v2(&pointer, &row, 1000, 30, 4));
	printf("row %zu\n", row);
	show_range(pointer, pointer, row * 30 - 1);
	SHOW(cuMemFree_v2(pointer + row));
	SHOW(cuMemFree_v2(pointer));
	SHOW(cuMemFree_v2(pointer));
}

static void
ipc(void)
{
	CUipcMemHandle handle, other;
	CUdeviceptr pointer;

	case_start();
	OK(cuMemAlloc_v2(&pointer, 64 * MIB)); /* a segment of its own */
	SHOW(cuIpcGetMemHandle(&handle, pointer));
	SHOW(cuMemFree_v2(pointer));
	SHOW(cuIpcGetMemHandle(&other, pointer));
	OK(cuMemAlloc_v2(&pointer, 64 * MIB));
	SHOW(cuIpcGetMemHandle(&other, pointer));
	printf("handles differ: %d\n", memcmp(&handle, &other, sizeof(handle)) != 0);
	SHOW(cuMemFree_v2(pointer));
}

/* A query that fails after it has answered a part of the questions. */
static void
failing_attributes(void)
{
	CUdeviceptr pointer, start = 1;
	size_t size = 2;
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_RANGE_SIZE,
					CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					(CUpointer_attribute)99 };
	void *data[] = { &size, &start, &start };

	case_start();
	OK(cuMemAlloc_v2(&pointer, 4096));
	OK(cuMemAlloc_v2(&pointer, 300));
	printf("code %d, ", (int)cuPointerGetAttributes(3, names, data, pointer));
	printf("size %zu, start %s\n", size,
	       start == pointer ? "base" : (start == 1 ? "kept" : "other"));
	OK(cuMemFree_v2(pointer));
}

static void *
destroy_context(void *context)
{
	OK(cuCtxDestroy_v2(context));
	return NULL;
}

/* One device is nearly full while another's context takes long to die (SIMCUDA_LATENCY). */
static void
slow_death(void)
{
	CUcontext dying = case_context(0);
	CUdeviceptr pointer;
	pthread_t thread;

	case_context(1);
	EXPECT(!pthread_create(&thread, NULL, destroy_context, dying));
	usleep(100 * 1000);
	for (int i = 0; i < 5; i++) {
		OK(cuMemAlloc_v2(&pointer, (size_t)(40 + 2 * i) * MIB));
		OK(cuMemFree_v2(pointer));
	}
	pthread_join(thread, NULL);
}

static _Atomic bool over;

static void *
die_often(void *arg)
{
	CUdeviceptr pointer;

	for (int i = 0; i < 300; i++) {
		CUcontext context;

		OK(cuCtxCreate_v2(&context, 0, 0));
		for (int j = 0; j < 4; j++)
			OK(cuMemAlloc_v2(&pointer, 2 * MIB));
		OK(cuCtxDestroy_v2(context));
	}
	over = true;
	return NULL;
}

/* Memory of a dead context comes back to others as managed memory, which is theirs at once. */
static void
addresses_come_back(void)
{
	CUcontext context = case_start();
	pthread_t thread;

	OK(cuCtxSetCurrent(context));
	EXPECT(!pthread_create(&thread, NULL, die_often, NULL));
	while (!over) {
		CUdeviceptr pointer, base = 1;
		size_t size = 2;

		OK(cuMemAllocManaged(&pointer, 2 * MIB, 1));
		OK(cuMemGetAddressRange_v2(&base, &size, pointer + 100));
		EXPECT(base == pointer && size == 2 * MIB);
		OK(cuMemFree_v2(pointer));
	}
	pthread_join(thread, NULL);
}

const struct test_case test_cases[] = {
	{ "failing_attributes", failing_attributes },
	{ "slow_death", slow_death },
	{ "addresses_come_back", addresses_come_back },
	{ "bad_frees", bad_frees },
	{ "odd_sizes", odd_sizes },
	{ "no_context", no_context },
	{ "dead_context", dead_context },
	{ "detached_context", detached_context },
	{ "primary_reset", primary_reset },
	{ "ranges", ranges },
	{ "buffer_ids", buffer_ids },
	{ "free_async", free_async },
	{ "info", info },
	{ "forked_child", forked_child },
	{ "forked_while_another_thread_loads", forked_while_another_thread_loads },
	{ "pitch", pitch },
	{ "ipc", ipc },
	{ NULL, NULL },
};
