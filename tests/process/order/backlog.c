/* SPDX-License-Identifier: MIT */
/*
 * A stream falls far behind, and memory that it uses is freed and wanted again: `order_backlog
 * CASE`. Natively each free waits. With the library the cache may grow by its slack and no more, in
 * whatever way the freed memory came to wait. (test_backlog.py reads how far it grew.)
 */
#include "tests/process/order/order.h"

#include <semaphore.h>
#include <unistd.h>

enum {
	BEHIND = 200 * 1000, /* us */
	ROUNDS = 300,
	EARLIER = 800, /* blocks; every other one is freed, so that they stay apart */
	SMALL = 512,
};

static CUcontext context;
static CUstream s, r;
static CUdeviceptr earlier[EARLIER];
static pthread_barrier_t barrier;

static void
begin(void)
{
	context = order_start();
	s = order_stream(NONBLOCKING);
}

/* A second stream has been given work, and may be given more. */
static void
use_another_stream(void)
{
	CUdeviceptr x = order_take(WORDS * sizeof(uint32_t));

	r = order_stream(NONBLOCKING);
	order_fill(x, 1, 0, r);
	OK(cuStreamSynchronize(r));
	order_give(x);
}

static void
fall_behind(void)
{
	CUdeviceptr x = order_take(BIG);

	order_fill(x, 1, BEHIND, s);
	order_give(x);
}

static void
one_round(unsigned i)
{
	CUdeviceptr x = order_take((1 + i % 8) * (size_t)MIB);

	order_fill(x, i, 0, s);
	order_give(x);
}

static void
rounds(void)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		one_round(i);
	order_end();
}

static void
take_earlier(void)
{
	for (unsigned i = 0; i < EARLIER; i++)
		earlier[i] = order_take(SMALL);
}

static void
give_earlier(void)
{
	for (unsigned i = 0; i < EARLIER; i += 2)
		order_give(earlier[i]);
}

static void *
give_earlier_there(void *unused)
{
	order_enter(context);
	give_earlier();
	return unused;
}

/* No mark tells the work of what was freed then from later work. */
static void
the_oldest_is_of_the_time_of_one_stream(void)
{
	begin();
	fall_behind();
	use_another_stream();
	rounds();
}

static void
many_are_of_the_time_of_one_stream(void)
{
	begin();
	take_earlier();
	fall_behind();
	give_earlier();
	use_another_stream();
	rounds();
}

static void
another_thread_has_freed_many_before(void)
{
	pthread_t thread;

	begin();
	take_earlier();
	use_another_stream();
	fall_behind();
	EXPECT(!pthread_create(&thread, NULL, give_earlier_there, NULL));
	pthread_join(thread, NULL);
	rounds();
}

/* The two threads' blocks lie side by side, and are freed in turn. */
static void *
take_and_give_beside(void *unused)
{
	order_enter(context);
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr x;

		pthread_barrier_wait(&barrier);
		x = order_take(5 * MIB);
		order_fill(x, i, 0, s);
		pthread_barrier_wait(&barrier);
		order_give(x);
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

static void
it_merges_with_another_threads(void)
{
	pthread_t thread;

	begin();
	use_another_stream();
	fall_behind();
	EXPECT(!pthread_barrier_init(&barrier, NULL, 2));
	EXPECT(!pthread_create(&thread, NULL, take_and_give_beside, NULL));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = order_take(5 * MIB);

		order_fill(x, i, 0, s);
		for (unsigned turn = 0; turn < 3; turn++)
			pthread_barrier_wait(&barrier);
		order_give(x);
	}
	pthread_join(thread, NULL);
	order_end();
}

static void *
one_round_there(void *number)
{
	order_enter(context);
	one_round((unsigned)(uintptr_t)number);
	return NULL;
}

static void
each_thread_ends_with_its_free(void)
{
	pthread_t thread;

	begin();
	use_another_stream();
	fall_behind();
	for (unsigned i = 0; i < ROUNDS; i++) {
		EXPECT(!pthread_create(&thread, NULL, one_round_there, (void *)(uintptr_t)i));
		pthread_join(thread, NULL);
	}
	order_end();
}

static void
call(void *unused)
{
}

/* Then the stream is held up by somebody all the time. */
static void
each_round_has_a_host_function(void)
{
	begin();
	use_another_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = order_take((1 + i % 8) * (size_t)MIB);

		order_fill(x, i, LONG, s);
		OK(cuLaunchHostFunc(s, call, NULL));
		order_give(x);
	}
	order_end();
}

/* Another context's host function wants a lock that is taken after the free. Natively the free has
 * waited for it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void
lock_and_unlock(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void
another_context_waits_for_a_lock(void)
{
	CUevent event;
	CUdeviceptr x;
	CUcontext other;
	CUstream there;

	begin();
	use_another_stream();
	x = order_take(64 * MIB);
	other = order_context(0);
	there = order_stream(NONBLOCKING);
	event = order_event();
	order_fill(order_take(MIB), 1, 50 * LONG, there);
	OK(cuLaunchHostFunc(there, lock_and_unlock, NULL));
	OK(cuEventRecord(event, there));
	order_enter(context);
	OK(cuStreamWaitEvent(s, event, 0));
	order_fill(x, 1, 0, s);
	order_give(x);
	pthread_mutex_lock(&mutex);
	for (unsigned i = 1; i <= 3; i++)
		order_fill(order_take(i * 2 * MIB), 1, 0, r);
	pthread_mutex_unlock(&mutex);
	order_end();
	OK(cuCtxSetCurrent(other));
	order_end();
}

/*
 * Kernels wait for words that another thread writes, a round later than they are launched, and both
 * threads allocate and free. Natively each free waits, so that neither gets ahead. (There it can
 * hang, too, if the other thread is late between its store and its free.)
 */
enum { SLOW = 3000 /* us */, WORDS_ROUNDS = 60 };
static volatile uint32_t *written;
static sem_t launched;

static void *
write_words(void *unused)
{
	order_enter(context);
	for (unsigned i = 0; i < WORDS_ROUNDS; i++) {
		CUdeviceptr x;

		while (sem_wait(&launched))
			;
		x = order_take((9 + i % 3) * (size_t)MIB);
		usleep(SLOW);
		order_fill(x, i, 0, r);
		written[i] = 1;
		order_give(x);
	}
	return unused;
}

static void
kernels_wait_for_words_of_another_thread(void)
{
	pthread_t thread;
	void *words;

	begin();
	use_another_stream();
	OK(cuMemHostAlloc(&words, WORDS_ROUNDS * sizeof(uint32_t), 0));
	memset(words, 0, WORDS_ROUNDS * sizeof(uint32_t));
	written = words;
	EXPECT(!sem_init(&launched, 0, 0));
	EXPECT(!pthread_create(&thread, NULL, write_words, NULL));
	for (unsigned i = 0; i < WORDS_ROUNDS; i++) {
		CUdeviceptr x = order_take(MIB / 4);

		order_wait(&written[i], 1, s);
		order_fill(x, i, 0, s);
		sem_post(&launched);
		order_give(x);
		usleep(SLOW / 3);
	}
	pthread_join(thread, NULL);
	order_end();
}

static const struct order_case backlog_cases[] = {
	{ "the_oldest_is_of_the_time_of_one_stream", the_oldest_is_of_the_time_of_one_stream },
	{ "many_are_of_the_time_of_one_stream", many_are_of_the_time_of_one_stream },
	{ "another_thread_has_freed_many_before", another_thread_has_freed_many_before },
	{ "it_merges_with_another_threads", it_merges_with_another_threads },
	{ "each_thread_ends_with_its_free", each_thread_ends_with_its_free },
	{ "each_round_has_a_host_function", each_round_has_a_host_function },
	{ "another_context_waits_for_a_lock", another_context_waits_for_a_lock },
	{ "kernels_wait_for_words_of_another_thread", kernels_wait_for_words_of_another_thread },
	{ 0 },
};

const struct order_case *const order_cases[] = { backlog_cases, NULL };
