/* SPDX-License-Identifier: MIT */
/*
 * A lock that is held for a few loads and stores, under which no other is taken: no call into the C
 * library where nobody waits for it. All zero: free.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "allocator/util/yield.h"

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
	while (!ca_leaf_lock_try(lock))
		ca_yield();
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
