/* SPDX-License-Identifier: MIT */
/*
 * Programs free a block and ask for one of just that size again. Merging it with what is free
 * around it, only to cut it off once more, would be most of the work of both calls; so freed blocks
 * are parked as they are, in places by a hash of their size, and the next request of that size
 * takes the latest without a look at the trees. Anything else that looks for free memory settles
 * them first: best fit never misses a merged block for a parked part of it.
 *
 * A place holds blocks of one size, and not more than a few: what is settled at once must not take
 * long under the heap's lock.
 */
#include "allocator/inside.h"

static unsigned
place_of(uint64_t bytes)
{
	/* Fibonacci hashing: the top bits */
	return (unsigned)(bytes / CA_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> (64 - CA_PLACES_LOG));
}

/* The latest block of the place leaves it. */
static void
pop(struct ca_space *space, unsigned place, struct ca_block *block)
{
	space->places[place] = block->parked;
	if (!block->parked)
		space->places_taken &= ~((uint64_t)1 << place);
}

void
ca_park_leave_locked(struct ca_block *block)
{
	struct ca_space *space = block->segment->space;
	unsigned place = place_of(block->bytes);
	struct ca_block *above = space->places[place];

	if (above == block) {
		pop(space, place, block);
		return;
	}
	while (above->parked != block) {
		above->parks--;
		above = above->parked;
	}
	above->parks--;
	above->parked = block->parked;
}

static CA_APART void
clear(struct ca_space *space, unsigned place)
{
	struct ca_block *block;

	while ((block = space->places[place])) {
		pop(space, place, block);
		ca_block_settle_locked(block);
	}
}

/* The block becomes the latest of its place, on top of `below`. */
static void
push(struct ca_space *space, unsigned place, struct ca_block *block, struct ca_block *below)
{
	block->parked = below;
	block->parks = below ? below->parks + 1 : 1;
	space->places[place] = block;
	space->places_taken |= (uint64_t)1 << place;
}

void
ca_park_locked(struct ca_block *block)
{
	struct ca_space *space = block->segment->space;
	unsigned place = place_of(block->bytes);
	struct ca_block *below = space->places[place];

	if (below && (below->bytes != block->bytes || below->parks == CA_PARKED_MAX)) {
		clear(space, place); /* the block is still LIVE, and merged with nothing */
		below = NULL;
	}
	push(space, place, block, below);
	ca_block_set_state_locked(block, CA_BLOCK_PARKED);
}

static CA_APART bool
is_off_boundary(const struct ca_block *block)
{
	uint64_t pad;

	ca_block_usable(block, &pad);
	return pad != 0;
}

struct ca_block *
ca_park_take_locked(struct ca_space *space, uint64_t bytes)
{
	unsigned place = place_of(bytes);
	struct ca_block *block = space->places[place];

	if (!block || block->bytes != bytes || (bytes >= CA_BOUNDARY_MIN && is_off_boundary(block)))
		return NULL;
	pop(space, place, block);
	block->segment->standing = 0;
	return block;
}

void
ca_park_clear_locked(struct ca_space *space)
{
	while (space->places_taken)
		clear(space, (unsigned)__builtin_ctzll(space->places_taken));
}

uint64_t
ca_park_largest_locked(const struct ca_space *space)
{
	uint64_t largest = 0;
	unsigned place;

	for (place = 0; place < CA_PLACES; place++)
		if (space->places[place] && space->places[place]->bytes > largest)
			largest = space->places[place]->bytes;
	return largest;
}
