/* SPDX-License-Identifier: MIT */
/*
 * Each thread keeps the streams that it works with: private to shim/hooks/submission.h and
 * submission.c.
 *
 * The caches lie in memory of the library's own and not among the thread-locals. A thread-local of
 * a preloaded library is taken from a reserve that the loader makes when the process starts; with
 * an auditor (LD_AUDIT), or when this library is opened late, that reserve is all there is, for all
 * libraries together (tests/abi holds the library to a share of it).
 *
 * A thread that has submitted nothing reads tables that are empty and for all. Its own are made
 * when there is something to be kept, and go to another thread once it has ended.
 *
 * A table is addressed openly, with linear probing over a few places, and grows to four times its
 * size when a quarter of it is filled: a launch looks at the first place only, which is the right
 * one for about nine streams of ten, and the others are a call away.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"

struct ca_stream;

enum {
	CA_FLAVOURS = 2,
	CA_SUBMISSION_PROBES = 8,
	CA_SUBMISSION_SLOTS_MIN = 16,
	/* four times as many as there may be tracked streams in a space */
	CA_SUBMISSION_SLOTS_MAX = 1024,
};

/* This thread's knowledge of a stream to which it has submitted. */
struct ca_submission_slot {
	CUstream handle;          /* as the program names it; NULL: the default */
	CUcontext context;        /* of a default stream, else NULL */
	uint64_t word;            /* ca_capture_word when it was looked up, less the captures;
				   * 0: the slot is empty */
	struct ca_stream *stream; /* not NULL, but in `known` */
};

/* Slots follow it. */
struct ca_submission_table {
	uint32_t mask; /* of an offset in bytes: (slots - 1) * sizeof(slot) */
	uint32_t used; /* slots that are not empty */
	uint64_t unused[3];
};

/* The first ones in the order of enum ca_flavour. */
enum ca_submission_which {
	/* By handle. Default streams too, as long as the process has one context: then there is no
	 * need to ask which is current. (The word moves when another is made.) */
	CA_SUBMISSION_LEGACY,
	CA_SUBMISSION_PER_THREAD,
	/* Streams asked about, and those that are not tracked (`stream` NULL); by handle and
	 * context. */
	CA_SUBMISSION_KNOWN,
	CA_SUBMISSION_TABLES,
};

struct ca_submission_cache {
	bool busy; /* its thread is putting something into a table */
	struct ca_submission_table *table[CA_SUBMISSION_TABLES]; /* none is NULL */
	/* The last default stream of each kind. With one context it is in its table, too, but maybe
	 * not in its first place there. */
	struct ca_submission_slot last_default[CA_FLAVOURS];
};

#define CA_SUBMISSION_LOCAL                                                                        \
	extern __thread __attribute__((tls_model("initial-exec"), visibility("hidden")))
/* A table in two words, so that a launch finds its first place by one instruction for each. */
struct ca_submission_view {
	uintptr_t slots;
	uint64_t mask;
};

#define CA_SUBMISSION_LOCAL                                                                        \
	extern __thread __attribute__((tls_model("initial-exec"), visibility("hidden")))
/* Never NULL. To be read only, but by the owner of what ca_submission_cache_own answered. */
CA_SUBMISSION_LOCAL struct ca_submission_cache *ca_submission_cache;
/* Its tables but for `known`, which no launch reads. */
CA_SUBMISSION_LOCAL struct ca_submission_view ca_submission_views[CA_FLAVOURS];

/* This thread's own, to be written; NULL: no memory. Async-signal-safe, errno kept. */
struct ca_submission_cache *ca_submission_cache_own(void);
void ca_submission_cache_after_fork_child(void);

/* The place at `offset` bytes. */
static inline struct ca_submission_slot *
ca_submission_at(const struct ca_submission_table *table, uint32_t offset)
{
	return (struct ca_submission_slot *)((uintptr_t)(table + 1) + offset);
}

/* Fibonacci hashing; the product's middle bits, so that the mask gives the offset in bytes. */
static inline uint32_t
ca_submission_hash(CUstream handle)
{
	return (uint32_t)(uintptr_t)handle * 0x9e3779b1u >> 17;
}

/* The first place of a stream. It may hold another. A signal handler may put a larger table in
 * force meanwhile: its mask is never used with the smaller one. */
static inline struct ca_submission_slot *
ca_submission_home(unsigned flavour, CUstream handle)
{
	uint64_t offset = ca_submission_hash(handle) & ca_submission_views[flavour].mask;

	atomic_signal_fence(memory_order_seq_cst);
	return (struct ca_submission_slot *)(ca_submission_views[flavour].slots + offset);
}

/* The place of a stream that is up to date by `word`, or NULL. `context`: as in the slot. */
struct ca_submission_slot *ca_submission_find(const struct ca_submission_table *table,
					      CUstream handle, CUcontext context, uint64_t word);
/* A signal handler that interrupts this finds the slot out of date, or whole. */
static inline void
ca_submission_write(struct ca_submission_slot *slot, const struct ca_submission_slot *kept)
{
	slot->word = UINT64_MAX;
	atomic_signal_fence(memory_order_seq_cst);
	slot->handle = kept->handle;
	slot->context = kept->context;
	slot->stream = kept->stream;
	atomic_signal_fence(memory_order_seq_cst);
	slot->word = kept->word;
}
/* Puts a stream into a table of the calling thread's `own` cache; the table may grow. A signal
 * handler that interrupts it puts nothing there. */
void ca_submission_put(struct ca_submission_cache *own, enum ca_submission_which which,
		       const struct ca_submission_slot *kept);
