/* SPDX-License-Identifier: MIT */
/* A timeline's columns, between timeline.c, which fills them, and timeline_write.c. */
#pragma once

#include "allocator/replay/timeline.h"
#include "allocator/util/tree.h"

/* X(name, bytes of a value, counted as) */
#define CA_TIMELINE_COLUMNS(X)                                                                     \
	X(kind, 1, "u8")                                                                           \
	X(time_ns, 8, "u64")                                                                       \
	X(arg, 4, "u32")                                                                           \
	X(waiting, 8, "u64")                                                                       \
	X(address, 8, "u64")                                                                       \
	X(requested, 8, "u64")                                                                     \
	X(size, 8, "u64")                                                                          \
	X(stream, 8, "u64")                                                                        \
	X(segment, 4, "u32")                                                                       \
	X(segment_address, 8, "u64")                                                               \
	X(segment_bytes, 8, "u64")                                                                 \
	X(segment_road, 1, "u8")                                                                   \
	X(failed, 8, "u64")

enum {
#define X(name, width, type) CA_TIMELINE_COLUMN_##name,
	CA_TIMELINE_COLUMNS(X)
#undef X
		CA_TIMELINE_COLUMN_COUNT,
};

struct ca_timeline_column_type {
	const char *name, *type;
	unsigned width; /* bytes of a value */
};

extern const struct ca_timeline_column_type ca_timeline_columns[CA_TIMELINE_COLUMN_COUNT];

struct ca_timeline_column {
	uint8_t *data;
	size_t count, room; /* values */
};

struct ca_timeline {
	struct ca_timeline_column column[CA_TIMELINE_COLUMN_COUNT];
	struct ca_tree segments;
	uint32_t *number_of; /* by the input's block */
	uint32_t n_blocks;
	uint64_t now_ns, last_ns; /* NO_TIME: none so far */
	uint64_t waiting;
	enum ca_replay_road road; /* of segments that come */
	bool failed;              /* memory was not to be had */
};
