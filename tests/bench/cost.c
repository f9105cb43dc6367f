/* SPDX-License-Identifier: MIT */
/*
 * The price of submitting work: cost [--road proc|dlsym] [--cpu N] [--rounds N] [--calls N]
 * SITUATION
 *
 * One situation a process, because streams that were once made or used stay in everybody's memory.
 * The calls go through measured(), for callgrind's --toggle-collect; before them, as many are made
 * for warming up that are not counted.
 *
 * Prints one JSON object: nanoseconds a call by rounds. Where something is done between the calls
 * (situations that begin with after_ or handed_out_), each call is timed alone, and the clock is
 * part of the figure: only the difference between two runs means anything.
 */
#include "tests/bench/api.h"
#include "tests/bench/arguments.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MAX = 256, BYTES = 64 << 10, COPIED = 64 };

enum work {
	LAUNCH,
	LAUNCH_PTSZ,
	LAUNCH_EX,
	TAKE_AND_LAUNCH,
	TAKE_LAUNCH_AND_FREE,
	RECORD,
	RECORD_AND_WAIT,
	COPY_HTOD,
	COPY_DTOH,
	COPY_DTOD,
	SET,
	COPY_HTOD_ASYNC,
	COPY_DTOH_ASYNC,
	COPY_DTOD_ASYNC,
	SET_ASYNC,
};

/* What is done before each call. */
enum before {
	NOTHING,
	PAIR,      /* an allocation, and its free */
	ALLOC,     /* the oldest of a few blocks is freed, and another allocated */
	FREE,      /* the oldest of a few blocks is freed */
	USED_FREE, /* a block is allocated, a kernel of the next stream fills it, it is freed */
};

struct situation {
	const char *name;
	enum work work;
	int n_streams; /* created ones, used in rotation; 0: the NULL stream */
	enum before before;
};

static const struct situation situations[] = {
	{ "null", LAUNCH, 0, NOTHING },
	{ "one", LAUNCH, 1, NOTHING },
	{ "eight", LAUNCH, 8, NOTHING },
	{ "streams_16", LAUNCH, 16, NOTHING },
	{ "streams_64", LAUNCH, 64, NOTHING },
	{ "streams_256", LAUNCH, 256, NOTHING },
	{ "per_thread", LAUNCH_PTSZ, 0, NOTHING },
	{ "ex_one", LAUNCH_EX, 1, NOTHING },
	{ "ex_eight", LAUNCH_EX, 8, NOTHING },
	{ "after_pair_null", LAUNCH, 0, PAIR },
	{ "after_pair_one", LAUNCH, 1, PAIR },
	{ "after_pair_eight", LAUNCH, 8, PAIR },
	{ "after_alloc_null", LAUNCH, 0, ALLOC },
	{ "after_alloc_one", LAUNCH, 1, ALLOC },
	{ "after_alloc_eight", LAUNCH, 8, ALLOC },
	{ "handed_out_null", TAKE_AND_LAUNCH, 0, FREE },
	{ "handed_out_one", TAKE_AND_LAUNCH, 1, FREE },
	{ "handed_out_eight", TAKE_AND_LAUNCH, 8, FREE },
	{ "after_used_free_one", LAUNCH, 1, USED_FREE },
	{ "after_used_free_eight", LAUNCH, 8, USED_FREE },
	{ "used_pair_one", TAKE_LAUNCH_AND_FREE, 1, NOTHING },
	{ "used_pair_two", TAKE_LAUNCH_AND_FREE, 2, NOTHING },
	{ "used_pair_eight", TAKE_LAUNCH_AND_FREE, 8, NOTHING },
	{ "record", RECORD, 1, NOTHING },
	{ "record_eight", RECORD, 8, NOTHING },
	{ "record_wait", RECORD_AND_WAIT, 8, NOTHING },
	{ "htod", COPY_HTOD, 0, NOTHING },
	{ "dtoh", COPY_DTOH, 0, NOTHING },
	{ "dtod", COPY_DTOD, 0, NOTHING },
	{ "set", SET, 0, NOTHING },
	{ "htod_async", COPY_HTOD_ASYNC, 1, NOTHING },
	{ "dtoh_async", COPY_DTOH_ASYNC, 1, NOTHING },
	{ "dtod_async", COPY_DTOD_ASYNC, 1, NOTHING },
	{ "set_async", SET_ASYNC, 1, NOTHING },
	{ NULL, LAUNCH, 0, NOTHING },
};

static struct {
	const struct situation *situation;
	enum road road;
	int cpu;
	unsigned long rounds, calls;
} options = { .situation = situations, .cpu = -1, .rounds = 20, .calls = 1000 };

static CUstream streams[STREAMS_MAX]; /* [0] stays NULL where none is created */
static int n_streams = 1;
static CUdeviceptr from, to, ring[8];
static unsigned char host[COPIED];
static void *fill;
static CUevent event;
static unsigned long n_calls, n_prepared;

void measured(CUstream stream);

static void
launch(CUdeviceptr target, CUstream stream)
{
	uint64_t words = COPIED / 4, value = 1, spin_us = 0;
	void *arguments[] = { &target, &words, &value, &spin_us };
	struct launch_config config = { .grid = { 1, 1, 1 },
					.block = { 1, 1, 1 },
					.stream = stream };

	switch (options.situation->work) {
	case LAUNCH_EX:
		CALL(cuLaunchKernelEx, &config, fill, arguments, NULL);
		break;
	case LAUNCH_PTSZ:
		CALL(cuLaunchKernel_ptsz, fill, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
		break;
	default:
		CALL(cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
		break;
	}
}

static CUdeviceptr
take(void)
{
	CUdeviceptr address;

	CALL(cuMemAlloc_v2, &address, BYTES);
	return address;
}

/* Of the few blocks, in turn. */
static CUdeviceptr *
oldest(void)
{
	return &ring[n_prepared % (sizeof(ring) / sizeof(ring[0]))];
}

static void
submit(CUstream stream)
{
	CUdeviceptr block;

	switch (options.situation->work) {
	case LAUNCH:
	case LAUNCH_PTSZ:
	case LAUNCH_EX:
		launch(to, stream);
		break;
	case TAKE_AND_LAUNCH:
		*oldest() = take();
		launch(to, stream);
		break;
	case TAKE_LAUNCH_AND_FREE:
		block = take();
		launch(block, stream);
		CALL(cuMemFree_v2, block);
		break;
	case RECORD:
		CALL(cuEventRecord, event, stream);
		break;
	case RECORD_AND_WAIT:
		CALL(cuEventRecord, event, stream);
		CALL(cuStreamWaitEvent, streams[n_calls % (unsigned)n_streams], event, 0);
		break;
	case COPY_HTOD:
		CALL(cuMemcpyHtoD_v2, to, host, COPIED);
		break;
	case COPY_DTOH:
		CALL(cuMemcpyDtoH_v2, host, to, COPIED);
		break;
	case COPY_DTOD:
		CALL(cuMemcpyDtoD_v2, to, from, COPIED);
		break;
	case SET:
		CALL(cuMemsetD8_v2, to, 1, COPIED);
		break;
	case COPY_HTOD_ASYNC:
		CALL(cuMemcpyHtoDAsync_v2, to, host, COPIED, stream);
		break;
	case COPY_DTOH_ASYNC:
		CALL(cuMemcpyDtoHAsync_v2, host, to, COPIED, stream);
		break;
	case COPY_DTOD_ASYNC:
		CALL(cuMemcpyDtoDAsync_v2, to, from, COPIED, stream);
		break;
	case SET_ASYNC:
		CALL(cuMemsetD8Async, to, 1, COPIED, stream);
		break;
	}
}

__attribute__((noinline)) void
measured(CUstream stream)
{
	submit(stream);
}

static CUstream
next_stream(void)
{
	return streams[n_calls++ % (unsigned)n_streams];
}

static void
prepare(void)
{
	CUdeviceptr block;

	n_prepared++;
	switch (options.situation->before) {
	case NOTHING:
		break;
	case PAIR:
		CALL(cuMemFree_v2, take());
		break;
	case ALLOC:
		CALL(cuMemFree_v2, *oldest());
		*oldest() = take();
		break;
	case FREE:
		CALL(cuMemFree_v2, *oldest());
		break;
	case USED_FREE:
		block = take();
		launch(block, next_stream());
		CALL(cuMemFree_v2, block);
		break;
	}
}

/* Nanoseconds of a round's calls. */
static uint64_t
round_alone(void)
{
	uint64_t sum = 0, start;

	for (unsigned long i = 0; i < options.calls; i++) {
		CUstream stream;

		prepare();
		stream = next_stream();
		start = now_ns();
		measured(stream);
		sum += now_ns() - start;
	}
	return sum;
}

static uint64_t
round_of_calls(void)
{
	uint64_t start = now_ns();

	if (options.situation->before != NOTHING)
		return round_alone();
	for (unsigned long i = 0; i < options.calls; i++)
		measured(next_stream());
	return now_ns() - start;
}

static void
set_up(void)
{
	api_open(options.road);
	fill = api_kernel("sim_fill");
	from = take();
	to = take();
	for (size_t i = 0; i < sizeof(ring) / sizeof(ring[0]); i++)
		ring[i] = take();
	for (int i = 0; i < options.situation->n_streams; i++)
		CALL(cuStreamCreate, &streams[i], 0);
	CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	if (options.situation->n_streams)
		n_streams = options.situation->n_streams;
	for (int i = 0; i < n_streams; i++) /* also where only events are recorded */
		launch(to, streams[i]);
	for (unsigned long i = 0; i < options.calls; i++) {
		prepare();
		submit(next_stream());
	}
}

static bool
read_arguments(int argc, char **argv)
{
	const char *road = "proc", *name;
	const struct argument arguments[] = {
		{ "road", .text = &road },
		{ "cpu", .integer = &options.cpu },
		{ "rounds", .number = &options.rounds },
		{ "calls", .number = &options.calls },
		{ .name = NULL },
	};

	if (!arguments_read(argc, argv, arguments, &name))
		return false;
	options.road = strcmp(road, "dlsym") ? ROAD_PROC : ROAD_DLSYM;
	while (options.situation->name && strcmp(name, options.situation->name))
		options.situation++;
	return options.situation->name && options.calls;
}

int
main(int argc, char **argv)
{
	if (!read_arguments(argc, argv)) {
		fputs("usage: cost [--road proc|dlsym] [--cpu N] [--rounds N] [--calls N] "
		      "SITUATION\n",
		      stderr);
		for (const struct situation *s = situations; s->name; s++)
			fprintf(stderr, "  %s\n", s->name);
		return 2;
	}
	pin_to(options.cpu);
	set_up();
	printf("{\"situation\": \"%s\", \"calls\": %lu, \"ns_per_call\": [",
	       options.situation->name, options.calls);
	for (unsigned long i = 0; i < options.rounds; i++)
		printf("%s%.2f", i ? ", " : "", (double)round_of_calls() / (double)options.calls);
	printf("]}\n");
	return 0;
}
