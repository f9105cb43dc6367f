/* SPDX-License-Identifier: MIT */
/*
 * A strict walk over JSON text (RFC 8259) that keeps nothing: it tells where values begin and end.
 * At most CA_JSON_DEPTH_MAX levels deep.
 */
#pragma once

#include "allocator/replay/input.h"
#include "allocator/replay/line.h"

enum { CA_JSON_DEPTH_MAX = 64 };

struct ca_json {
	const uint8_t *data;
	size_t size;
	size_t at; /* the next byte */
	struct ca_replay_error *error;
};

/* The next byte; -1 at the end. */
static inline int
ca_json_peek(const struct ca_json *json)
{
	return json->at < json->size ? json->data[json->at] : -1;
}

/* Over white space. */
static inline void
ca_json_skip_space(struct ca_json *json)
{
	int c;

	while ((c = ca_json_peek(json)) == ' ' || c == '\n' || c == '\t' || c == '\r')
		json->at++;
}

/* -EINVAL, with what was expected at the place. */
int ca_json_expected(struct ca_json *json, const char *what);
/* Takes `c` after white space. False: something else is there. */
bool ca_json_take(struct ca_json *json, char c);
/* A string; *ret is what stands between the quotes. */
int ca_json_string(struct ca_json *json, struct ca_replay_text *ret);
/* Over any value. *ret_number, if it is a whole number from 0 to 2^64 - 1: 1; else 0; -EINVAL. */
int ca_json_skip(struct ca_json *json, uint64_t *ret_number);
