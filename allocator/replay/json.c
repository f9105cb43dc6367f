/* SPDX-License-Identifier: MIT */
#include "allocator/replay/json.h"

#include <errno.h>
#include <string.h>

int
ca_json_expected(struct ca_json *json, const char *what)
{
	if (json->at >= json->size)
		return ca_replay_fail_byte(json->error, json->size,
					   "the file is cut off: expected %s", what);
	return ca_replay_fail_byte(json->error, json->at, "not JSON: expected %s", what);
}

bool
ca_json_take(struct ca_json *json, char c)
{
	ca_json_skip_space(json);
	if (ca_json_peek(json) != c)
		return false;
	json->at++;
	return true;
}

static int
hex4(struct ca_json *json)
{
	unsigned i;

	for (i = 0; i < 4; i++, json->at++) {
		int c = ca_json_peek(json);

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
			return ca_json_expected(json, "four hexadecimal digits");
	}
	return 0;
}

int
ca_json_string(struct ca_json *json, struct ca_replay_text *ret)
{
	size_t start;

	if (!ca_json_take(json, '"'))
		return ca_json_expected(json, "a string");
	for (start = json->at;;) {
		int c;

		while ((c = ca_json_peek(json)) >= ' ' && c != '"' && c != '\\')
			json->at++;
		if (c < ' ')
			return ca_json_expected(json, "the end of a string");
		json->at++;
		if (c == '"')
			break;
		c = ca_json_peek(json);
		if (c <= 0 || !strchr("\"\\/bfnrtu", c))
			return ca_json_expected(json, "an escape");
		json->at++;
		if (c == 'u' && hex4(json))
			return -EINVAL;
	}
	*ret = (struct ca_replay_text){ (const char *)json->data + start, json->at - 1 - start };
	return 0;
}

static size_t
digits(struct ca_json *json)
{
	size_t start = json->at;

	while (ca_json_peek(json) >= '0' && ca_json_peek(json) <= '9')
		json->at++;
	return json->at - start;
}

static int
fraction(struct ca_json *json)
{
	if (ca_json_peek(json) == '.') {
		json->at++;
		if (!digits(json))
			return ca_json_expected(json, "a digit");
	}
	if (ca_json_peek(json) == 'e' || ca_json_peek(json) == 'E') {
		json->at++;
		if (ca_json_peek(json) == '+' || ca_json_peek(json) == '-')
			json->at++;
		if (!digits(json))
			return ca_json_expected(json, "a digit");
	}
	return 0;
}

/* As ca_json_skip. */
static int
number(struct ca_json *json, uint64_t *ret_number)
{
	bool minus = ca_json_peek(json) == '-';
	struct ca_replay_text text;
	size_t start, length;

	json->at += minus;
	start = json->at;
	length = digits(json);
	if (!length || (length > 1 && json->data[start] == '0'))
		return ca_json_expected(json, "a value");
	text = (struct ca_replay_text){ (const char *)json->data + start, length };
	if (fraction(json))
		return -EINVAL;
	return !minus && json->at == start + length && ca_replay_decimal(text, ret_number);
}

static int
word(struct ca_json *json)
{
	static const char *const words[] = { "true", "false", "null" };
	size_t i;

	for (i = 0; i < 3; i++) {
		size_t length = strlen(words[i]);

		if (json->size - json->at >= length &&
		    !memcmp(json->data + json->at, words[i], length)) {
			json->at += length;
			return 0;
		}
	}
	return ca_json_expected(json, "a value");
}

/* One that holds no others. */
static int
scalar(struct ca_json *json, uint64_t *ret_number)
{
	struct ca_replay_text text;
	int c = ca_json_peek(json);

	if (c == '"')
		return ca_json_string(json, &text);
	if (c == '-' || (c >= '0' && c <= '9'))
		return number(json, ret_number);
	return word(json);
}

/* After '{' or ',': the key of the next value. */
static int
key(struct ca_json *json)
{
	struct ca_replay_text text;
	int r = ca_json_string(json, &text);

	if (!r && !ca_json_take(json, ':'))
		r = ca_json_expected(json, "':'");
	return r;
}

/* The lists and dictionaries that the walk is in. */
struct nest {
	char close[CA_JSON_DEPTH_MAX];
	unsigned depth;
};

/* A value ended: closes what ends with it, up to the next comma. 0: the next value follows. 1: the
 * outermost one ended. */
static int
after_value(struct ca_json *json, struct nest *nest)
{
	while (nest->depth) {
		char close = nest->close[nest->depth - 1];

		if (ca_json_take(json, ','))
			return close == '}' ? key(json) : 0;
		if (!ca_json_take(json, close))
			return ca_json_expected(json, close == '}' ? "',' or '}'" : "',' or ']'");
		nest->depth--;
	}
	return 1;
}

/* Opens a list or a dictionary. 0: a value follows; 1: it was empty. */
static int
begin(struct ca_json *json, struct nest *nest)
{
	char close = ca_json_peek(json) == '{' ? '}' : ']';

	if (nest->depth == CA_JSON_DEPTH_MAX)
		return ca_replay_fail_byte(json->error, json->at, "nested more than %d deep",
					   CA_JSON_DEPTH_MAX);
	json->at++;
	if (ca_json_take(json, close))
		return 1;
	nest->close[nest->depth++] = close;
	return close == '}' ? key(json) : 0;
}

int
ca_json_skip(struct ca_json *json, uint64_t *ret_number)
{
	struct nest nest = { .depth = 0 };
	uint64_t nothing;
	int r, c;

	for (;;) {
		ca_json_skip_space(json);
		c = ca_json_peek(json);
		if (c == '{' || c == '[') {
			r = begin(json, &nest);
			if (!r)
				continue;
			r = r > 0 ? 0 : r;
		} else {
			r = scalar(json, nest.depth ? &nothing : ret_number);
			if (!nest.depth)
				return r;
			r = r > 0 ? 0 : r;
		}
		if (!r)
			r = after_value(json, &nest);
		if (r)
			return r > 0 ? 0 : r;
	}
}
