/* SPDX-License-Identifier: MIT */
/* The readers of the formats that are not ours, for allocator/replay/formats.c. */
#pragma once

#include "allocator/replay/input.h"

/*
 * `.trc` text: one event a line, `I id bytes stream` live at the start, `A id bytes stream`
 * allocated, `F id` freed, `P` end of a phase; decimal numbers, blanks between them. Empty lines
 * and lines that begin with # count for nothing.
 */
ca_replay_prober ca_replay_is_trc;
ca_replay_reader ca_replay_read_trc;

/*
 * The log of RMM's logging_resource_adaptor: a header, then Thread,Time,Action,Pointer,Size,Stream.
 * Times are HH:MM:SS.ffffff (or :ffffff), which go on after midnight, or seconds since 1970.
 * "allocate failure" is counted, and so are empty allocations and their frees. Stream 0x2, the
 * per-thread default stream, is another one in every thread.
 */
ca_replay_prober ca_replay_is_rmm;
ca_replay_reader ca_replay_read_rmm;

/*
 * Lifetimes as solvers of static allocation take them: a header with the columns id, lower, upper
 * and size in any order (`offset` may be there, too). A buffer lives from lower up to, and not
 * including, upper; a buffer that ends at a moment is freed before one that begins then. There are
 * no times: the unit is unknown.
 */
ca_replay_prober ca_replay_is_lifetimes;
ca_replay_reader ca_replay_read_lifetimes;

/* PyTorch's memory snapshot, pickled (protocols 2 to 5) or as JSON: allocator/replay/snapshot.h. */
ca_replay_prober ca_replay_is_pickle;
ca_replay_reader ca_replay_read_pickle;
ca_replay_prober ca_replay_is_json;
ca_replay_reader ca_replay_read_json;
