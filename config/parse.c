/* SPDX-License-Identifier: MIT */
/*
 * Strict parsers. Each reads the whole text or refuses it; nothing is guessed, cut or rounded.
 *
 * CACHEALLOC_CONF is read in one pass, an entry at a time. The end of an entry is found first, by
 * counting brackets; then key and value are copied without their white space into small buffers,
 * the first colon outside brackets being the border. A text that does not fit its buffer is marked
 * as such instead of being taken for something shorter.
 */
#include "config/parse.h"

#include <string.h>

#include "config/options.h"
#include "config/text.h"

static const uint64_t MILLISECOND = 1000000;

const char ca_parse_level_words[CA_LOG_DEBUG + 1][8] = { "off", "error", "warn", "info", "debug" };

static bool
is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ASCII only, unlike strcasecmp(), which asks the locale. */
static bool
is_word(const char *text, const char *word)
{
	for (; *word; text++, word++)
		if ((*text >= 'A' && *text <= 'Z' ? *text - 'A' + 'a' : *text) != *word)
			return false;
	return !*text;
}

/* Reads digits; returns the place after them, or NULL if there are none or too many. */
static const char *
digits_read(const char *text, uint64_t *ret_value)
{
	const char *at = text;
	uint64_t value = 0;

	for (; *at >= '0' && *at <= '9'; at++) {
		uint64_t digit = (uint64_t)(*at - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return NULL;
		value = value * 10 + digit;
	}
	if (at == text)
		return NULL;
	*ret_value = value;
	return at;
}

bool
ca_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t value;
	const char *end = digits_read(text, &value);

	if (!end || *end || value < min || value > max)
		return false;
	*ret_value = value;
	return true;
}

bool
ca_parse_flag(const char *text, bool *ret_value)
{
	static const char yes[][8] = { "1", "on", "true", "yes" },
			  no[][8] = { "0", "off", "false", "no" };

	for (unsigned i = 0; i < 4; i++) {
		if (is_word(text, yes[i]) || is_word(text, no[i])) {
			*ret_value = is_word(text, yes[i]);
			return true;
		}
	}
	return false;
}

const char *
ca_parse_enum_words(const char *accepted, char *ret_first, size_t size)
{
	const char *end = strstr(accepted, " or ");

	ca_text_format(ret_first, size, "%.*s", (int)(end - accepted), accepted);
	return end + 4;
}

bool
ca_parse_enum(const char *text, const char *accepted, bool *ret_value)
{
	char first[CA_CONF_VALUE_MAX];
	const char *second = ca_parse_enum_words(accepted, first, sizeof(first));

	if (!is_word(text, first) && !is_word(text, second))
		return false;
	*ret_value = is_word(text, second);
	return true;
}

size_t
ca_parse_word_at(const char *accepted, unsigned place, char *ret, size_t size)
{
	size_t length;

	for (;; accepted += length) {
		accepted += strspn(accepted, ", ");
		length = strcspn(accepted, ", ");
		if (length == 2 && !strncmp(accepted, "or", length))
			continue;
		if (!length || !place--)
			break;
	}
	ca_text_format(ret, size, "%.*s", (int)length, accepted);
	return length;
}

bool
ca_parse_word(const char *text, const char *accepted, unsigned *ret_place)
{
	char word[CA_CONF_VALUE_MAX];

	for (unsigned i = 0; ca_parse_word_at(accepted, i, word, sizeof(word)); i++) {
		if (is_word(text, word)) {
			*ret_place = i;
			return true;
		}
	}
	return false;
}

const char *
ca_parse_words_of(const char *accepted)
{
	return strstr(accepted, " list of ") + strlen(" list of ");
}

bool
ca_parse_disable(const char *text, enum ca_disable *ret_value)
{
	bool all;

	if (is_word(text, "count")) {
		*ret_value = CA_DISABLE_COUNT;
		return true;
	}
	if (!ca_parse_flag(text, &all))
		return false;
	*ret_value = all ? CA_DISABLE_ALL : CA_DISABLE_OFF;
	return true;
}

bool
ca_parse_level(const char *text, enum ca_log_level *ret_value)
{
	for (unsigned i = 0; i <= CA_LOG_DEBUG; i++) {
		if (is_word(text, ca_parse_level_words[i])) {
			*ret_value = (enum ca_log_level)i;
			return true;
		}
	}
	return false;
}

bool
ca_parse_duration(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	static const struct {
		const char *word;
		uint64_t milliseconds;
	} units[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 } };
	uint64_t value;
	const char *end = digits_read(text, &value);

	if (!end)
		return false;
	if (!value && !*end) {
		*ret_value = 0;
		return true;
	}
	for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		uint64_t unit = units[i].milliseconds * MILLISECOND;

		if (!is_word(end, units[i].word))
			continue;
		if (value > max / unit || value * unit < min)
			return false;
		*ret_value = value * unit;
		return true;
	}
	return false;
}

bool
ca_parse_mb(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t value;

	if (!ca_parse_number(text, min, max < UINT64_MAX >> 20 ? max : UINT64_MAX >> 20, &value))
		return false;
	*ret_value = value << 20;
	return true;
}

bool
ca_parse_mb_no_limit(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	if (!is_word(text, "unlimited"))
		return ca_parse_mb(text, min, max, ret_value);
	*ret_value = UINT64_MAX;
	return true;
}

bool
ca_parse_unit(const char *text, unsigned *ret_shift)
{
	static const char units[][3][4] = {
		{ "k", "kb", "kib" },
		{ "m", "mb", "mib" },
		{ "g", "gb", "gib" },
		{ "t", "tb", "tib" },
	};

	*ret_shift = 0;
	for (unsigned i = 0; *text && i < 4; i++)
		for (unsigned j = 0; j < 3; j++)
			if (is_word(text, units[i][j]))
				*ret_shift = 10 * (i + 1);
	return *ret_shift || !*text;
}

bool
ca_parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t value;
	const char *end = digits_read(text, &value);
	unsigned shift;

	if (!end || !ca_parse_unit(end, &shift) || value > max >> shift || value << shift < min)
		return false;
	*ret_value = value << shift;
	return true;
}

bool
ca_parse_size_no_limit(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	if (!is_word(text, "unlimited"))
		return ca_parse_size(text, min, max, ret_value);
	*ret_value = UINT64_MAX;
	return true;
}

/* Copies [from, to) without white space. False if it had to be cut. */
static bool
copy_dropping_space(char *ret, size_t size, const char *from, const char *to)
{
	size_t length = 0;

	for (; from < to; from++) {
		if (is_space(*from))
			continue;
		if (length + 1 == size) {
			ret[length] = '\0';
			return false;
		}
		ret[length++] = *from;
	}
	ret[length] = '\0';
	return true;
}

bool
ca_parse_words(const char *text, const char *accepted, unsigned *ret_bits)
{
	const char *words = ca_parse_words_of(accepted), *end;
	char word[CA_CONF_KEY_MAX];
	unsigned bits = 0, place;

	for (bool off = is_word(text, "off"); !off; text = end + 1) {
		end = text + strcspn(text, ",");
		if (!copy_dropping_space(word, sizeof(word), text, end) ||
		    !ca_parse_word(word, words, &place))
			return false;
		bits |= 1u << place;
		if (!*end)
			break;
	}
	*ret_bits = bits;
	return true;
}

/* True if a known key and a colon begin here. */
static bool
known_key_begins(const char *text)
{
	char key[CA_CONF_KEY_MAX];
	const char *at = text;

	while (*at && *at != ':' && *at != ',' && *at != '[' && *at != ']')
		at++;
	return *at == ':' && copy_dropping_space(key, sizeof(key), text, at) &&
	       ca_option_find(true, key);
}

/* The comma or terminator that ends the entry at `text`. */
static const char *
entry_end(const char *text, bool *ret_unclosed)
{
	const char *at;
	unsigned depth = 0;

	*ret_unclosed = false;
	for (at = text; *at && (*at != ',' || depth); at++) {
		if (*at == '[')
			depth++;
		else if (*at == ']' && depth)
			depth--;
	}
	if (!depth)
		return at;
	*ret_unclosed = true;
	for (at = text; *at; at++)
		if (*at == ',' && known_key_begins(at + 1))
			break;
	return at;
}

static enum ca_conf_fault
entry_split(struct ca_conf_entry *entry, const char *from, const char *to)
{
	const char *colon = from;
	bool whole;

	while (colon < to && *colon != ':' && *colon != '[')
		colon++;
	if (colon < to && *colon == '[')
		colon = to; /* a list without a key */
	copy_dropping_space(entry->key, sizeof(entry->key), from, colon);
	if (colon == to)
		return entry->key[0] ? CA_CONF_NO_COLON : CA_CONF_EMPTY;
	whole = copy_dropping_space(entry->value, sizeof(entry->value), colon + 1, to);
	if (!entry->key[0])
		return CA_CONF_NO_KEY;
	if (!entry->value[0])
		return CA_CONF_NO_VALUE;
	return whole ? CA_CONF_GOOD : CA_CONF_TOO_LONG;
}

bool
ca_conf_next(const char **text, struct ca_conf_entry *ret_entry)
{
	const char *from = *text, *end;
	bool unclosed;

	while (is_space(*from))
		from++;
	if (!*from)
		return false;
	end = entry_end(from, &unclosed);
	ret_entry->key[0] = ret_entry->value[0] = '\0';
	ret_entry->fault = entry_split(ret_entry, from, end);
	if (unclosed && ret_entry->key[0])
		ret_entry->fault = CA_CONF_UNCLOSED;
	*text = *end ? end + 1 : end;
	return true;
}
