/* SPDX-License-Identifier: MIT */
/*
 * A trace's streams as pretend streams that the order tracker knows, and the work on them.
 *
 * The model has few streams. A trace may have more: then the one that was used longest ago is
 * closed, as a program destroys a stream, and its pretend stream serves the new one.
 */
#pragma once

#include "allocator/fake/fake.h"
#include "allocator/order/order.h"
#include "allocator/replay/map.h"

/* When work ends. */
enum ca_replay_rate {
	CA_REPLAY_KEEPS_UP, /* soon after it was submitted */
	CA_REPLAY_LAGS,     /* after a time for each allocation, by the model's clock */
	CA_REPLAY_TOLD,     /* when the trace tells so */
};

enum { CA_REPLAY_STREAMS = CA_MODEL_STREAMS - 2 };

struct ca_replay_stream {
	struct ca_stream *stream; /* NULL: not tracked */
	uint64_t recorded;        /* the trace's */
	uint64_t used;            /* moment of the last use */
};

/* Work that ends by time. */
struct ca_replay_work {
	uint64_t time_ns; /* of its submission */
	uint64_t piece;   /* its number on the pretend stream */
	unsigned stream;
};

struct ca_replay_streams {
	struct ca_model *model;
	struct ca_space *space;
	struct ca_replay_stream stream[CA_REPLAY_STREAMS];
	unsigned count;
	struct ca_replay_map by_recorded;
	uint64_t now;
	enum ca_replay_rate rate_kind;
	uint64_t different; /* recorded streams that were met, closed ones each time */
	/* a ring: work of the last CA_REPLAY_WORK_NS */
	struct ca_replay_work *work;
	size_t work_first, work_count, work_room;
};

/* The stream that was recorded as `recorded`; -ENOMEM. */
int ca_replay_streams_get(struct ca_replay_streams *streams, uint64_t recorded, unsigned *ret);
/* A piece of work, of that time if one is known. Where the device lags behind it lasts `lasts_ns`,
 * after all earlier work of its stream. -ENOMEM. */
int ca_replay_streams_submit(struct ca_replay_streams *streams, unsigned stream, uint64_t time_ns,
			     uint64_t lasts_ns);
/* Work that was submitted `ago_ns` before `time_ns`, or earlier, has finished. */
void ca_replay_streams_advance(struct ca_replay_streams *streams, uint64_t time_ns,
			       uint64_t ago_ns);
/* All work of the stream so far will have ended when the model's clock is at `clock_ns`. -ENOMEM.
 */
int ca_replay_streams_end(struct ca_replay_streams *streams, unsigned stream, uint64_t clock_ns);
/* The program waited for everything. */
void ca_replay_streams_finish(struct ca_replay_streams *streams);
void ca_replay_streams_clear(struct ca_replay_streams *streams);
