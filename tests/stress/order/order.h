/* SPDX-License-Identifier: MIT */
/*
 * The pieces of the order program (program.c): places, streams, blocks, workers.
 *
 * A place is a context. Its streams are slots: 0 the legacy default stream, 1 the per-thread
 * default streams, the others created. A place belongs to one worker, who alone submits there, or
 * to all; in a place of all, a created stream is shared or private to one worker. A block belongs
 * to one worker at a time.
 *
 * The discipline of live blocks: `ordered` are the slots known to come after the block's last
 * write, `users` those that touched it since. Reading from a slot outside `ordered` first orders
 * one user before that slot; writing first orders every user, and leaves the writer alone in both
 * sets. Nothing is assumed of the implicit order of the legacy stream, of frees, or of anything
 * that belongs to another block. A free needs no order at all: that its memory has no next life
 * before its old users are done is what is under test.
 *
 * Everything that fails unexpectedly ends the program with status 2 and a line on stderr.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/stress/order/calls.h"
#include "tests/stress/rng.h"

enum {
	WORKERS_MAX = 8,
	SLOTS_MAX = 9,
	SLOT_LEGACY = 0,
	SLOT_PER_THREAD = 1,
	SLOT_FIRST = 2, /* created, for everybody in the place */
	EVENTS_MAX = 3,
	WORDS_MAX = 32, /* of a worker in a place */
	BLOCKS_MAX = 20,
	GRAPHS_MAX = 2,
	GRAPH_BLOCKS = 3,
	TOUCHED_MAX = 512, /* words */
	PINNED_MAX = 4,
	PLACES_MAX = 32,
	PALETTE_MAX = 5,
	EVERYBODY = -1,
};

struct slot {
	CUstream handle;
	int owner; /* worker, or EVERYBODY */
	bool open;
	bool blocking;
	CUgreenCtx green; /* that the stream is of; NULL: none */
	/* rows.c: of a slot that one worker has for itself, made when first used; die with the
	 * place */
	CUarray array;
	CUdeviceptr managed;
	CUexternalSemaphore semaphore;
	unsigned long long signals; /* value it was last signalled with */
};

struct place {
	CUcontext ctx;
	int device; /* ordinal */
	bool primary, alive;
	int owner;   /* worker, or EVERYBODY */
	int n_slots; /* some may not be open */
	struct slot slots[SLOTS_MAX];
	void *fill, *check, *copy, *wait, *signal; /* the simulator's kernels */
	CUdeviceptr errors;                        /* uint64_t: words that sim_check found wrong */
	CUdeviceptr words;                         /* uint32_t[WORKERS_MAX][WORDS_MAX] */
	unsigned next_word[WORKERS_MAX];
	CUevent shared[EVENTS_MAX];           /* anybody's, whenever; nobody relies on them */
	CUevent own[WORKERS_MAX][EVENTS_MAX]; /* recorded again and again, by one worker */
	pthread_rwlock_t calm; /* write: something captures; read: context-wide calls */
};

struct block {
	CUdeviceptr ptr;
	size_t n_bytes;
	struct place *place;
	uint32_t value;          /* what every word of the known part holds */
	size_t start, n_words;   /* the known part, in 32-bit words; n_words 0: unknown */
	unsigned users, ordered; /* slots of its place */
	struct place *other;     /* another place whose slots use it; NULL: none */
	unsigned other_users;    /* slots there; all reads */
	bool fresh;              /* untouched since it was allocated */
};

struct graph {
	CUgraph graph;
	CUgraphExec exec;
	struct place *place;
	CUevent event; /* recorded by a node; NULL: none */
	struct block blocks[GRAPH_BLOCKS];
	int n_blocks;
	int launched;
};

struct settings {
	int n_workers, n_devices, n_streams;
	bool pipe;  /* frees right after launches, few sizes, immediate reuse */
	bool team;  /* phases that begin with memory handed out early */
	bool storm; /* of one event, in short phases */
	bool solo;  /* no place of all */
	bool cross; /* frees do not wait for copies of other contexts by an order of the program's
		       own */
	bool meet;  /* kernels wait for kernels that are submitted later */
	bool green; /* streams of green contexts, too */
	bool table; /* work by the simulator's private table */
	bool quiet; /* one stream a context */
	bool wide;  /* more than one stream from the start */
};

struct worker {
	struct rng rng;
	struct block blocks[BLOCKS_MAX];
	struct graph graphs[GRAPHS_MAX];
	int index;
	int n_blocks;
	int n_graphs;
	int last;           /* slot that it used last */
	struct place *home; /* its own place */
	bool window;        /* inside a capture: nothing but submissions, events, allocations */
	uint32_t *pinned[PINNED_MAX]; /* page-locked, TOUCHED_MAX words each; [0] is scratch, */
	uint32_t pinned_value[PINNED_MAX]; /* the others hold this value */
	struct block given;                /* by a neighbour; ptr 0: nothing */
	unsigned long operations, allocs, frees, reused, ooms, wrong_words, scenes;
};

extern struct settings settings;
extern struct place places[PLACES_MAX];
extern struct worker workers[WORKERS_MAX];
extern size_t palette[PALETTE_MAX];

/* Every driver call that allocates, frees, submits, orders or waits is an operation. */
#define OP(w, call) ((w)->operations++, order_check(call, #call))
#define DO(call) order_check(call, #call)
void order_check(CUresult code, const char *what);

static inline bool
chance(struct worker *w, unsigned one_in)
{
	return rng_below(&w->rng, one_in) == 0;
}

static inline unsigned
bit(int slot)
{
	return 1u << slot;
}

/* ---- place.c */
void place_open(struct place *place, int device, bool primary, int owner, struct rng *rng);
/* With everything in it; blocks that the worker has there are forgotten. */
void place_close(struct worker *w, struct place *place);
struct place *place_unused(void);
void place_enter(const struct place *place);
/* The first submission to each stream of the worker's own. */
void place_introduce(const struct worker *w);
/* A slot that the worker may use; often the one it used last. */
int place_pick(struct worker *w, struct place *place);
/* Another one than `slot`, if there is one. */
int place_pick_other(struct worker *w, struct place *place, int slot);
/* A place that the worker may use. */
struct place *place_any(struct worker *w);
/* Opens one more slot of the worker's own place. */
void place_widen(struct worker *w);
/* Destroys a created stream, with its work unfinished, and creates another. */
void place_renew(struct worker *w, struct place *place, int slot);
/* Words that sim_check found wrong. */
unsigned long place_wrong(struct place *place);

/* ---- submit.c: one call each, in one of the flavours that mean the same stream */
void submit_kernel(struct worker *w, struct place *p, int slot, void *kernel, uint64_t *args,
		   int n);
/* May start before the kernel in front of it ends: only for a fresh block. */
void submit_programmatic(struct worker *w, struct place *p, int slot, void *kernel, uint64_t *args,
			 int n, CUevent event);
void submit_record(struct worker *w, struct place *p, int slot, CUevent event);
void submit_wait(struct worker *w, struct place *p, int slot, CUevent event);
void submit_sync(struct worker *w, struct place *p, int slot);
void submit_query(struct worker *w, struct place *p, int slot);
void submit_write(struct worker *w, struct place *p, int slot, CUdeviceptr to, const void *from,
		  size_t n);
void submit_read(struct worker *w, struct place *p, int slot, void *to, CUdeviceptr from, size_t n);
void submit_copy(struct worker *w, struct place *p, int slot, CUdeviceptr to, CUdeviceptr from,
		 size_t n);
void submit_set(struct worker *w, struct place *p, int slot, CUdeviceptr to, unsigned char value,
		size_t n);

/* ---- rows.c: by calls that name rows, arrays, managed memory, semaphores */
struct comb_ends {
	uint64_t to, from; /* device or host addresses */
	bool to_host, from_host;
};
/* False: not possible here, and nothing was done. */
bool rows_copy(struct worker *w, struct place *p, int slot, const struct comb_ends *ends, size_t n);
bool rows_copy_by_array(struct worker *w, struct place *p, int slot, CUdeviceptr to,
			CUdeviceptr from, size_t n);
bool rows_set(struct worker *w, struct place *p, int slot, CUdeviceptr to, unsigned char value,
	      size_t n);
bool rows_order(struct worker *w, struct place *p, int from, int to);
/* Managed memory is prefetched, set, attached and checked. */
void rows_managed(struct worker *w, struct place *p, int slot);

/* ---- green.c */
/* False: it is to be an ordinary stream. */
bool green_create(const struct place *place, struct slot *slot, struct rng *rng);
/* The slot's stream, and the green context if it is of one. */
void green_destroy(struct worker *w, struct slot *slot);
/* The whole green context, where its only stream could be recorded. False: nothing was done. */
bool green_record(struct worker *w, const struct slot *slot, CUevent event);

/* ---- sequence.c */
/* What was submitted to `from` so far comes before what is submitted to `to` from now on. */
void order_slots(struct worker *w, struct place *from_place, int from, struct place *to_place,
		 int to);
/* A word of the place that is used once; *ret_value is what it will hold when it is signalled. */
CUdeviceptr word_take(struct worker *w, struct place *place, uint32_t *ret_value);
/* So that word_take() need not wait. */
void word_reserve(struct worker *w, struct place *place, int n);
void signal_submit(struct worker *w, struct place *p, int slot, CUdeviceptr word, uint32_t value);
void await_submit(struct worker *w, struct place *p, int slot, CUdeviceptr word, uint32_t value);
/* The whole context. Nothing while somebody captures there. */
void context_sync(struct worker *w, struct place *place);

/* ---- block.c */
/* NULL: out of memory. What it returns moves when another block is freed. */
struct block *block_alloc(struct worker *w, struct place *place, size_t n_bytes);
void block_free(struct worker *w, int i);
void block_forget(struct worker *w, int i);
/* After everything on it, in the stream. */
void block_free_async(struct worker *w, int i, int slot);
size_t size_pick(struct worker *w);
unsigned spin_pick(struct worker *w);
void block_use(struct worker *w, struct block *b, int slot, bool write);
void block_fill(struct worker *w, struct block *b, int slot, unsigned spin_us);
void block_check(struct worker *w, struct block *b, int slot, unsigned spin_us);
void block_copy(struct worker *w, struct block *to, struct block *from, int slot, unsigned spin_us);
/* Use by slots that others may not use moves to one that all may. */
void block_settle(struct worker *w, struct block *b);

/* ---- moves.c: what a worker does next */
void move_any(struct worker *w);
/* First contents, of one kind or another. */
void move_first_use(struct worker *w, struct block *b, int slot);
void move_touch(struct worker *w, struct block *b, int slot);
void free_all(struct worker *w, const struct place *place);
void free_one(struct worker *w);

/* ---- io.c: copies and sets */
void io_any(struct worker *w, struct block *b, int slot);
void io_write(struct worker *w, struct block *b, int slot);
void io_read(struct worker *w, struct block *b, int slot);
void io_cross(struct worker *w, int i);

/* ---- noise.c: what nobody relies on */
void noise_any(struct worker *w, struct place *place);
void noise_storm(struct worker *w, struct place *place, int slot, int other);

/* ---- graph.c */
void graph_any(struct worker *w);
void graph_close(struct worker *w, int i);
/* A capture is open while the worker does other things. */
void graph_window(struct worker *w, struct place *place);

/* ---- scene.c: short programs in which one mistake or another would show */
void scene_any(struct worker *w);
/* Memory handed out before its old user is done, in w->blocks[...]; NULL: nothing fitted. */
struct block *scene_handover(struct worker *w, struct place *place, int slot, size_t n_bytes);

/* ---- team.c: in phases, which the workers begin and end together */
/* The first place of all that is no primary context. */
struct place *team_place(void);
/* The leader, while the others wait. */
void team_prepare(struct worker *w);
/* Everybody; `rng` is in the same state for all. */
void team_begin(struct worker *w, struct rng *rng);
void team_end(struct worker *w);
