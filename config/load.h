/* SPDX-License-Identifier: MIT */
/*
 * The reading of settings in progress, shared by the environment (config/config.c) and a site's
 * file (config/site.c), and the lines about what is bad (config/bad.c). Not for other folders. Not
 * thread-safe; errno kept.
 */
#pragma once

#include <stdarg.h>

#include "config/config.h"
#include "config/options.h"
#include "config/site.h"

#define CA_PREFIX "CACHEALLOC_"

struct ca_load {
	struct ca_config *config;
	ca_report_fn *report; /* may be NULL */
	void *report_arg;
	const char *path; /* of the file that is read; NULL: the environment is */
	unsigned line;    /* of that file, from 1 */
	int bad;
	uint64_t set;                     /* a bit per row: a value was accepted */
	uint64_t below;                   /* a bit per row: the site had set it before */
	uint64_t told;                    /* a bit per row: its "not in this version" was said */
	unsigned line_of[CA_OPTIONS_MAX]; /* that set the row */
};

static inline uint64_t
ca_load_bit(const struct ca_option *option)
{
	return (uint64_t)1 << (option - ca_options);
}

/* A variable by its row, which is none that is OURS. */
void ca_load_variable(struct ca_load *load, const struct ca_option *option, const char *value);
/* When all is read: rules between settings, and how many lines were not shown. */
void ca_load_rules(struct ca_load *load);

/* One bad setting: counts it, and reports the line unless there were too many. */
void ca_bad(struct ca_load *load, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The word for what becomes of it. */
const char *ca_bad_result(const struct ca_load *load);
/* "CACHEALLOC_LOG" or "CACHEALLOC_CONF: max_split_size_mb". Returns ret. */
enum { CA_BAD_TITLE = CA_OPTION_NAME_MAX + 32 };
const char *ca_bad_title(char ret[CA_BAD_TITLE], const struct ca_option *option);
/* A value that is not accepted; `why` is "" or begins with a space. */
void ca_bad_value(struct ca_load *load, const struct ca_option *option, const char *value,
		  const char *why);
/* `value` only where the name is that of a key; a variable's name is without its prefix. */
void ca_bad_unknown(struct ca_load *load, bool is_key, const char *name, const char *value);
/* A known setting without effect here: one line, once. */
void ca_bad_absent(struct ca_load *load, const struct ca_option *option);
