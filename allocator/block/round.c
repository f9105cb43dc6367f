/* SPDX-License-Identifier: MIT */
/*
 * roundup_power2_divisions: between 2^k and 2^(k+1) there are so many sizes, at equal distances, so
 * that requests of about the same size get blocks of the same size. Too small a step (less than the
 * grain) makes no difference.
 */
#include "allocator/block/block.h"

static uint64_t
divisions_for(const struct ca_roundup *roundup, uint64_t size)
{
	for (uint64_t i = 0; i < roundup->count; i++)
		if (size < roundup->interval[i].below)
			return roundup->interval[i].divisions;
	return 0;
}

uint64_t
ca_round_request(const struct ca_roundup *roundup, uint64_t size)
{
	uint64_t divisions = divisions_for(roundup, size), power;

	if (divisions <= 1 || size <= CA_GRAIN * divisions)
		return ca_round_up(size, CA_GRAIN);
	power = (uint64_t)1 << (63 - __builtin_clzll(size));
	return ca_round_up(size, power / divisions);
}
