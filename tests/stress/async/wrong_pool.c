/* SPDX-License-Identifier: MIT */
/*
 * A preload that proves the asynchronous program: stream-ordered memory that was freed is the next
 * of its size in its context at once, on any stream, whatever still runs on it. The program has to
 * fail on it. Graph memory, captures and cuMemAlloc are the driver's.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "shim/bind/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	BLOCKS_MAX = 4096, /* live or kept; others go to the driver */
	NOT_CAPTURING = 0, /* CUstreamCaptureStatus */
};

static struct kept {
	CUdeviceptr ptr; /* 0: no block */
	size_t n_bytes;
	CUmemoryPool pool;
	CUcontext ctx;
	bool free;
} blocks[BLOCKS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards it */

static CUcontext
context(void)
{
	CUresult (*current)(CUcontext *);
	CUcontext ctx = NULL;

	*(void **)&current = dlsym(RTLD_NEXT, "cuCtxGetCurrent");
	current(&ctx);
	return ctx;
}

static bool
captures(CUstream stream, const char *name)
{
	CUresult (*status)(CUstream, int *);
	int answer = NOT_CAPTURING;

	*(void **)&status = dlsym(RTLD_NEXT, name);
	return status(stream, &answer) || answer != NOT_CAPTURING;
}

static CUdeviceptr
kept_take(size_t n_bytes, CUmemoryPool pool, CUcontext ctx)
{
	CUdeviceptr ptr = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS_MAX && !ptr; i++) {
		struct kept *b = &blocks[i];

		if (!b->ptr || !b->free || b->n_bytes != n_bytes || b->pool != pool ||
		    b->ctx != ctx)
			continue;
		b->free = false;
		ptr = b->ptr;
	}
	pthread_mutex_unlock(&lock);
	return ptr;
}

static void
kept_note(CUdeviceptr ptr, size_t n_bytes, CUmemoryPool pool, CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS_MAX; i++) {
		if (blocks[i].ptr)
			continue;
		blocks[i] = (struct kept){ ptr, n_bytes, pool, ctx, false };
		break;
	}
	pthread_mutex_unlock(&lock);
}

static bool
kept_free(CUdeviceptr ptr)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS_MAX && !found; i++)
		if (blocks[i].ptr == ptr)
			found = blocks[i].free = true;
	pthread_mutex_unlock(&lock);
	return found;
}

#define ALLOC_ASYNC(name, capturing)                                                               \
	CUresult name(CUdeviceptr *ptr, size_t n_bytes, CUstream stream);                          \
	EXPORT CUresult name(CUdeviceptr *ptr, size_t n_bytes, CUstream stream)                    \
	{                                                                                          \
		CUresult (*real)(CUdeviceptr *, size_t, CUstream);                                 \
		CUcontext ctx = context();                                                         \
		CUresult code;                                                                     \
                                                                                                   \
		*(void **)&real = dlsym(RTLD_NEXT, #name);                                         \
		if (captures(stream, capturing))                                                   \
			return real(ptr, n_bytes, stream);                                         \
		*ptr = kept_take(n_bytes, NULL, ctx);                                              \
		if (*ptr)                                                                          \
			return CUDA_SUCCESS;                                                       \
		code = real(ptr, n_bytes, stream);                                                 \
		if (!code)                                                                         \
			kept_note(*ptr, n_bytes, NULL, ctx);                                       \
		return code;                                                                       \
	}
ALLOC_ASYNC(cuMemAllocAsync, "cuStreamIsCapturing")
ALLOC_ASYNC(cuMemAllocAsync_ptsz, "cuStreamIsCapturing_ptsz")

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t n_bytes, CUmemoryPool pool,
				 CUstream stream);

EXPORT CUresult
cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t n_bytes, CUmemoryPool pool, CUstream stream)
{
	CUresult (*real)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
	CUcontext ctx = context();
	CUresult code;

	*(void **)&real = dlsym(RTLD_NEXT, "cuMemAllocFromPoolAsync");
	*ptr = kept_take(n_bytes, pool, ctx);
	if (*ptr)
		return CUDA_SUCCESS;
	code = real(ptr, n_bytes, pool, stream);
	if (!code)
		kept_note(*ptr, n_bytes, pool, ctx);
	return code;
}

#define FREE_ASYNC(name)                                                                           \
	CUresult name(CUdeviceptr ptr, CUstream stream);                                           \
	EXPORT CUresult name(CUdeviceptr ptr, CUstream stream)                                     \
	{                                                                                          \
		CUresult (*real)(CUdeviceptr, CUstream);                                           \
                                                                                                   \
		*(void **)&real = dlsym(RTLD_NEXT, #name);                                         \
		if (captures(stream, "cuStreamIsCapturing"))                                       \
			return real(ptr, stream);                                                  \
		return kept_free(ptr) ? CUDA_SUCCESS : real(ptr, stream);                          \
	}
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

CUresult cuMemFree_v2(CUdeviceptr ptr);

EXPORT CUresult
cuMemFree_v2(CUdeviceptr ptr)
{
	CUresult (*real)(CUdeviceptr);

	*(void **)&real = dlsym(RTLD_NEXT, "cuMemFree_v2");
	return kept_free(ptr) ? CUDA_SUCCESS : real(ptr);
}
