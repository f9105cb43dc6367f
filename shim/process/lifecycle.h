/* SPDX-License-Identifier: MIT */
/*
 * The life of this process's record (shim/state/process.h): made at the first hooked call that
 * needs it; no thread, no driver call. A forked child starts anew (what the parent
 * held is the parent's). At exit, statistics are written if they were asked for and at least one
 * hooked call was made.
 */
#pragma once

#include <stdint.h>

#include "shim/state/process.h"

/* NULL: pure pass-through (CACHEALLOC_DISABLE=1, or no memory for the first records). */
struct ca_process *ca_process(void);

/* An allocation succeeded, asked of the cache or, if not `cached`, of the driver. To be called for
 * the first of a process; CACHEALLOC_LOG=info tells it. */
void ca_process_note_allocation(const struct ca_process *process, size_t bytes, bool cached);

/* Work that is due by time or count in the current context, when nothing may wait for the
 * device. */
void ca_process_tend(struct ca_process *process);
/* Called after a hooked call: repeats the statistics when CACHEALLOC_STATS_INTERVAL is due, writes
 * what CACHEALLOC_TRACE has recorded and a snapshot that is due, and trims (allocator/api/heap.h,
 * ca_auto_trim). */
static inline void
ca_process_tick(struct ca_process *process)
{
	if (__builtin_expect(process->ticks, 0))
		ca_process_tend(process);
}

/*
 * Looks for libraries that were loaded since (frameworks, direct links to registration functions),
 * and for look-ups of unknown functions that no thunk could be put before. Cheap when no library
 * was loaded since the last look; called now and then.
 */
void ca_fallback_look_around(struct ca_process *process);

/* ca_alloc of `bytes` answered out of memory in this thread: reports it. errno kept; no malloc. */
void ca_report_oom(struct ca_space *space, uint64_t bytes);
/* The same of stream-ordered memory, which the driver has refused. */
void ca_report_async_oom(struct ca_space *space, uint64_t bytes);

struct ca_context;
/* The driver destroyed the context, which is closed (shim/track/contexts.h). */
void ca_context_teardown(struct ca_context *context);
