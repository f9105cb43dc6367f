/* SPDX-License-Identifier: MIT */
/* Rule 7 (T7): what counts as finished, and what does not. */
#include <stdint.h>

#include "tests/process/order/rules.h"

static CUstream s, r, q;
static CUdeviceptr other;
static uint32_t *pinned, pageable[WORDS];

static void
begin(void)
{
	void *p;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(BLOCKING);
	other = order_take(BIG);
	OK(cuMemHostAlloc(&p, WORDS * 4, 0));
	pinned = p;
}

/* `call` comes between a fill on `on` and the free; whatever it teaches must be true. */
static void
round_with(void (*call)(void), CUstream on)
{
	CUdeviceptr x = order_take(BIG);

	order_fill(x, 1, LONG, on);
	call();
	x = order_again(x, BIG);
	order_use(x, 2, r);
	order_check(x, 2, r);
	order_give(x);
	OK(cuCtxSynchronize());
}

static void
call_dtod(void)
{
	OK(cuMemcpyDtoDAsync_v2(other, other + MIB, WORDS * 4, s));
	OK(cuMemcpyDtoD_v2(other + 2 * MIB, other + 3 * MIB, WORDS * 4));
}

static void
call_memset(void)
{
	OK(cuMemsetD32_v2(other, 3, WORDS));
	OK(cuMemsetD8_v2(other, 3, WORDS));
}

static void
call_pageable_htod(void)
{
	OK(cuMemcpyHtoDAsync_v2(other, pageable, sizeof(pageable), s));
	OK(cuMemcpyHtoD_v2(other + MIB, pageable, sizeof(pageable)));
}

static void
call_sync_other_stream(void)
{
	order_fill(other, 1, 0, q);
	OK(cuStreamSynchronize(q));
	OK(cuStreamQuery(q));
}

static void
call_sync_legacy(void)
{
	OK(cuStreamSynchronize(NULL));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize_ptsz(NULL));
}

static void
call_query(void)
{
	cuStreamQuery(s);
	cuStreamQuery(q);
}

static void
call_dtoh_of_other_stream(void)
{
	OK(cuMemcpyDtoH_v2(pageable, other, sizeof(pageable)));
	OK(cuMemcpyDtoHAsync_v2(pinned, other, WORDS * 4, q));
	OK(cuStreamSynchronize(q));
	OK(cuMemcpyDtoH_v2_ptds(pageable, other, sizeof(pageable)));
}

static void
call_dtoh_to_pinned_async(void)
{
	OK(cuMemcpyDtoHAsync_v2(pinned, other, WORDS * 4, s));
}

/* By the name of the call from the device; by the address, which is what counts, not. */
static void
call_dtoh_of_host_memory(void)
{
	OK(cuMemcpyDtoH_v2(pageable, (CUdeviceptr)(uintptr_t)pinned, sizeof(pageable)));
}

static void
call_dtoh_of_managed_memory(void)
{
	static CUdeviceptr managed;

	if (!managed)
		OK(cuMemAllocManaged(&managed, sizeof(pageable), CU_MEM_ATTACH_GLOBAL));
	OK(cuMemcpyDtoH_v2(pageable, managed, sizeof(pageable)));
}

static void
call_htod_from_pinned(void)
{
	OK(cuMemcpyHtoDAsync_v2(other, pinned, WORDS * 4, s));
	OK(cuMemcpyHtoD_v2(other + MIB, pinned, WORDS * 4));
}

static void
call_refused_sync(void)
{
	cuStreamSynchronize((CUstream)(uintptr_t)0x1000);
	cuEventSynchronize((CUevent)(uintptr_t)0x1000);
}

static void
call_sync_it(void)
{
	OK(cuStreamSynchronize(s));
}

static void
call_dtoh_of_this_stream(void)
{
	OK(cuMemcpyDtoHAsync_v2(pageable, other, sizeof(pageable), s));
}

#define ROUND(call)                                                                                \
	static void round_##call(void)                                                             \
	{                                                                                          \
		begin();                                                                           \
		for (int i = 0; i < 2; i++) {                                                      \
			round_with(call, s);                                                       \
			round_with(call, q);                                                       \
		}                                                                                  \
		order_end();                                                                       \
	}

ROUND(call_dtod)
ROUND(call_memset)
ROUND(call_pageable_htod)
ROUND(call_sync_other_stream)
ROUND(call_sync_legacy)
ROUND(call_query)
ROUND(call_dtoh_of_other_stream)
ROUND(call_dtoh_of_host_memory)
ROUND(call_dtoh_of_managed_memory)
ROUND(call_dtoh_to_pinned_async)
ROUND(call_htod_from_pinned)
ROUND(call_refused_sync)
ROUND(call_sync_it)
ROUND(call_dtoh_of_this_stream)

/* An event is done: so is what came before its record, and nothing that came after. */
static void
an_event_from_before_the_work(void)
{
	CUevent event;
	CUdeviceptr x;

	begin();
	event = order_event();
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(other, 1, 0, s);
		OK(cuEventRecord(event, s));
		order_fill(x, 1, LONG / 2, s);
		if (i % 2)
			OK(cuEventSynchronize(event));
		else
			while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
				OK(cuStreamSynchronize(s));
		order_fill(x, 2, LONG / 2, s);
		x = order_again(x, BIG);
		order_use(x, 3, r);
		order_give(x);
	}
	order_end();
}

/* Work submitted by another thread while this one synchronises is not covered by that. */
static volatile bool stop;

static void
submit_while_synchronising(int number)
{
	CUdeviceptr x;

	for (int i = 0; i < 100 && !stop; i++) {
		if (number == 0) {
			OK(cuStreamSynchronize(s));
			OK(cuCtxSynchronize());
		} else {
			x = order_take(BIG);
			order_fill(x, 1, 50, s);
			x = order_again(x, BIG);
			order_use(x, 2, r);
			order_give(x);
			stop = i == 99;
		}
	}
}

static void
another_thread_synchronises_meanwhile(void)
{
	begin();
	order_threads(2, submit_while_synchronising);
	order_end();
}

/* Two contexts: synchronising one finishes nothing in the other. */
static void
synchronising_another_context(void)
{
	CUcontext here, there;
	CUdeviceptr x;

	begin();
	OK(cuCtxGetCurrent(&here));
	there = order_context(0);
	for (int i = 0; i < 3; i++) {
		order_enter(here);
		x = order_take(BIG);
		order_fill(x, 1, LONG / 2, s);
		order_enter(there);
		if (i == 0)
			OK(cuCtxSynchronize());
		else if (i == 1)
			OK(cuCtxSynchronize_v2(there));
		else
			OK(cuStreamSynchronize(NULL));
		order_enter(here);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		order_give(x);
	}
	order_end();
}

const struct order_case rules_finish[] = {
	{ "t7_a_device_to_device_copy_finishes_nothing", round_call_dtod },
	{ "t7_a_set_finishes_nothing", round_call_memset },
	{ "t7_a_pageable_copy_to_the_device_finishes_nothing", round_call_pageable_htod },
	{ "t7_another_streams_synchronisation", round_call_sync_other_stream },
	{ "t7_the_legacy_streams_synchronisation", round_call_sync_legacy },
	{ "t7_queries", round_call_query },
	{ "t7_copies_to_the_host_on_other_streams", round_call_dtoh_of_other_stream },
	{ "t7_a_copy_to_the_host_of_host_memory", round_call_dtoh_of_host_memory },
	{ "t7_a_copy_to_the_host_of_managed_memory", round_call_dtoh_of_managed_memory },
	{ "t7_an_asynchronous_copy_to_pinned_memory", round_call_dtoh_to_pinned_async },
	{ "t7_copies_from_pinned_memory", round_call_htod_from_pinned },
	{ "t7_refused_synchronisation", round_call_refused_sync },
	{ "t7_its_own_synchronisation", round_call_sync_it },
	{ "t7_a_copy_to_the_host_on_its_stream", round_call_dtoh_of_this_stream },
	{ "t7_an_event_from_before_the_work", an_event_from_before_the_work },
	{ "t7_another_thread_synchronises_meanwhile", another_thread_synchronises_meanwhile },
	{ "t7_synchronising_another_context", synchronising_another_context },
	{ NULL, NULL },
};
