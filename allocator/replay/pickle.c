/* SPDX-License-Identifier: MIT */
/*
 * The pickle machine: a stack of values, marks in it, a memo, and instructions of one byte with
 * their arguments. Numbers are little-endian. The instructions and their meaning are those of
 * CPython's Lib/pickletools.py.
 */
#include "allocator/replay/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROTOCOL_MIN = 2,
	PROTOCOL_MAX = 5,
	MARKS_MAX = 1024, /* open containers; a snapshot has 6 */
};

struct machine {
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

static const struct ca_pickle_value other = { .type = CA_SNAPSHOT_OTHER };

static int
broken(struct machine *m, const char *what)
{
	return ca_replay_fail_byte(m->error, m->from, "broken pickle: %s", what);
}

static int
cut_off(struct machine *m)
{
	return ca_replay_fail_byte(m->error, m->pickle->size,
				   "the file is cut off: the pickle goes on behind its end");
}

/* ---- bytes */

static int
number(struct machine *m, unsigned bytes, uint64_t *ret)
{
	uint64_t value = 0;
	unsigned i;

	*ret = 0;
	if (m->pickle->size - m->at < bytes)
		return cut_off(m);
	for (i = 0; i < bytes; i++)
		value |= (uint64_t)m->pickle->data[m->at++] << 8 * i;
	*ret = value;
	return 0;
}

/* Over `length` bytes. */
static int
skip(struct machine *m, uint64_t length)
{
	if (length > m->pickle->size - m->at)
		return cut_off(m);
	m->at += (size_t)length;
	return 0;
}

/* ---- stack */

/* Room for one more of `size` bytes each. */
static int
grown(void **array, size_t count, size_t *room, size_t size)
{
	size_t bigger = *room ? 2 * *room : 16;
	void *p;

	if (count < *room)
		return 0;
	p = bigger > SIZE_MAX / size ? NULL : realloc(*array, bigger * size);
	if (!p)
		return -ENOMEM;
	*array = p;
	*room = bigger;
	return 0;
}

static int
push(struct machine *m, struct ca_pickle_value value)
{
	int r = grown((void **)&m->stack, m->depth, &m->room, sizeof(*m->stack));

	if (!r)
		m->stack[m->depth++] = value;
	return r;
}

static size_t
last_mark(const struct machine *m)
{
	return m->n_marks ? m->marks[m->n_marks - 1] : 0;
}

/* The stack holds `count` values above the last mark. */
static int
want(struct machine *m, size_t count)
{
	return m->depth - last_mark(m) < count ? broken(m, "its stack is empty") : 0;
}

/* Takes the last mark away; *ret_from is the first value above it. */
static int
to_mark(struct machine *m, size_t *ret_from)
{
	if (!m->n_marks)
		return broken(m, "it has no mark");
	*ret_from = m->marks[--m->n_marks];
	return 0;
}

/* ---- objects */

static int
object_new(struct machine *m, enum ca_snapshot_type type, struct ca_pickle_value *ret)
{
	struct ca_pickle *pickle = m->pickle;
	int r = grown((void **)&pickle->objects, pickle->n_objects, &pickle->room_objects,
		      sizeof(*pickle->objects));

	if (r)
		return r;
	pickle->objects[pickle->n_objects] = (struct ca_pickle_object){ .where = m->from };
	*ret = (struct ca_pickle_value){ .type = (uint8_t)type, .number = pickle->n_objects++ };
	return 0;
}

static int
object_add(struct ca_pickle_object *object, struct ca_pickle_value value)
{
	int r = grown((void **)&object->items, object->count, &object->room,
		      sizeof(*object->items));

	if (!r)
		object->items[object->count++] = value;
	return r;
}

static int
dict_set(struct machine *m, struct ca_pickle_object *dict, struct ca_pickle_value name,
	 struct ca_pickle_value value)
{
	struct ca_replay_text text = { (const char *)m->pickle->data + name.number, name.length };
	size_t i;

	value.key = name.type == CA_SNAPSHOT_TEXT ? (uint8_t)ca_snapshot_key(text)
						  : CA_SNAPSHOT_KEY_COUNT;
	if (value.key == CA_SNAPSHOT_KEY_COUNT)
		return 0;
	for (i = 0; i < dict->count; i++)
		if (dict->items[i].key == value.key) {
			dict->items[i] = value;
			return 0;
		}
	return object_add(dict, value);
}

/* Values from `from` on go from the stack to the object: pairs to a dictionary. */
static int
fill(struct machine *m, struct ca_pickle_value to, size_t from)
{
	struct ca_pickle_object *object = &m->pickle->objects[to.number];
	bool pairs = to.type == CA_SNAPSHOT_DICT;
	size_t i;
	int r = 0;

	if (pairs && (m->depth - from) % 2)
		return broken(m, "a key without a value");
	for (i = from; i < m->depth && !r; i += 1 + pairs)
		r = pairs ? dict_set(m, object, m->stack[i], m->stack[i + 1])
			  : object_add(object, m->stack[i]);
	m->depth = from;
	return r;
}

/* A new object of the values from `from` on. */
static int
make(struct machine *m, enum ca_snapshot_type type, size_t from)
{
	struct ca_pickle_value value = other;
	int r = object_new(m, type, &value);

	if (!r)
		r = fill(m, value, from);
	return r ? r : push(m, value);
}

static int
make_last(struct machine *m, enum ca_snapshot_type type, size_t count)
{
	int r = want(m, count);

	return r ? r : make(m, type, m->depth - count);
}

static int
make_to_mark(struct machine *m, enum ca_snapshot_type type)
{
	size_t from = 0;
	int r = to_mark(m, &from);

	return r ? r : make(m, type, from);
}

/* The values from `from` on go to what lies below them, which must be of the type. */
static int
add_from(struct machine *m, enum ca_snapshot_type type, size_t from)
{
	if (from <= last_mark(m))
		return broken(m, "its stack is empty");
	if (m->stack[from - 1].type != type)
		return broken(m, type == CA_SNAPSHOT_DICT ? "not a dictionary" : "not a list");
	return fill(m, m->stack[from - 1], from);
}

static int
add_last(struct machine *m, enum ca_snapshot_type type, size_t count)
{
	int r = want(m, count + 1);

	return r ? r : add_from(m, type, m->depth - count);
}

static int
add_to_mark(struct machine *m, enum ca_snapshot_type type)
{
	size_t from = 0;
	int r = to_mark(m, &from);

	return r ? r : add_from(m, type, from);
}

/* ---- memo */

static int
put(struct machine *m, uint64_t index)
{
	int r = want(m, 1);

	if (r)
		return r;
	if (index >= m->pickle->size) /* every number before it took a byte at least */
		return broken(m, "a memo number that is too large");
	while (m->n_memo <= index) {
		r = grown((void **)&m->memo, m->n_memo, &m->room_memo, sizeof(*m->memo));
		if (r)
			return r;
		m->memo[m->n_memo++] = (struct ca_pickle_value){ .type = CA_SNAPSHOT_ABSENT };
	}
	if (m->memo[index].type == CA_SNAPSHOT_ABSENT)
		m->puts++;
	m->memo[index] = m->stack[m->depth - 1];
	return 0;
}

static int
get(struct machine *m, uint64_t index)
{
	if (index >= m->n_memo || m->memo[index].type == CA_SNAPSHOT_ABSENT)
		return broken(m, "a memo number that was never set");
	return push(m, m->memo[index]);
}

static int
numbered(struct machine *m, unsigned bytes, int (*act)(struct machine *, uint64_t))
{
	uint64_t index;
	int r = number(m, bytes, &index);

	return r ? r : act(m, index);
}

/* ---- plain values */

static int
push_number(struct machine *m, uint64_t value, bool negative)
{
	struct ca_pickle_value pushed = { .type = CA_SNAPSHOT_NUMBER, .number = value };

	return push(m, negative ? other : pushed);
}

static int
int_of(struct machine *m, unsigned bytes, bool has_sign)
{
	uint64_t value;
	int r = number(m, bytes, &value);

	return r ? r : push_number(m, value, has_sign && value >> (8 * bytes - 1));
}

/* An integer of as many bytes as it needs, in two's complement; more than 64 bits are of no use. */
static int
long_of(struct machine *m, unsigned length_bytes)
{
	const uint8_t *data = m->pickle->data;
	uint64_t length, value = 0;
	size_t from, last;
	int r = number(m, length_bytes, &length);

	from = m->at;
	if (!r)
		r = skip(m, length);
	if (r)
		return r;
	if (!length)
		return push_number(m, 0, false);
	if (data[m->at - 1] & 0x80)
		return push(m, other);
	for (last = m->at; last > from && !data[last - 1]; last--)
		;
	if (last - from > 8)
		return push(m, other);
	while (last > from)
		value = value << 8 | data[--last];
	return push_number(m, value, false);
}

static int
text_of(struct machine *m, unsigned length_bytes)
{
	struct ca_pickle_value value = { .type = CA_SNAPSHOT_TEXT };
	uint64_t length;
	int r = number(m, length_bytes, &length);

	value.number = m->at;
	if (!r)
		r = skip(m, length);
	if (r)
		return r;
	value.length = (uint32_t)length;
	return push(m, length > UINT32_MAX ? other : value);
}

/* Bytes and fractions: there, and of no use. */
static int
unused(struct machine *m, unsigned length_bytes, uint64_t length)
{
	int r = length_bytes ? number(m, length_bytes, &length) : 0;

	if (!r)
		r = skip(m, length);
	return r ? r : push(m, other);
}

/* ---- what is refused */

/* The rest of the line, or nothing. */
static struct ca_replay_text
line_rest(struct machine *m)
{
	const char *start = (const char *)m->pickle->data + m->at;
	size_t left = m->pickle->size - m->at;
	const char *end = left ? memchr(start, '\n', left) : NULL;
	struct ca_replay_text text = { start, end ? (size_t)(end - start) : left };

	m->at += end ? text.length + 1 : text.length;
	return text;
}

static struct ca_replay_text
text_at(struct machine *m, size_t below_top)
{
	struct ca_replay_text text = { "?", 1 };
	const struct ca_pickle_value *value;

	if (m->depth <= below_top)
		return text;
	value = &m->stack[m->depth - 1 - below_top];
	if (value->type == CA_SNAPSHOT_TEXT)
		text = (struct ca_replay_text){ (const char *)m->pickle->data + value->number,
						value->length };
	return text;
}

static int
refuse_class(struct machine *m, struct ca_replay_text module, struct ca_replay_text name)
{
	char a[CA_REPLAY_QUOTE_MAX], b[CA_REPLAY_QUOTE_MAX];

	return ca_replay_fail_byte(m->error, m->from,
				   "the pickle names '%s.%s': refused, a snapshot is plain data",
				   ca_replay_quote(a, module), ca_replay_quote(b, name));
}

static int
refuse(struct machine *m, uint8_t code)
{
	static const struct {
		uint8_t code;
		const char *what;
	} known[] = {
		{ 'R', "calls a function" },
		{ 'b', "builds an object" },
		{ 'o', "builds an object" },
		{ 0x81, "builds an object" },
		{ 0x92, "builds an object" },
		{ 0x82, "names a class by number" },
		{ 0x83, "names a class by number" },
		{ 0x84, "names a class by number" },
		{ 'P', "refers to something outside" },
		{ 'Q', "refers to something outside" },
		{ 0x97, "refers to a buffer outside" },
		{ 0x98, "refers to a buffer outside" },
	};
	struct ca_replay_text module, name;
	size_t i;

	if (code == 'c' || code == 'i') {
		module = line_rest(m);
		name = line_rest(m);
		return refuse_class(m, module, name);
	}
	if (code == 0x93)
		return refuse_class(m, text_at(m, 1), text_at(m, 0));
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].code == code)
			return ca_replay_fail_byte(
				m->error, m->from,
				"the pickle %s: refused, a snapshot is plain data", known[i].what);
	return ca_replay_fail_byte(m->error, m->from,
				   "the instruction 0x%02x is none that a snapshot needs", code);
}

/* ---- instructions */

static int
protocol(struct machine *m)
{
	uint64_t version;
	int r = number(m, 1, &version);

	if (!r && (version < PROTOCOL_MIN || version > PROTOCOL_MAX))
		return ca_replay_fail_byte(m->error, m->from,
					   "pickle protocol %" PRIu64 " (2 to 5 are read)",
					   version);
	return r;
}

static int
frame(struct machine *m)
{
	uint64_t length;
	int r = number(m, 8, &length);

	return !r && length > m->pickle->size - m->at ? cut_off(m) : r;
}

static int
mark(struct machine *m)
{
	if (m->n_marks == MARKS_MAX)
		return ca_replay_fail_byte(m->error, m->from, "nested more than %d deep",
					   MARKS_MAX);
	m->marks[m->n_marks++] = m->depth;
	return 0;
}

static int
pop(struct machine *m)
{
	int r = want(m, 1);

	m->depth -= !r;
	return r;
}

static int
pop_mark(struct machine *m)
{
	return to_mark(m, &m->depth);
}

static int
stop(struct machine *m)
{
	int r = want(m, 1);

	if (r)
		return r;
	if (m->depth != 1 || m->n_marks)
		return broken(m, "something is left on its stack");
	if (m->at != m->pickle->size)
		return ca_replay_fail_byte(m->error, m->at, "bytes after the end of the pickle");
	m->stopped = true;
	m->pickle->top = m->stack[0];
	return 0;
}

static int
step_container(struct machine *m, uint8_t code)
{
	switch (code) {
	case ']': /* EMPTY_LIST */
	case ')': /* EMPTY_TUPLE */
		return make_last(m, CA_SNAPSHOT_LIST, 0);
	case '}': /* EMPTY_DICT */
		return make_last(m, CA_SNAPSHOT_DICT, 0);
	case 'a': /* APPEND */
		return add_last(m, CA_SNAPSHOT_LIST, 1);
	case 'e': /* APPENDS */
		return add_to_mark(m, CA_SNAPSHOT_LIST);
	case 's': /* SETITEM */
		return add_last(m, CA_SNAPSHOT_DICT, 2);
	case 'u': /* SETITEMS */
		return add_to_mark(m, CA_SNAPSHOT_DICT);
	case 'l': /* LIST */
	case 't': /* TUPLE */
		return make_to_mark(m, CA_SNAPSHOT_LIST);
	case 'd': /* DICT */
		return make_to_mark(m, CA_SNAPSHOT_DICT);
	case 0x85: /* TUPLE1 */
	case 0x86: /* TUPLE2 */
	case 0x87: /* TUPLE3 */
		return make_last(m, CA_SNAPSHOT_LIST, code - 0x84u);
	default:
		return refuse(m, code);
	}
}

static int
step_value(struct machine *m, uint8_t code)
{
	switch (code) {
	case 'N':  /* NONE */
	case 0x88: /* NEWTRUE */
	case 0x89: /* NEWFALSE */
		return push(m, other);
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
step(struct machine *m)
{
	uint64_t code;
	int r;

	m->from = m->at;
	r = number(m, 1, &code);
	if (r)
		return r;
	switch (code) {
	case 0x80: /* PROTO */
		return protocol(m);
	case 0x95: /* FRAME */
		return frame(m);
	case '(': /* MARK */
		return mark(m);
	case '0': /* POP */
		return pop(m);
	case '1': /* POP_MARK */
		return pop_mark(m);
	case 'h': /* BINGET */
		return numbered(m, 1, get);
	case 'j': /* LONG_BINGET */
		return numbered(m, 4, get);
	case 'q': /* BINPUT */
		return numbered(m, 1, put);
	case 'r': /* LONG_BINPUT */
		return numbered(m, 4, put);
	case 0x94: /* MEMOIZE */
		return put(m, m->puts);
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
	struct machine m = { .pickle = ret_pickle, .error = error };
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
		free(pickle->objects[i].items);
	free(pickle->objects);
	*pickle = (struct ca_pickle){ 0 };
}
