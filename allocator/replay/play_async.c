/* SPDX-License-Identifier: MIT */
/*
 * The pools of a trace as pools of the told heap, whose segments come from the pretend driver. The
 * steps are those of shim/hooks/hook_told.c, which is part of the library: when nothing cached
 * does, a look at what is about to finish, segments that go back, a new one; out of memory, one of
 * the exact size, all idle segments, a wait on the device, the ladder of cuMemAlloc's heap, and
 * patience, here by the model's clock.
 */
#include "allocator/replay/play_inside.h"

#include <errno.h>
#include <stdlib.h>

#include "allocator/order/order_told.h"
#include "allocator/policy/policy.h"
#include "allocator/told/fast.h"

enum { LOOKS = 20, LOOK_NS = 50 * 1000, STEP_NS = 100 * 1000 };
#define PATIENCE_NS ((uint64_t)10000000000)
#define MARK_PATIENCE_NS ((uint64_t)1000000)
#define CONTEXT ((void *)1) /* of the replay's one space */

/* ---- segments */

static void
give_back(struct ca_replayer *p, const struct ca_told_idle *idle)
{
	struct ca_space *space;

	(void)ca_charge_drop(p->heap, CA_CHARGE_ADDRESS, idle->address, &space);
	(void)ca_model_steal(p->model, idle->address); /* a pool's free waits for nothing */
	p->result->road[CA_REPLAY_ASYNC].driver_frees++;
	ca_told_hand_empty(idle->pool, 1);
}

void
ca_replay_async_tidy(struct ca_replayer *p)
{
	struct ca_told_idle idle;

	while (ca_told_has_closed(p->heap) && ca_told_take_closed(p->heap, &idle))
		give_back(p, &idle);
}

/* All that is idle. */
static uint64_t
trim(struct ca_replayer *p)
{
	struct ca_told_idle idle;
	uint64_t bytes = 0;

	(void)ca_told_poll_all(p->heap, p->result->device);
	while (ca_told_take_idle(p->heap, NULL, p->result->device, &idle)) {
		give_back(p, &idle);
		bytes += idle.bytes;
	}
	return bytes;
}

uint64_t
ca_replay_async_trim(void *model, unsigned device, uint64_t keep_bytes, bool graphs)
{
	return keep_bytes ? 0 : trim(ca_model_arg(model));
}

/* ---- pools */

static int
make_place(struct ca_replayer *p, unsigned number)
{
	size_t n = p->n_pools ? p->n_pools : 16;
	void *bigger;

	while (n <= number)
		n *= 2;
	if (n == p->n_pools)
		return 0;
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): it is an array of pointers */
	bigger = realloc(p->pools, n * sizeof(*p->pools));
	if (!bigger)
		return -ENOMEM;
	p->pools = bigger;
	while (p->n_pools < n)
		p->pools[p->n_pools++] = NULL;
	return 0;
}

/* The pool of that number; it is made where there is none. NULL: no memory. */
static struct ca_told_pool *
pool_of(struct ca_replayer *p, unsigned number)
{
	if (make_place(p, number))
		return NULL;
	if (!p->pools[number] || !ca_told_pool_handle(p->pools[number]))
		p->pools[number] = ca_told_pool_open(p->heap, (void *)((uintptr_t)number + 1),
						     p->result->device);
	return p->pools[number];
}

int
ca_replay_async_pool(struct ca_replayer *p, const struct ca_replay_event *event)
{
	struct ca_told_pool *pool = pool_of(p, event->pool);

	if (!pool)
		return -ENOMEM;
	ca_told_pool_set_reuse(pool, CA_TOLD_FOLLOWS, event->id & CA_TRACE_POOL_FOLLOWS);
	ca_told_pool_set_reuse(pool, CA_TOLD_OPPORTUNISTIC,
			       event->id & CA_TRACE_POOL_OPPORTUNISTIC);
	ca_told_pool_set_reuse(pool, CA_TOLD_INTERNAL, event->id & CA_TRACE_POOL_INTERNAL);
	if (event->id & CA_TRACE_POOL_LIMITED)
		ca_told_pool_set_limited(pool);
	if (!event->bytes) {
		ca_told_pool_close(pool);
		ca_replay_async_tidy(p);
	}
	return 0;
}

/* ---- a request */

struct attempt {
	struct ca_replayer *p;
	struct ca_told_pool *pool;
	struct ca_stream *stream;
	uint64_t size; /* bytes */
	uint64_t address;
	unsigned at; /* of the stream in the replay */
	bool birth;  /* it is to be given work, by the allocation of a segment if there is one */
};

static int
take_segment(struct ca_replayer *p, uint64_t bytes, uint64_t *ret_address)
{
	bool limited = ca_config_is_limited(p->setting->config);
	int r;

	if (limited && !ca_charge(p->space, bytes))
		return CA_DRIVER_OUT_OF_MEMORY;
	p->result->road[CA_REPLAY_ASYNC].driver_allocs++;
	r = p->driver.segment_take(p->driver.self, CONTEXT, bytes, ret_address);
	if (limited && r)
		ca_charge_abort(p->space, bytes);
	else if (limited)
		ca_charge_keep(p->space, CA_CHARGE_ADDRESS, *ret_address, bytes);
	return r;
}

static int
submit_birth(struct attempt *attempt)
{
	bool birth = attempt->birth;

	attempt->birth = false;
	return birth ? ca_replay_streams_submit(&attempt->p->streams, attempt->at,
						CA_REPLAY_NO_TIME, 0)
		     : 0;
}

static int
grow(struct attempt *attempt, bool exact)
{
	uint64_t bytes = ca_told_segment_bytes(attempt->pool, attempt->size, exact), address;
	int r = take_segment(attempt->p, bytes, &address);

	if (!r)
		r = submit_birth(attempt);
	return r ? r
		 : ca_told_grow(attempt->pool, attempt->stream, address, bytes, attempt->size,
				&attempt->address);
}

static bool
from_cache(struct attempt *attempt, bool cuts_any)
{
	return !ca_told_alloc(attempt->pool, attempt->stream, attempt->size, cuts_any,
			      &attempt->address);
}

static void
pause_for(struct attempt *attempt, uint64_t ns)
{
	if (attempt->p->driver.pause)
		attempt->p->driver.pause(attempt->p->driver.self, ns);
}

static bool
look_again(struct attempt *attempt, uint64_t bytes)
{
	bool served = false;

	if (!ca_told_look_is_due(attempt->pool, bytes))
		return false;
	for (unsigned i = 0; i < LOOKS && !served; i++) {
		pause_for(attempt, LOOK_NS);
		if (ca_told_poll_all(attempt->p->heap, attempt->p->result->device))
			served = from_cache(attempt, false);
	}
	ca_told_look_ends(attempt->pool, served);
	return served;
}

/* ---- out of memory */

static bool
from_finished(struct attempt *attempt)
{
	if (from_cache(attempt, true))
		return true;
	(void)trim(attempt->p);
	return !grow(attempt, true);
}

static bool
has_waiting_for(const struct attempt *attempt)
{
	const struct ca_driver *driver = &attempt->p->driver;
	uint64_t free_bytes, total;

	if (driver->memory_info(driver->self, CONTEXT, &free_bytes, &total))
		free_bytes = 0;
	return ca_told_has_waiting_for(attempt->pool, attempt->size, free_bytes);
}

/* Nothing happens between two questions but that time passes: so the pauses become longer. */
static bool
await(struct attempt *attempt)
{
	const struct ca_driver *driver = &attempt->p->driver;
	uint64_t patience = ca_told_pool_allows(attempt->pool, CA_TOLD_INTERNAL) ? PATIENCE_NS
										 : MARK_PATIENCE_NS;
	uint64_t since = driver->clock_ns(driver->self), step = STEP_NS;

	while (driver->pause && driver->clock_ns(driver->self) - since < patience &&
	       has_waiting_for(attempt)) {
		pause_for(attempt, step);
		step *= 2;
		if (!ca_told_poll_all(attempt->p->heap, attempt->p->result->device))
			continue;
		if (from_finished(attempt))
			return true;
		since = driver->clock_ns(driver->self);
		step = STEP_NS;
	}
	return from_finished(attempt);
}

static bool
by_ladder(struct attempt *attempt)
{
	struct ca_rounds rounds = { 0 };

	if (!grow(attempt, true) || (trim(attempt->p) && !grow(attempt, true)))
		return true;
	if (from_cache(attempt, true) || !ca_told_alloc_guarded(attempt->pool, attempt->stream,
								attempt->size, &attempt->address))
		return true;
	while (ca_reclaim(attempt->p->space, attempt->size, &rounds))
		if (from_cache(attempt, true) || !grow(attempt, true))
			return true;
	return await(attempt);
}

/* ---- operations */

static int
from_driver(struct attempt *attempt)
{
	uint64_t bytes = ca_told_segment_bytes(attempt->pool, attempt->size, false);
	struct ca_told_idle idle;
	int r;

	if (look_again(attempt, bytes))
		return 0;
	while (ca_told_take_surplus(attempt->pool, bytes, &idle))
		give_back(attempt->p, &idle);
	r = grow(attempt, false);
	return r == CA_DRIVER_OUT_OF_MEMORY && by_ladder(attempt) ? 0 : r;
}

int
ca_replay_async_alloc(struct ca_replayer *p, const struct ca_replay_event *event, unsigned at,
		      uint64_t *ret_address)
{
	struct ca_stream *stream = p->streams.stream[at].stream;
	struct attempt attempt = { .p = p,
				   .pool = pool_of(p, event->pool),
				   .stream = stream,
				   .size = event->bytes,
				   .at = at };
	int r = 0;

	if (!attempt.pool)
		return -ENOMEM;
	if (!stream) /* there are more than the tracker takes */
		return -ENOSPC;
	if (event->bytes > CA_SIZE_MAX)
		return -E2BIG;
	attempt.birth = event->birth && p->streams.rate_kind == CA_REPLAY_TOLD;
	if (!ca_told_alloc_quick(attempt.pool, stream, attempt.size, &attempt.address) &&
	    !from_cache(&attempt, false))
		r = from_driver(&attempt);
	if (!r)
		*ret_address = attempt.address;
	return r ? r : submit_birth(&attempt);
}

int
ca_replay_async_free(struct ca_replayer *p, uint64_t address, struct ca_stream *stream)
{
	int r = 0;

	if (!stream || !ca_told_sees_all(stream) ||
	    !ca_told_free_quick(ca_told_of(stream), address, stream))
		r = ca_told_free(p->heap, address, stream);
	ca_replay_async_tidy(p);
	return r;
}

int
ca_replay_async_shrink(struct ca_replayer *p, const struct ca_replay_event *event)
{
	struct ca_told_pool *pool = pool_of(p, event->pool);
	struct ca_told_stats stats;
	struct ca_told_idle idle;

	if (!pool)
		return -ENOMEM;
	(void)ca_told_poll_all(p->heap, p->result->device);
	ca_told_pool_stats(pool, &stats);
	while (stats.segment_bytes > event->id &&
	       ca_told_take_idle(p->heap, pool, p->result->device, &idle)) {
		stats.segment_bytes -= idle.bytes;
		give_back(p, &idle);
	}
	return 0;
}
