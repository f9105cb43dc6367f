/* SPDX-License-Identifier: MIT */
/* Programs with page-locked memory, right natively; `pinned_cases CASE`
 * (tests/process/order/order.h). */
#pragma once

#include "tests/process/order/order.h"

enum {
	BYTES = 3 * MIB + 5,
	PAIRS = 1000,
	PORTABLE = 1,
	ROUNDS = 8,
};

extern const struct order_case pinned_ends[], pinned_faults[], pinned_hands[];

/* Prints the code that a call gave: the line to compare with the native run. */
#define SHOW(call) printf("%s = %d\n", #call, (int)(call))

static inline void *
take(size_t bytes, unsigned flags)
{
	void *p;

	OK(cuMemHostAlloc(&p, bytes, flags));
	return p;
}

static inline void
give(void *p)
{
	OK(cuMemFreeHost(p));
}

static inline CUdeviceptr
on_device(void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* The host's words in `p`. */
static inline void
write_words(uint32_t *p, uint32_t value)
{
	for (int i = 0; i < WORDS; i++)
		((volatile uint32_t *)p)[i] = value;
}

static inline void
expect_words(const uint32_t *p, uint32_t value)
{
	for (int i = 0; i < WORDS; i++)
		EXPECT(((const volatile uint32_t *)p)[i] == value);
}
