/* SPDX-License-Identifier: MIT */
/* The processor's counter of ticks: a tenth of what a system's clock costs. */
#pragma once

#include <stdint.h>

/* The processor's count; 0 where it is not known how to ask for it. Another processor's may be
 * a little behind. */
static inline uint64_t
ca_ticks(void)
{
#if defined(__x86_64__)
	uint64_t ticks, kept;

	/* The upper half comes in the register of a function's third argument. Given back here,
	 * it costs a wrapper nothing but where this runs; by __rdtsc() each launch is 6
	 * instructions longer. */
	__asm__ volatile("mov %%rdx, %1\n\t"
			 "rdtsc\n\t"
			 "shl $32, %%rdx\n\t"
			 "or %%rdx, %0\n\t"
			 "mov %1, %%rdx"
			 : "=&a"(ticks), "=&r"(kept)
			 :
			 : "cc");
	return ticks;
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}
