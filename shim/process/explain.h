/* SPDX-License-Identifier: MIT */
/*
 * The settings and frameworks behind the figures of the table: why something was passed on to the
 * driver or reused only when finished, and which setting changes that.
 */
#pragma once

#include "allocator/api/stats_text.h"
#include "config/config.h"

/* Fills the notes of *process. errno kept; no malloc. */
void ca_explain(const struct ca_config *config, struct ca_emit_process *process);
