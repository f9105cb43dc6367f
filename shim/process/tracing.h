/* SPDX-License-Identifier: MIT */
/*
 * CACHEALLOC_TRACE: the trace of this process, from the first hooked call to its end.
 *
 * The events are recorded by the heap (allocator/trace/trace.h); here the file begins and ends, and
 * what is recorded is drained after hooked calls, where no lock is held. errno is kept.
 */
#pragma once

#include <stdbool.h>

#include "allocator/api/heap.h"
#include "allocator/trace/trace.h"
#include "config/config.h"
#include "shim/bind/cuda_abi.h"

/* Of this process; NULL: nothing is traced. Set before any other call can see the heap. */
extern struct ca_tracer *ca_tracing_tracer __attribute__((visibility("hidden")));

/* Begins the trace if one is asked for: a file that cannot be made is said once, and then there is
 * none. Before the heap is used. */
void ca_tracing_start(const struct ca_config *config, struct ca_heap *heap);
/* The device has a context now; `name` may be empty. Once a device. */
void ca_tracing_note_device(CUdevice device, const char *name);
/* At exit. */
void ca_tracing_end(void);
void ca_tracing_after_fork_parent(void);
/* After the heap's. */
void ca_tracing_after_fork_child(void);

/* After a hooked call. */
static inline void
ca_tracing_tick(void)
{
	if (ca_tracing_tracer && ca_tracer_is_due(ca_tracing_tracer))
		ca_tracer_drain(ca_tracing_tracer);
}
