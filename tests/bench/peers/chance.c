/* SPDX-License-Identifier: MIT */
/* Sizes at random, the same for every arm, and the time that an arm may
 * take: all workloads share them. */
#include <errno.h>
#include <stdlib.h>

#include "tests/bench/peers/workloads.h"

void *
new_array(size_t n, size_t size)
{
	void *array = calloc(n, size);

	if (!array)
		api_fail("calloc", ENOMEM);
	return array;
}

uint64_t
random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

size_t
random_size(uint64_t *seed, unsigned powers)
{
	size_t power = (size_t)512 << random_next(seed) % powers;

	return power + random_next(seed) % power;
}

void
sequence_fill(size_t sequence[SEQUENCE], unsigned n, unsigned powers, uint64_t seed)
{
	size_t *set = new_array(n, sizeof(*set));

	for (unsigned i = 0; i < n; i++)
		set[i] = random_size(&seed, powers);
	for (unsigned i = 0; i < SEQUENCE; i++)
		sequence[i] = set[random_next(&seed) % n];
	free(set);
}

static uint64_t began_ns;

static uint64_t
spent_ns(void)
{
	struct sample now;

	sample_read(&now);
	return now.cpu_ns;
}

void
budget_reset(void)
{
	began_ns = spent_ns();
}

bool
budget_spent(void)
{
	return spent_ns() - began_ns > options.budget_s * 1000000000u;
}
