/* SPDX-License-Identifier: MIT */
/*
 * Small cases run one per process: `cases_x NAME`. A case prints what a program can see (codes,
 * relations, never addresses), so that the same case run without the preload must print the same;
 * EXPECT is for what has one right answer either way. Exit 0 done, 1 an expectation failed, 2 no
 * such case.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/process/driver_api.h"

struct test_case {
	const char *name;
	void (*run)(void);
};

extern const struct test_case test_cases[];
/* Of a second file of the program, if it has one. */
extern const struct test_case more_test_cases[] __attribute__((weak));

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult ok_rc = (call);                                                           \
		if (ok_rc) {                                                                       \
			fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call,             \
				(int)ok_rc);                                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Prints the code that a call gave: the line to compare with the native run. */
#define SHOW(call) printf("%s = %d\n", #call, (int)(call))

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* cuInit and the primary context of device 0, current. */
CUcontext case_start(void);
/* A context of its own on `device`, current afterwards. */
CUcontext case_context(int device);
/* The context died: its module is loaded anew at the next kernel. */
void case_context_died(void);
/* The built-in kernels. */
void *case_kernel(const char *name);
/* sim_fill of `words` 32-bit words with `value`, lasting `spin_us`. */
void case_fill(CUdeviceptr target, uint64_t words, uint64_t value, uint64_t spin_us,
	       CUstream stream);
void case_copy(CUdeviceptr target, CUdeviceptr source, uint64_t words, uint64_t spin_us,
	       CUstream stream);
/* Number of 32-bit words at `target` that differ from `value`, read by the host. */
uint64_t case_wrong_words(CUdeviceptr target, uint64_t words, uint32_t value);
