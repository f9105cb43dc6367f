/* SPDX-License-Identifier: MIT */
/*
 * random_program SEED OPERATIONS STREAMS THREADS DEVICES: a random CUDA program with known
 * contents.
 *
 * Threads allocate, fill, check, copy and free blocks on several streams, contexts and devices, and
 * hand blocks to each other. Live blocks are ordered by events, waits and synchronisation of the
 * program's own (world.c); frees are not: a block is freed while kernels still read and write it,
 * often right after their launch, because cuMemFree promises that its memory is not given out again
 * before that work is done. So the program has no race on a driver that keeps the promise, and an
 * allocator under it that breaks the promise shows: sim_check counts words that another life of the
 * same memory has overwritten, the host compares what it copies back, two live blocks must never
 * overlap, and the simulator's race oracle (SIMCUDA_RACES=abort) sees the missing order even when
 * the contents happen to survive.
 *
 * Out of memory is no error: the thread frees some blocks and goes on. One line is printed at the
 * end. Exit status: 0; 1 contents or overlap; 2 usage or an unexpected driver error. With one
 * thread the run is the same every time.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/stress/mailbox.h"
#include "tests/stress/ranges.h"
#include "tests/stress/worker.h"

enum {
	WORLDS_MAX = 5,
	PALETTE = 6, /* sizes that come again and again */
};

static struct world worlds[WORLDS_MAX];
static int n_worlds, n_threads;
static struct worker workers[THREADS_MAX];
static size_t palette[PALETTE], size_max, budget_bytes; /* budget: live bytes of one thread */

/* ---------------------------------------------------------------- sizes --- */

/* 1 .. size_max, every power of two equally likely. */
static size_t
size_any(struct rng *rng)
{
	size_t n = (size_t)1 << rng_below(rng, 27);

	n += rng_below(rng, n);
	return n < size_max ? n : size_max;
}

static size_t
size_pick(struct rng *rng)
{
	return rng_below(rng, 4) ? palette[rng_below(rng, PALETTE)] : size_any(rng);
}

/* ----------------------------------------------------------- operations --- */

static void
op_free(struct worker *w, int i)
{
	struct block b = w->blocks[i];
	int slot = world_pick(b.world, w->index, &w->rng);
	int async = rng_below(&w->rng, 8) == 0;

	/* The hard case: long work on it, on one or several streams, and no wait for any of it. */
	if (b.n_words && rng_below(&w->rng, 3)) {
		for (int n = (int)rng_below(&w->rng, 3); n >= 0; n--)
			block_check(&b, world_pick(b.world, w->index, &w->rng),
				    (unsigned)rng_below(&w->rng, 3000), &w->rng);
		if (rng_below(&w->rng, 4) == 0)
			worker_touch(w, &b, slot);
	}
	if (async)
		block_gather(&b, slot, &w->rng);
	/* Freeing needs no particular context. */
	world_enter(rng_below(&w->rng, 4) && !async ? &worlds[rng_below(&w->rng, n_worlds)]
						    : b.world);
	range_remove(b.ptr);
	if (async)
		CHECK(cuMemFreeAsync(b.ptr, b.world->streams[slot].handle));
	else
		CHECK(cuMemFree_v2(b.ptr));
	w->tally.frees++;
	worker_drop(w, i);
}

static void
free_some(struct worker *w, int n)
{
	while (n-- > 0 && w->n_blocks)
		op_free(w, (int)rng_below(&w->rng, w->n_blocks));
}

/* A block in the world, appended to the thread's; NULL: out of memory. */
static struct block *
block_alloc(struct worker *w, struct world *world, size_t n_bytes)
{
	struct block b = { .world = world, .n_bytes = n_bytes };
	CUresult code;

	while (w->n_blocks && (w->n_blocks == BLOCKS_MAX || w->live_bytes + n_bytes > budget_bytes))
		free_some(w, 1);
	world_enter(world);
	code = cuMemAlloc_v2(&b.ptr, n_bytes);
	if (code == CUDA_ERROR_OUT_OF_MEMORY) {
		w->tally.ooms++;
		return NULL;
	}
	check_code(code, "cuMemAlloc_v2");
	range_add(b.ptr, n_bytes);
	w->tally.allocs++;
	w->live_bytes += n_bytes;
	w->blocks[w->n_blocks++] = b;
	return &w->blocks[w->n_blocks - 1];
}

static void
op_alloc(struct worker *w)
{
	struct world *world = &worlds[rng_below(&w->rng, n_worlds)];
	struct block *b = block_alloc(w, world, size_pick(&w->rng));

	if (!b) {
		free_some(w, 4);
		return;
	}
	if (b->n_bytes < 4)
		worker_set(w, b);
	else if (rng_below(&w->rng, 4) == 0)
		worker_write(w, b);
	else
		worker_touch(w, b, world_pick(world, w->index, &w->rng));
}

/*
 * Another context copies from the block, and then the block is freed: what the copy's stream did is
 * ordered before a stream of the block's own context, by an event, and the free waits for that one.
 */
static void
op_cross(struct worker *w, int i)
{
	struct world *world = &worlds[rng_below(&w->rng, n_worlds)];
	struct block from = w->blocks[i], *to;
	int slot = world_pick(world, w->index, &w->rng), back;

	if (world == from.world || from.n_words == 0 || w->n_blocks == BLOCKS_MAX ||
	    w->live_bytes + from.n_bytes > budget_bytes)
		return;
	to = block_alloc(w, world, from.n_bytes);
	if (!to)
		return;
	world_order(from.world, __builtin_ctz(from.users), world, slot, &w->rng);
	CHECK(cuMemcpyPeerAsync(to->ptr + 4 * from.start, world->ctx, from.ptr + 4 * from.start,
				from.world->ctx, 4 * from.n_words, world->streams[slot].handle));
	to->users = to->ordered = 1u << slot;
	to->value = from.value;
	to->start = from.start;
	to->n_words = from.n_words;
	back = world_pick(from.world, w->index, &w->rng);
	world_order(world, slot, from.world, back, &w->rng);
	block_use(&w->blocks[i], back, 0, &w->rng);
	op_free(w, i);
}

/* Takes one block out of the mailbox, mostly to free it at once, while its giver's kernels run. */
static void
op_take(struct worker *w)
{
	if (mailbox_take(w) && rng_below(&w->rng, 4))
		op_free(w, w->n_blocks - 1);
}

static void
op_any(struct worker *w)
{
	int dice = (int)rng_below(&w->rng, 100), i;

	if (dice < 34 || !w->n_blocks) {
		op_alloc(w);
		return;
	}
	i = (int)rng_below(&w->rng, w->n_blocks);
	if (dice < 60)
		worker_launch(w, &w->blocks[i]);
	else if (dice < 84)
		op_free(w, i);
	else if (dice < 87 && w->blocks[i].n_words)
		worker_read_back(w, &w->blocks[i]);
	else if (dice < 90)
		worker_set(w, &w->blocks[i]);
	else if (dice < 93 && n_worlds > 1)
		op_cross(w, i);
	else if (dice < 96 && n_threads > 1)
		mailbox_pass(w, i, n_threads);
	else if (dice < 98)
		worker_recreate(w, &worlds[rng_below(&w->rng, n_worlds)]);
	else if (dice < 99)
		free_some(w, w->n_blocks); /* everything at once */
	if (n_threads > 1)
		op_take(w);
}

/* --------------------------------------------------------------- frame --- */

static void *
worker_main(void *arg)
{
	struct worker *w = arg;

	for (long i = 0; i < w->operations; i++)
		op_any(w);
	return NULL;
}

/* Compares and frees what is left; all work is done by then. */
static void
worker_finish(struct worker *w)
{
	for (int i = 0; i < w->n_blocks; i++)
		w->blocks[i].users = w->blocks[i].ordered = 0;
	while (w->n_blocks) {
		if (w->blocks[0].n_words)
			worker_read_back(w, &w->blocks[0]);
		world_enter(w->blocks[0].world);
		CHECK(cuMemFree_v2(w->blocks[0].ptr));
		worker_drop(w, 0);
	}
}

static void
set_up(uint64_t seed, long operations, int streams, int devices)
{
	struct rng rng = { seed };

	CHECK(cuInit(0));
	for (int d = 0; d < devices; d++)
		world_open(&worlds[n_worlds++], d, 1, streams, n_threads, &rng);
	if (rng_below(&rng, 2))
		world_open(&worlds[n_worlds++], 0, 0, 1 + (int)rng_below(&rng, streams), n_threads,
			   &rng);
	budget_bytes = worlds[0].total_bytes / 20 * 19 / n_threads;
	size_max = (size_t)64 << 20;
	if (size_max > budget_bytes / 4)
		size_max = budget_bytes / 4;
	for (int i = 0; i < PALETTE; i++)
		palette[i] = size_any(&rng);
	for (int t = 0; t < n_threads; t++) {
		workers[t] = (struct worker){ .index = t, .operations = operations / n_threads };
		workers[t].rng.state = rng_next(&rng);
	}
}

static void
run_all(void)
{
	pthread_t threads[THREADS_MAX] = { 0 };

	for (int t = 1; t < n_threads; t++)
		if (pthread_create(&threads[t], NULL, worker_main, &workers[t]))
			exit(2);
	worker_main(&workers[0]);
	for (int t = 1; t < n_threads; t++)
		pthread_join(threads[t], NULL);
}

/* Waits for all work, empties the mailboxes and
 * returns the words that were found wrong, anywhere. */
static unsigned long
finish(struct tally *sum)
{
	unsigned long wrong = 0;
	uint64_t on_device;

	for (int i = 0; i < n_worlds; i++) {
		world_enter(&worlds[i]);
		CHECK(cuCtxSynchronize());
		CHECK(cuMemcpyDtoH_v2(&on_device, worlds[i].errors, 8));
		if (on_device)
			fprintf(stderr, "sim_check found %llu wrong words in world %d\n",
				(unsigned long long)on_device, i);
		wrong += on_device;
	}
	for (int t = 0; t < n_threads; t++) {
		struct worker left = { .index = t, .rng = { 1 } };

		while (mailbox_take(&left))
			;
		worker_finish(&left);
		worker_finish(&workers[t]);
		wrong += left.tally.wrong_words + workers[t].tally.wrong_words;
		sum->allocs += workers[t].tally.allocs;
		sum->frees += workers[t].tally.frees;
		sum->ooms += workers[t].tally.ooms;
		sum->launches += workers[t].tally.launches;
		sum->host_checks += workers[t].tally.host_checks + left.tally.host_checks;
	}
	return wrong;
}

int
main(int argc, char **argv)
{
	struct tally sum = { 0 };
	unsigned long wrong;
	uint64_t seed;
	long numbers[4];

	for (int i = 0; i < 4; i++)
		numbers[i] = argc == 6 ? strtol(argv[2 + i], NULL, 10) : 0;
	if (numbers[0] < 1 || numbers[1] < 1 || numbers[1] >= WORLD_STREAMS_MAX || numbers[2] < 1 ||
	    numbers[2] > THREADS_MAX || numbers[3] < 1 || numbers[3] >= WORLDS_MAX) {
		fprintf(stderr,
			"usage: %s SEED OPERATIONS STREAMS(1-9) THREADS(1-3) DEVICES(1-4)\n",
			argv[0]);
		return 2;
	}
	seed = strtoull(argv[1], NULL, 10);
	n_threads = (int)numbers[2];
	set_up(seed, numbers[0], (int)numbers[1], (int)numbers[3]);
	run_all();
	wrong = finish(&sum);
	printf("seed %llu: %ld operations, %ld streams, %d threads, %ld devices, %d contexts: %lu "
	       "allocated, %lu freed, "
	       "%lu out of memory, %lu launches, %lu host checks, %lu words wrong\n",
	       (unsigned long long)seed, numbers[0], numbers[1], n_threads, numbers[3], n_worlds,
	       sum.allocs, sum.frees, sum.ooms, sum.launches, sum.host_checks, wrong);
	return wrong != 0;
}
