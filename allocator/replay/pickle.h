/* SPDX-License-Identifier: MIT */
/*
 * A reader of pickles (protocols 2 to 5) that can only make plain data: dictionaries, lists,
 * tuples, strings and numbers. Everything by which a pickle names a class or a function, calls one,
 * or refers to something outside is refused; nothing is ever executed.
 *
 * Of dictionaries only the keys of a snapshot are kept (allocator/replay/snapshot.h), and of lists
 * nothing that has none of them, so that the stack traces, which are nearly all of a snapshot, cost
 * no more than a reference. A value is 8 bytes: numbers and texts stay in the file. So what is
 * built takes less than the file where a snapshot is an ordinary one, and at most some 60 bytes for
 * a byte of the file. Where the file begins with the key of a trace of ours, as `cachealloc
 * convert` writes it, the other keys are not kept. Nesting costs no recursion.
 */
#pragma once

#include "allocator/replay/snapshot.h"

/* A value on the pickle machine's stack, in its memo, or in a list or dictionary. */
struct ca_pickle_value {
	uint64_t type : 3;    /* enum ca_snapshot_type; OTHER: of no use here */
	uint64_t key : 5;     /* in a dictionary: enum ca_snapshot_key */
	uint64_t number : 56; /* NUMBER, TEXT: offset of the instruction; LIST, DICT: of the object
			       */
};
_Static_assert(sizeof(struct ca_pickle_value) == 8, "what a snapshot's size is a multiple of");
_Static_assert(CA_SNAPSHOT_KEY_COUNT < 32, "five bits");

struct ca_pickle_items {
	size_t count, room;
	struct ca_pickle_value item[];
};

/* A list, tuple or dictionary. Others may refer to it, itself included. */
struct ca_pickle_object {
	uint64_t where : 48;     /* byte offset of the instruction that made it */
	uint64_t count : 8;      /* of a dictionary: values from `first` on */
	uint64_t list : 1;       /* else a dictionary */
	uint64_t has_others : 1; /* of a list: dictionaries without any of the keys, left out */
	union {
		uint64_t first;                /* of a dictionary: in ca_pickle.fields */
		struct ca_pickle_items *items; /* of a list: malloc; NULL: none */
	};
};

struct ca_pickle {
	const uint8_t *data;
	size_t size;
	struct ca_pickle_object *objects;
	size_t n_objects, room_objects;
	struct ca_pickle_value *fields; /* of the dictionaries */
	size_t n_fields, room_fields;
	bool has_trace;             /* nothing but the trace is kept: see above */
	struct ca_pickle_value top; /* the result */
};

/* Runs the pickle. 0; -EINVAL; -ENOMEM. *ret_pickle is for ca_pickle_clear in any case; it refers
 * to the data. */
int ca_pickle_load(const uint8_t *data, size_t size, struct ca_pickle *ret_pickle,
		   struct ca_replay_error *error);
void ca_pickle_clear(struct ca_pickle *pickle);
/* The number, or the text, that the instruction at the offset has pushed. */
uint64_t ca_pickle_number_at(const struct ca_pickle *pickle, uint64_t offset);
struct ca_replay_text ca_pickle_text_at(const struct ca_pickle *pickle, uint64_t offset);
