/* SPDX-License-Identifier: MIT */
/* The `.trc` text. */
#include "allocator/replay/line.h"
#include "allocator/replay/readers.h"

static bool
is_content(struct ca_replay_text line)
{
	line = ca_replay_trimmed(line);
	return line.length && line.at[0] != '#';
}

bool
ca_replay_is_trc(const uint8_t *data, size_t size)
{
	struct ca_replay_lines lines = ca_replay_lines(data, size);
	struct ca_replay_text line, field[4];
	uint64_t number;

	while (ca_replay_lines_next(&lines, &line)) {
		size_t n;

		if (!is_content(line))
			continue;
		n = ca_replay_fields(line, ' ', field, 4);
		if (ca_replay_text_is(field[0], "P"))
			return n == 1;
		return n > 1 && field[0].length == 1 &&
		       (field[0].at[0] == 'I' || field[0].at[0] == 'A' || field[0].at[0] == 'F') &&
		       ca_replay_decimal(field[1], &number);
	}
	return false;
}

static int
number(struct ca_replay_text field, const char *what, uint64_t line, uint64_t *ret_value,
       struct ca_replay_error *error)
{
	char quoted[CA_REPLAY_QUOTE_MAX];

	if (ca_replay_decimal(field, ret_value))
		return 0;
	return ca_replay_fail_line(error, line, "%s is not a number: '%s'", what,
				   ca_replay_quote(quoted, field));
}

static int
read_block(const struct ca_replay_text *field, struct ca_replay_event *event,
	   struct ca_replay_error *error)
{
	int r = number(field[1], "id", event->where, &event->id, error);

	if (!r && event->kind != CA_REPLAY_FREE)
		r = number(field[2], "bytes", event->where, &event->bytes, error);
	if (!r && event->kind != CA_REPLAY_FREE)
		r = number(field[3], "stream", event->where, &event->stream, error);
	return r;
}

static int
read_line(struct ca_replay_text line, uint64_t where, struct ca_replay_event *ret_event,
	  struct ca_replay_error *error)
{
	static const struct {
		const char *word;
		enum ca_replay_kind kind;
		size_t fields;
		const char *form;
	} forms[] = {
		{ "I", CA_REPLAY_LIVE, 4, "I id bytes stream" },
		{ "A", CA_REPLAY_ALLOC, 4, "A id bytes stream" },
		{ "F", CA_REPLAY_FREE, 2, "F id" },
		{ "P", CA_REPLAY_PHASE, 1, "P" },
	};
	struct ca_replay_text field[4];
	char quoted[CA_REPLAY_QUOTE_MAX];
	size_t n = ca_replay_fields(line, ' ', field, 4), i;

	*ret_event = (struct ca_replay_event){ .time_ns = CA_REPLAY_NO_TIME, .where = where };
	for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (!ca_replay_text_is(field[0], forms[i].word))
			continue;
		ret_event->kind = (uint8_t)forms[i].kind;
		if (n != forms[i].fields)
			return ca_replay_fail_line(error, where, "expected '%s', found '%s'",
						   forms[i].form, ca_replay_quote(quoted, line));
		return n == 1 ? 0 : read_block(field, ret_event, error);
	}
	return ca_replay_fail_line(error, where, "expected a line with I, A, F or P, found '%s'",
				   ca_replay_quote(quoted, line));
}

int
ca_replay_read_trc(const uint8_t *data, size_t size, struct ca_replay_input *input,
		   struct ca_replay_error *error)
{
	struct ca_replay_lines lines = ca_replay_lines(data, size);
	struct ca_replay_text line;
	struct ca_replay_event event;
	int r = 0;

	input->lines = true;
	while (!r && ca_replay_lines_next(&lines, &line)) {
		if (!is_content(line))
			continue;
		r = read_line(line, lines.number, &event, error);
		if (!r)
			r = ca_replay_input_add(input, &event);
	}
	return r;
}
