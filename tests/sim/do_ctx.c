/* SPDX-License-Identifier: MIT */
/*
 * Bodies: contexts. The usage count of the long-deprecated cuCtxAttach and cuCtxDetach lives here,
 * keyed by the context's id, because the engine knows nothing of it: detach counts down, and
 * destroys when nothing is left.
 */
#include <pthread.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

enum {
	ATTACHED_MAX = 64,
	API_VERSION = 3020, /* of contexts created since CUDA 3.2 */
};

static struct {
	unsigned long long ctx_id; /* 0: free entry */
	unsigned n;                /* attaches not yet undone */
} attached[ATTACHED_MAX];
static pthread_mutex_t attached_lock = PTHREAD_MUTEX_INITIALIZER; /* around attached[] */

static int
answer_check(const void *answer)
{
	if (answer)
		return 0;
	simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	return CUDA_ERROR_INVALID_VALUE;
}

int
simb_do_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	int rc = answer_check(pctx);

	if (!rc && (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "unknown flags");
	return rc ? rc : sim_ctx_create(dev, flags, pctx);
}

int
simb_do_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
		       unsigned int flags, CUdevice dev)
{
	if (numParams)
		return simb_unbuilt("execution affinity");
	return simb_do_cuCtxCreate_v2(pctx, flags, dev);
}

int
simb_do_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
		       CUdevice dev)
{
	if (ctxCreateParams)
		return simb_unbuilt("a context with parameters");
	return simb_do_cuCtxCreate_v2(pctx, flags, dev);
}

int
simb_do_cuCtxDestroy_v2(CUcontext ctx)
{
	return sim_ctx_destroy(ctx);
}

/* Adds `by` (+1 or -1) to the context's count. False: not possible (full, or nothing to undo). */
static bool
attached_change(unsigned long long id, int by)
{
	bool done = false;
	int at = -1;

	pthread_mutex_lock(&attached_lock);
	for (int i = 0; i < ATTACHED_MAX; i++) {
		if (attached[i].ctx_id == id) {
			at = i;
			break;
		}
		if (!attached[i].ctx_id && by > 0 && at < 0)
			at = i;
	}
	if (at >= 0) {
		done = true;
		attached[at].n += (unsigned)by;
		attached[at].ctx_id = attached[at].n ? id : 0;
	}
	pthread_mutex_unlock(&attached_lock);
	return done;
}

int
simb_do_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	unsigned long long id;
	CUcontext ctx;
	int rc = answer_check(pctx);

	if (!rc && flags)
		rc = simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	if (!rc)
		rc = sim_ctx_get_id(NULL, &id);
	if (!rc)
		rc = sim_ctx_get_current(&ctx);
	if (rc)
		return rc;
	if (!attached_change(id, 1))
		return simb_unbuilt("so many attached contexts");
	*pctx = ctx;
	return 0;
}

int
simb_do_cuCtxDetach(CUcontext ctx)
{
	unsigned long long id;
	int rc;

	if (!ctx)
		return simb_misuse(CUDA_ERROR_INVALID_CONTEXT, "NULL is no context");
	rc = sim_ctx_get_id(ctx, &id);
	if (rc || attached_change(id, -1))
		return rc;
	return sim_ctx_destroy(ctx);
}

int
simb_do_cuCtxPushCurrent_v2(CUcontext ctx)
{
	return sim_ctx_push(ctx);
}

int
simb_do_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	return sim_ctx_pop(pctx);
}

int
simb_do_cuCtxSetCurrent(CUcontext ctx)
{
	return sim_ctx_set_current(ctx);
}

int
simb_do_cuCtxGetCurrent(CUcontext *pctx)
{
	int rc = answer_check(pctx);

	return rc ? rc : sim_ctx_get_current(pctx);
}

int
simb_do_cuCtxGetDevice(CUdevice *device)
{
	int rc = answer_check(device);

	return rc ? rc : sim_ctx_get_device(device);
}

/* Of any context, by making it current for the moment. */
int
simb_do_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	int rc = answer_check(device);

	if (rc || !ctx)
		return rc ? rc : sim_ctx_get_device(device);
	rc = sim_ctx_push(ctx);
	if (rc)
		return rc;
	rc = sim_ctx_get_device(device);
	sim_ctx_pop(NULL);
	return rc;
}

int
simb_do_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	int rc = answer_check(ctxId);

	return rc ? rc : sim_ctx_get_id(ctx, ctxId);
}

int
simb_do_cuCtxGetFlags(unsigned int *flags)
{
	int rc = answer_check(flags);

	return rc ? rc : sim_ctx_get_flags(flags);
}

int
simb_do_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	unsigned long long id;
	int rc = answer_check(version);

	if (!rc)
		rc = sim_ctx_get_id(ctx, &id);
	if (!rc)
		*version = API_VERSION;
	return rc;
}

int
simb_do_cuCtxSynchronize(void)
{
	return sim_ctx_sync();
}

int
simb_do_cuCtxSynchronize_v2(CUcontext ctx)
{
	int rc = ctx ? sim_ctx_push(ctx) : 0;

	if (rc)
		return rc;
	rc = sim_ctx_sync();
	if (ctx)
		sim_ctx_pop(NULL);
	return rc;
}

/* Numerically lower is more urgent; either place may be NULL. */
int
simb_do_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	int device, rc = sim_ctx_get_device(&device);

	if (rc)
		return rc;
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return 0;
}

int
simb_do_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	return sim_ctx_record_event(hCtx, hEvent);
}

int
simb_do_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	return sim_ctx_wait_event(hCtx, hEvent);
}

int
simb_do_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	if (Flags)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	return sim_ctx_enable_peer(peerContext);
}

int
simb_do_cuCtxDisablePeerAccess(CUcontext peerContext)
{
	return sim_ctx_disable_peer(peerContext);
}
