/* SPDX-License-Identifier: MIT */
#include "allocator/replay/play.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/fake/cost.h"
#include "allocator/replay/play_inside.h"

int
ca_replay_failure(struct ca_replayer *p, const struct ca_replay_event *event, const char *what,
		  int code)
{
	if (p->input->lines)
		ca_replay_fail_line(p->error, event->where, "%s failed with %d", what, code);
	else
		ca_replay_fail_byte(p->error, event->where, "%s failed with %d", what, code);
	return code == -ENOMEM ? code : -EINVAL;
}

/* ---- time */

static void
driver_call(void *arg, enum ca_model_function function, bool end)
{
	struct ca_replay_timer *timer = arg;

	if (end)
		timer->driver_ticks += ca_replay_ticks() - timer->driver_start;
	else
		timer->driver_start = ca_replay_ticks();
}

static inline uint64_t
op_begin(struct ca_replayer *p)
{
	if (!p->timer)
		return 0;
	p->timer->driver_ticks = 0;
	return ca_replay_ticks();
}

/* Ticks since op_begin returned `began`. */
static inline uint64_t
op_end(struct ca_replayer *p, uint64_t began)
{
	return p->timer ? ca_replay_ticks() - began : 0;
}

static inline void
op_note(struct ca_replayer *p, uint64_t took, bool miss)
{
	struct ca_replay_timer *timer = p->timer;

	if (!timer)
		return;
	took -= took < timer->overhead ? took : timer->overhead;
	took -= took < timer->driver_ticks ? took : timer->driver_ticks;
	ca_replay_buckets_add(miss ? &timer->miss : &timer->op, took);
}

static void
advance(struct ca_replayer *p, uint64_t time_ns)
{
	if (time_ns == CA_REPLAY_NO_TIME)
		return;
	if (p->first_ns == CA_REPLAY_NO_TIME)
		p->first_ns = time_ns;
	ca_model_set_clock(p->model, time_ns - p->first_ns);
	if (p->streams.rate_kind == CA_REPLAY_KEEPS_UP)
		ca_replay_streams_advance(&p->streams, time_ns, CA_REPLAY_WORK_NS);
}

/* ---- events */

/* The driver calls that an operation cost: segments asked for and given back. */
struct calls {
	uint64_t takes, returns;
};

static struct calls
driver_calls(struct ca_replayer *p)
{
	struct ca_model_sums sums;

	ca_model_sums(p->model, &sums);
	return (struct calls){ sums.calls[CA_MODEL_TAKE] + sums.calls[CA_MODEL_RANGE_MAP] +
				       sums.calls[CA_MODEL_RANGE_ALIAS],
			       sums.calls[CA_MODEL_RETURN] + sums.calls[CA_MODEL_RANGE_UNMAP] +
				       p->result->road[CA_REPLAY_ASYNC].driver_frees };
}

static void
note_oom(struct ca_replayer *p, const struct ca_replay_event *event, size_t number)
{
	struct ca_replay_result *result = p->result;

	result->out_of_memory = true;
	result->oom = (struct ca_replay_oom){ .event = number + 1,
					      .where = event->where,
					      .request_bytes = event->bytes,
					      .live_bytes = result->live_bytes };
}

/* The trace tells that it has nothing to do with any stream. */
static bool
is_without(const struct ca_replayer *p, const struct ca_replay_event *event)
{
	return event->no_stream &&
	       (p->streams.rate_kind == CA_REPLAY_TOLD || event->road == CA_REPLAY_ASYNC);
}

static int
stream_of(struct ca_replayer *p, const struct ca_replay_event *event, unsigned *ret_at)
{
	return is_without(p, event) ? 0 : ca_replay_streams_get(&p->streams, event->stream, ret_at);
}

static void
note_alloc(struct ca_replay_result *result, const struct ca_replay_event *event, bool miss)
{
	struct ca_replay_road_result *road = &result->road[event->road];

	*(miss ? &result->misses : &result->hits) += 1;
	*(miss ? &road->misses : &road->hits) += 1;
	result->live_bytes += event->bytes;
	if (result->live_bytes > result->peak_live_bytes)
		result->peak_live_bytes = result->live_bytes;
	road->live_bytes += event->bytes;
	if (road->live_bytes > road->peak_live_bytes)
		road->peak_live_bytes = road->live_bytes;
}

static int
run_alloc(struct ca_replayer *p, const struct ca_replay_event *event, size_t number,
	  uint64_t *ret_address)
{
	struct ca_replay_result *result = p->result;
	uint64_t began, took;
	struct calls before, after;
	unsigned at = 0;
	int r = stream_of(p, event, &at);

	if (r)
		return ca_replay_failure(p, event, "opening a stream", r);
	before = driver_calls(p);
	ca_order_last_stream = is_without(p, event) ? NULL : p->streams.stream[at].stream;
	began = op_begin(p);
	if (event->road == CA_REPLAY_ASYNC)
		r = ca_replay_async_alloc(p, event, at, ret_address);
	else
		r = ca_alloc(p->space, event->bytes, ret_address);
	took = op_end(p, began);
	after = driver_calls(p);
	op_note(p, took, after.takes != before.takes || after.returns != before.returns);
	if (r == CA_DRIVER_OUT_OF_MEMORY || r == -E2BIG) {
		note_oom(p, event, number);
		return 0;
	}
	if (r)
		return ca_replay_failure(p, event, "the allocation", r);
	if (p->setting->placed)
		p->setting->placed(p->setting->placed_arg, number, *ret_address);
	note_alloc(result, event, after.takes != before.takes);
	if (p->streams.rate_kind != CA_REPLAY_TOLD)
		r = ca_replay_streams_submit(&p->streams, at, event->time_ns, p->setting->lag_ns);
	return r ? ca_replay_failure(p, event, "a submission", r) : 0;
}

static int
run_free(struct ca_replayer *p, const struct ca_replay_event *event, size_t number)
{
	uint64_t began, address = p->address[p->input->blocks[number]];
	bool async = event->road == CA_REPLAY_ASYNC;
	struct ca_stream *stream;
	unsigned at = 0;
	int r = stream_of(p, event, &at);

	if (!r && !is_without(p, event) && !(async && p->streams.rate_kind == CA_REPLAY_TOLD))
		r = ca_replay_streams_submit(&p->streams, at, event->time_ns, 0);
	if (r)
		return ca_replay_failure(p, event, "a submission", r);
	stream = p->streams.stream[at].stream;
	if (p->streams.count > 1 && !async)
		ca_order_set_only_user(p->space, stream);
	began = op_begin(p);
	r = async ? ca_replay_async_free(p, address, is_without(p, event) ? NULL : stream)
		  : ca_free(p->heap, address);
	op_note(p, op_end(p, began), false);
	p->result->live_bytes -= event->bytes;
	p->result->road[event->road].live_bytes -= event->bytes;
	p->result->road[event->road].frees++;
	if (async && stream && !is_without(p, event)) /* what ca_replay_partly looks for */
		p->address[p->input->blocks[number]] = ca_order_bound(stream);
	return r ? ca_replay_failure(p, event, "the free", r) : 0;
}

static void
run_phase(struct ca_replayer *p)
{
	ca_replay_streams_finish(&p->streams);
	ca_replay_async_tidy(p);
	if (!p->result->phases++) {
		struct calls calls = driver_calls(p);

		p->result->later_driver_allocs = calls.takes;
		p->result->later_driver_frees = calls.returns;
	}
}

static int
run_submit(struct ca_replayer *p, const struct ca_replay_event *event)
{
	unsigned at = 0;
	int r = ca_replay_streams_get(&p->streams, event->stream, &at);

	if (!r)
		r = ca_replay_streams_submit(&p->streams, at, event->time_ns, 0);
	return r ? ca_replay_failure(p, event, "a submission", r) : 0;
}

static void
run_place(struct ca_replayer *p, const struct ca_replay_event *event)
{
	if (p->streams.rate_kind == CA_REPLAY_TOLD)
		ca_model_place(p->model, event->bytes, event->id);
}

static int
run_seen(struct ca_replayer *p, const struct ca_replay_event *event)
{
	uint64_t end_ns = event->id > p->first_ns ? event->id - p->first_ns : 0;
	unsigned at = 0;
	int r = ca_replay_streams_get(&p->streams, event->stream, &at);

	if (!r)
		r = ca_replay_streams_end(&p->streams, at, end_ns);
	return r ? ca_replay_failure(p, event, "the end of work", r) : 0;
}

static int
run_event(struct ca_replayer *p, const struct ca_replay_event *event, size_t number)
{
	uint64_t *address = &p->address[p->input->blocks[number]];
	int r;

	if (!p->started && event->kind != CA_REPLAY_LIVE) {
		if (p->streams.rate_kind != CA_REPLAY_LAGS)
			ca_replay_streams_finish(&p->streams);
		p->started = true;
	}
	advance(p, event->time_ns);
	switch (event->kind) {
	case CA_REPLAY_LIVE:
		p->result->at_start++;
		return run_alloc(p, event, number, address);
	case CA_REPLAY_ALLOC:
		p->result->allocations++;
		return run_alloc(p, event, number, address);
	case CA_REPLAY_FREE:
		p->result->frees++;
		return run_free(p, event, number);
	case CA_REPLAY_PHASE:
		run_phase(p);
		return 0;
	case CA_REPLAY_PLACE:
		run_place(p, event);
		return 0;
	case CA_REPLAY_POOL:
		r = ca_replay_async_pool(p, event);
		return r ? ca_replay_failure(p, event, "a pool", r) : 0;
	case CA_REPLAY_TRIM:
		r = ca_replay_async_shrink(p, event);
		return r ? ca_replay_failure(p, event, "a trim", r) : 0;
	case CA_REPLAY_RECORD:
	case CA_REPLAY_WAIT:
		return ca_replay_order(p, event);
	case CA_REPLAY_PARTLY:
		return p->streams.rate_kind == CA_REPLAY_TOLD ? ca_replay_partly(p, event) : 0;
	case CA_REPLAY_SEEN:
		return p->streams.rate_kind == CA_REPLAY_TOLD ? run_seen(p, event) : 0;
	default:
		return run_submit(p, event);
	}
}

static void
note_end(struct ca_replayer *p, const struct ca_replay_event *event, size_t number)
{
	const struct ca_replay_observer *observer = p->setting->observer;
	bool begins = event->kind == CA_REPLAY_LIVE || event->kind == CA_REPLAY_ALLOC;
	struct ca_block_info info = { 0 };
	struct ca_told_info told = { 0 };
	struct ca_stats stats;

	if (begins && !p->result->out_of_memory && event->road == CA_REPLAY_ASYNC) {
		(void)ca_told_lookup(p->heap, p->address[p->input->blocks[number]], &told);
		info.address = told.address;
		info.block_bytes = told.bytes;
	} else if (begins && !p->result->out_of_memory) {
		(void)ca_lookup(p->heap, p->address[p->input->blocks[number]], &info);
	}
	ca_heap_stats(p->heap, p->result->device, &stats);
	observer->end(observer->arg, number, info.address, info.block_bytes,
		      stats.active_bytes.current - stats.allocated_bytes.current);
}

static int
run_observed(struct ca_replayer *p, const struct ca_replay_event *event, size_t number)
{
	const struct ca_replay_observer *observer = p->setting->observer;
	int r;

	if (observer)
		observer->begin(observer->arg, number);
	r = run_event(p, event, number);
	if (observer && !r)
		note_end(p, event, number);
	return r;
}

/* The request that was refused, behind the events before it. It has no block in the input: its
 * address goes behind those of all blocks. */
static int
run_rejected(struct ca_replayer *p)
{
	const struct ca_replay_rejected *rejected = &p->input->rejected[p->result->device];

	advance(p, rejected->event.time_ns);
	p->result->allocations++;
	return run_alloc(p, &rejected->event, rejected->before, &p->address[p->input->n_blocks]);
}

/* ---- begin and end */

static enum ca_replay_rate
rate(const struct ca_replayer *p)
{
	if (p->setting->lag_ns == CA_REPLAY_AS_TOLD)
		return p->input->told ? CA_REPLAY_TOLD : CA_REPLAY_KEEPS_UP;
	return p->setting->lag_ns ? CA_REPLAY_LAGS : CA_REPLAY_KEEPS_UP;
}

static int
make_model(struct ca_replayer *p)
{
	struct ca_model_config pretend = { .capacity = p->setting->memory_bytes,
					   .granularity = CA_REPLAY_GRANULE,
					   .alignment = CA_REPLAY_GRANULE,
					   .map_ns = CA_RANGE_MAP_US * 1000,
					   .unmap_ns = CA_RANGE_UNMAP_US * 1000,
					   .work_ns = p->streams.rate_kind == CA_REPLAY_KEEPS_UP
							      ? CA_REPLAY_WORK_NS
							      : UINT64_MAX,
					   .places = p->streams.rate_kind == CA_REPLAY_TOLD,
					   .wakes = p->streams.rate_kind == CA_REPLAY_TOLD };

	if (p->input->has_pools) {
		pretend.pools_trim = ca_replay_async_trim;
		pretend.arg = p;
	}
	return ca_model_create(&pretend, &p->model);
}

/* The events tell when they were. */
static bool
has_times(const struct ca_replayer *p)
{
	const struct ca_replay_input *input = p->input;

	return input->count && input->events[input->count - 1].time_ns != CA_REPLAY_NO_TIME;
}

static int
start(struct ca_replayer *p)
{
	struct ca_driver driver;
	int r = make_model(p);

	if (r)
		return r;
	ca_model_driver(p->model, &driver);
	driver.no_time = !has_times(p);
	p->driver = driver;
	r = ca_heap_create(p->setting->config, &driver, &p->heap);
	if (!r)
		r = ca_space_create(p->heap, (void *)1, p->result->device, &p->space);
	p->address = malloc(((size_t)p->input->n_blocks + 1) * sizeof(*p->address));
	if (!p->address)
		r = -ENOMEM;
	if (!r && p->setting->time)
		r = (p->timer = calloc(1, sizeof(*p->timer))) ? 0 : -ENOMEM;
	if (r)
		return r;
	if (p->setting->observer)
		ca_model_set_segment_observer(p->model, p->setting->observer->segment,
					      p->setting->observer->arg);
	p->streams.model = p->model;
	p->streams.space = p->space;
	if (p->timer) {
		ca_model_set_observer(p->model, driver_call, p->timer);
		ca_replay_timer_start(p->timer);
	}
	return 0;
}

/* It is not played. */
static void
note_pinned(struct ca_replayer *p)
{
	const struct ca_replay_pinned *pinned = &p->input->pinned[p->result->device];
	struct ca_stats *stats = &p->result->stats;

	stats->pinned_alloc_calls = pinned->allocs;
	stats->pinned_cache_hits = pinned->hits;
	stats->pinned_bytes = pinned->bytes;
	stats->pinned_cached_bytes = pinned->cached;
}

/* The figures, and whether the allocator and the model are still of one mind. */
static int
finish(struct ca_replayer *p)
{
	struct ca_replay_result *result = p->result;
	struct calls calls = driver_calls(p);
	struct ca_model_sums sums;
	uint64_t held_bytes;
	char reason[128] = "";

	if (p->timer)
		ca_replay_timer_read(p->timer, &result->times);
	ca_heap_stats(p->heap, result->device, &result->stats);
	ca_told_device_stats(p->heap, result->device, &result->stats);
	note_pinned(p);
	held_bytes =
		result->stats.reserved_bytes.current + result->stats.async_reserved_bytes.current;
	ca_model_sums(p->model, &sums);
	result->peak_reserved_bytes = sums.peak_bytes;
	result->bytes_from_driver =
		result->stats.reserved_bytes.total + result->stats.async_reserved_bytes.total;
	result->streams = p->streams.different;
	result->road[CA_REPLAY_SYNC].driver_allocs = result->stats.driver_alloc_calls;
	result->road[CA_REPLAY_SYNC].driver_frees = result->stats.driver_free_calls;
	result->later_driver_allocs =
		result->phases ? calls.takes - result->later_driver_allocs : 0;
	result->later_driver_frees =
		result->phases ? calls.returns - result->later_driver_frees : 0;
	result->oom.reserved_bytes = held_bytes;
	if (ca_heap_check(p->heap, reason, sizeof(reason)) ||
	    ca_told_check(p->heap, reason, sizeof(reason)))
		return ca_replay_fail(p->error, "the allocator's records are broken: %s", reason);
	if (sums.errors || sums.held_bytes != held_bytes)
		return ca_replay_fail(p->error, "the allocator misused the pretend driver");
	return 0;
}

static void
stop(struct ca_replayer *p)
{
	ca_replay_streams_clear(&p->streams);
	if (p->heap)
		ca_heap_destroy(p->heap);
	ca_model_destroy(p->model);
	free(p->address);
	free(p->timer);
	ca_replay_async_clear(p);
}

int
ca_replay_run(const struct ca_replay_input *input, unsigned device,
	      const struct ca_replay_setting *setting, struct ca_replay_result *ret_result,
	      struct ca_replay_error *error)
{
	struct ca_replayer p = { .input = input,
				 .setting = setting,
				 .result = ret_result,
				 .error = error,
				 .first_ns = CA_REPLAY_NO_TIME };
	bool to_rejected = setting->to_rejected && input->rejected[device].event.bytes;
	size_t i, end = to_rejected ? input->rejected[device].before : input->count;
	int r;

	*ret_result = (struct ca_replay_result){ .device = device };
	p.streams.rate_kind = rate(&p);
	r = start(&p);
	if (r)
		ca_replay_fail(error, "out of host memory");
	for (i = 0; i < end && !r && !ret_result->out_of_memory; i++)
		if (input->events[i].device == device)
			r = run_observed(&p, &input->events[i], i);
	if (to_rejected && !r && !ret_result->out_of_memory)
		r = run_rejected(&p);
	if (!r)
		r = finish(&p);
	stop(&p);
	return r;
}

/* ---- capacity */

static int
completes(const struct ca_replay_input *input, unsigned device,
	  const struct ca_replay_setting *setting, uint64_t granules, bool *ret_completes,
	  struct ca_replay_error *error)
{
	struct ca_replay_setting with = { .config = setting->config,
					  .to_rejected = setting->to_rejected,
					  .lag_ns = setting->lag_ns,
					  .memory_bytes = granules * CA_REPLAY_GRANULE };
	struct ca_replay_result *result = malloc(sizeof(*result));
	int r = result ? ca_replay_run(input, device, &with, result, error) : -ENOMEM;

	if (!result)
		ca_replay_fail(error, "out of host memory");
	if (!r)
		*ret_completes = !result->out_of_memory;
	free(result);
	return r;
}

int
ca_replay_find_capacity(const struct ca_replay_input *input,
			const struct ca_replay_setting *setting,
			const struct ca_replay_result *result, uint64_t *ret_bytes,
			struct ca_replay_error *error)
{
	uint64_t live = (result->peak_live_bytes + CA_REPLAY_GRANULE - 1) / CA_REPLAY_GRANULE;
	uint64_t low = live ? live - 1 : 0;                        /* cannot do */
	uint64_t high = setting->memory_bytes / CA_REPLAY_GRANULE; /* does */
	uint64_t used = result->peak_reserved_bytes / CA_REPLAY_GRANULE;
	bool fits = false;
	int r = 0;

	if (used < high)
		r = completes(input, result->device, setting, used, &fits, error);
	if (fits)
		high = used;
	if (!live)
		high = 0;
	while (!r && high > low + 1) {
		uint64_t middle = low + (high - low) / 2;

		r = completes(input, result->device, setting, middle, &fits, error);
		*(fits ? &high : &low) = middle;
	}
	*ret_bytes = high * CA_REPLAY_GRANULE;
	return r;
}
