/* SPDX-License-Identifier: MIT */
/* The instructions that a snapshot does not need and a pickle must not contain. */
#include "allocator/replay/pickle_inside.h"

#include <string.h>

/* The rest of the line, or nothing. */
static struct ca_replay_text
line_rest(struct ca_pickle_machine *m)
{
	const char *start = (const char *)m->pickle->data + m->at;
	size_t left = m->pickle->size - m->at;
	const char *end = left ? memchr(start, '\n', left) : NULL;
	struct ca_replay_text text = { start, end ? (size_t)(end - start) : left };

	m->at += end ? text.length + 1 : text.length;
	return text;
}

static struct ca_replay_text
text_at(struct ca_pickle_machine *m, size_t below_top)
{
	struct ca_replay_text text = { "?", 1 };
	const struct ca_pickle_value *value;

	if (m->depth <= below_top)
		return text;
	value = &m->stack[m->depth - 1 - below_top];
	if (value->type == CA_SNAPSHOT_TEXT)
		text = ca_pickle_text_at(m->pickle, value->number);
	return text;
}

static int
reject_class(struct ca_pickle_machine *m, struct ca_replay_text module, struct ca_replay_text name)
{
	char a[CA_REPLAY_QUOTE_MAX], b[CA_REPLAY_QUOTE_MAX];

	return ca_replay_fail_byte(m->error, m->from,
				   "the pickle names '%s.%s': refused, a snapshot is plain data",
				   ca_replay_quote(a, module), ca_replay_quote(b, name));
}

int
ca_pickle_reject(struct ca_pickle_machine *m, uint8_t code)
{
	static const struct {
		uint8_t code;
		const char *what;
	} known[] = {
		{ 'R', "calls a function" },
		{ 'b', "builds an object" },
		{ 'o', "builds an object" },
		{ 0x81, "builds an object" },
		{ 0x92, "builds an object" },
		{ 0x82, "names a class by number" },
		{ 0x83, "names a class by number" },
		{ 0x84, "names a class by number" },
		{ 'P', "refers to something outside" },
		{ 'Q', "refers to something outside" },
		{ 0x97, "refers to a buffer outside" },
		{ 0x98, "refers to a buffer outside" },
	};
	struct ca_replay_text module, name;
	size_t i;

	if (code == 'c' || code == 'i') {
		module = line_rest(m);
		name = line_rest(m);
		return reject_class(m, module, name);
	}
	if (code == 0x93)
		return reject_class(m, text_at(m, 1), text_at(m, 0));
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].code == code)
			return ca_replay_fail_byte(
				m->error, m->from,
				"the pickle %s: refused, a snapshot is plain data", known[i].what);
	return ca_replay_fail_byte(m->error, m->from,
				   "the instruction 0x%02x is none that a snapshot needs", code);
}
