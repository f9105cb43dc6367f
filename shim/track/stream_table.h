/* SPDX-License-Identifier: MIT */
/*
 * The table behind shim/track/streams.h: which stream, as the driver names it, has which record.
 *
 * A created stream is found by its handle alone, which no other living stream of the process has; a
 * default stream by context, the per-thread one by thread as well. An entry is *claimed* before its
 * record is opened, so that only one thread opens it; a thread that comes meanwhile tries again.
 *
 * Thread-safe, one lock inside, held for a few instructions. No driver calls.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"

struct ca_context;
struct ca_stream;

struct ca_stream_name {
	CUstream handle; /* of a created stream; CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
	struct ca_context *context; /* of a default stream, else NULL */
	uint64_t thread;            /* of a per-thread stream, else 0 */
};

enum ca_stream_claim {
	CA_STREAM_FOUND,     /* *ret_stream; NULL: entered as not tracked */
	CA_STREAM_CLAIMED,   /* the caller enters it, or abandons the claim */
	CA_STREAM_BUSY,      /* another thread has claimed it: try again */
	CA_STREAM_NO_MEMORY, /* no entry could be made */
};

/* The record of `name`, or a claim on its entry: *ret_claim. */
enum ca_stream_claim ca_stream_table_claim(const struct ca_stream_name *name,
					   struct ca_stream **ret_stream, uint64_t *ret_claim);
/* The record of `name`, if it is entered; NULL also if it is not tracked. */
struct ca_stream *ca_stream_table_find(const struct ca_stream_name *name);
/* The claimed stream is `context`'s and has the record `stream` (NULL: not tracked). False: the
 * claim is gone, since its context or thread has ended or the process was forked. */
bool ca_stream_table_enter(const struct ca_stream_name *name, uint64_t claim,
			   struct ca_context *context, struct ca_stream *stream);
void ca_stream_table_abandon(const struct ca_stream_name *name, uint64_t claim);

/* Takes an entry out, if there is one: of this created stream; any of this context; any of this
 * thread. *ret_stream is NULL if it was not tracked, or not opened yet. */
bool ca_stream_table_take(CUstream handle, struct ca_stream **ret_stream);
bool ca_stream_table_take_of_context(const struct ca_context *context,
				     struct ca_stream **ret_stream);
bool ca_stream_table_take_of_thread(uint64_t thread, struct ca_stream **ret_stream);

/* A stream that can be asked about: entered, and not the legacy one. */
struct ca_stream_known {
	CUstream handle;
	struct ca_context *context; /* whose it is */
	uint64_t thread;            /* of a per-thread stream, else 0 */
};
enum { CA_STREAM_KNOWN_MAX = 32 };
/*
 * Some streams from *place on (0 at first), which advances; their number, 0 at the end. Between
 * hold and release no handle among them is destroyed through us: a thread that is about to waits,
 * for a second at most, in ca_stream_table_await. Nobody may block in between.
 */
unsigned ca_stream_table_list(unsigned *place,
			      struct ca_stream_known ret_known[CA_STREAM_KNOWN_MAX]);
void ca_stream_table_hold(void);
void ca_stream_table_release(void);
void ca_stream_table_await(void);

/* In a forked child: the table is empty, its lock remade. */
void ca_stream_table_after_fork_child(void);
