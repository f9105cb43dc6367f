/* SPDX-License-Identifier: MIT */
/*
 * From text to values: one function per type, and the grammar of CACHEALLOC_CONF.
 *
 * Pure functions of their arguments: nothing is reported or stored elsewhere; thread-safe, errno
 * kept. Values return true and write ret_value when the whole text is well formed and in range.
 * Words are compared without regard to case.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

/* Decimal digits only: no sign, no space, no suffix. */
bool ca_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* 1 on true yes, 0 off false no. */
bool ca_parse_flag(const char *text, bool *ret_value);
/* One of the two words of `accepted`, "this or that": true for the second. */
bool ca_parse_enum(const char *text, const char *accepted, bool *ret_value);
/* The first of those words goes to `ret_first`, cut to `size`; the second is returned. */
const char *ca_parse_enum_words(const char *accepted, char *ret_first, size_t size);
/* One of the words of `accepted`, "a, b or c": its place, from 0. */
bool ca_parse_word(const char *text, const char *accepted, unsigned *ret_place);
/* The word at `place` of `accepted`, cut to `size`; its length, 0 if there are not so many. */
size_t ca_parse_word_at(const char *accepted, unsigned place, char *ret, size_t size);
/* "off", or a list of the words behind " list of " in `accepted`, whose white space is
 * dropped: a bit for each, by its place. */
bool ca_parse_words(const char *text, const char *accepted, unsigned *ret_bits);
/* The words that such a list is made of. */
const char *ca_parse_words_of(const char *accepted);
/* A flag, or "count". */
bool ca_parse_disable(const char *text, enum ca_disable *ret_value);
/* The words of enum ca_log_level, as a user writes them. */
extern const char ca_parse_level_words[CA_LOG_DEBUG + 1][8];
bool ca_parse_level(const char *text, enum ca_log_level *ret_value);
/* Digits and one of ms, s, m, h; or a bare 0, whatever the range. Nanoseconds. */
bool ca_parse_duration(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* A number of MiB in [min, max], as bytes. */
bool ca_parse_mb(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* The same, or "unlimited": UINT64_MAX. */
bool ca_parse_mb_no_limit(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

/* K, M, G or T, perhaps with B or iB behind it: the power of two that it stands for; "" is 0.
 * False: no unit. */
bool ca_parse_unit(const char *text, unsigned *ret_shift);
/* Digits, then nothing or one of K, M, G, T, each alone or as in KB or KiB: bytes in [min, max], in
 * powers of 1024. */
bool ca_parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* The same, or "unlimited": UINT64_MAX. */
bool ca_parse_size_no_limit(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* A decimal number such as 0.8 with at most nine places, in billionths. */
bool ca_parse_fraction(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* A size (8G, 1.5G, 512M, 1073741824) of at least a byte, or a share (90%, 62.5%) in (0, 100]. */
bool ca_parse_limit(const char *text, struct ca_limit *ret_value);
/* A number, or a list [MiB:divisions,...,>:divisions]. NULL: done; otherwise what is wrong, to be
 * read in brackets after the value. */
const char *ca_parse_roundup(const char *text, struct ca_roundup *ret_value);

enum {
	CA_CONF_TEXT_MAX = 16384, /* longest CACHEALLOC_CONF that is read */
	/* bytes with the terminator; a longer key is cut, and is no known key then */
	CA_CONF_KEY_MAX = 64,
	CA_CONF_VALUE_MAX = 256,
};

enum ca_conf_fault {
	CA_CONF_GOOD,
	CA_CONF_EMPTY,    /* nothing between two commas */
	CA_CONF_NO_COLON, /* a key alone */
	CA_CONF_NO_KEY,
	CA_CONF_NO_VALUE,
	CA_CONF_UNCLOSED, /* a [ without its ] */
	CA_CONF_TOO_LONG, /* the value was cut */
};

struct ca_conf_entry {
	char key[CA_CONF_KEY_MAX];     /* white space dropped */
	char value[CA_CONF_VALUE_MAX]; /* white space dropped */
	enum ca_conf_fault fault;
};

/*
 * The next `key:value` of *text, which is advanced behind it. False at the end. Commas inside [...]
 * do not separate; a list that is never closed ends before the next comma that is followed by a
 * known key, so that one bad setting does not take the others along. A single comma at the very end
 * is allowed.
 */
bool ca_conf_next(const char **text, struct ca_conf_entry *ret_entry);
