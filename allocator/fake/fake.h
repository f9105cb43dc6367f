/* SPDX-License-Identifier: MIT */
/*
 * Pretend memory behind struct ca_driver: for replaying traces and for tests of the allocator.
 *
 * The device's work is a counter: ca_model_submit adds one piece of work, a mark remembers how much
 * was submitted when it was recorded, and work is finished when the test says so (or when a thread
 * waits: the model then finishes the awaited work). A test that frees memory after submitting piece
 * w may therefore demand that nobody gets that memory before ca_model_finished() >= w.
 *
 * Thread-safe. Never calls malloc. Misuse by the allocator (a mark dropped twice, an unknown
 * address returned, ...) is counted, not fatal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/driver.h"

struct ca_model;

enum ca_model_function {
	CA_MODEL_TAKE,
	CA_MODEL_RETURN,
	CA_MODEL_RECORD,
	CA_MODEL_QUERY,
	CA_MODEL_WAIT,
	CA_MODEL_DROP,
	CA_MODEL_SYNCHRONIZE,
	CA_MODEL_STREAM_MARK,
	CA_MODEL_STREAM_WAIT,
	CA_MODEL_STREAM_QUERY,
	CA_MODEL_STREAM_SYNCHRONIZE,
	CA_MODEL_INFO,
	CA_MODEL_MANAGED,
	CA_MODEL_CONTEXT_SYNCHRONIZE,
	CA_MODEL_RANGE_RESERVE,
	CA_MODEL_RANGE_MAP,
	CA_MODEL_RANGE_ALIAS,
	CA_MODEL_RANGE_UNMAP,
	CA_MODEL_RANGE_RELEASE,
	CA_MODEL_FUNCTIONS,
};

enum ca_model_segment {
	CA_MODEL_TAKEN,
	CA_MODEL_RETURNED,
	CA_MODEL_REFUSED,
};

struct ca_model_config {
	uint64_t capacity;    /* bytes of the one device */
	uint64_t granularity; /* bytes: capacity is used in multiples of this; 2 MiB on real devices
			       */
	uint64_t alignment;   /* bytes, of every address; 512 or more */
	bool no_marks;        /* mark_record answers -ENOTSUP */
	bool finish_at_once;  /* submitted work is finished immediately */
	/* A host that pauses does not sleep: the clock moves on, and when it has stood by for
	 * that long in all since anything was submitted, all work is finished. 0: it sleeps. */
	uint64_t work_ns;
	bool frees_at_once; /* segment_return waits for nothing; otherwise for all work */
	bool places;        /* ca_model_place is used */
	bool no_ranges;     /* there are no addresses to map memory into */
	bool no_aliases;    /* memory is mapped at one address only */
	/* That long take range_map and range_alias, and range_unmap, by the clock. */
	uint64_t map_ns, unmap_ns;
	/* struct ca_driver's, which is told the model, and finds `arg` by ca_model_arg; or NULL */
	uint64_t (*pools_trim)(void *self, unsigned device, uint64_t keep_bytes, bool graphs);
	void *arg;
	bool wakes; /* a pause of the host lasts until the next work ends by the clock, if any does
		     */
};

/* Called without the model's lock at the begin (`end` false) and at the end of each driver call:
 * for tests of interleavings. */
typedef void ca_model_observer(void *arg, enum ca_model_function function, bool end);

/* Called with the model's lock held, when a segment has come or gone, or `bytes` were refused. */
typedef void ca_model_segment_observer(void *arg, enum ca_model_segment change, uint64_t address,
				       uint64_t bytes);

/* -ENOMEM. */
int ca_model_create(const struct ca_model_config *config, struct ca_model **ret_model);
void ca_model_destroy(struct ca_model *model);
void *ca_model_arg(const struct ca_model *model);
/* `self` of the result is the model. */
void ca_model_driver(struct ca_model *model, struct ca_driver *ret_driver);

/* The next segment, if it has `bytes`, is to lie at `address`, as long as nothing else does; an
 * address that makes no sense has no effect. bytes 0: it may lie anywhere. */
void ca_model_place(struct ca_model *model, uint64_t bytes, uint64_t address);

/* Submits a piece of work; returns its number, from 1. */
uint64_t ca_model_submit(struct ca_model *model);
/* Everything up to piece `work` is finished. */
void ca_model_finish(struct ca_model *model, uint64_t work);
uint64_t ca_model_finished(struct ca_model *model);
uint64_t ca_model_submitted(struct ca_model *model);

/*
 * Work on pretend streams, named by any pointer that is not NULL. Each stream has its own counters;
 * work that a stream waits for (the driver's stream_wait) is finished before its later work is. A
 * mark of mark_record stands for the work of all streams, too; everything that waits for all work
 * waits for theirs.
 */
enum { CA_MODEL_STREAMS = 64 };
/* Submits a piece of work to the stream; returns its number there, from 1. */
uint64_t ca_model_stream_submit(struct ca_model *model, void *stream);
/* The same for a piece that ends by the model's clock: it begins when the stream's earlier work and
 * whatever that waits for have ended, and lasts `lasts_ns`. The clock moves by ca_model_set_clock,
 * by pauses of the host, and to the end of whatever is waited for. -ENOMEM. */
int ca_model_stream_run(struct ca_model *model, void *stream, uint64_t lasts_ns);
/* Everything of the stream up to piece `work` is finished, and what that came after. */
void ca_model_stream_finish(struct ca_model *model, void *stream, uint64_t work);
/* Everything of the stream so far will have ended at `end_ns` of the model's clock, which is not
 * before what the last call for the stream told. -ENOMEM. */
int ca_model_stream_end(struct ca_model *model, void *stream, uint64_t end_ns);
uint64_t ca_model_stream_finished(struct ca_model *model, void *stream);
uint64_t ca_model_stream_submitted(struct ca_model *model, void *stream);
/* The last piece of `before` that the next piece of `stream` comes after, over any detour; finished
 * work counts. */
uint64_t ca_model_stream_after(struct ca_model *model, void *stream, void *before);
/* Only the calling thread can name the stream: others' marks on it answer -ENOTSUP. */
void ca_model_stream_set_private(struct ca_model *model, void *stream);

/* From now on the clock stands at `now_ns` at least; asking it moves it on by 1. */
void ca_model_set_clock(struct ca_model *model, uint64_t now_ns);
/* In a capture, context marks answer -EBUSY, and so do marks on streams; waits for the latter go
 * on. */
void ca_model_set_capturing(struct ca_model *model, bool value);
/* A capture that prohibits neither the driver's allocation nor its free, as another thread's
 * relaxed one. */
void ca_model_set_capturing_relaxed(struct ca_model *model);
void ca_model_set_observer(struct ca_model *model, ca_model_observer *observer, void *arg);
void ca_model_set_segment_observer(struct ca_model *model, ca_model_segment_observer *observer,
				   void *arg);
/* The `nth` call (from 1, counted from now) of `function`, and all later ones if `for_ever`,
 * returns `code` and does nothing. nth 0: no failure. */
void ca_model_fail(struct ca_model *model, enum ca_model_function function, unsigned nth,
		   bool for_ever, int code);
/* True if a planned failure was reached since ca_model_fail. */
bool ca_model_failed(struct ca_model *model);
/* Frees the context's memory, as its destruction does;
 * calls that name it answer 201 from now on. */
void ca_model_context_destroy(struct ca_model *model, void *context);
/* Frees one segment behind the allocator's back. 0, or -ENOENT. */
int ca_model_steal(struct ca_model *model, uint64_t address);

struct ca_model_sums {
	uint64_t held_bytes; /* as asked for */
	uint64_t used_bytes; /* of the capacity */
	uint64_t peak_bytes; /* of the capacity */
	uint64_t segments;   /* held */
	uint64_t marks;      /* recorded and not dropped */
	uint64_t errors;
	uint64_t ranges; /* reserved */
	uint64_t calls[CA_MODEL_FUNCTIONS];
};
void ca_model_sums(struct ca_model *model, struct ca_model_sums *ret_sums);
