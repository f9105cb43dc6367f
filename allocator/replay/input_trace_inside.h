/* SPDX-License-Identifier: MIT */
/* Between input_trace.c, which reads a trace, and input_roads.c, which reads the records of memory
 * that cuMemAlloc has nothing to do with. */
#pragma once

#include "allocator/replay/input.h"
#include "allocator/replay/map.h"
#include "allocator/trace/format.h"
#include "allocator/util/tree.h"

enum { CA_TRACE_NUMBERS = 1 << 16 };

struct ca_trace_reading {
	struct ca_replay_input *input;
	struct ca_replay_error *error;
	struct ca_trace_header header;
	struct ca_replay_map live; /* (address, device) -> its allocation among the events */
	uint64_t legacy[CA_TRACE_NUMBERS / 64]; /* bits: numbers of default streams */
	uint64_t time;                          /* in ticks: the latest so far */
	uint64_t where;                         /* of the record */
	uint64_t look_ns; /* a thread began to ask the device; or CA_REPLAY_NO_TIME */
	uint32_t looks;   /* that thread */
	/* by device: the smallest segment refused since memory was last handed out; 0: none */
	uint64_t rejected[CA_REPLAY_DEVICES];
	struct ca_tree ranges[2];     /* by address; input_roads.c */
	struct ca_trace_frees *frees; /* likewise: CA_TRACE_NUMBERS of them; NULL: none so far */
	struct ca_replay_event
		birth; /* a SUBMIT that input_roads.c puts back; or of another kind */
	bool ended;
};

static inline uint64_t
ca_trace_read_stream_of(const struct ca_trace_reading *reading, uint16_t number)
{
	if (number == CA_TRACE_NO_STREAM || number == CA_TRACE_ANY_STREAM ||
	    reading->legacy[number / 64] >> number % 64 & 1)
		return 0;
	return (uint64_t)number + 1;
}

static inline uint32_t
ca_trace_read_thread_of(const struct ca_trace_record *record)
{
	return (uint32_t)(record->b >> CA_TRACE_BYTES_BITS);
}

static inline bool
ca_trace_read_is_named(uint16_t number)
{
	return number != CA_TRACE_NO_STREAM && number != CA_TRACE_ANY_STREAM;
}

static inline uint64_t
ca_trace_read_bytes_of(const struct ca_trace_record *record)
{
	return record->b & (((uint64_t)1 << CA_TRACE_BYTES_BITS) - 1);
}

/* ---- input_trace.c */

/* An allocation and a free, at `ns`. `pool`: of CA_REPLAY_ASYNC. */
int ca_trace_read_alloc(struct ca_trace_reading *reading, const struct ca_trace_record *record,
			uint64_t ns, enum ca_replay_road road, uint16_t pool);
int ca_trace_read_free(struct ca_trace_reading *reading, const struct ca_trace_record *record,
		       uint64_t ns, enum ca_replay_road road);
/* The program was refused memory. */
int ca_trace_read_failed(struct ca_trace_reading *reading, const struct ca_trace_record *record,
			 uint64_t ns, enum ca_replay_road road, uint16_t pool);
/* A segment came, went, was refused. */
int ca_trace_read_segment(struct ca_trace_reading *reading, const struct ca_trace_record *record,
			  uint64_t ns, enum ca_replay_road road);

/* ---- input_roads.c: POOL, ASYNC_ and PINNED_ */

/* A part of the stream's work has finished. */
int ca_trace_read_partly(struct ca_trace_reading *reading, const struct ca_trace_record *record,
			 uint64_t ns);
bool ca_trace_is_of_road(const struct ca_trace_record *record);
int ca_trace_read_of_road(struct ca_trace_reading *reading, const struct ca_trace_record *record,
			  uint64_t ns);
void ca_trace_reading_clear(struct ca_trace_reading *reading);
