/* SPDX-License-Identifier: MIT */
/*
 * The state of this process: the configuration, the heap, and whether we serve at all.
 *
 * Made at the first hooked call that needs it; no constructor, no thread, no driver call. A forked
 * child starts anew (what the parent held is the parent's). At exit, statistics are written if they
 * were asked for and at least one hooked call was made.
 */
#pragma once

#include <stdbool.h>

#include "allocator/heap.h"
#include "config/config.h"
#include "shim/cuda_abi.h"
#include "shim/dump.h"

struct ca_process {
	struct ca_config config;
	struct ca_heap *heap;
	bool ticks;   /* allocations have more to do, or something is due by time or count */
	bool attends; /* frees have more to do than to free (shim/attend.h) */
	bool limited; /* CACHEALLOC_LIMIT */
	bool fills;   /* zero, poison */
	bool usual;   /* none of these but perhaps `limited`: see struct ca_quick */
	bool serves; /* false: CACHEALLOC_DISABLE=count; blocks are the driver's own, answers too */
};

/*
 * The findings of a thread, kept so that a call in which nothing is unusual need not repeat them.
 * Everything but zero: this process serves and has no more to do in an allocation or a free than
 * the heap does.
 */
typedef CUresult ca_get_current_fn(CUcontext *context);
struct ca_quick {
	struct ca_heap *heap; /* NULL: nothing is known */
	ca_get_current_fn *get_current;
	struct ca_space *space; /* of `context`, as long as ca_capture_word is `word`; NULL: none */
	CUcontext context;
	uint64_t word;
	unsigned looks;  /* allocations until it looks around */
	unsigned inside; /* see below */
	bool permitted;  /* the driver has answered this thread: none that runs host functions */
};
extern __thread struct ca_quick ca_quick __attribute__((tls_model("initial-exec")));

/*
 * > 0 while this thread is inside a call of ours into the driver: a hook entered then (by the
 * driver, or by another interposer under us) passes straight through, so that nothing is counted or
 * locked twice.
 */
#define ca_inside (ca_quick.inside)

/* NULL: pure pass-through (CACHEALLOC_DISABLE=1, or no memory for the first records). */
struct ca_process *ca_process(void);

/* Work that is due by time or count in the current context, when nothing may wait for the
 * device. */
void ca_process_tend(struct ca_process *process);
/* Called after a hooked call: repeats the statistics when CACHEALLOC_STATS_INTERVAL is due, writes
 * what CACHEALLOC_TRACE has recorded, and trims (allocator/heap.h, ca_tend). */
static inline void
ca_process_tick(struct ca_process *process)
{
	if (__builtin_expect(process->ticks, 0))
		ca_process_tend(process);
}

/* Evaluates a call of the real driver with ca_inside raised. */
#define CA_INSIDE(call)                                                                            \
	__extension__({                                                                            \
		ca_inside++;                                                                       \
		CUresult ca_result_ = (call);                                                      \
		ca_inside--;                                                                       \
		ca_result_;                                                                        \
	})
