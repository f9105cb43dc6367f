/* SPDX-License-Identifier: MIT */
/*
 * order_program SEED OPERATIONS MODE WORKERS DEVICES STREAMS: a random CUDA program that is free of
 * races by stream order, events, values and explicit synchronisation, and in which a free orders
 * nothing but the freed block's old users before the next life of its memory (order.h).
 *
 * MODE is one or more of these words, joined by +:
 *   mix    everything (default)
 *   pipe   immediate reuse: frees right after launches, two sizes
 *   solo   no context that several workers use
 *   team   phases: one worker gets memory early in a context of its own, then all go on there
 *   storm  (team) short phases that begin with records of an event and waits for it at a time
 *   wide   more than one stream from the start, in every context
 *   quiet  one stream in every context of a worker's own, for ever; with solo, none elsewhere
 *   cross  frees while another context still copies from the block, which is more than the
 * simulated driver promises by itself: not for a run without an allocator on top, and without what
 *          may make an allocator leave a free to the driver (captures, questions about addresses,
 *          frees in a stream)
 *   meet   kernels wait for kernels that are submitted later
 *   green  streams of green contexts, too
 *   table  work by the simulator's private table (SIMCUDA_PRIVATE_TABLE=1)
 *
 * What each worker does depends on the seed alone, except that it polls as long as it must. An
 * operation is a driver call that allocates, frees, submits, orders or waits. Out of memory is no
 * error. Exit status: 0; 1 wrong contents or overlap; 2 usage or an unexpected error.
 */
#include "tests/stress/order/order.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stress/ranges.h"

struct mailbox {
	struct block block;
	bool doomed;      /* to be freed: its users cannot be ordered by anybody else */
	_Atomic int full; /* written by one side each */
};

struct settings settings;
struct place places[PLACES_MAX];
struct worker workers[WORKERS_MAX];
size_t palette[PALETTE_MAX];

static struct mailbox mailboxes[WORKERS_MAX];
static struct rng phase_rng; /* the leader's, between phases */
static unsigned long wanted; /* operations of all */
static struct {
	uint64_t seed; /* of this phase */
	bool stop;
} phase;
static pthread_barrier_t together;

/* ------------------------------------------------------------- together --- */

/* A block for the neighbour; ptr 0: there is none. */
static void
exchange_give(struct worker *w)
{
	struct mailbox *box = &mailboxes[(w->index + 1) % settings.n_workers];
	int i = w->n_blocks ? (int)rng_below(&w->rng, w->n_blocks) : 0;
	struct block *b = &w->blocks[i], none = { 0 };

	while (atomic_load(&box->full))
		sched_yield();
	box->block = none;
	if (w->n_blocks && b->place->owner == EVERYBODY && b->place->primary) {
		box->doomed = chance(w, 2);
		if (box->doomed)
			move_touch(w, b, place_pick(w, b->place));
		else
			block_settle(w, b);
		box->block = *b;
		block_forget(w, i);
	}
	atomic_store(&box->full, 1);
}

static void
exchange_take(struct worker *w)
{
	struct mailbox *box = &mailboxes[w->index];
	struct place *place;
	struct block *b;

	while (!atomic_load(&box->full))
		sched_yield();
	if (box->block.ptr) {
		while (w->n_blocks == BLOCKS_MAX)
			free_one(w);
		b = &w->blocks[w->n_blocks++];
		*b = box->block;
		place = b->place;
		if (box->doomed) {
			block_free(w, w->n_blocks - 1);
			b = block_alloc(w, place, box->block.n_bytes);
			if (b)
				move_first_use(w, b, place_pick(w, place));
		}
	}
	atomic_store(&box->full, 0);
}

static void
exchange(struct worker *w)
{
	exchange_give(w);
	exchange_take(w);
}

/* --------------------------------------------------------------- phases --- */

static void
phase_run(struct worker *w)
{
	struct rng common = { phase.seed };
	int n = (int)rng_below(&common, settings.storm ? 3 : settings.team ? 12 : 60);

	if (settings.team)
		team_begin(w, &common);
	for (int i = 0; i <= n; i++) {
		move_any(w);
		if (settings.n_workers > 1 && !settings.solo && rng_below(&common, 8) == 0)
			exchange(w);
	}
	if (settings.team)
		team_end(w);
}

static unsigned long
operations(void)
{
	unsigned long n = 0;

	for (int t = 0; t < settings.n_workers; t++)
		n += workers[t].operations;
	return n;
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;

	place_introduce(w);
	for (;;) {
		pthread_barrier_wait(&together);
		if (w->index == 0) {
			phase.stop = operations() >= wanted;
			phase.seed = rng_next(&phase_rng);
			if (!phase.stop && settings.team)
				team_prepare(w);
		}
		pthread_barrier_wait(&together);
		if (phase.stop)
			return NULL;
		phase_run(w);
	}
}

/* ------------------------------------------------------------- beginning --- */

static void
palette_fill(struct rng *rng)
{
	const size_t mib = (size_t)1 << 20;

	/* the first two are segments of their own, or half of one: nothing else fits in between */
	palette[0] = (12 + 2 * rng_below(rng, 3)) * mib;
	palette[1] = mib - 512 * rng_below(rng, 256);
	palette[2] = 512 + 4 * rng_below(rng, 1000);
	palette[3] = mib + 512 * rng_below(rng, 4000);
	palette[4] = 4096 << rng_below(rng, 6);
}

static void
worker_open(struct worker *w, int index, uint64_t seed)
{
	*w = (struct worker){ .index = index, .rng = { seed } };
	for (int i = 0; i < PINNED_MAX; i++) {
		DO(cuMemHostAlloc((void **)&w->pinned[i], 4ul * TOUCHED_MAX, 0));
		w->pinned_value[i] = (uint32_t)rng_next(&w->rng);
		for (int n = 0; n < TOUCHED_MAX; n++)
			w->pinned[i][n] = w->pinned_value[i];
	}
}

static void
set_up(uint64_t seed)
{
	struct rng rng = { seed };

	DO(cuInit(0));
	calls_load();
	palette_fill(&rng);
	for (int d = 0; d < settings.n_devices; d++)
		if (settings.quiet && settings.solo) /* no stream there */
			DO(cuDevicePrimaryCtxRetain(&places[d].ctx, (CUdevice)d));
		else
			place_open(&places[d], d, true, EVERYBODY, &rng);
	if (!settings.solo)
		place_open(team_place(), 0, false, EVERYBODY, &rng);
	place_enter(&places[0]);
	phase_rng.state = rng_next(&rng);
	for (int t = 0; t < settings.n_workers; t++)
		worker_open(&workers[t], t, rng_next(&rng));
	for (int t = 0; t < settings.n_workers; t++) {
		if (!settings.solo && rng_below(&rng, 3) == 0)
			continue;
		workers[t].home = &places[settings.n_devices + 1 + t];
		place_open(workers[t].home, (int)rng_below(&rng, settings.n_devices), false, t,
			   &rng);
	}
}

/* The race oracle aborts: how far had we come? */
static void
on_abort(int number)
{
	char line[64];
	/* NOLINTNEXTLINE(bugprone-signal-handler): abort() was called by a thread of ours */
	int n = snprintf(line, sizeof(line), "aborted after %lu operations\n", operations());

	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		_exit(2);
}

static bool
settings_read(int argc, char **argv)
{
	const char *mode;

	if (argc != 7)
		return false;
	mode = argv[3];
	settings.pipe = strstr(mode, "pipe");
	settings.solo = strstr(mode, "solo");
	settings.team = strstr(mode, "team") && !settings.solo;
	settings.storm = strstr(mode, "storm");
	settings.quiet = strstr(mode, "quiet");
	settings.wide = strstr(mode, "wide");
	settings.cross = strstr(mode, "cross");
	settings.meet = strstr(mode, "meet");
	settings.green = strstr(mode, "green");
	settings.table = strstr(mode, "table");
	settings.n_workers = (int)strtol(argv[4], NULL, 10);
	settings.n_devices = (int)strtol(argv[5], NULL, 10);
	settings.n_streams = (int)strtol(argv[6], NULL, 10);
	return settings.n_workers >= 1 && settings.n_workers <= WORKERS_MAX &&
	       settings.n_devices >= 1 && settings.n_devices <= 4 && settings.n_streams >= 1 &&
	       settings.n_streams <= SLOTS_MAX - SLOT_FIRST;
}

/* ------------------------------------------------------------------ end --- */

/* All work is done by now. */
static void
worker_close(struct worker *w)
{
	static uint32_t words[TOUCHED_MAX];

	for (int i = 0; i < w->n_blocks; i++) {
		struct block *b = &w->blocks[i];

		place_enter(b->place);
		if (b->n_words)
			DO(cuMemcpyDtoH_v2(words, b->ptr + 4 * b->start, 4 * b->n_words));
		for (size_t n = 0; n < b->n_words; n++)
			w->wrong_words += words[n] != b->value;
	}
	free_all(w, NULL);
}

static unsigned long
finish(void)
{
	unsigned long allocs = 0, reused = 0, ooms = 0, scenes = 0, wrong = 0;

	for (int i = 0; i < PLACES_MAX; i++)
		if (places[i].alive)
			wrong += place_wrong(&places[i]);
	for (int t = 0; t < settings.n_workers; t++) {
		worker_close(&workers[t]);
		wrong += workers[t].wrong_words;
		allocs += workers[t].allocs;
		reused += workers[t].reused;
		scenes += workers[t].scenes;
		ooms += workers[t].ooms;
	}
	printf("%lu operations, %lu allocated, %lu scenes, %lu handed over, %lu out of memory, %lu "
	       "words wrong\n",
	       operations(), allocs, scenes, reused, ooms, wrong);
	return wrong;
}

int
main(int argc, char **argv)
{
	pthread_t threads[WORKERS_MAX] = { 0 };

	if (!settings_read(argc, argv)) {
		fprintf(stderr,
			"usage: %s SEED OPERATIONS MODE WORKERS(1-8) DEVICES(1-4) STREAMS(1-7)\n",
			argv[0]);
		return 2;
	}
	signal(SIGABRT, on_abort);
	wanted = strtoul(argv[2], NULL, 10);
	set_up(strtoull(argv[1], NULL, 10));
	pthread_barrier_init(&together, NULL, (unsigned)settings.n_workers);
	for (int t = 1; t < settings.n_workers; t++)
		if (pthread_create(&threads[t], NULL, worker_main, &workers[t]))
			exit(2);
	worker_main(&workers[0]);
	for (int t = 1; t < settings.n_workers; t++)
		pthread_join(threads[t], NULL);
	return finish() != 0;
}
