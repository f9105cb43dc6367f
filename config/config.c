/* SPDX-License-Identifier: MIT */
/*
 * From the environment to struct ca_config, driven by the option table.
 *
 * A default is a text in the table and goes through the same parser as a user's value, so the two
 * cannot disagree. Loading walks the rows of variables; CACHEALLOC_CONF walks its entries and looks
 * each key up. A value is stored only after it was accepted, so "ignored" needs no undoing: the
 * default is still there.
 *
 * Rules between two keys are checked when all keys have been read; their order in the text does not
 * matter. Which rows were set, or have had their line, is a bit per row.
 */
#include "config/config.h"

#include <errno.h>
#include <string.h>

#include "config/options.h"
#include "config/parse.h"
#include "config/text.h"

enum {
	LINE_BYTES = 1600, /* a pattern of CA_PATH_MAX and the words around it */
	TITLE_BYTES = CA_OPTION_NAME_MAX + 32,
	SHOWN_BYTES = 64, /* of a bad value */
};

static const char prefix[] = "CACHEALLOC_";

struct load {
	struct ca_config *config;
	ca_report_fn *report; /* may be NULL */
	void *report_arg;
	int bad;
	uint64_t set;  /* a bit per row: a value was accepted */
	uint64_t told; /* a bit per row: its "not in this version" was said */
};

static uint64_t
row_bit(const struct ca_option *option)
{
	return (uint64_t)1 << (option - ca_options);
}

/* ---- messages ---- */

/* The consequence of a bad setting, for its line. */
static const char *
result_text(const struct load *load)
{
	return load->config->strict ? "refused" : "ignored";
}

__attribute__((format(printf, 2, 3))) static void
bad(struct load *load, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	if (++load->bad > CA_CONFIG_REPORT_MAX || !load->report)
		return;
	va_start(args, format);
	ca_text_format_va(line, sizeof(line), format, args);
	va_end(args);
	load->report(load->report_arg, line);
}

static bool
no_log(const struct load *load)
{
	return load->bad >= CA_CONFIG_REPORT_MAX || !load->report;
}

/* "CACHEALLOC_LOG" or "CACHEALLOC_CONF: max_split_size_mb" */
static const char *
title(char ret[TITLE_BYTES], const struct ca_option *option)
{
	ca_text_format(ret, TITLE_BYTES, "%s%s%s", prefix, option->is_key ? "CONF: " : "",
		       option->name);
	return ret;
}

static void
bad_value(struct load *load, const struct ca_option *option, const char *value, const char *why)
{
	char name[TITLE_BYTES], shown[SHOWN_BYTES];

	bad(load, "%s: '%s' is %s%s: expected %s", title(name, option),
	    ca_text_escape(shown, sizeof(shown), value), result_text(load), why, option->accepted);
}

/* "STRICT, DISABLE, ...": the names that have an effect. */
static const char *
known_names(char *ret, size_t size, bool is_key)
{
	size_t length = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < ca_options_count && length < size; i++)
		if (ca_options[i].is_key == is_key && ca_options[i].status == CA_STATUS_BUILT)
			length += ca_text_format(ret + length, size - length, "%s%s",
						 length ? ", " : "", ca_options[i].name);
	return ret;
}

/* `value` only where the name is that of a key. */
static void
bad_unknown(struct load *load, bool is_key, const char *name, const char *value)
{
	char shown[SHOWN_BYTES], shown_value[SHOWN_BYTES], known[512], hint[576];
	const struct ca_option *near;

	if (no_log(load)) {
		bad(load, "not shown");
		return;
	}
	near = ca_option_nearest(is_key, name);
	if (near)
		ca_text_format(hint, sizeof(hint), "did you mean %s%s?", is_key ? "" : prefix,
			       near->name);
	else
		ca_text_format(hint, sizeof(hint), "expected %s%s",
			       is_key ? "one of " : "CACHEALLOC_ and one of ",
			       known_names(known, sizeof(known), is_key));
	ca_text_escape(shown, sizeof(shown), name);
	if (is_key)
		bad(load, "CACHEALLOC_CONF: unknown key '%s' (value '%s') is %s: %s", shown,
		    ca_text_escape(shown_value, sizeof(shown_value), value), result_text(load),
		    hint);
	else
		bad(load, "%s%s: unknown variable is %s: %s", prefix, shown, result_text(load),
		    hint);
}

/* A known setting without effect here: one line, once. */
static void
bad_absent(struct load *load, const struct ca_option *option)
{
	char name[TITLE_BYTES];

	if (load->told & row_bit(option))
		return;
	load->told |= row_bit(option);
	if (option->status == CA_STATUS_FOREIGN)
		bad(load, "%s is %s: it is PyTorch's own and does not apply here",
		    title(name, option), result_text(load));
	else
		bad(load, "%s is %s: not in this version", title(name, option), result_text(load));
}

/* ---- values ---- */

/* A word such as 1, on or json is more likely a mistake than the name of a file. */
static bool
is_plain_word(const char *text)
{
	return *text && !text[strcspn(text, "./%")];
}

/* "1" and "0" mean the table. */
static bool
stats_store(struct ca_config *config, const char *text)
{
	bool table;

	if (ca_parse_flag(text, &table)) {
		config->stats_stderr = table;
		config->stats_file[0] = '\0';
		return true;
	}
	if (is_plain_word(text) || ca_path_check(text))
		return false;
	config->stats_stderr = false;
	ca_text_format(config->stats_file, sizeof(config->stats_file), "%s", text);
	return true;
}

/* "" and words for off: no file. */
static bool
pattern_store(char *ret, const char *text)
{
	bool on = true;

	if (ca_parse_flag(text, &on) && !on)
		text = "";
	if (*text && (is_plain_word(text) || ca_path_check(text)))
		return false;
	ca_text_format(ret, CA_PATH_MAX, "%s", text);
	return true;
}

/* Parses `text` by the row's type into its place. False: not accepted, nothing was stored. */
static bool
value_store(struct ca_config *config, const struct ca_option *option, const char *text)
{
	void *place = (char *)config + option->offset;

	switch (option->type) {
	case CA_TYPE_DISABLE:
		return ca_parse_disable(text, place);
	case CA_TYPE_LEVEL:
		return ca_parse_level(text, place);
	case CA_TYPE_PATTERN:
		return pattern_store(place, text);
	case CA_TYPE_STATS:
		return stats_store(config, text);
	case CA_TYPE_DURATION:
		return ca_parse_duration(text, option->min, option->max, place);
	case CA_TYPE_FLAG:
		return ca_parse_flag(text, place);
	case CA_TYPE_CHOICE:
		return ca_parse_enum(text, option->accepted, place);
	case CA_TYPE_WORD:
		return ca_parse_word(text, option->accepted, place);
	case CA_TYPE_WORDS:
		return ca_parse_words(text, option->accepted, place);
	case CA_TYPE_SIZE:
		return ca_parse_size(text, option->min, option->max, place);
	case CA_TYPE_SIZE_UNLIMITED:
		return ca_parse_size_no_limit(text, option->min, option->max, place);
	case CA_TYPE_MB:
		return ca_parse_mb(text, option->min, option->max, place);
	case CA_TYPE_MB_UNLIMITED:
		return ca_parse_mb_no_limit(text, option->min, option->max, place);
	case CA_TYPE_NUMBER:
		return ca_parse_number(text, option->min, option->max, place);
	case CA_TYPE_FRACTION:
		return ca_parse_fraction(text, option->min, option->max, place);
	case CA_TYPE_ROUNDUP:
		return !ca_parse_roundup(text, place);
	case CA_TYPE_LIMIT:
		return ca_parse_limit(text, place);
	case CA_TYPE_CONF:
	case CA_TYPE_ANY:
		break;
	}
	return false;
}

/* Words to add to the message where a list or a pattern is at fault. */
static const char *
reason_of(const struct ca_option *option, const char *value)
{
	struct ca_roundup roundup;

	if (option->type == CA_TYPE_ROUNDUP)
		return ca_parse_roundup(value, &roundup);
	if (option->type != CA_TYPE_PATTERN && option->type != CA_TYPE_STATS)
		return "";
	switch (ca_path_check(value)) {
	case -ENAMETOOLONG:
		return " (too long)";
	case -EINVAL:
		return " (a % that is none of %p %h %r %e %t %n %%)";
	case -EISDIR:
		return " (no file name at its end)";
	case -EPERM:
		return " (nothing is written below /dev, /proc and /sys)";
	default:
		return is_plain_word(value) ? " (a file's name has a . / or % in it, as ./name has)"
					    : "";
	}
}

/* ---- CACHEALLOC_CONF ---- */

static void
conf_key(struct load *load, const struct ca_option *option, const char *value)
{
	char name[TITLE_BYTES], shown[SHOWN_BYTES];

	if (!value_store(load->config, option, value)) {
		bad_value(load, option, value, reason_of(option, value));
		return;
	}
	if (load->set & row_bit(option))
		bad(load, "%s is given more than once: the last one, '%s', is %s",
		    title(name, option), ca_text_escape(shown, sizeof(shown), value),
		    load->config->strict ? "refused" : "used");
	load->set |= row_bit(option);
}

/* The entry is malformed; its key may still tell what was meant. */
static void
conf_fault(struct load *load, const struct ca_conf_entry *entry)
{
	static const char *const reasons[] = {
		[CA_CONF_GOOD] = "",
		[CA_CONF_EMPTY] = "an empty setting between commas",
		[CA_CONF_NO_COLON] = "no colon and value",
		[CA_CONF_NO_KEY] = "no key before the colon",
		[CA_CONF_NO_VALUE] = "no value after the colon",
		[CA_CONF_UNCLOSED] = "a [ without ]",
		[CA_CONF_TOO_LONG] = "the value is too long",
	};
	const struct ca_option *option = ca_option_find(true, entry->key);
	char key[SHOWN_BYTES], value[SHOWN_BYTES];

	if (entry->fault == CA_CONF_EMPTY) {
		bad(load, "CACHEALLOC_CONF: %s is %s: expected key:value,key:value",
		    reasons[entry->fault], result_text(load));
		return;
	}
	bad(load, "CACHEALLOC_CONF: '%s%s%s' is %s (%s): expected %s",
	    ca_text_escape(key, sizeof(key), entry->key),
	    entry->fault == CA_CONF_NO_COLON ? "" : ":",
	    ca_text_escape(value, sizeof(value), entry->value), result_text(load),
	    reasons[entry->fault],
	    option && *option->accepted ? option->accepted : "key:value,key:value");
}

static void
conf_entry(struct load *load, const struct ca_conf_entry *entry)
{
	const struct ca_option *option = ca_option_find(true, entry->key);

	if (option && option->status != CA_STATUS_BUILT)
		bad_absent(load, option);
	else if (!option && (entry->fault == CA_CONF_GOOD || entry->fault == CA_CONF_NO_VALUE ||
			     entry->fault == CA_CONF_TOO_LONG))
		bad_unknown(load, true, entry->key, entry->value);
	else if (entry->fault != CA_CONF_GOOD)
		conf_fault(load, entry);
	else
		conf_key(load, option, entry->value);
}

/* max_split_size_mb and max_non_split_rounding_mb may not be smaller than large_segment_size_mb. */
static void
conf_at_least_segment(struct load *load, const struct ca_option *option, uint64_t bytes)
{
	uint64_t least = load->config->large_segment_size_bytes;
	char name[TITLE_BYTES];

	if (!(load->set & row_bit(option)) || bytes >= least)
		return;
	load->set &= ~row_bit(option);
	value_store(load->config, option, option->default_text);
	bad(load, "%s: '%llu' is %s: expected at least large_segment_size_mb (%llu)",
	    title(name, option), (unsigned long long)(bytes >> 20), result_text(load),
	    (unsigned long long)(least >> 20));
}

/* Rules between keys, when all have been read. */
static void
conf_check(struct load *load)
{
	const struct ca_option *split = ca_option_find(true, "max_split_size_mb");
	const struct ca_option *rounding = ca_option_find(true, "max_non_split_rounding_mb");
	struct ca_config *config = load->config;

	conf_at_least_segment(load, split, config->max_split_size_bytes);
	conf_at_least_segment(load, rounding, config->max_non_split_rounding_bytes);
	if (!(load->set & row_bit(rounding)))
		config->max_non_split_rounding_bytes = config->large_segment_size_bytes;
}

static void
conf_load(struct load *load, const struct ca_option *option, const char *text)
{
	struct ca_conf_entry entry;

	if (strnlen(text, CA_CONF_TEXT_MAX + 1) > CA_CONF_TEXT_MAX) {
		bad_value(load, option, text, " (too long)");
		return;
	}
	while (ca_conf_next(&text, &entry))
		conf_entry(load, &entry);
}

/* ---- PyTorch's variable, under a take-over */

/* NULL: a key that is PyTorch's business alone, or has no effect here yet. */
static const struct ca_option *
torch_option(const char *key)
{
	static const char *const shared[] = { "max_split_size_mb", "garbage_collection_threshold",
					      "roundup_power2_divisions", "expandable_segments" };
	const struct ca_option *option;

	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
		option = ca_option_find(true, shared[i]);
		if (!strcmp(key, shared[i]))
			return option->status == CA_STATUS_BUILT ? option : NULL;
	}
	return NULL;
}

static void
torch_load(struct load *load, const char *variable, const char *text)
{
	char key[SHOWN_BYTES], value[SHOWN_BYTES];
	struct ca_conf_entry entry;
	uint64_t found = 0;

	while (ca_conf_next(&text, &entry)) {
		const struct ca_option *option = torch_option(entry.key);

		if (!option || (load->set & row_bit(option)))
			continue;
		if (entry.fault == CA_CONF_GOOD && value_store(load->config, option, entry.value))
			found |= row_bit(option);
		else
			bad(load, "CACHEALLOC_TAKEOVER: in %s '%s:%s' is %s: expected %s", variable,
			    ca_text_escape(key, sizeof(key), entry.key),
			    ca_text_escape(value, sizeof(value), entry.value), result_text(load),
			    option->accepted);
	}
	load->set |= found;
}

/* The keys that a take-over brings with it. */
static void
take_over_load(struct load *load, ca_getenv_fn *env, void *env_arg)
{
	struct ca_config *config = load->config;
	const char *variable = CA_TORCH_CONF, *text;

	if (config->take_over && !(load->set & row_bit(ca_option_find(true, "async"))))
		config->async = CA_ASYNC_TAKEN_OVER;
	if (!(config->take_over & CA_TAKE_TORCH))
		return;
	text = env(env_arg, variable);
	if (!text)
		text = env(env_arg, variable = CA_TORCH_CONF_NEW);
	if (text && strnlen(text, CA_CONF_TEXT_MAX + 1) <= CA_CONF_TEXT_MAX)
		torch_load(load, variable, text);
}

/* ---- variables ---- */

void
ca_config_default(struct ca_config *ret_config)
{
	memset(ret_config, 0, sizeof(*ret_config));
	for (size_t i = 0; i < ca_options_count; i++)
		if (ca_options[i].status == CA_STATUS_BUILT && ca_options[i].type != CA_TYPE_CONF)
			value_store(ret_config, &ca_options[i], ca_options[i].default_text);
}

static void
variable_load(struct load *load, const struct ca_option *option, const char *value)
{
	if (option->status != CA_STATUS_BUILT)
		bad_absent(load, option);
	else if (option->type == CA_TYPE_CONF)
		conf_load(load, option, value);
	else if (!value_store(load->config, option, value))
		bad_value(load, option, value, reason_of(option, value));
	else
		load->set |= row_bit(option);
}

/* A window of sizes that no request is in would switch the cache off without a word. */
static void
window_check(struct load *load)
{
	struct ca_config *config = load->config;

	if (config->min_size_bytes <= config->max_size_bytes)
		return;
	bad(load, "CACHEALLOC_CONF: min_size is larger than max_size: both are %s",
	    result_text(load));
	config->min_size_bytes = 0;
	config->max_size_bytes = UINT64_MAX;
}

/* A setting that says how often statistics are repeated implies statistics. */
static void
interval_imply_stats(const struct load *load)
{
	if (load->config->stats_interval_ns &&
	    !(load->set & row_bit(ca_option_find(false, "STATS"))))
		load->config->stats_stderr = true;
}

/* Names in the environment that begin like ours and are none. */
static void
unknown_load(struct load *load, char *const *names)
{
	for (; *names; names++) {
		char name[CA_OPTION_NAME_MAX];
		const char *rest = *names + sizeof(prefix) - 1;

		if (strncmp(*names, prefix, sizeof(prefix) - 1) != 0)
			continue;
		ca_text_format(name, sizeof(name), "%.*s", (int)strcspn(rest, "="), rest);
		if (!ca_option_find(false, name))
			bad_unknown(load, false, name, "");
	}
}

int
ca_config_load(struct ca_config *ret_config, ca_getenv_fn *env, void *env_arg,
	       char *const *environ_names, ca_report_fn *report, void *report_arg)
{
	struct load load = { .config = ret_config, .report = report, .report_arg = report_arg };
	int saved = errno;

	ca_config_default(ret_config);
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];
		char name[TITLE_BYTES];
		const char *value;

		if (option->is_key || option->status == CA_STATUS_OURS)
			continue;
		value = env(env_arg, title(name, option));
		if (value && *value)
			variable_load(&load, option, value);
	}
	take_over_load(&load, env, env_arg);
	conf_check(&load);
	window_check(&load);
	interval_imply_stats(&load);
	if (environ_names)
		unknown_load(&load, environ_names);
	if (load.bad > CA_CONFIG_REPORT_MAX && report) {
		char line[128];

		ca_text_format(line, sizeof(line),
			       "CACHEALLOC_*: %d more bad settings are ignored and not shown",
			       load.bad - CA_CONFIG_REPORT_MAX);
		report(report_arg, line);
	}
	errno = saved;
	return load.bad;
}
