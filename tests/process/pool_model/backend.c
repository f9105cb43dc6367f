/* SPDX-License-Identifier: MIT */
/*
 * A pointer's usage: the stream it was allocated on and those recorded since. Without a recorded
 * one the pointer is freed on its own stream. Else a stream of the device that nothing else is
 * submitted to waits for all of them by events, and the pointer is freed there, so that its memory
 * comes back to others only when all of that has run.
 *
 * While something captures, memory that was allocated outside is not freed but remembered; the next
 * allocation after the capture frees it. Streams that were freed on in a capture join the capturing
 * one before it ends.
 */
#include "tests/process/pool_model/backend.h"

#include <stdlib.h>

enum { POINTERS_MAX = 1 << 16, STREAMS_MAX = 8 };

struct usage {
	CUstream stream;
	int device;
};

struct pointer {
	CUdeviceptr ptr; /* 0: an empty place */
	size_t n_bytes;
	struct usage creation, recorded[STREAMS_MAX];
	int n_recorded;
	bool captured;
};

struct device {
	CUcontext ctx;
	CUmemoryPool pool;
	bool ready;
	CUstream unifier;
	uint64_t used, limit; /* bytes */
};

static struct device devices[BACKEND_DEVICES_MAX];
static int n_devices;
static bool retries, captures;
static struct pointer *pointers; /* by hash of the address */
static CUdeviceptr deferred[POINTERS_MAX];
static unsigned n_deferred;
static struct usage joining[STREAMS_MAX * BACKEND_DEVICES_MAX];
static int n_joining;

/* Returns from a function with the driver's code. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		CUresult try_code = (call);                                                        \
		if (try_code)                                                                      \
			return (int)try_code;                                                      \
	} while (0)

/* ---------------------------------------------------------------- pointers --- */
/* The pointer's place, or the empty one where it would be. */
static struct pointer *
pointer_at(CUdeviceptr ptr)
{
	size_t i = (ptr >> 9) * 0x9e3779b97f4a7c15ull >> 48;

	while (pointers[i].ptr && pointers[i].ptr != ptr)
		i = (i + 1) % POINTERS_MAX;
	return &pointers[i];
}

static void
pointer_remove(struct pointer *p)
{
	size_t i = (size_t)(p - pointers);

	p->ptr = 0;
	for (i = (i + 1) % POINTERS_MAX; pointers[i].ptr; i = (i + 1) % POINTERS_MAX) {
		struct pointer moved = pointers[i];

		pointers[i].ptr = 0;
		*pointer_at(moved.ptr) = moved;
	}
}

/* ----------------------------------------------------------------- devices --- */
void
backend_open(const CUcontext *contexts, int n, bool retry)
{
	pointers = calloc(POINTERS_MAX, sizeof(*pointers));
	if (!pointers)
		abort();
	n_devices = n;
	retries = retry;
	for (int d = 0; d < n; d++)
		devices[d].ctx = contexts[d];
}

static int
device_prepare(int at)
{
	struct device *d = &devices[at];
	cuuint64_t threshold = UINT64_MAX;
	int enable = 1;

	TRY(cuCtxSetCurrent(d->ctx));
	if (d->ready)
		return 0;
	TRY(cuDeviceGetDefaultMemPool(&d->pool, at));
	TRY(cuMemPoolSetAttribute(d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	for (int rule = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
	     rule <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; rule++)
		TRY(cuMemPoolSetAttribute(d->pool, (CUmemPool_attribute)rule, &enable));
	if (!d->unifier)
		TRY(cuStreamCreate(&d->unifier, 1));
	d->used = 0;
	d->limit = UINT64_MAX;
	d->ready = true;
	return 0;
}

uint64_t
backend_used(int device)
{
	return devices[device].used;
}

unsigned
backend_deferred(void)
{
	return n_deferred;
}

/* -------------------------------------------------------------------- free --- */
static int
join(struct usage before, struct usage after)
{
	CUevent event;

	TRY(cuCtxSetCurrent(devices[before.device].ctx));
	TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	TRY(cuEventRecord(event, before.stream));
	TRY(cuStreamWaitEvent(after.stream, event, 0));
	TRY(cuEventDestroy_v2(event));
	return (int)cuCtxSetCurrent(devices[after.device].ctx);
}

static bool
is_same(struct usage a, struct usage b)
{
	return a.stream == b.stream && a.device == b.device;
}

static void
joining_add(struct usage usage)
{
	for (int i = 0; i < n_joining; i++)
		if (is_same(joining[i], usage))
			return;
	joining[n_joining++] = usage;
}

static int
pointer_free(struct pointer *p)
{
	struct device *d = &devices[p->creation.device];
	struct usage on = p->creation;

	TRY(cuCtxSetCurrent(d->ctx));
	if (p->n_recorded) {
		on.stream = d->unifier;
		for (int i = -1; i < p->n_recorded; i++)
			TRY(join(i < 0 ? p->creation : p->recorded[i], on));
	}
	TRY(cuMemFreeAsync(p->ptr, on.stream));
	if (captures)
		joining_add(on);
	d->used -= p->n_bytes;
	pointer_remove(p);
	return 0;
}

int
backend_free(CUdeviceptr ptr)
{
	struct pointer *p = pointer_at(ptr);

	if (!p->ptr)
		return BACKEND_ASSERTION;
	if (captures && !p->captured) {
		deferred[n_deferred++] = ptr;
		return 0;
	}
	return pointer_free(p);
}

int
backend_record_stream(CUdeviceptr ptr, CUstream stream, int device)
{
	struct pointer *p = pointer_at(ptr);
	struct usage usage = { stream, device };

	if (!p->ptr)
		return BACKEND_ASSERTION;
	if (is_same(usage, p->creation))
		return 0;
	for (int i = 0; i < p->n_recorded; i++)
		if (is_same(usage, p->recorded[i]))
			return 0;
	if (p->n_recorded == STREAMS_MAX)
		abort();
	p->recorded[p->n_recorded++] = usage;
	return 0;
}

/* ------------------------------------------------------------------ malloc --- */
static int
free_deferred(void)
{
	while (!captures && n_deferred) {
		int rc = pointer_free(pointer_at(deferred[n_deferred - 1]));

		if (rc)
			return rc;
		n_deferred--;
	}
	return 0;
}

static CUresult
driver_malloc(CUdeviceptr *ret_ptr, const struct device *d, size_t n_bytes, CUstream stream)
{
	CUresult code = cuMemAllocAsync(ret_ptr, n_bytes, stream);

	if (code != CUDA_ERROR_OUT_OF_MEMORY || !retries || captures)
		return code;
	if (cuStreamSynchronize(stream) || cuMemPoolTrimTo(d->pool, 0))
		return code;
	return cuMemAllocAsync(ret_ptr, n_bytes, stream);
}

int
backend_malloc(CUdeviceptr *ret_ptr, int device, size_t n_bytes, CUstream stream)
{
	struct device *d = &devices[device];
	size_t free_bytes, total_bytes;
	CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
	struct pointer *p;

	TRY(cuCtxSetCurrent(d->ctx));
	TRY(free_deferred());
	TRY(device_prepare(device));
	if (d->used + n_bytes <= d->limit)
		code = driver_malloc(ret_ptr, d, n_bytes, stream);
	if (code == CUDA_ERROR_OUT_OF_MEMORY) {
		TRY(cuMemGetInfo_v2(&free_bytes, &total_bytes)); /* for its message */
		return BACKEND_OUT_OF_MEMORY;
	}
	if (code)
		return (int)code;
	p = pointer_at(*ret_ptr);
	if (p->ptr)
		return BACKEND_ASSERTION;
	*p = (struct pointer){
		.ptr = *ret_ptr,
		.n_bytes = n_bytes,
		.creation = { stream, device },
		.captured = captures,
	};
	d->used += n_bytes;
	return 0;
}

/* Half the size again and again, until it is had. */
int
backend_cache_info(int device, CUstream stream, size_t *ret_guess)
{
	struct device *d = &devices[device];
	size_t free_bytes, total_bytes, guess;
	CUdeviceptr ptr;

	TRY(device_prepare(device));
	TRY(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	guess = free_bytes < d->limit - d->used ? free_bytes : d->limit - d->used;
	for (; guess; guess >>= 1) {
		CUresult code = CUDA_ERROR_OUT_OF_MEMORY;

		if (d->used + guess <= d->limit)
			code = cuMemAllocAsync(&ptr, guess, stream);
		if (!code) {
			cuMemFreeAsync(ptr, stream);
			break;
		}
		if (code != CUDA_ERROR_OUT_OF_MEMORY)
			return (int)code;
	}
	*ret_guess = guess;
	return 0;
}

/* -------------------------------------------------------------------- rest --- */
int
backend_set_fraction(double fraction, int device)
{
	size_t free_bytes, total_bytes;

	TRY(device_prepare(device));
	TRY(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	devices[device].limit = (uint64_t)(fraction * (double)total_bytes);
	return 0;
}

/* It looks at no code. */
int
backend_empty_cache(void)
{
	for (int i = 0; i < n_devices; i++) {
		CUmemoryPool pool;

		if (!devices[i].ready)
			continue;
		TRY(cuCtxSetCurrent(devices[i].ctx));
		if (cuDeviceGetDefaultMemPool(&pool, i))
			pool = NULL;
		cuCtxSynchronize();
		if (pool)
			cuMemPoolTrimTo(pool, 0);
	}
	return 0;
}

static int
pool_stats(CUmemoryPool pool, struct backend_stats *got)
{
	TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &got->reserved));
	TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &got->reserved_high));
	TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &got->used));
	TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &got->used_high));
	return 0;
}

/* The backend asks so in no capture, this program after each call. */
int
backend_stats(int device, struct backend_stats *ret_stats)
{
	const struct device *d = &devices[device];
	struct backend_stats got = { 0 };

	if (d->ready) {
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
		CUmemoryPool pool;
		int rc;

		TRY(cuCtxSetCurrent(d->ctx));
		TRY(cuDeviceGetDefaultMemPool(&pool, device));
		TRY(cuThreadExchangeStreamCaptureMode(&mode));
		rc = pool_stats(pool, &got);
		TRY(cuThreadExchangeStreamCaptureMode(&mode));
		TRY(rc);
	}
	*ret_stats = got;
	return 0;
}

int
backend_reset_peaks(int device)
{
	cuuint64_t zero = 0;
	CUmemoryPool pool;

	TRY(cuCtxSetCurrent(devices[device].ctx));
	TRY(cuDeviceGetDefaultMemPool(&pool, device));
	TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	return 0;
}

int
backend_capture_begin(void)
{
	if (captures || n_joining)
		return BACKEND_ASSERTION;
	captures = true;
	return 0;
}

int
backend_capture_about_to_end(CUstream stream, int device)
{
	struct usage on = { stream, device };

	if (!captures)
		return BACKEND_ASSERTION;
	for (int i = 0; i < n_joining; i++)
		TRY(join(joining[i], on));
	n_joining = 0;
	captures = false;
	return 0;
}
