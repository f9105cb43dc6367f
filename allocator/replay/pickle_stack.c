/* SPDX-License-Identifier: MIT */
/*
 * The stack, the memo, and the lists and dictionaries that they refer to.
 */
#include "allocator/replay/pickle_inside.h"

#include <errno.h>
#include <stdlib.h>

int
ca_pickle_corrupt(struct ca_pickle_machine *m, const char *what)
{
	return ca_replay_fail_byte(m->error, m->from, "broken pickle: %s", what);
}

int
ca_pickle_cut_off(struct ca_pickle_machine *m)
{
	return ca_replay_fail_byte(m->error, m->pickle->size,
				   "the file is cut off: the pickle goes on behind its end");
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

int
ca_pickle_push(struct ca_pickle_machine *m, struct ca_pickle_value value)
{
	int r = grown((void **)&m->stack, m->depth, &m->room, sizeof(*m->stack));

	if (!r)
		m->stack[m->depth++] = value;
	return r;
}

static size_t
last_mark(const struct ca_pickle_machine *m)
{
	return m->n_marks ? m->marks[m->n_marks - 1] : 0;
}

/* The stack holds `count` values above the last mark. */
int
ca_pickle_want(struct ca_pickle_machine *m, size_t count)
{
	return m->depth - last_mark(m) < count ? ca_pickle_corrupt(m, "its stack is empty") : 0;
}

/* Takes the last mark away; *ret_from is the first value above it. */
int
ca_pickle_to_mark(struct ca_pickle_machine *m, size_t *ret_from)
{
	if (!m->n_marks)
		return ca_pickle_corrupt(m, "it has no mark");
	*ret_from = m->marks[--m->n_marks];
	return 0;
}

/* ---- objects */

static int
object_new(struct ca_pickle_machine *m, enum ca_snapshot_type type, struct ca_pickle_value *ret)
{
	struct ca_pickle *pickle = m->pickle;
	int r = grown((void **)&pickle->objects, pickle->n_objects, &pickle->room_objects,
		      sizeof(*pickle->objects));

	if (r)
		return r;
	pickle->objects[pickle->n_objects] =
		(struct ca_pickle_object){ .where = m->from, .list = type == CA_SNAPSHOT_LIST };
	*ret = (struct ca_pickle_value){ .type = type & 7, .number = pickle->n_objects++ };
	return 0;
}

/* A dictionary without any of the keys; true of one that gets them later, too. */
static bool
is_of_no_use(const struct ca_pickle *pickle, struct ca_pickle_value value)
{
	return value.type == CA_SNAPSHOT_DICT && !pickle->objects[value.number].count;
}

static int
list_add(struct ca_pickle *pickle, struct ca_pickle_object *list, struct ca_pickle_value value)
{
	struct ca_pickle_items *items = list->items;
	size_t count = items ? items->count : 0, room = items ? items->room : 0;

	if (is_of_no_use(pickle, value)) {
		list->has_others = true;
		return 0;
	}
	if (count == room) {
		room = room ? 2 * room : 4;
		items = realloc(items, sizeof(*items) + room * sizeof(*items->item));
		if (!items)
			return -ENOMEM;
		items->room = room;
		list->items = items;
	}
	items->item[count] = value;
	items->count = count + 1;
	return 0;
}

/* A dictionary's fields lie together: if others' have come behind them, they move to the end. */
static int
fields_open(struct ca_pickle *pickle, struct ca_pickle_object *dict)
{
	unsigned i, count = dict->count;
	uint64_t first = dict->first;
	int r = 0;

	if (count && first + count == pickle->n_fields)
		return 0;
	dict->first = pickle->n_fields;
	for (i = 0; i < count && !r; i++) {
		r = grown((void **)&pickle->fields, pickle->n_fields, &pickle->room_fields,
			  sizeof(*pickle->fields));
		if (!r)
			pickle->fields[pickle->n_fields++] = pickle->fields[first + i];
	}
	return r;
}

static int
dict_set(struct ca_pickle *pickle, struct ca_pickle_object *dict, struct ca_pickle_value name,
	 struct ca_pickle_value value)
{
	enum ca_snapshot_key key = CA_SNAPSHOT_KEY_COUNT;
	unsigned i;
	int r;

	if (name.type == CA_SNAPSHOT_TEXT)
		key = ca_snapshot_key(ca_pickle_text_at(pickle, name.number));
	if (key == CA_SNAPSHOT_KEY_COUNT ||
	    (pickle->has_trace && key != CA_SNAPSHOT_cachealloc_trace))
		return 0;
	value.key = key & 31;
	for (i = 0; i < dict->count; i++)
		if (pickle->fields[dict->first + i].key == key) {
			pickle->fields[dict->first + i] = value;
			return 0;
		}
	r = fields_open(pickle, dict);
	if (!r)
		r = grown((void **)&pickle->fields, pickle->n_fields, &pickle->room_fields,
			  sizeof(*pickle->fields));
	if (r)
		return r;
	pickle->fields[pickle->n_fields++] = value;
	dict->count++;
	return 0;
}

/* Values from `from` on go from the stack to the object: pairs to a dictionary. */
static int
fill(struct ca_pickle_machine *m, struct ca_pickle_value to, size_t from)
{
	struct ca_pickle_object *object = &m->pickle->objects[to.number];
	bool pairs = to.type == CA_SNAPSHOT_DICT;
	size_t i;
	int r = 0;

	if (pairs && (m->depth - from) % 2)
		return ca_pickle_corrupt(m, "a key without a value");
	for (i = from; i < m->depth && !r; i += 1 + pairs)
		r = pairs ? dict_set(m->pickle, object, m->stack[i], m->stack[i + 1])
			  : list_add(m->pickle, object, m->stack[i]);
	m->depth = from;
	return r;
}

/* A new object of the values from `from` on. */
static int
make(struct ca_pickle_machine *m, enum ca_snapshot_type type, size_t from)
{
	struct ca_pickle_value value = ca_pickle_other;
	int r = object_new(m, type, &value);

	if (!r)
		r = fill(m, value, from);
	return r ? r : ca_pickle_push(m, value);
}

int
ca_pickle_make_last(struct ca_pickle_machine *m, enum ca_snapshot_type type, size_t count)
{
	int r = ca_pickle_want(m, count);

	return r ? r : make(m, type, m->depth - count);
}

int
ca_pickle_make_to_mark(struct ca_pickle_machine *m, enum ca_snapshot_type type)
{
	size_t from = 0;
	int r = ca_pickle_to_mark(m, &from);

	return r ? r : make(m, type, from);
}

/* The values from `from` on go to what lies below them, which must be of the type. */
static int
add_from(struct ca_pickle_machine *m, enum ca_snapshot_type type, size_t from)
{
	if (from <= last_mark(m))
		return ca_pickle_corrupt(m, "its stack is empty");
	if (m->stack[from - 1].type != type)
		return ca_pickle_corrupt(m, type == CA_SNAPSHOT_DICT ? "not a dictionary"
								     : "not a list");
	return fill(m, m->stack[from - 1], from);
}

int
ca_pickle_add_last(struct ca_pickle_machine *m, enum ca_snapshot_type type, size_t count)
{
	int r = ca_pickle_want(m, count + 1);

	return r ? r : add_from(m, type, m->depth - count);
}

int
ca_pickle_add_to_mark(struct ca_pickle_machine *m, enum ca_snapshot_type type)
{
	size_t from = 0;
	int r = ca_pickle_to_mark(m, &from);

	return r ? r : add_from(m, type, from);
}

/* ---- memo */

int
ca_pickle_put(struct ca_pickle_machine *m, uint64_t index)
{
	int r = ca_pickle_want(m, 1);

	if (r)
		return r;
	if (index >= m->pickle->size) /* every number before it took a byte at least */
		return ca_pickle_corrupt(m, "a memo number that is too large");
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

int
ca_pickle_get(struct ca_pickle_machine *m, uint64_t index)
{
	if (index >= m->n_memo || m->memo[index].type == CA_SNAPSHOT_ABSENT)
		return ca_pickle_corrupt(m, "a memo number that was never set");
	return ca_pickle_push(m, m->memo[index]);
}
