/* SPDX-License-Identifier: MIT */
/*
 * What a program may expect of the runtime above cudaMalloc, checked on whatever runtime it is
 * linked to. Prints each rule that does not hold and exits with their number. It needs a device
 * with real memory (the simulator).
 */
#include "tests/sim/cudart/cudart_abi.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define RULE(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);            \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

static void
sizes_of_zero(void)
{
	void *p = &failures;
	size_t pitch = 77;

	RULE(cudaFree(NULL) == cudaSuccess);
	RULE(cudaMalloc(&p, 0) == cudaSuccess && p == NULL);
	p = &failures;
	RULE(cudaMallocPitch(&p, &pitch, 0, 5) == cudaSuccess && p == NULL);
	RULE(cudaMalloc(NULL, 5) == cudaErrorInvalidValue);
	RULE(cudaGetLastError() == cudaErrorInvalidValue);
}

static void
last_error_sticks(void)
{
	void *p = &failures;

	RULE(cudaMalloc(&p, (size_t)1 << 62) == cudaErrorMemoryAllocation);
	RULE(p == &failures);
	RULE(cudaMalloc(&p, 100) == cudaSuccess);
	RULE(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
	RULE(cudaGetLastError() == cudaErrorMemoryAllocation);
	RULE(cudaGetLastError() == cudaSuccess);
	RULE(cudaFree((char *)p + 1) == cudaErrorInvalidValue);
	RULE(cudaFree(p) == cudaSuccess);
	RULE(cudaFree(p) == cudaErrorInvalidValue);
	RULE(cudaGetLastError() == cudaErrorInvalidValue);
}

static void
contents(void)
{
	unsigned char host[1000], back[1000];
	cudaStream_t stream;
	void *p = NULL, *q = NULL;

	memset(host, 7, sizeof(host));
	RULE(cudaMalloc(&p, 1000) == cudaSuccess && cudaMallocAsync(&q, 1000, NULL) == cudaSuccess);
	RULE(cudaStreamCreate(&stream) == cudaSuccess);
	RULE(cudaMemcpy(p, host, 1000, cudaMemcpyHostToDevice) == cudaSuccess);
	RULE(cudaMemcpy(q, p, 1000, cudaMemcpyDefault) == cudaSuccess);
	RULE(cudaMemset(p, 9, 500) == cudaSuccess);
	/* The per-thread default stream and `stream` do not wait for each other. */
	RULE(cudaStreamSynchronize(NULL) == cudaSuccess);
	RULE(cudaMemcpyAsync(back, q, 1000, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
	RULE(cudaStreamSynchronize(stream) == cudaSuccess && !memcmp(host, back, 1000));
	memset(host, 9, 500);
	RULE(cudaMemcpy(back, p, 1000, cudaMemcpyDeviceToHost) == cudaSuccess &&
	     !memcmp(host, back, 1000));
	RULE(cudaMemcpy(p, host, 10, (enum cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection);
	RULE(cudaFreeAsync(q, stream) == cudaSuccess && cudaFree(p) == cudaSuccess);
	RULE(cudaStreamDestroy(stream) == cudaSuccess);
	RULE(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
}

static void
events(void)
{
	cudaStream_t a, b;
	cudaEvent_t event;

	RULE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
	RULE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
	RULE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
	RULE(cudaEventRecord(event, a) == cudaSuccess);
	RULE(cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
	RULE(cudaEventSynchronize(event) == cudaSuccess && cudaEventQuery(event) == cudaSuccess);
	RULE(cudaEventDestroy(event) == cudaSuccess);
	RULE(cudaStreamDestroy(a) == cudaSuccess && cudaStreamDestroy(b) == cudaSuccess);
}

static void
pointer_attributes(void)
{
	struct cudaPointerAttributes at;
	void *p, *m, *h;

	RULE(cudaMalloc(&p, 4096) == cudaSuccess);
	RULE(cudaMallocManaged(&m, 4096, cudaMemAttachGlobal) == cudaSuccess);
	RULE(cudaMallocHost(&h, 4096) == cudaSuccess);
	RULE(cudaPointerGetAttributes(&at, p) == cudaSuccess && at.type == cudaMemoryTypeDevice);
	RULE(at.device == 0 && at.devicePointer == p && at.hostPointer == NULL);
	RULE(cudaPointerGetAttributes(&at, m) == cudaSuccess && at.type == cudaMemoryTypeManaged);
	RULE(cudaPointerGetAttributes(&at, h) == cudaSuccess && at.type == cudaMemoryTypeHost);
	RULE(at.hostPointer == h);
	RULE(cudaPointerGetAttributes(&at, &failures) == cudaSuccess);
	RULE(at.type == cudaMemoryTypeUnregistered && at.device == cudaInvalidDeviceId);
	RULE(cudaFree(p) == cudaSuccess && cudaFree(m) == cudaSuccess &&
	     cudaFreeHost(h) == cudaSuccess);
}

static void
devices(void)
{
	struct cudaDeviceProp prop;
	size_t free_bytes, total_bytes;
	int n = 0, device = 77, version = 0;

	RULE(cudaGetDeviceCount(&n) == cudaSuccess && n >= 1);
	RULE(cudaGetDevice(&device) == cudaSuccess && device == 0);
	RULE(cudaSetDevice(n) == cudaErrorInvalidDevice &&
	     cudaGetLastError() == cudaErrorInvalidDevice);
	RULE(cudaGetDevice(&device) == cudaSuccess && device == 0);
	RULE(cudaGetDeviceProperties(&prop, 0) == cudaSuccess && prop.name[0] &&
	     prop.warpSize == 32);
	RULE(cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess && free_bytes <= total_bytes);
	RULE(prop.totalGlobalMem == total_bytes);
	RULE(cudaDriverGetVersion(&version) == cudaSuccess && version >= 13000);
	RULE(cudaRuntimeGetVersion(&version) == cudaSuccess && version == 13000);
	if (n < 2)
		return;
	RULE(cudaSetDevice(1) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess &&
	     device == 1);
	RULE(cudaSetDevice(0) == cudaSuccess);
}

static void *
other_thread(void *arg)
{
	int device = 77;
	void *p;

	RULE(cudaGetLastError() == cudaSuccess);
	RULE(cudaGetDevice(&device) == cudaSuccess && device == 0);
	RULE(cudaMalloc(&p, 64) == cudaSuccess && cudaFree(p) == cudaSuccess);
	return arg;
}

static void
threads(void)
{
	pthread_t thread;

	RULE(cudaSetDevice(-1) == cudaErrorInvalidDevice);
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	RULE(cudaGetLastError() == cudaErrorInvalidDevice);
}

static pthread_barrier_t barrier;

static void *
thread_across_reset(void *arg)
{
	void *p;

	RULE(cudaMalloc(&p, 64) == cudaSuccess);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	RULE(cudaFree(p) == cudaErrorInvalidValue);
	RULE(cudaMalloc(&p, 64) == cudaSuccess && cudaMemset(p, 1, 64) == cudaSuccess);
	RULE(cudaDeviceSynchronize() == cudaSuccess && cudaFree(p) == cudaSuccess);
	return arg;
}

/* A thread that was in the context when another reset the device and entered the new one. */
static void
reset_beside_a_thread(void)
{
	pthread_t thread;
	void *p;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, thread_across_reset, NULL);
	pthread_barrier_wait(&barrier);
	RULE(cudaDeviceReset() == cudaSuccess);
	RULE(cudaMalloc(&p, 64) == cudaSuccess);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	RULE(cudaFree(p) == cudaSuccess);
}

static void
reset(void)
{
	void *p = NULL, *q = NULL;

	RULE(cudaMalloc(&p, 1 << 20) == cudaSuccess);
	RULE(cudaDeviceReset() == cudaSuccess);
	RULE(cudaFree(p) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
	RULE(cudaMalloc(&q, 1 << 20) == cudaSuccess && cudaMemset(q, 1, 1 << 20) == cudaSuccess);
	RULE(cudaDeviceSynchronize() == cudaSuccess && cudaFree(q) == cudaSuccess);
}

int
main(void)
{
	sizes_of_zero();
	last_error_sticks();
	contents();
	events();
	pointer_attributes();
	devices();
	threads();
	reset();
	reset_beside_a_thread();
	return failures;
}
