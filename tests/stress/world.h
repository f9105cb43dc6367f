/* SPDX-License-Identifier: MIT */
/*
 * The pieces that the random program plays with: one world for each context, with its streams, and
 * blocks of memory that know which streams use them.
 *
 * Streams of a world are slots. Slot 0 is the legacy default stream. A slot is shared (any thread
 * may use it) or private to one thread; the per-thread default stream is private to each.
 *
 * Every function ends the program with status 2 and a line on stderr when the driver answers an
 * error that is not expected. A block belongs to one thread at a time; nothing else here needs a
 * lock.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tests/process/driver_api.h"
#include "tests/stress/rng.h"

enum {
	WORLD_STREAMS_MAX = 10,
	STREAM_LEGACY = 0, /* its slot */
};

enum stream_kind {
	STREAM_SHARED,
	STREAM_PRIVATE,
	STREAM_PER_THREAD,
};

struct stream {
	CUstream handle;
	enum stream_kind kind;
	int owner;    /* thread that may use a private one */
	int blocking; /* the legacy stream comes after all of its work, and before what follows */
};

struct world {
	CUcontext ctx;
	int device; /* ordinal */
	int n_streams;
	struct stream streams[WORLD_STREAMS_MAX];
	void *fill, *check, *copy; /* the simulator's kernels */
	CUdeviceptr errors;        /* uint64_t on the device: words that sim_check found wrong */
	size_t total_bytes;        /* of the device */
};

struct block {
	CUdeviceptr ptr;
	size_t n_bytes;
	struct world *world;
	uint32_t value;        /* what every word of the known part holds */
	size_t start, n_words; /* the known part, in 32-bit words; n_words 0: contents unknown */
	unsigned users;        /* slots whose work may still touch the block */
	unsigned ordered;      /* slots that come after the last write; others must wait first */
	int road;              /* for async/: how the memory came; 0: cuMemAlloc */
	unsigned pool;         /* for async/: number of the pool that counts it; 0: none */
};

/* Ends the program when code is not 0. */
void check_code(CUresult code, const char *what);
#define CHECK(call) check_code(call, #call)

/* Opens the primary context of the device, or a new one, with n_streams slots. threads: owners are
 * dealt from it. */
void world_open(struct world *world, int device, int primary, int n_streams, int threads,
		struct rng *rng);

/* A new context; 0, and nothing is left of it: the device has no memory for it. */
int world_try_open(struct world *world, int device, int n_streams, int threads, struct rng *rng);

/* Makes the world's context current in this thread. */
void world_enter(const struct world *world);

/* A random slot that the thread may use. */
int world_pick(const struct world *world, int thread, struct rng *rng);

/* Everything submitted to slot `from` so far comes before everything submitted to `to` (of world
 * `to_world`) from now on. By an event, rarely through the host. */
void world_order(const struct world *world, int from, const struct world *to_world, int to,
		 struct rng *rng);

/* Destroys the created stream in the slot,
 * with its work possibly unfinished, and creates another. */
void world_recreate(struct world *world, int slot, struct rng *rng);

/* Prepares an access by `slot`, so that it is ordered after whatever it has to be ordered after,
 * and notes it. */
void block_use(struct block *b, int slot, int write, struct rng *rng);

/* All use of the block comes before what is submitted to `slot` from now on,
 * and `slot` becomes its only user. */
void block_gather(struct block *b, int slot, struct rng *rng);

/* Use by private slots is moved to a shared slot,
 * so that another thread can go on with the block. */
void block_settle(struct block *b, struct rng *rng);

/* Kernels on `slot`; block_use() is called inside. */
void block_fill(struct block *b, int slot, uint32_t value, size_t start, size_t n_words,
		unsigned spin_us, struct rng *rng);
void block_check(struct block *b, int slot, unsigned spin_us, struct rng *rng);
void block_copy(struct block *dst, struct block *src, int slot, unsigned spin_us, struct rng *rng);
