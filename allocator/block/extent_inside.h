/* SPDX-License-Identifier: MIT */
/* Shared by extent_plan.c, extent.c and extent_cut.c. The heap's lock is held, but for what is
 * said. */
#pragma once

#include "allocator/block/block.h"

/* Whether a handle begins there: read and written by whoever maps or unmaps there, without the
 * lock. */
static inline unsigned char *
ca_area_begins_at(const struct ca_area *area, uint64_t address)
{
	return &area->begins[(address - area->address) / CA_PAGE];
}

static inline uint64_t
ca_segment_end(const struct ca_segment *segment)
{
	return segment->address + segment->bytes;
}

/* Others may grow into it, and it into them. */
static inline bool
ca_extent_is_open(const struct ca_segment *segment)
{
	return segment->mapped && !segment->retired && !segment->returning &&
	       !segment->registered && ca_list_empty(&segment->hand);
}

static inline struct ca_block *
ca_segment_last_block_locked(const struct ca_segment *segment)
{
	return ca_block_find_locked(segment->space->heap, ca_segment_end(segment) - 1);
}

static inline struct ca_segment *
ca_segment_next_locked(const struct ca_segment *segment)
{
	struct ca_tree_node *node = ca_tree_next(&segment->by_address);

	return node ? CA_CONTAINER_OF(node, struct ca_segment, by_address) : NULL;
}

/* ---- extent.c */

/* The map of a segment whose blocks from `first` on are new to it, or of which some have gone. */
void ca_extent_remap_locked(struct ca_segment *segment, struct ca_block *first);
/* It becomes one with the extents that it touches, as far as they are open. */
void ca_extent_join_adjacent_locked(struct ca_segment *segment);
/* From `block` on, which is not its first one, it is the segment `upper`, so far empty. */
void ca_extent_split_locked(struct ca_segment *segment, struct ca_block *block,
			    struct ca_segment *upper);
/* Without the lock, from above. *ret_end: so much is still there. */
int ca_extent_unmap(struct ca_space *space, const struct ca_area *area, uint64_t address,
		    uint64_t end, uint64_t *ret_end);
