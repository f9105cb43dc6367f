/* SPDX-License-Identifier: MIT */
/*
 * A cache wastes the bytes that it holds beyond the most the program has had at a time. That peak,
 * and 4 % or one segment for the pieces between, is the budget. A cache that is about to outgrow it
 * first gives whole unused segments back: the smallest that suffices, or else the largest, and so
 * on. And a segment that could go back as a whole is not cut for a small request while the budget
 * is used up, since that request may keep it for long.
 *
 * Memory that goes back and is asked for again was given back in vain. Such regret raises the
 * budget, so a program that does the same over and over comes to rest: its cache ends up holding
 * what all its phases need, as one that gives nothing back would from the beginning.
 *
 * At the end of the device's memory holes count for more than calls of the driver. There a large
 * request takes a free block only as it is, or else memory of just its size, as it would natively;
 * and only if the driver has none, holes (oom_last.c). So that sizes which never come again do not
 * make a driver call of every allocation, only one in so many may be declined like that.
 *
 * Giving a segment back may wait for the device, for work that may itself wait for the caller's
 * next submission. So it is done only while the device has nothing to do as far as is known. Where
 * much is to be had the device is looked at for a moment, and where that was in vain, more and more
 * seldom.
 *
 * Most programs keep the device busy: it is far behind the host, and idle only after the program
 * itself has waited for it. A block left whole for a give-back that cannot be made costs a new
 * segment. So blocks are left whole only while the device is seen to keep up; and if then nothing
 * went back in the same call, the block is cut after all. While the device does not keep up
 *   - memory beyond the budget goes back at the first request that finds the device idle;
 *   - a request for which the cache must grow takes a segment as large as one that was given back
 *     and would have served it, so that giving back leaves no more and smaller segments than
 *     keeping them would have.
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/tcache.h"
#include "allocator/trace/trace.h"

/*
 * Each figure is the change that another value makes to the mean waste over live of the 44
 * workloads (tests/traces/README.md), in points, on an idle device and on one that is 20 us an
 * allocation behind; or to the mean of their least capacities.
 */
enum {
	/* Of the peak. 2: +0.4, -1.2; 8: +1.1, -2.2. */
	SPARE_PERCENT = 4,
	/* Regret beyond a quarter of the peak counts for a quarter. 1: +3.3, +1.7; 2: +0.7, -0.1;
	 * 8: -0.7, -1.7, for 0.5 % more driver calls. */
	SLOW_SHARE = 4,
	/* A request for less than 1/4 would not have brought the segment back. 2 and 8: -0.3 to 0;
	 * none: +0.1, +0.4, of which W10e +9 and +24. */
	ALIKE = 4,
	/* No call gives back more segments. 1: +5.1, +1.3; 8: +0.2, +0.1; 1000: -1.6, -1.5, but one
	 * call then frees hundreds. */
	GIVEN_AT_A_TIME = 32,
	/* A rest of more than 1/20 of what is left is large. None is: least capacity +1.6 %, W6
	 * +63 %; 10 and 40: 0. */
	ROOM_SHARE = 20,
	/* Free blocks that may be declined, and one more for so many allocations. Sizes that never
	 * come again make 2.9 driver calls an allocation without it, none with it (test_budget.c);
	 * the least capacities are the same. */
	UNCUT_MAX = 1024,
	UNCUT_EVERY = 16,
	/* Allocations after the driver had no more. None: least capacity +9.6 %; a quarter and four
	 * times as many: 0. */
	CALM = 128 * 1024,
	/* Bytes. 4 MiB: -0.4, -0.3; 64 MiB: +1.8, +2.8. */
	WORTH_LOOKING = 16 << 20,
	/* With one stream. 96 to 144 MiB are alike: mean waste of the 44 workloads over live 26.8
	 * to 27.5 % on an idle device, 34.2 to 36.3 % on one 20 us an allocation behind. */
	WORTH_ASKING = 136 << 20,
	IDLE_PAUSE_NS = 50 * 1000,
	/* The longest look at a busy device. None: +202, +193; half: 0, +3.7; double: 0, -5.0. */
	IDLE_MOMENT_NS = 10 * 1000 * 1000,
	IDLE_LOOKS = 2000, /* where the clock stands still */
	/* A device keeps up that catches up with so many allocations in such a time. Half the time:
	 * +1.8, +0.5, of which W6 +74; double: 0, +0.6. 8 and 32 allocations: 0 to +0.2. */
	KEEPS_UP_NS = 1500 * 1000,
	KEEPS_UP_ALLOCS = 16,
	/* Bytes for threads that would take from each other. (Two, each with a ring of 64 blocks,
	 * miss in a million requests of 12 sizes 33,000 times without that, with 6 MiB 26,000, with
	 * these 20,000; of 96 sizes 520,000 and 490,000 to 560,000.) */
	SPREAD = 8 << 20,
};

static bool
is_early(const struct ca_config *config)
{
	return !config->give_back_oom;
}

/* The bytes that the cache may hold, with `bytes` more allocated. */
static uint64_t
allowed(const struct ca_space *space, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	const struct ca_gauge *allocated = &space->device->stats.allocated_bytes;
	uint64_t peak = ca_most(allocated->peak, allocated->current + bytes);
	uint64_t spare = ca_most(peak / 100 * SPARE_PERCENT, config->large_segment_size_bytes);

	return ca_most(peak + spare + space->device->budget.repeated_bytes,
		       config->min_reserve_bytes);
}

/* How much a segment for `bytes` would be too much. What magazines took is counted. */
static uint64_t
too_much(const struct ca_space *space, uint64_t segment_bytes, uint64_t bytes)
{
	return ca_excess(space->device->stats.reserved_bytes.current + segment_bytes,
			 allowed(space, bytes));
}

/* ---- what is not cut */

/* The bytes that the driver may have left for us. */
static uint64_t
capacity_left(struct ca_space *space)
{
	const struct ca_device *device = space->device;

	return ca_excess(ca_limit_of_segments(space),
			 device->stats.reserved_bytes.current + device->other_bytes);
}

/* The driver had no more lately, and the program needs most of what there is. */
static bool
is_full(const struct ca_space *space)
{
	const struct ca_device *device = space->device;

	if (!device->budget.exhausted)
		return false;
	ca_magazine_count_own_locked(space->heap);
	return device->stats.alloc_calls - device->budget.exhausted_at < CALM;
}

static bool
is_low(struct ca_space *space)
{
	return is_full(space) ||
	       capacity_left(space) < ca_limit_of_segments(space) / CA_BUDGET_TIGHT_SHARE;
}

bool
ca_budget_is_low_otherwise_locked(struct ca_space *space)
{
	return is_low(space);
}

/* It would be cut, and it is no segment that requests of that size are meant to share. */
static bool
is_cut(const struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	const struct ca_segment *segment = block->segment;

	if (segment->pool->small || segment->mapped || !ca_pool_splits(config, block, bytes))
		return false;
	return bytes >= CA_LARGE_MIN || segment->bytes > config->large_segment_size_bytes;
}

/*
 * So much is too much: is it worth looking at the device? A program with one stream has its order
 * for nothing, and keeps that until the cache is about to take much more than the program has ever
 * had, or little memory is left. With several the cache may hold reuse_slack_mb before anybody
 * waits.
 */
static bool
is_look_useful(struct ca_space *space, uint64_t much)
{
	const struct ca_stats *stats = &space->device->stats;

	if (much < WORTH_LOOKING)
		return false;
	if (ca_order_is_quiet(&space->order))
		return much >= WORTH_ASKING || is_low(space);
	return stats->reserved_bytes.current - stats->allocated_bytes.current >
	       space->heap->config.reuse_slack_bytes;
}

static bool
is_return_useful(struct ca_space *space, uint64_t much)
{
	return (is_look_useful(space, much) || (much && ca_device_is_idle_locked(space))) &&
	       ca_device_is_only_ours_locked(space);
}

static bool
is_better_whole(struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	const struct ca_budget *budget = &space->device->budget;

	if (!is_cut(space, block, bytes))
		return false;
	if (is_low(space))
		return true;
	if (block->prev || block->next)
		return false;
	if (budget->keeps_up && budget->fit == CA_FIT_POLICY) {
		ca_magazine_count_own_locked(space->heap);
		if (is_return_useful(space, too_much(space, 0, 0)))
			return true;
	}
	return block->bytes - bytes > capacity_left(space) / ROOM_SHARE;
}

bool
ca_budget_allows_locked(struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	const struct ca_device *device = space->device;

	return !is_early(&space->heap->config) || device->budget.fit == CA_FIT_ANY ||
	       (device->budget.uncut >= UNCUT_MAX && !is_full(space)) ||
	       !is_better_whole(space, block, bytes);
}

/* One more may be declined for so many allocations. */
static void
lower_skipped(struct ca_space *space)
{
	struct ca_device *device = space->device;
	struct ca_budget *budget = &device->budget;
	uint64_t more;

	ca_magazine_count_own_locked(space->heap);
	more = (device->stats.alloc_calls - budget->uncut_until) / UNCUT_EVERY;
	budget->uncut_until += more * UNCUT_EVERY;
	budget->uncut = ca_excess(budget->uncut, more);
}

struct ca_block *
ca_budget_choose_locked(struct ca_space *space, struct ca_block *block, uint64_t bytes)
{
	struct ca_budget *budget = &space->device->budget;
	uint64_t request = space->heap->requests;

	if (!block || ca_budget_allows_locked(space, block, bytes))
		return block;
	lower_skipped(space);
	budget->uncut += budget->uncut_for != request; /* it may be looked for again */
	budget->uncut_for = request;
	return NULL;
}

/* ---- giving back */

/* Looks at what the streams of the device have finished. */
static void
look(const struct ca_device *device)
{
	struct ca_space *space;
	int r;

	for (space = device->spaces; space; space = space->next_on_device) {
		if (space->dead || space->poisoned)
			continue;
		ca_outside_enter_locked(space);
		ca_order_mark_busy(space);
		r = ca_order_poll(space);
		ca_outside_leave(space);
		if (ca_context_mark_is_lost(r))
			ca_context_mark_sync_locked(space);
		ca_held_look_locked(space);
		ca_held_settle_locked(space);
	}
}

static void
settle(const struct ca_device *device)
{
	struct ca_space *space;

	for (space = device->spaces; space; space = space->next_on_device)
		if (!space->dead)
			ca_held_settle_locked(space);
}

/* The device became idle within `ns`. Soon after it was seen idle that tells nothing. */
static void
note_rate(struct ca_device *device, uint64_t ns)
{
	struct ca_budget *budget = &device->budget;

	if (ns > KEEPS_UP_NS)
		budget->keeps_up = false;
	else if (device->stats.alloc_calls - budget->idle_at >= KEEPS_UP_ALLOCS)
		budget->keeps_up = true;
}

/* The device has nothing to do; or it will not have in a moment, if that is worth looking at. */
static bool
wait_until_idle(struct ca_space *space, uint64_t much)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_budget *budget = &space->device->budget;
	uint64_t since, passed;
	unsigned looks;

	if (driver->capturing(driver->self) || !ca_device_is_only_ours_locked(space))
		return false;
	settle(space->device);
	if (ca_device_is_idle_locked(space)) {
		budget->idle_at = space->device->stats.alloc_calls;
		return true;
	}
	if (!is_look_useful(space, much) || !ca_backoff_is_due(&budget->looks))
		return false;
	if (ca_tracing(space->heap))
		ca_trace_look(space);
	since = driver->clock_ns(driver->self);
	for (looks = 0; looks < IDLE_LOOKS && !space->dead; looks++) {
		look(space->device);
		passed = driver->clock_ns(driver->self) - since;
		if (ca_device_is_idle_locked(space)) {
			note_rate(space->device, passed);
			ca_backoff_succeeded(&budget->looks);
			budget->idle_at = space->device->stats.alloc_calls;
			return true;
		}
		if (passed > IDLE_MOMENT_NS)
			break;
		ca_outside_pause(space->heap, IDLE_PAUSE_NS);
	}
	budget->keeps_up = false;
	ca_backoff_failed(&budget->looks);
	return false;
}

/* The smallest unused segment of at least `bytes`, or the largest. False: there is none, or the
 * driver did not take it. */
static bool
return_one(struct ca_space *space, uint64_t bytes)
{
	struct ca_budget *budget = &space->device->budget;
	struct ca_block *block = ca_release_candidate_locked(space->device, bytes, NULL);
	uint64_t given = block ? ca_release_block_locked(block, bytes, NULL) : 0;

	if (!given)
		return false;
	budget->given[budget->given_next] = given;
	budget->given_next = (budget->given_next + 1) % CA_GIVEN_MAX;
	CA_COUNT(space, trims);
	return true;
}

bool
ca_budget_make_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes)
{
	unsigned given;
	uint64_t much;

	if (!is_early(&space->heap->config))
		return false;
	ca_limit_update_locked(space);
	for (given = 0; given < GIVEN_AT_A_TIME && !space->dead && !space->poisoned; given++) {
		much = too_much(space, segment_bytes, bytes);
		if (much && !given)
			ca_oom_clear_magazines_locked(space->device);
		if (!much || !ca_device_is_drainable(space->device) ||
		    !wait_until_idle(space, much) || !return_one(space, much))
			break;
	}
	return given > 0;
}

void
ca_budget_tidy_locked(struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t much;

	space->device->budget.untidy = allowed(space, 0) + WORTH_ASKING;
	much = too_much(space, 0, 0);
	if (much < WORTH_ASKING || space->device->budget.keeps_up ||
	    !is_early(&space->heap->config) || !ca_device_is_idle_locked(space) ||
	    driver->capturing(driver->self) || !ca_device_is_only_ours_locked(space))
		return;
	ca_oom_clear_magazines_locked(space->device);
	while (much && ca_device_is_drainable(space->device) && !space->dead && !space->poisoned &&
	       ca_device_is_idle_locked(space) && return_one(space, much))
		much = too_much(space, 0, 0);
}

uint64_t
ca_budget_restored(const struct ca_space *space, uint64_t segment_bytes)
{
	const struct ca_budget *budget = &space->device->budget;
	uint64_t best = 0;
	unsigned i;

	if (!is_early(&space->heap->config) || budget->keeps_up)
		return segment_bytes;
	for (i = 0; i < CA_GIVEN_MAX; i++) {
		uint64_t given = budget->given[i];

		/* one that is never cut serves only what is of about its size */
		if (given >= segment_bytes && given / ALIKE <= segment_bytes &&
		    given < space->heap->config.max_split_size_bytes && (!best || given < best))
			best = given;
	}
	return best ? best : segment_bytes;
}

/* ---- what happened */

void
ca_budget_taken_locked(struct ca_space *space, uint64_t segment_bytes)
{
	struct ca_device *device = space->device;
	struct ca_budget *budget = &device->budget;
	uint64_t fast = device->stats.allocated_bytes.peak / 4;
	unsigned i;

	for (i = 0; i < CA_GIVEN_MAX; i++) {
		if (budget->given[i] < segment_bytes || budget->given[i] / ALIKE > segment_bytes)
			continue;
		budget->given[i] = 0;
		budget->repeated_bytes +=
			budget->repeated_bytes < fast ? segment_bytes : segment_bytes / SLOW_SHARE;
		return;
	}
}

void
ca_budget_needed_locked(struct ca_space *space)
{
	space->needed_bytes = space->device->stats.reserved_bytes.current;
}

bool
ca_budget_spreads_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes)
{
	struct ca_heap *heap = space->heap;
	struct ca_device *device = space->device;

	if (bytes > CA_SMALL_MAX || heap->config.expandable_segments)
		return false;
	ca_limit_update_locked(space);
	if (is_low(space))
		return false;
	ca_magazines_count_locked(heap);
	return device->stats.reserved_bytes.current + segment_bytes <=
		       ca_most(space->needed_bytes, device->stats.allocated_bytes.peak) + SPREAD &&
	       !too_much(space, segment_bytes, bytes) && ca_backoff_is_due(&space->spreads);
}

void
ca_budget_rejected_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_device *device = space->device;
	uint64_t needs = ca_most(device->stats.allocated_bytes.peak,
				 device->stats.allocated_bytes.current + bytes);

	/* otherwise it is the cache's pieces, or another process: a few more of them do no harm */
	device->budget.exhausted = needs > ca_limit_of_segments(space) / 2;
	device->budget.exhausted_at = device->stats.alloc_calls;
}

uint64_t
ca_budget_exact(const struct ca_space *space, uint64_t bytes)
{
	uint64_t pages = ca_round_up(bytes, CA_PAGE);

	if (!is_early(&space->heap->config) || bytes <= CA_SMALL_MAX ||
	    ca_limit_needed_locked(space, pages, true))
		return bytes;
	return pages;
}
