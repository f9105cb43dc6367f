/* SPDX-License-Identifier: MIT */
/* Reading traces from text and bytes. */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/replay/input.h"

/* The bytes lie at the end of their memory, so that a read behind them is seen by the sanitizers.
 */
static inline int
read_bytes(const void *data, size_t size, struct ca_replay_input *ret,
	   struct ca_replay_error *error)
{
	uint8_t *copy = malloc(size ? size : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, data, size);
	*error = (struct ca_replay_error){ .where = UINT64_MAX };
	*ret = (struct ca_replay_input){ 0 };
	r = ca_replay_input_read(copy, size, ret, error);
	free(copy);
	return r;
}

static inline void
read_good(const char *text, struct ca_replay_input *ret)
{
	struct ca_replay_error error;

	if (read_bytes(text, strlen(text), ret, &error))
		fail_msg("%s (at %llu): %s", error.text, (unsigned long long)error.where, text);
}

/* The text is refused at that line (0: without a place), with a message that contains `words`. */
static inline void
read_bad(const char *text, uint64_t line, const char *words)
{
	struct ca_replay_input input;
	struct ca_replay_error error;

	assert_int_equal(read_bytes(text, strlen(text), &input, &error), -EINVAL);
	assert_null(input.events);
	if (!strstr(error.text, words))
		fail_msg("'%s' does not say '%s'", error.text, words);
	assert_int_equal(error.where, line ? line : UINT64_MAX);
	assert_int_equal(error.line, line != 0);
}

/* Every beginning of the file is either read or refused with a message; returns how many are
 * read. */
static inline size_t
read_prefixes(const void *data, size_t size)
{
	struct ca_replay_input input;
	struct ca_replay_error error;
	size_t length, good = 0;

	for (length = 0; length < size; length++) {
		int r = read_bytes(data, length, &input, &error);

		if (r)
			assert_true(error.text[0]);
		else
			good++;
		if (r && error.where != UINT64_MAX && !error.line)
			assert_true(error.where <= length);
		ca_replay_input_clear(&input);
	}
	return good;
}

static inline void
expect_event(const struct ca_replay_input *input, size_t number, enum ca_replay_kind kind,
	     uint64_t bytes, uint64_t stream)
{
	assert_true(number < input->count);
	assert_int_equal(input->events[number].kind, kind);
	assert_int_equal(input->events[number].bytes, bytes);
	assert_int_equal(input->events[number].stream, stream);
}

struct expected {
	enum ca_replay_kind kind;
	uint64_t bytes;
	uint64_t stream;
};

/* The trace has just these events. */
static inline void
expect_events(const struct ca_replay_input *input, const struct expected *rows, size_t n)
{
	assert_int_equal(input->count, n);
	for (size_t i = 0; i < n; i++)
		expect_event(input, i, rows[i].kind, rows[i].bytes, rows[i].stream);
}
#define EXPECT_EVENTS(input, ...)                                                                  \
	expect_events(input, (const struct expected[]){ __VA_ARGS__ },                             \
		      sizeof((const struct expected[]){ __VA_ARGS__ }) / sizeof(struct expected))
