/* SPDX-License-Identifier: MIT */
/*
 * New memory: a segment is asked of the driver only within the limits that the user set, and the
 * cache's budget learns of it.
 */
#include "allocator/policy/internal.h"

#include <errno.h>

/*
 * Beside twice the slack, and twice all that the program ever had. (With peak + 64 MiB a random
 * program without slack waits 2,459 times instead of 24: it has 293 MiB at most, and reserves 635.)
 */
enum { PIECES_BYTES = 256 << 20 };

/*
 * Usually an allocation waits for what its thread has freed, once more than the slack waits. Where
 * it may not, since the memory is of threads that have ended, or that allocate nothing, the cache
 * would grow for as long as the device falls behind. (2,000 threads one after the other, which each
 * allocate, launch behind 2 s of work, and free 5 to 7 MiB: 10,682 MiB reserved, with this 802.)
 */
bool
ca_grow_is_too_large_locked(struct ca_space *space)
{
	const struct ca_stats *stats = &space->device->stats;
	uint64_t slack = space->heap->config.reuse_slack_bytes;
	bool too_large = slack <= CA_SIZE_MAX &&
			 stats->reserved_bytes.current >
				 2 * (stats->allocated_bytes.peak + slack) + PIECES_BYTES;

	atomic_store_explicit(&space->too_large, too_large, memory_order_relaxed);
	return too_large;
}

static int
grow(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes, enum ca_segment_kind kind,
     struct ca_block **ret_block)
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

int
ca_grow_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
	       enum ca_segment_kind kind, struct ca_block **ret_block)
{
	int r = grow(space, segment_bytes, bytes, kind, ret_block);

	if (!r && ca_alloc_waiting_exceeds_slack_locked(space))
		ca_grow_is_too_large_locked(space);
	return r;
}
