/* SPDX-License-Identifier: MIT */
/* A replay in its course, between play.c and play_async.c. */
#pragma once

#include "allocator/replay/play.h"
#include "allocator/replay/streams.h"
#include "allocator/told/told.h"

struct ca_replayer {
	const struct ca_replay_input *input;
	const struct ca_replay_setting *setting;
	struct ca_replay_result *result;
	struct ca_replay_error *error;
	struct ca_model *model;
	struct ca_driver driver; /* the model's */
	struct ca_heap *heap;
	struct ca_space *space;
	uint64_t *address; /* by block */
	struct ca_replay_streams streams;
	struct ca_replay_timer *timer; /* NULL: nothing is timed */
	uint64_t first_ns;             /* time of the device's first event */
	bool started;                  /* the blocks live at the start are there */
	struct ca_told_pool **pools;   /* malloc; by number in the trace; NULL: none yet */
	size_t n_pools;
	struct ca_replay_map event_of; /* number in the trace -> place in `events` */
	struct ca_event **events;      /* malloc, each of them */
	size_t n_events;
};

/* ---- play_async.c: stream-ordered memory, as shim/hooks/hook_told.c serves it */

/* In the stream `at`. 0; CA_DRIVER_OUT_OF_MEMORY; -errno. */
int ca_replay_async_alloc(struct ca_replayer *p, const struct ca_replay_event *event, unsigned at,
			  uint64_t *ret_address);
/* `stream` NULL: by a call that names none. */
int ca_replay_async_free(struct ca_replayer *p, uint64_t address, struct ca_stream *stream);
/* The pool is there, has other rules, or is destroyed. */
int ca_replay_async_pool(struct ca_replayer *p, const struct ca_replay_event *event);
/* Pools that are destroyed give back what is idle. */
void ca_replay_async_tidy(struct ca_replayer *p);
/* It gives back what the program wants it to. */
int ca_replay_async_shrink(struct ca_replayer *p, const struct ca_replay_event *event);
/* struct ca_model_config */
uint64_t ca_replay_async_trim(void *model, unsigned device, uint64_t keep_bytes, bool graphs);

/* ---- play_order.c */

/* RECORD, WAIT. */
int ca_replay_order(struct ca_replayer *p, const struct ca_replay_event *event);
/* PARTLY. A free has left the bound behind which all of its stream's work so far is in the place of
 * its block's address. */
int ca_replay_partly(struct ca_replayer *p, const struct ca_replay_event *event);
void ca_replay_async_clear(struct ca_replayer *p);

/* ---- play.c */

/* Fills p->error; returns what ca_replay_run is to. */
int ca_replay_failure(struct ca_replayer *p, const struct ca_replay_event *event, const char *what,
		      int code);
