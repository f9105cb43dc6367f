/* SPDX-License-Identifier: MIT */
/* What threads do with magazines, and how many there are. */
#pragma once

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/tcache/internal.h"
#include "tests/unit/allocator/fixture.h"

enum { MANY = 64, STEP_NS = 20 * 1000 * 1000 };

struct shared {
	struct fixture f;
	uint64_t size;
	uint64_t blocks[MANY];
	_Atomic unsigned started, done;
	_Atomic int results[2];
	pthread_barrier_t together;
};

/* Threads are taken to wait for each other, as leases want, whether or not they do. */
static inline void
contended_start(struct fixture *f)
{
	fixture_start(f);
	f->heap->contention_until = UINT64_MAX;
}

struct in_thread {
	void *(*function)(void *);
	void *arg;
	long tid;
};

static inline void *
run_in_thread(void *arg)
{
	struct in_thread *call = arg;

	call->tid = syscall(SYS_gettid);
	return call->function(call->arg);
}

/* Returns once the kernel does not know the thread any more, which is a little later than a join
 * tells: from then on its magazine goes to the next thread that wants one. */
static inline void
in_thread(void *(*function)(void *), void *arg)
{
	struct in_thread call = { .function = function, .arg = arg };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, run_in_thread, &call), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	while (!syscall(SYS_tgkill, getpid(), call.tid, 0))
		nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
	assert_int_equal(errno, ESRCH);
}

static inline void *
free_all(void *arg)
{
	struct shared *shared = arg;
	int i;

	for (i = 0; i < MANY; i++)
		shared->done += ca_free(shared->f.heap, shared->blocks[i]) != 0;
	return NULL;
}

static inline void *
take_and_free_many(void *arg)
{
	struct shared *shared = arg;
	int i;

	for (i = 0; i < MANY; i++)
		shared->done += ca_alloc(shared->f.space, shared->size, &shared->blocks[i]) != 0;
	return free_all(shared);
}

static inline unsigned
magazines(const struct ca_heap *heap)
{
	const struct ca_magazine *magazine;
	unsigned n = 0;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		n++;
	return n;
}

static inline unsigned
kept(const struct ca_heap *heap)
{
	const struct ca_magazine *magazine;
	unsigned n = 0, i;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		for (i = 0; i < CA_SHELVES; i++)
			n += magazine->shelf[i] ? ca_shelf_kept(magazine->shelf[i]) : 0;
	return n;
}

/* From now on a thread takes what others keep before the cache grows, whatever its budget. */
static inline void
grow_last(struct fixture *f)
{
	f->space->spreads.pass = UINT_MAX;
}

static inline void
sleep_a_step(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
}
