/* SPDX-License-Identifier: MIT */
/*
 * The state of this process: the configuration, the heap, and whether we serve at all; and what
 * each thread has found out about it. shim/process/lifecycle.h makes it and ends it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "allocator/api/heap.h"
#include "config/config.h"
#include "shim/bind/cuda_abi.h"

struct ca_process {
	struct ca_config config;
	struct ca_heap *heap;
	bool ticks;      /* allocations have more to do, or something is due by time or count */
	bool has_extras; /* frees have more to do than to free (shim/hooks/memory_settings.h) */
	bool limited;    /* CACHEALLOC_LIMIT */
	bool fills;      /* zero, poison */
	bool is_plain;   /* none of these but perhaps `limited`: see struct ca_quick */
	bool caches; /* false: CACHEALLOC_DISABLE=count; blocks are the driver's own, answers too */
	/* Learns the device of each context in which something is about to be counted. */
	void (*note_device)(CUdevice device);
};

/*
 * The record of this process, once a hooked call has made it. NULL: none has yet, or pure
 * pass-through. Functions under the hooks read this; a hook itself asks ca_process
 * (shim/process/lifecycle.h), which makes it.
 */
extern struct ca_process *_Atomic ca_process_record __attribute__((visibility("hidden")));
static inline struct ca_process *
ca_process_made(void)
{
	return atomic_load_explicit(&ca_process_record, memory_order_acquire);
}

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

/* Evaluates a call of the real driver with ca_inside raised. */
#define CA_INSIDE(call)                                                                            \
	__extension__({                                                                            \
		ca_inside++;                                                                       \
		CUresult ca_result_ = (call);                                                      \
		ca_inside--;                                                                       \
		ca_result_;                                                                        \
	})
