/* SPDX-License-Identifier: MIT */
/*
 * Two preloads that prove the random program (direct links only; not thread-safe beyond one lock).
 *
 *   default         reuses at once: a freed block is the next one of its size, whatever still runs
 * on it. The program has to fail on it. -DWRONG_LEAK    never frees: no address comes back and no
 * free waits for anything. The program has to have no race on it, or its own order is wrong.
 */
#include "shim/bind/cuda_abi.h"

#include <dlfcn.h>
#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

enum {
	BLOCKS_MAX = 4096, /* ever seen; later ones go to the driver */
};

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t n_bytes);
CUresult cuMemFree_v2(CUdeviceptr ptr);
CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream);
CUresult cuCtxGetCurrent(CUcontext *ctx);

static struct {
	CUdeviceptr ptr;
	size_t n_bytes;
	CUcontext ctx;
	int free;
} blocks[BLOCKS_MAX];
static int n_blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards both */

EXPORT CUresult
cuMemAlloc_v2(CUdeviceptr *ptr, size_t n_bytes)
{
	CUresult (*real)(CUdeviceptr *, size_t);
	CUresult (*current)(CUcontext *);
	CUcontext ctx = NULL;
	CUresult code;

	*(void **)&real = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	*(void **)&current = dlsym(RTLD_NEXT, "cuCtxGetCurrent");
	current(&ctx);
	pthread_mutex_lock(&lock);
	for (int i = n_blocks - 1; i >= 0; i--) {
		if (!blocks[i].free || blocks[i].n_bytes != n_bytes || blocks[i].ctx != ctx)
			continue;
		blocks[i].free = 0;
		*ptr = blocks[i].ptr;
		pthread_mutex_unlock(&lock);
		return CUDA_SUCCESS;
	}
	code = real(ptr, n_bytes);
#ifndef WRONG_LEAK
	if (code == CUDA_SUCCESS && n_blocks < BLOCKS_MAX) {
		blocks[n_blocks].ptr = *ptr;
		blocks[n_blocks].n_bytes = n_bytes;
		blocks[n_blocks++].ctx = ctx;
	}
#endif
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult
cuMemFree_v2(CUdeviceptr ptr)
{
#ifndef WRONG_LEAK
	CUresult (*real)(CUdeviceptr);

	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_blocks; i++) {
		if (blocks[i].ptr == ptr) {
			blocks[i].free = 1;
			pthread_mutex_unlock(&lock);
			return CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&lock);
	*(void **)&real = dlsym(RTLD_NEXT, "cuMemFree_v2");
	return real(ptr);
#else
	return CUDA_SUCCESS;
#endif
}

EXPORT CUresult
cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return cuMemFree_v2(ptr);
}
