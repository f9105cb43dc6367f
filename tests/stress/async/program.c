/* SPDX-License-Identifier: MIT */
/*
 * async_program SEED OPERATIONS STREAMS THREADS DEVICES: a random program of stream-ordered and
 * synchronous memory, with known contents.
 *
 * Threads allocate by every road, fill, check and copy on streams of several contexts and devices,
 * and free by either road, in the order that a correct program has to make (memory.c). Pools come
 * and go, change their rules and are trimmed with memory live (pools.c); graphs allocate and free
 * (graphs.c); streams and contexts are destroyed with memory of theirs live. The program has no
 * race on a driver that keeps its promises. An allocator under it that breaks one shows as in
 * random_program.c: by contents, by overlaps, and by the race oracle (SIMCUDA_RACES=abort); and by
 * what a pool says is used, unless ASYNC_FIGURES=off. With ASYNC_FIGURES=near the most that was
 * used may be one step more.
 *
 * Out of memory is no error: the thread frees some blocks and goes on. What it did is printed as
 * one JSON object. Exit status: 0; 1 contents, overlap or figures; 2 usage or an unexpected driver
 * error. With one thread the run is the same every time on the manual clock.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/stress/async/async.h"
#include "tests/stress/mailbox.h"
#include "tests/stress/ranges.h"

enum { WORLDS_MAX = DEVICES_MAX + 1 };

struct async_counts counts;
struct world worlds[WORLDS_MAX], studios[THREADS_MAX];
int n_worlds, n_threads, n_devices;
size_t budget_bytes, size_max;
static struct worker workers[THREADS_MAX];

/* -------------------------------------------------------------- operations --- */
static struct world *
world_any(struct worker *w)
{
	int i = (int)rng_below(&w->rng, n_worlds + 1);

	return i == n_worlds ? &studios[w->index] : &worlds[i];
}

static void
alloc(struct worker *w, struct world *world, size_t n_bytes)
{
	struct block *b = memory_take(w, world, n_bytes);

	if (!b) {
		memory_free_some(w, 4);
		pools_trim_all(w);
		return;
	}
	if (b->n_bytes < 4)
		worker_set(w, b);
	else if (chance(w, 4))
		worker_write(w, b);
	else
		worker_touch(w, b, world_pick(world, w->index, &w->rng));
}

/* Often the same size is wanted again at once, on whatever stream. */
static void
op_free(struct worker *w, int i)
{
	struct world *world = w->blocks[i].world;
	size_t n_bytes = w->blocks[i].n_bytes;

	memory_free(w, i);
	if (chance(w, 2))
		alloc(w, world, n_bytes);
}

/* A block that only this thread's studio knows has to leave it first. */
static void
op_pass(struct worker *w, int i)
{
	struct block *b = &w->blocks[i];

	if (b->world == &studios[w->index])
		memory_move(w, b, &worlds[rng_below(&w->rng, n_worlds)]);
	if (b->world != &studios[w->index])
		mailbox_pass(w, i, n_threads);
}

static void
op_take(struct worker *w)
{
	if (mailbox_take(w) && rng_below(&w->rng, 4))
		memory_free(w, w->n_blocks - 1);
}

/* Words that sim_check found wrong. */
static unsigned long
world_wrong(const struct world *world)
{
	uint64_t on_device;

	world_enter(world);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH_v2(&on_device, world->errors, 8));
	if (on_device)
		fprintf(stderr, "sim_check found %llu wrong words\n",
			(unsigned long long)on_device);
	return on_device;
}

/* A context whose told memory outlives it. */
static void
op_guest(struct worker *w)
{
	struct world guest, *home = &worlds[rng_below(&w->rng, n_worlds)];
	struct block *b;

	if (!world_try_open(&guest, home->device, 2, 1, &w->rng)) {
		counts.ooms++;
		return;
	}
	guest.streams[1].owner = w->index;
	for (int n = 0; n < 3; n++) {
		b = memory_take_told(w, &guest, memory_size(w));
		if (!b)
			break;
		if (b->n_bytes < 4)
			worker_set(w, b);
		else
			worker_touch(w, b, world_pick(&guest, w->index, &w->rng));
	}
	for (int i = w->n_blocks - 1; i >= 0; i--) {
		if (w->blocks[i].world != &guest)
			continue;
		if (chance(w, 3))
			memory_free(w, i);
		else
			memory_move(w, &w->blocks[i], home);
	}
	w->tally.wrong_words += world_wrong(&guest);
	CHECK(cuCtxDestroy_v2(guest.ctx));
	counts.contexts_destroyed++;
}

static void
op_on_block(struct worker *w, int dice)
{
	int i = (int)rng_below(&w->rng, w->n_blocks);

	if (dice < 58)
		worker_launch(w, &w->blocks[i]);
	else if (dice < 82)
		op_free(w, i);
	else if (dice < 85 && w->blocks[i].n_words)
		worker_read_back(w, &w->blocks[i]);
	else if (dice < 88)
		worker_set(w, &w->blocks[i]);
	else if (dice < 92)
		memory_move(w, &w->blocks[i], world_any(w));
	else if (dice < 95 && n_threads > 1)
		op_pass(w, i);
	else if (dice < 96)
		memory_free_some(w, w->n_blocks); /* everything at once */
}

static void
op_any(struct worker *w)
{
	int dice = (int)rng_below(&w->rng, 100), rare = (int)rng_below(&w->rng, 300);

	if (rare == 0)
		op_guest(w);
	else if (rare < 8)
		graph_run(w);
	else if (rare < 20)
		pools_change(w);
	else if (rare < 28)
		counts.streams_destroyed += worker_recreate(w, world_any(w));
	else if (dice < 34 || !w->n_blocks)
		alloc(w, world_any(w), memory_size(w));
	else
		op_on_block(w, dice);
	if (n_threads > 1)
		op_take(w);
	counts.operations++;
}

/* ------------------------------------------------------------------- frame --- */
static void *
worker_main(void *arg)
{
	struct worker *w = arg;

	for (long i = 0; i < w->operations; i++)
		op_any(w);
	return NULL;
}

/* Compares and frees what is left; all work is done by then. */
static unsigned long
worker_finish(struct worker *w)
{
	for (int i = 0; i < w->n_blocks; i++)
		w->blocks[i].users = w->blocks[i].ordered = 0;
	while (w->n_blocks) {
		if (w->blocks[0].n_words)
			worker_read_back(w, &w->blocks[0]);
		memory_free(w, 0);
	}
	return w->tally.wrong_words;
}

static void
open_worlds(struct rng *rng, int streams)
{
	for (int d = 0; d < n_devices; d++)
		world_open(&worlds[n_worlds++], d, 1, streams, n_threads, rng);
	world_open(&worlds[n_worlds++], 0, 0, 1 + (int)rng_below(rng, streams), n_threads, rng);
	for (int t = 0; t < n_threads; t++) {
		world_open(&studios[t], 0, 0, streams, n_threads, rng);
		for (int slot = 0; slot < streams; slot++)
			studios[t].streams[slot].owner = t;
	}
}

static void
set_up(uint64_t seed, long operations, int streams)
{
	struct rng rng = { seed };

	calls_load();
	CHECK(cuInit(0));
	open_worlds(&rng, streams);
	world_enter(&worlds[0]);
	pools_open(&rng);
	budget_bytes = worlds[0].total_bytes / 20 * 15 / n_threads;
	size_max = budget_bytes / 4 < 64 << 20 ? budget_bytes / 4 : 64 << 20;
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

/* Waits for all work, empties the mailboxes, frees everything and
 * returns the words that were found wrong, anywhere. */
static unsigned long
finish(void)
{
	unsigned long wrong = 0;

	for (int i = 0; i < n_worlds; i++)
		wrong += world_wrong(&worlds[i]);
	for (int t = 0; t < n_threads; t++)
		wrong += world_wrong(&studios[t]);
	for (int t = 0; t < n_threads; t++) {
		struct worker left = { .index = t, .rng = { 1 } };

		while (mailbox_take(&left))
			;
		wrong += worker_finish(&left) + worker_finish(&workers[t]);
	}
	for (int i = 0; i < n_worlds; i++)
		wrong += world_wrong(&worlds[i]);
	for (int t = 0; t < n_threads; t++)
		wrong += world_wrong(&studios[t]);
	pools_close();
	return wrong;
}

int
main(int argc, char **argv)
{
	unsigned long wrong;
	long numbers[4];

	for (int i = 0; i < 4; i++)
		numbers[i] = argc == 6 ? strtol(argv[2 + i], NULL, 10) : 0;
	if (numbers[0] < 1 || numbers[1] < 1 || numbers[1] >= WORLD_STREAMS_MAX || numbers[2] < 1 ||
	    numbers[2] > THREADS_MAX || numbers[3] < 1 || numbers[3] > DEVICES_MAX) {
		fprintf(stderr,
			"usage: %s SEED OPERATIONS STREAMS(1-9) THREADS(1-3) DEVICES(1-4)\n",
			argv[0]);
		return 2;
	}
	n_threads = (int)numbers[2];
	n_devices = (int)numbers[3];
	set_up(strtoull(argv[1], NULL, 10), numbers[0], (int)numbers[1]);
	run_all();
	wrong = finish();
	printf("{");
#define X(name) printf("\"%s\": %lu, ", #name, atomic_load(&counts.name));
	ASYNC_COUNTS(X)
#undef X
	printf("\"wrong_words\": %lu}\n", wrong);
	return wrong != 0;
}
