/* SPDX-License-Identifier: MIT */
/* Random numbers that are the same everywhere. */
#pragma once

#include <stdint.h>

/* splitmix64; every thread has its own state. */
struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* 0 .. n-1 */
uint64_t rng_below(struct rng *rng, uint64_t n);
