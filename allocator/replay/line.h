/* SPDX-License-Identifier: MIT */
/*
 * Lines and fields of text formats: a cursor that never leaves its range. Lines end in \n or \r\n
 * or with the file. Numbers are digits alone, in the whole field, and fit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the file; not terminated. */
struct ca_replay_text {
	const char *at;
	size_t length;
};

struct ca_replay_lines {
	const char *at, *end;
	uint64_t number; /* of the last line given, from 1 */
};

struct ca_replay_lines ca_replay_lines(const uint8_t *data, size_t size);
/* The next line without its end. False: there is none. */
bool ca_replay_lines_next(struct ca_replay_lines *lines, struct ca_replay_text *ret_line);
/* The line without blanks at both ends. */
struct ca_replay_text ca_replay_trimmed(struct ca_replay_text text);
/*
 * Cuts a line into at most `max` fields at every `separator` (blank: at every run of blanks and
 * tabs). Returns how many there are, max + 1 for more.
 */
size_t ca_replay_fields(struct ca_replay_text line, char separator, struct ca_replay_text *ret,
			size_t max);
bool ca_replay_text_is(struct ca_replay_text text, const char *word);
bool ca_replay_decimal(struct ca_replay_text text, uint64_t *ret_value);
/* With or without 0x. */
bool ca_replay_hex(struct ca_replay_text text, uint64_t *ret_value);
enum { CA_REPLAY_QUOTE_MAX = 64 };
/* For messages: as one word of printable ASCII, cut. Returns ret. */
const char *ca_replay_quote(char ret[CA_REPLAY_QUOTE_MAX], struct ca_replay_text text);
