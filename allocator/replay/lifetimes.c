/* SPDX-License-Identifier: MIT */
/* Buffers with the time in which they live. */
#include <errno.h>
#include <stdlib.h>

#include "allocator/replay/line.h"
#include "allocator/replay/readers.h"

enum { ID, LOWER, UPPER, SIZE, OFFSET, NEEDED = OFFSET, COLUMNS };

static const char *const names[COLUMNS] = { "id", "lower", "upper", "size", "offset" };

/* Where each column is; COLUMNS: it is not there. */
struct layout {
	size_t at[COLUMNS];
	size_t columns;
};

/* One end of a lifetime. */
struct end {
	int64_t time;
	uint64_t row; /* the buffer */
	uint64_t bytes, line;
	bool last;
};

struct ends {
	struct end *all;
	size_t count, room;
};

/* False: not such a header; *ret_field is then the column that is wrong. */
static bool
read_header(struct ca_replay_text line, struct layout *ret, struct ca_replay_text *ret_field)
{
	struct ca_replay_text field[COLUMNS];
	size_t i, j;

	ret->columns = ca_replay_fields(line, ',', field, COLUMNS);
	*ret_field = line;
	if (ret->columns > COLUMNS)
		return false;
	for (j = 0; j < COLUMNS; j++)
		ret->at[j] = COLUMNS;
	for (i = 0; i < ret->columns; i++) {
		for (j = 0; j < COLUMNS && !ca_replay_text_is(field[i], names[j]); j++)
			;
		*ret_field = field[i];
		if (j == COLUMNS || ret->at[j] != COLUMNS)
			return false;
		ret->at[j] = i;
	}
	*ret_field = line;
	for (j = 0; j < NEEDED; j++)
		if (ret->at[j] == COLUMNS)
			return false;
	return true;
}

/* A table that names a lower and an upper is meant to be one. */
bool
ca_replay_is_lifetimes(const uint8_t *data, size_t size)
{
	struct ca_replay_lines lines = ca_replay_lines(data, size);
	struct ca_replay_text line, field[16];
	size_t n, i;
	unsigned seen = 0;

	if (!ca_replay_lines_next(&lines, &line))
		return false;
	n = ca_replay_fields(line, ',', field, 16);
	for (i = 0; i < n && i < 16; i++)
		seen |= (unsigned)ca_replay_text_is(field[i], "lower") |
			(unsigned)ca_replay_text_is(field[i], "upper") << 1;
	return seen == 3;
}

static bool
signed_number(struct ca_replay_text text, int64_t *ret_value)
{
	bool minus = text.length && text.at[0] == '-';
	uint64_t value;

	if (minus) {
		text.at++;
		text.length--;
	}
	if (!ca_replay_decimal(text, &value) || value > INT64_MAX)
		return false;
	*ret_value = minus ? -(int64_t)value : (int64_t)value;
	return true;
}

static int
add_end(struct ends *ends, const struct end *end)
{
	if (ends->count == ends->room) {
		size_t room = ends->room ? 2 * ends->room : 1024;
		struct end *bigger = realloc(ends->all, room * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		ends->all = bigger;
		ends->room = room;
	}
	ends->all[ends->count++] = *end;
	return 0;
}

static int
read_row(const struct ca_replay_text *field, const struct layout *layout, uint64_t line,
	 struct ends *ends, struct ca_replay_error *error)
{
	struct end first = { .line = line, .row = ends->count / 2 }, last;
	char quoted[CA_REPLAY_QUOTE_MAX];
	int64_t upper = 0;
	int r;

	if (!signed_number(field[layout->at[LOWER]], &first.time))
		return ca_replay_fail_line(error, line, "lower is not a number: '%s'",
					   ca_replay_quote(quoted, field[layout->at[LOWER]]));
	if (!signed_number(field[layout->at[UPPER]], &upper))
		return ca_replay_fail_line(error, line, "upper is not a number: '%s'",
					   ca_replay_quote(quoted, field[layout->at[UPPER]]));
	if (!ca_replay_decimal(field[layout->at[SIZE]], &first.bytes) || !first.bytes)
		return ca_replay_fail_line(error, line, "size is not a number above 0: '%s'",
					   ca_replay_quote(quoted, field[layout->at[SIZE]]));
	if (upper <= first.time)
		return ca_replay_fail_line(error, line, "upper is not above lower");
	last = first;
	last.time = upper;
	last.last = true;
	r = add_end(ends, &first);
	return r ? r : add_end(ends, &last);
}

static int
read_rows(struct ca_replay_lines *lines, const struct layout *layout, struct ends *ends,
	  struct ca_replay_error *error)
{
	struct ca_replay_text line, field[COLUMNS];
	char quoted[CA_REPLAY_QUOTE_MAX];
	int r = 0;

	while (!r && ca_replay_lines_next(lines, &line)) {
		if (!ca_replay_trimmed(line).length)
			continue;
		if (ca_replay_fields(line, ',', field, COLUMNS) != layout->columns)
			return ca_replay_fail_line(error, lines->number,
						   "expected %zu fields, found '%s'",
						   layout->columns, ca_replay_quote(quoted, line));
		r = read_row(field, layout, lines->number, ends, error);
	}
	return r;
}

/* By time; at the same time ends come before beginnings; then as in the file. */
static int
compare(const void *left, const void *right)
{
	const struct end *a = left, *b = right;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	if (a->last != b->last)
		return a->last ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

static int
run_in_order(struct ends *ends, struct ca_replay_input *input)
{
	size_t i;
	int r = 0;

	if (ends->count)
		qsort(ends->all, ends->count, sizeof(*ends->all), compare);
	for (i = 0; i < ends->count && !r; i++) {
		const struct end *end = &ends->all[i];
		struct ca_replay_event event = { .id = end->row,
						 .bytes = end->bytes,
						 .time_ns = CA_REPLAY_NO_TIME,
						 .where = end->line,
						 .kind = CA_REPLAY_ALLOC };

		if (end->last)
			event.kind = CA_REPLAY_FREE;
		r = ca_replay_input_add(input, &event);
	}
	return r;
}

int
ca_replay_read_lifetimes(const uint8_t *data, size_t size, struct ca_replay_input *input,
			 struct ca_replay_error *error)
{
	struct ca_replay_lines lines = ca_replay_lines(data, size);
	struct ca_replay_text line, field = { "", 0 };
	struct ends ends = { 0 };
	struct layout layout;
	char quoted[CA_REPLAY_QUOTE_MAX];
	int r;

	input->lines = true;
	if (!ca_replay_lines_next(&lines, &line) || !read_header(line, &layout, &field))
		return ca_replay_fail_line(error, 1,
					   "expected the columns id,lower,upper,size, found '%s'",
					   size ? ca_replay_quote(quoted, field) : "");
	r = read_rows(&lines, &layout, &ends, error);
	if (!r)
		r = run_in_order(&ends, input);
	free(ends.all);
	return r;
}
