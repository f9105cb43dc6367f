/* SPDX-License-Identifier: MIT */
/*
 * A reader of pickles (protocols 2 to 5) that can only make plain data: dictionaries, lists,
 * tuples, strings and numbers. Everything by which a pickle names a class or a function, calls one,
 * or refers to something outside is refused; nothing is ever executed.
 *
 * Of dictionaries only the keys of a snapshot are kept (allocator/replay/snapshot.h), so that the
 * stack traces, which are nearly all of a snapshot, cost no more than a reference. The built data
 * takes at most some 100 bytes for a byte of the file. Nesting costs no recursion.
 */
#pragma once

#include "allocator/replay/snapshot.h"

/* A value on the pickle machine's stack, in its memo, or in a list or dictionary. */
struct ca_pickle_value {
	uint8_t type;    /* enum ca_snapshot_type; OTHER: of no use here */
	uint8_t key;     /* in a dictionary: enum ca_snapshot_key */
	uint32_t length; /* TEXT: bytes; anything else: 0 */
	uint64_t number; /* NUMBER: itself; TEXT: offset in the file; LIST, DICT: of the object */
};

/* A list, tuple or dictionary. Others may refer to it, itself included. */
struct ca_pickle_object {
	struct ca_pickle_value *items; /* malloc */
	size_t count, room;
	uint64_t where; /* byte offset of the instruction that made it */
};

struct ca_pickle {
	const uint8_t *data;
	size_t size;
	struct ca_pickle_object *objects;
	size_t n_objects, room_objects;
	struct ca_pickle_value top; /* the result */
};

/* Runs the pickle. 0; -EINVAL; -ENOMEM. *ret_pickle is for ca_pickle_clear in any case; it refers
 * to the data. */
int ca_pickle_load(const uint8_t *data, size_t size, struct ca_pickle *ret_pickle,
		   struct ca_replay_error *error);
void ca_pickle_clear(struct ca_pickle *pickle);
