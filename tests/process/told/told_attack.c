/* SPDX-License-Identifier: MIT */
/* Contexts that end, forks, and crowds. */
#include "tests/process/told/told.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CROWD = 15, STEPS = 120 };

static CUstream n, m;

static void
begin(void)
{
	told_start();
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
}

/* Cached memory, live memory, and memory that was freed behind work: all of the device is to be had
 * after the end, but for what is live, which stays as it is. */
static void
fill_up(CUdeviceptr live)
{
	CUstream t = order_stream(NONBLOCKING);
	CUdeviceptr y;

	order_check(live, 7, t);
	y = told_take(200 * MIB, t);
	order_use(y, 2, t);
	told_give(y, t);
	OK(cuStreamSynchronize(t));
	OK(cuMemAlloc_v2(&y, 200 * MIB));
	OK(cuMemFree_v2(y));
	order_check(live, 7, t);
	SHOW(cuMemFreeAsync(live, t));
	OK(cuStreamSynchronize(t));
	y = told_take(240 * MIB, t);
	order_use(y, 4, t);
	told_give(y, t);
	order_end();
}

static CUdeviceptr
leave_all_kinds(void)
{
	CUdeviceptr live = told_take(BIG, n), x = told_take(60 * MIB, n), y = told_take(PART, m),
		    z = told_take(40 * MIB, NULL);

	order_fill(live, 7, 0, n);
	told_give(z, NULL);
	OK(cuCtxSynchronize());
	order_fill(x, 1, LONG, n);
	told_give(x, n);
	order_fill(y, 1, LONG, m);
	told_give(y, m);
	return live;
}

static void
reset_device(void)
{
	CUcontext context;
	CUdeviceptr live;

	begin();
	live = leave_all_kinds();
	OK(cuCtxSynchronize());
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	order_enter(context);
	fill_up(live);
}

static void
reset_working(void)
{
	CUcontext context;
	CUdeviceptr live;

	begin();
	live = leave_all_kinds();
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	order_enter(context);
	printf("used %llu\n", (unsigned long long)told_attribute(told_default(),
								 CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	fill_up(live);
}

static void
released(void)
{
	CUcontext context;
	CUdeviceptr live;

	begin();
	live = leave_all_kinds();
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	order_enter(context);
	fill_up(live);
}

/* The last context goes with all kinds of memory, another one comes. */
static void
destroyed_working(void)
{
	CUcontext first;
	CUdeviceptr live;

	OK(cuInit(0));
	first = order_context(0);
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
	live = leave_all_kinds();
	OK(cuCtxDestroy_v2(first));
	order_enter(order_context(0));
	fill_up(live);
}

/* Nothing can be waited for: no context at all. */
static void
freed_without(void)
{
	CUcontext first;
	CUdeviceptr live, x;

	OK(cuInit(0));
	first = order_context(0);
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
	x = told_take(BIG, n);
	live = leave_all_kinds();
	OK(cuCtxDestroy_v2(first));
	SHOW(cuMemFreeAsync(x, NULL));
	SHOW(cuMemFree_v2(x));
	OK(cuMemPoolTrimTo(told_default(), 0));
	order_enter(order_context(0));
	fill_up(live);
}

static void
own_pool_reset(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemoryPool own, now;
	CUcontext context;
	CUdeviceptr x, y;

	begin();
	OK(cuMemPoolCreate(&own, &props));
	OK(cuDeviceSetMemPool(0, own));
	x = told_take(BIG, n);
	y = told_take(BIG, n);
	order_fill(x, 7, 0, n);
	OK(cuCtxSynchronize());
	told_give(y, n);
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	order_enter(context);
	n = order_stream(NONBLOCKING);
	OK(cuDeviceGetMemPool(&now, 0));
	printf("own %d, used %llu\n", now == own,
	       (unsigned long long)told_attribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	order_check(x, 7, n);
	y = told_take(BIG, n);
	order_use(y, 3, n);
	told_give(y, n);
	SHOW(cuMemFreeAsync(x, n));
	SHOW(cuMemPoolDestroy(own));
	order_end();
}

/* The child has none of it and frees nothing, though it tries, and ends as programs do. */
static void
forked(void)
{
	CUdeviceptr x[3], y;
	int status;
	pid_t child;

	begin();
	for (int i = 0; i < 3; i++) {
		x[i] = told_take(BIG, n);
		order_fill(x[i], (uint32_t)i, LONG, n);
	}
	told_give(x[2], n);
	fflush(stdout);
	child = fork();
	if (!child) {
		SHOW(cuMemFreeAsync(x[0], n) != 0);
		SHOW(cuMemFree_v2(x[1]) != 0);
		SHOW(cuMemFreeAsync(x[1], NULL) != 0);
		SHOW(cuMemAllocAsync(&y, BIG, n) != 0);
		SHOW(cuCtxSynchronize() != 0);
		exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	for (int i = 0; i < 2; i++) {
		order_check(x[i], (uint32_t)i, n);
		told_give(x[i], n);
	}
	y = told_take(200 * MIB, n);
	order_use(y, 2, n);
	told_give(y, n);
	order_end();
}

static CUstream street[8];
static _Atomic int at_work;
static _Atomic unsigned refusals;

static unsigned
draw(uint64_t *random, unsigned below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(*random >> 33) % below;
}

static void
change(uint64_t *random)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemoryPool own = NULL;
	CUdeviceptr x = 0;

	told_set(told_default(), (CUmemPool_attribute)(1 + draw(random, 3)), draw(random, 2));
	if (!draw(random, 3))
		told_set(told_default(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
			 draw(random, 2) ? ~0ull : 0);
	if (!draw(random, 4))
		OK(cuMemPoolTrimTo(told_default(), draw(random, 100) * MIB));
	if (!draw(random, 2)) {
		OK(cuMemPoolCreate(&own, &props));
		OK(cuDeviceSetMemPool(0, own));
		order_sleep(500);
		if (!cuMemAllocFromPoolAsync(&x, PART, own, n)) {
			order_use(x, 1, n);
			if (draw(random, 2))
				OK(cuMemPoolDestroy(own));
			else
				own = NULL;
			told_give(x, n);
		}
		OK(cuDeviceSetMemPool(0, told_default()));
	}
	if (!draw(random, 8))
		OK(cuCtxSynchronize());
}

static void
one_step(uint64_t *random, int number)
{
	static const size_t sizes[] = { SMALL, 100000, MIB, 3 * MIB, PART, BIG, 30 * MIB };
	unsigned first = draw(random, 9), second = draw(random, 9);
	CUstream s = first < 8 ? street[first] : NULL, t = second < 8 ? street[second] : NULL;
	uint32_t value = draw(random, 1 << 20);
	CUdeviceptr x;
	CUresult rc = cuMemAllocAsync(&x, sizes[draw(random, 7)], s);

	if (rc) {
		EXPECT(rc == CUDA_ERROR_OUT_OF_MEMORY);
		atomic_fetch_add(&refusals, 1);
		return;
	}
	order_fill(x, value, draw(random, 3) ? 0 : draw(random, 500), s);
	if (first != second)
		told_join(s, t);
	order_check(x, value, t);
	order_fill(x, value + 1, 0, t);
	order_check(x, value + 1, t);
	switch (draw(random, 6)) {
	case 0:
		OK(cuStreamSynchronize(t));
		OK(cuMemFree_v2(x));
		break;
	case 1:
		told_join(t, street[number % 8]);
		told_give(x, street[number % 8]);
		break;
	default:
		told_give(x, t);
	}
}

static uint64_t
seed(void)
{
	const char *text = getenv("TOLD_SEED");

	return text ? strtoull(text, NULL, 10) : 1;
}

static void
crowd_member(int number)
{
	uint64_t random = seed() * 1000 + (uint64_t)number;

	if (number == CROWD) {
		while (atomic_load(&at_work))
			change(&random);
		return;
	}
	for (int i = 0; i < STEPS; i++)
		one_step(&random, number);
	atomic_fetch_sub(&at_work, 1);
}

static void
crowd(void)
{
	begin();
	for (int i = 0; i < 8; i++)
		street[i] = order_stream(i < 5 ? NONBLOCKING : BLOCKING);
	atomic_store(&at_work, CROWD);
	order_threads(CROWD + 1, crowd_member);
	fprintf(stderr, "refused %u\n", atomic_load(&refusals));
	order_end();
}

static void
own_streams(int number)
{
	CUdeviceptr x;

	for (uint32_t i = 0; i < STEPS; i++) {
		OK(cuMemAllocAsync_ptsz(&x, (i % 5 + 1) * MIB, NULL));
		order_fill_ptsz(x, i, i % 4 ? 0 : 100, NULL);
		order_check_ptsz(x, i, NULL);
		if (i % 3) {
			OK(cuMemFreeAsync_ptsz(x, NULL));
		} else if (i % 2) {
			OK(cuStreamSynchronize_ptsz(NULL));
			told_give(x, n);
		} else {
			told_give(x, NULL); /* which comes after the thread's own stream */
		}
	}
}

/* A third of the memory is in use, but what has finished is gone before a thread looks again. */
static void
starved(void)
{
	begin();
	order_threads(CROWD + 1, own_streams);
	order_end();
}

const struct order_case told_attack[] = {
	{ "reset_device", reset_device },
	{ "reset_working", reset_working },
	{ "released", released },
	{ "destroyed_working", destroyed_working },
	{ "freed_without", freed_without },
	{ "own_pool_reset", own_pool_reset },
	{ "forked", forked },
	{ "crowd", crowd },
	{ "starved", starved },
	{ 0 },
};
