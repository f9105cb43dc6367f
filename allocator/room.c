/* SPDX-License-Identifier: MIT */
/*
 * Where another cache shares the device (a framework's, whose segments come by ca_alloc_through),
 * ours may not make the process larger than it would be without us. Below the highest that was ever
 * held there is room for everybody's cache; before that is passed, cached memory goes back to the
 * driver, and a new segment is no larger than the request needs. The driver calls that this costs
 * are frees that would have been the program's own.
 */
#include "allocator/inside.h"

enum {
	PAUSE_NS = 50 * 1000,
	MOMENT_NS = 100 * 1000 * 1000,
	LOOKS = 2000, /* where the clock stands still */
	IN_VAIN_MAX = 8,
};

static bool
is_shared(const struct ca_space *space)
{
	return atomic_load_explicit(&space->heap->shared, memory_order_relaxed);
}

/* What would be held more than ever before. */
static uint64_t
beyond_peak(const struct ca_space *space, uint64_t bytes)
{
	const struct ca_gauge *reserved = &space->device->stats.reserved_bytes;

	return reserved->current + bytes > reserved->peak
		       ? reserved->current + bytes - reserved->peak
		       : 0;
}

/* Looks at what waits in the space, that of its one stream included. */
static bool
look_at_all(struct ca_space *space)
{
	bool settled = ca_owned_poll_locked(space);

	if (space->waiting_blocks) {
		ca_pending_mark_unmarked_locked(space);
		settled = ca_pending_poll_locked(space) || settled;
	}
	return settled;
}

/*
 * Freed memory of the space is not finished, and the driver's own free would have waited for it. A
 * wait could be for work that was submitted since, which may itself wait for the host: so it is
 * looked at for a while only. Where that was in vain it is tried more and more seldom.
 */
static bool
unfinished_finishes(struct ca_space *space)
{
	const struct ca_heap *heap = space->heap;
	struct ca_device *device = space->device;
	uint64_t since = heap->driver.clock_ns(heap->driver.self);
	unsigned looks;

	if (device->room_not_now) {
		device->room_not_now--;
		return look_at_all(space);
	}
	for (looks = 0; looks < LOOKS && !space->dead; looks++) {
		if (look_at_all(space)) {
			device->room_in_vain = 0;
			return true;
		}
		if ((!space->owned_blocks && !space->waiting_blocks) ||
		    heap->driver.clock_ns(heap->driver.self) - since > MOMENT_NS)
			break;
		ca_outside_pause(space->heap, PAUSE_NS);
	}
	if (device->room_in_vain < IN_VAIN_MAX)
		device->room_in_vain++;
	device->room_not_now = (1u << device->room_in_vain) - 1;
	return false;
}

void
ca_room_make_locked(struct ca_space *space, uint64_t bytes)
{
	bool busy = false;
	uint64_t over;

	while (is_shared(space) && !space->dead && (over = beyond_peak(space, bytes))) {
		ca_ladder_release_locked(space, over, &busy);
		if (busy || !beyond_peak(space, bytes) ||
		    (!space->owned_blocks && !space->waiting_blocks))
			return;
		if (!ca_ladder_wait_later_locked(space) && !unfinished_finishes(space))
			return;
	}
}

uint64_t
ca_room_segment_bytes(const struct ca_space *space, uint64_t bytes)
{
	uint64_t segment_bytes = ca_pool_segment_bytes(&space->heap->config, bytes);

	if (bytes > CA_SMALL_MAX && is_shared(space) && beyond_peak(space, segment_bytes))
		return ca_round_up(bytes, CA_PAGE);
	return segment_bytes;
}
