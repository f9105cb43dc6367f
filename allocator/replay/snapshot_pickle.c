/* SPDX-License-Identifier: MIT */
/*
 * A snapshot as a pickle. Values may be shared, so a small file can describe a huge list of lists;
 * no more items are walked over than the file has bytes, which is more than any file without such
 * sharing needs.
 */
#include "allocator/replay/pickle.h"
#include "allocator/replay/readers.h"

struct source {
	struct ca_pickle pickle;
	uint64_t steps;
};

bool
ca_replay_is_pickle(const uint8_t *data, size_t size)
{
	return size > 1 && data[0] == 0x80 && data[1] < 32;
}

static struct ca_snapshot_value
value_of(const struct ca_pickle *pickle, struct ca_pickle_value from)
{
	struct ca_snapshot_value value = { .type = (enum ca_snapshot_type)from.type,
					   .number = from.number };

	if (value.type == CA_SNAPSHOT_TEXT)
		value.text = ca_pickle_text_at(pickle, from.number);
	else if (value.type == CA_SNAPSHOT_NUMBER)
		value.number = ca_pickle_number_at(pickle, from.number);
	return value;
}

static int
pickle_record(void *self, const struct ca_snapshot_value *dict, struct ca_snapshot_record *ret,
	      struct ca_replay_error *error)
{
	const struct ca_pickle *pickle = &((struct source *)self)->pickle;
	const struct ca_pickle_object *object = &pickle->objects[dict->number];
	size_t i;

	*ret = (struct ca_snapshot_record){ .where = object->where };
	for (i = 0; i < object->count; i++) { /* 0 of a list */
		struct ca_pickle_value field = pickle->fields[object->first + i];

		ret->value[field.key] = value_of(pickle, field);
	}
	return 0;
}

/* Dictionaries that were left out come last, as one without keys: the list itself stands for it. */
static int
pickle_next(void *self, struct ca_snapshot_cursor *cursor, struct ca_snapshot_value *ret,
	    struct ca_replay_error *error)
{
	struct source *source = self;
	const struct ca_pickle_object *object = &source->pickle.objects[cursor->list];
	size_t count = object->items ? object->items->count : 0;

	if (cursor->at == count + object->has_others)
		return 0;
	if (source->steps++ == source->pickle.size)
		return ca_replay_fail_byte(error, object->where,
					   "the same lists are used again and again");
	if (cursor->at < count)
		*ret = value_of(&source->pickle, object->items->item[cursor->at]);
	else
		*ret = (struct ca_snapshot_value){ .type = CA_SNAPSHOT_DICT,
						   .number = cursor->list };
	cursor->at++;
	return 1;
}

int
ca_replay_read_pickle(const uint8_t *data, size_t size, struct ca_replay_input *input,
		      struct ca_replay_error *error)
{
	struct source source = { .steps = 0 };
	struct ca_snapshot_source as = { &source, size, pickle_record, pickle_next };
	struct ca_snapshot_value top;
	int r = ca_pickle_load(data, size, &source.pickle, error);

	if (!r) {
		top = value_of(&source.pickle, source.pickle.top);
		r = ca_snapshot_read(&as, &top, input, error);
	}
	ca_pickle_clear(&source.pickle);
	return r;
}
