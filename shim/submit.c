/* SPDX-License-Identifier: MIT */
/*
 * The rare paths of shim/submit.h.
 *
 * Behind the inline cache is a second one for threads that ask about a stream only (events,
 * synchronisation), or have several current contexts in turn. The first is filled with the order
 * tracker being told that the thread submits there, which decides what may be exposed.
 */
#include "shim/submit.h"

#include <errno.h>
#include <stddef.h>

#include "shim/fallback.h"
#include "shim/real.h"
#include "shim/streams.h"

__thread struct ca_submission_slot ca_submission_legacy[1u << CA_SUBMISSION_BITS]
	__attribute__((tls_model("initial-exec")));
__thread struct ca_submission_slot ca_submission_per_thread[1u << CA_SUBMISSION_BITS]
	__attribute__((tls_model("initial-exec")));
__thread struct ca_submission_slot ca_submission_default[CA_FLAVOURS]
	__attribute__((tls_model("initial-exec")));

/* Streams asked about, and those that are not tracked (`stream` NULL); by handle and context. */
static __thread struct ca_submission_slot known[1u << CA_SUBMISSION_BITS]
	__attribute__((tls_model("initial-exec")));

ca_get_current_fn *_Atomic ca_submission_get_current;

/*
 * The driver does not say which context is current: whatever is submitted now to a default stream
 * is not seen. (Before cuInit and at the end of the process there is nothing to submit.)
 */
static void
current_is_unknown(CUresult rc)
{
	struct ca_process *process = ca_process();

	if (process && process->serves && rc != CUDA_ERROR_NOT_INITIALIZED &&
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

/* `handle` is not NULL. The word is read first: what is dropped while we look must not be
 * remembered. NULL: the stream cannot be known now. */
static struct ca_submission_slot *
look_up(CUstream handle, bool submits)
{
	struct ca_submission_slot found = { .handle = handle };
	struct ca_submission_slot *slot;
	bool is_default = ca_stream_is_default(handle);

	found.word = atomic_load(&ca_capture_word) & ~CA_CAPTURES;
	if (is_default && !get_current(&found.context))
		return NULL;
	slot = &known[(ca_submission_hash(handle) ^
		       ca_submission_hash((CUstream)(void *)found.context)) %
		      (1u << CA_SUBMISSION_BITS)];
	if (slot->handle == handle && slot->context == found.context && slot->word == found.word)
		return slot;
	if (!ca_streams_find(handle, found.context, submits, &found.stream))
		return NULL;
	*slot = found;
	return slot;
}

struct ca_stream *
ca_submission_stream(enum ca_flavour flavour, CUstream handle)
{
	struct ca_submission_slot *slot;
	int saved = errno;

	if (ca_inside)
		return NULL;
	slot = look_up(ca_submission_handle(flavour, handle), false);
	errno = saved;
	return slot ? slot->stream : NULL;
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

/* Into the inline cache, unless it is there. */
static void
remember(const struct ca_submission_slot *found, enum ca_flavour flavour, CUstream handle)
{
	struct ca_submission_slot *slot = ca_submission_alone(flavour, handle);
	struct ca_submission_slot kept = *found;

	if (ca_stream_is_default(handle) && !ca_context_is_alone())
		slot = &ca_submission_default[(uintptr_t)found->handle - 1];
	else
		kept.handle = handle;
	if (slot->handle == kept.handle && slot->stream == kept.stream &&
	    slot->context == kept.context && slot->word == kept.word)
		return; /* it was of no use, since something captures */
	ca_stream_note_thread(kept.stream);
	*slot = kept;
}

/*
 * The legacy stream while a blocking stream captures: the driver will refuse the submission, unless
 * that capture ends before. It is guarded as usual, by waits on the host: ours on the device would
 * be refused likewise (shim/stream_marks.c).
 */
struct ca_stream *
ca_submission_begin_slow(enum ca_flavour flavour, CUstream handle, const struct ca_touch *touch)
{
	struct ca_submission_slot *slot;
	struct ca_stream *stream;
	int saved = errno;

	if (ca_inside || ca_submission_captures(flavour, handle))
		return NULL;
	slot = look_up(ca_submission_handle(flavour, handle), true);
	stream = slot ? slot->stream : NULL;
	if (stream) {
		remember(slot, flavour, handle);
		ca_submit_begin(stream, touch);
	}
	if (touch && touch->n)
		ca_submission_guard_foreign(stream, touch);
	errno = saved;
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
	int saved = errno;

	if (!process || !process->serves)
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
	errno = saved;
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
	ca_submit_foreign(space);
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
