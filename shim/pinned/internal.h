/* SPDX-License-Identifier: MIT */
#pragma once

#include "allocator/core/stats.h"
#include "allocator/trace/format.h"
#include "allocator/util/list.h"
#include "allocator/util/tree.h"
#include "shim/pinned/pinned.h"

/* One allocation of the driver. Under the records' lock, unless a thread has taken it out. */
struct ca_pinned_record {
	struct ca_tree_node by_address;
	struct ca_list in_bucket; /* of freed memory of its hash; also: spare */
	struct ca_list by_age;    /* of all freed memory, the oldest first; or a thread's hand */
	struct ca_pinned_kind kind;
	size_t requested;  /* bytes */
	uint64_t serial;   /* of the allocation */
	uint64_t freed_at; /* number of its free; 0: it is live */
	bool exposed;      /* the driver is to free it */
};

/* ---- pinned_records.c */

/* Takes freed memory out, the oldest first, as long as more than `keep_bytes` is kept, and puts it
 * into `hand`, the calling thread's, where others may wait for it. */
void ca_pinned_take_out(uint64_t keep_bytes, struct ca_list *hand);
/* A record of the calling thread's hand: its memory went back, and it may be used anew. */
void ca_pinned_recycle(struct ca_pinned_record *record);
/* Other threads have memory in their hands. */
bool ca_pinned_others_give(void);
/* Freed bytes that are kept, as of now. */
uint64_t ca_pinned_cached(void);
/* Bytes; constant once the process is served. */
uint64_t ca_pinned_cap(void);

/* ---- pinned_counts.c; under the records' lock */

void ca_pinned_counts_reset(void);
/* The program is given memory; hit: such as had been freed. */
void ca_pinned_count_taken_locked(const struct ca_pinned_kind *kind, bool hit);
/* Live memory goes to the driver, and comes back where that did not take it. */
void ca_pinned_count_released_locked(const struct ca_pinned_kind *kind);
void ca_pinned_count_restored_locked(const struct ca_pinned_kind *kind);
/* Live memory is freed and kept; kept memory goes, to the program or to the driver. */
void ca_pinned_count_cached_locked(const struct ca_pinned_kind *kind);
void ca_pinned_count_uncached_locked(const struct ca_pinned_kind *kind);
void ca_pinned_counts_read_locked(unsigned device, struct ca_stats *stats);
unsigned ca_pinned_counts_devices_locked(void);

/* ---- pinned_trace.c; under the records' lock */

/* Adds a PINNED_ record, where there is a trace. */
void ca_pinned_trace_locked(const struct ca_pinned_record *record, enum ca_trace_kind kind);

/* ---- pinned_marks.c */

/* The number of a free that happens now. */
uint64_t ca_pinned_count_free(void);
/* Everything that was submitted before the free of that number has finished. */
bool ca_pinned_has_finished(uint64_t freed_at);
/* The same after asking the driver, without waiting; `context` wants the memory. */
bool ca_pinned_query(struct ca_context *context, uint64_t freed_at);
void ca_pinned_marks_after_fork_child(void);

/* ---- pinned_cap.c */

/* Bytes of freed memory to keep where the user does not say. */
uint64_t ca_pinned_default_cap(void);
