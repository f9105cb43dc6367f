/* SPDX-License-Identifier: MIT */
/* The locks, and leaving the heap's for a driver call. */
#pragma once

#include <signal.h>
#include <stdbool.h>

struct ca_device;
struct ca_heap;
struct ca_order;
struct ca_space;

/* Locks of ours that the thread holds, or is about to; written by it, read by its signal handlers.
 */
extern __thread volatile sig_atomic_t ca_locks_held __attribute__((tls_model("initial-exec")));

void ca_heap_lock(struct ca_heap *heap);
void ca_heap_unlock(struct ca_heap *heap);
/* The heap's lock is held from here to the end of the block. */
#define CA_HEAP_LOCKED(heap)                                                                       \
	__attribute__((cleanup(ca_heap_scope_end), unused)) struct ca_heap *ca_heap_locked =       \
		(ca_heap_lock(heap), (heap))
static inline void
ca_heap_scope_end(struct ca_heap **heap)
{
	ca_heap_unlock(*heap);
}
/* May be taken with the heap's lock held. */
void ca_order_lock(struct ca_order *order);
void ca_order_unlock(struct ca_order *order);
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
