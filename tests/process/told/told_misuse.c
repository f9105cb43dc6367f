/* SPDX-License-Identifier: MIT */
/* Streams that are not tracked, threads that end, calls that are not allowed, knobs set early. */
#include "tests/process/told/told.h"

static CUstream n;

static void
begin(void)
{
	told_start();
	n = order_stream(NONBLOCKING);
}

enum { MANY = 300 };

static _Atomic int answer;

/* Cancelled already, which shows at the first cancellation point. */
static void *
ask_cancelled(void *stream)
{
	CUdeviceptr x;

	pthread_cancel(pthread_self());
	answer = (int)cuMemAllocAsync(&x, 180 * MIB, stream);
	pthread_testcancel();
	return NULL;
}

/* Memory has run out, and what would do is used by work that goes on: the thread is cancelled while
 * it waits for that, and only the program's own cancellation point ends it. */
static void
cancelled(void)
{
	volatile uint32_t *word;
	pthread_t thread;
	CUdeviceptr x;
	void *result;
	CUstream m;

	begin();
	m = order_stream(NONBLOCKING);
	word = order_word();
	told_set(told_default(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	x = told_take(200 * MIB, n);
	order_wait(word, 1, n);
	told_give(x, n);
	answer = -1;
	EXPECT(!pthread_create(&thread, NULL, ask_cancelled, m));
	EXPECT(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	printf("%d\n", answer);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize(n));
	x = told_take(180 * MIB, m);
	order_use(x, 1, m);
	told_give(x, m);
	order_end();
}

/* More streams than are tracked, and a free in one whose work ends by what the host does next. What
 * was freed serves again once that work is done. */
static void
untracked_free(void)
{
	volatile uint32_t *word;
	CUstream last = NULL;
	CUdeviceptr x;

	begin();
	word = order_word();
	for (int i = 0; i < MANY; i++)
		last = order_stream(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		x = told_take(100 * MIB, n);
		order_use(x, 1, n);
		told_join(n, last);
		order_wait(word, (uint32_t)i + 1, last);
		told_give(x, last);
		*word = (uint32_t)i + 1;
		OK(cuStreamSynchronize(last));
	}
	order_end();
}

static void
own_stream(int number)
{
	CUdeviceptr x;

	OK(cuMemAllocAsync_ptsz(&x, SMALL, NULL));
	order_fill_ptsz(x, (uint32_t)number, 10, NULL);
	OK(cuStreamSynchronize_ptsz(NULL));
	OK(cuMemFreeAsync_ptsz(x, NULL));
}

/* Each has waited for its work before it frees and ends, and another stream works all the time. */
static void
many_threads(void)
{
	volatile uint32_t *word;

	begin();
	word = order_word();
	order_wait(word, 1, n);
	for (int i = 0; i < MANY; i++)
		order_threads(1, own_stream);
	*word = 1;
	order_end();
}

/* A thread's free is followed by its end while its work goes on, again and again. */
static void
own_stream_working(int number)
{
	CUdeviceptr x;

	OK(cuMemAllocAsync_ptsz(&x, 40 * MIB, NULL));
	order_fill_ptsz(x, (uint32_t)number, 100, NULL);
	OK(cuMemFreeAsync_ptsz(x, NULL));
}

static void
threads_end(void)
{
	begin();
	for (int i = 0; i < 4 * ROUNDS; i++) {
		order_threads(1, own_stream_working);
		order_fill(told_take(SMALL, n), 1, LONG, n);
	}
	order_end();
}

static CUdeviceptr kept;

static void
inside_host(void *arg)
{
	CUdeviceptr x = 0;

	SHOW(cuMemAllocAsync(&x, SMALL, n));
	SHOW(cuMemAllocAsync(&x, SMALL, NULL));
	SHOW(cuMemFreeAsync(kept, n));
	SHOW(cuMemFreeAsync(kept, NULL));
	SHOW(cuMemFree_v2(kept));
}

/* Inside a host function, without a current context, with one that is destroyed, and what is
 * freed twice. */
static void
codes(void)
{
	CUcontext context, second;
	CUdeviceptr x, y, z;
	CUstream m;

	begin();
	m = order_stream(NONBLOCKING);
	x = told_take(SMALL, n);
	kept = told_take(SMALL, n);
	y = told_take(SMALL, n);
	z = told_take(SMALL, NULL);
	told_give(y, n);
	OK(cuCtxSynchronize());
	OK(cuLaunchHostFunc(m, inside_host, NULL));
	OK(cuCtxSynchronize());
	told_give(kept, n); /* it was not freed inside */
	OK(cuCtxGetCurrent(&context));
	OK(cuCtxSetCurrent(NULL));
	SHOW(cuMemAllocAsync(&y, SMALL, NULL));
	SHOW(cuMemAllocAsync_ptsz(&y, SMALL, NULL));
	SHOW(cuMemFreeAsync(z, NULL));
	SHOW(cuMemFreeAsync_ptsz(z, NULL));
	SHOW(cuMemFree_v2(x));
	SHOW(cuMemAllocAsync(&y, SMALL, n));
	SHOW(cuMemFreeAsync(y, n));
	SHOW(cuMemAllocAsync(NULL, SMALL, n));
	second = order_context(0);
	SHOW(cuMemAllocAsync(&y, SMALL, NULL));
	SHOW(cuMemFreeAsync(y, NULL));
	OK(cuCtxDestroy_v2(second));
	SHOW(cuMemAllocAsync(&y, SMALL, NULL));
	OK(cuCtxSetCurrent(context));
	SHOW(cuMemAllocAsync(&y, SMALL, (CUstream)0x7fff0000));
	told_give(z, NULL);
	SHOW(cuMemFreeAsync(z, NULL));
	order_end();
}

/* With the default stream alone: a free that is refused for want of a context leaves the memory
 * the program's. */
static void
refused_free(void)
{
	CUcontext context = told_start();
	CUdeviceptr x = told_take(BIG, NULL), y;

	order_fill(x, 1, 10, NULL);
	OK(cuCtxSetCurrent(NULL));
	SHOW(cuMemFreeAsync(x, NULL));
	OK(cuCtxSetCurrent(context));
	y = told_take(BIG, NULL);
	order_fill(y, 2, 10, NULL);
	order_check(x, 1, NULL);
	told_give(y, NULL);
	SHOW(cuMemFreeAsync(x, NULL));
	order_end();
}

/* A threshold that the program sets before its first work. */
static void
early_threshold(void)
{
	cuuint64_t keep = MIB;
	CUmemoryPool pool;
	CUdeviceptr x;

	OK(cuInit(0));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	order_start();
	n = order_stream(NONBLOCKING);
	x = told_take(40 * MIB, n);
	told_give(x, n);
	OK(cuStreamSynchronize(n));
	printf("reserved at most the threshold: %d\n",
	       told_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 2 * MIB);
	printf("threshold %llu\n",
	       (unsigned long long)told_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
	order_end();
}

const struct order_case told_misuse[] = {
	{ "untracked_free", untracked_free },
	{ "many_threads", many_threads },
	{ "threads_end", threads_end },
	{ "codes", codes },
	{ "cancelled", cancelled },
	{ "refused_free", refused_free },
	{ "early_threshold", early_threshold },
	{ 0 },
};
