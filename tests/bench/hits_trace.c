/* SPDX-License-Identifier: MIT */
/* The calls of a recorded trace, each timed alone. */
#include "tests/bench/hits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_MAX = 1 << 24 };

struct event {
	char kind; /* I, A, F, P */
	uint32_t id;
	uint64_t bytes;
};

static struct event *events;
static size_t n_events, n_ids;
static uint64_t *addresses, *sizes;
static bool *initial;
static uint32_t *call_ns; /* of every call after the first round */
static size_t n_calls, n_calls_max;

static void
trace_read(void)
{
	FILE *file = options.trace ? fopen(options.trace, "r") : NULL;
	size_t room = 0;
	char line[256];

	if (!file)
		api_fail("--trace", errno);
	while (fgets(line, sizeof(line), file)) {
		char *end = line + 1;
		uint64_t id = strtoull(end, &end, 10), bytes = strtoull(end, &end, 10);
		bool named = line[0] && strchr("IAF", line[0]);

		if (n_events == room) {
			room = room ? 2 * room : 1024;
			events = realloc(events, room * sizeof(*events));
			if (!events)
				api_fail("realloc", ENOMEM);
		}
		if ((!named && line[0] != 'P') || id >= ID_MAX)
			api_fail("malformed line", (long)n_events + 1);
		events[n_events++] =
			(struct event){ line[0], named ? (uint32_t)id : 0, named ? bytes : 0 };
		if (named && id >= n_ids)
			n_ids = (size_t)id + 1;
	}
	fclose(file);
	addresses = calloc(n_ids + 1, sizeof(*addresses));
	sizes = calloc(n_ids + 1, sizeof(*sizes));
	initial = calloc(n_ids + 1, sizeof(*initial));
	n_calls_max = (2 * n_events + 2 * n_ids) * options.rounds;
	call_ns = calloc(n_calls_max + 1, sizeof(*call_ns));
	if (!addresses || !sizes || !initial || !call_ns)
		api_fail("calloc", ENOMEM);
}

void measured_take(uint32_t id);
void measured_give(uint32_t id);

__attribute__((noinline)) void
measured_take(uint32_t id)
{
	addresses[id] = take(sizes[id]);
}

__attribute__((noinline)) void
measured_give(uint32_t id)
{
	give(addresses[id]);
}

static void
timed(uint32_t id, bool taking, CUstream stream, bool counted)
{
	uint64_t start = now_ns(), ns;

	if (taking)
		measured_take(id);
	else
		measured_give(id);
	ns = now_ns() - start;
	if (counted && n_calls < n_calls_max)
		call_ns[n_calls++] = (uint32_t)ns;
	if (taking)
		arm_launch(addresses[id], stream);
	else
		addresses[id] = 0;
}

static void
trace_step(CUstream stream, bool counted)
{
	for (size_t i = 0; i < n_events; i++) {
		const struct event *e = &events[i];

		if (e->kind == 'A')
			sizes[e->id] = e->bytes;
		if (e->kind == 'A' || (e->kind == 'F' && addresses[e->id]))
			timed(e->id, e->kind == 'A', stream, counted);
	}
	for (size_t i = 0; i < n_ids; i++)
		if (addresses[i] && !initial[i])
			timed((uint32_t)i, false, stream, counted);
	for (size_t i = 0; i < n_ids; i++)
		if (initial[i] && !addresses[i])
			timed((uint32_t)i, true, stream, counted);
	arm_synchronize(stream);
}

static int
compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The median of two readings in a row. */
static uint32_t
clock_ns(void)
{
	static uint32_t between[1001];

	for (size_t i = 0; i < 1001; i++) {
		uint64_t start = now_ns();

		between[i] = (uint32_t)(now_ns() - start);
	}
	qsort(between, 1001, sizeof(*between), compare);
	return between[500];
}

void
hits_trace(void)
{
	CUstream stream = arm_stream_new();
	uint32_t clock = clock_ns();
	size_t done = 0;

	trace_read();
	for (size_t i = 0; i < n_events; i++)
		if (events[i].kind == 'I') {
			sizes[events[i].id] = events[i].bytes;
			initial[events[i].id] = true;
			timed(events[i].id, true, stream, false);
		}
	trace_step(stream, false);
	for (unsigned long r = 0; r < options.rounds; r++) {
		double sum = 0;

		trace_step(stream, true);
		for (size_t i = done; i < n_calls; i++)
			sum += call_ns[i] > clock ? call_ns[i] - clock : 0;
		round_ns[r] = n_calls > done ? sum / (double)(n_calls - done) : 0;
		done = n_calls;
	}
	qsort(call_ns, n_calls, sizeof(*call_ns), compare);
	printf("{\"calls\": %zu, \"clock_ns\": %u, \"p50_ns\": %u, \"p99_ns\": %u, "
	       "\"p999_ns\": %u, ",
	       n_calls, clock, call_ns[n_calls / 2], call_ns[n_calls * 99 / 100],
	       call_ns[n_calls * 999 / 1000]);
}
