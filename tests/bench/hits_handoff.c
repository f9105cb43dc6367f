/* SPDX-License-Identifier: MIT */
/* One thread allocates, another frees. */
#include "tests/bench/hits.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static uint64_t batches[2][BATCH];
static _Atomic unsigned long handed, taken;

/* Whoever waits for long gives way: the other may not be running. */
static void
wait_until(_Atomic unsigned long *word, unsigned long value)
{
	unsigned spins = 0;

	while (atomic_load_explicit(word, memory_order_acquire) < value)
		if (spins++ > 1000)
			sched_yield();
}

static _Atomic uint64_t freeing_ns;

static uint64_t
cpu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *
handoff_thread(void *arg)
{
	unsigned long n = (options.rounds + 1) * (options.pairs / BATCH);
	uint64_t start;

	pin_to(options.cpu < 0 ? -1 : 1);
	arm_enter();
	for (unsigned long b = 0; b < n; b++) {
		wait_until(&handed, b + 1);
		start = cpu_now_ns();
		for (int i = 0; i < BATCH; i++)
			give(batches[b % 2][i]);
		atomic_fetch_add(&freeing_ns, cpu_now_ns() - start);
		atomic_store_explicit(&taken, b + 1, memory_order_release);
	}
	return NULL;
}

void
hits_handoff(void)
{
	/* not 0: see read_arguments */
	unsigned long a_round = options.pairs < BATCH ? 1 : options.pairs / BATCH, b = 0;
	uint64_t cpu, allocating_ns = 0;
	pthread_t thread;

	cpu_ns = calloc(options.rounds, sizeof(*cpu_ns));
	if (!cpu_ns)
		api_fail("calloc", ENOMEM);
	pin_to(options.cpu < 0 ? -1 : 0);
	if (pthread_create(&thread, NULL, handoff_thread, NULL))
		api_fail("pthread_create", errno);
	for (unsigned long r = 0; r <= options.rounds; r++) {
		uint64_t start = now_ns();

		for (unsigned long end = b + a_round; b < end; b++) {
			if (b >= 2)
				wait_until(&taken, b - 1);
			cpu = cpu_now_ns();
			for (int i = 0; i < BATCH; i++)
				batches[b % 2][i] = take(BYTES);
			allocating_ns += cpu_now_ns() - cpu;
			atomic_store_explicit(&handed, b + 1, memory_order_release);
		}
		wait_until(&taken, b);
		if (r)
			round_ns[r - 1] = (double)(now_ns() - start) / (double)(a_round * BATCH);
		cpu = allocating_ns + atomic_exchange(&freeing_ns, 0);
		allocating_ns = 0;
		if (r)
			cpu_ns[r - 1] = (double)cpu / (double)(a_round * BATCH);
	}
	pthread_join(thread, NULL);
}
