/* SPDX-License-Identifier: MIT */
/*
 * options.def as an array, and the search for what somebody meant.
 *
 * The distance of two names is the number of letters to insert, delete, replace or swap with a
 * neighbour, computed row by row over a table of which only three rows are kept. Names are short
 * and bounded (CA_OPTION_NAME_MAX), so this is a few thousand steps for one typo. A name counts as
 * near when about a third of its letters at most are wrong.
 */
#include "config/options.h"

#include <string.h>

#include "config/config.h"

#define CA_AT(field) offsetof(struct ca_config, field)
#define CA_NOWHERE 0
#define ROW(row_name, key, place, type_, default_, min_, max_, accepted_, status_)                 \
	{                                                                                          \
		.name = row_name,                                                                  \
		.is_key = key,                                                                     \
		.type = CA_TYPE_##type_,                                                           \
		.status = CA_STATUS_##status_,                                                     \
		.offset = place,                                                                   \
		.default_text = default_,                                                          \
		.min = min_,                                                                       \
		.max = max_,                                                                       \
		.accepted = accepted_,                                                             \
	},
#define CA_VARIABLE(name_, place, type_, default_, min_, max_, unit, accepted_, status_, doc)      \
	ROW(#name_, false, place, type_, default_, min_, max_, accepted_, status_)
#define CA_KEY(name_, place, type_, default_, min_, max_, unit, accepted_, status_, doc)           \
	ROW(#name_, true, place, type_, default_, min_, max_, accepted_, status_)

const struct ca_option ca_options[] = {
#include "config/options.def"
};
const size_t ca_options_count = sizeof(ca_options) / sizeof(ca_options[0]);
_Static_assert(sizeof(ca_options) / sizeof(ca_options[0]) <= CA_OPTIONS_MAX,
	       "one bit a row in config.c");

static bool
name_matches(const struct ca_option *option, const char *name)
{
	size_t length = strlen(option->name);

	if (option->name[length - 1] == '*')
		return !strncmp(option->name, name, length - 1);
	return !strcmp(option->name, name);
}

const struct ca_option *
ca_option_find(bool is_key, const char *name)
{
	for (size_t i = 0; i < ca_options_count; i++)
		if (ca_options[i].is_key == is_key && name_matches(&ca_options[i], name))
			return &ca_options[i];
	return NULL;
}

static int
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

static unsigned
least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Both shorter than CA_OPTION_NAME_MAX. */
static unsigned
distance(const char *a, const char *b)
{
	unsigned rows[3][CA_OPTION_NAME_MAX];
	size_t m = strlen(a), n = strlen(b);
	unsigned *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= n; j++)
		above[j] = before[j] = (unsigned)j;
	for (size_t i = 1; i <= m; i++) {
		unsigned *spare = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			bool same = lower(a[i - 1]) == lower(b[j - 1]);

			row[j] = least(above[j - 1] + !same, least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
			    lower(a[i - 2]) == lower(b[j - 1]))
				row[j] = least(row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = spare;
	}
	return above[n];
}

const struct ca_option *
ca_option_nearest(bool is_key, const char *name)
{
	size_t length = strlen(name);
	unsigned best = (unsigned)(length + 2) / 3 + 1; /* to be beaten */
	const struct ca_option *nearest = NULL;

	if (length < 2 || length >= CA_OPTION_NAME_MAX)
		return NULL;
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];
		unsigned d;

		if (option->is_key != is_key || option->status == CA_STATUS_OURS)
			continue;
		d = distance(name, option->name);
		if (length >= 4 && !strncmp(option->name, name, length))
			d = least(d, 1);
		if (d < best) {
			best = d;
			nearest = option;
		}
	}
	return nearest;
}
