/* SPDX-License-Identifier: MIT */
/*
 * A snapshot as JSON. Nothing is built of it: a list or a dictionary is the offset at which it
 * begins, and is walked again when somebody wants its inside. That is three times over the file in
 * all, for no memory.
 */
#include <errno.h>
#include <string.h>

#include "allocator/replay/json.h"
#include "allocator/replay/readers.h"
#include "allocator/replay/snapshot.h"

/* A line of a log may begin with a bracket, too: "[rank0]: ..." */
bool
ca_replay_is_json(const uint8_t *data, size_t size)
{
	struct ca_json json = { .data = data, .size = size };
	int c;

	if (!ca_json_take(&json, '{') && !ca_json_take(&json, '['))
		return false;
	ca_json_skip_space(&json);
	c = ca_json_peek(&json);
	return json.at >= size || (c > 0 && strchr("\"[]{}-0123456789tfn", c));
}

/* The next value; json->at is behind it then. */
static int
value(struct ca_json *json, struct ca_snapshot_value *ret)
{
	size_t start;
	int c, r;

	ca_json_skip_space(json);
	start = json->at;
	c = ca_json_peek(json);
	*ret = (struct ca_snapshot_value){ .type = CA_SNAPSHOT_OTHER, .number = start };
	if (c == '"') {
		ret->type = CA_SNAPSHOT_TEXT;
		return ca_json_string(json, &ret->text);
	}
	if (c == '{' || c == '[')
		ret->type = c == '{' ? CA_SNAPSHOT_DICT : CA_SNAPSHOT_LIST;
	r = ca_json_skip(json, &ret->number);
	if (r == 1)
		ret->type = CA_SNAPSHOT_NUMBER;
	return r < 0 ? r : 0;
}

static int
json_record(void *self, const struct ca_snapshot_value *dict, struct ca_snapshot_record *ret,
	    struct ca_replay_error *error)
{
	struct ca_json json = *(struct ca_json *)self;
	struct ca_snapshot_value item;
	struct ca_replay_text name;
	enum ca_snapshot_key key;
	int r = 0;

	*ret = (struct ca_snapshot_record){ .where = dict->number };
	json.at = (size_t)dict->number + 1;
	if (ca_json_take(&json, '}'))
		return 0;
	do {
		r = ca_json_string(&json, &name);
		if (!r && !ca_json_take(&json, ':'))
			r = ca_json_expected(&json, "':'");
		if (!r)
			r = value(&json, &item);
		key = r ? CA_SNAPSHOT_KEY_COUNT : ca_snapshot_key(name);
		if (key < CA_SNAPSHOT_KEY_COUNT)
			ret->value[key] = item;
	} while (!r && ca_json_take(&json, ','));
	return r;
}

static int
json_next(void *self, struct ca_snapshot_cursor *cursor, struct ca_snapshot_value *ret,
	  struct ca_replay_error *error)
{
	struct ca_json json = *(struct ca_json *)self;
	bool first = !cursor->at;
	int r;

	json.at = (size_t)(first ? cursor->list + 1 : cursor->at);
	if (ca_json_take(&json, ']'))
		return 0;
	if (!first && !ca_json_take(&json, ','))
		return ca_json_expected(&json, "',' or ']'");
	r = value(&json, ret);
	cursor->at = json.at;
	return r ? r : 1;
}

int
ca_replay_read_json(const uint8_t *data, size_t size, struct ca_replay_input *input,
		    struct ca_replay_error *error)
{
	struct ca_json json = { .data = data, .size = size, .error = error };
	struct ca_snapshot_source source = { &json, size, json_record, json_next };
	struct ca_snapshot_value top;
	int r = value(&json, &top);

	if (r)
		return r;
	ca_json_skip_space(&json);
	if (json.at < size)
		return ca_json_expected(&json, "the end of the file");
	return ca_snapshot_read(&source, &top, input, error);
}
