/* SPDX-License-Identifier: MIT */
/* Shared by extent_plan.c, extent.c, extent_cut.c and extent_move.c. The heap's lock is held, but
 * for what is said. */
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

/* A segment of mapped pages in a thread's hand, of one RETIRED block and in no sum, becomes free
 * but for that user (no stream: nobody). */
void ca_extent_enter_locked(struct ca_segment *segment, const struct ca_users *users);

/* It becomes one with the extents that it touches, as far as they are open. */
void ca_extent_join_adjacent_locked(struct ca_segment *segment);
/* From `block` on, which is not its first one, it is the segment `upper`, so far empty. */
void ca_extent_split_locked(struct ca_segment *segment, struct ca_block *block,
			    struct ca_segment *upper);
/* Without the lock, from above. *ret_end: so much is still there. */
int ca_extent_unmap(struct ca_space *space, const struct ca_area *area, uint64_t address,
		    uint64_t end, uint64_t *ret_end);
/* The same of a dead space, where nobody comes back for it: the driver is asked again where it
 * fails. Leaves the lock. */
void ca_extent_unmap_dead_locked(struct ca_space *space, const struct ca_area *area,
				 uint64_t address, uint64_t end);

/* ---- extent_cut.c */

/* Whole handles inside the block, from above: just enough for `bytes`, and no more than `most`. 0:
 * there are none. */
uint64_t ca_extent_handles(const struct ca_block *block, uint64_t bytes, uint64_t most,
			   uint64_t *ret_address);
/* A plan counts on growing from that block. */
bool ca_extent_is_spared(const struct ca_block *block);
/* [address, address + bytes) of the free block becomes a segment of one RETIRED block, in the sums
 * still. NULL: no records. *ret_lower (may be NULL): the free block in front of it, or NULL. */
struct ca_segment *ca_extent_cut_locked(struct ca_block *block, uint64_t address, uint64_t bytes,
					struct ca_block **ret_lower);

/* ---- extent_move.c */

/* Without the lock: the sources are mapped at the growth, too, in order, from *ret_end on. As far
 * as that was done they go to *ret_aliased. */
int ca_extent_alias_all(struct ca_space *space, struct ca_growth *growth,
			struct ca_list *ret_aliased, uint64_t *ret_end, uint64_t *ret_calls);
/* It leaves the addresses that it had. Leaves the lock. */
void ca_extent_leaves_locked(struct ca_space *space, struct ca_list *aliased);
/* So long took mapping and unmapping. */
void ca_extent_note_locked(struct ca_space *space, uint64_t begin_ns, uint64_t end_ns);
/* Of the dead space: unmaps what is being left. Leaves the lock. */
void ca_extent_leave_dead_locked(struct ca_space *space);
