/* SPDX-License-Identifier: MIT */
#include "allocator/replay/line.h"

#include <string.h>

#include "config/text.h"

struct ca_replay_lines
ca_replay_lines(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data;

	return (struct ca_replay_lines){ .at = at, .end = size ? at + size : at };
}

bool
ca_replay_lines_next(struct ca_replay_lines *lines, struct ca_replay_text *ret_line)
{
	size_t left = (size_t)(lines->end - lines->at);
	const char *end = left ? memchr(lines->at, '\n', left) : NULL;
	size_t length = end ? (size_t)(end - lines->at) : left;

	if (!left)
		return false;
	*ret_line = (struct ca_replay_text){ lines->at, length };
	lines->at += end ? length + 1 : length;
	lines->number++;
	if (length && ret_line->at[length - 1] == '\r')
		ret_line->length--;
	return true;
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\t';
}

struct ca_replay_text
ca_replay_trimmed(struct ca_replay_text text)
{
	while (text.length && is_space(text.at[0])) {
		text.at++;
		text.length--;
	}
	while (text.length && is_space(text.at[text.length - 1]))
		text.length--;
	return text;
}

static size_t
words(struct ca_replay_text line, struct ca_replay_text *ret, size_t max)
{
	size_t n = 0, i = 0, start;

	for (;;) {
		while (i < line.length && is_space(line.at[i]))
			i++;
		if (i == line.length)
			return n;
		if (n == max)
			return max + 1;
		start = i;
		while (i < line.length && !is_space(line.at[i]))
			i++;
		ret[n++] = (struct ca_replay_text){ line.at + start, i - start };
	}
}

size_t
ca_replay_fields(struct ca_replay_text line, char separator, struct ca_replay_text *ret, size_t max)
{
	size_t n = 0, i, start = 0;

	if (separator == ' ')
		return words(line, ret, max);
	for (i = 0; i <= line.length; i++) {
		struct ca_replay_text field = { line.at + start, i - start };

		if (i < line.length && line.at[i] != separator)
			continue;
		if (n == max)
			return max + 1;
		ret[n++] = ca_replay_trimmed(field);
		start = i + 1;
	}
	return n;
}

bool
ca_replay_text_is(struct ca_replay_text text, const char *word)
{
	size_t length = strlen(word);

	return text.length == length && !memcmp(text.at, word, length);
}

bool
ca_replay_decimal(struct ca_replay_text text, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t i;

	for (i = 0; i < text.length; i++) {
		unsigned digit = (unsigned)(unsigned char)text.at[i] - '0';

		if (digit > 9 || value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*ret_value = value;
	return text.length > 0;
}

static unsigned
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned)(c - 'a' + 10);
	if (c >= 'A' && c <= 'F')
		return (unsigned)(c - 'A' + 10);
	return 16;
}

bool
ca_replay_hex(struct ca_replay_text text, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t i;

	if (text.length > 2 && text.at[0] == '0' && (text.at[1] == 'x' || text.at[1] == 'X')) {
		text.at += 2;
		text.length -= 2;
	}
	for (i = 0; i < text.length; i++) {
		unsigned digit = hex_digit(text.at[i]);

		if (digit > 15 || value >> 60)
			return false;
		value = value << 4 | digit;
	}
	*ret_value = value;
	return text.length > 0;
}

const char *
ca_replay_quote(char ret[CA_REPLAY_QUOTE_MAX], struct ca_replay_text text)
{
	char copy[CA_REPLAY_QUOTE_MAX];
	size_t length = text.length < sizeof(copy) ? text.length : sizeof(copy) - 1;

	if (length)
		memcpy(copy, text.at, length);
	copy[length] = '\0';
	return ca_text_escape(ret, CA_REPLAY_QUOTE_MAX, copy);
}
