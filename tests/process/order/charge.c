/* SPDX-License-Identifier: MIT */
/*
 * What order costs: programs whose driver calls test_charge.py compares with the native run, and
 * whose memory it looks at. Some print what they saw.
 */
#include "tests/process/order/charge.h"

/* ------------------------------------------------------------ one stream --- */
static void
run_ahead(CUstream stream)
{
	CUdeviceptr x = order_take(BIG), y;

	for (uint32_t i = 0; i < AHEAD; i++) {
		y = order_take(BIG);
		order_fill(y, i, 0, stream);
		order_check(y, i, stream);
		order_give(x);
		x = y;
	}
	order_give(x);
	order_end();
}

static void
one_legacy_stream(void)
{
	order_start();
	run_ahead(NULL);
}

static void
one_created_stream(void)
{
	order_start();
	run_ahead(order_stream(NONBLOCKING));
}

static void
one_blocking_stream(void)
{
	order_start();
	run_ahead(order_stream(BLOCKING));
}

static void
one_per_thread_stream(void)
{
	CUdeviceptr x;

	order_start();
	for (uint32_t i = 0; i < AHEAD; i++) {
		x = order_take(BIG);
		order_fill_ptsz(x, i, 0, NULL);
		order_check_ptsz(x, i, NULL);
		order_give(x);
	}
	order_end();
}

/* Kernels, sets and copies, of blocks of all sizes that live for a while. */
static void
one_stream_all_sizes(void)
{
	CUdeviceptr blocks[8] = { 0 };
	CUstream stream;
	void *pinned;

	order_start();
	stream = order_stream(NONBLOCKING);
	OK(cuMemHostAlloc(&pinned, WORDS * 4, 0));
	memset(pinned, 0, WORDS * 4);
	for (uint32_t i = 0; i < AHEAD; i++) {
		CUdeviceptr *block = &blocks[i * 5 % 8];

		if (*block)
			order_give(*block);
		*block = order_take((size_t)(1 + i * 7 % 97) * 64 * 1024);
		if (i % 4 == 0)
			OK(cuMemcpyHtoDAsync_v2(*block, pinned, WORDS * 4, stream));
		else if (i % 4 == 1)
			OK(cuMemsetD32Async(*block, i, WORDS, stream));
		else
			order_use(*block, i, stream);
		if (i % 16 == 2)
			OK(cuMemcpyDtoHAsync_v2(pinned, *block, WORDS * 4, stream));
	}
	order_end();
}

static void
on_the_shared_stream(int number)
{
	CUdeviceptr x;

	for (uint32_t i = 0; i < AHEAD / 2; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
	}
}

static void
one_stream_and_two_threads(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	order_threads(2, on_the_shared_stream);
	order_end();
}

/* ------------------------------------------------- well-ordered programs --- */
static void
fork_and_join(void)
{
	CUevent forked, joined;
	CUdeviceptr x, y;

	two_streams();
	forked = order_event();
	joined = order_event();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		y = order_take(BIG);
		order_use(x, i, s);
		OK(cuEventRecord(forked, s));
		OK(cuStreamWaitEvent(r, forked, 0));
		order_copy(y, x, 0, r);
		order_check(y, i, r);
		OK(cuEventRecord(joined, r));
		order_check(x, i, s);
		OK(cuStreamWaitEvent(s, joined, 0));
		order_check(y, i, s);
		order_give(x);
		order_give(y);
	}
	order_end();
}

/* One stream forks `n` others, each with a buffer of its own, and joins them. */
static void
fork_and_join_many(int n)
{
	CUevent forked, joined[FORKED_MAX];
	CUstream forks[FORKED_MAX];
	CUdeviceptr x, y[FORKED_MAX];
	int i;

	order_start();
	s = order_stream(NONBLOCKING);
	forked = order_event();
	for (i = 0; i < n; i++) {
		forks[i] = order_stream(NONBLOCKING);
		joined[i] = order_event();
	}
	for (uint32_t round = 0; round < ROUNDS / 2; round++) {
		x = order_take(PART);
		order_fill(x, round, 0, s);
		OK(cuEventRecord(forked, s));
		for (i = 0; i < n; i++) {
			OK(cuStreamWaitEvent(forks[i], forked, 0));
			y[i] = order_take(PART);
			order_copy(y[i], x, 0, forks[i]);
			OK(cuEventRecord(joined[i], forks[i]));
		}
		for (i = 0; i < n; i++)
			OK(cuStreamWaitEvent(s, joined[i], 0));
		for (i = 0; round % 2 && i < n; i++) /* else its waits are all that s does */
			order_check(y[i], round, s);
		for (i = 0; i < n; i++)
			order_give(y[i]);
		order_give(x);
	}
	order_end();
}

static void
fork_and_join_3(void)
{
	fork_and_join_many(3);
}

static void
fork_and_join_12(void)
{
	fork_and_join_many(12);
}

static void
fork_and_join_30(void)
{
	fork_and_join_many(30);
}

/* A copy stream fills one of two sets of buffers while the compute stream works on the other. */
static void
copy_and_compute(void)
{
	CUevent copied[2], computed[2];
	void *pinned;

	two_streams();
	OK(cuMemHostAlloc(&pinned, WORDS * 4, 0));
	memset(pinned, 0, WORDS * 4);
	for (int i = 0; i < 2; i++) {
		copied[i] = order_event();
		computed[i] = order_event();
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		CUdeviceptr x;

		OK(cuStreamWaitEvent(r, computed[i % 2], 0));
		x = order_take(BIG);
		OK(cuMemcpyHtoDAsync_v2(x, pinned, WORDS * 4, r));
		OK(cuEventRecord(copied[i % 2], r));
		OK(cuStreamWaitEvent(s, copied[i % 2], 0));
		order_check(x, 0, s);
		OK(cuEventRecord(computed[i % 2], s));
		order_give(x);
	}
	order_end();
}

/* --------------------------------------------------------------- overlap --- */
static void
say_whether_busy(CUstream stream)
{
	printf("%s\n", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "busy" : "idle");
}

/* Compute is never finished (manual clock); the prefetch into fresh buffers is. */
static void
prefetch_overlaps(void)
{
	CUdeviceptr x, y;
	void *pinned;

	two_streams();
	OK(cuMemHostAlloc(&pinned, WORDS * 4, 0));
	memset(pinned, 0, WORDS * 4);
	x = order_take(BIG);
	order_fill(x, 1, 0, r);
	OK(cuStreamSynchronize(r));
	for (int i = 0; i < 8; i++) {
		order_fill(x, 1, 0, s);
		order_give(x);
		y = order_take(BIG);
		OK(cuMemcpyHtoDAsync_v2(y, pinned, WORDS * 4, r));
		OK(cuStreamSynchronize(r));
		x = y;
	}
	say_whether_busy(s);
	order_end();
}

/* A stream that is always busy, and has used what was freed, beside one that computes (manual
 * clock). */
static void
communication_is_not_waited_for(void)
{
	CUdeviceptr x;

	two_streams();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, 0, r);
		order_give(x);
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
		if (i % 10 == 0)
			OK(cuStreamSynchronize(s));
	}
	OK(cuStreamSynchronize(s));
	say_whether_busy(r);
	order_end();
}

static const struct order_case charge_calls[] = {
	{ "one_legacy_stream", one_legacy_stream },
	{ "one_created_stream", one_created_stream },
	{ "one_blocking_stream", one_blocking_stream },
	{ "one_per_thread_stream", one_per_thread_stream },
	{ "one_stream_all_sizes", one_stream_all_sizes },
	{ "one_stream_and_two_threads", one_stream_and_two_threads },
	{ "fork_and_join", fork_and_join },
	{ "fork_and_join_3", fork_and_join_3 },
	{ "fork_and_join_12", fork_and_join_12 },
	{ "fork_and_join_30", fork_and_join_30 },
	{ "copy_and_compute", copy_and_compute },
	{ "prefetch_overlaps", prefetch_overlaps },
	{ "communication_is_not_waited_for", communication_is_not_waited_for },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { charge_calls, charge_found, charge_beyond, NULL };
