/* SPDX-License-Identifier: MIT */
/*
 * Where an extent grows, free memory from elsewhere rather than new memory (block/extent_move.c).
 *
 * As long as no more is reserved than the most that was in use at a time and a slack
 * (expandable_slack_percent), the cache just grows. Beyond that whole handles move to the place of
 * growth: those that have finished, those of the stream that the request is for, and, as at the end
 * of reuse_slack_mb, those of other streams, for which the device then waits. Where handles are too
 * large for the room that is left, others go back for as much new memory. If that does not suffice
 * either, the cache grows.
 *
 * Nothing waits on the host, and nothing moves while something captures, nor while mapping has
 * taken more than its share of the time.
 */
#include "allocator/policy/internal.h"

#include "allocator/deferred/deferred.h"

/* The bytes that may be reserved before anything moves. */
static uint64_t
limit(const struct ca_space *space, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	const struct ca_gauge *allocated = &space->device->stats.allocated_bytes;
	uint64_t peak = ca_most(allocated->peak, allocated->current + bytes);

	return ca_most(peak + peak / 100 * config->expandable_slack_percent,
		       config->min_reserve_bytes);
}

/* The growth, for a request of `bytes`, is so much too much. */
static uint64_t
too_much(const struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	const struct ca_device *device = space->device;

	return ca_excess(device->stats.reserved_bytes.current + device->taking_bytes +
				 growth->bytes,
			 limit(space, bytes) + space->leaving_bytes);
}

static bool
may_move(const struct ca_space *space, const struct ca_growth *growth)
{
	const struct ca_heap *heap = space->heap;

	return !heap->config.give_back_oom && heap->driver.range_alias && !growth->area->no_moves &&
	       growth->moves && !space->dead && !space->poisoned && !ca_extent_is_late(space) &&
	       !ca_order_may_capture(heap);
}

bool
ca_move_is_wanted_locked(const struct ca_space *space, const struct ca_growth *growth,
			 uint64_t bytes)
{
	return too_much(space, growth, bytes) && may_move(space, growth);
}

/* Bytes. With 20 MiB a step of W1b maps 8 to 12 handles instead of 4 to 6; with all of the slack no
 * fewer, and W1a, which never outgrows its slack, takes 9 % more instructions. */
#define NEAR (5 * CA_HANDLE)

bool
ca_move_is_near_slack_locked(const struct ca_space *space)
{
	return ca_expand_moves(space) &&
	       space->device->stats.reserved_bytes.current + NEAR > limit(space, 0);
}

/*
 * One stream comes to wait for another, on the device, where the cache is larger than the peak by a
 * sixteenth, 32 MiB at most, or by reuse_slack_mb where that is less; and, since programs that copy
 * and compute in turn may have two buffers and nothing else, than 64 MiB in all. (Waste over live
 * of W7b is 13.3 % with the 32 MiB alone, 8.0 with a twelfth, 6.2 with a sixteenth, 5.6 with a
 * twentieth; of W7a 6.4, 6.2, 5.9, 4.7.)
 */
enum { WAITS_SHARE = 16 };
#define WAITS_FROM ((uint64_t)32 << 20)
#define WAITS_FROM_ALL ((uint64_t)64 << 20)

static uint64_t
without_waits(const struct ca_config *config, uint64_t peak)
{
	uint64_t more = ca_least(peak / WAITS_SHARE, WAITS_FROM);

	return ca_most(peak + ca_least(more, config->reuse_slack_bytes),
		       ca_least(WAITS_FROM_ALL, config->reuse_slack_bytes));
}

bool
ca_move_may_wait_locked(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	const struct ca_stats *stats = &space->device->stats;
	uint64_t peak =
		ca_most(stats->allocated_bytes.peak, stats->allocated_bytes.current + bytes);

	return config->reuse_slack_bytes != UINT64_MAX &&
	       stats->reserved_bytes.current + growth->bytes > without_waits(config, peak) &&
	       ca_order_is_ours(&space->order);
}

/* ---- whose memory */

static bool
may_take(const struct ca_block *block)
{
	return ca_held_may_take_locked(block, true);
}

static bool
may_take_late(const struct ca_block *block)
{
	return ca_held_may_take_locked(block, false);
}

/* The stream that the request is for, if its unfinished memory may move. NULL: none. */
static struct ca_stream_record *
own(struct ca_space *space)
{
	struct ca_stream_record *quiet = ca_held_quiet_locked(space);

	return quiet ? quiet : ca_held_last_locked(space);
}

/* Of what has finished, and of what is the request's own stream's. */
static void
take_own(struct ca_space *space, struct ca_growth *growth, uint64_t bytes)
{
	const struct ca_stream_record *record = own(space);

	ca_extent_take_locked(space, growth, bytes, space->pools, NULL);
	if (record && record->pools)
		ca_extent_take_locked(space, growth, bytes, record->pools, may_take);
}

/* Of what other streams may still use. */
static void
take_late(struct ca_space *space, struct ca_growth *growth, uint64_t bytes)
{
	const struct ca_stream_record *record;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++)
		if (record->pools)
			ca_extent_take_locked(space, growth, bytes, record->pools, may_take_late);
	CA_LIST_EACH(const struct ca_user_set, set, &space->sets, link)
		ca_extent_take_locked(space, growth, bytes, set->pools, may_take_late);
}

/* Handles go back for as much new memory: finished ones now, those of the stream when it has
 * finished. */
static void
give_way(struct ca_space *space, uint64_t bytes)
{
	const struct ca_stream_record *record;
	uint64_t given = 0, more = 1;

	while (given < bytes && more && !space->dead) {
		struct ca_block *block = ca_extent_candidate_locked(space, bytes - given);

		more = block ? ca_extent_release_locked(block, bytes - given, NULL) : 0;
		given += more;
	}
	record = space->dead ? NULL : own(space);
	if (given < bytes && record && record->pools)
		ca_extent_retire_locked(bytes - given, record->pools, may_take);
}

static void
move(struct ca_space *space, struct ca_growth *growth, uint64_t bytes, bool waits)
{
	take_own(space, growth, bytes);
	if (growth->moved < bytes && waits)
		take_late(space, growth, bytes);
	if (growth->moved < bytes)
		give_way(space, bytes - growth->moved);
}

/* ---- the growth */

/* By so much the growth exceeds the limits that the user set: what moves is counted already. */
static uint64_t
needed_for(const struct ca_space *space, const struct ca_growth *growth)
{
	return ca_limit_needed_locked(space, ca_excess(growth->bytes, growth->moved), true);
}

/* Beyond the limits that the user set more of it is to move, or there is none. */
static bool
is_within_limits(struct ca_space *space, struct ca_growth *growth)
{
	uint64_t needed;

	if (!space->heap->limited || space->dead)
		return true;
	needed = needed_for(space, growth);
	if (needed && may_move(space, growth)) {
		take_own(space, growth, ca_least(growth->moved + needed, growth->bytes));
		needed = needed_for(space, growth);
	}
	if (!needed)
		return true;
	ca_oom_tried.rejected_by_us = true;
	ca_extent_put_back_locked(space, growth);
	return false;
}

/* Bytes in use from which large handles are made: below, all that is saved is a few driver calls.
 */
#define LARGE_FROM ((uint64_t)512 << 20)
/* Of what moves cannot serve: memory is in pieces there. Waste over live of W1b, W10d and W5b, 20
 * us behind, is 4.2, 22 and 4.9 %; with handles of 20 MiB 4.7, 32 and 7.5 %, with 2 MiB 4.0, 24 and
 * 4.9 % and up to twice the calls. */
#define SHORT_HANDLE ((uint64_t)4 << 20)
/* That is so in programs that never had more in use, and where half of the device is used up;
 * others ask for more at a time. (A step of W2b maps 62 handles instead of 115, W5a-*-1024 and
 * -4096 a fifth fewer; W5a-*-256 wastes 6.4 instead of 6.0 %, no other row half a point more. On a
 * device that is used up, too, W2b would need 1.2 % more memory than it has in use, not 0.9.) */
#define SHORT_UP_TO ((uint64_t)8 << 30)

/* Of the device: with less left handles are small, so that each can go where it is needed. */
enum { TIGHT_SHARE = 5 };

/* Of new memory. */
static uint64_t
handle_bytes(struct ca_space *space, const struct ca_growth *growth)
{
	const struct ca_device *device = space->device;
	uint64_t most = ca_limit_of_segments(space),
		 left = ca_excess(most, device->stats.reserved_bytes.current + device->other_bytes);

	if (growth->area == &space->areas[0] || device->budget.exhausted ||
	    device->stats.allocated_bytes.current <= LARGE_FROM || left < most / TIGHT_SHARE)
		return CA_PAGE;
	if (!growth->moved)
		return CA_HANDLE;
	return device->stats.allocated_bytes.peak <= SHORT_UP_TO || left < most / 2 ? SHORT_HANDLE
										    : CA_HANDLE;
}

int
ca_move_grow_locked(struct ca_space *space, struct ca_growth *growth, uint64_t bytes, bool all)
{
	uint64_t much = all ? growth->bytes : too_much(space, growth, bytes);

	if (much && may_move(space, growth))
		move(space, growth, ca_least(much, growth->bytes),
		     all || ca_move_may_wait_locked(space, growth, bytes));
	if (!is_within_limits(space, growth))
		return CA_DRIVER_OUT_OF_MEMORY;
	growth->handle_bytes = handle_bytes(space, growth);
	return ca_extent_grow_locked(space, growth);
}
