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

static void
notify(const struct ca_model_call *call, bool end)
{
	if (call->model->observer)
		call->model->observer(call->model->observer_arg, call->function, end);
}

struct ca_model_call
ca_model_call_begin(struct ca_model *model, enum ca_model_function function)
{
	struct ca_model_call call = { model, function };

	notify(&call, false);
	pthread_mutex_lock(&model->lock);
	return call;
}

void
ca_model_call_end(const struct ca_model_call *call)
{
	pthread_mutex_unlock(&call->model->lock);
	notify(call, true);
}

static uint64_t
pages(const struct ca_model *model, uint64_t bytes)
{
	return (bytes + model->config.granularity - 1) / model->config.granularity *
	       model->config.granularity;
}

/* Counts the call and applies the plan of failures. */
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

struct range *
ca_model_range_find(struct ca_tree *tree, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_find(tree, address, 0);

	return node ? CA_CONTAINER_OF(node, struct range, node) : NULL;
}

int
ca_model_begin_in(struct ca_model *model, enum ca_model_function function, void *context)
{
	int r = ca_model_begin(model, function);

	return !r && ca_model_range_find(&model->dead, (uint64_t)(uintptr_t)context)
		       ? INVALID_CONTEXT
		       : r;
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

static int
segment_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	return take_as(self, CA_MODEL_TAKE, context, size, ret_address);
}

static int
managed_take(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	return take_as(self, CA_MODEL_MANAGED, context, size, ret_address);
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

static int
segment_return(void *self, void *context, uint64_t address)
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

static int
mark_record(void *self, void *context, ca_mark *ret_mark)
{
	struct ca_model *model = self;
	struct mark *mark;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RECORD);
	r = ca_model_begin_in(model, CA_MODEL_RECORD, context);
	if (r)
		return r;
	if (model->config.no_marks)
		return -ENOTSUP;
	if (model->capturing)
		return -EBUSY;
	mark = ca_model_mark_new(model, ret_mark);
	if (!mark)
		return -ENOMEM;
	ca_model_mark_everything(model, mark);
	return 0;
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
	struct ca_tree_node *node = ca_tree_find(&model->recorded, id, 0);

	if (node)
		return CA_CONTAINER_OF(node, struct mark, node);
	model->sums.errors++;
	return NULL;
}

static int
mark_answer(struct ca_model *model, ca_mark id, enum ca_model_function function)
{
	struct mark *mark;
	int r;

	CA_MODEL_CALL(model, function);
	mark = ca_model_mark_find(model, id);
	r = ca_model_begin(model, function);
	if (r || !mark)
		return r;
	if (model->capturing && !mark->stream)
		return -EBUSY;
	if (function == CA_MODEL_WAIT) {
		ca_model_await(model, mark->end_ns);
		ca_model_mark_finish(model, mark);
	}
	return ca_model_mark_is_done(model, mark) ? 0 : -EAGAIN;
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

	CA_MODEL_CALL(model, CA_MODEL_DROP);
	model->sums.calls[CA_MODEL_DROP]++;
	mark = ca_model_mark_find(model, id);
	if (!mark)
		return;
	ca_tree_remove(&model->recorded, &mark->node);
	ca_objects_put(&model->marks, mark);
	model->sums.marks--;
}

static int
synchronize_as(struct ca_model *model, enum ca_model_function function, void *context)
{
	int r;

	CA_MODEL_CALL(model, function);
	r = ca_model_begin_in(model, function, context);
	if (!r && model->capturing)
		r = -EBUSY;
	if (!r)
		ca_model_finish_all(model);
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

static bool
capture_allows(void *self)
{
	struct ca_model *model = self;

	CA_MODEL_LOCKED(model);
	return !model->capturing || model->relaxed;
}

static uint64_t
clock_ns(void *self)
{
	struct ca_model *model = self;

	CA_MODEL_LOCKED(model);
	return ++model->now_ns;
}

void
ca_model_place(struct ca_model *model, uint64_t bytes, uint64_t address)
{
	CA_MODEL_LOCKED(model);
	model->place_bytes = bytes;
	model->place_address = address;
}

void
ca_model_set_clock(struct ca_model *model, uint64_t now_ns)
{
	CA_MODEL_LOCKED(model);
	ca_model_await(model, now_ns);
}

/* In that time work may end, as while the host pauses. */
static void
stand_by(struct ca_model *model, uint64_t ns)
{
	model->paused_ns += ns;
	if (model->config.work_ns && model->paused_ns >= model->config.work_ns)
		ca_model_finish_all(model);
}

void
ca_model_pass(struct ca_model *model, uint64_t ns)
{
	if (!ns)
		return;
	ca_model_await(model, model->now_ns + ns);
	stand_by(model, ns);
}

static void
pause_host(void *self, uint64_t ns)
{
	struct ca_model *model = self;
	uint64_t until;

	CA_MODEL_LOCKED(model);
	until = model->config.wakes ? ca_model_next_end(model) : UINT64_MAX;
	ca_model_await(model, until != UINT64_MAX ? until : model->now_ns + ns);
	stand_by(model, ns);
}

static int
memory_info(void *self, void *context, uint64_t *ret_free, uint64_t *ret_total)
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
	ca_objects_init(&model->memories, &model->arena, sizeof(struct memory));
	ca_objects_init(&model->marks, &model->arena, sizeof(struct mark));
	ca_objects_init(&model->edges, &model->arena, sizeof(struct edge));
	ca_objects_init(&model->works, &model->arena, sizeof(struct work));
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
		.range_reserve = ca_model_range_reserve,
		.range_map = ca_model_range_map,
		.range_alias = model->config.no_aliases ? NULL : ca_model_range_alias,
		.range_unmap = ca_model_range_unmap,
		.range_release = ca_model_range_release,
		.mark_record = mark_record,
		.mark_query = mark_query,
		.mark_query_own = mark_query, /* pretend streams are of no context in particular */
		.mark_wait = mark_wait,
		.stream_mark = ca_model_stream_mark,
		.stream_wait = ca_model_stream_wait,
		.stream_query = ca_model_stream_query,
		.stream_synchronize = ca_model_stream_synchronize,
		.mark_drop = mark_drop,
		.synchronize = synchronize,
		.memory_info = memory_info,
		.context_synchronize = context_synchronize,
		.pools_trim = model->config.pools_trim,
		.capturing = capturing,
		.capture_allows = capture_allows,
		.pause = model->config.work_ns ? pause_host : NULL,
		.clock_ns = clock_ns,
	};
}

uint64_t
ca_model_submit(struct ca_model *model)
{
	CA_MODEL_LOCKED(model);
	model->submitted++;
	model->paused_ns = 0;
	if (model->config.finish_at_once)
		model->finished = model->submitted;
	return model->submitted;
}

void
ca_model_finish(struct ca_model *model, uint64_t work)
{
	CA_MODEL_LOCKED(model);
	if (work > model->submitted)
		work = model->submitted;
	if (work > model->finished)
		model->finished = work;
}

uint64_t
ca_model_finished(struct ca_model *model)
{
	CA_MODEL_LOCKED(model);
	return model->finished;
}

uint64_t
ca_model_submitted(struct ca_model *model)
{
	CA_MODEL_LOCKED(model);
	return model->submitted;
}

void
ca_model_set_capturing(struct ca_model *model, bool value)
{
	CA_MODEL_LOCKED(model);
	model->capturing = value;
	model->relaxed = false;
}

void
ca_model_set_capturing_relaxed(struct ca_model *model)
{
	CA_MODEL_LOCKED(model);
	model->capturing = true;
	model->relaxed = true;
}

void
ca_model_set_observer(struct ca_model *model, ca_model_observer *observer, void *arg)
{
	model->observer = observer;
	model->observer_arg = arg;
}

void
ca_model_set_segment_observer(struct ca_model *model, ca_model_segment_observer *observer,
			      void *arg)
{
	model->segment_observer = observer;
	model->segment_observer_arg = arg;
}

void
ca_model_fail(struct ca_model *model, enum ca_model_function function, unsigned nth, bool for_ever,
	      int code)
{
	CA_MODEL_LOCKED(model);
	model->fail_function = function;
	model->fail_in = nth;
	model->fail_for_ever = for_ever;
	model->fail_code = code;
	model->failed = false;
}

bool
ca_model_failed(struct ca_model *model)
{
	CA_MODEL_LOCKED(model);
	return model->failed;
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

void
ca_model_sums(struct ca_model *model, struct ca_model_sums *ret_sums)
{
	CA_MODEL_LOCKED(model);
	*ret_sums = model->sums;
}
