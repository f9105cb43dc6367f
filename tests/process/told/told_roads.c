/* SPDX-License-Identifier: MIT */
/* Pairs with a synchronisation each; captures, the other road's frees, contexts' ends, fork. */
#include "tests/process/told/told.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

static CUstream s, r;

static void
begin(void)
{
	told_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
}

static void
pairs(void)
{
	begin();
	for (unsigned i = 0; i < PAIRS; i++) {
		CUdeviceptr x = told_take(3 * MIB, s);

		told_give(x, s);
		OK(cuStreamSynchronize(s));
	}
	order_end();
}

/* Freed without a stream, the memory may still be used by whom it was freed for before. */
static void
host_free(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, s), y, z;

		order_fill(x, 1, LONG, s);
		told_give(x, s);
		y = told_take(PART, s);
		OK(cuMemFree_v2(y));
		z = told_take(PART, r);
		order_use(z, 2, r);
		told_give(z, r);
	}
	order_end();
}

static void
host_free_used(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, s), y;

		order_fill(x, 1, LONG, s);
		OK(cuStreamSynchronize(s));
		OK(cuMemFree_v2(x));
		y = told_take(PART, r);
		order_use(y, 2, r);
		told_give(y, r);
	}
	order_end();
}

static void
wrong_frees(void)
{
	CUdeviceptr x, y;

	begin();
	x = told_take(PART, s);
	y = told_take(PART, s);
	SHOW(cuMemFreeAsync(x + 512, s));
	SHOW(cuMemFree_v2(x + 512));
	SHOW(cuMemFreeAsync(x, s));
	SHOW(cuMemFreeAsync(x, s));
	SHOW(cuMemFree_v2(x));
	SHOW(cuMemFree_v2(y));
	SHOW(cuMemFreeAsync(y, s));
	SHOW(cuMemFreeAsync(0, s));
	SHOW(cuMemAllocAsync(&x, 0, s));
	SHOW(cuMemAllocAsync(NULL, 512, s));
	SHOW(cuMemAllocAsync(&x, 1ull << 50, s));
	SHOW(cuMemAllocAsync(&x, ~(size_t)0, s));
	order_end();
}

static void
capture_in(CUstreamCaptureMode mode)
{
	CUdeviceptr x, y, z;
	CUgraph graph;
	CUgraphExec exec;

	begin();
	x = told_take(PART, s);
	order_fill(x, 1, LONG, s);
	OK(cuStreamBeginCapture_v2(s, mode));
	y = told_take(PART, s);
	order_fill(y, 2, 0, s);
	SHOW(cuMemFreeAsync(x, s));
	told_give(y, s);
	z = told_take(PART, r);
	order_use(z, 3, r);
	told_give(z, r);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	order_check(x, 1, s);
	for (int i = 0; i < ROUNDS; i++) {
		OK(cuGraphLaunch(exec, s));
		z = told_take(PART, s);
		order_use(z, 4, s);
		told_give(z, s);
	}
	SHOW(cuMemFreeAsync(x, s));
	OK(cuStreamSynchronize(s));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	order_end();
}

static void
capture(void)
{
	capture_in(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* As torch.cuda.graph() begins it: what a capture prohibits ends it. */
static void
capture_global(void)
{
	capture_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* The graph's memory is freed outside, by either road. */
static void
capture_free_outside(void)
{
	CUdeviceptr x, y;
	CUgraph graph;
	CUgraphExec exec;

	begin();
	y = told_take(PART, s);
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	x = told_take(PART, s);
	order_fill(x, 2, 0, s);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, s));
	order_check(x, 2, s);
	SHOW(cuMemFreeAsync(x, s));
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	SHOW(cuMemFree_v2(x));
	told_give(y, s);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	order_end();
}

/* Another context's stream frees it, the first context is gone. */
static void
context_destroyed(void)
{
	CUcontext first, second;
	CUdeviceptr x, y;
	CUstream t;

	OK(cuInit(0));
	first = order_context(0);
	second = order_context(0);
	order_enter(first);
	s = order_stream(NONBLOCKING);
	x = told_take(PART, s);
	y = told_take(PART, s);
	order_fill(x, 7, 0, s);
	OK(cuStreamSynchronize(s));
	told_give(y, s);
	OK(cuCtxDestroy_v2(first));
	order_enter(second);
	t = order_stream(NONBLOCKING);
	order_check(x, 7, t);
	y = told_take(PART, t);
	order_use(y, 2, t);
	SHOW(cuMemFreeAsync(x, t));
	told_give(y, t);
	x = told_take(PART, t);
	order_use(x, 3, t);
	OK(cuStreamSynchronize(t));
	SHOW(cuMemFree_v2(x));
	order_end();
}

/* Live memory outlives the device's reset. */
static void
primary_reset(void)
{
	CUcontext context;
	CUdeviceptr x, y;
	CUstream t;

	begin();
	x = told_take(PART, s);
	y = told_take(PART, s);
	order_fill(x, 7, 0, s);
	OK(cuStreamSynchronize(s));
	told_give(y, s);
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	order_enter(context);
	t = order_stream(NONBLOCKING);
	order_check(x, 7, t);
	y = told_take(PART, t);
	order_use(y, 2, t);
	SHOW(cuMemFreeAsync(x, t));
	told_give(y, t);
	y = told_take(BIG, t);
	order_use(y, 3, t);
	told_give(y, t);
	order_end();
}

/* Two contexts of one device share its pool. */
static void
two_contexts(void)
{
	CUcontext first, second;

	OK(cuInit(0));
	first = order_context(0);
	s = order_stream(NONBLOCKING);
	second = order_context(0);
	r = order_stream(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x, y;

		order_enter(first);
		x = told_take(PART, s);
		order_fill(x, 1, LONG, s);
		told_give(x, s);
		order_enter(second);
		y = told_take(PART, r);
		order_use(y, 2, r);
		told_give(y, r);
		order_enter(first);
		x = told_take(PART, NULL);
		order_use(x, 3, NULL);
		told_give(x, NULL);
	}
	order_enter(second);
	order_end();
	order_enter(first);
	order_end();
}

/* cuCtxCreate_v2 of the driver itself, TOLD_CREATE bytes from its start: stands for what makes a
 * context and is not hooked. */
static CUcontext
make_unseen_context(int device)
{
	const struct link_map *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	const char *offset = getenv("TOLD_CREATE");
	CUresult (*create)(CUcontext * pctx, unsigned int flags, CUdevice dev);
	CUcontext context;

	EXPECT(driver && offset);
	*(uintptr_t *)&create = driver->l_addr + strtoul(offset, NULL, 16);
	OK(create(&context, 0, device));
	return context;
}

static void
expect_memory_of(int device, CUstream stream)
{
	CUdeviceptr x = told_take(MIB, stream);
	int found;

	OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, x));
	EXPECT(found == device);
	told_give(x, stream);
}

/* A default stream's memory is of the current context's device. */
static void
unseen_context(void)
{
	CUcontext first = told_start(), second;

	for (int i = 0; i < ROUNDS; i++) {
		expect_memory_of(0, NULL);
		expect_memory_of(0, CU_STREAM_PER_THREAD);
	}
	second = make_unseen_context(1);
	for (int i = 0; i < ROUNDS; i++) {
		order_enter(i % 2 ? first : second);
		expect_memory_of(i % 2 ? 0 : 1, NULL);
		expect_memory_of(i % 2 ? 0 : 1, CU_STREAM_PER_THREAD);
	}
	OK(cuCtxSynchronize());
}

static void
fork_child(void)
{
	CUdeviceptr x;
	int status;
	pid_t child;

	begin();
	x = told_take(PART, s);
	fflush(stdout);
	child = fork();
	if (!child) {
		printf("%d\n", cuMemFreeAsync(x, s) != 0);
		fflush(stdout);
		_exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
	order_use(x, 1, s);
	told_give(x, s);
	order_end();
}

const struct order_case told_roads[] = {
	{ "pairs", pairs },
	{ "host_free", host_free },
	{ "host_free_used", host_free_used },
	{ "wrong_frees", wrong_frees },
	{ "capture", capture },
	{ "capture_global", capture_global },
	{ "capture_free_outside", capture_free_outside },
	{ "context_destroyed", context_destroyed },
	{ "primary_reset", primary_reset },
	{ "two_contexts", two_contexts },
	{ "unseen_context", unseen_context },
	{ "fork_child", fork_child },
	{ 0 },
};
