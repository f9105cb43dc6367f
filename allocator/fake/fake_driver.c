/* SPDX-License-Identifier: MIT */
/*
 * Addresses count upwards and a freed range is handed out again only for the same number of bytes,
 * the way a driver with virtual memory behaves: capacity is what runs out, never address space, and
 * an address that was just returned comes back soon (which is what makes stale records dangerous).
 */
#include "allocator/fake/internal.h"

#include <errno.h>
#include <stddef.h>

#define FIRST_ADDRESS ((uint64_t)0x7f0000000000)
/* Above all that a driver gives: placed segments lie below, the rest above. */
#define PLACES_END ((uint64_t)1 << 57)

void
ca_model_call_hook(struct ca_model *model, enum ca_model_function function, bool end)
{
	if (model->observer)
		model->observer(model->observer_arg, function, end);
}

static uint64_t
pages(const struct ca_model *model, uint64_t bytes)
{
	return (bytes + model->config.granule - 1) / model->config.granule * model->config.granule;
}

int
ca_model_begin(struct ca_model *model, enum ca_model_function function)
{
	model->sums.calls[function]++;
	if (!model->fail_in || function != model->fail_function)
		return 0;
	if (model->fail_in > 1) {
		model->fail_in--;
		return 0;
	}
	if (!model->fail_for_ever)
		model->fail_in = 0;
	model->failed = true;
	return model->fail_code;
}

static struct range *
range_find(struct ca_tree *tree, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_least(tree, address, 0);

	return node && node->key == address ? CA_CONTAINER_OF(node, struct range, node) : NULL;
}

int
ca_model_begin_in(struct ca_model *model, enum ca_model_function function, void *context)
{
	int r = ca_model_begin(model, function);

	return !r && range_find(&model->dead, (uint64_t)(uintptr_t)context) ? INVALID_CONTEXT : r;
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

static int
segment_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	struct ca_model *model = self;
	struct range *range = NULL;
	int r;

	ca_model_call_hook(model, CA_MODEL_TAKE, false);
	pthread_mutex_lock(&model->lock);
	r = ca_model_begin_in(model, CA_MODEL_TAKE, context);
	if (!r && model->sums.used_bytes + pages(model, size) > model->config.capacity)
		r = CA_DRIVER_OUT_OF_MEMORY;
	if (!r && !(range = range_get(model, size)))
		r = CA_DRIVER_OUT_OF_MEMORY;
	if (range) {
		range->context = context;
		ca_tree_insert(&model->held, &range->node, range->address, 0);
		model->sums.held_bytes += size;
		model->sums.used_bytes += pages(model, size);
		model->sums.segments++;
		if (model->sums.used_bytes > model->sums.peak_bytes)
			model->sums.peak_bytes = model->sums.used_bytes;
		*ret_address = range->address;
	}
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, CA_MODEL_TAKE, true);
	return r;
}

/* Nothing of it is on the device: nobody touches it. */
static int
managed_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	struct ca_model *model = self;
	struct range *range = NULL;
	int r;

	ca_model_call_hook(model, CA_MODEL_MANAGED, false);
	pthread_mutex_lock(&model->lock);
	r = ca_model_begin_in(model, CA_MODEL_MANAGED, context);
	if (!r && !(range = range_get(model, size)))
		r = CA_DRIVER_OUT_OF_MEMORY;
	if (range) {
		range->context = context;
		range->managed = true;
		ca_tree_insert(&model->held, &range->node, range->address, 0);
		model->sums.held_bytes += size;
		model->sums.segments++;
		*ret_address = range->address;
	}
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, CA_MODEL_MANAGED, true);
	return r;
}

static void
range_free(struct ca_model *model, struct range *range)
{
	ca_tree_remove(&model->held, &range->node);
	model->sums.held_bytes -= range->bytes;
	if (!range->managed)
		model->sums.used_bytes -= pages(model, range->bytes);
	range->managed = false;
	model->sums.segments--;
	if (range->placed)
		ca_objects_put(&model->ranges, range);
	else
		ca_tree_insert(&model->freed, &range->node, range->bytes, range->address);
}

static int
segment_return(void *self, void *context, uint64_t address)
{
	struct ca_model *model = self;
	struct range *range;
	int r;

	ca_model_call_hook(model, CA_MODEL_RETURN, false);
	pthread_mutex_lock(&model->lock);
	r = ca_model_begin_in(model, CA_MODEL_RETURN, context);
	if (!r && model->capturing && !model->relaxed)
		r = -EBUSY;
	range = range_find(&model->held, address);
	if (!r && (!range || range->context != context)) {
		model->sums.misuses++;
		r = INVALID_VALUE;
	}
	if (!r && !model->config.frees_at_once)
		ca_model_finish_all(model);
	if (!r)
		range_free(model, range);
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, CA_MODEL_RETURN, true);
	return r;
}

static int
mark_record(void *self, void *context, ca_mark *ret_mark)
{
	struct ca_model *model = self;
	struct mark *mark = NULL;
	int r;

	ca_model_call_hook(model, CA_MODEL_RECORD, false);
	pthread_mutex_lock(&model->lock);
	r = ca_model_begin_in(model, CA_MODEL_RECORD, context);
	if (!r && model->config.no_marks)
		r = -ENOTSUP;
	if (!r && model->capturing)
		r = -EBUSY;
	if (!r && !(mark = ca_model_mark_new(model, ret_mark)))
		r = -ENOMEM;
	if (mark)
		ca_model_mark_everything(model, mark);
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, CA_MODEL_RECORD, true);
	return r;
}

struct mark *
ca_model_mark_new(struct ca_model *model, ca_mark *ret_mark)
{
	struct mark *mark = ca_objects_get(&model->marks);

	if (!mark)
		return NULL;
	ca_tree_insert(&model->recorded, &mark->node, ++model->next_mark, 0);
	model->sums.marks++;
	*ret_mark = model->next_mark;
	return mark;
}

struct mark *
ca_model_mark_find(struct ca_model *model, ca_mark id)
{
	struct ca_tree_node *node = ca_tree_at_least(&model->recorded, id, 0);

	if (node && node->key == id)
		return CA_CONTAINER_OF(node, struct mark, node);
	model->sums.misuses++;
	return NULL;
}

static int
mark_answer(struct ca_model *model, ca_mark id, enum ca_model_function function)
{
	struct mark *mark;
	int r;

	ca_model_call_hook(model, function, false);
	pthread_mutex_lock(&model->lock);
	mark = ca_model_mark_find(model, id);
	r = ca_model_begin(model, function);
	if (!r && model->capturing && mark && !mark->stream)
		r = -EBUSY;
	if (!r && mark && function == CA_MODEL_WAIT) {
		ca_model_await(model, mark->end_ns);
		ca_model_mark_finish(model, mark);
	}
	if (!r && mark && !ca_model_mark_is_done(model, mark))
		r = -EAGAIN;
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, function, true);
	return r;
}

static int
mark_query(void *self, ca_mark mark)
{
	return mark_answer(self, mark, CA_MODEL_QUERY);
}

static int
mark_wait(void *self, ca_mark mark)
{
	return mark_answer(self, mark, CA_MODEL_WAIT);
}

static void
mark_drop(void *self, ca_mark id)
{
	struct ca_model *model = self;
	struct mark *mark;

	ca_model_call_hook(model, CA_MODEL_DROP, false);
	pthread_mutex_lock(&model->lock);
	model->sums.calls[CA_MODEL_DROP]++;
	mark = ca_model_mark_find(model, id);
	if (mark) {
		ca_tree_remove(&model->recorded, &mark->node);
		ca_objects_put(&model->marks, mark);
		model->sums.marks--;
	}
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, CA_MODEL_DROP, true);
}

static int
synchronize_as(struct ca_model *model, enum ca_model_function function, void *context)
{
	int r;

	ca_model_call_hook(model, function, false);
	pthread_mutex_lock(&model->lock);
	r = ca_model_begin_in(model, function, context);
	if (!r && model->capturing)
		r = -EBUSY;
	if (!r)
		ca_model_finish_all(model);
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, function, true);
	return r;
}

static int
synchronize(void *self, void *context)
{
	return synchronize_as(self, CA_MODEL_SYNCHRONIZE, context);
}

/* Pretend streams are of no context in particular: it waits for more than it must. */
static int
context_synchronize(void *self, void *context)
{
	return synchronize_as(self, CA_MODEL_CONTEXT_SYNCHRONIZE, context);
}

static bool
capturing(void *self)
{
	struct ca_model *model = self;

	return model->capturing;
}

static uint64_t
clock_ns(void *self)
{
	struct ca_model *model = self;
	uint64_t now;

	pthread_mutex_lock(&model->lock);
	now = ++model->now_ns;
	pthread_mutex_unlock(&model->lock);
	return now;
}

void
ca_model_place(struct ca_model *model, uint64_t bytes, uint64_t address)
{
	pthread_mutex_lock(&model->lock);
	model->place_bytes = bytes;
	model->place_address = address;
	pthread_mutex_unlock(&model->lock);
}

void
ca_model_set_clock(struct ca_model *model, uint64_t now_ns)
{
	pthread_mutex_lock(&model->lock);
	ca_model_await(model, now_ns);
	pthread_mutex_unlock(&model->lock);
}

static void
pause_host(void *self, uint64_t ns)
{
	struct ca_model *model = self;
	uint64_t until;

	pthread_mutex_lock(&model->lock);
	until = model->config.wakes ? ca_model_next_end(model) : UINT64_MAX;
	ca_model_await(model, until != UINT64_MAX ? until : model->now_ns + ns);
	model->paused_ns += ns;
	if (model->paused_ns >= model->config.work_ns)
		ca_model_finish_all(model);
	pthread_mutex_unlock(&model->lock);
}

static int
memory_info(void *self, void *context, uint64_t *ret_free, uint64_t *ret_total)
{
	struct ca_model *model = self;
	int r;

	ca_model_call_hook(model, CA_MODEL_INFO, false);
	pthread_mutex_lock(&model->lock);
	r = ca_model_begin_in(model, CA_MODEL_INFO, context);
	if (!r) {
		*ret_free = model->config.capacity - model->sums.used_bytes;
		*ret_total = model->config.capacity;
	}
	pthread_mutex_unlock(&model->lock);
	ca_model_call_hook(model, CA_MODEL_INFO, true);
	return r;
}

int
ca_model_create(const struct ca_model_config *config, struct ca_model **ret_model)
{
	struct ca_arena arena = { 0 };
	struct ca_model *model = ca_arena_alloc(&arena, sizeof(*model));
	uint64_t first;

	if (!model)
		return -ENOMEM;
	model->arena = arena;
	model->config = *config;
	first = config->places ? PLACES_END : FIRST_ADDRESS;
	model->next_address = first / config->alignment * config->alignment + config->alignment;
	pthread_mutex_init(&model->lock, NULL);
	ca_objects_init(&model->ranges, &model->arena, sizeof(struct range));
	ca_objects_init(&model->marks, &model->arena, sizeof(struct mark));
	ca_objects_init(&model->edges, &model->arena, sizeof(struct edge));
	ca_objects_init(&model->pieces, &model->arena, sizeof(struct piece));
	*ret_model = model;
	return 0;
}

void
ca_model_destroy(struct ca_model *model)
{
	struct ca_arena arena;

	if (!model)
		return;
	pthread_mutex_destroy(&model->lock);
	arena = model->arena; /* the model lies in it */
	ca_arena_destroy(&arena);
}

void
ca_model_driver(struct ca_model *model, struct ca_driver *ret_driver)
{
	*ret_driver = (struct ca_driver){
		.self = model,
		.segment_take = segment_take,
		.managed_take = managed_take,
		.segment_return = segment_return,
		.mark_record = mark_record,
		.mark_query = mark_query,
		.mark_query_own = mark_query, /* pretend streams are of no context in particular */
		.mark_wait = mark_wait,
		.stream_mark = ca_model_stream_mark,
		.stream_wait = ca_model_stream_wait,
		.stream_synchronize = ca_model_stream_synchronize,
		.mark_drop = mark_drop,
		.synchronize = synchronize,
		.memory_info = memory_info,
		.context_synchronize = context_synchronize,
		.capturing = capturing,
		.pause = model->config.work_ns ? pause_host : NULL,
		.clock_ns = clock_ns,
	};
}

uint64_t
ca_model_submit(struct ca_model *model)
{
	uint64_t work;

	pthread_mutex_lock(&model->lock);
	work = ++model->submitted;
	model->paused_ns = 0;
	if (model->config.finish_at_once)
		model->finished = work;
	pthread_mutex_unlock(&model->lock);
	return work;
}

void
ca_model_finish(struct ca_model *model, uint64_t work)
{
	pthread_mutex_lock(&model->lock);
	if (work > model->submitted)
		work = model->submitted;
	if (work > model->finished)
		model->finished = work;
	pthread_mutex_unlock(&model->lock);
}

uint64_t
ca_model_finished(struct ca_model *model)
{
	uint64_t work;

	pthread_mutex_lock(&model->lock);
	work = model->finished;
	pthread_mutex_unlock(&model->lock);
	return work;
}

uint64_t
ca_model_submitted(struct ca_model *model)
{
	uint64_t work;

	pthread_mutex_lock(&model->lock);
	work = model->submitted;
	pthread_mutex_unlock(&model->lock);
	return work;
}

void
ca_model_set_capturing(struct ca_model *model, bool value)
{
	pthread_mutex_lock(&model->lock);
	model->capturing = value;
	model->relaxed = false;
	pthread_mutex_unlock(&model->lock);
}

void
ca_model_set_capturing_relaxed(struct ca_model *model)
{
	pthread_mutex_lock(&model->lock);
	model->capturing = true;
	model->relaxed = true;
	pthread_mutex_unlock(&model->lock);
}

void
ca_model_set_observer(struct ca_model *model, ca_model_observer *observer, void *arg)
{
	model->observer = observer;
	model->observer_arg = arg;
}

void
ca_model_fail(struct ca_model *model, enum ca_model_function function, unsigned nth, bool for_ever,
	      int code)
{
	pthread_mutex_lock(&model->lock);
	model->fail_function = function;
	model->fail_in = nth;
	model->fail_for_ever = for_ever;
	model->fail_code = code;
	model->failed = false;
	pthread_mutex_unlock(&model->lock);
}

bool
ca_model_failed(struct ca_model *model)
{
	bool failed;

	pthread_mutex_lock(&model->lock);
	failed = model->failed;
	pthread_mutex_unlock(&model->lock);
	return failed;
}

void
ca_model_context_destroy(struct ca_model *model, void *context)
{
	struct ca_tree_node *node, *next;
	struct range *grave;

	pthread_mutex_lock(&model->lock);
	grave = ca_objects_get(&model->ranges);
	if (grave)
		ca_tree_insert(&model->dead, &grave->node, (uint64_t)(uintptr_t)context, 0);
	for (node = ca_tree_first(&model->held); node; node = next) {
		struct range *range = CA_CONTAINER_OF(node, struct range, node);

		next = ca_tree_next(node);
		if (range->context == context)
			range_free(model, range);
	}
	pthread_mutex_unlock(&model->lock);
}

int
ca_model_steal(struct ca_model *model, uint64_t address)
{
	struct range *range;

	pthread_mutex_lock(&model->lock);
	range = range_find(&model->held, address);
	if (range)
		range_free(model, range);
	pthread_mutex_unlock(&model->lock);
	return range ? 0 : -ENOENT;
}

void
ca_model_sums(struct ca_model *model, struct ca_model_sums *ret_sums)
{
	pthread_mutex_lock(&model->lock);
	*ret_sums = model->sums;
	pthread_mutex_unlock(&model->lock);
}
