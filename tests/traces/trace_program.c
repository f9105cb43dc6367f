/* SPDX-License-Identifier: MIT */
/*
 * A plain CUDA driver program whose allocations are those of a recorded trace.
 *
 *   trace_program [--steps N] [--spin-us N] [--check N] FILE.trc
 *
 * The trace is text, one event a line: `I id bytes stream` live at the start, `A id bytes stream`
 * allocate, `F id` free, `P` end of a phase (ids are small numbers). A step plays all of A, F and
 * P. So that steps can follow each other, what a step left allocated is then freed, and what it
 * freed of the blocks that were live at the start is allocated again.
 *
 * Every allocation is followed by a little work on one stream: the block's first and last word are
 * set to a value of its own (cuMemsetD32Async), and with --spin-us (simulator only) a kernel keeps
 * the stream busy for that long. With --check N every Nth freed block is read back first and both
 * words must still be there. Only these words are touched, so that large traces run on a simulated
 * device.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/bind/cuda_abi.h"

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

CUresult cuInit(unsigned int flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t words, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
			unsigned int bx, unsigned int by, unsigned int bz,
			unsigned int shared_bytes, CUstream stream, void **arguments, void **extra);

enum { ID_MAX = 1 << 24 };

struct event {
	char kind; /* I, A, F or P */
	uint32_t id;
	uint64_t bytes; /* of I and A */
};

struct block {
	CUdeviceptr address; /* 0: not allocated */
	uint64_t bytes;
	uint32_t word; /* written to its first and last word */
	bool initial;  /* live at the start of a step */
};

struct program {
	struct event *events;
	size_t events_count;
	struct block *blocks; /* indexed by id */
	size_t blocks_count;
	CUstream stream;
	CUfunction spin; /* NULL: no kernel */
	uint64_t spin_us;
	unsigned int check; /* 0: never */
	uint64_t allocs, frees, checks, live_bytes, peak_bytes, calls_ns;
};

static _Noreturn void
fail(const char *what, long code)
{
	fprintf(stderr, "trace_program: %s: %ld\n", what, code);
	exit(1);
}

#define CHECK(call)                                                                                \
	do {                                                                                       \
		CUresult result_ = (call);                                                         \
		if (result_ != CUDA_SUCCESS)                                                       \
			fail(#call, result_);                                                      \
	} while (0)

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *
grown(void *array, size_t count, size_t size)
{
	void *bigger = realloc(array, count * size);

	if (!bigger)
		fail("realloc", ENOMEM);
	return bigger;
}

/* The next number of a line, after blanks; *line then stands behind it. False: there is none. */
static bool
number_next(char **line, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(*line, &end, 10);
	if (end == *line || errno)
		return false;
	*line = end;
	return true;
}

/* False: the line is not of the trace's form. */
static bool
event_parse(char *line, struct event *ret_event)
{
	uint64_t id = 0;

	*ret_event = (struct event){ .kind = line[0] };
	if (line[0] == 'P')
		return true;
	if (!line[0] || !strchr("IAF", line[0]) || line[1] != ' ')
		return false;
	line++;
	if (!number_next(&line, &id) || id >= ID_MAX)
		return false;
	ret_event->id = (uint32_t)id;
	return ret_event->kind == 'F' ||
	       (number_next(&line, &ret_event->bytes) && ret_event->bytes);
}

static void
trace_read(struct program *program, const char *path)
{
	FILE *file = fopen(path, "r");
	size_t room = 0;
	char line[256];

	if (!file) {
		fprintf(stderr, "trace_program: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	while (fgets(line, sizeof(line), file)) {
		struct event event;

		if (!event_parse(line, &event))
			fail("malformed line", (long)program->events_count + 1);
		if (program->events_count == room) {
			room = room ? 2 * room : 1024;
			program->events = grown(program->events, room, sizeof(event));
		}
		program->events[program->events_count++] = event;
		if (event.id >= program->blocks_count)
			program->blocks_count = (size_t)event.id + 1;
	}
	fclose(file);
	program->blocks = calloc(program->blocks_count + 1, sizeof(*program->blocks));
	if (!program->blocks)
		fail("calloc", ENOMEM);
}

/* The spinning kernel is one of the simulator's: --spin-us fails on a real driver. */
static void
spin_prepare(struct program *program)
{
	CUmodule module;

	if (!program->spin_us)
		return;
	CHECK(cuModuleLoadData(&module, "simcuda"));
	CHECK(cuModuleGetFunction(&program->spin, module, "sim_fill"));
}

static void
block_work(struct program *program, struct block *block)
{
	CUdeviceptr last = block->address + (block->bytes - 4) / 4 * 4;
	uint64_t words = 1, value = block->word;
	void *arguments[] = { &block->address, &words, &value, &program->spin_us };

	if (block->bytes < 4)
		return;
	CHECK(cuMemsetD32Async(block->address, block->word, 1, program->stream));
	CHECK(cuMemsetD32Async(last, block->word, 1, program->stream));
	if (program->spin)
		CHECK(cuLaunchKernel(program->spin, 1, 1, 1, 1, 1, 1, 0, program->stream, arguments,
				     NULL));
}

static void
block_alloc(struct program *program, uint32_t id, uint64_t bytes)
{
	struct block *block = &program->blocks[id];
	uint64_t start;

	if (block->address)
		fail("allocated twice, id", id);
	start = now_ns();
	CHECK(cuMemAlloc_v2(&block->address, bytes));
	program->calls_ns += now_ns() - start;
	block->bytes = bytes;
	block->word = (uint32_t)(++program->allocs * 2654435761u);
	program->live_bytes += bytes;
	if (program->live_bytes > program->peak_bytes)
		program->peak_bytes = program->live_bytes;
	block_work(program, block);
}

static void
block_check(struct program *program, struct block *block)
{
	CUdeviceptr last = block->address + (block->bytes - 4) / 4 * 4;
	uint32_t words[2] = { 0, 0 };

	if (block->bytes < 4)
		return;
	CHECK(cuMemcpyDtoHAsync_v2(&words[0], block->address, 4, program->stream));
	CHECK(cuMemcpyDtoHAsync_v2(&words[1], last, 4, program->stream));
	CHECK(cuStreamSynchronize(program->stream));
	if (words[0] != block->word || words[1] != block->word)
		fail("contents changed, id", block - program->blocks);
	program->checks++;
}

static void
block_free(struct program *program, uint32_t id)
{
	struct block *block = &program->blocks[id];
	uint64_t start;

	if (!block->address)
		fail("freed but not allocated, id", id);
	program->frees++;
	if (program->check && program->frees % program->check == 0)
		block_check(program, block);
	start = now_ns();
	CHECK(cuMemFree_v2(block->address));
	program->calls_ns += now_ns() - start;
	program->live_bytes -= block->bytes;
	block->address = 0;
}

static void
start_play(struct program *program)
{
	for (size_t i = 0; i < program->events_count; i++)
		if (program->events[i].kind == 'I') {
			block_alloc(program, program->events[i].id, program->events[i].bytes);
			program->blocks[program->events[i].id].initial = true;
		}
}

static void
step_play(struct program *program)
{
	for (size_t i = 0; i < program->events_count; i++) {
		const struct event *event = &program->events[i];

		if (event->kind == 'A')
			block_alloc(program, event->id, event->bytes);
		else if (event->kind == 'F')
			block_free(program, event->id);
		else if (event->kind == 'P')
			CHECK(cuStreamSynchronize(program->stream));
	}
	for (size_t i = 0; i < program->blocks_count; i++)
		if (program->blocks[i].address && !program->blocks[i].initial)
			block_free(program, (uint32_t)i);
	for (size_t i = 0; i < program->blocks_count; i++)
		if (program->blocks[i].initial && !program->blocks[i].address)
			block_alloc(program, (uint32_t)i, program->blocks[i].bytes);
}

static uint64_t
number(const char *text)
{
	char *end;
	unsigned long long value = strtoull(text ? text : "", &end, 10);

	if (!text || end == text || *end)
		fail("expected a number", 0);
	return value;
}

int
main(int argc, char **argv)
{
	struct program program = { 0 };
	uint64_t steps = 1;
	CUdevice device;
	CUcontext context;
	int at = 1;

	for (; at + 1 < argc && !strncmp(argv[at], "--", 2); at += 2) {
		if (!strcmp(argv[at], "--steps"))
			steps = number(argv[at + 1]);
		else if (!strcmp(argv[at], "--spin-us"))
			program.spin_us = number(argv[at + 1]);
		else if (!strcmp(argv[at], "--check"))
			program.check = (unsigned int)number(argv[at + 1]);
		else
			break;
	}
	if (at + 1 != argc) {
		fprintf(stderr,
			"usage: trace_program [--steps N] [--spin-us N] [--check N] FILE.trc\n");
		return 2;
	}
	trace_read(&program, argv[at]);
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&program.stream, 1));
	spin_prepare(&program);
	start_play(&program);
	for (uint64_t step = 0; step < steps; step++)
		step_play(&program);
	CHECK(cuStreamSynchronize(program.stream));
	for (size_t i = 0; i < program.blocks_count; i++)
		if (program.blocks[i].address)
			block_free(&program, (uint32_t)i);
	CHECK(cuStreamDestroy_v2(program.stream));
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	printf("allocs %llu frees %llu checks %llu peak_live_bytes %llu calls_ns %llu\n",
	       (unsigned long long)program.allocs, (unsigned long long)program.frees,
	       (unsigned long long)program.checks, (unsigned long long)program.peak_bytes,
	       (unsigned long long)program.calls_ns);
	free(program.events);
	free(program.blocks);
	return 0;
}
