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

#include "config/load.h"
#include "config/options.h"
#include "config/parse.h"
#include "config/text.h"

enum { SHOWN_BYTES = 64 }; /* of a bad value */

static const char prefix[] = CA_PREFIX;

/* ---- values ---- */

/* Accepted: the row's value now comes from here. */
static void
mark_set(struct ca_load *load, const struct ca_option *option)
{
	load->set |= ca_load_bit(option);
	load->line_of[option - ca_options] = load->line;
}

/* Faults of the row are told with the line that set it. */
static void
return_to_line(struct ca_load *load, const struct ca_option *option)
{
	load->line = load->line_of[option - ca_options];
}

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

static bool
switch_store(unsigned *ret, const char *accepted, const char *text)
{
	bool on;

	if (!ca_parse_flag(text, &on))
		return ca_parse_word(text, accepted, ret);
	*ret = on;
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
	case CA_TYPE_SWITCH:
		return switch_store(place, option->accepted, text);
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
conf_key(struct ca_load *load, const struct ca_option *option, const char *value)
{
	char name[CA_BAD_TITLE], shown[SHOWN_BYTES];

	if (!value_store(load->config, option, value)) {
		ca_bad_value(load, option, value, reason_of(option, value));
		return;
	}
	if (load->set & ca_load_bit(option))
		ca_bad(load, "%s is given more than once: the last one, '%s', is %s",
		       ca_bad_title(name, option), ca_text_escape(shown, sizeof(shown), value),
		       load->config->strict ? "refused" : "used");
	mark_set(load, option);
}

/* The entry is malformed; its key may still tell what was meant. */
static void
conf_fault(struct ca_load *load, const struct ca_conf_entry *entry)
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
		ca_bad(load, "CACHEALLOC_CONF: %s is %s: expected key:value,key:value",
		       reasons[entry->fault], ca_bad_result(load));
		return;
	}
	ca_bad(load, "CACHEALLOC_CONF: '%s%s%s' is %s (%s): expected %s",
	       ca_text_escape(key, sizeof(key), entry->key),
	       entry->fault == CA_CONF_NO_COLON ? "" : ":",
	       ca_text_escape(value, sizeof(value), entry->value), ca_bad_result(load),
	       reasons[entry->fault],
	       option && *option->accepted ? option->accepted : "key:value,key:value");
}

static void
conf_entry(struct ca_load *load, const struct ca_conf_entry *entry)
{
	const struct ca_option *option = ca_option_find(true, entry->key);

	if (option && option->status != CA_STATUS_BUILT)
		ca_bad_absent(load, option);
	else if (!option && (entry->fault == CA_CONF_GOOD || entry->fault == CA_CONF_NO_VALUE ||
			     entry->fault == CA_CONF_TOO_LONG))
		ca_bad_unknown(load, true, entry->key, entry->value);
	else if (entry->fault != CA_CONF_GOOD)
		conf_fault(load, entry);
	else
		conf_key(load, option, entry->value);
}

/* max_split_size_mb and max_non_split_rounding_mb may not be smaller than large_segment_size_mb. */
static void
conf_at_least_segment(struct ca_load *load, const struct ca_option *option, uint64_t bytes)
{
	uint64_t least = load->config->large_segment_size_bytes;
	char name[CA_BAD_TITLE];

	if (!(load->set & ca_load_bit(option)) || bytes >= least)
		return;
	load->set &= ~ca_load_bit(option);
	value_store(load->config, option, option->default_text);
	return_to_line(load, option);
	ca_bad(load, "%s: '%llu' is %s: expected at least large_segment_size_mb (%llu)",
	       ca_bad_title(name, option), (unsigned long long)(bytes >> 20), ca_bad_result(load),
	       (unsigned long long)(least >> 20));
}

/* Rules between keys, when all have been read. */
static void
conf_check(struct ca_load *load)
{
	const struct ca_option *split = ca_option_find(true, "max_split_size_mb");
	const struct ca_option *rounding = ca_option_find(true, "max_non_split_rounding_mb");
	struct ca_config *config = load->config;

	conf_at_least_segment(load, split, config->max_split_size_bytes);
	conf_at_least_segment(load, rounding, config->max_non_split_rounding_bytes);
	if (!((load->set | load->below) & ca_load_bit(rounding)))
		config->max_non_split_rounding_bytes = config->large_segment_size_bytes;
}

static void
conf_load(struct ca_load *load, const struct ca_option *option, const char *text)
{
	struct ca_conf_entry entry;

	if (strnlen(text, CA_CONF_TEXT_MAX + 1) > CA_CONF_TEXT_MAX) {
		ca_bad_value(load, option, text, " (too long)");
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
torch_load(struct ca_load *load, const char *variable, const char *text)
{
	char key[SHOWN_BYTES], value[SHOWN_BYTES];
	struct ca_conf_entry entry;
	uint64_t found = 0;

	while (ca_conf_next(&text, &entry)) {
		const struct ca_option *option = torch_option(entry.key);

		if (!option || (load->set & ca_load_bit(option)))
			continue;
		if (entry.fault == CA_CONF_GOOD && value_store(load->config, option, entry.value))
			found |= ca_load_bit(option);
		else
			ca_bad(load, "CACHEALLOC_TAKEOVER: in %s '%s:%s' is %s: expected %s",
			       variable, ca_text_escape(key, sizeof(key), entry.key),
			       ca_text_escape(value, sizeof(value), entry.value),
			       ca_bad_result(load), option->accepted);
	}
	load->set |= found;
}

/* The keys that a take-over brings with it. */
static void
take_over_load(struct ca_load *load, ca_getenv_fn *env, void *env_arg)
{
	struct ca_config *config = load->config;
	const char *variable = CA_TORCH_CONF, *text;

	if (config->take_over &&
	    !((load->set | load->below) & ca_load_bit(ca_option_find(true, "async"))))
		config->async = config->take_over & CA_TAKE_TORCH ? CA_ASYNC_POOL : CA_ASYNC_KEEP;
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

void
ca_load_variable(struct ca_load *load, const struct ca_option *option, const char *value)
{
	if (option->status != CA_STATUS_BUILT)
		ca_bad_absent(load, option);
	else if (option->type == CA_TYPE_CONF)
		conf_load(load, option, value);
	else if (!value_store(load->config, option, value))
		ca_bad_value(load, option, value, reason_of(option, value));
	else
		mark_set(load, option);
}

/* A window of sizes that no request is in would switch the cache off without a word. */
static void
window_check(struct ca_load *load)
{
	struct ca_config *config = load->config;

	if (config->min_size_bytes <= config->max_size_bytes)
		return;
	return_to_line(
		load, ca_option_find(true, load->set & ca_load_bit(ca_option_find(true, "max_size"))
						   ? "max_size"
						   : "min_size"));
	ca_bad(load, "CACHEALLOC_CONF: min_size is larger than max_size: both are %s",
	       ca_bad_result(load));
	config->min_size_bytes = 0;
	config->max_size_bytes = UINT64_MAX;
}

/* A setting that says how often statistics are repeated implies statistics. */
static void
interval_imply_stats(const struct ca_load *load)
{
	uint64_t interval = ca_load_bit(ca_option_find(false, "STATS_INTERVAL"));
	uint64_t stats = ca_load_bit(ca_option_find(false, "STATS"));
	struct ca_config *config = load->config;

	if (config->stats_interval_ns && (load->set & interval) && !(load->set & stats) &&
	    !config->stats_file[0])
		config->stats_stderr = true;
}

/* ---- a site's settings below those of the environment */

/* Values of the site are dropped where they do not go with the environment's. */
static void
site_drop(struct ca_load *load, const char *const names[], size_t n)
{
	uint64_t dropped = 0;

	for (size_t i = 0; i < n; i++) {
		const struct ca_option *option = ca_option_find(true, names[i]);

		if (!(load->below & ~load->set & ca_load_bit(option)))
			continue;
		value_store(load->config, option, option->default_text);
		dropped |= ca_load_bit(option);
	}
	load->below &= ~dropped;
	if (dropped && load->report)
		load->report(load->report_arg,
			     "CACHEALLOC_CONF: the site's sizes do not go with the environment's, "
			     "and are ignored");
}

/* Rules between keys hold within each of the two; across them the environment's values stand. */
static void
site_yield(struct ca_load *load)
{
	static const char *const segment[] = { "large_segment_size_mb", "max_split_size_mb",
					       "max_non_split_rounding_mb" };
	static const char *const window[] = { "min_size", "max_size" };
	const struct ca_config *config = load->config;
	uint64_t least = config->large_segment_size_bytes;
	uint64_t rounding = ca_load_bit(ca_option_find(true, segment[2]));

	if (config->max_split_size_bytes < least || (((load->set | load->below) & rounding) &&
						     config->max_non_split_rounding_bytes < least))
		site_drop(load, segment, 3);
	if (config->min_size_bytes > config->max_size_bytes)
		site_drop(load, window, 2);
}

void
ca_load_rules(struct ca_load *load)
{
	conf_check(load);
	window_check(load);
	interval_imply_stats(load);
	if (load->bad > CA_CONFIG_REPORT_MAX && load->report) {
		char line[128];

		ca_text_format(line, sizeof(line),
			       "CACHEALLOC_*: %d more bad settings are ignored and not shown",
			       load->bad - CA_CONFIG_REPORT_MAX);
		load->report(load->report_arg, line);
	}
}

/* Names in the environment that begin like ours and are none. */
static void
unknown_load(struct ca_load *load, char *const *names)
{
	for (; *names; names++) {
		char name[CA_OPTION_NAME_MAX];
		const char *rest = *names + sizeof(prefix) - 1;

		if (strncmp(*names, prefix, sizeof(prefix) - 1) != 0)
			continue;
		ca_text_format(name, sizeof(name), "%.*s", (int)strcspn(rest, "="), rest);
		if (!ca_option_find(false, name))
			ca_bad_unknown(load, false, name, "");
	}
}

static void
variables_load(struct ca_load *load, ca_getenv_fn *env, void *env_arg)
{
	for (size_t i = 0; i < ca_options_count; i++) {
		const struct ca_option *option = &ca_options[i];
		char name[CA_BAD_TITLE];
		const char *value;

		if (option->is_key || option->status == CA_STATUS_OURS)
			continue;
		value = env(env_arg, ca_bad_title(name, option));
		if (value && *value)
			ca_load_variable(load, option, value);
	}
}

int
ca_config_load_over(const struct ca_site *site, struct ca_config *ret_config, ca_getenv_fn *env,
		    void *env_arg, char *const *environ_names, ca_report_fn *report,
		    void *report_arg)
{
	struct ca_load load = { .config = ret_config, .report = report, .report_arg = report_arg };
	int saved = errno;

	if (site) {
		*ret_config = site->config;
		load.below = site->set;
	} else {
		ca_config_default(ret_config);
	}
	variables_load(&load, env, env_arg);
	take_over_load(&load, env, env_arg);
	site_yield(&load);
	if (environ_names)
		unknown_load(&load, environ_names);
	ca_load_rules(&load);
	errno = saved;
	return load.bad;
}

int
ca_config_load(struct ca_config *ret_config, ca_getenv_fn *env, void *env_arg,
	       char *const *environ_names, ca_report_fn *report, void *report_arg)
{
	return ca_config_load_over(NULL, ret_config, env, env_arg, environ_names, report,
				   report_arg);
}
