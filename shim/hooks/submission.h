/* SPDX-License-Identifier: MIT */
/*
 * Around every real call that submits work to a stream: find the stream's record, guard, and stamp.
 *
 *   struct ca_stream *stream = ca_submission_begin(CA_FLAVOUR_LEGACY, hStream, NULL);
 *   CUresult rc = CA_INSIDE(real->cuLaunchKernel(...));
 *   ca_submission_end(stream);
 *
 * NULL: nothing to track (disabled, inside the driver, a capturing stream, no context, no memory of
 * ours and none to come). The common path is inline: a per-thread cache of handles, one comparison
 * of the guard's generation, one of the epoch.
 *
 * A default stream is the current context's, so the driver is asked which that is. The cache holds
 * only what was found while this process serves, and is never valid while anything captures: a hit
 * needs no look at either.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/order/order.h"
#include "shim/bind/cuda_abi.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"
#include "shim/track/stream_cache.h"
#include "shim/track/streams.h"

/* The meaning of the NULL stream for an entry point: _ptsz and _ptds names are per-thread. */
enum ca_flavour {
	CA_FLAVOUR_LEGACY,
	CA_FLAVOUR_PER_THREAD,
};

/* The real cuCtxGetCurrent, once somebody needed it. */
extern ca_get_current_fn *_Atomic ca_submission_get_current __attribute__((visibility("hidden")));

/* ca_submission_begin for what is not in the cache. `handle` as the program gave it. */
__attribute__((cold)) struct ca_stream *
ca_submission_begin_slow(enum ca_flavour flavour, CUstream handle, const struct ca_touch *touch);
/* The next two in a process with several spaces. */
__attribute__((cold)) void ca_submission_guard_others(struct ca_stream *stream,
						      const struct ca_touch *touch);
__attribute__((cold)) void ca_submission_mark_others(struct ca_stream *stream,
						     const struct ca_touch *touch);

static inline CUstream
ca_submission_handle(enum ca_flavour flavour, CUstream handle)
{
	if (handle)
		return handle;
	return flavour == CA_FLAVOUR_LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

/* The place of the thread's last default stream of this kind. */
static inline struct ca_submission_slot *
ca_submission_last_of(enum ca_flavour flavour, CUstream handle)
{
	unsigned i = (unsigned)(uintptr_t)ca_submission_handle(flavour, handle) - 1;

	return &ca_submission_cache->last_default[i];
}

/* The same, if it is one of the current context: *ret_current.
 * NULL otherwise, or if the driver was never asked. */
static inline struct ca_submission_slot *
ca_submission_last(enum ca_flavour flavour, CUstream handle)
{
	ca_get_current_fn *get_current =
		atomic_load_explicit(&ca_submission_get_current, memory_order_relaxed);
	struct ca_submission_slot *slot = ca_submission_last_of(flavour, handle);
	CUcontext current;

	if (__builtin_expect(!get_current || CA_INSIDE(get_current(&current)), 0) ||
	    __builtin_expect(slot->context != current, 0))
		return NULL;
	return slot;
}

/* A hit that is not in the stream's first place. */
static inline struct ca_submission_slot *
ca_submission_hit_elsewhere(enum ca_flavour flavour, CUstream handle, uint64_t word)
{
	struct ca_submission_slot *slot =
		ca_submission_find(ca_submission_cache->table[flavour], handle, NULL, word);

	if (slot || !ca_stream_is_default(handle))
		return slot;
	slot = ca_submission_last(flavour, handle);
	return slot && slot->word == word ? slot : NULL;
}

/* A hit in the cache. */
static inline struct ca_submission_slot *
ca_submission_hit(enum ca_flavour flavour, CUstream handle)
{
	uint64_t word = atomic_load_explicit(&ca_capture_word, memory_order_acquire);
	struct ca_submission_slot *slot;

	if (__builtin_expect(ca_inside != 0, 0))
		return NULL;
	slot = ca_submission_home(flavour, handle);
	if (__builtin_expect(slot->handle == handle && slot->word == word, 1))
		return slot; /* an empty slot's word is 0, which the real one never is */
	return ca_submission_hit_elsewhere(flavour, handle, word);
}

/*
 * After ca_submission_begin, for a submission that may touch memory of other spaces than its
 * stream's: guards it there, too. Begin does so by itself for the memory that `touch` names; others
 * (graphs, copies of two dimensions, between peers, batches) call it with NULL.
 */
static inline void
ca_submission_guard_foreign(struct ca_stream *stream, const struct ca_touch *touch)
{
	if (__builtin_expect(ca_context_multiple(), 0))
		ca_submission_guard_others(stream, touch);
}

/* `touch`: the memory that the call names, if it touches no other; NULL: it may touch anything. */
static inline struct ca_stream *
ca_submission_begin(enum ca_flavour flavour, CUstream handle, const struct ca_touch *touch)
{
	struct ca_submission_slot *slot = ca_submission_hit(flavour, handle);
	struct ca_stream *stream;

	if (__builtin_expect(!slot, 0))
		return ca_submission_begin_slow(flavour, handle, touch);
	stream = slot->stream;
	if (!stream)
		__builtin_unreachable();
	ca_submit_begin(stream, touch);
	if (touch && touch->n)
		ca_submission_guard_foreign(stream, touch);
	return stream;
}

/* After the real call has returned, also when it failed. */
static inline void
ca_submission_end(struct ca_stream *stream)
{
	if (__builtin_expect(stream != NULL, 1))
		ca_submit_end(stream);
}

/* The record of a stream as the program named it, without guarding (events, synchronisation,
 * graphs). NULL as above, but for capturing streams, which are found, and default streams to which
 * nothing was ever submitted, which are not. */
struct ca_stream *ca_submission_stream(enum ca_flavour flavour, CUstream handle);
/* True if the driver says that the stream captures now (asked only while anything captures). */
bool ca_submission_captures(enum ca_flavour flavour, CUstream handle);

/* After the end of a submission that names memory: marks the spaces of other contexts that it
 * touched as having foreign work. `touch` NULL: it may have touched any. `stream` may be NULL. */
static inline void
ca_submission_foreign(struct ca_stream *stream, const struct ca_touch *touch)
{
	if (__builtin_expect(ca_context_multiple(), 0))
		ca_submission_mark_others(stream, touch);
}
