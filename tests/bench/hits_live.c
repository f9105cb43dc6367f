/* SPDX-License-Identifier: MIT */
/* Pairs among many live blocks of mixed sizes. */
#include "tests/bench/hits.h"

#include <errno.h>
#include <stdlib.h>

enum { GRAIN = 512 };

static uint64_t *live;

void measured_live(unsigned long n, uint64_t *seed);

static uint64_t
random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static size_t
size_for(uint64_t *seed)
{
	return (1 + random_next(seed) % 32) * GRAIN;
}

__attribute__((noinline)) void
measured_live(unsigned long n, uint64_t *seed)
{
	while (n--) {
		uint64_t *one = &live[random_next(seed) % options.live];

		give(*one);
		*one = take(size_for(seed));
	}
}

void
hits_live(void)
{
	unsigned long all = options.live + options.holes;
	uint64_t seed = 88172645463325252u, start;

	live = calloc(all + 1, sizeof(*live));
	if (!live || !options.live)
		api_fail("--live", ENOMEM);
	for (unsigned long i = 0; i < all; i++)
		live[i] = take(size_for(&seed));
	for (unsigned long i = 1; i < all; i++) { /* shuffled: holes are everywhere */
		unsigned long j = random_next(&seed) % (i + 1);
		uint64_t one = live[i];

		live[i] = live[j];
		live[j] = one;
	}
	for (unsigned long i = options.live; i < all; i++)
		give(live[i]);
	for (unsigned long i = 0; i < options.pairs; i++) { /* as measured_live, not counted */
		uint64_t *one = &live[random_next(&seed) % options.live];

		give(*one);
		*one = take(size_for(&seed));
	}
	for (unsigned long r = 0; r < options.rounds; r++) {
		start = now_ns();
		measured_live(options.pairs, &seed);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}
