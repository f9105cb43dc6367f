/* SPDX-License-Identifier: MIT */
/*
 * trace_player async|sync STEPS SPIN_US FILE.trc: the allocations of a recorded trace, step by
 * step, through the model of PyTorch's backend (backend.h), or by cuMemAlloc and cuMemFree.
 *
 * Each allocation is followed by a kernel on its stream that writes to the block and takes SPIN_US,
 * so that the device lags behind. A step plays all of A, F, U and P; then what it left is freed,
 * and what it freed of the blocks that were live at the start is allocated again (trace_program.c
 * of tests/traces). Every step ends with a synchronisation, as a training step does that reads its
 * loss.
 *
 * Prints what the simulator has counted, as JSON: a line after the second step, a line after the
 * last, and a line of what the program itself has done.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/process/pool_model/backend.h"
#include "tests/traces/models/trace.h"

enum { STREAMS_MAX = 8, SETTLED_AFTER = 2 };

struct block {
	CUdeviceptr ptr; /* 0: not allocated */
	uint64_t n_bytes;
	uint32_t stream;
	bool initial; /* live at the start of a step */
};

static struct trace trace;
static struct block *blocks; /* by id */
static CUstream streams[STREAMS_MAX];
static void *fill;
static bool async;
static uint64_t spin_us, live_bytes, peak_bytes;
static unsigned long allocs, frees, syncs;

static void
check(int code, const char *what)
{
	if (!code)
		return;
	fprintf(stderr, "trace_player: %s: %d\n", what, code);
	exit(1);
}
#define CHECK(call) check((int)(call), #call)

/* A program has the streams that it uses, and no others. */
static CUstream
stream_of(uint32_t number)
{
	CUstream *s = &streams[number % STREAMS_MAX];

	if (!*s)
		CHECK(cuStreamCreate(s, 1));
	return *s;
}

static void
block_alloc(uint32_t id, uint64_t n_bytes, uint32_t stream)
{
	struct block *b = &blocks[id];
	uint64_t words = n_bytes < 4 ? 0 : 1, value = id, spin = spin_us;
	void *args[] = { &b->ptr, &words, &value, &spin };
	CUstream s = stream_of(stream);

	if (async)
		CHECK(backend_malloc(&b->ptr, 0, n_bytes, s));
	else
		CHECK(cuMemAlloc_v2(&b->ptr, n_bytes));
	b->n_bytes = n_bytes;
	b->stream = stream;
	allocs++;
	live_bytes += n_bytes;
	if (live_bytes > peak_bytes)
		peak_bytes = live_bytes;
	CHECK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
}

static void
block_free(uint32_t id)
{
	struct block *b = &blocks[id];

	if (async)
		CHECK(backend_free(b->ptr));
	else
		CHECK(cuMemFree_v2(b->ptr));
	frees++;
	live_bytes -= b->n_bytes;
	b->ptr = 0;
}

/* The other stream comes after what the block's own was given. */
static void
block_use(uint32_t id, uint32_t stream)
{
	CUstream s = stream_of(stream);
	CUevent event;

	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(event, stream_of(blocks[id].stream)));
	CHECK(cuStreamWaitEvent(s, event, 0));
	CHECK(cuEventDestroy_v2(event));
	if (async)
		CHECK(backend_record_stream(blocks[id].ptr, s, 0));
}

static void
synchronize(void)
{
	CHECK(cuCtxSynchronize());
	syncs++;
}

static void
step_play(void)
{
	for (size_t i = 0; i < trace.n_events; i++) {
		const struct trace_event *event = &trace.events[i];

		if (event->kind == 'A')
			block_alloc(event->id, event->bytes, event->stream);
		else if (event->kind == 'F')
			block_free(event->id);
		else if (event->kind == 'U')
			block_use(event->id, event->stream);
		else if (event->kind == 'P')
			synchronize();
	}
	for (uint32_t id = 0; id < trace.n_ids; id++)
		if (blocks[id].ptr && !blocks[id].initial)
			block_free(id);
	for (uint32_t id = 0; id < trace.n_ids; id++)
		if (blocks[id].initial && !blocks[id].ptr)
			block_alloc(id, blocks[id].n_bytes, blocks[id].stream);
	synchronize();
}

static void
start_play(void)
{
	for (size_t i = 0; i < trace.n_events; i++) {
		if (trace.events[i].kind != 'I')
			continue;
		block_alloc(trace.events[i].id, trace.events[i].bytes, trace.events[i].stream);
		blocks[trace.events[i].id].initial = true;
	}
}

static void
print_counts(void)
{
	static char text[1 << 16];
	size_t (*stats)(char *, size_t);

	*(void **)&stats = dlsym(RTLD_DEFAULT, "simcuda_stats");
	if (!stats || stats(text, sizeof(text)) >= sizeof(text))
		check(1, "no counts of the simulator's");
	text[strcspn(text, "\n")] = 0;
	puts(text);
}

static void
set_up(const char *path)
{
	CUcontext ctx;
	void *module;

	if (trace_read(path, &trace))
		exit(1);
	blocks = calloc(trace.n_ids + 1, sizeof(*blocks));
	if (!blocks)
		check(1, "calloc");
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, 0));
	CHECK(cuCtxSetCurrent(ctx));
	CHECK(cuModuleLoadData(&module, "simcuda"));
	CHECK(cuModuleGetFunction(&fill, module, "sim_fill"));
	if (async)
		backend_open(&ctx, 1, true);
}

static void
tear_down(void)
{
	for (uint32_t id = 0; id < trace.n_ids; id++)
		if (blocks[id].ptr)
			block_free(id);
	CHECK(cuCtxSynchronize());
	free(trace.events);
	free(blocks);
}

int
main(int argc, char **argv)
{
	long steps = argc == 5 ? strtol(argv[2], NULL, 10) : 0;

	if (steps <= SETTLED_AFTER || (strcmp(argv[1], "async") && strcmp(argv[1], "sync"))) {
		fprintf(stderr, "usage: %s async|sync STEPS(3-) SPIN_US FILE.trc\n", argv[0]);
		return 2;
	}
	async = !strcmp(argv[1], "async");
	spin_us = strtoull(argv[3], NULL, 10);
	set_up(argv[4]);
	start_play();
	for (long step = 1; step <= steps; step++) {
		step_play();
		if (step == SETTLED_AFTER) {
			print_counts();
			syncs = 0;
		}
	}
	print_counts();
	printf("{\"allocs\": %lu, \"frees\": %lu, \"syncs\": %lu, \"peak_live_bytes\": %llu}\n",
	       allocs, frees, syncs, (unsigned long long)peak_bytes);
	tear_down();
	return 0;
}
