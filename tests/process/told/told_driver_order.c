/* SPDX-License-Identifier: MIT */
/*
 * Order that is the driver's or nobody's: a told free and a told allocation put nothing into their
 * stream, so what natively comes behind them must be seen to by the library.
 */
#include "tests/process/told/told.h"

#include <stdbool.h>

static CUstream a, b, n, m; /* two blocking, two not */

static void
begin(void)
{
	told_start();
	a = order_stream(BLOCKING);
	b = order_stream(BLOCKING);
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
}

/* Freed in a, taken in the legacy stream, used in b: a, alloc, b. */
static void
taken_in_legacy(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, a), y;
		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, a);
		told_give(x, a);
		y = told_take(BIG, NULL);
		order_use(y, 2, b);
		told_give(y, b);
	}
	order_end();
}

/* The free is in the legacy stream, too, behind a's work. */
static void
freed_and_taken_in_legacy(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, a), y;
		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, a);
		told_give(x, NULL);
		y = told_take(BIG, NULL);
		order_use(y, 2, b);
		told_give(y, b);
	}
	order_end();
}

/* The legacy stream works; b takes its memory, and the host waits for b before n uses it. */
static void
synchronized_blocking(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, NULL), y;
		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, NULL);
		told_give(x, NULL);
		y = told_take(BIG, b);
		OK(cuStreamSynchronize(b));
		order_use(y, 2, n);
		OK(cuStreamSynchronize(n));
		told_give(y, n);
	}
	order_end();
}

static void
touch_b(int number)
{
	CUdeviceptr t = told_take(SMALL, b);
	order_fill(t, 1, 1, b);
	told_give(t, b);
}

/* Room for one block: b takes n's behind a wait, and is waited for before anything was submitted to
 * it. A question about b comes after its last stamp. */
static void
guarded_unstamped(void)
{
	begin();
	order_threads(1, touch_b);
	told_set(told_default(), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr w = told_take(SMALL, b), w2 = told_take(SMALL, b),
			    x = told_take(40 * MIB, n), y, z;
		OK(cuCtxSynchronize());
		order_fill(x, 1, 50 * LONG, n);
		told_give(x, n);
		told_give(w, b);
		(void)w2;
		y = told_take(40 * MIB, b);
		told_give(y, NULL);
		z = told_take(40 * MIB, m);
		order_use(z, 2, m);
		told_give(z, m);
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* Room for one block, which n gave back after another one. What n does then waits for m, which
 * takes that block behind what n did before. */
static void
guarded_held_up(void)
{
	CUdeviceptr word;

	begin();
	word = told_take(SMALL, n);
	OK(cuMemsetD32Async(word, 0, 1, n));
	OK(cuCtxSynchronize());
	told_set(told_default(), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		CUdeviceptr w = told_take(SMALL, n), x = told_take(40 * MIB, n), y;

		order_fill(x, 1, 50 * LONG, n);
		told_give(w, n);
		told_give(x, n);
		OK(cuStreamWaitValue32_v2(n, word, i, WAIT_EQ));
		y = told_take(40 * MIB, m);
		order_use(y, 2, m);
		told_give(y, m);
		OK(cuStreamWriteValue32_v2(m, word, i, 0));
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* Work in a that is not seen; its memory is freed in the legacy stream and taken in n. */
static void
unseen_legacy(void)
{
	CUdriverProcAddressQueryResult status;
	simb_private_fill *fill;
	void *found;

	begin();
	OK(cuGetProcAddress_v2(SIMB_FUTURE_NAME, &found, 13000, 0, &status));
	EXPECT(found);
	memcpy(&fill, &found, sizeof(fill));
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, a), y;
		OK(cuCtxSynchronize());
		OK(fill(x, 7, WORDS, a));
		told_give(x, NULL);
		y = told_take(BIG, n);
		order_use(y, 2, n);
		told_give(y, n);
	}
	order_end();
}

/* A capture whose begin is not seen: its allocations are the graph's. */
static void
unseen_capture(void)
{
	CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
	CUdriverProcAddressQueryResult status;
	CUdeviceptr x = 0, y = 0;
	CUgraph graph;
	size_t count = 0;
	void *found;

	begin();
	x = told_take(SMALL, n);
	told_give(x, n);
	OK(cuCtxSynchronize());
	OK(cuGetProcAddress_v2(SIMB_FUTURE_CAPTURE_NAME, &found, 13000, 0, &status));
	memcpy(&begin_capture, &found, sizeof(begin_capture));
	OK(begin_capture(m, CU_STREAM_CAPTURE_MODE_RELAXED));
	SHOW(cuMemAllocAsync(&x, SMALL, m));
	SHOW(cuMemAllocAsync(&y, 30 * MIB, m));
	SHOW(cuMemFreeAsync(x, m));
	SHOW(cuMemFreeAsync(y, m));
	SHOW(cuStreamEndCapture(m, &graph));
	SHOW(cuGraphGetNodes(graph, NULL, &count));
	printf("nodes %zu\n", count);
	y = told_take(30 * MIB, n);
	order_use(y, 3, n);
	told_give(y, n);
	order_end();
}

/* a uses what is freed in another stream; the legacy stream's operation comes behind a's work and
 * before the free. `knows`: the legacy stream had one before. */
static void
through_legacy(bool knows, CUstream (*operation)(CUdeviceptr spare))
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, b), spare = knows ? told_take(SMALL, NULL) : 0;
		CUdeviceptr other, y;

		OK(cuCtxSynchronize());
		order_fill(x, 1, LONG, a);
		told_give(x, operation(spare));
		other = told_take(BIG, n); /* asks about the streams */
		order_sleep(200);
		y = told_take(BIG, n);
		order_use(y, 2, n);
		told_give(y, n);
		told_give(other, n);
		OK(cuCtxSynchronize());
	}
	order_end();
}

static CUstream
free_in_legacy(CUdeviceptr spare)
{
	told_give(spare, NULL);
	return b;
}

static void
free_between(void)
{
	through_legacy(true, free_in_legacy);
}

static CUstream
take_in_legacy(CUdeviceptr spare)
{
	told_give(told_take(SMALL, NULL), b);
	told_give(spare, n);
	return b;
}

static void
taken_between(void)
{
	through_legacy(true, take_in_legacy);
}

/* Of memory that no stream was named for. */
static CUstream
free_untold_in_legacy(CUdeviceptr spare)
{
	CUdeviceptr untold;

	OK(cuMemAlloc_v2(&untold, SMALL));
	told_give(untold, NULL);
	told_give(spare, n);
	return b;
}

static void
untold_free_between(void)
{
	through_legacy(true, free_untold_in_legacy);
}

static CUstream
record_in_legacy(CUdeviceptr spare)
{
	CUevent event = order_event();

	OK(cuEventRecord(event, NULL));
	OK(cuEventDestroy_v2(event));
	if (spare)
		told_give(spare, n);
	return b;
}

static void
record_between(void)
{
	through_legacy(true, record_in_legacy);
}

static void
first_record_between(void)
{
	through_legacy(false, record_in_legacy);
}

/* b has passed the legacy stream's operation on. */
static CUstream
free_and_pass_on(CUdeviceptr spare)
{
	CUevent event = order_event();

	told_give(spare, NULL);
	OK(cuEventRecord(event, b));
	OK(cuStreamWaitEvent(m, event, 0));
	OK(cuEventDestroy_v2(event));
	return m;
}

static void
passed_on(void)
{
	through_legacy(true, free_and_pass_on);
}

const struct order_case told_driver_order[] = {
	{ "taken_in_legacy", taken_in_legacy },
	{ "freed_and_taken_in_legacy", freed_and_taken_in_legacy },
	{ "synchronized_blocking", synchronized_blocking },
	{ "guarded_unstamped", guarded_unstamped },
	{ "guarded_held_up", guarded_held_up },
	{ "unseen_legacy", unseen_legacy },
	{ "unseen_capture", unseen_capture },
	{ "free_between", free_between },
	{ "taken_between", taken_between },
	{ "untold_free_between", untold_free_between },
	{ "record_between", record_between },
	{ "first_record_between", first_record_between },
	{ "passed_on", passed_on },
	{ 0 },
};
