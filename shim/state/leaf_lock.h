/* SPDX-License-Identifier: MIT */
/*
 * A lock that is held for a few loads and stores, under which no other is taken: no call into the C
 * library where nobody waits for it. All zero: free. A thread that waits comes to sleep: one of a
 * higher real-time priority than the holder's would keep the processor from it.
 */
#pragma once

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CA_LEAF_LOCK_YIELDS = 20, CA_LEAF_LOCK_PAUSE_NS = 50 * 1000 };

struct ca_leaf_lock {
	_Atomic bool held;
};

static inline bool
ca_leaf_lock_try(struct ca_leaf_lock *lock)
{
	return !atomic_exchange_explicit(&lock->held, true, memory_order_acquire);
}

static __attribute__((noinline, cold, unused)) void
ca_leaf_lock_await(struct ca_leaf_lock *lock)
{
	struct timespec pause = { .tv_nsec = CA_LEAF_LOCK_PAUSE_NS };
	int saved = errno;
	unsigned tries = 0;

	while (!ca_leaf_lock_try(lock))
		if (tries++ < CA_LEAF_LOCK_YIELDS)
			sched_yield();
		else /* not nanosleep(): that is a cancellation point */
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	errno = saved;
}

static inline void
ca_leaf_lock_enter(struct ca_leaf_lock *lock)
{
	if (__builtin_expect(!ca_leaf_lock_try(lock), 0))
		ca_leaf_lock_await(lock);
}

static inline void
ca_leaf_lock_leave(struct ca_leaf_lock *lock)
{
	atomic_store_explicit(&lock->held, false, memory_order_release);
}
