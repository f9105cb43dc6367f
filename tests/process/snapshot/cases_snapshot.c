/* SPDX-License-Identifier: MIT */
/* Programs whose memory is known when a snapshot is taken: they print the blocks that they have. */
#include <errno.h>
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

	errno = 77;
	OK(cuMemAlloc_v2(&pointer, bytes));
	EXPECT(errno == 77);
	return pointer;
}

static CUdeviceptr
keep(size_t bytes)
{
	CUdeviceptr pointer = take(bytes);

	printf("live %llx %zu\n", (unsigned long long)pointer, bytes);
	return pointer;
}

static void
give(CUdeviceptr pointer)
{
	errno = 77;
	OK(cuMemFree_v2(pointer));
	EXPECT(errno == 77);
}

static bool
is_there(const char *name)
{
	return access(name, F_OK) == 0;
}

/* Blocks of every state; nothing finishes by itself. */
static void
states(void)
{
	CUdeviceptr pitch, used, unused;
	CUstream stream;
	size_t row;

	case_start();
	OK(cuStreamCreate(&stream, 1));
	keep(1);
	keep(33 * MIB);
	keep(5 * MIB);
	OK(cuMemAllocPitch_v2(&pitch, &row, 1000, 30, 4));
	printf("live %llx %d\n", (unsigned long long)pitch, 30000);
	unused = take(700);
	used = take(3 * MIB);
	case_fill(used, 1, 0, 0, stream);
	give(used);
	give(unused);
	printf("waits %llx %d\n", (unsigned long long)used, 3 * MIB);
	EXPECT(!raise(SIGUSR1));
	keep(100);
	fflush(stdout);
	_exit(0);
}

/* 40 MiB are refused on a device of 64, and then there is less. */
static void
refused(void)
{
	CUdeviceptr large, pointer;

	case_start();
	large = keep(34 * MIB);
	keep(600);
	errno = 77;
	EXPECT(cuMemAlloc_v2(&pointer, 40 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(errno == 77);
	EXPECT(!is_there("oom.pickle") || is_there("1.pickle"));
	give(large);
}

/* The most is reserved in the middle. */
static void
peak(void)
{
	CUdeviceptr block[3];

	case_start();
	block[0] = keep(30 * MIB);
	block[1] = keep(40 * MIB);
	block[2] = keep(50 * MIB);
	give(block[0]);
	give(block[1]);
	OK(cuCtxSynchronize());
	give(block[2]);
	take(20 * MIB);
}

static volatile sig_atomic_t handled, with_info;

static void
on_signal(int number)
{
	handled++;
}

static void
on_signal_info(int number, siginfo_t *info, void *context)
{
	handled++;
	with_info += info && info->si_signo == number && context;
}

/* The program's own handler goes on being called; the file comes with the next call. */
static void
chained(void)
{
	struct sigaction own = { .sa_flags = SA_SIGINFO, .sa_sigaction = on_signal_info };

	EXPECT(!sigaction(SIGUSR1, &own, NULL));
	EXPECT(signal(SIGUSR2, on_signal) == SIG_DFL);
	case_start();
	keep(1000);
	EXPECT(!raise(SIGUSR1) && handled == 1 && with_info == 1);
	EXPECT(!raise(SIGUSR2) && handled == 2);
	EXPECT(!is_there("1.pickle"));
	keep(2000);
	EXPECT(is_there("1.pickle") && is_there("2.pickle") && !is_there("3.pickle"));
}

/* SA_SIGINFO says how a handler is called, and there is none. */
static void
ignored(void)
{
	struct sigaction own = { .sa_flags = SA_SIGINFO };

	own.sa_handler = SIG_IGN;
	EXPECT(!sigaction(SIGUSR1, &own, NULL));
	case_start();
	keep(1000);
	EXPECT(!raise(SIGUSR1));
	EXPECT(!is_there("1.pickle"));
	OK(cuCtxSynchronize());
	EXPECT(is_there("1.pickle"));
}

/* A signal that would end the program does not, once the library is in use; three are one. */
static void
alone(void)
{
	case_start();
	keep(1000);
	for (int i = 0; i < 3; i++)
		EXPECT(!raise(SIGUSR2));
	EXPECT(!is_there("1.pickle"));
	OK(cuCtxSynchronize());
	EXPECT(is_there("1.pickle") && !is_there("2.pickle"));
}

/* Without a hooked call the signal does what it always does. */
static void
too_early(void)
{
	raise(SIGUSR1);
}

/* ---- threads that each have SLOTS blocks, or one more, at any moment */

enum { THREADS = 4, SLOTS = 2000, TURNS = 3000, SIGNALS = 12, SIZES = 20 };

static CUcontext shared_context;
static pthread_barrier_t all_have_theirs;
static atomic_bool enough;

static void *
work(void *arg)
{
	unsigned random = *(unsigned *)arg;
	CUdeviceptr block[SLOTS];

	OK(cuCtxSetCurrent(shared_context));
	for (int i = 0; i < SLOTS; i++)
		OK(cuMemAlloc_v2(&block[i], 1000 + 512 * (size_t)(i % SIZES)));
	pthread_barrier_wait(&all_have_theirs);
	for (int i = 0; i < TURNS || !enough; i++) {
		unsigned slot = (random = random * 1103515245 + 12345) / 65536 % SLOTS;
		CUdeviceptr next;

		OK(cuMemAlloc_v2(&next, 1000 + 512 * (size_t)(slot % SIZES)));
		OK(cuMemFree_v2(block[slot]));
		block[slot] = next;
	}
	return NULL;
}

static void
threads(void)
{
	pthread_t thread[THREADS];
	unsigned seed[THREADS];
	char name[32];

	shared_context = case_start();
	take(1);
	pthread_barrier_init(&all_have_theirs, NULL, THREADS + 1);
	for (unsigned i = 0; i < THREADS; i++) {
		seed[i] = i + 1;
		EXPECT(!pthread_create(&thread[i], NULL, work, &seed[i]));
	}
	pthread_barrier_wait(&all_have_theirs);
	for (int i = 1; i <= SIGNALS; i++) {
		raise(SIGUSR1);
		snprintf(name, sizeof(name), "%d.pickle", i);
		while (!is_there(name)) /* whoever makes the next call writes */
			OK(cuCtxSynchronize());
	}
	enough = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

/* ---- processes */

static void
forks(void)
{
	CUdeviceptr pointer;
	int status;
	pid_t child;

	child = fork();
	case_start();
	OK(cuMemAlloc_v2(&pointer, child ? 1000 : 2000));
	EXPECT(!raise(SIGUSR1));
	OK(cuMemAlloc_v2(&pointer, child ? 1000 : 2000));
	if (!child)
		exit(0);
	EXPECT(waitpid(child, &status, 0) == child && !status);
	child = fork(); /* this one cannot use the device, and has nothing to write */
	if (!child) {
		EXPECT(!raise(SIGUSR1));
		EXPECT(cuMemAlloc_v2(&pointer, 5000) != CUDA_SUCCESS);
		exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child && !status);
}

static void
no_room(void)
{
	struct rlimit limit = { 10000, 10000 };

	case_start();
	EXPECT(!setrlimit(RLIMIT_FSIZE, &limit));
	for (int i = 0; i < 1000; i++)
		take(512);
	raise(SIGUSR1);
	give(take(512));
}

#define CASE(name)                                                                                 \
	{                                                                                          \
#name, name                                                                        \
	}

const struct test_case test_cases[] = {
	CASE(states),    CASE(refused), CASE(peak),  CASE(chained), CASE(alone), CASE(ignored),
	CASE(too_early), CASE(threads), CASE(forks), CASE(no_room), { 0 },
};
