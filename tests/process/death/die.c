/* SPDX-License-Identifier: MIT */
/*
 * die WAY THREADS: some work in each thread, and then an end by WAY (see ways[]).
 * die loop THREADS FILE: the same work until killed; FILE receives what each thread has done, in
 * words: allocations begun and ended, frees begun and ended.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/shim/cases.h"

enum { THREADS_MAX = 16, STEPS = 300, LIVE = 8 };

struct done {
	_Atomic uint64_t allocs_begun, allocs, frees_begun, frees;
};

static CUcontext context;
static struct done nobody[THREADS_MAX], *done = nobody;
static unsigned threads;
static bool forever;
static pthread_barrier_t worked;

/* Sizes come back, so most of it is served by the cache; every thread does the same each time. */
static void
work(unsigned thread)
{
	CUdeviceptr live[LIVE] = { 0 };
	struct done *mine = &done[thread];
	unsigned i;

	OK(cuCtxSetCurrent(context));
	for (i = 0; forever || i < STEPS; i++) {
		CUdeviceptr *at = &live[i * 7 % LIVE];

		if (*at) {
			atomic_fetch_add(&mine->frees_begun, 1);
			OK(cuMemFree_v2(*at));
			atomic_fetch_add(&mine->frees, 1);
		}
		atomic_fetch_add(&mine->allocs_begun, 1);
		OK(cuMemAlloc_v2(at, (size_t)4096 * (1 + i % 5) + thread));
		atomic_fetch_add(&mine->allocs, 1);
	}
}

static void *
run(void *argument)
{
	work((unsigned)(uintptr_t)argument);
	pthread_barrier_wait(&worked);
	for (;;)
		pause();
	return NULL;
}

/* By the other roads: stream-ordered and page-locked memory, and a stream that uses what is freed.
 */
static void
work_elsewhere(void)
{
	CUdeviceptr address, other;
	CUstream stream, second;
	void *host;

	OK(cuStreamCreate(&stream, 1 /* non-blocking */));
	OK(cuStreamCreate(&second, 1 /* non-blocking */));
	for (unsigned i = 0; i < 20; i++) {
		OK(cuMemAllocAsync(&address, (size_t)(1 + i % 3) << 20, stream));
		OK(cuMemFreeAsync(address, stream));
		OK(cuMemHostAlloc(&host, 4096, 0));
		OK(cuMemFreeHost(host));
		OK(cuMemAlloc_v2(&address, 3 << 20));
		OK(cuMemAlloc_v2(&other, 3 << 20));
		OK(cuMemsetD8Async(address, 1, 3 << 20, stream));
		OK(cuMemsetD8Async(other, 1, 3 << 20, i % 2 ? stream : second));
		OK(cuMemFree_v2(address));
		OK(cuMemFree_v2(other));
		if (i % 5 == 4)
			OK(cuCtxSynchronize());
	}
}

static void
work_in_threads(void)
{
	pthread_t thread;
	uintptr_t i;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	for (i = 1; i < threads; i++)
		if (pthread_create(&thread, NULL, run, (void *)i))
			exit(1);
	if (forever)
		work(0);
	pthread_barrier_wait(&worked);
	work(0); /* alone, and last */
	work_elsewhere();
}

static void
by_signal(int number)
{
	kill(getpid(), number);
	for (;;)
		pause();
}

static void
end_exit(void)
{
	exit(0);
}

static void
end_underscore(void)
{
	_exit(0);
}

static void
end_quick(void)
{
	quick_exit(0);
}

static void
end_kill(void)
{
	by_signal(SIGKILL);
}

static void
end_term(void)
{
	by_signal(SIGTERM);
}

static void
end_interrupt(void)
{
	by_signal(SIGINT);
}

static void
end_segv(void)
{
	by_signal(SIGSEGV);
}

static void
end_bus(void)
{
	by_signal(SIGBUS);
}

static void
end_abort(void)
{
	abort();
}

static void
end_exec(void)
{
	execl("/bin/true", "true", (char *)NULL);
}

/* A child that was forked from the process at work does not count for it. */
static void
end_parent_of_child(void)
{
	pid_t child = fork();

	if (!child) {
		CUdeviceptr address;

		(void)cuMemAlloc_v2(&address, 4096); /* natively refused in a child */
		_exit(0);
	}
	waitpid(child, NULL, 0);
	by_signal(SIGKILL);
}

/* It has been told to end, and does so only after these calls. */
static void *
run_cancelled(void *argument)
{
	CUdeviceptr address;

	pthread_cancel(pthread_self());
	OK(cuCtxSetCurrent(context));
	OK(cuMemAlloc_v2(&address, 4096));
	OK(cuMemFree_v2(address));
	return NULL;
}

/* Its first call is the process's, or has a place to make for its own counts. */
static void
cancel_thread(void)
{
	pthread_t thread;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	if (pthread_create(&thread, NULL, run_cancelled, NULL) || pthread_join(thread, NULL))
		exit(1);
}

static void
end_cancelled(void)
{
	cancel_thread();
	by_signal(SIGKILL);
}

static const struct {
	const char *name;
	void (*end)(void);
} ways[] = {
	{ "exit", end_exit },
	{ "underscore", end_underscore },
	{ "quick", end_quick },
	{ "kill", end_kill },
	{ "term", end_term },
	{ "interrupt", end_interrupt },
	{ "segv", end_segv },
	{ "bus", end_bus },
	{ "abort", end_abort },
	{ "exec", end_exec },
	{ "parent", end_parent_of_child },
	{ "cancelled", end_cancelled },
};

static void *
map(const char *file)
{
	size_t bytes = THREADS_MAX * sizeof(*done);
	int fd = open(file, O_RDWR | O_CREAT, 0600);
	void *memory;

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		exit(1);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		exit(1);
	return memory;
}

int
main(int argc, char **argv)
{
	unsigned i;

	if (argc < 3)
		return 2;
	threads = (unsigned)strtoul(argv[2], NULL, 10);
	if (!threads || threads > THREADS_MAX || pthread_barrier_init(&worked, NULL, threads))
		return 2;
	if (!strcmp(argv[1], "loop") && argc > 3) {
		done = map(argv[3]);
		forever = true;
		work_in_threads();
	}
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(argv[1], ways[i].name)) {
			if (ways[i].end == end_cancelled)
				cancel_thread();
			work_in_threads();
			ways[i].end();
		}
	return 2;
}
