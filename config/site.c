/* SPDX-License-Identifier: MIT */
/*
 * A line is ended where it stands, without the white space around it, and told apart by its first
 * word and its first '='; afterwards the text is as it was, since it is read twice: once to learn
 * where reports go. A value takes the same way as that of an environment variable, so that the two
 * accept the same.
 */
#include "config/site.h"

#include <errno.h>
#include <string.h>

#include "config/load.h"
#include "config/parse.h"
#include "config/text.h"

enum { SHOWN_BYTES = 64 };

static const char force[] = "force";

static bool
is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static void
bad_line(struct ca_load *load, const char *line, const char *why)
{
	char shown[SHOWN_BYTES];

	ca_bad(load, "'%s' is ignored: %s", ca_text_escape(shown, sizeof(shown), line), why);
}

/* Why the variable cannot be set here; NULL: it can. */
static const char *
reason_of(const struct ca_option *option, bool forced)
{
	if (!strcmp(option->name, "STRICT"))
		return "a file must not end a program";
	if (!strcmp(option->name, "TAKEOVER"))
		return "it is needed before this file is read, at the first CUDA call";
	if (forced && strcmp(option->name, "LIMIT") != 0)
		return "only CACHEALLOC_LIMIT can be forced";
	return NULL;
}

static void
forced_store(struct ca_load *load, const struct ca_option *option, const char *value)
{
	struct ca_limit *limit = &load->config->forced_limit;

	if (limit->bytes || limit->share)
		ca_bad(load, "force %s is given more than once: the last one is used",
		       "CACHEALLOC_LIMIT");
	if (!ca_parse_limit(value, limit))
		ca_bad_value(load, option, value, "");
}

/* `name` is without the prefix. */
static void
setting_load(struct ca_load *load, bool forced, const char *name, const char *value)
{
	const struct ca_option *option = ca_option_find(false, name);
	char title[CA_BAD_TITLE];

	if (!option || option->status == CA_STATUS_OURS) {
		ca_bad_unknown(load, false, name, "");
		return;
	}
	if (reason_of(option, forced)) {
		ca_bad(load, "%s is ignored: %s", ca_bad_title(title, option),
		       reason_of(option, forced));
		return;
	}
	if (forced) {
		forced_store(load, option, value);
		return;
	}
	if (option->type != CA_TYPE_CONF && (load->set & ca_load_bit(option)))
		ca_bad(load, "%s is given more than once: the last one is used",
		       ca_bad_title(title, option));
	ca_load_variable(load, option, value);
}

/* `line` has no white space at its ends, and at least one byte; the same again afterwards. */
static void
line_load(struct ca_load *load, char *line)
{
	size_t prefix = sizeof(CA_PREFIX) - 1;
	bool forced = !strncmp(line, force, sizeof(force) - 1) && is_space(line[sizeof(force) - 1]);
	char *name = line + (forced ? sizeof(force) : 0), *equals;

	while (is_space(*name))
		name++;
	equals = strchr(name, '=');
	if (strncmp(name, CA_PREFIX, prefix) != 0 || !equals || !equals[1]) {
		bad_line(load, line,
			 "expected CACHEALLOC_NAME=value, perhaps after the word force");
		return;
	}
	*equals = '\0';
	setting_load(load, forced, name + prefix, equals + 1);
	*equals = '=';
}

/* *to is a byte of ours, too. */
static void
line_trim(struct ca_load *load, char *from, char *to)
{
	char behind;

	while (from < to && is_space(*from))
		from++;
	while (from < to && is_space(to[-1]))
		to--;
	if (from == to || *from == '#')
		return;
	if (memchr(from, 0, (size_t)(to - from))) {
		ca_bad(load, "the line is ignored: it has a zero byte");
		return;
	}
	behind = *to;
	*to = '\0';
	line_load(load, from);
	*to = behind;
}

int
ca_site_parse(struct ca_site *ret_site, const char *path, char *text, size_t length,
	      ca_report_fn *report, void *report_arg)
{
	char shown[CA_SITE_PATH_MAX];
	struct ca_load load = { .config = &ret_site->config,
				.report = report,
				.report_arg = report_arg,
				.path = ca_text_escape(shown, sizeof(shown), path) };
	char *end = text + length;
	int saved = errno;

	ca_config_default(&ret_site->config);
	while (text < end) {
		char *newline = memchr(text, '\n', (size_t)(end - text));

		load.line++;
		line_trim(&load, text, newline ? newline : end);
		text = newline ? newline + 1 : end;
	}
	ca_load_rules(&load);
	ret_site->set = load.set;
	errno = saved;
	return load.bad;
}
