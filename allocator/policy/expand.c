/* SPDX-License-Identifier: MIT */
/*
 * New memory by growing an extent (block/extent.c): where a request needs the least, its place is
 * planned, the limits that the user set are asked, and what is mapped there becomes free. The
 * request is then served by an ordinary search, since what is free beside the new memory may be
 * another thread's by then, or something better may have become free.
 */
#include "allocator/policy/internal.h"

#include <errno.h>
#include <stdio.h>

#include "allocator/deferred/deferred.h"
#include "config/mutant.h"

enum { TRIES = 3 }; /* then it gets a segment: other threads take what it maps */

uint64_t
ca_expand_bytes_locked(struct ca_space *space, uint64_t bytes, uint64_t segment_bytes)
{
	struct ca_growth growth;

	return ca_extent_plan_locked(space, bytes, &growth) ? growth.bytes : segment_bytes;
}

bool
ca_expand_done_locked(struct ca_space *space)
{
	bool any = false;
	unsigned i;

	for (i = 0; i < 2; i++) {
		any = any || space->areas[i].spared || space->areas[i].spared_2;
		space->areas[i].spared = space->areas[i].spared_2 = 0;
	}
	return any;
}

/* ---- moves */

/* The bytes that may be reserved before what is free moves. */
static uint64_t
limit(const struct ca_space *space, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	const struct ca_gauge *allocated = &space->device->stats.allocated_bytes;
	uint64_t peak = ca_most(allocated->peak, allocated->current + bytes);

	return ca_most(peak + peak / 100 * config->expandable_slack_percent,
		       config->min_reserve_bytes);
}

/* The growth is so much too much. */
static uint64_t
too_much(const struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	const struct ca_device *device = space->device;

	return ca_excess(device->stats.reserved_bytes.current + device->taking_bytes +
				 growth->bytes,
			 limit(space, bytes) + device->leaving_bytes);
}

static bool
may_move(struct ca_space *space, const struct ca_growth *growth)
{
	const struct ca_heap *heap = space->heap;

	return !heap->config.give_back_oom && heap->driver.range_alias && !growth->area->no_moves &&
	       !space->poisoned && !ca_extent_is_late(space) &&
	       (!ca_order_may_capture(space->heap) || CA_MUTANT(EXTENT_IN_CAPTURE));
}

static bool
may_take(const struct ca_block *block)
{
	return ca_held_may_take_locked(block, true);
}

/* Behind a wait of the device. */
static bool
may_take_late(const struct ca_block *block)
{
	return ca_held_may_take_locked(block, false);
}

/* Beyond the slack, as at the end of reuse_slack_mb. */
static bool
is_late_allowed(struct ca_space *space)
{
	return space->heap->config.reuse_slack_bytes != UINT64_MAX &&
	       ca_order_is_ours(&space->order);
}

/* Of one other stream: the first that has any. */
static void
gather_late(struct ca_space *space, struct ca_growth *growth, uint64_t bytes)
{
	uint64_t moved = growth->moved;
	struct ca_stream_record *record;
	unsigned i;

	for (i = 0; growth->moved == moved && (record = ca_record_at(&space->order, i)); i++)
		ca_extent_take_locked(space, growth, bytes, record, may_take_late);
}

/* So much of the growth is to come from elsewhere: what has finished first, then what the stream
 * that the request is for may still use. */
static void
gather(struct ca_space *space, struct ca_growth *growth, uint64_t bytes)
{
	struct ca_stream_record *quiet = ca_held_quiet_locked(space);
	struct ca_stream_record *record = quiet ? quiet : ca_held_last_locked(space);

	ca_extent_take_locked(space, growth, bytes, NULL, NULL);
	if (growth->moved < bytes && record)
		ca_extent_take_locked(space, growth, bytes, record, may_take);
	if (growth->moved < bytes && !growth->user.stream && is_late_allowed(space))
		gather_late(space, growth, bytes);
}

/* The block that has grown, where a search would leave it for another that it then declines. */
static struct ca_block *
grown(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block = ca_block_find_locked(space->heap, growth->address);

	if (!block || !ca_pool_fits(block, bytes) || !ca_block_is_free(block))
		return NULL;
	return block->state == CA_BLOCK_FREE ||
			       ca_held_may_take_locked(block, !is_late_allowed(space))
		       ? block
		       : NULL;
}

/* What other streams may still use, behind a wait of the device. */
static struct ca_block *
late(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block;

	if (!is_late_allowed(space))
		return NULL;
	block = ca_search_exposable_locked(space, bytes);
	if (!block)
		block = ca_search_exposable_late_locked(space, bytes);
	return block ? block : ca_gather_locked(space, bytes, false);
}

/* No hit: the block was made for the request. */
static struct ca_block *
take(struct ca_space *space, const struct ca_growth *growth, uint64_t bytes)
{
	struct ca_block *block;

	space->heap->searches_all = true;
	block = ca_search_locked(space, bytes);
	space->heap->searches_all = false;
	if (!block)
		block = grown(space, growth, bytes);
	if (!block && growth->user.stream)
		block = late(space, bytes);
	if (!block || block->state != CA_BLOCK_FREE)
		return ca_alloc_hit_locked(space, block, bytes, false);
	block = ca_pool_cut_locked(block, bytes);
	if (block)
		block->user.stream = NULL;
	return block;
}

/* Handles that do not fit into the room go back for as much new memory: finished ones now, those of
 * the stream when it has finished. */
static void
give_way(struct ca_space *space, struct ca_growth *growth, uint64_t bytes)
{
	struct ca_stream_record *record;
	uint64_t given = 0, more = 1;

	while (given < bytes && more && !space->dead) {
		struct ca_block *block = ca_extent_candidate_locked(space, bytes - given);

		more = block ? ca_extent_release_locked(block, bytes - given, NULL) : 0;
		given += more;
	}
	record = ca_held_quiet_locked(space);
	if (!record)
		record = ca_held_last_locked(space);
	if (given < bytes && record && !space->dead)
		ca_extent_retire_locked(space, bytes - given, record, may_take);
}

/* Beyond the limits that the user set more of it is to move, or there is none. */
static bool
is_within_limits(struct ca_space *space, struct ca_growth *growth)
{
	uint64_t needed;

	if (!space->heap->limited || space->dead)
		return true;
	needed = ca_limit_needed_locked(space, ca_most(growth->bytes, growth->moved), true);
	if (needed && may_move(space, growth))
		gather(space, growth, ca_least(growth->moved + needed, growth->bytes));
	if (!ca_limit_needed_locked(space, ca_most(growth->bytes, growth->moved), true))
		return true;
	ca_oom_tried.rejected_by_us = true;
	ca_extent_put_back_locked(space, growth);
	return false;
}

static int
expand(struct ca_space *space, struct ca_growth *growth, uint64_t bytes, bool all)
{
	uint64_t much = all ? growth->bytes : too_much(space, growth, bytes);

	if (much && may_move(space, growth)) {
		much = ca_least(much, growth->bytes);
		gather(space, growth, much);
		give_way(space, growth, ca_excess(much, growth->moved));
	}
	if (!is_within_limits(space, growth))
		return CA_DRIVER_OUT_OF_MEMORY;
	return ca_extent_grow_locked(space, growth);
}

/* Before the cache grows beyond the slack: work that has finished meanwhile may have left something
 * that fits, or that can move. True: that was looked at. */
static bool
look(struct ca_space *space, uint64_t bytes, struct ca_growth *growth)
{
	if (!too_much(space, growth, bytes) || !may_move(space, growth))
		return false;
	ca_deferred_poll_locked(space);
	ca_extent_leave_locked(space);
	return true;
}

int
ca_expand_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	struct ca_growth growth;
	bool all = false;
	unsigned tries;
	int r;

	if (space->heap->limited)
		ca_limit_update_locked(space);
	for (tries = 0; tries < TRIES; tries++) {
		if (!ca_extent_plan_locked(space, bytes, &growth))
			return space->dead ? -ENODEV : -ENOTSUP;
		if (!tries && look(space, bytes, &growth)) {
			*ret_block = space->dead ? NULL : take(space, &growth, bytes);
			if (!*ret_block && !space->dead)
				*ret_block =
					ca_alloc_hit_locked(space, late(space, bytes), bytes, true);
			if (*ret_block)
				return 0;
			if (!ca_extent_plan_locked(space, bytes, &growth))
				return space->dead ? -ENODEV : -ENOTSUP;
		}
		r = expand(space, &growth, bytes, all);
		if (space->dead)
			return -ENODEV;
		*ret_block = take(space, &growth, bytes);
		if (*ret_block) {
			ca_budget_taken_locked(space, growth.bytes);
			return 0;
		}
		if (r == CA_DRIVER_OUT_OF_MEMORY && !all) {
			all = true;
			continue;
		}
		if (r == CA_DRIVER_OUT_OF_MEMORY || r == -ENOMEM)
			return r;
	}
	return -ENOTSUP;
}
