/* SPDX-License-Identifier: MIT */
/* The pickle machine, for pickle.c, pickle_stack.c and pickle_refuse.c. */
#pragma once

#include "allocator/replay/pickle.h"

enum {
	PROTOCOL_MIN = 2,
	PROTOCOL_MAX = 5,
	MARKS_MAX = 1024, /* open containers; a snapshot has 6 */
};

struct ca_pickle_machine {
	struct ca_pickle *pickle;
	struct ca_replay_error *error;
	size_t at;   /* of the next byte */
	size_t from; /* of the instruction */
	struct ca_pickle_value *stack;
	size_t depth, room;
	size_t marks[MARKS_MAX];
	unsigned n_marks;
	struct ca_pickle_value *memo;
	size_t n_memo, room_memo;
	size_t puts; /* values remembered so far: the number of the next for MEMOIZE */
	bool stopped;
};

/* Of no use here. */
static const struct ca_pickle_value ca_pickle_other = { .type = CA_SNAPSHOT_OTHER };

/* ---- pickle_stack.c. -EINVAL: the pickle is broken; -ENOMEM. */

/* -EINVAL, at the present instruction. */
int ca_pickle_corrupt(struct ca_pickle_machine *m, const char *what);
/* -EINVAL, at the end of the file. */
int ca_pickle_cut_off(struct ca_pickle_machine *m);
int ca_pickle_push(struct ca_pickle_machine *m, struct ca_pickle_value value);
/* The stack holds `count` values above the last mark. */
int ca_pickle_want(struct ca_pickle_machine *m, size_t count);
/* Takes the last mark away; *ret_from is the first value above it. */
int ca_pickle_to_mark(struct ca_pickle_machine *m, size_t *ret_from);
/* Pushes a new list or dictionary of the last `count` values, or of those above the last mark. */
int ca_pickle_make_last(struct ca_pickle_machine *m, enum ca_snapshot_type type, size_t count);
int ca_pickle_make_to_mark(struct ca_pickle_machine *m, enum ca_snapshot_type type);
/* Those values go into the list or dictionary below them. */
int ca_pickle_add_last(struct ca_pickle_machine *m, enum ca_snapshot_type type, size_t count);
int ca_pickle_add_to_mark(struct ca_pickle_machine *m, enum ca_snapshot_type type);
/* Remembers the last value, and pushes a remembered one. */
int ca_pickle_put(struct ca_pickle_machine *m, uint64_t index);
int ca_pickle_get(struct ca_pickle_machine *m, uint64_t index);

/* ---- pickle_refuse.c */

/* -EINVAL: says what the instruction would do. */
int ca_pickle_reject(struct ca_pickle_machine *m, uint8_t code);
