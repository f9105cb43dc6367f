/* SPDX-License-Identifier: MIT */
/* Memory that is mapped into reserved addresses. */
#include "allocator/fake/internal.h"

#include <errno.h>

/* Addresses for four times the device's memory, or 1 TiB where that is less. */
int
ca_model_range_reserve(void *self, void *context, uint64_t *ret_address, uint64_t *ret_bytes)
{
	static const uint64_t most = (uint64_t)1 << 40;
	struct ca_model *model = self;
	uint64_t page = (uint64_t)2 << 20, bytes = most;
	struct range *range;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RANGE_RESERVE);
	r = ca_model_begin_in(model, CA_MODEL_RANGE_RESERVE, context);
	if (r)
		return r;
	if (model->config.no_ranges)
		return -ENOTSUP;
	if (model->config.capacity < most / 4)
		bytes = (model->config.capacity * 4 + page - 1) / page * page;
	range = ca_objects_get(&model->ranges);
	if (!range)
		return CA_DRIVER_OUT_OF_MEMORY;
	range->address = (model->next_address + page - 1) / page * page;
	range->bytes = bytes;
	model->next_address = range->address + bytes + model->config.alignment;
	ca_tree_insert(&model->reserved, &range->node, range->address, 0);
	model->sums.ranges++;
	*ret_address = range->address;
	*ret_bytes = bytes;
	return 0;
}

/* It is reserved, and nothing is mapped there. */
static bool
is_mappable(const struct ca_model *model, uint64_t address, uint64_t bytes)
{
	uint64_t page = model->config.granularity;
	struct ca_tree_node *node = ca_tree_at_most(&model->reserved, address);
	struct range *range = node ? CA_CONTAINER_OF(node, struct range, node) : NULL;

	if (!range || !bytes || bytes % page || address % page ||
	    address - range->address > range->bytes - bytes)
		return false;
	node = ca_tree_at_most(&model->held, address + bytes - 1);
	range = node ? CA_CONTAINER_OF(node, struct range, node) : NULL;
	return !range || range->address + range->bytes <= address;
}

/* NULL: no memory for records. */
static struct range *
enter(struct ca_model *model, uint64_t address, uint64_t bytes, struct memory *memory)
{
	struct range *range = memory ? ca_objects_get(&model->ranges) : NULL;

	if (!range)
		return NULL;
	*range = (struct range){
		.address = address, .bytes = bytes, .mapped = true, .memory = memory
	};
	memory->maps++;
	ca_tree_insert(&model->held, &range->node, address, 0);
	ca_model_note_segment(model, CA_MODEL_TAKEN, address, bytes);
	return range;
}

int
ca_model_range_map(void *self, void *context, uint64_t address, uint64_t bytes)
{
	struct ca_model *model = self;
	struct memory *memory;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RANGE_MAP);
	r = ca_model_begin_in(model, CA_MODEL_RANGE_MAP, context);
	if (r)
		return r;
	if (!is_mappable(model, address, bytes)) {
		model->sums.errors++;
		return INVALID_VALUE;
	}
	if (model->sums.used_bytes + bytes > model->config.capacity) {
		ca_model_note_segment(model, CA_MODEL_REFUSED, 0, bytes);
		return CA_DRIVER_OUT_OF_MEMORY;
	}
	memory = ca_objects_get(&model->memories);
	if (!enter(model, address, bytes, memory)) {
		ca_objects_put(&model->memories, memory);
		return CA_DRIVER_OUT_OF_MEMORY;
	}
	model->sums.held_bytes += bytes;
	model->sums.used_bytes += bytes;
	model->sums.segments++;
	if (model->sums.used_bytes > model->sums.peak_bytes)
		model->sums.peak_bytes = model->sums.used_bytes;
	ca_model_pass(model, model->config.map_ns);
	return 0;
}

int
ca_model_range_alias(void *self, void *context, uint64_t from, uint64_t to, uint64_t bytes)
{
	struct ca_model *model = self;
	struct range *range;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RANGE_ALIAS);
	r = ca_model_begin_in(model, CA_MODEL_RANGE_ALIAS, context);
	if (r)
		return r;
	if (model->capturing && !model->relaxed)
		return -EBUSY;
	range = ca_model_range_find(&model->held, from);
	if (!range || !range->mapped || range->bytes != bytes || !is_mappable(model, to, bytes)) {
		model->sums.errors++;
		return INVALID_VALUE;
	}
	if (!enter(model, to, bytes, range->memory))
		return CA_DRIVER_OUT_OF_MEMORY;
	ca_model_pass(model, model->config.map_ns);
	return 0;
}

/* A mapping outlives its context, and its end waits for nothing. */
int
ca_model_range_unmap(void *self, void *context, uint64_t address, uint64_t bytes)
{
	struct ca_model *model = self;
	struct range *range;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RANGE_UNMAP);
	r = ca_model_begin(model, CA_MODEL_RANGE_UNMAP);
	if (r)
		return r;
	if (model->capturing && !model->relaxed &&
	    !ca_model_range_find(&model->dead, (uint64_t)(uintptr_t)context))
		return -EBUSY;
	range = ca_model_range_find(&model->held, address);
	if (!range || !range->mapped || range->bytes != bytes) {
		model->sums.errors++;
		return INVALID_VALUE;
	}
	ca_model_range_free(model, range);
	ca_model_pass(model, model->config.unmap_ns);
	return 0;
}

void
ca_model_range_release(void *self, void *context, uint64_t address, uint64_t bytes)
{
	struct ca_model *model = self;
	struct range *range;
	struct ca_tree_node *node;

	CA_MODEL_CALL(model, CA_MODEL_RANGE_RELEASE);
	(void)ca_model_begin(model, CA_MODEL_RANGE_RELEASE);
	range = ca_model_range_find(&model->reserved, address);
	node = ca_tree_at_most(&model->held, address + bytes - 1);
	if (!range || range->bytes != bytes || (node && node->key >= address)) {
		model->sums.errors++;
		return;
	}
	ca_tree_remove(&model->reserved, &range->node);
	ca_objects_put(&model->ranges, range);
	model->sums.ranges--;
}
