/* SPDX-License-Identifier: MIT */
/*
 * New memory: a segment is asked of the driver only within the limits that the user set, and the
 * cache's budget learns of it.
 */
#include "allocator/policy/internal.h"

#include <errno.h>

int
ca_grow_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
	       enum ca_segment_kind kind, struct ca_block **ret_block)
{
	int r;

	if (kind == CA_SEGMENT_CUT) {
		r = ca_expand_locked(space, bytes, ret_block);
		if (r != -ENOTSUP)
			return r;
		if (segment_bytes < bytes) /* it was what an extent would have needed */
			segment_bytes = ca_pool_segment_bytes(&space->heap->config, bytes);
	}
	if (space->heap->limited)
		ca_limit_update_locked(space);
	if (space->heap->limited && !space->dead &&
	    ca_limit_needed_locked(space, segment_bytes, true)) {
		ca_oom_tried.rejected_by_us = true;
		return CA_DRIVER_OUT_OF_MEMORY;
	}
	r = ca_segment_take_locked(space, segment_bytes, bytes, kind, ret_block);
	if (!r)
		ca_budget_taken_locked(space, segment_bytes);
	return r;
}
