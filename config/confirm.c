/* SPDX-License-Identifier: MIT */
/*
 * The way back: from the struct to the text a user would have written.
 *
 * A setting is shown when its text differs from the text of the default, both printed by the same
 * function from two structs; nothing has to know how a type compares.
 */
#include "config/config.h"

#include <errno.h>
#include <string.h>

#include "config/options.h"
#include "config/parse.h"
#include "config/text.h"

enum { VALUE_BYTES = CA_PATH_MAX + 1 };

/* The functions here print into VALUE_BYTES. */
static void
text_print(char *ret, const char *text)
{
	ca_text_format(ret, VALUE_BYTES, "%s", text);
}

static void
duration_print(char *ret, uint64_t ns)
{
	uint64_t ms = ns / 1000000;

	if (ms && ms % 1000 == 0)
		ca_text_format(ret, VALUE_BYTES, "%llus", (unsigned long long)(ms / 1000));
	else
		ca_text_format(ret, VALUE_BYTES, "%llu%s", (unsigned long long)ms, ms ? "ms" : "");
}

static void
mb_print(char *ret, uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		text_print(ret, "unlimited");
	else
		ca_text_format(ret, VALUE_BYTES, "%llu", (unsigned long long)(bytes >> 20));
}

static void
size_print(char *ret, uint64_t bytes)
{
	static const char units[] = "\0KMGT";
	unsigned unit = 0;

	if (bytes == UINT64_MAX) {
		text_print(ret, "unlimited");
		return;
	}
	for (; bytes && !(bytes & 1023) && unit < 4; bytes >>= 10)
		unit++;
	ca_text_format(ret, VALUE_BYTES, "%llu%.1s", (unsigned long long)bytes, &units[unit]);
}

static void
enum_print(char *ret, const char *accepted, bool second)
{
	char first[VALUE_BYTES];
	const char *rest = ca_parse_enum_words(accepted, first, sizeof(first));

	text_print(ret, second ? rest : first);
}

static void
words_print(char *ret, const char *accepted, unsigned bits)
{
	const char *words = ca_parse_words_of(accepted);
	char word[VALUE_BYTES];
	size_t length = 0;

	text_print(ret, "off");
	for (unsigned i = 0; ca_parse_word_at(words, i, word, sizeof(word)); i++)
		if (bits >> i & 1)
			length += ca_text_format(ret + length, VALUE_BYTES - length, "%s%s",
						 length ? "," : "", word);
}

/* 0: nothing. At most nine places. */
static void
fraction_print(char *ret, uint64_t value, uint64_t whole, const char *unit)
{
	uint64_t rest = value % whole;
	size_t length;

	ret[0] = '\0';
	if (!value)
		return;
	length = ca_text_format(ret, VALUE_BYTES, "%llu", (unsigned long long)(value / whole));
	for (const char *point = "."; rest; point = "", rest = rest * 10 % whole)
		length += ca_text_format(ret + length, VALUE_BYTES - length, "%s%llu", point,
					 (unsigned long long)(rest * 10 / whole));
	ca_text_format(ret + length, VALUE_BYTES - length, "%s", unit);
}

static void
limit_print(char *ret, const struct ca_limit *limit)
{
	static const char units[][2] = { "", "K", "M", "G", "T" };
	uint64_t bytes = limit->bytes;
	unsigned unit = 0;

	if (limit->share) {
		fraction_print(ret, limit->share, CA_WHOLE / 100, "%");
		return;
	}
	for (; bytes && bytes % 1024 == 0 && unit < 4; unit++)
		bytes /= 1024;
	if (bytes)
		ca_text_format(ret, VALUE_BYTES, "%llu%s", (unsigned long long)bytes, units[unit]);
	else
		text_print(ret, "");
}

static void
roundup_print(char *ret, const struct ca_roundup *roundup)
{
	bool list =
		roundup->count > 1 || (roundup->count && roundup->interval[0].below != UINT64_MAX);
	size_t length =
		ca_text_format(ret, VALUE_BYTES, roundup->count ? "%s" : "0", list ? "[" : "");

	for (unsigned i = 0; i < roundup->count; i++) {
		const struct ca_interval *one = &roundup->interval[i];

		if (list && one->below == UINT64_MAX)
			length += ca_text_format(ret + length, VALUE_BYTES - length,
						 "%s>:", i ? "," : "");
		else if (list)
			length += ca_text_format(ret + length, VALUE_BYTES - length,
						 "%s%llu:", i ? "," : "",
						 (unsigned long long)(one->below >> 20));
		length += ca_text_format(ret + length, VALUE_BYTES - length, "%llu",
					 (unsigned long long)one->divisions);
	}
	if (list)
		ca_text_format(ret + length, VALUE_BYTES - length, "]");
}

static void
value_print(const struct ca_config *config, const struct ca_option *option, char *ret)
{
	static const char disable[][8] = { "0", "1", "count" };
	const void *place = (const char *)config + option->offset;

	ret[0] = '\0';
	switch (option->type) {
	case CA_TYPE_DISABLE:
		text_print(ret, disable[*(const enum ca_disable *)place]);
		break;
	case CA_TYPE_LEVEL:
		text_print(ret, ca_parse_level_words[*(const enum ca_log_level *)place]);
		break;
	case CA_TYPE_PATTERN:
		text_print(ret, place);
		break;
	case CA_TYPE_STATS:
		text_print(ret, config->stats_stderr ? "1" : config->stats_file);
		break;
	case CA_TYPE_DURATION:
		duration_print(ret, *(const uint64_t *)place);
		break;
	case CA_TYPE_FLAG:
		text_print(ret, *(const bool *)place ? "1" : "0");
		break;
	case CA_TYPE_CHOICE:
		enum_print(ret, option->accepted, *(const bool *)place);
		break;
	case CA_TYPE_WORD:
	case CA_TYPE_SWITCH:
		ca_parse_word_at(option->accepted, *(const unsigned *)place, ret, VALUE_BYTES);
		break;
	case CA_TYPE_WORDS:
		words_print(ret, option->accepted, *(const unsigned *)place);
		break;
	case CA_TYPE_SIZE:
	case CA_TYPE_SIZE_UNLIMITED:
		size_print(ret, *(const uint64_t *)place);
		break;
	case CA_TYPE_MB:
	case CA_TYPE_MB_UNLIMITED:
		mb_print(ret, *(const uint64_t *)place);
		break;
	case CA_TYPE_NUMBER:
		ca_text_format(ret, VALUE_BYTES, "%llu",
			       (unsigned long long)*(const uint64_t *)place);
		break;
	case CA_TYPE_FRACTION:
		fraction_print(ret, *(const uint64_t *)place, CA_WHOLE, "");
		break;
	case CA_TYPE_ROUNDUP:
		roundup_print(ret, place);
		break;
	case CA_TYPE_LIMIT:
		limit_print(ret, place);
		break;
	case CA_TYPE_CONF:
	case CA_TYPE_ANY:
		break;
	}
}

/* Its default is another under a take-over: shown in either case. */
static bool
is_implied(const struct ca_config *config, const struct ca_option *option)
{
	return config->take_over && option->is_key &&
	       option->offset == offsetof(struct ca_config, async);
}

/* As a site's file has it. */
static void
confirm_forced(const struct ca_limit *limit, ca_report_fn *report, void *report_arg)
{
	char value[VALUE_BYTES], line[VALUE_BYTES + 64];

	if (!limit->bytes && !limit->share)
		return;
	limit_print(value, limit);
	ca_text_format(line, sizeof(line), "force CACHEALLOC_LIMIT=%s", value);
	report(report_arg, line);
}

void
ca_config_confirm(const struct ca_config *config, ca_report_fn *report, void *report_arg)
{
	struct ca_config defaults;
	int saved = errno;

	ca_config_default(&defaults);
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];
		char value[VALUE_BYTES], usual[VALUE_BYTES], shown[VALUE_BYTES],
			line[VALUE_BYTES + 128];

		if (option->status != CA_STATUS_BUILT)
			continue;
		value_print(config, option, value);
		value_print(&defaults, option, usual);
		if (!strcmp(value, usual) && !is_implied(config, option))
			continue;
		ca_text_escape(shown, sizeof(shown), value);
		if (option->is_key)
			ca_text_format(line, sizeof(line), "CACHEALLOC_CONF=%s:%s", option->name,
				       shown);
		else
			ca_text_format(line, sizeof(line), "CACHEALLOC_%s=%s", option->name, shown);
		report(report_arg, line);
	}
	confirm_forced(&config->forced_limit, report, report_arg);
	errno = saved;
}
