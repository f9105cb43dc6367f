/* SPDX-License-Identifier: MIT */
/*
 * Decimal numbers, limits, and the list form of roundup_power2_divisions. As strict as parse.c: the
 * whole text or nothing.
 */
#include <string.h>

#include "config/parse.h"

#define MIB ((uint64_t)1 << 20)

/* Digits, perhaps a point and one to nine digits, in billionths; the place after them, or NULL. */
static const char *
decimal_read(const char *text, uint64_t *ret_whole, uint64_t *ret_rest)
{
	uint64_t whole = 0, rest = 0, unit = CA_WHOLE;
	const char *at = text;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (whole > UINT64_MAX / 20)
			return NULL;
		whole = whole * 10 + (uint64_t)(*at - '0');
	}
	if (at == text)
		return NULL;
	if (*at == '.') {
		const char *point = at++;

		for (; *at >= '0' && *at <= '9'; at++) {
			if (unit == 1)
				return NULL;
			unit /= 10;
			rest += (uint64_t)(*at - '0') * unit;
		}
		if (at == point + 1)
			return NULL;
	}
	*ret_whole = whole;
	*ret_rest = rest;
	return at;
}

bool
ca_parse_fraction(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t whole, rest, value;
	const char *end = decimal_read(text, &whole, &rest);

	if (!end || *end || whole > max / CA_WHOLE)
		return false;
	value = whole * CA_WHOLE + rest;
	if (value < min || value > max)
		return false;
	*ret_value = value;
	return true;
}

bool
ca_parse_limit(const char *text, struct ca_limit *ret_value)
{
	uint64_t whole, rest, unit, bytes;
	unsigned shift;
	const char *end = decimal_read(text, &whole, &rest);

	if (!end || (!whole && !rest))
		return false;
	if (!strcmp(end, "%")) {
		if (whole > 100 || (whole == 100 && rest))
			return false;
		*ret_value = (struct ca_limit){ .share = whole * (CA_WHOLE / 100) + rest / 100 };
		return ret_value->share != 0;
	}
	if (!ca_parse_unit(end, &shift))
		return false;
	unit = (uint64_t)1 << shift;
	if ((!shift && rest) || whole > (UINT64_MAX >> 1) / unit)
		return false;
	bytes = whole * unit + (uint64_t)(__extension__(unsigned __int128) rest * unit / CA_WHOLE);
	if (!bytes)
		return false;
	*ret_value = (struct ca_limit){ .bytes = bytes };
	return true;
}

static bool
is_power_of_two(uint64_t value)
{
	return value && !(value & (value - 1));
}

enum { DIVISIONS_MAX = 1 << 20 };

/* Digits up to `end`, which is behind them. */
static bool
number_until(const char **text, char end, uint64_t *ret_value)
{
	char digits[24];
	const char *found = strchr(*text, end);
	size_t length = found ? (size_t)(found - *text) : 0;

	if (!length || length >= sizeof(digits))
		return false;
	memcpy(digits, *text, length);
	digits[length] = '\0';
	*text = found + 1;
	return ca_parse_number(digits, 0, UINT64_MAX >> 21, ret_value);
}

/* One "MiB:divisions" or ">:divisions" of the list, whose end (',' or ']') is passed. */
static const char *
interval_read(const char **text, struct ca_interval *ret_interval)
{
	uint64_t mib = 0, divisions;
	const char *comma;
	bool rest = !strncmp(*text, ">:", 2);

	if (rest)
		*text += 2;
	else if (!number_until(text, ':', &mib))
		return " (an entry that is not MiB:divisions)";
	else if (!is_power_of_two(mib))
		return " (a size that is no power of two)";
	comma = strchr(*text, ',');
	if (!number_until(text, comma ? ',' : ']', &divisions))
		return " (divisions that are no number)";
	if (divisions > DIVISIONS_MAX || (divisions && !is_power_of_two(divisions)))
		return " (divisions that are no power of two)";
	ret_interval->below = rest ? UINT64_MAX : mib * MIB;
	ret_interval->divisions = divisions;
	return NULL;
}

static const char *
list_read(const char *text, struct ca_roundup *ret_list)
{
	struct ca_roundup list = { 0 };

	if (text[strlen(text) - 1] != ']')
		return " (a [ without ])";
	while (*text) {
		const char *fault;

		if (list.count == CA_INTERVALS_MAX)
			return " (too many entries)";
		fault = interval_read(&text, &list.interval[list.count]);
		if (fault)
			return fault;
		if (list.count &&
		    list.interval[list.count].below <= list.interval[list.count - 1].below)
			return " (the sizes do not ascend, > last)";
		list.count++;
	}
	*ret_list = list;
	return NULL;
}

const char *
ca_parse_roundup(const char *text, struct ca_roundup *ret_value)
{
	uint64_t divisions;

	if (*text == '[')
		return list_read(text + 1, ret_value);
	if (!ca_parse_number(text, 0, DIVISIONS_MAX, &divisions))
		return " (no number, and no list)";
	if (divisions && !is_power_of_two(divisions))
		return " (no power of two)";
	memset(ret_value, 0, sizeof(*ret_value));
	if (divisions > 1) {
		ret_value->count = 1;
		ret_value->interval[0].below = UINT64_MAX;
		ret_value->interval[0].divisions = divisions;
	}
	return NULL;
}
