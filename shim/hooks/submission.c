/* SPDX-License-Identifier: MIT */
/*
 * The rare paths of shim/hooks/submission.h.
 *
 * Behind the inline cache is a second one for threads that ask about a stream only (events,
 * synchronisation), or have several current contexts in turn. The first is filled with the order
 * tracker being told that the thread submits there, which decides what may be exposed.
 */
#include "shim/hooks/submission.h"

#include <stddef.h>

#include "shim/bind/libcuda.h"
#include "shim/bind/scope.h"
#include "shim/process/lifecycle.h"
#include "shim/state/finished_only.h"

ca_get_current_fn *_Atomic ca_submission_get_current;

/*
 * The driver does not say which context is current: whatever is submitted now to a default stream
 * is not seen. (Before cuInit and at the end of the process there is nothing to submit.)
 */
static void
current_is_unknown(CUresult rc)
{
	struct ca_process *process = ca_process();

	if (process && process->caches && rc != CUDA_ERROR_NOT_INITIALIZED &&
	    rc != CUDA_ERROR_DEINITIALIZED)
		ca_fallback(process, NULL, CA_REASON_CURRENT);
}

/* False: no context is current, or that cannot be asked. */
static bool
get_current(CUcontext *ret_current)
{
	ca_get_current_fn *ask =
		atomic_load_explicit(&ca_submission_get_current, memory_order_relaxed);
	const struct ca_real *real;
	CUresult rc;

	if (!ask) {
		real = ca_real();
		ask = real ? real->cuCtxGetCurrent : NULL;
		atomic_store_explicit(&ca_submission_get_current, ask, memory_order_relaxed);
	}
	rc = ask ? CA_INSIDE(ask(ret_current)) : CUDA_ERROR_NOT_INITIALIZED;
	if (rc)
		current_is_unknown(rc);
	return !rc && *ret_current;
}

/* `handle` is not NULL. The word is read first: a handle that is dropped while we look must not be
 * remembered. False: the stream cannot be known now. */
static bool
look_up(CUstream handle, bool submits, struct ca_submission_slot *ret_found)
{
	struct ca_submission_slot found = { .handle = handle };
	struct ca_submission_cache *cache;
	struct ca_submission_slot *slot;

	found.word = atomic_load(&ca_capture_word) & ~CA_CAPTURES;
	if (ca_stream_is_default(handle) && !get_current(&found.context))
		return false;
	slot = ca_submission_find(ca_submission_cache->table[CA_SUBMISSION_KNOWN], handle,
				  found.context, found.word);
	if (slot) {
		*ret_found = *slot;
		return true;
	}
	if (!ca_process() || /* a submission may be the program's first call */
	    !ca_streams_find(handle, found.context, submits, &found.stream))
		return false;
	cache = ca_submission_cache_own();
	if (cache)
		ca_submission_put(cache, CA_SUBMISSION_KNOWN, &found);
	*ret_found = found;
	return true;
}

struct ca_stream *
ca_submission_stream(enum ca_flavour flavour, CUstream handle)
{
	struct ca_submission_slot found;
	CA_KEEP_ERRNO;
	bool is_known;

	if (ca_inside)
		return NULL;
	is_known = look_up(ca_submission_handle(flavour, handle), false, &found);
	return is_known ? found.stream : NULL;
}

bool
ca_submission_captures(enum ca_flavour flavour, CUstream handle)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const struct ca_real *real = ca_capture_active() ? ca_real() : NULL;

	return real && real->cuStreamIsCapturing &&
	       CA_INSIDE(real->cuStreamIsCapturing(ca_submission_handle(flavour, handle),
						   &status)) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Into the inline cache, unless it is there, or there is no memory for one. */
static void
remember(const struct ca_submission_slot *found, enum ca_flavour flavour, CUstream handle)
{
	struct ca_submission_cache *cache = ca_submission_cache_own();
	struct ca_submission_slot kept = *found;

	if (!cache) {
		ca_stream_note_thread(kept.stream);
		return;
	}
	if (ca_stream_is_default(handle)) { /* where another stream may have its first place, too */
		struct ca_submission_slot *place =
			&cache->last_default[(uintptr_t)found->handle - 1];
		const struct ca_submission_slot last = *place;

		ca_submission_write(place, found);
		if (!ca_context_is_only()) {
			if (last.stream != kept.stream || last.context != kept.context ||
			    last.word != kept.word)
				ca_stream_note_thread(kept.stream);
			return;
		}
	}
	kept.handle = handle;
	kept.context = NULL;
	if (ca_submission_find(cache->table[flavour], handle, NULL, kept.word))
		return; /* it was of no use, since something captures */
	ca_stream_note_thread(kept.stream);
	ca_submission_put(cache, (enum ca_submission_which)flavour, &kept);
}

/*
 * The legacy stream while a blocking stream captures: the driver will refuse the submission, unless
 * that capture ends before. It is guarded as usual, by waits on the host: ours on the device would
 * be refused likewise (shim/driver/stream_event.c).
 */
struct ca_stream *
ca_submission_begin_slow(enum ca_flavour flavour, CUstream handle, const struct ca_touch *touch)
{
	struct ca_submission_slot found = { .stream = NULL };
	struct ca_stream *stream;
	CA_KEEP_ERRNO;

	if (ca_inside || ca_submission_captures(flavour, handle))
		return NULL;
	stream = look_up(ca_submission_handle(flavour, handle), true, &found) ? found.stream : NULL;
	if (stream) {
		remember(&found, flavour, handle);
		ca_submit_begin(stream, touch);
	}
	if (touch && touch->n)
		ca_submission_guard_foreign(stream, touch);
	return stream;
}

/* ---- work that touches other spaces */

typedef void space_fn(struct ca_process *process, struct ca_stream *stream, struct ca_space *space,
		      const struct ca_touch *touch);

/* The spaces other than the stream's own that a submission may touch. */
static void
for_others(struct ca_stream *stream, const struct ca_touch *touch, space_fn *fn)
{
	struct ca_process *process = ca_inside ? NULL : ca_process();
	const struct ca_space *own = stream ? ca_stream_space(stream) : NULL;
	struct ca_context *context;
	struct ca_block_info info;
	struct ca_space *space;
	CA_KEEP_ERRNO;

	if (!process || !process->caches)
		return;
	for (unsigned i = 0; touch && i < touch->n; i++)
		if (!ca_lookup(process->heap, touch->range[i].address, &info) && info.space != own)
			fn(process, stream, info.space, touch);
	context = touch ? NULL : ca_context_first();
	for (; context; context = ca_context_next(context)) {
		space = atomic_load_explicit(&context->space, memory_order_acquire);
		if (space && space != own)
			fn(process, stream, space, NULL);
	}
}

/* A stream without a record cannot be ordered: unless it captures, the host waits. */
static void
guard_other(struct ca_process *process, struct ca_stream *stream, struct ca_space *space,
	    const struct ca_touch *touch)
{
	if (stream)
		ca_submit_guard_other(stream, space, touch);
	else if (!ca_capture_active())
		ca_order_settle_exposed(process->heap, space);
}

static void
mark_other(struct ca_process *process, struct ca_stream *stream, struct ca_space *space,
	   const struct ca_touch *touch)
{
	ca_submit_foreign(space, stream);
}

void
ca_submission_guard_others(struct ca_stream *stream, const struct ca_touch *touch)
{
	for_others(stream, touch, guard_other);
}

void
ca_submission_mark_others(struct ca_stream *stream, const struct ca_touch *touch)
{
	for_others(stream, touch, mark_other);
}
