/* SPDX-License-Identifier: MIT */
/* Free follows allocation at once: in one thread, or in several that have nothing to do with each
 * other. */
#include "tests/bench/hits.h"

#include <errno.h>
#include <pthread.h>

void measured_pairs(unsigned long n);

__attribute__((noinline)) void
measured_pairs(unsigned long n)
{
	while (n--)
		give(take(BYTES));
}

static pthread_barrier_t barrier;

struct thread {
	pthread_t thread;
	int cpu;
	double ns;
};

static void *
own_thread(void *arg)
{
	struct thread *thread = arg;
	CUstream stream;
	uint64_t start, kept;

	pin_to(thread->cpu);
	arm_enter();
	stream = arm_stream_new();
	kept = take(BYTES);
	for (unsigned long r = 0; r <= options.rounds; r++) {
		arm_launch(kept, stream);
		pthread_barrier_wait(&barrier);
		start = now_ns();
		measured_pairs(options.pairs);
		thread->ns = (double)(now_ns() - start);
		pthread_barrier_wait(&barrier);
	}
	give(kept);
	return NULL;
}

/* The main thread reads the others' times between two barriers. */
void
hits_own(void)
{
	struct thread threads[THREADS_MAX] = { 0 };

	pthread_barrier_init(&barrier, NULL, (unsigned)options.threads + 1);
	for (unsigned long t = 0; t < options.threads; t++) {
		threads[t].cpu = options.cpu < 0 ? -1 : (int)t;
		if (pthread_create(&threads[t].thread, NULL, own_thread, &threads[t]))
			api_fail("pthread_create", errno);
	}
	for (unsigned long r = 0; r <= options.rounds; r++) {
		double slowest = 0;

		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		for (unsigned long t = 0; t < options.threads; t++)
			slowest = threads[t].ns > slowest ? threads[t].ns : slowest;
		if (r)
			round_ns[r - 1] = slowest / (double)options.pairs;
	}
	for (unsigned long t = 0; t < options.threads; t++)
		pthread_join(threads[t].thread, NULL);
}

void
hits_pair(void)
{
	CUstream stream = arm_stream_new();
	uint64_t kept = take(BYTES), start;

	arm_launch(kept, stream);
	measured_pairs(options.pairs);
	for (unsigned long r = 0; r < options.rounds; r++) {
		start = now_ns();
		measured_pairs(options.pairs);
		round_ns[r] = (double)(now_ns() - start) / (double)options.pairs;
	}
}
