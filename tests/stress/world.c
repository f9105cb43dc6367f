/* SPDX-License-Identifier: MIT */
/*
 * Order. A block keeps two sets of slots. `ordered` are the slots known to come after its last
 * write: the writer itself and those that were made to wait since. `users` are the slots that
 * touched it since then (a subset). Reading from a slot outside `ordered` first orders one user,
 * the writer or a reader after it, before that slot; writing first orders every user before it, and
 * then the writer is alone in both sets.
 *
 * That is the whole discipline of the program for live blocks. Nothing is assumed of the legacy
 * stream's implicit order, and nothing is done before a free: there the promise of cuMemFree is
 * under test.
 */
#include "tests/stress/world.h"

#include <stdio.h>
#include <stdlib.h>

void
check_code(CUresult code, const char *what)
{
	if (code == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %d\n", what, (int)code);
	exit(2);
}

/* --------------------------------------------------------------- worlds --- */

static void
stream_create(struct stream *s, struct rng *rng)
{
	unsigned flags = (unsigned)rng_below(rng, 2); /* 1: non-blocking */

	CHECK(cuStreamCreate(&s->handle, flags));
	s->blocking = !flags;
}

static void
stream_open(struct world *world, int slot, int threads, struct rng *rng)
{
	struct stream *s = &world->streams[slot];

	s->blocking = 1;
	s->kind = STREAM_SHARED;
	s->owner = slot % threads;
	if (slot == STREAM_LEGACY)
		return;
	if (slot == 1 && world->n_streams >= 3) {
		s->handle = CU_STREAM_PER_THREAD;
		s->kind = STREAM_PER_THREAD;
		return;
	}
	if (slot % 2)
		s->kind = STREAM_PRIVATE;
	stream_create(s, rng);
}

/* The simulator's, or for a real device those of the file that CACHEALLOC_TEST_KERNELS names. */
static const char *
kernels(void)
{
	static char image[1 << 20];
	const char *path = getenv("CACHEALLOC_TEST_KERNELS");
	FILE *file = path ? fopen(path, "rb") : NULL;

	if (!path)
		return "simcuda";
	if (!file || !fread(image, 1, sizeof(image), file)) {
		perror(path);
		exit(2);
	}
	fclose(file);
	return image;
}

/* OUT_OF_MEMORY, or 0: the context is there in any case. */
static CUresult
open_context(struct world *world, int primary, int threads, struct rng *rng)
{
	void *module;
	CUdevice dev;
	CUresult code;

	CHECK(cuDeviceGet(&dev, world->device));
	CHECK(cuDeviceTotalMem_v2(&world->total_bytes, dev));
	if (primary)
		CHECK(cuDevicePrimaryCtxRetain(&world->ctx, dev));
	else
		CHECK(cuCtxCreate_v2(&world->ctx, 0, dev));
	world_enter(world);
	CHECK(cuModuleLoadData(&module, kernels()));
	CHECK(cuModuleGetFunction(&world->fill, module, "sim_fill"));
	CHECK(cuModuleGetFunction(&world->check, module, "sim_check"));
	CHECK(cuModuleGetFunction(&world->copy, module, "sim_copy"));
	for (int slot = 0; slot < world->n_streams; slot++)
		stream_open(world, slot, threads, rng);
	code = cuMemAlloc_v2(&world->errors, 8);
	if (code == CUDA_ERROR_OUT_OF_MEMORY)
		return code;
	check_code(code, "cuMemAlloc_v2");
	CHECK(cuMemsetD8_v2(world->errors, 0, 8));
	CHECK(cuCtxSynchronize());
	return CUDA_SUCCESS;
}

void
world_open(struct world *world, int device, int primary, int n_streams, int threads,
	   struct rng *rng)
{
	*world = (struct world){ .device = device, .n_streams = n_streams };
	CHECK(open_context(world, primary, threads, rng));
}

int
world_try_open(struct world *world, int device, int n_streams, int threads, struct rng *rng)
{
	*world = (struct world){ .device = device, .n_streams = n_streams };
	if (!open_context(world, 0, threads, rng))
		return 1;
	CHECK(cuCtxDestroy_v2(world->ctx));
	return 0;
}

void
world_enter(const struct world *world)
{
	CHECK(cuCtxSetCurrent(world->ctx));
}

int
world_pick(const struct world *world, int thread, struct rng *rng)
{
	int slot = (int)rng_below(rng, world->n_streams);

	if (world->streams[slot].kind == STREAM_PRIVATE && world->streams[slot].owner != thread)
		slot = STREAM_LEGACY;
	return slot;
}

void
world_order(const struct world *world, int from, const struct world *to_world, int to,
	    struct rng *rng)
{
	CUevent event;
	int way = (int)rng_below(rng, 40);

	if (world == to_world && from == to)
		return;
	world_enter(world);
	if (way == 0) {
		CHECK(cuStreamSynchronize(world->streams[from].handle));
	} else if (way == 1) {
		CHECK(cuCtxSynchronize());
	} else {
		CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		CHECK(cuEventRecord(event, world->streams[from].handle));
		world_enter(to_world);
		if (way == 2)
			CHECK(cuEventSynchronize(event));
		else
			CHECK(cuStreamWaitEvent(to_world->streams[to].handle, event, 0));
		CHECK(cuEventDestroy_v2(event));
	}
	world_enter(to_world);
}

void
world_recreate(struct world *world, int slot, struct rng *rng)
{
	struct stream *s = &world->streams[slot];

	world_enter(world);
	CHECK(cuStreamDestroy_v2(s->handle));
	stream_create(s, rng);
}

/* --------------------------------------------------------------- blocks --- */

static unsigned
bit(int slot)
{
	return 1u << slot;
}

void
block_gather(struct block *b, int slot, struct rng *rng)
{
	for (int from = 0; from < b->world->n_streams; from++)
		if (b->users & bit(from))
			world_order(b->world, from, b->world, slot, rng);
	b->users = b->ordered = bit(slot);
}

void
block_use(struct block *b, int slot, int write, struct rng *rng)
{
	if (write) {
		block_gather(b, slot, rng);
		return;
	}
	if (b->users && !(b->ordered & bit(slot)))
		world_order(b->world, __builtin_ctz(b->users), b->world, slot, rng);
	b->users |= bit(slot);
	b->ordered |= bit(slot);
}

void
block_settle(struct block *b, struct rng *rng)
{
	for (int slot = 0; slot < b->world->n_streams; slot++) {
		if (b->world->streams[slot].kind == STREAM_SHARED)
			continue;
		if (b->users & bit(slot)) {
			world_order(b->world, slot, b->world, STREAM_LEGACY, rng);
			b->users |= bit(STREAM_LEGACY);
			b->ordered |= bit(STREAM_LEGACY);
		}
		b->users &= ~bit(slot);
		b->ordered &= ~bit(slot);
	}
}

static void
launch(const struct world *world, void *kernel, int slot, uint64_t *args, int n_args)
{
	void *params[5];

	for (int i = 0; i < n_args; i++)
		params[i] = &args[i];
	world_enter(world);
	CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, world->streams[slot].handle, params,
			     NULL));
}

void
block_fill(struct block *b, int slot, uint32_t value, size_t start, size_t n_words,
	   unsigned spin_us, struct rng *rng)
{
	uint64_t args[] = { b->ptr + 4 * start, n_words, value, spin_us };

	block_use(b, slot, 1, rng);
	launch(b->world, b->world->fill, slot, args, 4);
	b->value = value;
	b->start = start;
	b->n_words = n_words;
}

void
block_check(struct block *b, int slot, unsigned spin_us, struct rng *rng)
{
	uint64_t args[] = { b->ptr + 4 * b->start, b->n_words, b->value, b->world->errors,
			    spin_us };

	block_use(b, slot, 0, rng);
	launch(b->world, b->world->check, slot, args, 5);
}

void
block_copy(struct block *dst, struct block *src, int slot, unsigned spin_us, struct rng *rng)
{
	size_t room = dst->n_bytes / 4, n = src->n_words < room ? src->n_words : room;
	uint64_t args[] = { dst->ptr, src->ptr + 4 * src->start, n, spin_us };

	block_use(src, slot, 0, rng);
	block_use(dst, slot, 1, rng);
	launch(dst->world, dst->world->copy, slot, args, 4);
	dst->value = src->value;
	dst->start = 0;
	dst->n_words = n;
}
