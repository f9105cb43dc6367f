/* SPDX-License-Identifier: MIT */
/*
 * A program that survives an error from any driver call: what fails is skipped, what succeeded must
 * be right.
 *
 * It allocates, fills, copies, reads back and frees on two streams, in a capture, and in a second
 * context that dies. Whatever memory it was given and could use holds what was put there; every
 * free that failed is tried again; in the end everything is free, and with the preload trimming
 * leaves nothing reserved.
 *
 *     fault_program [OPERATIONS]
 *
 * Exit 0 all right; 1 wrong contents; 3 memory lost; 4 the first calls (cuInit, context) failed for
 * good.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/process/driver_api.h"

enum { LIVE_MAX = 12, WORDS_CHECKED = 64 };

struct live {
	CUdeviceptr pointer;
	uint64_t words;
	uint32_t value;
	bool filled;
};

static struct live live[LIVE_MAX];
static CUstream streams[2];
static void *fill;
static unsigned long wrong;
static uint64_t state = 42;

static uint64_t
next_random(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void
take(struct live *one, CUstream stream)
{
	static const uint64_t words[] = { 1, 100, 1000, 30000, 300000, 1500000 };
	uint64_t spin_us = 20;

	one->words = words[next_random() % 6];
	if (cuMemAlloc_v2(&one->pointer, one->words * 4)) {
		one->pointer = 0;
		return;
	}
	uint64_t n = one->words < WORDS_CHECKED ? one->words : WORDS_CHECKED;
	uint64_t value = one->value = (uint32_t)next_random();
	void *args[] = { &one->pointer, &n, &value, &spin_us };

	one->filled = fill && !cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

static void
check(struct live *one, CUstream stream)
{
	uint64_t n = one->words < WORDS_CHECKED ? one->words : WORDS_CHECKED;
	uint32_t copy[WORDS_CHECKED];

	if (!one->pointer || !one->filled || cuStreamSynchronize(stream) ||
	    cuMemcpyDtoH_v2(copy, one->pointer, n * 4))
		return;
	for (uint64_t i = 0; i < n; i++)
		wrong += copy[i] != one->value;
}

/* Some frees are refused (an injected error):
 * the memory is still there, and a later free succeeds. */
static void
put(struct live *one)
{
	for (int i = 0; i < 3 && one->pointer; i++)
		if (!cuMemFree_v2(one->pointer))
			one->pointer = 0;
}

static void
work(unsigned operations)
{
	for (unsigned i = 0; i < operations; i++) {
		unsigned slot = (unsigned)(next_random() % LIVE_MAX);
		CUstream stream = streams[slot % 2];

		if (live[slot].pointer) {
			if (next_random() % 2)
				check(&live[slot], stream);
			put(&live[slot]);
		} else {
			take(&live[slot], stream);
		}
	}
}

static void
capture(void)
{
	CUdeviceptr pointer = 0;
	CUgraph graph = NULL;

	if (cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED))
		return;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!cuThreadExchangeStreamCaptureMode(&mode)) {
		if (!cuMemAlloc_v2(&pointer, 5000))
			for (int i = 0; i < 3 && pointer; i++)
				if (!cuMemFree_v2(pointer))
					pointer = 0;
		for (int i = 0; i < 3 && cuThreadExchangeStreamCaptureMode(&mode); i++)
			;
	}
	for (int i = 0; i < 3 && cuStreamEndCapture(streams[0], &graph); i++)
		;
	for (int i = 0; graph && i < 3 && cuGraphDestroy(graph); i++)
		; /* memory of a graph's capture is kept as long as the graph */
	for (int i = 0; i < 3 && pointer; i++)
		if (!cuMemFree_v2(pointer))
			pointer = 0;
}

static void
second_context(CUcontext first)
{
	CUdeviceptr pointer;
	CUcontext second;

	if (cuCtxCreate_v2(&second, 0, 0))
		return;
	for (int i = 0; i < 4; i++)
		if (!cuMemAlloc_v2(&pointer, 70000) && i % 2)
			cuMemFree_v2(pointer);
	for (int i = 0; i < 3 && cuCtxDestroy_v2(second); i++)
		;
	for (int i = 0; i < 3 && cuCtxSetCurrent(first); i++)
		;
}

static int
leave(size_t total)
{
	uint64_t (*trim)(uint64_t);
	size_t free_bytes = 0, now_total = 0;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "cachealloc_trim");
	/* the driver tells in its own time that a graph is gone */
	for (int i = 0; i < 500; i++) {
		if (i > 2)
			usleep(2000);
		for (int s = 0; s < LIVE_MAX; s++)
			put(&live[s]);
		cuCtxSynchronize();
		if (trim)
			trim(0);
		if (!cuMemGetInfo_v2(&free_bytes, &now_total) && free_bytes == total)
			break;
	}
	if (wrong)
		fprintf(stderr, "%lu wrong words\n", wrong);
	if (free_bytes != total)
		fprintf(stderr, "%zu bytes lost\n", total - free_bytes);
	return wrong ? 1 : (free_bytes == total ? 0 : 3);
}

int
main(int argc, char **argv)
{
	unsigned operations = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
	size_t free_bytes, total;
	CUcontext context = NULL;
	void *module = NULL;
	int tries;

	for (tries = 0; tries < 3 && cuInit(0); tries++)
		;
	for (tries = 0; tries < 3 && cuDevicePrimaryCtxRetain(&context, 0); tries++)
		;
	for (tries = 0; tries < 3 && cuCtxSetCurrent(context); tries++)
		;
	for (tries = 0; tries < 3 && cuMemGetInfo_v2(&free_bytes, &total); tries++)
		;
	if (tries == 3)
		return 4;
	for (int i = 0; i < 2; i++)
		if (cuStreamCreate(&streams[i], 1))
			streams[i] = NULL;
	if (cuModuleLoadData(&module, "simcuda") || cuModuleGetFunction(&fill, module, "sim_fill"))
		fill = NULL;
	work(operations / 2);
	capture();
	second_context(context);
	work(operations / 2);
	for (int s = 0; s < LIVE_MAX; s++)
		check(&live[s], streams[s % 2]);
	return leave(free_bytes);
}
