/* SPDX-License-Identifier: MIT */
/*
 * A device of 256 MiB comes to its end. Requests are such that a native pool has them, or not,
 * whatever way its memory lies: it exchanges units of 2 MiB that are free for others. With the
 * retry it has more.
 */
#include "tests/process/pool_model/play.h"

enum { MIB = 1 << 20, BLOCKS = 14 };

static void
free_all(struct play *p)
{
	while (p->n_tensors)
		play_free(p, p->n_tensors - 1);
}

static void
fill_up(struct play *p, int slot, bool use)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct tensor *t = play_malloc(p, 0, slot, 16 * MIB);

		if (t && use)
			play_use(p, t, slot);
	}
}

/* 224 MiB are live: 16 more can be had, 64 not, and then all goes on. */
static void
too_much(struct play *p)
{
	fill_up(p, 0, true);
	play_malloc(p, 0, 1, 64 * MIB);
	play_malloc(p, 0, 1, 16 * MIB);
	play_malloc(p, 0, 1, (size_t)1 << 40);
	free_all(p);
	play_malloc(p, 0, 0, 64 * MIB);
	free_all(p);
}

/* Every second block is free, and known to be: what is wanted is larger than each. */
static void
in_pieces(struct play *p)
{
	play_sync(p, 0);
	fill_up(p, 0, false);
	for (int i = BLOCKS - 1; i >= 0; i -= 2)
		play_free(p, i);
	play_sync(p, 0);
	play_malloc(p, 0, 1, 96 * MIB);
	free_all(p);
}

/* The same, with frees that the host does not know of: natively had by the retry only. */
static void
in_busy_pieces(struct play *p)
{
	play_sync(p, 0);
	fill_up(p, 1, true);
	for (int i = BLOCKS - 1; i >= 0; i -= 2)
		play_free(p, i);
	play_malloc(p, 0, 1, 96 * MIB);
	free_all(p);
}

/* Memory that was used on two streams comes back by itself, by the host's waits alone. */
static void
recorded(struct play *p)
{
	struct backend_stats before, after;

	play_sync(p, 0);
	CHECK(backend_stats(0, &before));
	for (int i = 0; i < 20; i++) {
		struct tensor *t = play_malloc(p, 0, 0, 100 * MIB);

		if (!t)
			continue;
		play_use(p, t, 0);
		play_use(p, t, 1);
		play_free(p, p->n_tensors - 1);
		play_sync(p, 0);
	}
	CHECK(backend_stats(0, &after));
	play_say(p, "grew", after.reserved > before.reserved + 100 * MIB, 0, 0);
}

/* Half of the device; what is beyond fails without the driver being asked. */
static void
fraction(struct play *p)
{
	play_say(p, "fraction", 0, backend_set_fraction(0.5, 0), 0);
	for (int i = 0; i < 9; i++)
		play_malloc(p, 0, 0, 16 * MIB);
	free_all(p);
	play_say(p, "fraction", 0, backend_set_fraction(1.0, 0), 0);
}

void
play_short_of_memory(struct play *p)
{
	play_say(p, "fraction", 0, backend_set_fraction(1.0, 0), 0);
	too_much(p);
	in_pieces(p);
	if (p->retries)
		in_busy_pieces(p);
	play_say(p, "empty_cache", 0, backend_empty_cache(), 0);
	recorded(p);
	fraction(p);
}
