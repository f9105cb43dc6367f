/* SPDX-License-Identifier: MIT */
#include "tests/stress/rng.h"

uint64_t
rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint64_t
rng_below(struct rng *rng, uint64_t n)
{
	return rng_next(rng) % n;
}
