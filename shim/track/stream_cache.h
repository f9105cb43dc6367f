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
 * A thread that has submitted nothing reads caches that are empty and for all. Its own are made
 * when there is something to be kept, and go to another thread once it has ended.
 */
#pragma once

#include <stdint.h>

#include "shim/bind/cuda_abi.h"

struct ca_stream;

enum { CA_FLAVOURS = 2, CA_SUBMISSION_BITS = 4, CA_SUBMISSION_SLOTS = 1 << CA_SUBMISSION_BITS };

/* This thread's knowledge of a stream to which it has submitted. */
struct ca_submission_slot {
	CUstream handle;          /* as the program names it; NULL: the default */
	CUcontext context;        /* of a default stream, else NULL */
	uint64_t word;            /* ca_capture_word when it was looked up, less the captures */
	struct ca_stream *stream; /* not NULL */
};

struct ca_submission_cache {
	/* By handle. Default streams too, as long as the process has one context: then there is no
	 * need to ask which is current. (The word moves when another is made.) */
	struct ca_submission_slot legacy[CA_SUBMISSION_SLOTS];
	struct ca_submission_slot per_thread[CA_SUBMISSION_SLOTS];
	/* Streams asked about, and those that are not tracked (`stream` NULL); by handle and
	 * context. */
	struct ca_submission_slot known[CA_SUBMISSION_SLOTS];
	/* The last default stream of each kind, with several contexts. */
	struct ca_submission_slot last_default[CA_FLAVOURS];
};

/* Never NULL. To be read only, but by the owner of what ca_submission_cache_own answered. */
extern __thread struct ca_submission_cache *ca_submission_cache
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Its `per_thread`; a pointer for each of the two arrays saves instructions in a launch. */
extern __thread struct ca_submission_slot *ca_submission_per_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* This thread's own, to be written; NULL: no memory. Async-signal-safe, errno kept. */
struct ca_submission_cache *ca_submission_cache_own(void);
void ca_submission_cache_after_fork_child(void);
