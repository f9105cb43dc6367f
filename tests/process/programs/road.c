/* SPDX-License-Identifier: MIT */
/*
 * A ring of live blocks: step i frees the block in slot i % LIVE and allocates a new one there.
 * Each new block must be aligned to 256 bytes and apart from every live one, which is what a
 * program may rely on.
 */
#include "tests/process/programs/road.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	LIVE = 4,
};

struct block {
	unsigned long long ptr; /* 0: empty slot */
	size_t n_bytes;
};

static int
fail(const char *what, int code)
{
	fprintf(stderr, "%s: %d\n", what, code);
	return 1;
}

static int
block_check(const struct block *ring, const struct block *b)
{
	if (b->ptr == 0 || b->ptr % 256)
		return fail("misaligned pointer", (int)(b->ptr % 256));
	for (int i = 0; i < LIVE; i++)
		if (ring[i].ptr && &ring[i] != b && b->ptr < ring[i].ptr + ring[i].n_bytes &&
		    ring[i].ptr < b->ptr + b->n_bytes)
			return fail("two live blocks overlap", i);
	return 0;
}

static int
set_up(const struct road *road)
{
	void *ctx;
	int code, device;

	if (!road->init)
		return 0;
	if ((code = road->init(0)))
		return fail("cuInit", code);
	if ((code = road->device_get(&device, 0)))
		return fail("cuDeviceGet", code);
	if ((code = road->primary_retain(&ctx, device)))
		return fail("cuDevicePrimaryCtxRetain", code);
	if ((code = road->set_current(ctx)))
		return fail("cuCtxSetCurrent", code);
	return 0;
}

static int
slot_empty(const struct road *road, struct block *b)
{
	int code = b->ptr ? road->free(b->ptr) : 0;

	b->ptr = 0;
	return code ? fail("free", code) : 0;
}

int
road_walk(int argc, char **argv, const struct road *road)
{
	static const size_t mix[] = { 512, 4096, 1 << 20, 3 << 20, 1, 100000 };
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	struct block ring[LIVE] = { { 0, 0 } };
	int code;

	if (n <= 0) {
		fprintf(stderr, "usage: %s N [SIZE...]\n", argv[0]);
		return 2;
	}
	if (set_up(road))
		return 1;
	for (long i = 0; i < n; i++) {
		struct block *b = &ring[i % LIVE];

		if (slot_empty(road, b))
			return 1;
		b->n_bytes = argc > 2 ? strtoull(argv[2 + i % (argc - 2)], NULL, 10)
				      : mix[i % (long)(sizeof(mix) / sizeof(mix[0]))];
		if ((code = road->alloc(&b->ptr, b->n_bytes)))
			return fail("alloc", code);
		if (block_check(ring, b))
			return 1;
	}
	for (int i = 0; i < LIVE; i++)
		if (slot_empty(road, &ring[i]))
			return 1;
	return 0;
}

int
road_walk_found(int argc, char **argv, road_find_fn *find)
{
	struct road road;

	*(void **)&road.init = find("cuInit", "cuInit", 2000);
	*(void **)&road.device_get = find("cuDeviceGet", "cuDeviceGet", 2000);
	*(void **)&road.primary_retain =
		find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000);
	*(void **)&road.set_current = find("cuCtxSetCurrent", "cuCtxSetCurrent", 4000);
	*(void **)&road.alloc = find("cuMemAlloc", "cuMemAlloc_v2", 3020);
	*(void **)&road.free = find("cuMemFree", "cuMemFree_v2", 3020);
	if (!road.init || !road.device_get || !road.primary_retain || !road.set_current ||
	    !road.alloc || !road.free)
		return fail("an entry point was not found", 0);
	return road_walk(argc, argv, &road);
}
