/* SPDX-License-Identifier: MIT */
/*
 * A data-parallel training step: `order_parallel VARIANT`.
 *
 * One thread computes on stream A: forwards each kernel has a block of its own, backwards each
 * reads that block into a short-lived one, and both are freed. Every EVERY operations a longer
 * kernel on stream B reads the newest block (a variant may have B work on memory of its own). The
 * variants differ in who waits for B. Prints what the host did: microseconds to submit everything,
 * microseconds until the device was through, and the share of the work that was done by the time
 * that everything was submitted, in percent.
 */
#include <time.h>

#include "tests/process/order/order.h"

#include <sched.h>
#include <stdatomic.h>

enum {
	STEPS = 20,
	BLOCKS = 300, /* about 1 GiB */
	EVERY = 25,
	KERNEL_US = 20,
	COMM_US = 100,
	MARKS = 100, /* events that tell how far the device is */
	SIDES = 2,
};

struct variant {
	const char *name;
	int sides;        /* streams beside A */
	bool related;     /* B comes after A, and reads its blocks */
	int join_every;   /* operations; 0: at no operation */
	bool join_steps;  /* A waits for B at the end of each step */
	bool join_host;   /* the host does */
	bool thread;      /* another thread submits to B */
	uint64_t comm_us; /* of a kernel on B */
};

static const struct variant variants[] = {
	{ .name = "alone" },
	{ .name = "joined", .sides = 1, .related = true, .join_steps = true, .comm_us = COMM_US },
	{ .name = "every", .sides = 1, .related = true, .join_every = 75, .comm_us = COMM_US },
	{ .name = "never", .sides = 1, .related = true, .comm_us = COMM_US },
	{ .name = "unrelated", .sides = 1, .comm_us = COMM_US },
	{ .name = "two", .sides = 2, .related = true, .join_steps = true, .comm_us = COMM_US },
	{ .name = "two_never", .sides = 2, .related = true, .comm_us = COMM_US },
	{ .name = "host", .sides = 1, .related = true, .join_host = true, .comm_us = COMM_US },
	{ .name = "thread",
	  .sides = 1,
	  .related = true,
	  .join_steps = true,
	  .thread = true,
	  .comm_us = COMM_US },
};

static const struct variant *variant;
static CUstream a, side[SIDES];
static CUevent fork_event, join_event[SIDES], marks[MARKS];
static CUdeviceptr block[BLOCKS], own[SIDES];
static int operations, marks_made;

/* Requests to the thread that drives B. */
static _Atomic int asked, served;
static CUdeviceptr asked_for;
static uint32_t asked_value;

static uint64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* 0.25 to 6.75 MiB, the same in each step. */
static size_t
size_of(int i)
{
	uint32_t mixed = (uint32_t)i * 2654435761u;

	return (size_t)256 * 1024 + (size_t)(mixed >> 16) % 13312 * 512;
}

static uint32_t
value_of(int step, int i)
{
	return (uint32_t)(step * BLOCKS + i + 1);
}

static void
comm_kernel(int which, CUdeviceptr memory, uint32_t value)
{
	if (variant->related) {
		OK(cuStreamWaitEvent(side[which], fork_event, 0));
		order_copy(own[which], memory, variant->comm_us, side[which]);
		order_check(own[which], value, side[which]);
	} else {
		order_fill(own[which], value, variant->comm_us, side[which]);
	}
	OK(cuEventRecord(join_event[which], side[which]));
}

static void *
drive(void *context)
{
	int done = 0;

	order_enter(context);
	while (done >= 0) {
		int now = atomic_load(&asked);

		if (now < 0)
			break;
		if (now == done) {
			sched_yield();
			continue;
		}
		comm_kernel(0, asked_for, asked_value);
		done = now;
		atomic_store(&served, done);
	}
	return NULL;
}

static void
comm(CUdeviceptr memory, uint32_t value)
{
	int which = operations / EVERY % variant->sides;

	if (variant->related)
		OK(cuEventRecord(fork_event, a));
	if (!variant->thread) {
		comm_kernel(which, memory, value);
		return;
	}
	asked_for = memory;
	asked_value = value;
	atomic_fetch_add(&asked, 1);
	while (atomic_load(&served) != atomic_load(&asked))
		sched_yield(); /* the event is recorded anew for the next */
}

static void
join(void)
{
	for (int i = 0; i < variant->sides; i++)
		OK(cuStreamWaitEvent(a, join_event[i], 0));
}

/* After a kernel on A. */
static void
operation(CUdeviceptr memory, uint32_t value)
{
	operations++;
	if (variant->sides && operations % EVERY == 0)
		comm(memory, value);
	if (variant->join_every && operations % variant->join_every == 0)
		join();
	if (operations % (2 * STEPS * BLOCKS / MARKS) == 0)
		OK(cuEventRecord(marks[marks_made++], a));
}

static void
forwards(int step, int i)
{
	block[i] = order_take(size_of(i));
	order_fill(block[i], value_of(step, i), KERNEL_US, a);
	operation(block[i], value_of(step, i));
}

static void
backwards(int step, int i)
{
	CUdeviceptr gradient = order_take(size_of(i));

	order_copy(gradient, block[i], KERNEL_US, a);
	order_check(gradient, value_of(step, i), a);
	operation(gradient, value_of(step, i));
	order_give(gradient);
	order_give(block[i]);
}

static void
step_play(int step)
{
	for (int i = 0; i < BLOCKS; i++)
		forwards(step, i);
	for (int i = BLOCKS - 1; i >= 0; i--)
		backwards(step, i);
	if (variant->join_steps)
		join();
	for (int i = 0; variant->join_host && i < variant->sides; i++)
		OK(cuStreamSynchronize(side[i]));
}

static void
start(void)
{
	order_start();
	a = order_stream(NONBLOCKING);
	fork_event = order_event();
	for (int i = 0; i < variant->sides; i++) {
		side[i] = order_stream(NONBLOCKING);
		join_event[i] = order_event();
		own[i] = order_take(BIG);
		if (!variant->thread) /* a stream that nobody used may be meant for anybody */
			order_fill(own[i], 0, 0, side[i]);
	}
	for (int i = 0; i < MARKS; i++)
		marks[i] = order_event();
}

static void
play(void)
{
	uint64_t begun = now_us(), submitted;
	pthread_t thread;
	CUcontext context;
	int done = 0;

	OK(cuCtxGetCurrent(&context));
	if (variant->thread)
		EXPECT(!pthread_create(&thread, NULL, drive, context));
	for (int step = 0; step < STEPS; step++)
		step_play(step);
	submitted = now_us() - begun;
	while (done < marks_made && !cuEventQuery(marks[done]))
		done++;
	atomic_store(&asked, -1);
	if (variant->thread)
		EXPECT(!pthread_join(thread, NULL));
	order_end();
	printf("submitted_us %llu through_us %llu done_percent %d\n", (unsigned long long)submitted,
	       (unsigned long long)(now_us() - begun), done * 100 / MARKS);
}

static void
run_variant(const char *name)
{
	unsigned i;

	for (i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
		if (!strcmp(variants[i].name, name)) {
			variant = &variants[i];
			start();
			play();
		}
}

#define VARIANT(name)                                                                              \
	static void run_##name(void)                                                               \
	{                                                                                          \
		run_variant(#name);                                                                \
	}

VARIANT(alone)
VARIANT(joined)
VARIANT(every)
VARIANT(never)
VARIANT(unrelated)
VARIANT(two)
VARIANT(two_never)
VARIANT(host)
VARIANT(thread)

static const struct order_case parallel_cases[] = {
	{ "alone", run_alone },         { "joined", run_joined },
	{ "every", run_every },         { "never", run_never },
	{ "unrelated", run_unrelated }, { "two", run_two },
	{ "two_never", run_two_never }, { "host", run_host },
	{ "thread", run_thread },       { NULL, NULL },
};

const struct order_case *const order_cases[] = { parallel_cases, NULL };
