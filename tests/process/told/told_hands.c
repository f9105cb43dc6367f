/* SPDX-License-Identifier: MIT */
/*
 * Two threads want what most of the device, freed, was cut from. One of them gives it back, which
 * takes the driver as long as SIMCUDA_LATENCY says; meanwhile nothing is there for the other.
 */
#include "tests/process/told/told.h"

enum { MOST = 210 * MIB, HALF = 100 * MIB }; /* of 256 MiB */

static CUmemoryPool pool;
static volatile uint32_t *word;
static pthread_barrier_t both;

static void
begin(CUstream *ret_stream)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };

	told_start();
	OK(cuMemPoolCreate(&pool, &props));
	word = order_word();
	*ret_stream = order_stream(NONBLOCKING);
	pthread_barrier_init(&both, NULL, 2);
}

static void
take_half(int number)
{
	CUstream own = order_stream(NONBLOCKING);
	CUdeviceptr x;

	pthread_barrier_wait(&both);
	OK(cuMemAllocFromPoolAsync(&x, HALF, pool, own));
	order_use(x, (uint32_t)number, own);
	pthread_barrier_wait(&both);
	told_give(x, own);
}

/* Finished memory. */
static void
others_hand(void)
{
	CUstream s;

	begin(&s);
	told_give(told_take(MOST, s), s);
	OK(cuStreamSynchronize(s));
	order_threads(2, take_half);
	order_end();
}

static void
take_half_either_way(int number)
{
	CUdeviceptr x;

	if (!number) {
		take_half(number);
		return;
	}
	pthread_barrier_wait(&both);
	order_sleep(50000);
	OK(cuMemAlloc_v2(&x, HALF));
	pthread_barrier_wait(&both);
	OK(cuMemFree_v2(x));
}

/* One of them by cuMemAlloc, a moment later. */
static void
others_hand_either_way(void)
{
	CUstream s;

	begin(&s);
	told_give(told_take(MOST, s), s);
	OK(cuStreamSynchronize(s));
	order_threads(2, take_half_either_way);
	order_end();
}

static void
take_half_or_end_work(int number)
{
	if (number < 2) {
		take_half(number);
		return;
	}
	order_sleep(50000);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

/* Memory whose work ends while both wait for that (natively they would be refused). */
static void
others_hand_later(void)
{
	CUdeviceptr x;
	CUstream s;

	begin(&s);
	x = told_take(MOST, s);
	order_wait(word, 1, s);
	told_give(x, s);
	order_threads(3, take_half_or_end_work);
	order_end();
}

const struct order_case told_hands[] = {
	{ "others_hand", others_hand },
	{ "others_hand_either_way", others_hand_either_way },
	{ "others_hand_later", others_hand_later },
	{ 0 },
};
