/* SPDX-License-Identifier: MIT */
/* Rules 2, 3 and 10 (T2, T3, T10): threads on one stream, on one event, on streams of their own. */
#include <sched.h>
#include <stdatomic.h>

#include "tests/process/order/rules.h"

enum { ROUNDS = 60, FEW = 8, CROWD = 8, STREAMS_MAX = 15 };

static CUstream streams[STREAMS_MAX], shared;
static CUevent event;
static _Atomic(CUdeviceptr) basket[CROWD];

static void
streams_make(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		streams[i] = order_stream(i % 4 == 3 ? BLOCKING : NONBLOCKING);
}

/* Each thread's memory goes through its own stream, then through the one they share. */
static void
own_then_shared(int number)
{
	CUdeviceptr x = order_take(BIG);

	for (int i = 0; i < ROUNDS; i++) {
		order_fill(x, 1, 100, streams[number]);
		x = order_again(x, BIG);
		order_use(x, (uint32_t)(100 + number), shared);
		x = order_again(x, BIG);
	}
	order_give(x);
}

static void
two_threads_on_one_stream(void)
{
	order_start();
	streams_make(2);
	shared = order_stream(NONBLOCKING);
	order_threads(2, own_then_shared);
	order_end();
}

/* One thread fills, hands over and records; the other waits for the event and takes memory. The
 * event is recorded anew all the time: what a wait has taught must be what it waited for. */
static void
record_or_wait(int number)
{
	CUdeviceptr x = order_take(BIG);

	for (int i = 0; i < 3 * ROUNDS; i++) {
		if (number) {
			OK(cuStreamWaitEvent(streams[1], event, 0));
			order_use(x, 3, streams[1]);
		} else {
			OK(cuEventRecord(event, streams[i % 3 ? 0 : 2]));
			order_fill(x, 1, 50, streams[i % 2 ? 0 : 2]);
		}
		x = order_again(x, BIG);
	}
	order_give(x);
}

static void
storm_on_one_event(void)
{
	order_start();
	streams_make(3);
	event = order_event();
	order_threads(2, record_or_wait);
	order_end();
}

/* As above by one thread, so that the library may hand out unfinished memory. */
static void
one_event_for_many_records(void)
{
	CUdeviceptr x;

	order_start();
	streams_make(3);
	event = order_event();
	x = order_take(BIG);
	for (int i = 0; i < ROUNDS; i++) {
		OK(cuEventRecord(event, streams[i % 2]));
		order_fill(x, 1, 100, streams[(i / 2) % 2]);
		if (i % 3 == 0)
			OK(cuEventRecord(event, streams[i % 2]));
		OK(cuStreamWaitEvent(streams[2], event, 0));
		x = order_again(x, BIG);
		order_use(x, 2, streams[2]);
		x = order_again(x, BIG);
	}
	order_end();
}

/* A thread fills and gives its memory away; the next one frees it, takes as much and goes on. */
static void
pass_on(int number)
{
	CUdeviceptr x = order_take(BIG);

	for (int i = 0; i < ROUNDS / 2; i++) {
		order_fill(x, 1, 50, streams[number]);
		x = atomic_exchange(&basket[(number + 1) % CROWD], x);
		if (!x)
			x = order_take(BIG);
		else
			x = order_again(x, BIG);
		order_use(x, (uint32_t)(10 + number), streams[number]);
	}
	order_give(x);
}

static void
eight_threads_free_each_others_memory(void)
{
	order_start();
	streams_make(CROWD);
	order_threads(CROWD, pass_on);
	order_end();
}

/* The same on per-thread default streams, by both roads to them; the threads then exit, with work
 * of theirs unfinished, and others take over. */
static void
pass_on_per_thread(int number)
{
	CUdeviceptr x = order_take(BIG);

	for (int i = 0; i < ROUNDS / 4; i++) {
		if ((i + number) % 2)
			order_fill(x, 1, 50, CU_STREAM_PER_THREAD);
		else
			order_fill_ptsz(x, 1, 50, NULL);
		x = atomic_exchange(&basket[(number + 1) % CROWD], x);
		x = x ? order_again(x, BIG) : order_take(BIG);
		order_fill_ptsz(x, (uint32_t)number, 0, NULL);
		order_check_ptsz(x, (uint32_t)number, NULL);
	}
	order_fill_ptsz(x, 1, LONG, NULL);
	order_give(x);
}

static void
per_thread_streams_and_threads_that_exit(void)
{
	CUdeviceptr x;

	order_start();
	for (int generation = 0; generation < 3; generation++) {
		order_threads(generation == 1 ? CROWD : 3, pass_on_per_thread);
		x = order_take(BIG);
		order_use(x, 77, NULL);
		order_give(x);
	}
	order_end();
}

/* One thread's per-thread memory, freed and taken by another on a non-blocking stream. */
static void
fill_and_leave(int number)
{
	atomic_store(&basket[0], order_take(BIG));
	order_fill_ptsz(basket[0], 1, LONG, NULL);
}

static void
memory_of_a_thread_that_left(void)
{
	CUdeviceptr x;

	order_start();
	streams_make(1);
	for (int i = 0; i < 3; i++) {
		order_threads(1, fill_and_leave);
		x = order_again(basket[0], BIG);
		order_use(x, 2, i == 2 ? CU_STREAM_PER_THREAD : streams[0]);
		order_give(x);
	}
	order_end();
}

/* With little memory, what another thread freed must go back, as soon as the device is idle. */
static void
fill_and_give(int number)
{
	CUdeviceptr x = order_take((size_t)200 * MIB);

	order_fill(x, 1, LONG, streams[0]);
	order_give(x);
}

static void
memory_of_another_thread_at_the_end(void)
{
	CUdeviceptr x;

	order_start();
	streams_make(1);
	order_threads(1, fill_and_give);
	order_sleep(20000);
	x = order_take((size_t)250 * MIB);
	order_use(x, 2, streams[0]);
	order_end();
}

/* NULL means the legacy stream to one half of the names, and the thread's own to the other. */
static void
null_is_two_streams(void)
{
	CUdeviceptr x;
	CUstream r;

	order_start();
	r = order_stream(NONBLOCKING);
	x = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		order_fill_ptsz(x, 1, LONG / 4, NULL);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		x = order_again(x, BIG);
		order_fill(x, 1, LONG / 4, NULL);
		x = order_again(x, BIG);
		order_use(x, 2, r);
		x = order_again(x, BIG);
		OK(cuMemsetD32Async_ptsz(x, 3, WORDS, NULL));
		x = order_again(x, BIG);
		OK(cuMemsetD32Async(x, 4, WORDS, r));
		x = order_again(x, BIG);
	}
	order_end();
}

/* The free in one thread comes right behind the submission in another. */
static void
submit_or_free(int number)
{
	CUdeviceptr x;

	for (int i = 0; i < ROUNDS; i++) {
		if (number == 0) {
			x = order_take(BIG);
			order_fill(x, 1, 50, streams[0]);
			while (atomic_load(&basket[0]))
				order_sleep(10);
			atomic_store(&basket[0], x);
		} else {
			while (!(x = atomic_load(&basket[0])))
				order_sleep(10);
			atomic_store(&basket[0], 0);
			x = order_again(x, BIG);
			order_use(x, 2, streams[1]);
			order_give(x);
		}
	}
}

static void
free_right_behind_anothers_submission(void)
{
	order_start();
	streams_make(2);
	order_threads(2, submit_or_free);
	order_end();
}

/* The second thread keeps stamping the first one's stream while that frees and takes. */
static void
stamp_or_take(int number)
{
	CUdeviceptr x = order_take(BIG);

	for (int i = 0; i < ROUNDS; i++) {
		order_fill(x, 1, 30, streams[0]);
		if (number == 0) {
			x = order_again(x, BIG);
			order_use(x, 2, streams[1]);
			x = order_again(x, BIG);
		}
	}
	order_give(x);
}

static void
two_threads_keep_one_stream_busy(void)
{
	order_start();
	streams_make(2);
	order_threads(2, stamp_or_take);
	order_end();
}

/* Each of two blocks has been used by seven streams; a copy from one to the other comes after them
 * all, more than are looked at one by one. */
static void
copy_of_what_many_streams_used(const CUstream *used, CUstream r)
{
	enum { EACH = 7, PIECE = MIB / 8 };
	static const size_t bytes[] = { MIB, BIG }; /* of two pools: never one behind the other */
	CUdeviceptr x[2];

	for (int n = 0; n < 2; n++) {
		x[n] = order_take(bytes[n]);
		for (int i = 0; i < EACH; i++)
			order_fill(x[n] + (CUdeviceptr)i * PIECE, 1, LONG / 4, used[n * EACH + i]);
		order_give(x[n]);
	}
	for (int n = 1; n >= 0; n--)
		x[n] = order_take(bytes[n]);
	OK(cuMemcpyDtoDAsync_v2(x[0], x[1], (size_t)EACH * PIECE, r));
	OK(cuCtxSynchronize_v2(NULL));
	for (int n = 0; n < 2; n++)
		order_give(x[n]);
}

static void
copy_in_turn(int number)
{
	static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

	for (int i = 0; i < 4; i++) {
		pthread_mutex_lock(&turn);
		copy_of_what_many_streams_used(streams, streams[STREAMS_MAX - 1]);
		pthread_mutex_unlock(&turn);
		order_sleep(50);
	}
}

static void
copies_of_what_many_streams_used(void)
{
	order_start();
	streams_make(STREAMS_MAX);
	order_threads(3, copy_in_turn);
	order_end();
}

/* Streams come and go in several threads at once. */
static void
come_and_go(int number)
{
	for (int i = 0; i < ROUNDS / 3; i++) {
		CUdeviceptr x = order_take(BIG);
		CUstream s = order_stream(NONBLOCKING), r;

		order_fill(x, 1, 100, s);
		if (i % 2)
			OK(cuStreamDestroy_v2(s));
		x = order_again(x, BIG);
		r = order_stream(NONBLOCKING);
		order_use(x, 2, r);
		OK(cuStreamDestroy_v2(r));
		if (i % 2 == 0)
			OK(cuStreamDestroy_v2(s));
		order_give(x);
	}
}

static void
streams_come_and_go_in_four_threads(void)
{
	order_start();
	order_threads(4, come_and_go);
	order_end();
}

/* Two streams, of two threads, read what one of them has filled and frees; neither comes after the
 * other. It waits for its own, which is not enough. */
static _Atomic(CUdeviceptr) offered;

static void
read_what_is_offered(void)
{
	CUdeviceptr target = order_take(BIG), theirs;

	for (int i = 0; i < FEW; i++) {
		while (!(theirs = atomic_load(&offered)))
			sched_yield();
		OK(cuStreamWaitEvent(streams[1], event, 0));
		order_copy(target, theirs, LONG, streams[1]);
		atomic_store(&offered, 0);
	}
	order_give(target);
}

static void
free_what_two_read(int number)
{
	CUdeviceptr mine, copy;

	if (number) {
		read_what_is_offered();
		return;
	}
	copy = order_take(BIG);
	mine = order_again(order_take(BIG), BIG); /* from now on it keeps one of that size */
	for (uint32_t i = 0; i < FEW; i++) {
		order_fill(mine, i, 0, streams[0]);
		OK(cuEventRecord(event, streams[0]));
		order_copy(copy, mine, 20, streams[0]);
		atomic_store(&offered, mine);
		while (atomic_load(&offered))
			sched_yield();
		order_give(mine);
		OK(cuStreamSynchronize(streams[0]));
		mine = order_take(BIG);
	}
	order_give(mine);
}

static void
memory_that_two_threads_read(void)
{
	order_start();
	streams_make(2);
	event = order_event();
	order_threads(2, free_what_two_read);
	order_end();
}

const struct order_case rules_threads[] = {
	{ "t2_free_right_behind_anothers_submission", free_right_behind_anothers_submission },
	{ "t2_two_threads_keep_one_stream_busy", two_threads_keep_one_stream_busy },
	{ "t3_two_threads_on_one_stream", two_threads_on_one_stream },
	{ "t3_storm_on_one_event", storm_on_one_event },
	{ "t3_one_event_for_many_records", one_event_for_many_records },
	{ "t10_eight_threads_free_each_others_memory", eight_threads_free_each_others_memory },
	{ "t10_per_thread_streams_and_threads_that_exit",
	  per_thread_streams_and_threads_that_exit },
	{ "t10_memory_of_a_thread_that_left", memory_of_a_thread_that_left },
	{ "t10_memory_of_another_thread_at_the_end", memory_of_another_thread_at_the_end },
	{ "t10_memory_that_two_threads_read", memory_that_two_threads_read },
	{ "t10_null_is_two_streams", null_is_two_streams },
	{ "t10_copies_of_what_many_streams_used", copies_of_what_many_streams_used },
	{ "t14_streams_come_and_go_in_four_threads", streams_come_and_go_in_four_threads },
	{ NULL, NULL },
};
