/* SPDX-License-Identifier: MIT */
/*
 * Replays a trace with a peer's policy over pretend memory, and prints what that took.
 *
 *   peer-replay --model NAME [--memory BYTES] [--find-min-capacity] [--json] FILE.trc
 *
 * The smallest capacity is searched by halving, in steps of 2 MiB, between what is live and what
 * the policy takes with no limit. Feasibility is not strictly monotone, so the result is a capacity
 * that suffices, below which one that was tried did not.
 *
 * Exit status: 0; 1 for a trace that cannot be read; 2 for wrong usage; 3 when --memory does not
 * suffice (figures are then those up to there).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/traces/models/model.h"
#include "tests/traces/models/trace.h"

#define PAGE ((uint64_t)2 << 20)
#define NO_LIMIT ((uint64_t)1 << 62)

static const struct peer *const peers[] = {
	&peer_torch,    &peer_cub,         &peer_cub_g2,
	&peer_stock,    &peer_stock_reuse, &peer_limit,
#ifdef WITH_CUB
	&peer_cub_real, &peer_cub_g2_real,
#endif
	NULL,
};

struct live {
	void *block; /* NULL: not live */
	uint64_t bytes;
};

struct replay {
	const struct trace *trace;
	const struct peer *peer;
	void *self;
	struct live *live; /* by id */
	struct peer_device device;
	uint64_t live_bytes, peak_live_bytes; /* as requested */
	uint64_t hits, misses; /* allocations without and with a call of the driver */
	bool out_of_memory;
};

static void
event_alloc(struct replay *replay, const struct trace_event *event)
{
	uint64_t calls = replay->device.driver_alloc_calls;
	struct live *live = &replay->live[event->id];

	live->block = replay->peer->alloc(replay->self, event->bytes, event->stream);
	if (!live->block) {
		replay->out_of_memory = true;
		return;
	}
	live->bytes = event->bytes;
	replay->live_bytes += event->bytes;
	if (replay->live_bytes > replay->peak_live_bytes)
		replay->peak_live_bytes = replay->live_bytes;
	if (replay->device.driver_alloc_calls == calls)
		replay->hits++;
	else
		replay->misses++;
}

static void
event_free(struct replay *replay, uint32_t id)
{
	struct live *live = &replay->live[id];

	replay->live_bytes -= live->bytes;
	replay->peer->free(replay->self, live->block);
	live->block = NULL;
}

static void
event_play(struct replay *replay, const struct trace_event *event)
{
	const struct peer *peer = replay->peer;

	if (event->kind == 'I' || event->kind == 'A')
		event_alloc(replay, event);
	else if (event->kind == 'F')
		event_free(replay, event->id);
	else if (event->kind == 'U' && peer->use)
		peer->use(replay->self, replay->live[event->id].block, event->stream);
	else if (event->kind == 'P' && peer->finish)
		peer->finish(replay->self);
}

static struct replay
replay_run(const struct trace *trace, const struct peer *peer, uint64_t capacity)
{
	struct replay replay = { .trace = trace, .peer = peer, .device.capacity = capacity };
	struct peer_device device;

	replay.live = peer_new((trace->n_ids + 1) * sizeof(*replay.live));
	replay.self = peer->create(&replay.device);
	for (size_t i = 0; i < trace->n_events && !replay.out_of_memory; i++)
		event_play(&replay, &trace->events[i]);
	device = replay.device; /* what cleaning up asks of the driver is not the trace's */
	for (uint32_t id = 0; id < trace->n_ids; id++)
		if (replay.live[id].block)
			event_free(&replay, id);
	peer->destroy(replay.self);
	replay.device = device;
	free(replay.live);
	return replay;
}

static uint64_t
min_capacity(const struct trace *trace, const struct peer *peer)
{
	struct replay unlimited = replay_run(trace, peer, NO_LIMIT);
	uint64_t enough = (unlimited.device.peak_reserved_bytes + PAGE - 1) / PAGE;
	uint64_t small = unlimited.peak_live_bytes / PAGE; /* in pages; one less than possible */

	if (small * PAGE == unlimited.peak_live_bytes && small)
		small--;
	while (small + 1 < enough) {
		uint64_t middle = small + (enough - small) / 2;

		if (replay_run(trace, peer, middle * PAGE).out_of_memory)
			small = middle;
		else
			enough = middle;
	}
	return enough * PAGE;
}

/* Of what is reserved at its peak, against what was requested at its peak. */
static uint64_t
waste_ppm(const struct replay *replay)
{
	uint64_t reserved = replay->device.peak_reserved_bytes, live = replay->peak_live_bytes;

	for (; reserved >> 43; reserved >>= 1)
		live >>= 1;
	return reserved ? (reserved - live) * 1000000 / reserved : 0;
}

struct figure {
	const char *name;
	uint64_t value;
};

static void
report(const struct replay *replay, uint64_t capacity, bool json)
{
	const struct peer_device *device = &replay->device;
	const struct figure figures[] = {
		{ "peak_live_bytes", replay->peak_live_bytes },
		{ "peak_reserved_bytes", device->peak_reserved_bytes },
		{ "waste_ppm", waste_ppm(replay) },
		{ "driver_alloc_calls", device->driver_alloc_calls },
		{ "driver_free_calls", device->driver_free_calls },
		{ "bytes_from_driver", device->bytes_from_driver },
		{ "hits", replay->hits },
		{ "misses", replay->misses },
	};

	if (json)
		printf("{\"model\": \"%s\", \"out_of_memory\": %s", replay->peer->name,
		       replay->out_of_memory ? "true" : "false");
	else
		printf("model %s%s\n", replay->peer->name,
		       replay->out_of_memory ? ": out of memory" : "");
	for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++)
		printf(json ? ", \"%s\": %llu" : "%s %llu\n", figures[i].name,
		       (unsigned long long)figures[i].value);
	if (capacity)
		printf(json ? ", \"min_capacity_bytes\": %llu" : "min_capacity_bytes %llu\n",
		       (unsigned long long)capacity);
	else if (json)
		printf(", \"min_capacity_bytes\": null");
	printf(json ? "}\n" : "");
}

struct options {
	const struct peer *peer;
	const char *path;
	uint64_t memory;
	bool min_capacity, json;
};

static const struct peer *
peer_find(const char *name)
{
	const struct peer *const *peer = peers;

	while (*peer && strcmp((*peer)->name, name))
		peer++;
	return *peer;
}

static bool
options_parse(int argc, char **argv, struct options *options)
{
	for (int at = 1; at < argc; at++) {
		const char *value = at + 1 < argc ? argv[at + 1] : "";
		char *end = NULL;

		if (!strcmp(argv[at], "--json")) {
			options->json = true;
		} else if (!strcmp(argv[at], "--find-min-capacity")) {
			options->min_capacity = true;
		} else if (!strcmp(argv[at], "--model")) {
			options->peer = peer_find(value);
			at++;
		} else if (!strcmp(argv[at], "--memory")) {
			options->memory = strtoull(value, &end, 10);
			if (*value < '0' || *value > '9' || *end || options->memory > NO_LIMIT)
				return false;
			at++;
		} else if (options->path || (argv[at][0] == '-' && argv[at][1])) {
			return false;
		} else {
			options->path = argv[at];
		}
	}
	return options->peer && options->path;
}

static int
usage(void)
{
	fprintf(stderr, "usage: peer-replay --model NAME [--memory BYTES] [--find-min-capacity] "
			"[--json] FILE.trc\nmodels:");
	for (const struct peer *const *peer = peers; *peer; peer++)
		fprintf(stderr, " %s", (*peer)->name);
	fprintf(stderr, "\n");
	return 2;
}

int
main(int argc, char **argv)
{
	struct options options = { .memory = NO_LIMIT };
	struct replay replay;
	struct trace trace;
	uint64_t capacity = 0;

	if (!options_parse(argc, argv, &options))
		return usage();
	if (trace_read(options.path, &trace))
		return 1;
	replay = replay_run(&trace, options.peer, options.memory);
	if (options.min_capacity)
		capacity = min_capacity(&trace, options.peer);
	report(&replay, capacity, options.json);
	free(trace.events);
	return replay.out_of_memory ? 3 : 0;
}
