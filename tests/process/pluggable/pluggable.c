/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's CUDAPluggableAllocator in the use of cachealloc_torch_*: `pluggable CASE`. The
 * functions are those of the preloaded library, or of the one that PLUGGABLE_LIBRARY names, which
 * is opened as PyTorch opens it; PLUGGABLE_CXX opens a C++ library first.
 */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/order/order.h"

static void *(*take)(size_t bytes, int device, void *stream);
static void (*give)(void *memory, size_t bytes, int device, void *stream);
static void (*record)(void *memory, void *stream);
static void (*empty)(void);
static CUstream s, r;

enum { ROUNDS = 6 };

static void *
function(void *library, const char *name)
{
	void *found = dlsym(library, name);

	EXPECT(found);
	return found;
}

static void
begin(void)
{
	const char *path = getenv("PLUGGABLE_LIBRARY"), *cxx = getenv("PLUGGABLE_CXX");
	void *library = RTLD_DEFAULT;

	if (cxx)
		EXPECT(dlopen(cxx, RTLD_NOW | RTLD_GLOBAL));
	order_start();
	if (path)
		EXPECT((library = dlopen(path, RTLD_LAZY)));
	*(void **)&take = function(library, "cachealloc_torch_malloc");
	*(void **)&give = function(library, "cachealloc_torch_free");
	*(void **)&record = function(library, "cachealloc_torch_record_stream");
	*(void **)&empty = function(library, "cachealloc_torch_empty_cache");
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
}

static CUdeviceptr
tensor(size_t bytes, CUstream stream)
{
	void *memory = take(bytes, 0, stream);

	EXPECT(memory);
	return (CUdeviceptr)(uintptr_t)memory;
}

static void
drop(CUdeviceptr memory, size_t bytes, CUstream stream)
{
	give((void *)(uintptr_t)memory, bytes, 0, stream);
}

/* A step after the other in one stream, with tensors of two sizes. */
static void
steps(void)
{
	begin();
	for (uint32_t i = 0; i < 100; i++) {
		CUdeviceptr a = tensor(PART, s), b = tensor(4 * WORDS, s);

		order_fill(a, i, 20, s);
		order_copy(b, a, 20, s);
		drop(a, PART, s);
		order_check(b, i, s);
		drop(b, 4 * WORDS, s);
		if (i % 10 == 9)
			OK(cuStreamSynchronize(s));
	}
	order_end();
}

/* A side stream works with a tensor for long; it was recorded. */
static void
recorded(void)
{
	begin();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = tensor(BIG, s), b;
		CUevent event = order_event();

		order_fill(a, i, 10, s);
		OK(cuEventRecord(event, s));
		OK(cuStreamWaitEvent(r, event, 0));
		order_fill(a, i + 1, LONG, r);
		order_check(a, i + 1, r);
		record((void *)(uintptr_t)a, r);
		record((void *)(uintptr_t)a, r);
		drop(a, BIG, s);
		b = tensor(BIG, s);
		order_use(b, 77, s);
		drop(b, BIG, s);
	}
	order_end();
}

/* Freed in one stream, taken in another that is not ordered behind it. */
static void
crossed(void)
{
	begin();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = tensor(BIG, s), b;

		order_use(a, i, s);
		order_fill(a, i, LONG, s);
		drop(a, BIG, s);
		b = tensor(BIG, r);
		order_use(b, i + 50, r);
		drop(b, BIG, r);
	}
	empty();
	order_end();
}

/* Tensors of a captured step are the graph's for ever, also when they are freed. */
static void
captured(void)
{
	CUdeviceptr a, b, kept;
	CUgraphExec exec;
	CUgraph graph;

	begin();
	kept = tensor(4 * WORDS, s);
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	a = tensor(BIG, s);
	order_fill(a, 5, 10, s);
	order_copy(kept, a, 10, s);
	drop(a, BIG, s);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		OK(cuGraphLaunch(exec, s));
		b = tensor(BIG, r);
		order_use(b, i + 9, r);
		order_check(kept, 5, s);
		drop(b, BIG, r);
	}
	OK(cuStreamSynchronize(s));
	drop(kept, 4 * WORDS, s);
	order_end();
}

/* A stream that was recorded captures while the memory is freed in one that does not. */
static void
recorded_in_capture(void)
{
	CUstreamCaptureStatus status;
	CUgraph graph;
	CUdeviceptr early, late;

	begin();
	early = tensor(BIG, s);
	late = tensor(BIG, s);
	record((void *)(uintptr_t)early, r);
	OK(cuStreamBeginCapture_v2(r, CU_STREAM_CAPTURE_MODE_RELAXED));
	record((void *)(uintptr_t)late, r);
	drop(early, BIG, s);
	drop(late, BIG, s);
	OK(cuStreamIsCapturing(s, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamEndCapture(r, &graph));
	early = tensor(BIG, s);
	order_use(early, 3, s);
	drop(early, BIG, s);
	order_end();
}

/* Another device than the current one, and its default stream. */
static void
devices(void)
{
	CUcontext first, second;
	CUdeviceptr a;

	begin();
	OK(cuCtxGetCurrent(&first));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	for (int i = 0; i < ROUNDS; i++) {
		a = (CUdeviceptr)(uintptr_t)take(BIG, 1, NULL);
		EXPECT(a);
		OK(cuCtxSetCurrent(second));
		OK(cuMemsetD8Async(a, 1, 4096, NULL));
		OK(cuCtxSetCurrent(first));
		give((void *)(uintptr_t)a, BIG, 1, NULL);
	}
	OK(cuCtxGetCurrent(&second));
	EXPECT(second == first);
	order_end();
}

enum { MANY = 64 }; /* blocks, of which the device holds some */

/* The first device's memory can be reached from `context`, of the second one. */
static void
let_in(CUcontext first, CUcontext context)
{
	CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemoryPool pool;

	order_enter(context);
	OK(cuCtxEnablePeerAccess(first, 0));
	order_enter(first);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAccess(pool, &access, 1));
}

/* A stream of another device works with a tensor for long; it was recorded while `at_record` was
 * current. */
static void
recorded_of(CUcontext first, CUcontext second, CUstream stream, CUcontext at_record)
{
	for (uint32_t i = 0; i < MANY; i++) {
		CUdeviceptr a = tensor(BIG, s);
		CUevent event = order_event();

		order_fill(a, i, 10, s);
		OK(cuEventRecord(event, s));
		order_enter(second);
		OK(cuStreamWaitEvent(stream, event, 0));
		order_fill(a, i + 1, LONG / 4, stream);
		order_check(a, i + 1, stream);
		order_enter(at_record);
		record((void *)(uintptr_t)a, stream);
		order_enter(first);
		drop(a, BIG, s);
		OK(cuEventDestroy_v2(event));
	}
}

static void
recorded_elsewhere(void)
{
	CUcontext first, second;
	CUstream other;

	begin();
	OK(cuCtxGetCurrent(&first));
	second = order_context(1);
	let_in(first, second);
	order_enter(second);
	other = order_stream(NONBLOCKING);
	order_enter(first);
	recorded_of(first, second, other, first);
	recorded_of(first, second, other, second);
	recorded_of(first, second, NULL, second);
	order_enter(second);
	order_end();
	order_enter(first);
	order_end();
}

/* Freed in the thread's default stream of another device while that captures: given back later,
 * when this device is asked for memory. */
static void
freed_elsewhere(void)
{
	CUcontext first, second;
	CUdeviceptr a, b;
	CUstream other;
	CUgraph graph;

	begin();
	OK(cuCtxGetCurrent(&first));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	order_enter(second);
	other = order_stream(NONBLOCKING);
	a = (CUdeviceptr)(uintptr_t)take(BIG, 1, CU_STREAM_PER_THREAD);
	EXPECT(a);
	order_fill(a, 1, 10 * LONG, CU_STREAM_PER_THREAD);
	OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	give((void *)(uintptr_t)a, BIG, 1, CU_STREAM_PER_THREAD);
	OK(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
	order_enter(first);
	b = tensor(BIG, s);
	order_enter(second);
	a = (CUdeviceptr)(uintptr_t)take(BIG, 1, other);
	EXPECT(a);
	order_use(a, 2, other);
	order_end();
	order_enter(first);
	drop(b, BIG, s);
	order_end();
}

/* A device that nobody has used: its context stays for the memory. */
static void
unused_device(void)
{
	CUcontext first, second;
	CUdeviceptr a;

	begin();
	OK(cuCtxGetCurrent(&first));
	a = (CUdeviceptr)(uintptr_t)take(BIG, 1, NULL);
	EXPECT(a);
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	OK(cuMemsetD8Async(a, 1, 4096, NULL));
	OK(cuCtxSynchronize());
	give((void *)(uintptr_t)a, BIG, 1, NULL);
	OK(cuCtxSetCurrent(first));
	order_end();
}

static void
out_of_memory(void)
{
	CUdeviceptr a;

	begin();
	EXPECT(!take(0, 0, s));
	give(NULL, 0, 0, s);
	printf("%p\n", take((size_t)1 << 40, 0, s));
	a = tensor(PART, s);
	order_use(a, 3, s);
	drop(a, PART, s);
	order_end();
}

static void
work(int number)
{
	for (uint32_t i = 0; i < 200; i++) {
		size_t bytes = (size_t)4 * WORDS << (i + (uint32_t)number) % 8;
		CUstream stream = number % 2 ? s : r;
		CUdeviceptr a = tensor(bytes, stream);

		order_fill(a, i, 0, stream);
		order_check(a, i, stream);
		drop(a, bytes, stream);
		if (i % 50 == 49)
			empty();
	}
}

static void
threads(void)
{
	begin();
	order_threads(16, work);
	order_end();
}

/* A child frees what it inherited, and asks for more: it gets nothing, and goes on. */
static void
forked(void)
{
	CUdeviceptr a;
	int status;
	pid_t child;

	begin();
	a = tensor(PART, s);
	order_use(a, 1, s);
	child = fork();
	if (!child) {
		record((void *)(uintptr_t)a, r);
		drop(a, PART, s);
		empty();
		_exit(take(PART, 0, s) != NULL);
	}
	EXPECT(waitpid(child, &status, 0) == child && !status);
	order_use(a, 2, s);
	drop(a, PART, s);
	order_end();
}

static const struct order_case cases[] = {
	{ "forked", forked },
	{ "steps", steps },
	{ "recorded", recorded },
	{ "recorded_elsewhere", recorded_elsewhere },
	{ "freed_elsewhere", freed_elsewhere },
	{ "crossed", crossed },
	{ "captured", captured },
	{ "devices", devices },
	{ "unused_device", unused_device },
	{ "out_of_memory", out_of_memory },
	{ "threads", threads },
	{ "recorded_in_capture", recorded_in_capture },
	{ 0 },
};
const struct order_case *const order_cases[] = { cases, NULL };
