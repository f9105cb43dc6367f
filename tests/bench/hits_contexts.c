/* SPDX-License-Identifier: MIT */
/* A thread that works in several contexts in turn, with a stream in each. */
#include "tests/bench/hits.h"

static CUcontext contexts[CONTEXTS_MAX];

void measured_contexts(unsigned long n);
void measured_contexts_away(unsigned long n);

static inline unsigned
next(unsigned i)
{
	return i + 1 < options.contexts ? i + 1 : 0;
}

__attribute__((noinline)) void
measured_contexts(unsigned long n)
{
	for (unsigned i = 0; n--; i = next(i)) {
		CALL(cuCtxSetCurrent, contexts[i]);
		give(take(BYTES));
	}
}

/* The driver's free takes memory of any context. */
__attribute__((noinline)) void
measured_contexts_away(unsigned long n)
{
	uint64_t last = take(BYTES);

	for (unsigned i = 0; n--; i = next(i)) {
		uint64_t block;

		CALL(cuCtxSetCurrent, contexts[i]);
		block = take(BYTES);
		give(last);
		last = block;
	}
	give(last);
}

static void
run(void (*measured)(unsigned long n))
{
	for (unsigned i = 0; i < options.contexts; i++) {
		contexts[i] = arm_context_new();
		arm_launch(take(BYTES), arm_stream_new());
	}
	measured(options.pairs); /* for warming up */
	for (unsigned long r = 0; r < options.rounds; r++) {
		uint64_t start = now_ns();

		measured(options.pairs);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}

void
hits_contexts(void)
{
	run(measured_contexts);
}

void
hits_contexts_away(void)
{
	run(measured_contexts_away);
}
