/* SPDX-License-Identifier: MIT */
/*
 * Synchronisation and queries of streams and contexts teach which work has finished when they
 * succeed.
 *
 * The bound is taken before the call, so work that another thread submits meanwhile is not covered.
 *
 * A stream teaches about itself alone. The legacy stream comes after what was in the blocking
 * streams only when something is submitted to it; whether asking it also asks them, cuda.h does not
 * say, so it does not teach about them. A context made from a green one answers for its own streams
 * only (cuda.h, cuCtxSynchronize), and teaches nothing.
 */
#include "shim/driver/told_pools.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/submission.h"
#include "shim/pinned/pinned.h"
#include "shim/track/assumptions.h"
#include "shim/track/contexts.h"

/* The work that is finished if the call succeeds. */
struct ended {
	struct ca_stream *stream;
	struct ca_space *space;
	uint64_t bound;
	struct ca_context
		*context; /* of page-locked memory, too; NULL: it teaches nothing of that */
	uint64_t frees;   /* of page-locked memory, before the call */
};

static struct ended
stream_begin(enum ca_flavour flavour, CUstream handle)
{
	struct ended ended = { 0 };

	if (ca_hook_active_process())
		ended.stream = ca_submission_stream(flavour, handle);
	if (ended.stream)
		ended.bound = ca_order_bound(ended.stream);
	return ended;
}

/* `handle` NULL: the current context. */
static struct ended
context_begin(const struct ca_real *real, CUcontext handle)
{
	struct ended ended = { 0 };
	struct ca_context *context;

	if (!ca_hook_active_process())
		return ended;
	context = ca_context_find(handle ? handle : ca_context_current(real));
	if (context && atomic_load(&context->kind) != CA_CONTEXT_GREEN)
		ended.space = atomic_load_explicit(&context->space, memory_order_acquire);
	if (context && atomic_load(&context->kind) != CA_CONTEXT_GREEN &&
	    atomic_load_explicit(&ca_pinned_on, memory_order_relaxed)) {
		ended.context = context;
		ended.frees = ca_pinned_frees();
	}
	if (ended.space)
		ended.bound = ca_order_space_bound(ended.space);
	return ended;
}

/* `waits`: it was a synchronisation, at which a pool gives back what is beyond its threshold. */
static CUresult
end(struct ended ended, CUresult rc, bool waits)
{
	if (!rc && ended.context)
		ca_pinned_synchronized(ended.context, ended.frees);
	if (rc || (!ended.stream && !ended.space))
		return rc;
	if (ended.stream)
		ca_order_finished(ended.stream, ended.bound);
	else
		ca_order_space_finished(ended.space, ended.bound, false);
	if (waits && atomic_load_explicit(&ca_told_thresholds, memory_order_relaxed))
		ca_told_pools_synchronized(ca_real());
	ca_assumptions_look(ca_real());
	ca_process_tick(ca_process());
	return rc;
}

#define ASK(symbol, params, args, begin, waits)                                                    \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ended ended = begin;                                                        \
                                                                                                   \
		return end(ended, CA_INSIDE(real->symbol args), waits);                            \
	}
#define ASK_STREAM(symbol, flavour, waits)                                                         \
	ASK(symbol, (CUstream hStream), (hStream), stream_begin(flavour, hStream), waits)
ASK_STREAM(cuStreamSynchronize, CA_FLAVOUR_LEGACY, true)
ASK_STREAM(cuStreamSynchronize_ptsz, CA_FLAVOUR_PER_THREAD, true)
ASK_STREAM(cuStreamQuery, CA_FLAVOUR_LEGACY, false)
ASK_STREAM(cuStreamQuery_ptsz, CA_FLAVOUR_PER_THREAD, false)
ASK(cuCtxSynchronize, (void), (), context_begin(real, NULL), true)
ASK(cuCtxSynchronize_v2, (CUcontext ctx), (ctx), context_begin(real, ctx), true)
