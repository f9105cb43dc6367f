/* SPDX-License-Identifier: MIT */
/*
 * Small programs that stock CUDA runs well or badly: workloads [--steps N] [--burst N] [--fixed]
 * NAME
 *
 * For the simulator, whose kernels take the time they are told and overlap as streams allow.
 * The host runs ahead of the device as far as it can; with --burst N it waits for all work after
 * every N operations, as a program does that looks at its results.
 *
 * Prints one JSON object: wall time from the first allocation to the end of all work, in
 * nanoseconds; for `priority` that of the thread with the high priority.
 *
 *   rmm1 rmm2 rmm4   allocate, launch, free in turn over 1, 2, 4 streams (RMM's multi-stream
 * benchmark) handoff          one stream produces, another consumes; buffers are freed after the
 * consumer's launch two_sides        the same with a thread for each side: memory is freed by
 * another thread mixed_streams    as rmm4, over the NULL stream, a blocking and two non-blocking
 * streams naive            allocate, launch, free for every operation, on the NULL stream threads
 * two threads that share nothing, each with a stream of its own priority         a thread with
 * short kernels on a stream of high priority beside one with long kernels on a stream of low
 * priority
 */
#include "tests/bench/api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BYTES = 1 << 20,
	WORDS = 1024, /* of a block that kernels touch */
	STREAMS_MAX = 4,
	NON_BLOCKING = 1,
	DISABLE_TIMING = CU_EVENT_DISABLE_TIMING,
	QUEUE = 8,
};

static unsigned long steps = 200, burst;
static bool fixed;
static void *fill, *copy;
static CUcontext context;

/* All work is done. */
static void
finish(void)
{
	api_check(api.cuCtxSynchronize(), "cuCtxSynchronize");
}

static void
operation_done(unsigned long i)
{
	if (burst && i % burst == burst - 1)
		finish();
}

static CUdeviceptr
take(void)
{
	CUdeviceptr address;

	CALL(cuMemAlloc_v2, &address, BYTES);
	return address;
}

static void
launch(void *kernel, void **arguments, CUstream stream)
{
	CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static void
fill_block(CUdeviceptr to, uint64_t spin_us, CUstream stream)
{
	uint64_t words = WORDS, value = 1;

	launch(fill, (void *[]){ &to, &words, &value, &spin_us }, stream);
}

static void
copy_block(CUdeviceptr to, CUdeviceptr from, uint64_t spin_us, CUstream stream)
{
	uint64_t words = WORDS;

	launch(copy, (void *[]){ &to, &from, &words, &spin_us }, stream);
}

static CUstream
stream_new(unsigned int flags)
{
	CUstream stream;

	CALL(cuStreamCreate, &stream, flags);
	return stream;
}

static CUevent
event_new(void)
{
	CUevent event;

	CALL(cuEventCreate, &event, DISABLE_TIMING);
	return event;
}

/* `second` waits for what `first` was given so far. */
static void
order(CUstream first, CUstream second, CUevent event)
{
	CALL(cuEventRecord, event, first);
	CALL(cuStreamWaitEvent, second, event, 0);
}

/* ---------------------------------------------------------- one thread --- */

static uint64_t
in_turn(const CUstream *streams, unsigned n, uint64_t spin_us)
{
	uint64_t start = now_ns();

	for (unsigned long i = 0; i < steps; i++) {
		CUdeviceptr block = take();

		fill_block(block, spin_us, streams[i % n]);
		CALL(cuMemFree_v2, block);
		operation_done(i);
	}
	finish();
	return now_ns() - start;
}

static uint64_t
over_streams(unsigned n)
{
	CUstream streams[STREAMS_MAX];

	for (unsigned i = 0; i < n; i++)
		streams[i] = stream_new(NON_BLOCKING);
	return in_turn(streams, n, 100);
}

static uint64_t
rmm1(void)
{
	return over_streams(1);
}

static uint64_t
rmm2(void)
{
	return over_streams(2);
}

static uint64_t
rmm4(void)
{
	return over_streams(4);
}

static uint64_t
mixed_streams(void)
{
	CUstream streams[] = { NULL, stream_new(0), stream_new(NON_BLOCKING),
			       stream_new(NON_BLOCKING) };

	return in_turn(streams, 4, 100);
}

static uint64_t
static_blocks(void)
{
	CUdeviceptr blocks[2 * STREAMS_MAX];
	CUstream streams[STREAMS_MAX];
	uint64_t start;

	for (int i = 0; i < STREAMS_MAX; i++)
		streams[i] = stream_new(NON_BLOCKING);
	start = now_ns();
	for (int i = 0; i < 2 * STREAMS_MAX; i++)
		blocks[i] = take();
	for (unsigned long i = 0; i < 4 * steps; i++) {
		fill_block(blocks[i % STREAMS_MAX], 20, streams[i % STREAMS_MAX]);
		operation_done(i);
	}
	for (int i = 0; i < 2 * STREAMS_MAX; i++)
		CALL(cuMemFree_v2, blocks[i]);
	finish();
	return now_ns() - start;
}

static uint64_t
naive(void)
{
	CUstream none = NULL;

	return in_turn(&none, 1, 30);
}

static uint64_t
handoff(void)
{
	CUstream producer = stream_new(NON_BLOCKING), consumer = stream_new(NON_BLOCKING);
	CUevent event = event_new();
	uint64_t start = now_ns();

	for (unsigned long i = 0; i < steps; i++) {
		CUdeviceptr made = take(), used;

		fill_block(made, 40, producer);
		order(producer, consumer, event);
		used = take();
		copy_block(used, made, 40, consumer);
		CALL(cuMemFree_v2, made);
		CALL(cuMemFree_v2, used);
		operation_done(i);
	}
	finish();
	return now_ns() - start;
}

/* --------------------------------------------------------- two threads --- */

static void
enter(void)
{
	CALL(cuCtxSetCurrent, context);
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	CUdeviceptr blocks[QUEUE];
	CUevent events[QUEUE];
	unsigned long n_put, n_got;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void *
produce(void *arg)
{
	CUstream stream = *(CUstream *)arg;

	enter();
	for (unsigned long i = 0; i < steps; i++) {
		CUdeviceptr block = take();

		fill_block(block, 40, stream);
		pthread_mutex_lock(&queue.lock);
		while (queue.n_put - queue.n_got == QUEUE)
			pthread_cond_wait(&queue.changed, &queue.lock);
		pthread_mutex_unlock(&queue.lock);
		CALL(cuEventRecord, queue.events[i % QUEUE], stream);
		pthread_mutex_lock(&queue.lock);
		queue.blocks[i % QUEUE] = block;
		queue.n_put++;
		pthread_cond_signal(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
	}
	return NULL;
}

static void
consume(CUstream stream)
{
	for (unsigned long i = 0; i < steps; i++) {
		CUdeviceptr made, used = take();

		pthread_mutex_lock(&queue.lock);
		while (queue.n_put == i)
			pthread_cond_wait(&queue.changed, &queue.lock);
		made = queue.blocks[i % QUEUE];
		pthread_mutex_unlock(&queue.lock);
		CALL(cuStreamWaitEvent, stream, queue.events[i % QUEUE], 0);
		pthread_mutex_lock(&queue.lock);
		queue.n_got++;
		pthread_cond_signal(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
		copy_block(used, made, 40, stream);
		CALL(cuMemFree_v2, made);
		CALL(cuMemFree_v2, used);
		operation_done(i);
	}
}

static void
thread_start(pthread_t *thread, void *(*body)(void *), void *arg)
{
	int rc = pthread_create(thread, NULL, body, arg);

	if (rc)
		api_fail("pthread_create", rc);
}

static uint64_t
two_sides(void)
{
	CUstream producer = stream_new(NON_BLOCKING), consumer = stream_new(NON_BLOCKING);
	pthread_t thread;
	uint64_t start;

	for (int i = 0; i < QUEUE; i++)
		queue.events[i] = event_new();
	start = now_ns();
	thread_start(&thread, produce, &producer);
	consume(consumer);
	pthread_join(thread, NULL);
	finish();
	return now_ns() - start;
}

static void *
work_alone(void *arg)
{
	CUstream stream = *(CUstream *)arg;

	enter();
	for (unsigned long i = 0; i < steps; i++) {
		CUdeviceptr block = take();

		fill_block(block, 60, stream);
		CALL(cuMemFree_v2, block);
		if (i % 8 == 7)
			CALL(cuStreamSynchronize, stream);
	}
	CALL(cuStreamSynchronize, stream);
	return NULL;
}

static uint64_t
threads(void)
{
	CUstream streams[] = { stream_new(NON_BLOCKING), stream_new(NON_BLOCKING) };
	uint64_t start = now_ns();
	pthread_t thread;

	thread_start(&thread, work_alone, &streams[1]);
	work_alone(&streams[0]);
	pthread_join(thread, NULL);
	return now_ns() - start;
}

static _Atomic bool high_done;

/* Bursts of a few long kernels. */
static void *
work_low(void *arg)
{
	CUstream stream = *(CUstream *)arg;

	enter();
	for (unsigned long n = 0; fixed ? n < steps / 4 : !atomic_load(&high_done); n++) {
		for (int i = 0; i < 4; i++) {
			CUdeviceptr block = take();

			fill_block(block, 400, stream);
			CALL(cuMemFree_v2, block);
		}
		CALL(cuStreamSynchronize, stream);
	}
	return NULL;
}

static uint64_t
priority(void)
{
	CUstream high, low;
	pthread_t thread;
	uint64_t start, end;

	CALL(cuStreamCreateWithPriority, &high, NON_BLOCKING, -5);
	CALL(cuStreamCreateWithPriority, &low, NON_BLOCKING, 0);
	thread_start(&thread, work_low, &low);
	start = now_ns();
	for (unsigned long i = 0; i < steps; i++) {
		CUdeviceptr block = take();

		fill_block(block, 20, high);
		CALL(cuStreamSynchronize, high);
		CALL(cuMemFree_v2, block);
	}
	end = now_ns();
	atomic_store(&high_done, true);
	pthread_join(thread, NULL);
	return end - start;
}

static const struct {
	const char *name;
	uint64_t (*run)(void);
} workloads[] = {
	{ "rmm1", rmm1 },
	{ "rmm2", rmm2 },
	{ "rmm4", rmm4 },
	{ "handoff", handoff },
	{ "two_sides", two_sides },
	{ "mixed_streams", mixed_streams },
	{ "static", static_blocks },
	{ "naive", naive },
	{ "threads", threads },
	{ "priority", priority },
};

int
main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[argc - 1] : "";

	for (int i = 1; i < argc - 1; i++) {
		if (!strcmp(argv[i], "--fixed"))
			fixed = true;
		else if (!strcmp(argv[i], "--steps") && i + 1 < argc - 1)
			steps = strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--burst") && i + 1 < argc - 1)
			burst = strtoul(argv[++i], NULL, 10);
		else
			name = "";
	}
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		if (strcmp(name, workloads[i].name))
			continue;
		context = api_open(ROAD_PROC);
		fill = api_kernel("sim_fill");
		copy = api_kernel("sim_copy");
		printf("{\"workload\": \"%s\", \"steps\": %lu, \"wall_ns\": %llu}\n",
		       workloads[i].name, steps, (unsigned long long)workloads[i].run());
		return 0;
	}
	fputs("usage: workloads [--steps N] [--burst N] [--fixed] NAME\n", stderr);
	return 2;
}
