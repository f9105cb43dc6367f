/* SPDX-License-Identifier: MIT */
/* The situations of hits.c: what each was asked for, and where it puts what it measured. */
#pragma once

#include "tests/bench/arm.h"

enum { BATCH = 64, THREADS_MAX = 16, CONTEXTS_MAX = 256, BYTES = 64 << 10 };

extern struct options {
	int cpu; /* < 0: anywhere */
	unsigned long rounds, pairs, threads, live, holes, contexts;
	const char *trace; /* a file's name; NULL: none */
} options;

/* Nanoseconds a pair or a call, by rounds. */
extern double *round_ns;
/* The same on the processors of all threads; NULL: was not measured. */
extern double *cpu_ns;

void hits_pair(void);
void hits_own(void);
void hits_handoff(void);
void hits_live(void);
void hits_contexts(void);
void hits_contexts_away(void);
void hits_told(void);
void hits_told_streams(void);
void hits_told_pool(void);
void hits_told_legacy(void);
void hits_told_per_thread(void);
void hits_told_blocking(void);
void hits_told_legacy_beside_blocking(void);
void hits_told_blocking_beside_legacy(void);
/* Prints the beginning of the JSON object. */
void hits_trace(void);
