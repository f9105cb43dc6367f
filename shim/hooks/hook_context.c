/* SPDX-License-Identifier: MIT */
/*
 * Birth and death of contexts, told to shim/track/contexts.h.
 *
 * Before a call that may destroy a context its record is closed; afterwards the driver's answer
 * decides between burial and reopening. A primary context lives until its last release: the driver
 * is asked, and the record closed only where no other retain was seen. A context whose end was not
 * seen is buried when the driver gives a new one its handle.
 */
#include <stdatomic.h>

#include "shim/driver/told_pools.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"
#include "shim/process/lifecycle.h"
#include "shim/track/contexts.h"
#include "shim/track/streams.h"

/*
 * True where the call may have ended what it was for: such a call also answers errors of earlier
 * work (cuda.h, cuCtxDestroy), and ends the context all the same. If it did not, the
 * context is of no use any more, and its memory is lost (cuda.h, CUresult).
 */
static bool
ended(CUresult rc)
{
	switch (rc) {
	case CUDA_SUCCESS:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return false;
	}
}

/* The handle is another context's by now, by the driver's number of it. */
static bool
is_anothers(const struct ca_real *real, const struct ca_context *context)
{
	unsigned long long id = 0;

	return context->id && CA_INSIDE(real->cuCtxGetId(context->handle, &id)) == CUDA_SUCCESS &&
	       id != context->id;
}

/* A primary context has the same handle each time, and its end may be another's doing. */
static void
teardown_older(const struct ca_real *real, CUcontext handle, enum ca_context_kind kind)
{
	struct ca_context *context = ca_context_find(handle);

	if (!context || atomic_load(&context->closing) || kind == CA_CONTEXT_GREEN ||
	    (context->id ? !is_anothers(real, context) : kind == CA_CONTEXT_PRIMARY))
		return;
	ca_context_close(context);
	ca_context_teardown(context);
}

static void
created(const struct ca_real *real, CUresult rc, const CUcontext *handle, CUdevice device,
	enum ca_context_kind kind)
{
	CA_KEEP_ERRNO;

	if (rc != CUDA_SUCCESS || !handle || !*handle || !ca_hook_process())
		return;
	teardown_older(real, *handle, kind);
	(void)ca_context_register(real, *handle, device, kind);
}

#define CA_HOOK_CONTEXT(symbol, base, version, params, args)                                       \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		CUresult rc = CA_ROOM_RETRIED(real->symbol args, ca_make_capacity_on, dev, 0);     \
                                                                                                   \
		created(real, rc, pctx, dev, CA_CONTEXT_CREATED);                                  \
		return rc;                                                                         \
	}
#include "shim/bind/hooks.def"

CUresult
cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	CA_HOOK_REAL(real, cuCtxAttach);
	CUresult rc = CA_INSIDE(real->cuCtxAttach(pctx, flags));
	struct ca_context *context;

	if (rc == CUDA_SUCCESS && pctx && ca_hook_process()) {
		context = ca_context_find(*pctx);
		if (context)
			atomic_fetch_add(&context->usage, 1);
	}
	return rc;
}

/* Under the lock of the device. */
static void
retained(const struct ca_real *real, CUresult rc, const CUcontext *handle, CUdevice device)
{
	struct ca_context *context;

	created(real, rc, handle, device, CA_CONTEXT_PRIMARY);
	context = rc == CUDA_SUCCESS && handle ? ca_context_find(*handle) : NULL;
	if (context)
		atomic_fetch_add(&context->retains, 1);
}

/* Under the lock of the device. */
static void
released(struct ca_context *context)
{
	if (atomic_load(&context->retains))
		atomic_fetch_sub(&context->retains, 1);
}

CUresult
cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CA_HOOK_REAL(real, cuDevicePrimaryCtxRetain);
	struct ca_rounds rounds = { 0 };
	CUresult rc;

	if (!ca_hook_process())
		return CA_INSIDE(real->cuDevicePrimaryCtxRetain(pctx, dev));
	do { /* no room is made with the lock held: a context that is being released needs it */
		ca_context_primary_lock(dev);
		rc = CA_INSIDE(real->cuDevicePrimaryCtxRetain(pctx, dev));
		retained(real, rc, pctx, dev);
		ca_context_primary_unlock(dev);
	} while (rc == CUDA_ERROR_OUT_OF_MEMORY && ca_make_capacity_on(dev, 0, &rounds));
	return rc;
}

/* A green context keeps its device's primary context alive (cuda.h, cuGreenCtxCreate), whose marks
 * cover it: we must know that one. Its own work is not tracked. */
CUresult
cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	CA_HOOK_REAL(real, cuGreenCtxCreate);
	CUresult rc = CA_ROOM_RETRIED(real->cuGreenCtxCreate(phCtx, desc, dev, flags),
				      ca_make_capacity_on, dev, 0);
	CUcontext primary = NULL;

	if (rc || !ca_hook_process())
		return rc;
	ca_context_primary_lock(dev);
	if (real->cuDevicePrimaryCtxRetain && real->cuDevicePrimaryCtxRelease_v2 &&
	    CA_INSIDE(real->cuDevicePrimaryCtxRetain(&primary, dev)) == CUDA_SUCCESS) {
		created(real, CUDA_SUCCESS, &primary, dev, CA_CONTEXT_PRIMARY);
		(void)CA_INSIDE(real->cuDevicePrimaryCtxRelease_v2(dev));
	}
	ca_context_primary_unlock(dev);
	ca_streams_green(dev);
	return rc;
}

CUresult
cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CA_HOOK_REAL(real, cuCtxFromGreenCtx);
	CUresult rc = CA_INSIDE(real->cuCtxFromGreenCtx(pContext, hCtx));

	created(real, rc, pContext, 0, CA_CONTEXT_GREEN);
	return rc;
}

/* The living primary context of `device`. */
static struct ca_context *
find_primary(CUdevice device)
{
	struct ca_context *context = ca_context_first();

	while (context &&
	       (atomic_load(&context->kind) != CA_CONTEXT_PRIMARY || context->device != device))
		context = ca_context_next(context);
	return context;
}

/* Inactive, or active again because another thread retained it anew in the meantime. */
static bool
primary_died(const struct ca_real *real, const struct ca_context *context)
{
	unsigned int flags;
	int active = 0;

	if (!real->cuDevicePrimaryCtxGetState ||
	    CA_INSIDE(real->cuDevicePrimaryCtxGetState(context->device, &flags, &active)) ||
	    !active)
		return true;
	return is_anothers(real, context);
}

static void
settle(struct ca_context *context, bool died)
{
	CA_KEEP_ERRNO;

	if (context && died)
		ca_context_teardown(context);
	else if (context)
		ca_context_open_again(context);
}

typedef CUresult device_call(CUdevice device);

enum primary_end {
	PRIMARY_RELEASED, /* ends with its last usage: the driver is asked */
	PRIMARY_RESET,    /* ends whatever its usages */
};

/*
 * A release that leaves a retain that was seen closes nothing: it must not wait for
 * a wait of another thread, which may be for what comes after the release.
 */
static CUresult
end_primary(const struct ca_real *real, CUdevice device, device_call *call, enum primary_end end)
{
	struct ca_context *context;
	bool closes, died;
	CUresult rc;

	if (!ca_hook_process())
		return CA_INSIDE(call(device));
	if (end == PRIMARY_RESET)
		ca_told_pools_resetting(real, device);
	ca_context_primary_lock(device);
	context = find_primary(device);
	closes = context && (end == PRIMARY_RESET || atomic_load(&context->retains) <= 1);
	if (closes)
		ca_context_close(context);
	rc = CA_INSIDE(call(device));
	died = ended(rc) && context && (end == PRIMARY_RESET || primary_died(real, context));
	if (died && !closes) /* usages went that were not seen to go */
		ca_context_close(context);
	if (died || closes)
		settle(context, died);
	if (ended(rc) && context && !died)
		released(context);
	ca_context_primary_unlock(device);
	if (ended(rc) && end == PRIMARY_RESET)
		ca_told_pools_reset(real, device);
	return rc;
}

#define END_PRIMARY(symbol, end)                                                                   \
	CUresult symbol(CUdevice dev)                                                              \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		return end_primary(real, dev, real->symbol, end);                                  \
	}
END_PRIMARY(cuDevicePrimaryCtxRelease, PRIMARY_RELEASED)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, PRIMARY_RELEASED)
END_PRIMARY(cuDevicePrimaryCtxReset, PRIMARY_RESET)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, PRIMARY_RESET)

enum { PRIMARIES_MAX = 64 };

/* A green context holds a usage of a primary one, and does not say of which: all are asked. */
CUresult
cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	CA_HOOK_REAL(real, cuGreenCtxDestroy);
	struct ca_context *context, *closed[PRIMARIES_MAX];
	unsigned count = 0;
	CUresult rc;

	if (!ca_hook_process())
		return CA_INSIDE(real->cuGreenCtxDestroy(hCtx));
	for (context = ca_context_first(); context && count < PRIMARIES_MAX;
	     context = ca_context_next(context)) {
		if (atomic_load(&context->kind) != CA_CONTEXT_PRIMARY)
			continue;
		ca_context_close(context);
		closed[count++] = context;
	}
	rc = CA_INSIDE(real->cuGreenCtxDestroy(hCtx));
	while (count--)
		settle(closed[count], ended(rc) && primary_died(real, closed[count]));
	return rc;
}

typedef CUresult context_call(CUcontext context);

static CUresult
destroy(CUcontext handle, context_call *call)
{
	struct ca_context *context = ca_hook_process() && handle ? ca_context_find(handle) : NULL;
	CUresult rc;

	if (!context)
		return CA_INSIDE(call(handle));
	ca_context_close(context);
	rc = CA_INSIDE(call(handle));
	settle(context, ended(rc));
	return rc;
}

#define DESTROY(symbol)                                                                            \
	CUresult symbol(CUcontext ctx)                                                             \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		return destroy(ctx, real->symbol);                                                 \
	}
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

/* Of two threads that each give a usage back one sees that its own is the last. */
CUresult
cuCtxDetach(CUcontext ctx)
{
	CA_HOOK_REAL(real, cuCtxDetach);
	struct ca_context *context = ca_hook_process() && ctx ? ca_context_find(ctx) : NULL;
	CUresult rc;

	if (!context)
		return CA_INSIDE(real->cuCtxDetach(ctx));
	ca_context_primary_lock(context->device);
	if (atomic_load(&context->usage) <= 1) {
		rc = destroy(ctx, real->cuCtxDetach);
	} else {
		rc = CA_INSIDE(real->cuCtxDetach(ctx));
		if (ended(rc)) {
			atomic_fetch_sub(&context->usage, 1);
			released(context); /* of a primary one it may have been one */
		}
	}
	ca_context_primary_unlock(context->device);
	return rc;
}
