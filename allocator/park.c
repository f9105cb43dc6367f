/* SPDX-License-Identifier: MIT */
/*
 * Programs free a block and ask for one of just that size again. Merging it with what is free
 * around it, only to cut it off once more, would be most of the work of both calls; so a few freed
 * blocks are parked as they are, one a slot by a hash of their size, and the next request of that
 * size takes one without a look at the trees. Anything else that looks for free memory clears the
 * slots first: best fit never misses a merged block for a parked part of it.
 */
#include "allocator/inside.h"

static unsigned
slot_of(uint64_t bytes)
{
	/* Fibonacci hashing: the top 4 bits */
	return (unsigned)(bytes / CA_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> 60);
}

void
ca_park_leave_locked(struct ca_block *block)
{
	block->segment->space->parked_slots &= ~(1u << slot_of(block->bytes));
}

static struct ca_block *
parked_in(const struct ca_space *space, unsigned slot)
{
	return space->parked_slots >> slot & 1 ? space->parked[slot] : NULL;
}

void
ca_park_locked(struct ca_block *block)
{
	struct ca_space *space = block->segment->space;
	unsigned slot = slot_of(block->bytes);
	struct ca_block *former = parked_in(space, slot);

	if (block->segment->retired) {
		ca_block_settle_locked(block);
		return;
	}
	if (former) {
		ca_park_leave_locked(former);
		ca_block_settle_locked(former);
	}
	ca_block_set_state_locked(block, CA_BLOCK_PARKED);
	space->parked[slot] = block;
	space->parked_slots |= 1u << slot;
}

struct ca_block *
ca_park_take_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block = parked_in(space, slot_of(bytes));
	uint64_t pad = 0;

	if (!block || block->bytes != bytes)
		return NULL;
	if (bytes >= CA_BOUNDARY)
		ca_block_usable(block, &pad);
	if (pad)
		return NULL;
	ca_park_leave_locked(block);
	block->segment->stuck = false;
	return block;
}

void
ca_park_clear_locked(struct ca_space *space)
{
	while (space->parked_slots) {
		struct ca_block *block =
			space->parked[(unsigned)__builtin_ctz(space->parked_slots)];

		ca_park_leave_locked(block);
		ca_block_settle_locked(block);
	}
}
