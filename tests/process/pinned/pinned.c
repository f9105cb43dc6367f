/* SPDX-License-Identifier: MIT */
/*
 * Memory is freed while work that names it goes on, and as much is taken at once: natively the free
 * waits. What the host or another stream writes into the new memory has to stand.
 */
#include "tests/process/pinned/pinned.h"

#include <stdatomic.h>

static CUstream s, r;
static CUdeviceptr x;

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	x = order_take(BYTES);
	order_fill(x, 1, 0, s);
	OK(cuCtxSynchronize());
}

/* The old memory is freed; the host and a stream use the new. */
static void
use_again(void *p, unsigned flags)
{
	uint32_t *q;

	give(p);
	q = take(BYTES, flags);
	write_words(q, 7);
	order_check(on_device(q), 7, r);
	order_fill(on_device(q) + WORDS * 4, 8, 0, r);
	OK(cuCtxSynchronize());
	expect_words(q, 7);
	expect_words(q + WORDS, 8);
	give(q);
}

static void
pairs_with_context(void)
{
	begin();
	for (unsigned i = 0; i < PAIRS; i++) {
		uint32_t *p = take(BYTES, 0);

		write_words(p, i);
		OK(cuMemcpyHtoDAsync_v2(x, p, WORDS * 4, s));
		give(p);
		OK(cuCtxSynchronize());
	}
	order_end();
}

static void
pairs_with_stream(void)
{
	begin();
	for (unsigned i = 0; i < PAIRS; i++) {
		uint32_t *p;

		OK(cuMemAllocHost_v2((void **)&p, BYTES));
		write_words(p, i);
		OK(cuMemcpyHtoDAsync_v2(x, p, WORDS * 4, s));
		OK(cuStreamSynchronize(s));
		give(p);
	}
	order_end();
}

static void
slow_copy(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		void *p = take(BYTES, 0);

		order_fill(x, 1, LONG, s);
		OK(cuMemcpyDtoHAsync_v2(p, x, WORDS * 4, s));
		use_again(p, 0);
	}
	order_end();
}

static void
kernel(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		void *p = take(BYTES, 0);

		order_fill(on_device(p), 1, LONG, i % 2 ? s : NULL);
		use_again(p, 0);
	}
	order_end();
}

static void
synchronised_before(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		void *p = take(BYTES, 0);

		OK(cuCtxSynchronize());
		order_fill(on_device(p), 1, LONG, s);
		use_again(p, 0);
	}
	order_end();
}

static void
write_late(void *p)
{
	order_sleep(LONG);
	write_words(p, 3);
}

static void
host_function(void)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		void *p = take(BYTES, 0);

		OK(cuLaunchHostFunc(s, write_late, p));
		use_again(p, 0);
	}
	order_end();
}

static void
graph(void)
{
	CUgraph captured;
	CUgraphExec exec;

	begin();
	for (int i = 0; i < ROUNDS; i++) {
		void *p = take(BYTES, 0);

		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
		order_fill(on_device(p), 1, LONG, s);
		OK(cuStreamEndCapture(s, &captured));
		OK(cuGraphInstantiateWithFlags(&exec, captured, 0));
		OK(cuGraphLaunch(exec, r));
		use_again(p, 0);
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphDestroy(captured));
	}
	order_end();
}

/* A stream captures while the memory is freed and taken: the capture must live. */
static void
capture_open(void)
{
	CUgraph captured;

	begin();
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t *p = take(BYTES, 0), *q;

		order_fill(on_device(p), 1, LONG, r);
		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		give(p);
		q = take(BYTES, 0);
		write_words(q, 7);
		order_fill(x, 2, 0, s);
		OK(cuStreamEndCapture(s, &captured));
		OK(cuGraphDestroy(captured));
		OK(cuCtxSynchronize());
		expect_words(q, 7);
		give(q);
	}
	order_end();
}

static void
second_context(unsigned flags)
{
	CUcontext first = order_start(), second = order_context(0);
	CUstream theirs = order_stream(NONBLOCKING);

	for (int i = 0; i < ROUNDS; i++) {
		uint32_t *p, *q;

		order_enter(first);
		p = take(BYTES, flags);
		order_enter(second);
		order_fill(on_device(p), 1, LONG, theirs);
		order_enter(first);
		OK(cuCtxSynchronize());
		/* natively the free waits for the context of the memory only */
		order_enter(second);
		q = NULL;
		if (i % 2) {
			OK(cuCtxSynchronize());
			order_fill(x = order_take(BYTES), 1, LONG, theirs);
			order_give(x);
		}
		order_enter(first);
		if (i % 2) {
			give(p);
			q = take(BYTES, flags);
			write_words(q, 7);
			OK(cuCtxSynchronize());
			expect_words(q, 7);
			give(q);
		} else {
			order_enter(second);
			OK(cuCtxSynchronize());
			order_enter(first);
			give(p);
		}
	}
	order_end();
}

static void
second_context_own(void)
{
	second_context(0);
}

static void
second_context_portable(void)
{
	second_context(PORTABLE);
}

/* Natively wrong: the memory is freed while another context's kernel uses it. */
static void
still_used_by_another_context(void)
{
	CUcontext first = order_start(), second = order_context(0);
	CUstream theirs = order_stream(NONBLOCKING);

	for (int i = 0; i < ROUNDS; i++) {
		uint32_t *p, *q;

		order_enter(first);
		p = take(BYTES, i % 2);
		order_enter(second);
		order_fill(on_device(p), 1, LONG, theirs);
		order_enter(first);
		give(p);
		OK(cuCtxSynchronize());
		q = take(BYTES, i % 2);
		write_words(q, 7);
		order_enter(second);
		OK(cuCtxSynchronize());
		expect_words(q, 7);
		order_enter(first);
		give(q);
	}
	order_end();
}

enum { THREADS = 8, STEPS = 60, SLOTS = 4 };
static CUcontext shared;
static uint64_t seed;

static uint64_t
draw(uint64_t *state, uint64_t n)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state % n;
}

/* Each thread's memory holds its own number until the thread has seen the copy end. */
static void
random_thread(int number)
{
	uint64_t state = seed * 1000003 + (uint64_t)number + 1;
	CUstream own;
	CUdeviceptr mine;

	order_enter(shared);
	own = order_stream(NONBLOCKING);
	mine = order_take(BYTES);
	for (unsigned i = 0; i < STEPS; i++) {
		size_t bytes = WORDS * 4 + draw(&state, 4) * 40000;
		uint32_t *p = take(bytes, draw(&state, 2) ? PORTABLE : 0);

		write_words(p, (uint32_t)number * STEPS + i);
		OK(cuMemcpyHtoDAsync_v2(mine, p, WORDS * 4, own));
		order_fill(on_device(p), 5, draw(&state, 300), own);
		order_check(mine, (uint32_t)number * STEPS + i, own);
		if (draw(&state, 3))
			OK(cuStreamSynchronize(own));
		give(p);
	}
	OK(cuStreamSynchronize(own));
}

static void
threads(void)
{
	const char *text = getenv("PINNED_SEED");

	seed = text ? strtoull(text, NULL, 10) : 1;
	shared = order_start();
	order_threads(THREADS, random_thread);
	order_end();
}

static const struct order_case pinned_uses[] = {
	{ "pairs_with_context", pairs_with_context },
	{ "pairs_with_stream", pairs_with_stream },
	{ "slow_copy", slow_copy },
	{ "kernel", kernel },
	{ "synchronised_before", synchronised_before },
	{ "host_function", host_function },
	{ "graph", graph },
	{ "capture_open", capture_open },
	{ "second_context_own", second_context_own },
	{ "second_context_portable", second_context_portable },
	{ "still_used_by_another_context", still_used_by_another_context },
	{ "threads", threads },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { pinned_uses, pinned_ends, pinned_faults,
						 pinned_hands, NULL };
