/* SPDX-License-Identifier: MIT */
/*
 * Stream-ordered calls that the told heap serves (async:pool, shim/driver/told_pools.h).
 *
 * Each has two ways. The first, inline, is for a stream that the program created and that the
 * thread knows, and calls nothing. Whatever is unusual about a call is the second's affair.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "allocator/order/order_told.h"
#include "allocator/told/fast.h"
#include "shim/driver/told_pools.h"
#include "shim/hooks/submission.h"

struct ca_told_call {
	const struct ca_real *real;
	enum ca_flavour flavour;
	CUstream stream;   /* as the program named it */
	CUmemoryPool pool; /* NULL: the current one of the stream's device */
	size_t bytes;
	CUdeviceptr *dptr;
};

/* Of a created stream. NULL: look closer. A hit in the thread's cache says that the process serves,
 * and that the stream does not capture; the driver needs no context for such a stream. */
static inline __attribute__((always_inline)) struct ca_stream *
ca_told_stream_at_once(enum ca_flavour flavour, CUstream handle)
{
	uint64_t word = atomic_load_explicit(&ca_capture_word, memory_order_acquire);
	const struct ca_submission_slot *slot = ca_submission_home(flavour, handle);

	if (__builtin_expect(ca_inside != 0, 0))
		return NULL;
	if (__builtin_expect(slot->handle != handle || slot->word != word, 0)) {
		slot = ca_submission_find(ca_submission_cache->table[flavour], handle, NULL, word);
		if (!slot)
			return NULL;
	}
	return __builtin_expect(ca_told_sees_all(slot->stream), 1) ? slot->stream : NULL;
}

/*
 * A hit of a default stream, of the context that the driver, asked once, says is current. (A hit by
 * the handle alone, in a process of which one context is known, does not tell: none may be current,
 * which the driver refuses, or one whose making was not seen, of another device maybe.)
 */
static inline __attribute__((always_inline)) struct ca_submission_slot *
ca_told_default_hit(enum ca_flavour flavour, CUstream handle)
{
	uint64_t word = atomic_load_explicit(&ca_capture_word, memory_order_acquire);
	struct ca_submission_slot *slot;

	slot = __builtin_expect(ca_inside != 0, 0) ? NULL : ca_submission_last(flavour, handle);
	return slot && slot->word == word ? slot : NULL; /* an empty slot's word is 0 */
}

static inline __attribute__((always_inline)) struct ca_stream *
ca_told_default_stream_at_once(enum ca_flavour flavour, CUstream handle)
{
	const struct ca_submission_slot *slot = ca_told_default_hit(flavour, handle);

	return slot && ca_told_sees_all(slot->stream) ? slot->stream : NULL;
}

/* NULL: the driver serves it; no pool of ours may have been opened at all. */
static inline struct ca_told_pool *
ca_told_pool_named(const struct ca_stream *stream, CUmemoryPool handle)
{
	const struct ca_told *told = ca_told_of(stream);

	return told ? ca_told_pool_of(told, handle) : NULL;
}

/* NULL, likewise, for the pool that the program named, or without one. */
static inline __attribute__((always_inline)) struct ca_told_pool *
ca_told_pool_for(const struct ca_stream *stream, CUmemoryPool named)
{
	return named ? ca_told_pool_named(stream, named)
		     : ca_told_pools_current(ca_told_device_of(stream));
}

/* `stream` NULL: it was not found. False: nothing was done. */
static inline __attribute__((always_inline)) bool
ca_told_alloc_found(struct ca_stream *stream, CUmemoryPool named, size_t bytes, CUdeviceptr *dptr)
{
	struct ca_told_pool *pool;
	uint64_t address;

	if (!stream)
		return false;
	pool = ca_told_pool_for(stream, named);
	if (!pool || !ca_told_alloc_quick(pool, stream, bytes, &address))
		return false;
	*dptr = address;
	return true;
}

static inline __attribute__((always_inline)) bool
ca_told_alloc_at_once(enum ca_flavour flavour, CUstream handle, CUmemoryPool named, size_t bytes,
		      CUdeviceptr *dptr)
{
	return !ca_stream_is_default(handle) &&
	       atomic_load_explicit(&ca_told_on, memory_order_relaxed) && dptr &&
	       ca_told_alloc_found(ca_told_stream_at_once(flavour, handle), named, bytes, dptr);
}

static inline __attribute__((always_inline)) bool
ca_told_default_alloc_at_once(enum ca_flavour flavour, CUstream handle, CUmemoryPool named,
			      size_t bytes, CUdeviceptr *dptr)
{
	return ca_stream_is_default(handle) &&
	       atomic_load_explicit(&ca_told_on, memory_order_relaxed) && dptr &&
	       ca_told_alloc_found(ca_told_default_stream_at_once(flavour, handle), named, bytes,
				   dptr);
}

static inline __attribute__((always_inline)) bool
ca_told_free_found(struct ca_stream *stream, CUdeviceptr dptr)
{
	return stream && ca_told_free_quick(ca_told_of(stream), dptr, stream);
}

static inline __attribute__((always_inline)) bool
ca_told_free_at_once(enum ca_flavour flavour, CUstream handle, CUdeviceptr dptr)
{
	return !ca_stream_is_default(handle) &&
	       atomic_load_explicit(&ca_told_on, memory_order_relaxed) &&
	       ca_told_free_found(ca_told_stream_at_once(flavour, handle), dptr);
}

static inline __attribute__((always_inline)) bool
ca_told_default_free_at_once(enum ca_flavour flavour, CUstream handle, CUdeviceptr dptr)
{
	return ca_stream_is_default(handle) &&
	       atomic_load_explicit(&ca_told_on, memory_order_relaxed) &&
	       ca_told_free_found(ca_told_default_stream_at_once(flavour, handle), dptr);
}

/* False: the driver has to be asked. Otherwise done. */
bool ca_told_alloc_async(const struct ca_told_call *call);
/* An allocation is served. */
static inline bool
ca_told_allocs(const struct ca_told_call *call)
{
	return __builtin_expect(atomic_load_explicit(&ca_told_on, memory_order_relaxed), 0) &&
	       ca_told_alloc_async(call);
}

/* The driver has served an allocation, or a free, by itself. */
void ca_told_driver_allocated(const struct ca_told_call *call, CUresult rc);
static inline void
ca_told_driver_freed(const struct ca_real *real)
{
	if (__builtin_expect(atomic_load_explicit(&ca_told_on, memory_order_relaxed), 0))
		ca_told_pools_foreign_freed(real);
}

/* A free in `stream`, and by a call without one. False: the memory is not ours. *ret_rc: the
 * program's answer. */
bool ca_told_free_async(const struct ca_real *real, CUdeviceptr dptr, CUstream stream,
			enum ca_flavour flavour, CUresult *ret_rc);
bool ca_told_free_host(const struct ca_real *real, CUdeviceptr dptr, CUresult *ret_rc);
/* Puts an operation into a stream that is not tracked, where natively the free would be one
 * (ca_told_put_operation). 0, or the driver's code: the free must not be served. */
CUresult ca_told_operation_untracked(const struct ca_real *real, CUstream handle,
				     enum ca_flavour flavour);
/* Whether the address lies in memory of the told heap. */
bool ca_told_holds(CUdeviceptr dptr, struct ca_told_info *ret_info);
