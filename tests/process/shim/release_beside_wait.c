/* SPDX-License-Identifier: MIT */
/*
 * release_beside_wait [detach]: an allocation waits for a kernel, which waits for a word that
 * another thread stores after it has given back one of two usages of the context. Natively the free
 * before that allocation waits; either way it ends once the word is stored.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/process/driver_api.h"

enum { NON_BLOCKING = 1, PAUSE_MS = 200 };

#define FREED ((size_t)700 << 20)
#define WANTED ((size_t)800 << 20) /* of 1 GiB: not besides */

static CUcontext context;
static _Atomic uint32_t *word;
static int detaches;

static void
check(int rc)
{
	if (!rc)
		return;
	printf("code %d\n", rc);
	exit(1);
}

static void
pause_ms(long ms)
{
	const struct timespec time = { .tv_nsec = ms * 1000000 };

	nanosleep(&time, NULL);
}

static void *
release_and_store(void *ignored)
{
	CUcontext same = context;

	check(cuCtxSetCurrent(context));
	check(detaches ? cuCtxAttach(&same, 0) : cuDevicePrimaryCtxRetain(&same, 0));
	pause_ms(PAUSE_MS); /* so that the other thread waits */
	check(detaches ? cuCtxDetach(same) : cuDevicePrimaryCtxRelease(0));
	atomic_store(word, 1);
	return NULL;
}

int
main(int argc, char **argv)
{
	const unsigned long wanted = 1;
	unsigned long words = 1024, value = 1, spin = 0;
	CUdeviceptr memory, again, at;
	void *host, *module, *fill, *wait;
	pthread_t thread;
	CUstream stream;

	detaches = argc > 1 && !strcmp(argv[1], "detach");
	check(cuInit(0));
	check(detaches ? cuCtxCreate_v2(&context, 0, 0) : cuDevicePrimaryCtxRetain(&context, 0));
	check(cuCtxSetCurrent(context));
	check(cuModuleLoadData(&module, "simcuda"));
	check(cuModuleGetFunction(&fill, module, "sim_fill"));
	check(cuModuleGetFunction(&wait, module, "sim_wait"));
	check(cuMemHostAlloc(&host, sizeof(*word), 0));
	word = host;
	atomic_init(word, 0);
	at = (CUdeviceptr)(uintptr_t)host;
	check(cuStreamCreate(&stream, NON_BLOCKING));
	check(cuMemAlloc_v2(&memory, FREED));
	check(pthread_create(&thread, NULL, release_and_store, NULL));
	pause_ms(PAUSE_MS / 4);
	check(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream,
			     (void *[]){ &memory, &words, &value, &spin }, NULL));
	check(cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){ &at, (void *)&wanted },
			     NULL));
	check(cuMemFree_v2(memory));
	check(cuMemAlloc_v2(&again, WANTED));
	check(pthread_join(thread, NULL));
	return 0;
}
