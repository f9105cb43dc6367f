/* SPDX-License-Identifier: MIT */
/* The cost of one round of one arm: time, and cycles and instructions where the machine counts
 * them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sample {
	uint64_t wall_ns, cpu_ns;      /* cpu: of this thread, or the sum over all */
	uint64_t cycles, instructions; /* in user mode; 0 where they are not counted */
	uint64_t sleeps;               /* times that a thread gave up its processor to wait */
	uint64_t operations;           /* pairs, or calls of a trace */
};

/* Counts the calling thread's cycles and instructions from now on; false: this machine (or what it
 * allows) has no such counters. Once a thread. */
bool counters_open(void);

/* The calling thread's figures since an arbitrary point; operations is left alone. */
void sample_read(struct sample *ret_sample);
/* *total += end - start, but for operations. */
void sample_add(struct sample *total, const struct sample *start, const struct sample *end);
