/* SPDX-License-Identifier: MIT */
/* The model: its calls and the plan of failures, the clock, work that is of no stream, captures. */
#include "allocator/fake/internal.h"

#include <errno.h>
#include <stddef.h>

#define FIRST_ADDRESS ((uint64_t)0x7f0000000000)

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

int
ca_model_begin_in(struct ca_model *model, enum ca_model_function function, void *context)
{
	int r = ca_model_begin(model, function);

	return !r && ca_model_range_find(&model->dead, (uint64_t)(uintptr_t)context)
		       ? INVALID_CONTEXT
		       : r;
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

void *
ca_model_arg(const struct ca_model *model)
{
	return model->config.arg;
}

void
ca_model_driver(struct ca_model *model, struct ca_driver *ret_driver)
{
	*ret_driver = (struct ca_driver){
		.self = model,
		.segment_take = ca_model_segment_take,
		.managed_take = ca_model_managed_take,
		.segment_return = ca_model_segment_return,
		.range_reserve = ca_model_range_reserve,
		.range_map = ca_model_range_map,
		.range_alias = model->config.no_aliases ? NULL : ca_model_range_alias,
		.range_unmap = ca_model_range_unmap,
		.range_release = ca_model_range_release,
		.mark_record = ca_model_mark_record,
		.mark_query = ca_model_mark_query,
		.mark_query_own =
			ca_model_mark_query, /* pretend streams are of no context in particular */
		.mark_wait = ca_model_mark_wait,
		.stream_mark = ca_model_stream_mark,
		.stream_wait = ca_model_stream_wait,
		.stream_query = ca_model_stream_query,
		.stream_synchronize = ca_model_stream_synchronize,
		.mark_drop = ca_model_mark_drop,
		.synchronize = ca_model_synchronize,
		.memory_info = ca_model_memory_info,
		.context_synchronize = ca_model_context_synchronize,
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
ca_model_sums(struct ca_model *model, struct ca_model_sums *ret_sums)
{
	CA_MODEL_LOCKED(model);
	*ret_sums = model->sums;
}
