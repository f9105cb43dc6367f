/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's memory snapshot (torch.cuda.memory._dump_snapshot), whichever way it is written down:
 *
 *   {"segments": [{"device", "stream", "total_size", "blocks": [{"address", "size",
 *                  "requested_size", "state"}]}],
 *    "device_traces": [[{"action", "addr", "size", "stream", "time_us"}], one list a device]}
 *
 * Before there were traces the list of segments was all; before blocks had addresses they tiled
 * their segment, and before they had a requested size it stood in their "history", [{"real_size"}].
 *
 * A block is freed where its free was requested. Segments are what PyTorch's own allocator did, so
 * its events about them are only counted; the blocks that are live in them at the end and were not
 * allocated in the trace were live at its start.
 *
 * One that was made of a trace of ours has it as "cachealloc_trace", and that is read instead.
 *
 * A reader of the notation (pickle.c, json.c) is a struct ca_snapshot_source: dictionaries as
 * records of the keys above, and lists.
 */
#pragma once

#include "allocator/replay/input.h"
#include "allocator/replay/line.h"

#define CA_SNAPSHOT_KEYS(X)                                                                        \
	X(segments)                                                                                \
	X(device_traces)                                                                           \
	X(cachealloc_trace)                                                                        \
	X(device)                                                                                  \
	X(address)                                                                                 \
	X(total_size)                                                                              \
	X(stream)                                                                                  \
	X(blocks)                                                                                  \
	X(size)                                                                                    \
	X(requested_size)                                                                          \
	X(real_size)                                                                               \
	X(history)                                                                                 \
	X(state)                                                                                   \
	X(action)                                                                                  \
	X(device_free)                                                                             \
	X(addr)                                                                                    \
	X(time_us)

enum ca_snapshot_key {
#define X(name) CA_SNAPSHOT_##name,
	CA_SNAPSHOT_KEYS(X)
#undef X
		CA_SNAPSHOT_KEY_COUNT,
};

/* CA_SNAPSHOT_KEY_COUNT: not one of them. */
enum ca_snapshot_key ca_snapshot_key(struct ca_replay_text name);

enum ca_snapshot_type {
	CA_SNAPSHOT_ABSENT,
	CA_SNAPSHOT_NUMBER, /* a whole one from 0 to 2^64 - 1 */
	CA_SNAPSHOT_TEXT,
	CA_SNAPSHOT_LIST,
	CA_SNAPSHOT_DICT,
	CA_SNAPSHOT_OTHER, /* negative, a fraction, True, ... */
};

struct ca_snapshot_value {
	enum ca_snapshot_type type;
	uint64_t number;            /* NUMBER; LIST, DICT: for the source */
	struct ca_replay_text text; /* TEXT: as it stands in the file */
};

struct ca_snapshot_record {
	struct ca_snapshot_value value[CA_SNAPSHOT_KEY_COUNT];
	uint64_t where; /* byte offset */
};

/* A place in a list, for the source. */
struct ca_snapshot_cursor {
	uint64_t list, at;
};

struct ca_snapshot_source {
	void *self;
	uint64_t bytes; /* of the file */
	/* The dictionary; later keys win. 0, -EINVAL. */
	int (*record)(void *self, const struct ca_snapshot_value *dict,
		      struct ca_snapshot_record *ret, struct ca_replay_error *error);
	/* *cursor was set to the list's number and 0. 1: the next item; 0: there is none;
	 * -EINVAL. */
	int (*next)(void *self, struct ca_snapshot_cursor *cursor, struct ca_snapshot_value *ret,
		    struct ca_replay_error *error);
};

/* Appends the snapshot's events. */
int ca_snapshot_read(const struct ca_snapshot_source *source, const struct ca_snapshot_value *top,
		     struct ca_replay_input *input, struct ca_replay_error *error);
