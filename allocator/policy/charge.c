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
	bool allowed;

	do {
		ca_heap_lock(heap);
		ca_limit_update_locked(space);
		allowed = bytes <= CA_SIZE_MAX && !ca_limit_needed_locked(space, bytes, false);
		if (allowed)
			space->device->other_bytes += bytes;
		ca_heap_unlock(heap);
	} while (!allowed && bytes <= CA_SIZE_MAX && ca_reclaim(space, bytes));
	return allowed;
}

void
ca_charge_abort(struct ca_space *space, uint64_t bytes)
{
	ca_heap_lock(space->heap);
	space->device->other_bytes -= bytes;
	ca_heap_unlock(space->heap);
}

void
ca_charge_keep(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle, uint64_t bytes)
{
	struct ca_heap *heap = space->heap;
	struct ca_tree_node *node;
	struct ca_charge *charge;

	ca_heap_lock(heap);
	node = ca_tree_at_least(&heap->charged, handle, kind);
	charge = ca_objects_get(&heap->charges);
	if (!charge || space->dead || (node && node->key == handle && node->subkey == kind)) {
		ca_objects_put(&heap->charges, charge);
		space->device->other_bytes -=
			bytes; /* no record: better too little than too much */
	} else {
		charge->space = space;
		charge->bytes = bytes;
		ca_tree_insert(&heap->charged, &charge->node, handle, kind);
	}
	ca_heap_unlock(heap);
}

uint64_t
ca_charge_drop(struct ca_heap *heap, enum ca_charge_kind kind, uint64_t handle,
	       struct ca_space **ret_space)
{
	struct ca_tree_node *node;
	struct ca_charge *charge;
	uint64_t bytes = 0;

	ca_heap_lock(heap);
	node = ca_tree_at_least(&heap->charged, handle, kind);
	if (node && node->key == handle && node->subkey == kind) {
		charge = CA_CONTAINER_OF(node, struct ca_charge, node);
		bytes = charge->bytes;
		*ret_space = charge->space;
		charge->space->device->other_bytes -= bytes;
		ca_tree_remove(&heap->charged, node);
		ca_objects_put(&heap->charges, charge);
	}
	ca_heap_unlock(heap);
	return bytes;
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
		if (charge->space != space || node->subkey == CA_CHARGE_PHYSICAL)
			continue;
		space->device->other_bytes -= charge->bytes;
		ca_tree_remove(&space->heap->charged, node);
		ca_objects_put(&space->heap->charges, charge);
	}
}
