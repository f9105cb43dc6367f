/* SPDX-License-Identifier: MIT */
/*
 * A heap over pretend memory, some streams, threads and contexts, and a naive reference: lists of
 * live and of freed pieces of memory, with the work that touched each.
 *
 * Whatever is false of the heap ends the process (require), so that a fuzzer sees it, too.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/api/heap.h"
#include "allocator/fake/fake.h"
#include "allocator/order/order.h"
#include "tests/sequence/sequence.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum {
	LIVE_MAX = 40,
	FREED_MAX = 600,
	STREAMS_MAX = 40, /* ever opened in a world; open at a time: OPEN_MAX */
	OPEN_MAX = 6,
	SPACES = 2,
	SEGMENTS_MAX = 1024,
	REGISTERED_MAX = 256,
	EVENTS = 4,
	GRAPHS_MAX = 16,
	CHARGES_MAX = 8,
};

struct piece {
	uint64_t address, size; /* size: of the block */
	uint64_t requested;
	uint64_t work[STREAMS_MAX]; /* the last that touched it, of each stream; 0: none */
	uint64_t foreign;           /* work of no stream */
	unsigned space;
	unsigned graph; /* + 1; 0: not of a capture */
	bool straight;  /* goes to the driver at its free */
};

struct stream {
	struct ca_stream *stream; /* NULL: closed */
	enum ca_stream_kind kind;
	unsigned space;
	unsigned actor; /* of a per-thread stream */
};

struct event {
	struct ca_event event;
	ca_mark mark;
	unsigned space;
};

enum graph_state { GRAPH_FREE, GRAPH_CAPTURING, GRAPH_HELD, GRAPH_GONE, GRAPH_LOST };
struct graph {
	_Atomic bool gone;
	enum graph_state state;
};

struct segment {
	uint64_t address, size;
	void *context;
	bool retired;
};

/* Given to somebody who is no stream. */
struct range {
	uint64_t address, size;
};

struct charge {
	uint64_t handle, bytes;
	unsigned space;
};

struct world {
	struct source source;
	const struct sequence_options *options;
	struct ca_config config;
	char conf[2048];
	struct ca_model_config pretend;
	struct ca_model *model;
	struct ca_driver real, driver;
	struct ca_heap *heap;
	struct ca_space *spaces[SPACES];
	void *contexts[SPACES];
	uintptr_t last_context;

	struct stream streams[STREAMS_MAX];
	unsigned n_streams, n_open;
	struct piece live[LIVE_MAX], freed[FREED_MAX];
	unsigned n_live, n_freed;
	struct segment segments[SEGMENTS_MAX];
	unsigned n_segments;
	struct range registered[REGISTERED_MAX];
	unsigned n_registered;
	struct event events[EVENTS];
	struct graph graphs[GRAPHS_MAX];
	unsigned n_graphs;
	struct charge charges[CHARGES_MAX];
	unsigned n_charges;
	uint64_t last_handle;

	const struct piece *going; /* being freed: its memory may go to the driver; NULL: it did */
	unsigned actor, actors;
	bool capturing, prohibited /* by the capture */, failing, unseen, counting, shares;
	bool finished_only; /* nothing may be exposed */
	bool async;         /* something was freed in the order of a stream */
	bool calm;          /* only the common steps */
	bool retired;       /* memory is: as natively its free waits for no other context */
	bool odd;           /* memory was adopted: caps do not bind it */
	unsigned queries;   /* in this step */
	uint64_t capture_serial, step;
	uint64_t allocs, frees, ooms;
	struct sequence_totals *totals;
};

extern struct world sequence_world; /* one at a time: the driver's wrappers use it, too */

void require(bool condition, const char *claim);
__attribute__((noreturn, format(printf, 1, 2))) void broken(const char *format, ...);

static inline uint64_t
pick(struct world *w, uint64_t below)
{
	return source_pick(&w->source, below);
}

static inline void *
name_of(unsigned stream)
{
	return (void *)((uintptr_t)stream + 100);
}

/* ---- reference.c */
void reference_driver(struct world *w); /* puts its eyes before the model's */
/* The same for mapped memory (mapped.c). */
void reference_map_driver(struct world *w);
void reference_handed_out(struct world *w, const struct piece *piece);
void reference_freed(struct world *w, unsigned live);
void reference_submission(struct world *w, const struct piece *piece, unsigned stream);
/* `settled`: and nothing that used the memory before still runs. */
void reference_registered(struct world *w, uint64_t address, uint64_t size, bool settled);
uint64_t reference_segment_end(struct world *w, uint64_t address);
void reference_forget_space(struct world *w, unsigned space);
void reference_retire(struct world *w, uint64_t address);
struct ca_stats reference_stats(struct world *w);
/* The heap's figures, its own walk, and the model's figures agree with the reference. */
void reference_check(struct world *w);
bool reference_is_idle(struct world *w, const struct piece *piece);
/* But for work of other contexts. */
bool reference_is_idle_at_home(struct world *w, const struct piece *piece);
/* In the list of what is freed: what is idle may be forgotten. */
void reference_make_room(struct world *w);

/* ---- memory.c, streams.c, rare.c: one step each */
void step_alloc(struct world *w);
void step_free(struct world *w);
void step_free_async(struct world *w);
void step_adopt(struct world *w);
void step_bad_free(struct world *w);
void step_free_at(struct world *w, unsigned live);

void step_open(struct world *w);
void step_close(struct world *w);
void step_launch(struct world *w);
void step_foreign(struct world *w);
void step_synchronize(struct world *w);
void step_work(struct world *w);
void step_event(struct world *w);
void streams_finish_all(struct world *w);
void streams_of_space_died(struct world *w, unsigned space);

void step_capture(struct world *w);
void step_kill(struct world *w);
void step_charge(struct world *w);
void step_rare(struct world *w);
void capture_end(struct world *w);
