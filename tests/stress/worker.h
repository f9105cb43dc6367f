/* SPDX-License-Identifier: MIT */
/*
 * One thread of the random program: its blocks, and what it does to the contents of one. All
 * functions are for the thread whose worker it is.
 */
#pragma once

#include "tests/stress/world.h"

enum {
	THREADS_MAX = 3,
	BLOCKS_MAX = 24,       /* live blocks of one thread */
	TOUCHED_MAX = 1 << 16, /* words that one kernel or copy touches at most */
};

struct tally {
	unsigned long allocs, frees, ooms, launches, host_checks, wrong_words;
};

struct worker {
	int index;
	long operations;
	struct rng rng;
	struct block blocks[BLOCKS_MAX];
	int n_blocks;
	size_t live_bytes;
	struct tally tally;
};

/* In microseconds: mostly short, sometimes long enough to outlast many host calls. */
unsigned spin_pick(struct rng *rng);

/* Removes w->blocks[i] from the worker, nothing else. */
void worker_drop(struct worker *w, int i);

/* Fills a part: the head of the block most of the time, so that successive lives of the memory
 * meet; else its tail or less of its head. The block must have 4 bytes at least. */
void worker_touch(struct worker *w, struct block *b, int slot);

/* Sets the head byte by byte; for a block of any size. */
void worker_set(struct worker *w, struct block *b);

/* New contents from the host: synchronous, which happens on the legacy stream, or not. */
void worker_write(struct worker *w, struct block *b);

/* A kernel that fills the block, checks it or copies it to another one of the worker's. */
void worker_launch(struct worker *w, struct block *b);

/* Replaces a private stream of the world, if one is picked. What is still wanted of its order moves
 * to another stream first. 0: nothing was done. */
int worker_recreate(struct worker *w, struct world *world);

/* Copies the known part back and compares it; a line on stderr, and counted, when it is wrong. */
void worker_read_back(struct worker *w, struct block *b);
