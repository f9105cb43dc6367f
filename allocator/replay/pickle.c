/* SPDX-License-Identifier: MIT */
/*
 * The pickle machine: a stack of values, marks in it, a memo, and instructions of one byte with
 * their arguments. Numbers are little-endian. The instructions and their meaning are those of
 * CPython's Lib/pickletools.py.
 */
#include "allocator/replay/pickle_inside.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- bytes */

static int
ca_pickle_number(struct ca_pickle_machine *m, unsigned bytes, uint64_t *ret)
{
	uint64_t value = 0;
	unsigned i;

	*ret = 0;
	if (m->pickle->size - m->at < bytes)
		return ca_pickle_cut_off(m);
	for (i = 0; i < bytes; i++)
		value |= (uint64_t)m->pickle->data[m->at++] << 8 * i;
	*ret = value;
	return 0;
}

/* Over `length` bytes. */
static int
skip(struct ca_pickle_machine *m, uint64_t length)
{
	if (length > m->pickle->size - m->at)
		return ca_pickle_cut_off(m);
	m->at += (size_t)length;
	return 0;
}

/* ---- plain values */

/* The value that the present instruction pushes. */
static int
push(struct ca_pickle_machine *m, enum ca_snapshot_type type)
{
	struct ca_pickle_value value = { .type = type & 7, .number = m->from };

	return ca_pickle_push(m, type == CA_SNAPSHOT_OTHER ? ca_pickle_other : value);
}

static int
int_of(struct ca_pickle_machine *m, unsigned bytes, bool has_sign)
{
	uint64_t value;
	int r = ca_pickle_number(m, bytes, &value);
	bool negative = has_sign && value >> (8 * bytes - 1);

	return r ? r : push(m, negative ? CA_SNAPSHOT_OTHER : CA_SNAPSHOT_NUMBER);
}

/* An integer of as many bytes as it needs, in two's complement; more than 64 bits are of no use. */
static int
long_of(struct ca_pickle_machine *m, unsigned length_bytes)
{
	const uint8_t *data = m->pickle->data;
	uint64_t length;
	size_t from, last;
	int r = ca_pickle_number(m, length_bytes, &length);

	from = m->at;
	if (!r)
		r = skip(m, length);
	if (r)
		return r;
	if (length && data[m->at - 1] & 0x80)
		return push(m, CA_SNAPSHOT_OTHER);
	for (last = m->at; last > from && !data[last - 1]; last--)
		;
	return push(m, last - from > 8 ? CA_SNAPSHOT_OTHER : CA_SNAPSHOT_NUMBER);
}

/* Behind PROTO, EMPTY_DICT and MARK. */
enum { FIRST_KEY = 4 };

static int
text_of(struct ca_pickle_machine *m, unsigned length_bytes)
{
	uint64_t length;
	int r = ca_pickle_number(m, length_bytes, &length);

	if (!r)
		r = skip(m, length);
	if (!r && m->from == FIRST_KEY)
		m->pickle->has_trace = ca_snapshot_key(ca_pickle_text_at(m->pickle, m->from)) ==
				       CA_SNAPSHOT_cachealloc_trace;
	return r ? r : push(m, CA_SNAPSHOT_TEXT);
}

/* ---- what was pushed: the same instructions, which have been found whole */

/* Of an instruction with a length, or of a number: bytes behind its code. */
static unsigned
argument_bytes(uint8_t code)
{
	switch (code) {
	case 'M': /* BININT2 */
		return 2;
	case 'J':  /* BININT */
	case 0x8b: /* LONG4 */
	case 'X':  /* BINUNICODE */
	case 'T':  /* BINSTRING */
		return 4;
	case 0x8d: /* BINUNICODE8 */
		return 8;
	default: /* BININT1, LONG1, SHORT_BINUNICODE, SHORT_BINSTRING */
		return 1;
	}
}

static uint64_t
little_endian(const uint8_t *data, uint64_t length)
{
	uint64_t value = 0;

	while (length)
		value = value << 8 | data[--length];
	return value;
}

uint64_t
ca_pickle_number_at(const struct ca_pickle *pickle, uint64_t offset)
{
	const uint8_t *at = pickle->data + offset;
	unsigned bytes = argument_bytes(*at);
	uint64_t value = little_endian(at + 1, bytes);

	if (*at == 0x8a || *at == 0x8b)
		value = little_endian(at + 1 + bytes, value < 8 ? value : 8);
	return value;
}

struct ca_replay_text
ca_pickle_text_at(const struct ca_pickle *pickle, uint64_t offset)
{
	const uint8_t *at = pickle->data + offset;
	unsigned bytes = argument_bytes(*at);

	return (struct ca_replay_text){ (const char *)at + 1 + bytes,
					little_endian(at + 1, bytes) };
}

/* Bytes and fractions: there, and of no use. */
static int
unused(struct ca_pickle_machine *m, unsigned length_bytes, uint64_t length)
{
	int r = length_bytes ? ca_pickle_number(m, length_bytes, &length) : 0;

	if (!r)
		r = skip(m, length);
	return r ? r : ca_pickle_push(m, ca_pickle_other);
}

/* ---- instructions */

static int
numbered(struct ca_pickle_machine *m, unsigned bytes,
	 int (*act)(struct ca_pickle_machine *, uint64_t))
{
	uint64_t index;
	int r = ca_pickle_number(m, bytes, &index);

	return r ? r : act(m, index);
}

static int
pickle_version(struct ca_pickle_machine *m)
{
	uint64_t version;
	int r = ca_pickle_number(m, 1, &version);

	if (!r && (version < PROTOCOL_MIN || version > PROTOCOL_MAX))
		return ca_replay_fail_byte(m->error, m->from,
					   "pickle protocol %" PRIu64 " (2 to 5 are read)",
					   version);
	return r;
}

static int
frame(struct ca_pickle_machine *m)
{
	uint64_t length;
	int r = ca_pickle_number(m, 8, &length);

	return !r && length > m->pickle->size - m->at ? ca_pickle_cut_off(m) : r;
}

static int
mark(struct ca_pickle_machine *m)
{
	if (m->n_marks == MARKS_MAX)
		return ca_replay_fail_byte(m->error, m->from, "nested more than %d deep",
					   MARKS_MAX);
	m->marks[m->n_marks++] = m->depth;
	return 0;
}

static int
pop(struct ca_pickle_machine *m)
{
	int r = ca_pickle_want(m, 1);

	m->depth -= !r;
	return r;
}

static int
pop_mark(struct ca_pickle_machine *m)
{
	return ca_pickle_to_mark(m, &m->depth);
}

static int
stop(struct ca_pickle_machine *m)
{
	int r = ca_pickle_want(m, 1);

	if (r)
		return r;
	if (m->depth != 1 || m->n_marks)
		return ca_pickle_corrupt(m, "something is left on its stack");
	if (m->at != m->pickle->size)
		return ca_replay_fail_byte(m->error, m->at, "bytes after the end of the pickle");
	m->stopped = true;
	m->pickle->top = m->stack[0];
	return 0;
}

static int
step_container(struct ca_pickle_machine *m, uint8_t code)
{
	switch (code) {
	case ']': /* EMPTY_LIST */
	case ')': /* EMPTY_TUPLE */
		return ca_pickle_make_last(m, CA_SNAPSHOT_LIST, 0);
	case '}': /* EMPTY_DICT */
		return ca_pickle_make_last(m, CA_SNAPSHOT_DICT, 0);
	case 'a': /* APPEND */
		return ca_pickle_add_last(m, CA_SNAPSHOT_LIST, 1);
	case 'e': /* APPENDS */
		return ca_pickle_add_to_mark(m, CA_SNAPSHOT_LIST);
	case 's': /* SETITEM */
		return ca_pickle_add_last(m, CA_SNAPSHOT_DICT, 2);
	case 'u': /* SETITEMS */
		return ca_pickle_add_to_mark(m, CA_SNAPSHOT_DICT);
	case 'l': /* LIST */
	case 't': /* TUPLE */
		return ca_pickle_make_to_mark(m, CA_SNAPSHOT_LIST);
	case 'd': /* DICT */
		return ca_pickle_make_to_mark(m, CA_SNAPSHOT_DICT);
	case 0x85: /* TUPLE1 */
	case 0x86: /* TUPLE2 */
	case 0x87: /* TUPLE3 */
		return ca_pickle_make_last(m, CA_SNAPSHOT_LIST, code - 0x84u);
	default:
		return ca_pickle_reject(m, code);
	}
}

static int
step_value(struct ca_pickle_machine *m, uint8_t code)
{
	switch (code) {
	case 'N':  /* NONE */
	case 0x88: /* NEWTRUE */
	case 0x89: /* NEWFALSE */
		return ca_pickle_push(m, ca_pickle_other);
	case 'J': /* BININT */
		return int_of(m, 4, true);
	case 'K': /* BININT1 */
		return int_of(m, 1, false);
	case 'M': /* BININT2 */
		return int_of(m, 2, false);
	case 0x8a: /* LONG1 */
		return long_of(m, 1);
	case 0x8b: /* LONG4 */
		return long_of(m, 4);
	case 'G': /* BINFLOAT */
		return unused(m, 0, 8);
	case 'X': /* BINUNICODE */
	case 'T': /* BINSTRING */
		return text_of(m, 4);
	case 0x8c: /* SHORT_BINUNICODE */
	case 'U':  /* SHORT_BINSTRING */
		return text_of(m, 1);
	case 0x8d: /* BINUNICODE8 */
		return text_of(m, 8);
	case 'C': /* SHORT_BINBYTES */
		return unused(m, 1, 0);
	case 'B': /* BINBYTES */
		return unused(m, 4, 0);
	case 0x8e: /* BINBYTES8 */
	case 0x96: /* BYTEARRAY8 */
		return unused(m, 8, 0);
	default:
		return step_container(m, code);
	}
}

static int
step(struct ca_pickle_machine *m)
{
	uint64_t code;
	int r;

	m->from = m->at;
	r = ca_pickle_number(m, 1, &code);
	if (r)
		return r;
	switch (code) {
	case 0x80: /* PROTO */
		return pickle_version(m);
	case 0x95: /* FRAME */
		return frame(m);
	case '(': /* MARK */
		return mark(m);
	case '0': /* POP */
		return pop(m);
	case '1': /* POP_MARK */
		return pop_mark(m);
	case 'h': /* BINGET */
		return numbered(m, 1, ca_pickle_get);
	case 'j': /* LONG_BINGET */
		return numbered(m, 4, ca_pickle_get);
	case 'q': /* BINPUT */
		return numbered(m, 1, ca_pickle_put);
	case 'r': /* LONG_BINPUT */
		return numbered(m, 4, ca_pickle_put);
	case 0x94: /* MEMOIZE */
		return ca_pickle_put(m, m->puts);
	case '.': /* STOP */
		return stop(m);
	default:
		return step_value(m, (uint8_t)code);
	}
}

int
ca_pickle_load(const uint8_t *data, size_t size, struct ca_pickle *ret_pickle,
	       struct ca_replay_error *error)
{
	struct ca_pickle_machine m = { .pickle = ret_pickle, .error = error };
	int r = 0;

	*ret_pickle = (struct ca_pickle){ .data = data, .size = size };
	while (!r && !m.stopped)
		r = step(&m);
	free(m.stack);
	free(m.memo);
	return r;
}

void
ca_pickle_clear(struct ca_pickle *pickle)
{
	size_t i;

	for (i = 0; i < pickle->n_objects; i++)
		if (pickle->objects[i].list)
			free(pickle->objects[i].items);
	free(pickle->objects);
	free(pickle->fields);
	*pickle = (struct ca_pickle){ 0 };
}
