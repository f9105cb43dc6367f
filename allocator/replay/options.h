/* SPDX-License-Identifier: MIT */
/* The command line of cachealloc-replay. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "config/parse.h"

enum ca_replay_query {
	CA_REPLAY_ASKED_REPLAY,
	CA_REPLAY_ASKED_HELP,
	CA_REPLAY_ASKED_VERSION,
	CA_REPLAY_ASKED_WRONG, /* said so on stderr */
};

struct ca_replay_options {
	const char *file;
	char conf[CA_CONF_TEXT_MAX + 1]; /* every --conf, joined by commas */
	uint64_t memory_bytes;           /* CA_REPLAY_UNLIMITED: no limit */
	uint64_t lag_ns;                 /* as of struct ca_replay_setting */
	unsigned time_runs;              /* 0: nothing is timed */
	bool find_capacity, to_rejected, json;
	const char *timeline; /* the file; NULL: none */
	bool replayed;        /* that of the replay, also where the recording tells its own */
};

extern const char ca_replay_help[];

enum ca_replay_query ca_replay_options_parse(int argc, char **argv,
					     struct ca_replay_options *ret_options);
/* Digits and K, M, G or T, which may go on with iB or B: powers of 1024. False: not such a size, 0,
 * or more than CA_REPLAY_UNLIMITED. */
bool ca_replay_parse_size(const char *text, uint64_t *ret_bytes);
/* "cachealloc-replay: error: ..." on stderr. */
void ca_replay_print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
