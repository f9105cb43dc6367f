/* SPDX-License-Identifier: MIT */
/* Programs whose trace is known: what they do with memory they print, where that is short. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/shim/cases.h"

static CUdeviceptr
take(size_t bytes)
{
	CUdeviceptr pointer;

	OK(cuMemAlloc_v2(&pointer, bytes));
	printf("alloc %llx %zu\n", (unsigned long long)pointer, bytes);
	return pointer;
}

static void
give(CUdeviceptr pointer)
{
	OK(cuMemFree_v2(pointer));
	printf("free %llx\n", (unsigned long long)pointer);
}

/* Every way in which memory comes and goes; on a device of 64 MiB. */
static void
steps(void)
{
	CUdeviceptr small, large, pitch, refused;
	size_t row;

	case_start();
	small = take(1);
	large = take(33 * MIB);
	OK(cuMemAllocPitch_v2(&pitch, &row, 1000, 30, 4));
	printf("adopt %llx %d\n", (unsigned long long)pitch, 30000);
	EXPECT(cuMemAlloc_v2(&refused, 48 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	printf("failed %d\n", 48 * MIB);
	give(small);
	give(take(700)); /* where the other was */
	EXPECT(cuMemFree_v2(small) == CUDA_ERROR_INVALID_VALUE);
	give(pitch);
	give(large);
	take(40 * MIB); /* for which the other one has to go */
}

/* Whose work may still touch what is freed; nothing finishes by itself. */
static void
users(void)
{
	CUstream one, two;
	CUdeviceptr block[4];

	case_start();
	OK(cuStreamCreate(&one, 1));
	OK(cuStreamCreate(&two, 1));
	for (int i = 0; i < 4; i++)
		block[i] = take(4096);
	case_fill(block[0], 1024, 1, 0, one);
	OK(cuMemFree_v2(block[0]));
	case_fill(block[1], 1024, 1, 0, two);
	OK(cuMemFree_v2(block[1]));
	OK(cuStreamSynchronize(one));
	OK(cuMemFree_v2(block[2]));
	OK(cuCtxSynchronize());
	OK(cuMemFree_v2(block[3]));
}

/* Memory that a graph may use for as long as it exists. */
static void
captured(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr during;
	CUstream stream;
	CUgraph graph;

	case_start();
	case_kernel("sim_fill");
	OK(cuStreamCreate(&stream, 1));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAlloc_v2(&during, 4096));
	case_fill(during, 1024, 1, 0, stream);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuMemFree_v2(during));
}

/* The driver does not take the memory back at first. */
static void
free_that_fails(void)
{
	CUdeviceptr pitch;
	size_t row;

	case_start();
	OK(cuMemAllocPitch_v2(&pitch, &row, 1000, 30, 4));
	EXPECT(cuMemFree_v2(pitch) != CUDA_SUCCESS);
	OK(cuMemFree_v2(pitch));
}

/* A context goes with its memory. */
static void
contexts(void)
{
	CUcontext first = case_context(0), second;
	CUdeviceptr pointer;

	OK(cuMemAlloc_v2(&pointer, 1000));
	second = case_context(0);
	OK(cuMemAlloc_v2(&pointer, 2000));
	OK(cuCtxDestroy_v2(first));
	OK(cuMemAlloc_v2(&pointer, 3000));
	OK(cuCtxDestroy_v2(second));
}

static void
pairs(unsigned n)
{
	CUdeviceptr pointer;

	for (unsigned i = 0; i < n; i++) {
		OK(cuMemAlloc_v2(&pointer, 512 + 512 * (i % 7)));
		OK(cuMemFree_v2(pointer));
	}
}

enum { MANY = 10000 };

static void
many(void)
{
	case_start();
	pairs(MANY);
}

static void
killed(void)
{
	case_start();
	pairs(MANY);
	raise(SIGKILL);
}

/* ---- eight threads that hand memory to each other */

enum { THREADS = 8, SLOTS = 16, TURNS = 4000, FEW_TURNS = 200 };

static _Atomic CUdeviceptr slots[SLOTS];
static CUcontext shared_context;
static int turns;

static void *
work(void *arg)
{
	unsigned random = *(unsigned *)arg;

	OK(cuCtxSetCurrent(shared_context));
	for (int i = 0; i < turns; i++) {
		static const size_t sizes[] = { 100, 512, 5000, 1 << 20, 3 << 20 };
		unsigned number = (unsigned)rand_r(&random);
		CUdeviceptr block, old;

		OK(cuMemAlloc_v2(&block, sizes[number % 5]));
		old = atomic_exchange(&slots[number / 8 % SLOTS], block);
		if (old)
			OK(cuMemFree_v2(old));
	}
	return NULL;
}

static void
play(int each)
{
	pthread_t thread[THREADS];
	unsigned seed[THREADS];

	turns = each;
	shared_context = case_start();
	for (unsigned i = 0; i < THREADS; i++) {
		seed[i] = i + 1;
		EXPECT(!pthread_create(&thread[i], NULL, work, &seed[i]));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < SLOTS; i++)
		if (slots[i])
			OK(cuMemFree_v2(slots[i]));
}

static void
team(void)
{
	play(TURNS);
}

static void
team_for_short(void)
{
	play(FEW_TURNS);
}

/* ---- processes */

static void
wait_for(pid_t child)
{
	int status;

	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Child and parent each begin for themselves; the child's are the larger ones. */
static void
fork_first(void)
{
	CUdeviceptr pointer;
	pid_t child = fork();

	case_start();
	OK(cuMemAlloc_v2(&pointer, child ? 1000 : 2000));
	OK(cuMemFree_v2(pointer));
	if (!child)
		exit(0);
	wait_for(child);
}

/* What is in the parent's buffers is the parent's. */
static void
fork_after(void)
{
	CUdeviceptr pointer;
	pid_t child;

	case_start();
	pairs(10);
	child = fork();
	if (!child) {
		EXPECT(cuMemAlloc_v2(&pointer, 5000) != CUDA_SUCCESS);
		exit(0);
	}
	pairs(10);
	wait_for(child);
}

/* As a daemon does: what it opens then may get the number of the trace. */
static void
close_everything(void)
{
	int fd;

	for (fd = 3; fd < 1024; fd++)
		close(fd);
	for (fd = 3; fd < 1024; fd++) {
		char name[32];

		snprintf(name, sizeof(name), "own.%d", fd);
		if (open(name, O_WRONLY | O_CREAT | O_EXCL, 0600) < 0)
			break;
	}
}

static void
closes(void)
{
	case_start();
	pairs(100);
	close_everything();
	EXPECT(!chdir("/"));
	pairs(MANY);
}

static void
closes_and_removes(void)
{
	case_start();
	pairs(100);
	close_everything();
	EXPECT(!unlink("t.trace"));
	pairs(MANY);
}

/* No room for the trace from some moment on. */
static void
no_room(void)
{
	struct rlimit limit = { 20000, 20000 };

	case_start();
	EXPECT(!setrlimit(RLIMIT_FSIZE, &limit));
	pairs(MANY);
}

#define CASE(name)                                                                                 \
	{                                                                                          \
#name, name                                                                        \
	}

const struct test_case test_cases[] = {
	CASE(steps),
	CASE(users),
	CASE(captured),
	CASE(free_that_fails),
	CASE(contexts),
	CASE(many),
	CASE(killed),
	CASE(team),
	CASE(team_for_short),
	CASE(fork_first),
	CASE(fork_after),
	CASE(closes),
	CASE(closes_and_removes),
	CASE(no_room),
	{ NULL, NULL },
};
