/* SPDX-License-Identifier: MIT */
/* The log of RMM's logging_resource_adaptor. */
#include <stdlib.h>
#include <string.h>

#include "allocator/replay/line.h"
#include "allocator/replay/readers.h"

#define SECOND_NS UINT64_C(1000000000)
#define DAY_NS (24 * 3600 * SECOND_NS)

static const char header[] = "Thread,Time,Action,Pointer,Size,Stream";

enum { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };

struct clock {
	uint64_t last_ns; /* within the day */
	uint64_t days_ns;
};

bool
ca_replay_is_rmm(const uint8_t *data, size_t size)
{
	struct ca_replay_lines lines = ca_replay_lines(data, size);
	struct ca_replay_text line;

	return ca_replay_lines_next(&lines, &line) &&
	       ca_replay_text_is(ca_replay_trimmed(line), header);
}

/* Digits after the point, up to nanoseconds. */
static bool
fraction(struct ca_replay_text text, uint64_t *ret_ns)
{
	uint64_t value, digits;

	if (!text.length || text.length > 9 || !ca_replay_decimal(text, &value))
		return false;
	for (digits = text.length; digits < 9; digits++)
		value *= 10;
	*ret_ns = value;
	return true;
}

/* Cuts `text` at its last `mark`; false if there is none. */
static bool
cut_last(struct ca_replay_text *text, char mark, struct ca_replay_text *ret_rest)
{
	size_t i;

	for (i = text->length; i--;)
		if (text->at[i] == mark) {
			*ret_rest =
				(struct ca_replay_text){ text->at + i + 1, text->length - i - 1 };
			text->length = i;
			return true;
		}
	return false;
}

/* HH:MM:SS and a fraction behind '.' or ':'. */
static bool
time_in_seconds(struct ca_replay_text text, uint64_t *ret_ns)
{
	struct ca_replay_text rest, part[3];
	uint64_t ns = 0, hours, minutes, seconds;

	if (cut_last(&text, '.', &rest)) {
		if (!fraction(rest, &ns))
			return false;
	} else if (ca_replay_fields(text, ':', part, 3) == 4 && cut_last(&text, ':', &rest)) {
		if (!ca_replay_decimal(rest, &ns) || ns > 999999)
			return false;
		ns *= 1000; /* microseconds, not padded */
	}
	if (ca_replay_fields(text, ':', part, 3) != 3 || !ca_replay_decimal(part[0], &hours) ||
	    !ca_replay_decimal(part[1], &minutes) || !ca_replay_decimal(part[2], &seconds) ||
	    hours > 23 || minutes > 59 || seconds > 60)
		return false;
	*ret_ns = ((hours * 60 + minutes) * 60 + seconds) * SECOND_NS + ns;
	return true;
}

/* A time that falls by more than half a day is of the next day. */
static bool
read_time(struct ca_replay_text text, struct clock *clock, uint64_t *ret_ns)
{
	struct ca_replay_text whole = text, rest;
	uint64_t ns = 0, seconds;

	if (!text.length)
		return false;
	if (!memchr(text.at, ':', text.length)) {
		if (cut_last(&whole, '.', &rest) && !fraction(rest, &ns))
			return false;
		if (!ca_replay_decimal(whole, &seconds) || seconds > UINT64_MAX / SECOND_NS / 2)
			return false;
		*ret_ns = seconds * SECOND_NS + ns;
		return true;
	}
	if (!time_in_seconds(text, &ns))
		return false;
	if (ns + DAY_NS / 2 < clock->last_ns)
		clock->days_ns += DAY_NS;
	clock->last_ns = ns;
	*ret_ns = clock->days_ns + ns;
	return true;
}

static bool
is_nil(struct ca_replay_text text)
{
	return ca_replay_text_is(text, "(nil)") || ca_replay_text_is(text, "nullptr") ||
	       ca_replay_text_is(text, "(null)");
}

static bool
handle(struct ca_replay_text text, uint64_t *ret_value)
{
	*ret_value = 0;
	return is_nil(text) || ca_replay_hex(text, ret_value);
}

static bool
read_thread(struct ca_replay_text text, uint32_t *ret_thread)
{
	uint64_t thread;

	if (!ca_replay_hex(text, &thread)) /* 32 bits are enough to tell them apart */
		return false;
	*ret_thread = (uint32_t)(thread ^ thread >> 32);
	return true;
}

static int
bad(struct ca_replay_error *error, uint64_t line, const char *what, struct ca_replay_text field)
{
	char quoted[CA_REPLAY_QUOTE_MAX];

	return ca_replay_fail_line(error, line, "%s: '%s'", what, ca_replay_quote(quoted, field));
}

static bool
is_failure(const struct ca_replay_text *field)
{
	return ca_replay_text_is(field[ACTION], "allocate failure");
}

/* *ret_event has kind FREE or ALLOC; bytes 0: nothing to play. */
static int
read_row(const struct ca_replay_text *field, uint64_t line, struct clock *clock,
	 struct ca_replay_event *ret_event, struct ca_replay_error *error)
{
	struct ca_replay_event event = { .where = line };
	uint32_t thread;

	if (ca_replay_text_is(field[ACTION], "allocate") || is_failure(field))
		event.kind = CA_REPLAY_ALLOC;
	else if (ca_replay_text_is(field[ACTION], "free") ||
		 ca_replay_text_is(field[ACTION], "deallocate"))
		event.kind = CA_REPLAY_FREE;
	else
		return bad(error, line, "unknown action", field[ACTION]);
	if (!read_thread(field[THREAD], &thread))
		return bad(error, line, "thread is not a number", field[THREAD]);
	event.thread = (uint16_t)thread;
	if (!read_time(field[TIME], clock, &event.time_ns))
		return bad(error, line, "not a time", field[TIME]);
	if (!handle(field[POINTER], &event.id))
		return bad(error, line, "not an address", field[POINTER]);
	if (!ca_replay_decimal(field[SIZE], &event.bytes))
		return bad(error, line, "size is not a number", field[SIZE]);
	if (!handle(field[STREAM], &event.stream))
		return bad(error, line, "not a stream", field[STREAM]);
	if (event.stream == 2) /* cudaStreamPerThread */
		event.stream = UINT64_C(1) << 63 | thread;
	*ret_event = event;
	return 0;
}

int
ca_replay_read_rmm(const uint8_t *data, size_t size, struct ca_replay_input *input,
		   struct ca_replay_error *error)
{
	struct ca_replay_lines lines = ca_replay_lines(data, size);
	struct ca_replay_text line, field[COLUMNS];
	struct ca_replay_event event = { 0 };
	struct clock clock = { 0 };
	int r = 0;

	input->lines = true;
	ca_replay_lines_next(&lines, &line); /* the header */
	while (!r && ca_replay_lines_next(&lines, &line)) {
		if (!ca_replay_trimmed(line).length)
			continue;
		if (ca_replay_fields(line, ',', field, COLUMNS) != COLUMNS)
			return bad(error, lines.number, "expected 6 fields", line);
		r = read_row(field, lines.number, &clock, &event, error);
		if (!r && event.bytes && !is_failure(field)) {
			r = ca_replay_input_add(input, &event);
		} else if (!r) {
			input->other_events++;
			if (event.bytes)
				ca_replay_input_reject(input, &event);
		}
	}
	return r;
}
