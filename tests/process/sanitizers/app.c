/* SPDX-License-Identifier: MIT */
/*
 * A CUDA program without a fault, to be built with a sanitizer (test_sanitizers.py). Three threads
 * allocate, submit to streams of their own and to one that they share, record, wait, free and
 * allocate again; some memory is freed by another thread than the one that allocated it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/process/driver_api.h"

enum { THREADS = 3, ROUNDS = 200, KEPT = 8 };

static CUcontext context;
static CUstream shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUdeviceptr handed[THREADS]; /* under `lock` */

static void
check(CUresult rc, const char *call)
{
	if (rc == CUDA_SUCCESS)
		return;
	printf("%s: %d\n", call, (int)rc);
	exit(1);
}

#define CHECK(call) check(call, #call)

/* Leaves `mine` for the next thread if nothing waits there, and frees what was left for this one.
 */
static void
hand_over(int self, CUdeviceptr mine)
{
	int next = (self + 1) % THREADS;
	CUdeviceptr theirs;

	pthread_mutex_lock(&lock);
	theirs = handed[self];
	handed[self] = 0;
	if (!handed[next]) {
		handed[next] = mine;
		mine = 0;
	}
	pthread_mutex_unlock(&lock);
	if (theirs)
		CHECK(cuMemFree_v2(theirs));
	if (mine)
		CHECK(cuMemFree_v2(mine));
}

static void
one_round(int self, int i, CUstream stream, CUevent event, CUdeviceptr *slot)
{
	size_t bytes = (size_t)512 << (i % 12);
	CUdeviceptr other = 0;

	if (*slot)
		CHECK(cuMemFree_v2(*slot));
	CHECK(cuMemAlloc_v2(slot, bytes));
	CHECK(cuMemsetD8Async(*slot, 1, bytes, i % 3 ? stream : shared));
	CHECK(cuEventRecord(event, stream));
	CHECK(cuStreamWaitEvent(shared, event, 0));
	CHECK(cuMemAlloc_v2(&other, 4096));
	CHECK(cuMemsetD8Async(other, 2, 4096, NULL));
	hand_over(self, other);
	if (i % 16 == 0)
		CHECK(cuStreamSynchronize(stream));
}

static void *
work(void *arg)
{
	int self = (int)(long)arg;
	CUdeviceptr kept[KEPT] = { 0 };
	CUstream stream = NULL;
	CUevent event = NULL;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&stream, 1));
	CHECK(cuEventCreate(&event, 2));
	for (int i = 0; i < ROUNDS; i++)
		one_round(self, i, stream, event, &kept[i % KEPT]);
	for (int i = 0; i < KEPT; i++)
		CHECK(cuMemFree_v2(kept[i]));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuEventDestroy_v2(event));
	CHECK(cuStreamDestroy_v2(stream));
	return NULL;
}

int
main(void)
{
	pthread_t threads[THREADS];
	CUdevice device = 0;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&shared, 1));
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 2;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		if (handed[i])
			CHECK(cuMemFree_v2(handed[i]));
	CHECK(cuCtxSynchronize());
	puts("done");
	return 0;
}
