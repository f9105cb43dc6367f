/* SPDX-License-Identifier: MIT */
/*
 * The option table of config/options.def as data, look-up by name, and the nearest name to a typo.
 * Constant data; thread-safe; errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ca_option_type {
	CA_TYPE_CONF,     /* the list of keys; stored nowhere itself */
	CA_TYPE_DISABLE,  /* enum ca_disable */
	CA_TYPE_LEVEL,    /* enum ca_log_level */
	CA_TYPE_PATTERN,  /* char[CA_PATH_MAX] */
	CA_TYPE_STATS,    /* bool stats_stderr, and stats_file */
	CA_TYPE_DURATION, /* uint64_t, nanoseconds */
	CA_TYPE_FLAG,     /* bool */
	CA_TYPE_CHOICE,   /* bool: the second of the two words of `accepted` ("this or that") */
	CA_TYPE_WORD,     /* unsigned: the place of one of the words of `accepted` ("a, b or c") */
	CA_TYPE_SWITCH, /* unsigned: 0 or 1 as a FLAG, or the place of another word of `accepted` */
	CA_TYPE_MB,     /* uint64_t, bytes; written in MiB */
	CA_TYPE_MB_UNLIMITED, /* the same, or UINT64_MAX for the word "unlimited" */
	CA_TYPE_WORDS, /* unsigned: a bit for each word of a list, by its place behind " list of ";
			  0: off */
	CA_TYPE_SIZE,  /* uint64_t, bytes; written with K, M, G or T, or without a letter */
	CA_TYPE_SIZE_UNLIMITED, /* the same, or UINT64_MAX for the word "unlimited" */
	CA_TYPE_NUMBER,         /* uint64_t */
	CA_TYPE_FRACTION,       /* uint64_t, billionths; range likewise */
	CA_TYPE_ROUNDUP,        /* struct ca_roundup */
	CA_TYPE_LIMIT,          /* struct ca_limit */
	CA_TYPE_ANY,            /* not read in this version */
};

enum ca_option_status {
	CA_STATUS_BUILT,
	CA_STATUS_LATER,
	CA_STATUS_FOREIGN,
	CA_STATUS_OURS,
};

struct ca_option {
	const char *name; /* without the CACHEALLOC_ prefix; may end in '*' (OURS only) */
	bool is_key;      /* of CACHEALLOC_CONF; else a variable */
	enum ca_option_type type;
	enum ca_option_status status;
	size_t offset;            /* in struct ca_config; 0 where there is no place */
	const char *default_text; /* as a user would write it; "": unset */
	uint64_t min, max;    /* MiB, bytes, nanoseconds or billionths, by type; 0, 0: no range */
	const char *accepted; /* read after "expected" */
};

/* Rows in the order of options.def: variables first. */
extern const struct ca_option ca_options[];
extern const size_t ca_options_count;
enum { CA_OPTIONS_MAX = 64, CA_OPTION_NAME_MAX = 64 };

/* By exact name (variables without prefix); NULL if unknown. */
const struct ca_option *ca_option_find(bool is_key, const char *name);
/*
 * The known name most like `name` by edit distance (a swap of neighbours counts once, case does not
 * count; a name that begins with all of `name` is near too); never one that is OURS. NULL if none
 * is near.
 */
const struct ca_option *ca_option_nearest(bool is_key, const char *name);
