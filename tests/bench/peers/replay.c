/* SPDX-License-Identifier: MIT */
/*
 * The calls of a recorded trace, again and again. What is live at its start is made once; after its
 * end what was allocated since is freed, and what was freed made again, so that every replay asks
 * for the same.
 */
#include <stdlib.h>

#include "tests/bench/peers/workloads.h"
#include "tests/traces/models/trace.h"

struct call {
	uint32_t id;
	bool taking;
	uint64_t bytes; /* of the block, also where it is freed */
};

static struct call *calls; /* the same for all arms */
static size_t n_calls, n_ids, n_initial;
static struct call *initial;

struct replay {
	const struct arm *arm;
	bool work;
	uint64_t *addresses;   /* by id */
	uint32_t *quietest_ns; /* by call; of `calls` only */
};

void measured_trace(struct replay *replay);
void measured_calls(struct replay *replay);

/* Blocks that the trace leaves otherwise than it found them; `now` and `before`: sizes of live
 * blocks. */
static void
undo(const uint64_t *now, const uint64_t *before)
{
	for (uint32_t id = 0; id < n_ids; id++)
		if (now[id] && now[id] != before[id])
			calls[n_calls++] = (struct call){ id, false, now[id] };
	for (uint32_t id = 0; id < n_ids; id++)
		if (before[id] && now[id] != before[id])
			calls[n_calls++] = (struct call){ id, true, before[id] };
}

static void
calls_read(void)
{
	struct trace trace;
	uint64_t *now, *before;

	if (!options.trace || trace_read(options.trace, &trace))
		api_fail("--trace", 0);
	n_ids = trace.n_ids;
	calls = new_array(trace.n_events + 2 * n_ids + 1, sizeof(*calls));
	initial = new_array(trace.n_events + 1, sizeof(*initial));
	now = new_array(n_ids + 1, sizeof(*now));
	before = new_array(n_ids + 1, sizeof(*before));
	for (size_t i = 0; i < trace.n_events; i++) {
		const struct trace_event *e = &trace.events[i];

		if (e->kind == 'I') {
			initial[n_initial++] = (struct call){ e->id, true, e->bytes };
			before[e->id] = now[e->id] = e->bytes;
		} else if (e->kind == 'A') {
			calls[n_calls++] = (struct call){ e->id, true, e->bytes };
			now[e->id] = e->bytes;
		} else if (e->kind == 'F') {
			calls[n_calls++] = (struct call){ e->id, false, now[e->id] };
			now[e->id] = 0;
		}
	}
	undo(now, before);
	free(now);
	free(before);
	free(trace.events);
}

static inline void
call_play(struct replay *replay, const struct call *call)
{
	if (call->taking)
		replay->addresses[call->id] = arm_take(replay->arm, call->bytes);
	else
		arm_give(replay->arm, replay->addresses[call->id], call->bytes);
}

__attribute__((noinline)) void
measured_trace(struct replay *replay)
{
	for (size_t i = 0; i < n_calls; i++) {
		call_play(replay, &calls[i]);
		if (replay->work && calls[i].taking)
			arm_work(replay->arm, replay->addresses[calls[i].id]);
	}
}

__attribute__((noinline)) void
measured_calls(struct replay *replay)
{
	for (size_t i = 0; i < n_calls; i++) {
		uint64_t start = now_ns(), ns;

		call_play(replay, &calls[i]);
		ns = now_ns() - start;
		if (ns < replay->quietest_ns[i])
			replay->quietest_ns[i] = (uint32_t)ns;
		if (calls[i].taking)
			arm_work(replay->arm, replay->addresses[calls[i].id]);
	}
}

static void
round_trace(void *state, struct sample *ret_sample)
{
	struct replay *replay = state;
	struct sample start, end;

	sample_read(&start);
	if (replay->quietest_ns)
		measured_calls(replay);
	else
		measured_trace(replay);
	sample_read(&end);
	sample_add(ret_sample, &start, &end);
	ret_sample->operations = n_calls;
}

static void *
prepare_trace(const struct arm *arm)
{
	struct replay *replay = new_array(1, sizeof(*replay));

	if (!calls)
		calls_read();
	replay->arm = arm;
	replay->addresses = new_array(n_ids + 1, sizeof(*replay->addresses));
	for (size_t i = 0; i < n_initial; i++)
		call_play(replay, &initial[i]);
	arm_work(arm, n_initial ? replay->addresses[initial[0].id] : 0);
	return replay;
}

static void *
prepare_work(const struct arm *arm)
{
	struct replay *replay = prepare_trace(arm);

	replay->work = true;
	return replay;
}

static void *
prepare_calls(const struct arm *arm)
{
	struct replay *replay = prepare_work(arm);

	replay->quietest_ns = new_array(n_calls + 1, sizeof(*replay->quietest_ns));
	for (size_t i = 0; i < n_calls; i++)
		replay->quietest_ns[i] = UINT32_MAX;
	return replay;
}

static int
compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* With the clock, which the null arm has, too. */
static void
report_calls(void *state)
{
	uint32_t *ns = ((struct replay *)state)->quietest_ns;

	qsort(ns, n_calls, sizeof(*ns), compare);
	printf(", \"p50_ns\": %u, \"p99_ns\": %u, \"p999_ns\": %u, \"p9999_ns\": %u, \"max_ns\": "
	       "%u",
	       ns[n_calls / 2], ns[n_calls * 99 / 100], ns[n_calls * 999 / 1000],
	       ns[n_calls * 9999 / 10000], ns[n_calls - 1]);
}

const struct workload workload_trace = { "trace", prepare_trace, round_trace, NULL };
const struct workload workload_trace_work = { "trace_work", prepare_work, round_trace, NULL };
const struct workload workload_calls = { "calls", prepare_calls, round_trace, report_calls };
