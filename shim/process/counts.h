/* SPDX-License-Identifier: MIT */
/*
 * The file of counts (allocator/core/counts_file.h) of a process that was given a statistics file:
 * it names that file and the process, so that the statistics of one that is killed are written
 * there later.
 */
#pragma once

#include "allocator/api/stats_text.h"

/* Before anything is counted. `file` is the statistics file's name. Where there can be no file of
 * counts a line says so at CACHEALLOC_LOG=info, and only what is written to `file` is known. */
void ca_counts_start(const char *file, const struct ca_emit_process *process);
/* NULL: unknown. */
void ca_counts_note_device(unsigned ordinal, const char *name, const char *uuid);
