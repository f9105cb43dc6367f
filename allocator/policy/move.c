/* SPDX-License-Identifier: MIT */
/*
 * Where an extent grows, free memory from elsewhere rather than new memory (block/extent_move.c).
 *
 * As long as no more is reserved than the most that was in use at a time and a slack
 * (expandable_slack_percent), the cache just grows. Beyond that whole handles move to the place of
 * growth: those that have finished, those of the stream that the request is for, and, as at the end
 * of reuse_slack_mb, those of other streams, for which the device then waits. Each of these comes
 * as a block of its own, with its own user, and gather.c puts them together. Where handles are too
 * large for the room that is left, others go back for as much new memory. If that does not suffice
 * either, the cache grows.
 *
 * Nothing waits on the host, and nothing moves while something captures, nor while mapping has
 * taken more than its share of the time.
 */
#include "allocator/policy/internal.h"

#include "allocator/deferred/deferred.h"
#include "config/mutant.h"

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
			 limit(space, bytes) + device->leaving_bytes);
}

static bool
may_move(const struct ca_space *space, const struct ca_growth *growth)
{
	const struct ca_heap *heap = space->heap;

	return !heap->config.give_back_oom && heap->driver.range_alias && !growth->area->no_moves &&
	       !space->dead && !space->poisoned && !ca_extent_is_late(space) &&
	       (!ca_order_may_capture(heap) || CA_MUTANT(EXTENT_IN_CAPTURE));
}

bool
ca_move_is_wanted_locked(const struct ca_space *space, const struct ca_growth *growth,
			 uint64_t bytes)
{
	return too_much(space, growth, bytes) && may_move(space, growth);
}

bool
ca_move_may_wait_locked(struct ca_space *space)
{
	return space->heap->config.reuse_slack_bytes != UINT64_MAX &&
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
	struct ca_stream_record *record = own(space);

	ca_extent_take_locked(space, growth, bytes, NULL, NULL);
	if (growth->moved < bytes && record)
		ca_extent_take_locked(space, growth, bytes, record, may_take);
}

/* What has been taken moves; the growth is the rest, behind it. */
static int
move_slice(struct ca_space *space, struct ca_growth *growth)
{
	uint64_t rest = growth->bytes - growth->moved;
	int r;

	growth->address += growth->from_above ? rest : 0;
	growth->bytes = growth->moved;
	growth->most -= growth->moved;
	r = ca_extent_grow_locked(space, growth);
	growth->address += growth->from_above ? 0 : growth->bytes;
	growth->address -= growth->from_above ? rest : 0;
	growth->bytes = rest;
	growth->moved = 0;
	growth->user.stream = NULL;
	return r;
}

/* Of all other streams, one after the other. *bytes: of that so much is to move still. */
static int
move_late(struct ca_space *space, struct ca_growth *growth, uint64_t *bytes)
{
	struct ca_stream_record *record;
	unsigned i;
	int r;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++) {
		if (growth->moved && growth->moved < *bytes) {
			*bytes -= growth->moved;
			r = move_slice(space, growth);
			if (r)
				return r;
		}
		if (growth->moved < *bytes)
			ca_extent_take_locked(space, growth, *bytes, record, may_take_late);
	}
	return 0;
}

/* Handles go back for as much new memory: finished ones now, those of the stream when it has
 * finished. */
static void
give_way(struct ca_space *space, uint64_t bytes)
{
	struct ca_stream_record *record;
	uint64_t given = 0, more = 1;

	while (given < bytes && more && !space->dead) {
		struct ca_block *block = ca_extent_candidate_locked(space, bytes - given);

		more = block ? ca_extent_release_locked(block, bytes - given, NULL) : 0;
		given += more;
	}
	record = space->dead ? NULL : own(space);
	if (given < bytes && record)
		ca_extent_retire_locked(space, bytes - given, record, may_take);
}

static int
move(struct ca_space *space, struct ca_growth *growth, uint64_t bytes)
{
	int r = 0;

	take_own(space, growth, bytes);
	if (growth->moved < bytes && ca_move_may_wait_locked(space))
		r = move_late(space, growth, &bytes);
	if (!r && growth->moved < bytes)
		give_way(space, bytes - growth->moved);
	return r;
}

/* ---- the growth */

/* Beyond the limits that the user set more of it is to move, or there is none. */
static bool
is_within_limits(struct ca_space *space, struct ca_growth *growth)
{
	uint64_t needed;

	if (!space->heap->limited || space->dead)
		return true;
	needed = ca_limit_needed_locked(space, ca_most(growth->bytes, growth->moved), true);
	if (needed && may_move(space, growth)) {
		take_own(space, growth, ca_least(growth->moved + needed, growth->bytes));
		needed = ca_limit_needed_locked(space, ca_most(growth->bytes, growth->moved), true);
	}
	if (!needed)
		return true;
	ca_oom_tried.rejected_by_us = true;
	ca_extent_put_back_locked(space, growth);
	return false;
}

int
ca_move_grow_locked(struct ca_space *space, struct ca_growth *growth, uint64_t bytes, bool all)
{
	uint64_t much = all ? growth->bytes : too_much(space, growth, bytes);
	int r = 0;

	if (much && may_move(space, growth))
		r = move(space, growth, ca_least(much, growth->bytes));
	if (r)
		return r;
	if (!is_within_limits(space, growth))
		return CA_DRIVER_OUT_OF_MEMORY;
	return ca_extent_grow_locked(space, growth);
}
