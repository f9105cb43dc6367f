/* SPDX-License-Identifier: MIT */
/*
 * The program's streams: when they are born, found, and gone; which record of the order tracker
 * (allocator/order/order.h) stands for each.
 *
 * A created stream belongs to the context it was made in, whatever is current when it is used. One
 * whose birth we did not see is entered at its first use. Streams of green contexts are not
 * tracked: making such a context has put the memory of its primary context on finished memory only.
 *
 * A stream that was found is kept in a small cache a thread (shim/hooks/submission.h), valid for
 * one *generation* (in ca_capture_word, shim/track/captures.h), which moves whenever a handle is
 * dropped. It is dropped before its value can come back: a destroyed stream's before the real call,
 * a dead context's before the context is unlinked, and a newborn stream replaces whatever its
 * handle meant before.
 *
 * Thread-safe; no lock is held in driver calls; errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/order/order.h"
#include "shim/bind/cuda_abi.h"

struct ca_context;

static inline bool
ca_stream_is_default(CUstream handle)
{
	return (uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/*
 * How the order tracker names a stream to driver functions: as the driver does, but a per-thread
 * stream with its thread's number (ca_order_thread).
 */
void *ca_stream_encode(CUstream handle, uint64_t thread);
/* The driver's name, and the thread: 0 unless it is a per-thread stream. */
CUstream ca_stream_decode(void *encoded, uint64_t *ret_thread);

/*
 * The record of the stream `handle`, never NULL but CU_STREAM_LEGACY or CU_STREAM_PER_THREAD of the
 * current context `current` (NULL for a created stream). It is entered if it is new; but a default
 * stream, which every context has, only if this is for a submission (`submits`). False: it cannot
 * be known now, and is not to be remembered. *ret_stream NULL: it is not tracked.
 */
bool ca_streams_find(CUstream handle, CUcontext current, bool submits,
		     struct ca_stream **ret_stream);

/* The driver made `handle` in the context `context`. */
void ca_streams_created(CUstream handle, CUcontext context, unsigned flags);
/* The driver made `handle` in a green context. */
void ca_streams_created_untracked(CUstream handle);
/* The driver is about to be told to destroy `handle`: its record becomes a ghost. */
void ca_streams_closing(CUstream handle);
/* The context is dead (and its space killed): its streams are forgotten. */
void ca_streams_context_died(const struct ca_context *context);
/* A green context was made on `device`, whose work is not tracked. */
void ca_streams_green(CUdevice device);

/* Calls `function` when the calling thread ends. False: no memory. */
bool ca_streams_at_thread_end(void (*function)(void *ignored));
void ca_streams_after_fork_child(void);
