/* SPDX-License-Identifier: MIT */
/*
 * Lines about bad settings. Each is complete: where it stands, what was written, what becomes of it
 * and what would be accepted. Everything a user wrote is escaped and cut, so that a line stays one.
 */
#include "config/load.h"

#include "config/text.h"

enum {
	LINE_BYTES = 1600 + CA_SITE_PATH_MAX, /* a pattern of CA_PATH_MAX and the words around it */
	SHOWN_BYTES = 64,                     /* of a bad value */
};

static const char prefix[] = CA_PREFIX;

const char *
ca_bad_result(const struct ca_load *load)
{
	return load->config->strict ? "refused" : "ignored";
}

/* "/etc/cachealloc.conf:3: ", nothing where the environment is read; its length. */
static size_t
place_print(const struct ca_load *load, char *ret, size_t size)
{
	ret[0] = '\0';
	return load->path ? ca_text_format(ret, size, "%s:%u: ", load->path, load->line) : 0;
}

__attribute__((format(printf, 2, 0))) static void
report_va(const struct ca_load *load, const char *format, va_list args)
{
	char line[LINE_BYTES];
	size_t length = place_print(load, line, sizeof(line));

	ca_text_format_va(line + length, sizeof(line) - length, format, args);
	load->report(load->report_arg, line);
}

void
ca_bad(struct ca_load *load, const char *format, ...)
{
	va_list args;

	if (++load->bad > CA_CONFIG_REPORT_MAX || !load->report)
		return;
	va_start(args, format);
	report_va(load, format, args);
	va_end(args);
}

static bool
no_log(const struct ca_load *load)
{
	return load->bad >= CA_CONFIG_REPORT_MAX || !load->report;
}

const char *
ca_bad_title(char ret[CA_BAD_TITLE], const struct ca_option *option)
{
	ca_text_format(ret, CA_BAD_TITLE, "%s%s%s", prefix, option->is_key ? "CONF: " : "",
		       option->name);
	return ret;
}

void
ca_bad_value(struct ca_load *load, const struct ca_option *option, const char *value,
	     const char *why)
{
	char name[CA_BAD_TITLE], shown[SHOWN_BYTES];

	ca_bad(load, "%s: '%s' is %s%s: expected %s", ca_bad_title(name, option),
	       ca_text_escape(shown, sizeof(shown), value), ca_bad_result(load), why,
	       option->accepted);
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

void
ca_bad_unknown(struct ca_load *load, bool is_key, const char *name, const char *value)
{
	char shown[SHOWN_BYTES], shown_value[SHOWN_BYTES], known[512], hint[576];
	const struct ca_option *near;

	if (no_log(load)) {
		ca_bad(load, "not shown");
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
		ca_bad(load, "CACHEALLOC_CONF: unknown key '%s' (value '%s') is %s: %s", shown,
		       ca_text_escape(shown_value, sizeof(shown_value), value), ca_bad_result(load),
		       hint);
	else
		ca_bad(load, "%s%s: unknown variable is %s: %s", prefix, shown, ca_bad_result(load),
		       hint);
}

void
ca_bad_absent(struct ca_load *load, const struct ca_option *option)
{
	char name[CA_BAD_TITLE];

	if (load->told & ca_load_bit(option))
		return;
	load->told |= ca_load_bit(option);
	if (option->status == CA_STATUS_FOREIGN)
		ca_bad(load, "%s is %s: it is PyTorch's own and does not apply here",
		       ca_bad_title(name, option), ca_bad_result(load));
	else
		ca_bad(load, "%s is %s: not in this version", ca_bad_title(name, option),
		       ca_bad_result(load));
}
