/* SPDX-License-Identifier: MIT */
/*
 * A libcuda.so.1 whose entry points return at once: no device, no memory, no work. What a program
 * then spends is its own time and that of whatever is preloaded. Allocations may come from several
 * threads at once.
 *
 *   BENCH_DEVICE=idle   (default) all work is finished as soon as it is submitted
 *   BENCH_DEVICE=busy   nothing is finished before the host waits for it
 *   BENCH_CALLS=FILE    at exit: JSON with the calls of what orders work (launches are not counted)
 *
 * A stream that waits for a word in memory is waited for by marks, so that a library which tries
 * that (docs/ORDER.md, rule 19) finds what it looks for.
 */
#include "tests/bench/driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entry points that the driver has nothing to do for here. */
#define NOW(symbol)                                                                                \
	CUresult symbol(void);                                                                     \
	EXPORT CUresult symbol(void)                                                               \
	{                                                                                          \
		return CUDA_SUCCESS;                                                               \
	}
#define WITH(symbol, params)                                                                       \
	CUresult symbol params;                                                                    \
	EXPORT CUresult symbol params

enum { STREAMS_MAX = 512, EVENTS_MAX = 1 << 16, CONTEXT_STEP = 256 };

static const uintptr_t CONTEXT = 0xc0ffee00, OBJECT = 0xf00d0000, POOL = 0xb001000;
static const CUdeviceptr FIRST_ADDRESS = 0x510000000000, FIRST_RESERVED = 0x610000000000;
static const uint64_t CAPACITY = (uint64_t)80 << 30, BOUNDARY = (uint64_t)2 << 20;

/* Of a stream or an event; its handle is the address. */
struct handle {
	uint64_t recorded; /* the event's place in the sequence of records; 0: never */
	CUcontext context; /* of a stream */
	unsigned int flags;
	bool in_trial, held_up; /* recorded while a stream waits for a word; behind that */
};

/* The word that a stream waits for. What is recorded meanwhile is a trial of the library's
 * (shim/track/assumption_trial.h), finds an idle device, and is not counted. */
static struct {
	_Atomic uint32_t *word; /* NULL: none ever did */
	uint32_t value;
} awaited;

/* Streams lie so far apart that no two of a program share a place in a cache of 16 (Fibonacci
 * hash), whatever others were made in between: what sharing costs is no part of these figures. */
static struct {
	_Alignas(1024) struct handle handle;
} streams[STREAMS_MAX];
static struct handle events[EVENTS_MAX];
static _Atomic unsigned n_streams, n_events, n_contexts;
static uint64_t n_finished; /* records that the host knows to be done */
static uint64_t n_records, n_context_records, n_queries, n_waits, n_syncs, n_allocs, n_frees,
	n_creates;
static unsigned n_pools;                 /* of the program's own */
static _Atomic uint64_t taken, reserved; /* bytes behind the first addresses */
static _Atomic bool is_ready;
static bool busy;
static __thread CUcontext current;
static __thread CUstreamCaptureMode capture_mode;

static void
write_calls(void)
{
	const char *path = getenv("BENCH_CALLS");
	FILE *file = path ? fopen(path, "w") : NULL;

	if (!file)
		return;
	fprintf(file,
		"{\"records\": %llu, \"context_records\": %llu, \"queries\": %llu, \"waits\": "
		"%llu, "
		"\"syncs\": %llu, \"allocs\": %llu, \"frees\": %llu, \"creates\": %llu}\n",
		(unsigned long long)n_records, (unsigned long long)n_context_records,
		(unsigned long long)n_queries, (unsigned long long)n_waits,
		(unsigned long long)n_syncs, (unsigned long long)n_allocs,
		(unsigned long long)n_frees, (unsigned long long)n_creates);
	fclose(file);
}

static CUresult
stream_new(CUstream *ret_stream, unsigned int flags)
{
	unsigned stream = atomic_fetch_add(&n_streams, 1);

	if (stream >= STREAMS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	streams[stream].handle.flags = flags;
	streams[stream].handle.context = current;
	*ret_stream = (CUstream)&streams[stream].handle;
	return CUDA_SUCCESS;
}

static bool
is_awaited(void)
{
	return awaited.word && atomic_load(awaited.word) < awaited.value;
}

static bool
note_trial(struct handle *event, bool held_up)
{
	event->in_trial = is_awaited();
	event->held_up = held_up;
	return event->in_trial;
}

static CUresult
finish(uint64_t recorded)
{
	n_syncs++;
	if (n_finished < recorded)
		n_finished = recorded;
	return CUDA_SUCCESS;
}

/* ------------------------------------------------------ start, contexts --- */

WITH(cuInit, (unsigned int flags))
{
	const char *device = getenv("BENCH_DEVICE");

	busy = device && !strcmp(device, "busy");
	if (!atomic_exchange(&is_ready, true))
		atexit(write_calls);
	return CUDA_SUCCESS;
}

WITH(cuGetProcAddress_v2, (const char *symbol, void **pfn, int version, cuuint64_t flags,
			   CUdriverProcAddressQueryResult *status))
{
	if (version > DRIVER_VERSION)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = driver_find(symbol, version, flags);
	if (status)
		*status = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

WITH(cuGetProcAddress, (const char *symbol, void **pfn, int version, cuuint64_t flags))
{
	CUresult rc = cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);

	return rc || *pfn ? rc : CUDA_ERROR_NOT_FOUND;
}

WITH(cuDriverGetVersion, (int *version))
{
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

WITH(cuDeviceGetCount, (int *count))
{
	*count = 1;
	return CUDA_SUCCESS;
}

WITH(cuDeviceGet, (CUdevice * device, int ordinal))
{
	*device = ordinal;
	return CUDA_SUCCESS;
}

WITH(cuDeviceGetName, (char *name, int n, CUdevice device))
{
	snprintf(name, (size_t)n, "nothing");
	return CUDA_SUCCESS;
}

WITH(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))
{
	*uuid = (CUuuid){ { 1 } };
	return CUDA_SUCCESS;
}

WITH(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))
{
	*bytes = CAPACITY;
	return CUDA_SUCCESS;
}

WITH(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))
{
	*context = (CUcontext)CONTEXT; // NOLINT: a number as a handle
	return CUDA_SUCCESS;
}

/* As many as are wanted, of the one device. */
WITH(cuCtxCreate_v3,
     (CUcontext * context, void *affinities, int n_affinities, unsigned int flags, CUdevice device))
{
	unsigned which = atomic_fetch_add(&n_contexts, 1) + 1;

	current = (CUcontext)(CONTEXT + (uintptr_t)which * CONTEXT_STEP); // NOLINT: a number
	*context = current;
	return CUDA_SUCCESS;
}

WITH(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active))
{
	*flags = 0;
	*active = 1;
	return CUDA_SUCCESS;
}

WITH(cuCtxSetCurrent, (CUcontext context))
{
	current = context;
	return CUDA_SUCCESS;
}

WITH(cuCtxPushCurrent_v2, (CUcontext context))
{
	current = context;
	return CUDA_SUCCESS;
}

WITH(cuCtxPopCurrent_v2, (CUcontext * context))
{
	*context = current; /* which is current behind that, nobody asks here */
	return CUDA_SUCCESS;
}

WITH(cuCtxGetCurrent, (CUcontext * context))
{
	*context = current;
	return CUDA_SUCCESS;
}

WITH(cuCtxGetDevice, (CUdevice * device))
{
	*device = 0;
	return CUDA_SUCCESS;
}

WITH(cuCtxGetId, (CUcontext context, unsigned long long *id))
{
	*id = (uintptr_t)context;
	return CUDA_SUCCESS;
}

WITH(cuCtxSynchronize, (void))
{
	return finish(n_records + n_context_records);
}

WITH(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
{
	CUstreamCaptureMode before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

NOW(cuDevicePrimaryCtxRelease_v2)

/* ------------------------------------------------------ streams, events --- */

WITH(cuStreamCreate, (CUstream * stream, unsigned int flags))
{
	return stream_new(stream, flags);
}

WITH(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority))
{
	return stream_new(stream, flags);
}

WITH(cuStreamGetFlags, (CUstream stream, unsigned int *flags))
{
	*flags = stream > CU_STREAM_PER_THREAD ? ((struct handle *)stream)->flags : 0;
	return CUDA_SUCCESS;
}

WITH(cuStreamGetId, (CUstream stream, unsigned long long *id))
{
	*id = (uintptr_t)stream;
	return CUDA_SUCCESS;
}

WITH(cuStreamGetCtx, (CUstream stream, CUcontext *context))
{
	*context = stream > CU_STREAM_PER_THREAD ? ((struct handle *)stream)->context : current;
	return CUDA_SUCCESS;
}

WITH(cuStreamGetCtx_v2, (CUstream stream, CUcontext *context, CUgreenCtx *green))
{
	*green = NULL;
	return cuStreamGetCtx(stream, context);
}

WITH(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status))
{
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

WITH(cuStreamQuery, (CUstream stream))
{
	n_queries++;
	return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

WITH(cuStreamSynchronize, (CUstream stream))
{
	return finish(n_records + n_context_records);
}

WITH(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))
{
	n_waits++;
	return CUDA_SUCCESS;
}

WITH(cuEventCreate, (CUevent * event, unsigned int flags))
{
	unsigned which = atomic_fetch_add(&n_events, 1);

	if (which >= EVENTS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*event = (CUevent)&events[which];
	return CUDA_SUCCESS;
}

WITH(cuStreamWaitValue32_v2,
     (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags))
{
	awaited.value = value;
	awaited.word = (_Atomic uint32_t *)(uintptr_t)address; // NOLINT: of the host
	return CUDA_SUCCESS;
}

WITH(cuEventRecord, (CUevent event, CUstream stream))
{
	bool blocking = stream <= CU_STREAM_PER_THREAD || !((struct handle *)stream)->flags;

	if (note_trial((struct handle *)event, blocking))
		return CUDA_SUCCESS;
	n_records++;
	((struct handle *)event)->recorded = n_records + n_context_records;
	return CUDA_SUCCESS;
}

WITH(cuCtxRecordEvent, (CUcontext context, CUevent event))
{
	if (note_trial((struct handle *)event, true))
		return CUDA_SUCCESS;
	n_context_records++;
	((struct handle *)event)->recorded = n_records + n_context_records;
	return CUDA_SUCCESS;
}

WITH(cuEventQuery, (CUevent event))
{
	if (((struct handle *)event)->in_trial)
		return ((struct handle *)event)->held_up && is_awaited() ? CUDA_ERROR_NOT_READY
									 : CUDA_SUCCESS;
	n_queries++;
	if (busy && ((struct handle *)event)->recorded > n_finished)
		return CUDA_ERROR_NOT_READY;
	return CUDA_SUCCESS;
}

WITH(cuEventSynchronize, (CUevent event))
{
	return finish(((struct handle *)event)->recorded);
}

NOW(cuStreamDestroy_v2)
NOW(cuEventDestroy_v2)

/* --------------------------------------------------------- memory, work --- */

WITH(cuMemHostAlloc, (void **address, size_t bytes, unsigned int flags))
{
	*address = calloc(1, bytes);
	return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

WITH(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))
{
	n_allocs++;
	*address =
		FIRST_ADDRESS + atomic_fetch_add(&taken, (bytes + BOUNDARY - 1) & ~(BOUNDARY - 1));
	return CUDA_SUCCESS;
}

WITH(cuMemFree_v2, (CUdeviceptr address))
{
	n_frees++;
	return CUDA_SUCCESS;
}

WITH(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))
{
	*value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
	return CUDA_SUCCESS;
}

WITH(cuMemAddressReserve, (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint,
			   unsigned long long flags))
{
	*address = FIRST_RESERVED + atomic_fetch_add(&reserved, bytes);
	return CUDA_SUCCESS;
}

WITH(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t bytes,
		   const CUmemAllocationProp *prop, unsigned long long flags))
{
	n_creates++;
	*handle = OBJECT;
	return CUDA_SUCCESS;
}

NOW(cuMemAddressFree)
NOW(cuMemMap)
NOW(cuMemSetAccess)
NOW(cuMemRelease)
NOW(cuMemUnmap)

WITH(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes))
{
	*free_bytes = CAPACITY - taken;
	*total_bytes = CAPACITY;
	return CUDA_SUCCESS;
}

/* What the program asks about is the host's own memory, which the driver does not know: zeros. */
WITH(cuPointerGetAttributes,
     (unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr address))
{
	for (unsigned int i = 0; i < n; i++) {
		switch (attributes[i]) {
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*(unsigned int *)data[i] = 0;
			break;
		default:
			return CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return CUDA_SUCCESS;
}

WITH(cuModuleLoadData, (void **module, const void *image))
{
	*module = (void *)OBJECT; // NOLINT: a number as a handle
	return CUDA_SUCCESS;
}

WITH(cuModuleGetFunction, (void **function, void *module, const char *name))
{
	*function = (void *)OBJECT; // NOLINT: a number as a handle
	return CUDA_SUCCESS;
}

/* ------------------------------------------------------ pools --- */

WITH(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device))
{
	*pool = (CUmemoryPool)POOL; // NOLINT: a number as a handle
	return CUDA_SUCCESS;
}

WITH(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device))
{
	return cuDeviceGetDefaultMemPool(pool, device);
}

WITH(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *props))
{
	*pool = (CUmemoryPool)(POOL + ++n_pools); // NOLINT: a number as a handle
	return CUDA_SUCCESS;
}

/* All are 64 bits wide, or of two states. */
WITH(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))
{
	if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		*(int *)value = 1;
	else
		*(cuuint64_t *)value = 0;
	return CUDA_SUCCESS;
}

WITH(cuMemAllocFromPoolAsync,
     (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))
{
	return cuMemAlloc_v2(address, bytes);
}

WITH(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream))
{
	return cuMemAlloc_v2(address, bytes);
}

WITH(cuMemFreeAsync, (CUdeviceptr address, CUstream stream))
{
	return cuMemFree_v2(address);
}

NOW(cuMemPoolSetAttribute)
NOW(cuMemPoolTrimTo)

NOW(cuLaunchKernel)
NOW(cuLaunchKernel_ptsz)
NOW(cuLaunchKernelEx)
NOW(cuMemcpyHtoD_v2)
NOW(cuMemcpyDtoH_v2)
NOW(cuMemcpyDtoD_v2)
NOW(cuMemsetD8_v2)
NOW(cuMemcpyHtoDAsync_v2)
NOW(cuMemcpyDtoHAsync_v2)
NOW(cuMemcpyDtoDAsync_v2)
NOW(cuMemsetD8Async)
