/* SPDX-License-Identifier: MIT */
/*
 * Bodies: green contexts, and the resources they are made of.
 *
 * Processors are only counted: any part of a device makes a green context that runs everything.
 * The handle of a green context is its CUcontext's value plus one, so that neither passes for the
 * other, as natively.
 */
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/copies.h"

enum {
	PROCESSORS = 108, /* attributes.def: MULTIPROCESSOR_COUNT */
	ALIGNMENT = 8,    /* of parts, as on compute capability 9.0 */
};

/* A descriptor is the number of processors in it, as a place in this; nothing destroys one. */
static char descriptors[PROCESSORS + 1];

/* ------------------------------------------------------------- resources --- */
static CUdevResource
processors(unsigned n)
{
	CUdevResource resource = { .type = CU_DEV_RESOURCE_TYPE_SM };

	resource.sm.smCount = n;
	resource.sm.minSmPartitionSize = ALIGNMENT;
	resource.sm.smCoscheduledAlignment = ALIGNMENT;
	return resource;
}

int
simb_do_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	if (!resource)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	if (device < 0 || device >= sim_device_count())
		return simb_misuse(CUDA_ERROR_INVALID_DEVICE, "no such device");
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return simb_unbuilt("a resource of this type");
	*resource = processors(PROCESSORS);
	return 0;
}

int
simb_do_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
				    const CUdevResource *input, CUdevResource *remainder,
				    unsigned int flags, unsigned int minCount)
{
	unsigned size = (minCount + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, n, total;

	if (!nbGroups || !input || minCount > PROCESSORS)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no groups, or too large ones");
	if (input->type != CU_DEV_RESOURCE_TYPE_SM)
		return simb_misuse(CUDA_ERROR_INVALID_RESOURCE_TYPE, "not processors");
	if (flags)
		return simb_unbuilt("a split with flags");
	total = input->sm.smCount;
	size = size ? size : ALIGNMENT;
	n = total / size;
	if (result && n > *nbGroups)
		n = *nbGroups;
	for (unsigned i = 0; result && i < n; i++)
		result[i] = processors(size);
	if (result && remainder)
		*remainder = processors(total - n * size);
	*nbGroups = n;
	return 0;
}

int
simb_do_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
				  unsigned int nbResources)
{
	unsigned n = 0;

	if (!phDesc || !resources || !nbResources)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no resources");
	for (unsigned i = 0; i < nbResources; i++) {
		if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
			return simb_misuse(CUDA_ERROR_INVALID_RESOURCE_TYPE, "not processors");
		n += resources[i].sm.smCount;
	}
	if (!n || n > PROCESSORS)
		return simb_misuse(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
				   "no processors, or more than there are");
	*phDesc = (CUdevResourceDesc)(void *)&descriptors[n];
	return 0;
}

/* -------------------------------------------------------- green contexts --- */
/* NULL stays NULL. */
static CUcontext
context_of(CUgreenCtx green)
{
	return green ? (CUcontext)(void *)((char *)(void *)green - 1) : NULL;
}

static CUgreenCtx
green_of(CUcontext context)
{
	return context ? (CUgreenCtx)(void *)((char *)(void *)context + 1) : NULL;
}

static int
no_green(void)
{
	return simb_misuse(CUDA_ERROR_INVALID_CONTEXT, "not a green context");
}

int
simb_do_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			 unsigned int flags)
{
	const char *at = (const char *)(void *)desc;
	CUcontext context;
	int rc;

	if (!phCtx || at <= descriptors || at > descriptors + PROCESSORS)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no descriptor");
	if (flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be DEFAULT_STREAM");
	rc = sim_green_create(dev, &context);
	if (!rc)
		*phCtx = green_of(context);
	return rc;
}

int
simb_do_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	return sim_green_destroy(context_of(hCtx));
}

int
simb_do_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	unsigned long long id;

	if (!pContext)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	if (!hCtx || sim_ctx_get_id(context_of(hCtx), &id))
		return no_green();
	*pContext = context_of(hCtx);
	return 0;
}

int
simb_do_cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
	if (!greenCtxId)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	return sim_ctx_get_id(context_of(greenCtx), greenCtxId);
}

int
simb_do_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
			       int priority)
{
	if (!phStream || flags != SIM_STREAM_NON_BLOCKING)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "flags must be NON_BLOCKING");
	return sim_green_stream_create(context_of(greenCtx), priority, phStream);
}

int
simb_do_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	return hCtx ? sim_ctx_record_event(context_of(hCtx), hEvent) : no_green();
}

int
simb_do_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	return hCtx ? sim_ctx_wait_event(context_of(hCtx), hEvent) : no_green();
}

int
simb_stream_contexts(CUstream stream, CUcontext *ret_ctx, CUgreenCtx *ret_green)
{
	CUcontext root, green;
	int rc;

	if (!ret_ctx || !ret_green)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
	rc = sim_stream_get_ctxs(simb_stream(stream), &root, &green);
	if (rc)
		return rc;
	*ret_ctx = root;
	*ret_green = green_of(green);
	return 0;
}

int
simb_do_cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
	CUcontext ignored;

	return simb_stream_contexts(hStream, &ignored, phCtx);
}
