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
#include "shim/hooks/hook.h"
#include "shim/hooks/submission.h"
#include "shim/track/assumptions.h"
#include "shim/track/contexts.h"

struct ended {
	struct ca_stream *stream;
	uint64_t bound;
};

static struct ended
begin(enum ca_flavour flavour, CUstream handle)
{
	struct ca_process *process = ca_hook_process();
	struct ended ended = { 0 };

	if (process && process->serves)
		ended.stream = ca_submission_stream(flavour, handle);
	if (ended.stream)
		ended.bound = ca_order_bound(ended.stream);
	return ended;
}

static CUresult
end(struct ended ended, CUresult rc)
{
	if (ended.stream && rc == CUDA_SUCCESS) {
		ca_order_finished(ended.stream, ended.bound);
		ca_assumptions_look(ca_real());
		ca_process_tick(ca_process());
	}
	return rc;
}

CUresult
cuStreamSynchronize(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamSynchronize);
	struct ended ended = begin(CA_FLAVOUR_LEGACY, hStream);

	return end(ended, CA_INSIDE(real->cuStreamSynchronize(hStream)));
}

CUresult
cuStreamSynchronize_ptsz(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamSynchronize_ptsz);
	struct ended ended = begin(CA_FLAVOUR_PER_THREAD, hStream);

	return end(ended, CA_INSIDE(real->cuStreamSynchronize_ptsz(hStream)));
}

CUresult
cuStreamQuery(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamQuery);
	struct ended ended = begin(CA_FLAVOUR_LEGACY, hStream);

	return end(ended, CA_INSIDE(real->cuStreamQuery(hStream)));
}

CUresult
cuStreamQuery_ptsz(CUstream hStream)
{
	CA_HOOK_REAL(real, cuStreamQuery_ptsz);
	struct ended ended = begin(CA_FLAVOUR_PER_THREAD, hStream);

	return end(ended, CA_INSIDE(real->cuStreamQuery_ptsz(hStream)));
}

/* The space of `handle` (NULL: of the current context), if it has one. */
static struct ca_space *
space_of(const struct ca_real *real, CUcontext handle)
{
	struct ca_process *process = ca_hook_process();
	struct ca_context *context;

	if (!process || !process->serves)
		return NULL;
	if (!handle && (!real->cuCtxGetCurrent || CA_INSIDE(real->cuCtxGetCurrent(&handle))))
		return NULL;
	context = ca_context_find(handle);
	if (!context || atomic_load(&context->kind) == CA_CONTEXT_GREEN)
		return NULL;
	return atomic_load_explicit(&context->space, memory_order_acquire);
}

CUresult
cuCtxSynchronize(void)
{
	CA_HOOK_REAL(real, cuCtxSynchronize);
	struct ca_space *space = space_of(real, NULL);
	uint64_t bound = space ? ca_order_space_bound(space) : 0;
	CUresult rc = CA_INSIDE(real->cuCtxSynchronize());

	if (space && rc == CUDA_SUCCESS) {
		ca_order_space_finished(space, bound, false);
		ca_assumptions_look(real);
		ca_process_tick(ca_process());
	}
	return rc;
}

CUresult
cuCtxSynchronize_v2(CUcontext ctx)
{
	CA_HOOK_REAL(real, cuCtxSynchronize_v2);
	struct ca_space *space = space_of(real, ctx);
	uint64_t bound = space ? ca_order_space_bound(space) : 0;
	CUresult rc = CA_INSIDE(real->cuCtxSynchronize_v2(ctx));

	if (space && rc == CUDA_SUCCESS) {
		ca_order_space_finished(space, bound, false);
		ca_assumptions_look(real);
		ca_process_tick(ca_process());
	}
	return rc;
}
