/* SPDX-License-Identifier: MIT */
/*
 * The last attempts, when nothing of ours is left to give: a hole that is otherwise not for such a
 * request, some patience, managed memory. The latter two only if the user wants them. Where memory
 * is mapped, a segment, too: it may be smaller than a page, as a limit may have it, and the driver
 * answers with an error of the context's, of which a mapping does not hear.
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"
#include "allocator/tcache/tcache.h"

/* Nothing can be had any more: a small request takes a hole between large blocks. */
static int
take_hole(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	struct ca_block *block = NULL;

	if (bytes <= CA_SMALL_MAX && !space->dead && !space->poisoned) {
		ca_magazines_clear_locked(space);
		space->heap->searches_all = true;
		space->device->budget.fit = CA_FIT_ANY;
		block = ca_pool_find_locked(space->heap, &space->pools[1], bytes);
		space->device->budget.fit = CA_FIT_POLICY;
		space->heap->searches_all = false;
	}
	*ret_block = ca_alloc_hit_locked(space, block, bytes, true);
	return *ret_block ? 0 : CA_DRIVER_OUT_OF_MEMORY;
}

enum { RETRY_STEP_MS = 5 };

/* oom_retry_ms: other processes may give memory back meanwhile. */
static int
retry(struct ca_space *space, uint64_t bytes, enum ca_segment_kind kind,
      struct ca_block **ret_block)
{
	uint64_t ms, step;
	int r = CA_DRIVER_OUT_OF_MEMORY;

	for (ms = space->heap->config.oom_retry_ms; ms && r == CA_DRIVER_OUT_OF_MEMORY;
	     ms -= step) {
		step = ms < RETRY_STEP_MS ? ms : RETRY_STEP_MS;
		ca_outside_pause(space->heap, (long)step * 1000 * 1000);
		if (kind == CA_SEGMENT_CUT &&
		    (*ret_block = ca_oom_search_locked(space, bytes, CA_FIT_ANY)))
			return 0;
		ca_oom_tried.attempts++;
		r = ca_grow_locked(space, bytes, bytes, kind, ret_block);
	}
	return r;
}

/*
 * oom_fallback:managed. Only as much as the device has free, what is there of it already included:
 * more would make the driver move pages to and fro.
 */
static int
take_managed(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t free_bytes, total;
	int r;

	ca_outside_enter_locked(space);
	r = driver->memory_info(driver->self, space->context, &free_bytes, &total);
	ca_outside_leave(space);
	if (r || space->device->managed_bytes + space->device->taking_bytes + bytes > free_bytes)
		return CA_DRIVER_OUT_OF_MEMORY;
	r = ca_grow_locked(space, bytes, bytes, CA_SEGMENT_MANAGED, ret_block);
	if (!r)
		CA_COUNT(space, managed_fallbacks);
	return r;
}

int
ca_oom_last_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	int r;

	*ret_block = ca_oom_search_locked(space, bytes, CA_FIT_ANY);
	r = *ret_block ? 0 : take_hole(space, bytes, ret_block);

	if (r == CA_DRIVER_OUT_OF_MEMORY)
		r = retry(space, bytes, CA_SEGMENT_CUT, ret_block);
	if (r == CA_DRIVER_OUT_OF_MEMORY && (space->areas[0].bytes || space->areas[1].bytes))
		r = ca_grow_locked(space, ca_budget_exact(space, bytes), bytes, CA_SEGMENT_WHOLE,
				   ret_block);
	if (r == CA_DRIVER_OUT_OF_MEMORY && space->heap->config.oom_managed)
		r = take_managed(space, bytes, ret_block);
	return r;
}

int
ca_oom_last_passthrough_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	int r = retry(space, bytes, CA_SEGMENT_WHOLE, ret_block);

	if (r == CA_DRIVER_OUT_OF_MEMORY && space->heap->config.oom_managed)
		r = take_managed(space, bytes, ret_block);
	return r;
}
