/* SPDX-License-Identifier: MIT */
/*
 * User objects: things of the program that live as long as a graph, or anything made of it, may
 * run. Graphs hold references; a clone, a child's copy and an executable take as many of their own.
 * An executable that is destroyed while a launch is under way leaves its references to the end of
 * that launch. With the last reference the thread of host functions calls the destructor, some
 * time; nothing waits for it (CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, the only kind there is).
 */
#include "tests/sim/engine/internal.h"

#include <limits.h>
#include <stdlib.h>

static void
release_locked(struct sim_user_object *object, uint64_t n)
{
	object->n_refs -= n;
	if (object->n_refs)
		return;
	sim_host_later_locked(object->destroy, object->data);
	sim_slab_put(&sim_g.objects, object);
}

static void
hold_locked(struct sim_held **list, struct sim_user_object *object, uint64_t n)
{
	struct sim_held *held;

	for (held = *list; held; held = held->next)
		if (held->object == object)
			break;
	if (!held) {
		held = sim_xcalloc(1, sizeof(*held));
		held->object = object;
		held->next = *list;
		*list = held;
	}
	held->n += n;
}

void
sim_held_copy_locked(struct sim_held **to, const struct sim_held *from)
{
	for (; from; from = from->next) {
		from->object->n_refs += from->n;
		hold_locked(to, from->object, from->n);
	}
}

void
sim_held_drop_locked(struct sim_held **list)
{
	while (*list) {
		struct sim_held *held = *list;

		*list = held->next;
		release_locked(held->object, held->n);
		free(held);
	}
}

int
sim_user_object_create(void *data, sim_host_function destroy, unsigned n_refs,
		       struct sim_user_object **ret_object)
{
	struct sim_user_object *object = NULL;
	int rc;

	if (!destroy || !n_refs || n_refs > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_host_start_locked();
	if (!rc)
		object = sim_slab_get(&sim_g.objects);
	if (object) {
		object->n_refs = n_refs;
		object->destroy = destroy;
		object->data = data;
		*ret_object = object;
	}
	sim_unlock();
	return rc || object ? rc : CUDA_ERROR_OUT_OF_MEMORY;
}

int
sim_user_object_retain(struct sim_user_object *handle, unsigned n)
{
	struct sim_user_object *object;

	sim_lock();
	object = n && n <= INT_MAX ? sim_slab_find(&sim_g.objects, handle) : NULL;
	if (object)
		object->n_refs += n;
	sim_unlock();
	return object ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_user_object_release(struct sim_user_object *handle, unsigned n)
{
	struct sim_user_object *object;

	sim_lock();
	object = n && n <= INT_MAX ? sim_slab_find(&sim_g.objects, handle) : NULL;
	if (object && n > object->n_refs)
		object = NULL;
	if (object)
		release_locked(object, n);
	sim_unlock();
	return object ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_graph_retain_object(CUgraph graph_handle, struct sim_user_object *handle, unsigned n, bool move)
{
	struct sim_user_object *object;
	struct sim_graph *graph;

	sim_lock();
	object = n && n <= INT_MAX ? sim_slab_find(&sim_g.objects, handle) : NULL;
	graph = sim_graph_find_locked(graph_handle);
	if (graph && object) {
		object->n_refs += move ? 0 : n;
		hold_locked(&graph->held, object, n);
	}
	sim_unlock();
	return graph && object ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_graph_release_object(CUgraph graph_handle, struct sim_user_object *handle, unsigned n)
{
	struct sim_graph *graph;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	graph = sim_graph_find_locked(graph_handle);
	for (struct sim_held **p = graph ? &graph->held : NULL; p && *p; p = &(*p)->next) {
		struct sim_held *held = *p;

		if (held->object != handle || !n || n > held->n)
			continue;
		rc = 0;
		held->n -= n;
		release_locked(held->object, n);
		if (!held->n) {
			*p = held->next;
			free(held);
		}
		break;
	}
	sim_unlock();
	return rc;
}
