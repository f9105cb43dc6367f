/* SPDX-License-Identifier: MIT */
/* The locks, and leaving the heap's for a driver call. */
#pragma once

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "allocator/core/order_types.h"

struct ca_device;
struct ca_heap;
struct ca_space;

/* Locks of ours that the thread holds, or is about to; written by it, read by its signal handlers.
 * (Not volatile: that takes two instructions more each time.) */
extern __thread sig_atomic_t ca_locks_held __attribute__((tls_model("initial-exec")));

/* Before a lock is taken, and after it was left: between the two, a handler errs on the safe side.
 */
static inline void
ca_locks_count_one(void)
{
	ca_locks_held++;
	atomic_signal_fence(memory_order_seq_cst);
}
static inline void
ca_locks_uncount_one(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	ca_locks_held--;
}

/* The slow halves of the next two. */
void ca_lock_await(struct ca_lock *lock);
void ca_lock_wake_one(struct ca_lock *lock);

static inline bool
ca_lock_try(struct ca_lock *lock)
{
	unsigned is_free = CA_LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(&lock->word, &is_free, CA_LOCK_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void
ca_lock_enter(struct ca_lock *lock)
{
	ca_locks_count_one();
	if (__builtin_expect(!ca_lock_try(lock), 0))
		ca_lock_await(lock);
}

static inline void
ca_lock_leave(struct ca_lock *lock)
{
	if (__builtin_expect(atomic_exchange_explicit(&lock->word, CA_LOCK_FREE,
						      memory_order_release) == CA_LOCK_AWAITED,
			     0))
		ca_lock_wake_one(lock);
	ca_locks_uncount_one();
}

/* No segment is leased from then on until the lock is left (allocator/block/lease.h). */
void ca_heap_lock(struct ca_heap *heap);
/* Leases go on: the blocks of their segments are none of the caller's business. */
void ca_heap_lock_leased(struct ca_heap *heap);
/* A thread found that lock taken lately: several miss at the same time. */
bool ca_heap_has_contention_locked(const struct ca_heap *heap);
void ca_heap_unlock(struct ca_heap *heap);
/* The heap's lock is held from here to the end of the block. */
#define CA_HEAP_LOCKED(heap)                                                                       \
	__attribute__((cleanup(ca_heap_scope_end), unused)) struct ca_heap *ca_heap_locked =       \
		(ca_heap_lock(heap), (heap))
#define CA_HEAP_LOCKED_LEASED(heap)                                                                \
	__attribute__((cleanup(ca_heap_scope_end), unused)) struct ca_heap *ca_heap_locked =       \
		(ca_heap_lock_leased(heap), (heap))
static inline void
ca_heap_scope_end(struct ca_heap **heap)
{
	ca_heap_unlock(*heap);
}
/* May be taken with the heap's lock held. */
static inline void
ca_order_lock(struct ca_order *order)
{
	ca_lock_enter(&order->lock);
}
static inline void
ca_order_unlock(struct ca_order *order)
{
	ca_lock_leave(&order->lock);
}
/* Around a driver call that may bring memory back:
 * leaves the lock, counted as in flight; takes it again. */
void ca_outside_enter_locked(struct ca_space *space);
void ca_outside_leave(struct ca_space *space);
/* The child's one thread is in no driver call it could return from. */
void ca_outside_after_fork_child(void);
/* Leaves the lock for that long. */
void ca_outside_pause(struct ca_heap *heap, long ns);
/* In-flight calls of other threads. */
unsigned ca_outside_others_locked(const struct ca_device *device);
/* True inside a driver call of the calling thread's own. */
bool ca_outside_self(void);
