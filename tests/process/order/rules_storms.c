/* SPDX-License-Identifier: MIT */
/*
 * Rule 3 (T3): an event is recorded anew by one thread while others ask about it, or wait for it.
 * The snapshot that is used must be of what the driver looked at.
 *
 * The recording thread's round begins with nothing to do on the device and the event done; then it
 * puts long work into a stream, and records the event behind that. The others know what they were
 * told of the record before.
 */
#include <stdatomic.h>

#include "tests/process/order/rules.h"

enum { ROUNDS = 240, THREADS = 3 };

static CUstream s, r, q;
static CUevent event;
static CUdeviceptr block, other;
static _Atomic bool stop;

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	event = order_event();
	block = order_take(BIG);
	other = order_take(BIG);
	order_fill(other, 1, 0, s);
	OK(cuEventRecord(event, s));
	OK(cuCtxSynchronize_v2(NULL));
}

/* To all of them, one after the other; the first ends the storm. */
static void
storm(int number, void (*first)(uint32_t round), void (*others)(void))
{
	if (number) {
		while (!atomic_load(&stop))
			others();
		return;
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		OK(cuCtxSynchronize_v2(NULL));
		first(2 * i);
	}
	atomic_store(&stop, true);
}

/* What the old record stood for is done, the fill is not. */
static void
fill_and_record(uint32_t round)
{
	order_fill(block, round, LONG, s);
	OK(cuEventRecord(event, s));
	order_sleep(20);
	block = order_again(block, BIG);
	order_use(block, round + 1, r);
}

static void
ask(void)
{
	CUresult code = cuEventQuery(event);

	EXPECT(code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY);
}

static void
record_or_ask(int number)
{
	storm(number, fill_and_record, ask);
}

static void
recorded_anew_while_others_ask(void)
{
	begin();
	order_threads(THREADS, record_or_ask);
	order_give(block);
	order_end();
}

/* Two streams read the block; only if r came after s would it be enough that r is done. */
static void
read_and_record(uint32_t round)
{
	order_fill(block, round, 0, s);
	OK(cuStreamSynchronize(s));
	order_copy(other, block, LONG, s);
	OK(cuEventRecord(event, s));
	order_sleep(20);
	order_check(block, round, r);
	order_give(block);
	OK(cuStreamSynchronize(r));
	block = order_take(BIG);
	order_use(block, round + 1, q);
}

static void
wait_for_it(void)
{
	OK(cuStreamWaitEvent(r, event, 0));
	order_sleep(20);
}

static void
record_or_wait(int number)
{
	storm(number, read_and_record, wait_for_it);
}

static void
recorded_anew_while_others_wait(void)
{
	begin();
	order_threads(THREADS, record_or_wait);
	order_give(block);
	order_end();
}

const struct order_case rules_storms[] = {
	{ "t3_recorded_anew_while_others_ask", recorded_anew_while_others_ask },
	{ "t3_recorded_anew_while_others_wait", recorded_anew_while_others_wait },
	{ NULL, NULL },
};
