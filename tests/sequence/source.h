/* SPDX-License-Identifier: MIT */
/* Where decisions come from: a fuzzer's bytes, or a seed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
	const uint8_t *bytes; /* NULL: by the seed */
	size_t left;          /* bytes; or steps, if by the seed */
	uint64_t seed;        /* not 0 */
};

static inline struct source
source_seed(uint64_t seed, size_t steps)
{
	return (struct source){ .left = steps, .seed = seed ? seed : 1 };
}

static inline struct source
source_bytes(const uint8_t *bytes, size_t size)
{
	return (struct source){ .bytes = bytes, .left = size };
}

/* One more step may be taken. */
static inline bool
source_step(struct source *source)
{
	if (!source->left)
		return false;
	if (!source->bytes)
		source->left--;
	return true;
}

/* A number below `below` (> 0). As few bytes as will do; 0 when there are none left. */
static inline uint64_t
source_pick(struct source *source, uint64_t below)
{
	uint64_t value = 0, most;

	if (!source->bytes) {
		source->seed ^= source->seed << 13;
		source->seed ^= source->seed >> 7;
		source->seed ^= source->seed << 17;
		return source->seed % below;
	}
	for (most = below - 1; most && source->left; most >>= 8, source->left--)
		value = value << 8 | *source->bytes++;
	return value % below;
}
