/* SPDX-License-Identifier: MIT */
/*
 * Blocks tile their segment from end to end; each is in one state, and the state decides which sums
 * hold its bytes (ALLOCATED: requested, allocated, active; MARK_HELD, STREAM_HELD, MULTI_HELD:
 * active; FREE: cached). Every change of state goes through ca_block_set_state_locked, so the sums
 * are exact by construction.
 */
#include "allocator/block/block_inside.h"

enum {
	IN_USE = 1, /* requested, allocated */
	ACTIVE = 2,
	CACHED = 4,
	WAITS = 8, /* in the sums of what waits in the space */
};

/* The sums that hold a block's bytes, by its state. */
static const uint8_t sums_of[] = {
	[CA_BLOCK_NEW] = 0,
	[CA_BLOCK_ALLOCATED] = IN_USE | ACTIVE,
	[CA_BLOCK_MARK_HELD] = ACTIVE | WAITS,
	[CA_BLOCK_STREAM_HELD] = ACTIVE | WAITS,
	[CA_BLOCK_MULTI_HELD] = ACTIVE | WAITS,
	[CA_BLOCK_FREE] = CACHED,
	[CA_BLOCK_RETIRED] = 0,
	[CA_BLOCK_FLUSHED_HELD] = ACTIVE,
};

/* The block enters those sums, or leaves them. */
static inline __attribute__((always_inline)) void
sums_change(struct ca_stats *stats, const struct ca_block *block, unsigned sums,
	    void (*change)(struct ca_gauge *gauge, uint64_t bytes))
{
	if (sums & IN_USE) {
		change(&stats->requested_bytes, ca_block_requested(block));
		change(&stats->allocated_bytes, block->bytes);
	}
	if (sums & ACTIVE)
		change(&stats->active_bytes, block->bytes);
	if (sums & CACHED)
		change(&stats->cached_bytes, block->bytes);
}

/* Adds (sign 1) or takes away (-1, modulo 2^64) a block that waits. */
static void
waiting_count(struct ca_block *block, uint64_t sign)
{
	struct ca_segment *segment = block->segment;
	struct ca_space *space = segment->space;

	if (block->state == CA_BLOCK_STREAM_HELD) {
		ca_owned_count(block, sign);
		return;
	}
	segment->pool->waiting_bytes += sign * block->bytes;
	ca_change(block->state == CA_BLOCK_MARK_HELD ? &space->mark_held_blocks
						     : &space->stream_held_blocks,
		  sign);
}

/* The usual change: the way by the table of sums takes longer. */
static void
free_to_live(struct ca_block *block, struct ca_stats *stats)
{
	uint64_t bytes = block->bytes;

	if (block->state == CA_BLOCK_FREE) {
		ca_gauge_add(&stats->active_bytes, bytes);
		ca_gauge_sub(&stats->cached_bytes, bytes);
	} else {
		waiting_count(block, (uint64_t)-1);
	}
	ca_gauge_add(&stats->requested_bytes, ca_block_requested(block));
	ca_gauge_add(&stats->allocated_bytes, bytes);
	block->state = CA_BLOCK_ALLOCATED;
	ca_block_live_change(block, 1);
}

void
ca_block_set_state_locked(struct ca_block *block, enum ca_block_state state)
{
	struct ca_device *device = block->segment->space->device;
	unsigned was = sums_of[block->state], is = sums_of[state];

	if (state == CA_BLOCK_ALLOCATED && ca_block_is_free(block)) {
		free_to_live(block, &device->stats);
		return;
	}
	if (was & WAITS)
		waiting_count(block, (uint64_t)-1);
	block->state = state;
	if (is & WAITS)
		waiting_count(block, 1);
	sums_change(&device->stats, block, was & ~is, ca_gauge_sub);
	sums_change(&device->stats, block, is & ~was, ca_gauge_add);
	if ((was ^ is) & IN_USE)
		ca_block_live_change(block, is & IN_USE ? 1 : (uint64_t)-1);
	if (!(is & IN_USE))
		device->generation++;
}

/* All but `quick`: in fewer instructions than a call, or a string instruction, begins with. */
static void
zero(struct ca_block *block)
{
	block->prev = block->next = NULL;
	block->address = 0;
	block->segment = NULL;
	block->bytes = 0;
	block->waiting = (struct ca_list){ NULL, NULL };
	block->user = (struct ca_user){ NULL, 0 };
	block->places = NULL;
	block->thread = 0;
	block->space_and_state = ca_block_word(0, CA_BLOCK_NEW);
}

struct ca_block *
ca_block_new_locked(struct ca_heap *heap)
{
	struct ca_block *block = ca_block_again(heap);

	if (block)
		zero(block);
	return block;
}

void
ca_block_drop_users_locked(struct ca_block *block)
{
	struct ca_multi_users *multi = ca_block_multi(block);

	if (multi && block->state == CA_BLOCK_ALLOCATED) {
		block->has_multi = false;
		block->birth = multi->birth;
	} else if (multi) {
		ca_slabs_put(&block->segment->space->heap->places, block->places);
		block->places = NULL;
	}
	if (multi)
		ca_objects_put(&block->segment->space->heap->users, multi);
	block->user.stream = NULL;
}

void
ca_block_keep_multi_locked(struct ca_block *block, uint64_t birth)
{
	struct ca_multi_users *multi = block->places->multi;

	ca_slabs_put(&block->segment->space->heap->places, block->places);
	multi->birth = birth;
	block->multi = multi;
	block->has_multi = true;
}

void
ca_block_come_out_locked(struct ca_block *block)
{
	block->state = CA_BLOCK_FLUSHED_HELD;
	ca_block_live_change(block, (uint64_t)-1);
}

void
ca_block_go_out_locked(struct ca_block *block)
{
	if (block->state == CA_BLOCK_STREAM_HELD)
		ca_owned_count(block, (uint64_t)-1);
	block->state = CA_BLOCK_ALLOCATED;
	ca_block_live_change(block, 1);
}

void
ca_block_split_locked(struct ca_block *block, uint64_t bytes, struct ca_block *upper)
{
	upper->segment = block->segment;
	upper->address = block->address + bytes;
	upper->bytes = block->bytes - bytes;
	upper->space_and_state = block->space_and_state;
	upper->thread = block->thread;
	upper->user = block->user;
	upper->places = NULL;
	ca_list_init(&upper->waiting);
	if (ca_block_is_held(block)) {
		ca_list_insert(block->waiting.next, &upper->waiting);
		ca_change(&block->segment->space->stream_held_blocks, 1);
	}
	upper->prev = block;
	upper->next = block->next;
	if (upper->next)
		upper->next->prev = upper;
	block->next = upper;
	block->bytes = bytes;
}
