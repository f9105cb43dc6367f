/* SPDX-License-Identifier: MIT */
/*
 * Memory over time, of one device: which segments and blocks there were between which events, for
 * `cachealloc report` and others that draw. Uses malloc; not thread-safe.
 *
 * The file: for each device a line of JSON (format "timeline", format_version 1) and, behind its
 * newline, `bytes` bytes: the columns that its `columns` names, [name, type, rows], one behind the
 * other, little-endian and without gaps.
 *
 *   kind      of each event: enum ca_timeline_kind
 *   time_ns   since the event before, not below 0
 *   arg       FREED: the block's number; RETURNED...: the segment's; REFUSED, FAILED: a number
 *             among `failed`; else 0. Blocks and segments are numbered as they come.
 *   waiting   bytes that the program has freed and that wait for the device, after the event
 *   address, requested, size, stream, segment   of each block; segment 2^32 - 1: in none
 *   segment_address, segment_bytes, segment_road   of each segment; road: enum ca_replay_road
 *   failed    bytes
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "allocator/replay/play.h"

enum ca_timeline_kind {
	CA_TIMELINE_LIVE = 1, /* a block that was there at the start */
	CA_TIMELINE_ALLOC,    /* a block */
	CA_TIMELINE_FREED,    /* the program freed it */
	CA_TIMELINE_HELD,  /* a segment that was there at the start, or is left of a larger one */
	CA_TIMELINE_TAKEN, /* a segment from the driver */
	CA_TIMELINE_FLUSH, /* a segment went back since the driver had refused more */
	CA_TIMELINE_GIVE_BACK, /* since more was taken, or refused, in the same call */
	CA_TIMELINE_TRIM,      /* for another reason */
	CA_TIMELINE_REFUSED,   /* the driver refused a segment */
	CA_TIMELINE_FAILED,    /* the program was refused memory */
	CA_TIMELINE_WAITED,    /* the program waited for the device */
	CA_TIMELINE_COMPLETED, /* `waiting` has changed */
};

#define CA_TIMELINE_NO_SEGMENT UINT32_MAX

struct ca_timeline;

/* For `n_blocks` blocks of an input; NULL: out of memory. */
struct ca_timeline *ca_timeline_create(uint32_t n_blocks);
void ca_timeline_destroy(struct ca_timeline *timeline);

/* Later events happen at this time; NO_TIME: as before. */
void ca_timeline_at(struct ca_timeline *timeline, uint64_t time_ns);
/* `block`: the input's number. */
void ca_timeline_alloc(struct ca_timeline *timeline, bool live, uint32_t block, uint64_t address,
		       const struct ca_replay_event *event, uint64_t size);
void ca_timeline_free(struct ca_timeline *timeline, uint32_t block);
void ca_timeline_take(struct ca_timeline *timeline, bool held, uint64_t address, uint64_t bytes);
/* Segments that come from now on are of that road. */
void ca_timeline_set_road(struct ca_timeline *timeline, enum ca_replay_road road);
/* Any range; the parts of segments outside of it go on as segments. */
void ca_timeline_return(struct ca_timeline *timeline, uint64_t address, uint64_t bytes);
/* Each part of the range that is outside of all segments. */
void ca_timeline_each_gap(struct ca_timeline *timeline, uint64_t address, uint64_t bytes,
			  void (*found)(void *arg, uint64_t address, uint64_t bytes), void *arg);
/* An event of one of the other kinds; `bytes`: of REFUSED and FAILED. */
void ca_timeline_add(struct ca_timeline *timeline, enum ca_timeline_kind kind, uint64_t bytes);
/* So many wait after the last event. */
void ca_timeline_set_waiting(struct ca_timeline *timeline, uint64_t bytes);
/* Of the input's block, as told; 0: none. */
uint64_t ca_timeline_size_of(const struct ca_timeline *timeline, uint32_t block);

/* ---- timeline_write.c */

/* Writes it. `source`: "recorded" or "replayed". -ENOMEM: something was lost; -EIO. */
int ca_timeline_write(struct ca_timeline *timeline, const struct ca_replay_input *input,
		      unsigned device, const char *source, FILE *out);

/* ---- timeline_input.c */

/* The recording tells what its allocator did on the device. */
bool ca_timeline_is_recorded(const struct ca_replay_input *input, unsigned device);
/*
 * The timeline of what was recorded. Of a trace of our own the sizes of blocks and what waits are
 * those of `replayed` by `waiting`, one a event of the input; NULL: blocks are multiples of 512
 * bytes.
 */
int ca_timeline_from_input(const struct ca_replay_input *input, unsigned device,
			   const struct ca_timeline *replayed, const uint64_t *waiting,
			   struct ca_timeline **ret_timeline);

/* A replay's timeline, while it runs. */
struct ca_timeline_replay {
	const struct ca_replay_input *input;
	struct ca_timeline *timeline;
	uint64_t *waiting; /* by event of the input */
	struct ca_replay_observer observer;
};

int ca_timeline_replay_begin(struct ca_timeline_replay *replay,
			     const struct ca_replay_input *input);
void ca_timeline_replay_clear(struct ca_timeline_replay *replay);
