/* SPDX-License-Identifier: MIT */
/*
 * Segments. Addresses count upwards and a freed range is handed out again only for the same number
 * of bytes, the way a driver with virtual memory behaves: capacity is what runs out, never address
 * space, and an address that was just returned comes back soon (which is what makes stale records
 * dangerous).
 */
#include "allocator/fake/internal.h"

#include <errno.h>

static uint64_t
pages(const struct ca_model *model, uint64_t bytes)
{
	return (bytes + model->config.granularity - 1) / model->config.granularity *
	       model->config.granularity;
}

/* There is nothing at all in [address, address + bytes), nor will there be. */
static bool
is_free_at(const struct ca_model *model, uint64_t address, uint64_t bytes)
{
	const struct ca_tree_node *node;

	if (!address || address % model->config.alignment || address >= PLACES_END ||
	    bytes > PLACES_END - address)
		return false;
	node = ca_tree_at_most(&model->held, address + bytes - 1);
	return !node || node->key + CA_CONTAINER_OF(node, struct range, node)->bytes <= address;
}

/* The range that is to lie at the given address; NULL: this is not the one, or it cannot. */
static struct range *
range_place(struct ca_model *model, uint64_t bytes)
{
	struct range *range = NULL;

	if (model->place_bytes == bytes && is_free_at(model, model->place_address, bytes))
		range = ca_objects_get(&model->ranges);
	if (!range)
		return NULL;
	*range = (struct range){ .address = model->place_address, .bytes = bytes, .placed = true };
	model->place_bytes = 0;
	return range;
}

static struct range *
range_get(struct ca_model *model, uint64_t bytes)
{
	struct range *range = range_place(model, bytes);
	struct ca_tree_node *node = ca_tree_at_least(&model->freed, bytes, 0);

	if (range)
		return range;
	if (node && node->key == bytes) {
		ca_tree_remove(&model->freed, node);
		return CA_CONTAINER_OF(node, struct range, node);
	}
	range = ca_objects_get(&model->ranges);
	if (!range)
		return NULL;
	range->bytes = bytes;
	range->address = model->next_address;
	model->next_address += (bytes / model->config.alignment + 1) * model->config.alignment;
	return range;
}

void
ca_model_place(struct ca_model *model, uint64_t bytes, uint64_t address)
{
	CA_MODEL_LOCKED(model);
	model->place_bytes = bytes;
	model->place_address = address;
}

void
ca_model_note_segment(struct ca_model *model, enum ca_model_segment change, uint64_t address,
		      uint64_t bytes)
{
	if (model->segment_observer)
		model->segment_observer(model->segment_observer_arg, change, address, bytes);
}

/* Of managed memory nothing is on the device: nobody touches it. */
static int
take_as(struct ca_model *model, enum ca_model_function function, void *context, uint64_t size,
	uint64_t *ret_address)
{
	bool managed = function == CA_MODEL_MANAGED;
	uint64_t used = managed ? 0 : pages(model, size);
	struct range *range;
	int r;

	CA_MODEL_CALL(model, function);
	r = ca_model_begin_in(model, function, context);
	if (r)
		return r;
	if (used && model->sums.used_bytes + used > model->config.capacity) {
		ca_model_note_segment(model, CA_MODEL_REFUSED, 0, size);
		return CA_DRIVER_OUT_OF_MEMORY;
	}
	range = range_get(model, size);
	if (!range)
		return CA_DRIVER_OUT_OF_MEMORY;
	range->context = context;
	range->managed = managed;
	ca_tree_insert(&model->held, &range->node, range->address, 0);
	model->sums.held_bytes += size;
	model->sums.used_bytes += used;
	model->sums.segments++;
	if (model->sums.used_bytes > model->sums.peak_bytes)
		model->sums.peak_bytes = model->sums.used_bytes;
	*ret_address = range->address;
	ca_model_note_segment(model, CA_MODEL_TAKEN, range->address, size);
	return 0;
}

int
ca_model_segment_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	return take_as(self, CA_MODEL_TAKE, context, size, ret_address);
}

int
ca_model_managed_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	return take_as(self, CA_MODEL_MANAGED, context, size, ret_address);
}

struct range *
ca_model_range_find(struct ca_tree *tree, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_find(tree, address, 0);

	return node ? CA_CONTAINER_OF(node, struct range, node) : NULL;
}

void
ca_model_range_free(struct ca_model *model, struct range *range)
{
	ca_model_note_segment(model, CA_MODEL_RETURNED, range->address, range->bytes);
	ca_tree_remove(&model->held, &range->node);
	if (!range->mapped || !--range->memory->maps) {
		model->sums.held_bytes -= range->bytes;
		if (!range->managed)
			model->sums.used_bytes -= pages(model, range->bytes);
		model->sums.segments--;
		ca_objects_put(&model->memories, range->memory);
	}
	if (range->placed || range->mapped)
		ca_objects_put(&model->ranges, range);
	else
		ca_tree_insert(&model->freed, &range->node, range->bytes, range->address);
}

int
ca_model_segment_return(void *self, void *context, uint64_t address)
{
	struct ca_model *model = self;
	struct range *range;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RETURN);
	r = ca_model_begin_in(model, CA_MODEL_RETURN, context);
	if (r)
		return r;
	if (model->capturing && !model->relaxed)
		return -EBUSY;
	range = ca_model_range_find(&model->held, address);
	if (!range || range->context != context) {
		model->sums.errors++;
		return INVALID_VALUE;
	}
	if (!model->config.frees_at_once)
		ca_model_finish_all(model);
	ca_model_range_free(model, range);
	return 0;
}

int
ca_model_memory_info(void *self, void *context, uint64_t *ret_free, uint64_t *ret_total)
{
	struct ca_model *model = self;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_INFO);
	r = ca_model_begin_in(model, CA_MODEL_INFO, context);
	if (r)
		return r;
	*ret_free = model->config.capacity - model->sums.used_bytes;
	*ret_total = model->config.capacity;
	return 0;
}

void
ca_model_context_destroy(struct ca_model *model, void *context)
{
	struct ca_tree_node *node, *next;
	struct range *grave;

	CA_MODEL_LOCKED(model);
	grave = ca_objects_get(&model->ranges);
	if (grave)
		ca_tree_insert(&model->dead, &grave->node, (uint64_t)(uintptr_t)context, 0);
	for (node = ca_tree_first(&model->held); node; node = next) {
		struct range *range = CA_CONTAINER_OF(node, struct range, node);

		next = ca_tree_next(node);
		if (range->context == context)
			ca_model_range_free(model, range);
	}
}

int
ca_model_steal(struct ca_model *model, uint64_t address)
{
	struct range *range;

	CA_MODEL_LOCKED(model);
	range = ca_model_range_find(&model->held, address);
	if (!range)
		return -ENOENT;
	ca_model_range_free(model, range);
	return 0;
}
