/* SPDX-License-Identifier: MIT */
/* The workloads that turns.c asks of each arm. An arm's blocks are its own: each has its own state.
 */
#pragma once

#include <stdio.h>

#include "tests/bench/peers/arms.h"
#include "tests/bench/peers/sample.h"

extern struct options {
	unsigned long rounds, pairs, live, threads, streams;
	unsigned long budget_s; /* an arm that needs more of its processor's time gives up */
	const char *trace;      /* a file's name; NULL: none */
} options;

struct workload {
	const char *name;
	/* Everything that is not measured. NULL: that takes the arm too long. */
	void *(*prepare)(const struct arm *arm);
	/* Sets *ret_sample. The calls run inside one measured_*(), for callgrind; not those of
	 * threads. */
	void (*round)(void *state, struct sample *ret_sample);
	/* NULL, or prints the members of a JSON object at the end. */
	void (*report)(void *state);
};

extern const struct workload workload_pair, workload_ring, workload_live_32, workload_live_log,
	workload_trace, workload_trace_work, workload_calls, workload_threads_12,
	workload_threads_96, workload_threads_12_work, workload_threads_96_work;

/* Zeroed; exits instead of failing. */
void *new_array(size_t n, size_t size);

/* The same numbers for every arm. */
uint64_t random_next(uint64_t *seed);
/* 512 bytes to 512 << powers, each power of two as likely as any other. */
size_t random_size(uint64_t *seed, unsigned powers);

/* Whether this thread has worked longer than the budget since it was last reset. */
void budget_reset(void);
bool budget_spent(void);

/* Sizes in the order in which a ring allocates: each of a set of n that is drawn once, at random.
 */
enum { SEQUENCE = 4096, RING = 64 };
void sequence_fill(size_t sequence[SEQUENCE], unsigned n, unsigned powers, uint64_t seed);
