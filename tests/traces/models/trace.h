/* SPDX-License-Identifier: MIT */
/*
 * A trace of allocations in memory, read from `.trc` text, one event a line:
 *
 *   I id bytes stream   live at the start
 *   A id bytes stream   allocate
 *   F id                free
 *   U id stream         another stream uses the block, too (what recordStream tells PyTorch)
 *   P                   end of a phase: all work submitted so far has finished
 *
 * Numbers are decimal; ids are below TRACE_IDS, streams below TRACE_STREAMS. An id names one block
 * at a time and may be used again after its free.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { TRACE_IDS = 1 << 24, TRACE_STREAMS = 1 << 16 };

struct trace_event {
	char kind;       /* I, A, F, U or P */
	uint32_t id;     /* of all but P */
	uint32_t stream; /* of I, A and U */
	uint64_t bytes;  /* of I and A; > 0 */
};

struct trace {
	struct trace_event *events;
	size_t n_events;
	size_t n_ids; /* every id is smaller */
};

/* "-" is the standard input. On failure says so on stderr, with the line, and returns -1. A trace
 * that frees what is not live, or allocates what is, is refused. The caller frees ->events. */
int trace_read(const char *path, struct trace *ret_trace);
