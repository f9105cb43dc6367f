/* SPDX-License-Identifier: MIT */
/*
 * Memory by calls that the driver serves itself, under CACHEALLOC_LIMIT: charged before the call,
 * and kept by its handle until that is freed.
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"

bool
ca_charge(struct ca_space *space, uint64_t bytes)
{
	struct ca_heap *heap = space->heap;
	struct ca_rounds rounds = { 0 };
	bool allowed;

	do {
		CA_HEAP_LOCKED(heap);
		ca_limit_update_locked(space);
		allowed = bytes <= CA_SIZE_MAX && !ca_limit_needed_locked(space, bytes, false);
		if (allowed)
			space->device->other_bytes += bytes;
	} while (!allowed && bytes <= CA_SIZE_MAX && ca_reclaim(space, bytes, &rounds));
	return allowed;
}

void
ca_charge_abort(struct ca_space *space, uint64_t bytes)
{
	CA_HEAP_LOCKED(space->heap);
	space->device->other_bytes -= bytes;
}

void
ca_charge_keep(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle, uint64_t bytes)
{
	struct ca_heap *heap = space->heap;
	struct ca_charge *charge;

	CA_HEAP_LOCKED(heap);
	charge = ca_objects_get(&heap->charges);
	if (!charge || space->dead || ca_tree_find(&heap->charged, handle, kind)) {
		ca_objects_put(&heap->charges, charge);
		/* no record: better too little than too much */
		space->device->other_bytes -= bytes;
		return;
	}
	charge->space = space;
	charge->bytes = bytes;
	ca_tree_insert(&heap->charged, &charge->node, handle, kind);
}

/* The bytes are no longer counted, and the record is gone. */
static uint64_t
charge_remove(struct ca_heap *heap, struct ca_charge *charge)
{
	uint64_t bytes = charge->bytes;

	charge->space->device->other_bytes -= bytes;
	ca_tree_remove(&heap->charged, &charge->node);
	ca_objects_put(&heap->charges, charge);
	return bytes;
}

uint64_t
ca_charge_drop(struct ca_heap *heap, enum ca_charge_kind kind, uint64_t handle,
	       struct ca_space **ret_space)
{
	struct ca_tree_node *node;
	struct ca_charge *charge;

	CA_HEAP_LOCKED(heap);
	node = ca_tree_find(&heap->charged, handle, kind);
	if (!node)
		return 0;
	charge = CA_CONTAINER_OF(node, struct ca_charge, node);
	*ret_space = charge->space;
	return charge_remove(heap, charge);
}

void
ca_charge_restore(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle, uint64_t bytes)
{
	ca_heap_lock(space->heap);
	space->device->other_bytes += bytes;
	ca_heap_unlock(space->heap);
	ca_charge_keep(space, kind, handle, bytes);
}

/* Physical memory belongs to the process, all else to its context. */
void
ca_limit_forget_locked(struct ca_space *space)
{
	struct ca_tree_node *node = ca_tree_first(&space->heap->charged), *next;

	for (; node; node = next) {
		struct ca_charge *charge = CA_CONTAINER_OF(node, struct ca_charge, node);

		next = ca_tree_next(node);
		if (charge->space == space && node->subkey != CA_CHARGE_PHYSICAL)
			charge_remove(space->heap, charge);
	}
}
