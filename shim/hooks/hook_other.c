/* SPDX-License-Identifier: MIT */
/*
 * Other roads to device memory: managed, stream-ordered, virtual memory, arrays; and how much of it
 * there is.
 *
 * The driver serves them, and gets our cached memory back when it has none
 * (shim/hooks/oom_retry.h).
 */
#include "shim/hooks/foreign_limit.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/hook_told.h"
#include "shim/hooks/submission.h"
#include "shim/track/contexts.h"

static bool
is_on_device(const CUmemAllocationProp *prop)
{
	return prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/* ---- arrays: the bytes that they take are the driver's secret; the bytes asked for are not */

/* Of an element's component; those of textures with blocks of several texels are not told apart. */
static uint64_t
component_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	default:
		return 4;
	}
}

/* At least one, of what may be 0 for "one-dimensional"; saturates. */
static uint64_t
times(uint64_t bytes, uint64_t count)
{
	uint64_t product;

	return __builtin_mul_overflow(bytes, count ? count : 1, &product) ? UINT64_MAX : product;
}

static uint64_t
array_bytes(const CUDA_ARRAY_DESCRIPTOR *one)
{
	if (!one)
		return 0;
	return times(times(component_bytes(one->Format) * one->NumChannels, one->Width),
		     one->Height);
}

static uint64_t
array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *one)
{
	if (!one)
		return 0;
	return times(times(times(component_bytes(one->Format) * one->NumChannels, one->Width),
			   one->Height),
		     one->Depth);
}

/* All levels: each has half of the extents of the one before. */
static uint64_t
mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *one, unsigned levels)
{
	CUDA_ARRAY3D_DESCRIPTOR level;
	uint64_t bytes = 0;

	if (!one)
		return 0;
	level = *one;
	for (unsigned i = 0; i < levels && i < 64; i++) {
		if (__builtin_add_overflow(bytes, array3d_bytes(&level), &bytes))
			return UINT64_MAX;
		level.Width = level.Width > 1 ? level.Width / 2 : level.Width;
		level.Height = level.Height > 1 ? level.Height / 2 : level.Height;
		level.Depth = level.Depth > 1 ? level.Depth / 2 : level.Depth;
	}
	return bytes;
}

/* ---- the hooks */

static bool
make_capacity(CUdevice device, uint64_t bytes, struct ca_rounds *rounds)
{
	return device >= 0 ? ca_make_capacity_on(device, bytes, rounds)
			   : ca_make_capacity(ca_real(), bytes, rounds);
}

/* `begun`: the stream that the call submits to, guarded. Stream-ordered memory is none of ours, but
 * an allocation may make its stream wait for another's free: it is part of the order. */
#define TAKE_BODY(symbol, args, begun, device, size, counts, kind, handle)                         \
	uint64_t bytes = size;                                                                     \
	struct ca_stream *stream = begun;                                                          \
	struct ca_road road = ca_foreign_begin(real, device, bytes, counts);                       \
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;                                                    \
                                                                                                   \
	if (!road.rejected)                                                                        \
		rc = CA_ROOM_RETRIED(real->symbol args, make_capacity, device, bytes);             \
	ca_submission_end(stream);                                                                 \
	if (rc == CUDA_SUCCESS)                                                                    \
		ca_foreign_succeeded(real, &road, kind, (uint64_t)(uintptr_t)(handle));            \
	else                                                                                       \
		ca_foreign_failed(&road);                                                          \
	return rc;
#define TAKE(symbol, params, args, device, size, counts, kind, handle)                             \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		TAKE_BODY(symbol, args, NULL, device, size, counts, kind, handle)                  \
	}

static const struct ca_touch nothing;

/* A pool that no heap knows, for the driver to refuse: NULL is the current one in ca_told_call. */
#define NAMED(pool) ((pool) ? (pool) : (CUmemoryPool)-1)

/* In a stream that captures (`stream` is NULL then) nothing is allocated. */
#define TAKE_ASYNC(symbol, which, params, args, from)                                              \
	static __attribute__((noinline)) CUresult symbol##_natively params                         \
	{                                                                                          \
		const struct ca_real *real = ca_real();                                            \
		TAKE_BODY(symbol, args, ca_submission_begin(which, hStream, &nothing), -1,         \
			  bytesize, stream != NULL, CA_CHARGE_ADDRESS, *dptr)                      \
	}                                                                                          \
	static __attribute__((noinline)) CUresult symbol##_closely params                          \
	{                                                                                          \
		if (ca_told_default_alloc_at_once(which, hStream, from, bytesize, dptr))           \
			return CUDA_SUCCESS;                                                       \
		CA_HOOK_REAL(real, symbol);                                                        \
		const struct ca_told_call call = { real, which, hStream, from, bytesize, dptr };   \
                                                                                                   \
		CUresult rc;                                                                       \
                                                                                                   \
		if (ca_told_allocs(&call))                                                         \
			return CUDA_SUCCESS;                                                       \
		rc = symbol##_natively args;                                                       \
		ca_told_driver_allocated(&call, rc);                                               \
		return rc;                                                                         \
	}                                                                                          \
	CUresult symbol params                                                                     \
	{                                                                                          \
		if (ca_told_alloc_at_once(which, hStream, from, bytesize, dptr))                   \
			return CUDA_SUCCESS;                                                       \
		return symbol##_closely args;                                                      \
	}

#define CA_HOOK_TAKE(symbol, base, version, params, args, device, bytes, counts, kind, handle)     \
	TAKE(symbol, params, args, device, bytes, counts, kind, handle)
#define CA_HOOK_TAKE_TWINS(symbol, suffix, base, version, twin, params, args, from)                \
	TAKE_ASYNC(symbol, CA_FLAVOUR_LEGACY, params, args, from)                                  \
	TAKE_ASYNC(symbol##suffix, CA_FLAVOUR_PER_THREAD, params, args, from)
#define CA_HOOK_FREE(symbol, base, version, params, args, kind, handle)                            \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		struct ca_road road = ca_foreign_end_begin(kind, (uint64_t)(uintptr_t)(handle));   \
		CUresult rc = CA_INSIDE(real->symbol args);                                        \
                                                                                                   \
		ca_foreign_end_done(&road, rc, kind, (uint64_t)(uintptr_t)(handle));               \
		return rc;                                                                         \
	}
#include "shim/bind/hooks.def"

/* ---- how much there is */

/* Memory that we hold but could give back is free to the program, as far as CACHEALLOC_LIMIT
 * allows. */
CUresult
cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CA_HOOK_REAL(real, cuMemGetInfo_v2);
	struct ca_process *process = ca_hook_active_process();
	CUresult rc = CA_INSIDE(real->cuMemGetInfo_v2(free, total));
	struct ca_space *space;
	size_t native_free, native_total;
	uint64_t free_bytes, total_bytes;
	CA_KEEP_ERRNO;

	if (rc || !process || (!free && !process->limited))
		return rc;
	space = ca_context_space(real);
	if (space &&
	    CA_INSIDE(real->cuMemGetInfo_v2(&native_free, &native_total)) == CUDA_SUCCESS) {
		total_bytes = native_total;
		free_bytes = native_free + ca_drainable_bytes(space);
		if (free_bytes > total_bytes)
			free_bytes = total_bytes;
		ca_limit_info(space, &free_bytes, &total_bytes);
		if (free)
			*free = (size_t)free_bytes;
		if (total)
			*total = (size_t)total_bytes;
	}
	return rc;
}
