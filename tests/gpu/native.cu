// SPDX-License-Identifier: MIT
// What the driver answers to misuse and in corners: `native --list`, or `native CASE`, one process a case.
// Prints {"case":...,"answers":[[what, code or value],...]}. Addresses never appear: only differences do.
#include <cuda.h>
#include <pthread.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "need.hpp"

static CUcontext context;
static CUstream stream;
static const char *comma = "";

static void say(const char *what, long long value)
{
	printf("%s[\"%s\",%lld]", comma, what, value);
	comma = ",";
}

#define SAY(call) say(#call, (long long)(call))

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	NEED(cuMemAlloc(&p, size));
	return p;
}

static void double_free()
{
	CUdeviceptr p = alloc(4096);

	SAY(cuMemFree(p));
	SAY(cuMemFree(p));
}

static void interior_free()
{
	CUdeviceptr p = alloc(1 << 20);

	SAY(cuMemFree(p + 512));
	SAY(cuMemFree(p + 1));
	SAY(cuMemFree(p));
}

static void foreign_free()
{
	static char host[64];

	SAY(cuMemFree(0));
	SAY(cuMemFree((CUdeviceptr)(uintptr_t)host));
	SAY(cuMemFree(0x7000dead0000ull));
}

static void sizes()
{
	CUdeviceptr p = 0;

	SAY(cuMemAlloc(&p, 0));
	SAY(cuMemAlloc(&p, 1ull << 62));
	SAY(cuMemAlloc(&p, (size_t)-1));
	SAY(cuMemAlloc(NULL, 512));
	SAY(cuMemAlloc(&p, 1ull << 50));
	SAY(cuMemAlloc(&p, 1));
	SAY(p % 512);
	SAY(cuMemFree(p));
}

static void alignment()
{
	static const size_t all[] = {1, 512, 513, 65536, (1 << 20) + 1, 2 << 20, (2 << 20) + 1, 33 << 20};

	for (size_t size : all) {
		CUdeviceptr p = alloc(size);

		say("size", (long long)size);
		SAY(p % 512);
		SAY(size < (2u << 20) ? 0 : (long long)(p % (2 << 20)));
	}
}

static void range_say(CUdeviceptr block, CUdeviceptr p)
{
	CUdeviceptr base = block;
	size_t size = 0;

	SAY(cuMemGetAddressRange(&base, &size, p));
	SAY((long long)(base - block));
	SAY(size);
}

static void address_range()
{
	CUdeviceptr p = alloc(100000);

	range_say(p, p);
	range_say(p, p + 1);
	range_say(p, p + 99999);
	NEED(cuMemFree(p));
	range_say(p, p);
}

static void attributes_say(CUdeviceptr block, CUdeviceptr p)
{
	unsigned long long value;
	static const CUpointer_attribute plain[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_MAPPED,
		CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};

	for (CUpointer_attribute attribute : plain) {
		value = 0;
		say("attribute", attribute);
		SAY(cuPointerGetAttribute(&value, attribute, p));
		SAY(value & 0xffffffffu);
	}
	value = 0;
	SAY(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
	SAY(value ? (long long)(value - block) : -1);
	value = 0;
	SAY(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
	SAY(value ? (long long)(value - block) : -1);
	value = 0;
	SAY(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	SAY((CUcontext)(uintptr_t)value == context);
}

static void attributes()
{
	CUdeviceptr p = alloc(100000);

	attributes_say(p, p);
	attributes_say(p, p + 5);
	attributes_say(p, p + 99999);
}

static void attributes_of_freed()
{
	CUdeviceptr p = alloc(100000);

	NEED(cuMemFree(p));
	attributes_say(p, p);
}

static void buffer_ids()
{
	CUdeviceptr p = alloc(4096), q = alloc(4096);
	unsigned long long a = 0, b = 0, c = 0;

	SAY(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	SAY(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
	SAY(a != b);
	NEED(cuMemFree(p));
	p = alloc(4096);
	SAY(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	SAY(c != a);
}

static void ipc()
{
	CUdeviceptr whole = alloc(4 << 20), p = alloc(4096);
	CUipcMemHandle a, b;

	SAY(cuIpcGetMemHandle(&a, whole));
	SAY(cuIpcGetMemHandle(&b, whole + 4096));
	SAY(memcmp(&a, &b, sizeof(a)) == 0);
	SAY(cuIpcGetMemHandle(&a, p));
	SAY(cuIpcGetMemHandle(&b, p + 512));
	NEED(cuMemFree(p));
	SAY(cuIpcGetMemHandle(&a, p));
}

static void capture_with(CUstreamCaptureMode mode, bool free_instead)
{
	CUdeviceptr before = alloc(4096), p = 0;
	CUgraph graph = NULL;

	NEED(cuStreamBeginCapture(stream, mode));
	NEED(cuMemsetD32Async(before, 1, 16, stream));
	if (free_instead)
		SAY(cuMemFree(before));
	else
		SAY(cuMemAlloc(&p, 4096));
	SAY(cuStreamEndCapture(stream, &graph));
	SAY(graph != NULL);
}

static void capture_alloc_global() { capture_with(CU_STREAM_CAPTURE_MODE_GLOBAL, false); }
static void capture_alloc_local() { capture_with(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false); }
static void capture_alloc_relaxed() { capture_with(CU_STREAM_CAPTURE_MODE_RELAXED, false); }
static void capture_free_global() { capture_with(CU_STREAM_CAPTURE_MODE_GLOBAL, true); }
static void capture_free_local() { capture_with(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true); }
static void capture_free_relaxed() { capture_with(CU_STREAM_CAPTURE_MODE_RELAXED, true); }

static void capture_context_mark()
{
	CUevent event;
	CUgraph graph = NULL;
	CUdriverProcAddressQueryResult found;
	CUresult (*record)(CUcontext, CUevent) = NULL;

	NEED(cuGetProcAddress("cuCtxRecordEvent", (void **)&record, 12050, 0, &found));
	SAY(record != NULL);
	NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (record)
		SAY(record(context, event));
	SAY(cuStreamEndCapture(stream, &graph));
	SAY(graph != NULL);
}

static void free_async()
{
	CUdeviceptr p = alloc(4096);

	SAY(cuMemFreeAsync(p, stream));
	SAY(cuStreamSynchronize(stream));
	SAY(cuMemFree(p));
	SAY(cuMemFreeAsync(0, stream));
	p = alloc(1 << 20);
	SAY(cuMemFreeAsync(p + 512, stream));
	SAY(cuMemFree(p));
}

static size_t free_now()
{
	size_t unused = 0, total;

	NEED(cuMemGetInfo(&unused, &total));
	return unused;
}

// Memory of cuMemAlloc that a stream-ordered free takes: the call waits for nobody, and the memory is there again when
// the stream was synchronised; whether before, differs.
static void free_async_memory()
{
	const size_t size = 256 << 20;
	size_t before = free_now();
	CUdeviceptr p = alloc(size), q;
	int i;

	say("taken", before - free_now() >= size);
	for (i = 0; i < 100; i++)
		NEED(cuMemsetD32Async(p, i, size / 4, stream));
	SAY(cuMemFreeAsync(p, stream));
	say("the call waited for the work", cuStreamQuery(stream) == CUDA_SUCCESS);
	say("back while the stream works", before - free_now() < size);
	while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
		;
	say("back when a query has answered", before - free_now() < size);
	q = alloc(4096);
	say("back when other memory was taken", before - free_now() < size);
	SAY(cuStreamSynchronize(stream));
	say("back when the stream was synchronised", before - free_now() < size);
	SAY(cuMemFree(q));
	say("all of it", before - free_now() == 0);
}

static void no_context()
{
	CUdeviceptr p = alloc(4096), q = 0;

	NEED(cuCtxSetCurrent(NULL));
	SAY(cuMemAlloc(&q, 4096));
	SAY(cuMemFree(p));
	SAY(cuMemFree(0));
}

static void other_context()
{
	CUcontext second;
	CUdeviceptr p = alloc(4096), q;

#if CUDA_VERSION >= 13000
	NEED(cuCtxCreate(&second, NULL, 0, 0));
#else
	NEED(cuCtxCreate(&second, 0, 0));
#endif
	q = alloc(4096);
	SAY(cuMemFree(p));
	SAY(cuCtxDestroy(second));
	SAY(cuCtxSetCurrent(context));
	SAY(cuMemFree(q));
}

static void after_reset()
{
	CUdeviceptr p = alloc(4096), q = 0;

	NEED(cuDevicePrimaryCtxReset(0));
	SAY(cuMemAlloc(&q, 4096));
	SAY(cuMemFree(p));
}

// Whether memory of a pool outlives the device's reset, which no documentation says.
static void pool_after_reset()
{
	CUmemoryPool pool;
	CUdeviceptr p = 0;
	cuuint64_t used = 0;

	NEED(cuDeviceGetDefaultMemPool(&pool, 0));
	NEED(cuMemAllocAsync(&p, 4096, stream));
	NEED(cuStreamSynchronize(stream));
	NEED(cuDevicePrimaryCtxReset(0));
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuCtxSetCurrent(context));
	SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	say("used", (long long)used);
	SAY(cuMemsetD8(p, 1, 4096));
	SAY(cuCtxSynchronize());
	SAY(cuMemFreeAsync(p, NULL));
	SAY(cuCtxSynchronize());
}

static volatile uint32_t *word;
static volatile bool posted;

static void *wait_on_per_thread_stream(void *)
{
	NEED(cuCtxSetCurrent(context));
	NEED(cuStreamWaitValue32(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	posted = true;
	NEED(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	return NULL;
}

// Whether what a mark is assumed to come after holds it up, while nothing holds up the control.
static void held_up(const char *what, CUevent mark)
{
	const struct timespec pause = { 0, 1000000 };
	CUevent control;
	CUresult done;
	int i;

	NEED(cuEventCreate(&control, CU_EVENT_DISABLE_TIMING));
	NEED(cuEventRecord(control, stream));
	for (i = 0; i < 100 && cuEventQuery(control) == CUDA_ERROR_NOT_READY; i++)
		nanosleep(&pause, NULL);
	done = cuEventQuery(mark);
	printf("%s[\"%s: control, mark\",[%d,%d]]", comma, what, (int)cuEventQuery(control), (int)done);
	comma = ",";
	*word = 1;
	NEED(cuEventSynchronize(mark));
	NEED(cuStreamSynchronize(CU_STREAM_LEGACY));
}

// What the library tries before it relies on it (docs/ORDER.md, rule 19).
static void assumptions()
{
	CUresult (*record)(CUcontext, CUevent) = NULL;
	CUdriverProcAddressQueryResult found;
	CUstream blocking;
	CUevent mark;
	pthread_t thread;

	NEED(cuMemHostAlloc((void **)&word, sizeof(*word), 0));
	*word = 0;
	NEED(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
	NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	NEED(cuStreamWaitValue32(CU_STREAM_LEGACY, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	NEED(cuEventRecord(mark, blocking));
	held_up("a record on an idle blocking stream, behind the legacy stream", mark);
	NEED(cuGetProcAddress("cuCtxRecordEvent", (void **)&record, 12050, 0, &found));
	SAY(record != NULL);
	if (!record)
		return;
	*word = 0;
	need(pthread_create(&thread, NULL, wait_on_per_thread_stream, NULL), "pthread_create");
	while (!posted)
		;
	NEED(record(context, mark));
	held_up("an event of the context, behind another thread's stream", mark);
	need(pthread_join(thread, NULL), "pthread_join");
}

static void pitch()
{
	CUdeviceptr p = 0;
	size_t step = 0;

	SAY(cuMemAllocPitch(&p, &step, 100, 10, 4));
	SAY(step);
	range_say(p, p);
	SAY(cuMemFree(p));
	SAY(cuMemAllocPitch(&p, &step, 0, 10, 4));
	SAY(cuMemAllocPitch(&p, &step, 100, 0, 4));
	SAY(cuMemAllocPitch(&p, &step, 100, 10, 3));
}

static const struct {
	const char *name;
	void (*run)();
} cases[] = {
#define CASE(name) { #name, name }
	CASE(double_free),	   CASE(interior_free),	       CASE(foreign_free),	   CASE(sizes),
	CASE(alignment),	   CASE(address_range),	       CASE(attributes),	   CASE(attributes_of_freed),
	CASE(buffer_ids),	   CASE(ipc),		       CASE(capture_alloc_global), CASE(capture_alloc_local),
	CASE(capture_alloc_relaxed), CASE(capture_free_global), CASE(capture_free_local),   CASE(capture_free_relaxed),
	CASE(capture_context_mark), CASE(free_async),	       CASE(free_async_memory),	   CASE(no_context),
	CASE(other_context),
	CASE(after_reset),	   CASE(pool_after_reset),     CASE(pitch),		   CASE(assumptions),
};

int main(int argc, char **argv)
{
	CUdevice device;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (auto &each : cases)
			printf("%s\n", each.name);
		return 0;
	}
	for (auto &each : cases) {
		if (argc != 2 || strcmp(argv[1], each.name))
			continue;
		context = open_context(&device);
		NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		printf("{\"case\":\"%s\",\"answers\":[", each.name);
		each.run();
		printf("]}\n");
		return 0;
	}
	fprintf(stderr, "usage: native --list | CASE\n");
	return 2;
}
