/* SPDX-License-Identifier: MIT */
/* The outcome of a replay, as JSON (format "replay", format_version 1) and for people. */
#pragma once

#include <stdio.h>

#include "allocator/replay/play.h"

struct ca_replay_report {
	const char *file;      /* as named by the user */
	const char *conf;      /* "" : defaults */
	uint64_t lag_ns;       /* as of struct ca_replay_setting */
	uint64_t memory_bytes; /* CA_REPLAY_UNLIMITED: no limit */
	bool to_rejected;      /* as of struct ca_replay_setting */
	const struct ca_replay_input *input;
	const struct ca_replay_result *results; /* one a device */
	unsigned n_results;
	const uint64_t *min_capacity_bytes; /* one a device; NULL: not asked for */
};

void ca_replay_emit_json(const struct ca_replay_report *report, FILE *out);
/* As JSON has it, quotes included. */
void ca_replay_emit_string(FILE *out, const char *text);
void ca_replay_emit_text(const struct ca_replay_report *report, FILE *out);
/* 1 - live / reserved, in millionths; 0 if nothing was reserved. */
uint64_t ca_replay_overhead(uint64_t live_bytes, uint64_t reserved_bytes);
