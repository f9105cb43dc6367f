/* SPDX-License-Identifier: MIT */
/*
 * Memory by every road, freed by either. The order that a correct program needs: cuMemFreeAsync
 * comes after all use in its stream, whatever it frees; cuMemFree of told memory comes after all
 * use has been seen finished by the host, since it waits for nothing; cuMemFree of cuMemAlloc's
 * memory comes whenever it likes.
 */
#include "tests/stress/async/async.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/stress/ranges.h"

enum {
	PALETTE = 6, /* sizes that come again and again */
	FREED_MAX = 1 << 12,
};

/* ------------------------------------------------------------------ reuse --- */
/* Where memory that starts at an address was freed last; collisions forget. */
static struct freed {
	CUdeviceptr ptr;
	CUstream stream; /* NULL: by the host */
	int known;
} freed[FREED_MAX];
static pthread_mutex_t freed_lock = PTHREAD_MUTEX_INITIALIZER; /* guards it */

static struct freed *
freed_at(CUdeviceptr ptr)
{
	return &freed[(ptr >> 9) * 0x9e3779b97f4a7c15ull >> 52];
}

static void
note_freed(CUdeviceptr ptr, CUstream stream)
{
	pthread_mutex_lock(&freed_lock);
	*freed_at(ptr) = (struct freed){ .ptr = ptr, .stream = stream, .known = 1 };
	pthread_mutex_unlock(&freed_lock);
}

static void
note_taken(CUdeviceptr ptr, CUstream stream)
{
	struct freed *at = freed_at(ptr);

	pthread_mutex_lock(&freed_lock);
	if (at->known && at->ptr == ptr) {
		if (at->stream == stream)
			counts.reused_on_same_stream++;
		else
			counts.reused_on_other_stream++;
		at->known = 0;
	}
	pthread_mutex_unlock(&freed_lock);
}

/* ------------------------------------------------------------------- take --- */
size_t
memory_size(struct worker *w)
{
	static size_t palette[PALETTE];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	size_t n = (size_t)1 << rng_below(&w->rng, 27), *at = &palette[rng_below(&w->rng, PALETTE)];

	n += rng_below(&w->rng, n);
	if (n > size_max)
		n = size_max;
	pthread_mutex_lock(&lock);
	if (!*at)
		*at = n;
	if (rng_below(&w->rng, 4))
		n = *at;
	pthread_mutex_unlock(&lock);
	return n;
}

void
memory_make_room(struct worker *w, size_t n_bytes)
{
	while (w->n_blocks && (w->n_blocks == BLOCKS_MAX || w->live_bytes + n_bytes > budget_bytes))
		memory_free_some(w, 1);
}

struct block *
memory_enter(struct worker *w, const struct block *block)
{
	range_add(block->ptr, block->n_bytes);
	w->live_bytes += block->n_bytes;
	w->blocks[w->n_blocks++] = *block;
	return &w->blocks[w->n_blocks - 1];
}

/* In one of the flavours that mean the slot's stream; the world is current. */
static CUresult
take_current(struct worker *w, struct block *b, int slot)
{
	CUstream s = b->world->streams[slot].handle;

	counts.async_allocs++;
	if (s == CU_STREAM_PER_THREAD && chance(w, 2))
		return cuMemAllocAsync_ptsz(&b->ptr, b->n_bytes, NULL);
	if (s && chance(w, 2))
		return cuMemAllocAsync_ptsz(&b->ptr, b->n_bytes, s);
	return cuMemAllocAsync(&b->ptr, b->n_bytes, s);
}

static CUresult
take_from(struct worker *w, struct block *b, int slot, CUmemoryPool pool)
{
	CUstream s = b->world->streams[slot].handle;

	counts.pool_allocs++;
	if (s == CU_STREAM_PER_THREAD && chance(w, 2))
		return calls.cuMemAllocFromPoolAsync_ptsz(&b->ptr, b->n_bytes, pool, NULL);
	return calls.cuMemAllocFromPoolAsync(&b->ptr, b->n_bytes, pool, s);
}

/* A pool's device may be another one than the stream's. */
static CUresult
take_told(struct worker *w, struct block *b)
{
	int slot = world_pick(b->world, w->index, &w->rng), device = b->world->device;
	CUmemoryPool pool;
	CUresult code;

	b->road = chance(w, 2) ? ROAD_ASYNC : ROAD_POOL;
	if (b->road == ROAD_POOL && chance(w, 8))
		device = (int)rng_below(&w->rng, n_devices);
	pools_pick(w, device, b->road == ROAD_ASYNC, &pool, &b->pool);
	code = b->road == ROAD_ASYNC ? take_current(w, b, slot) : take_from(w, b, slot, pool);
	pools_release(device, b->pool, code ? 0 : b->n_bytes);
	b->users = b->ordered = 1u << slot;
	if (!code)
		note_taken(b->ptr, b->world->streams[slot].handle);
	return code;
}

static struct block *
take(struct worker *w, struct world *world, size_t n_bytes, int told)
{
	struct block b = { .world = world, .n_bytes = n_bytes };
	CUresult code;

	memory_make_room(w, n_bytes);
	world_enter(world);
	if (told) {
		code = take_told(w, &b);
	} else {
		counts.plain_allocs++;
		code = cuMemAlloc_v2(&b.ptr, n_bytes);
	}
	if (code == CUDA_ERROR_OUT_OF_MEMORY) {
		counts.ooms++;
		return NULL;
	}
	check_code(code, "an allocation");
	return memory_enter(w, &b);
}

struct block *
memory_take(struct worker *w, struct world *world, size_t n_bytes)
{
	return take(w, world, n_bytes, !chance(w, 4));
}

struct block *
memory_take_told(struct worker *w, struct world *world, size_t n_bytes)
{
	return take(w, world, n_bytes, 1);
}

/* ------------------------------------------------------------------- free --- */
/* The legacy stream comes after its users without an event. */
static int
legacy_follows(const struct block *b)
{
	for (int slot = 0; slot < b->world->n_streams; slot++)
		if ((b->users & (1u << slot)) && !b->world->streams[slot].blocking)
			return 0;
	return 1;
}

static void
free_in_stream(struct worker *w, struct block *b)
{
	int slot = world_pick(b->world, w->index, &w->rng);
	CUstream s = b->world->streams[slot].handle;

	if (slot == STREAM_LEGACY && legacy_follows(b))
		counts.freed_by_the_barrier += (b->users & ~1u) != 0;
	else
		block_gather(b, slot, &w->rng);
	world_enter(b->world);
	range_remove(b->ptr);
	note_freed(b->ptr, s);
	if (s == CU_STREAM_PER_THREAD && chance(w, 2))
		CHECK(cuMemFreeAsync_ptsz(b->ptr, NULL));
	else
		CHECK(cuMemFreeAsync(b->ptr, s));
}

/* Told memory that the host frees: nobody waits but the program. */
static void
await_users(struct block *b)
{
	world_enter(b->world);
	for (int slot = 0; slot < b->world->n_streams; slot++)
		if (b->users & (1u << slot))
			CHECK(cuStreamSynchronize(b->world->streams[slot].handle));
}

static void
free_by_host(struct worker *w, struct block *b)
{
	if (b->road != ROAD_PLAIN)
		await_users(b);
	/* Freeing needs no particular context. */
	world_enter(chance(w, 4) ? &worlds[rng_below(&w->rng, n_worlds)] : b->world);
	range_remove(b->ptr);
	note_freed(b->ptr, NULL);
	CHECK(cuMemFree_v2(b->ptr));
}

/* Long work on it, on one or several streams, and no wait of the host for any of it. */
static void
work_before_free(struct worker *w, struct block *b)
{
	for (int n = (int)rng_below(&w->rng, 3); n >= 0; n--)
		block_check(b, world_pick(b->world, w->index, &w->rng),
			    (unsigned)rng_below(&w->rng, 3000), &w->rng);
	if (chance(w, 4))
		worker_touch(w, b, world_pick(b->world, w->index, &w->rng));
}

void
memory_free(struct worker *w, int i)
{
	struct block b = w->blocks[i];
	int told = b.road != ROAD_PLAIN, async = told ? !chance(w, 8) : chance(w, 3);

	if (b.n_words && rng_below(&w->rng, 3))
		work_before_free(w, &b);
	worker_drop(w, i);
	if (async)
		free_in_stream(w, &b);
	else
		free_by_host(w, &b);
	pools_freed(b.pool, b.n_bytes);
	if (told)
		*(async ? &counts.told_async_frees : &counts.told_host_frees) += 1;
	else
		*(async ? &counts.plain_async_frees : &counts.plain_frees) += 1;
}

void
memory_free_some(struct worker *w, int n)
{
	while (n-- > 0 && w->n_blocks)
		memory_free(w, (int)rng_below(&w->rng, w->n_blocks));
}

/* ------------------------------------------------------------------- move --- */
void
memory_move(struct worker *w, struct block *b, struct world *to)
{
	int from = world_pick(b->world, w->index, &w->rng);
	int slot = world_pick(to, w->index, &w->rng);

	if (b->world == to || b->road == ROAD_PLAIN)
		return;
	block_gather(b, from, &w->rng);
	world_order(b->world, from, to, slot, &w->rng);
	if (b->world->device == to->device)
		counts.moved_to_other_context++;
	else
		counts.moved_to_other_device++;
	b->world = to;
	b->users = b->ordered = 1u << slot;
}
