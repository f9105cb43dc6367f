/* SPDX-License-Identifier: MIT */
/*
 * Address ranges that were registered to somebody who is no stream (a network card, a disk).
 *
 * Registrations are cached by address and outlive the free, so memory of such a range is handed out
 * finished only, until its segment is back at the driver.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/types.h"

enum { CA_REGISTERED_MAX = 15 };

/* Of one segment, sorted, apart from each other. Under the heap's lock. */
struct ca_registered {
	unsigned n;
	struct ca_registered_range {
		uint64_t from, to; /* addresses: [from, to) */
	} range[CA_REGISTERED_MAX];
};

/*
 * The range, cut to the segment, is registered from now on: blocks in it are in no magazine. Those
 * that a stream owns are for the caller to take out of its pools. Where there are too many ranges
 * the nearest two become one, what is between them included. No record for them: the segment is
 * retired instead.
 */
void ca_registered_add_locked(struct ca_segment *segment, uint64_t from, uint64_t to);
bool ca_registered_overlaps_some(const struct ca_block *block);

static inline bool
ca_registered_overlaps(const struct ca_block *block)
{
	return __builtin_expect(block->segment->registered != NULL, 0) &&
	       ca_registered_overlaps_some(block);
}
