/* SPDX-License-Identifier: MIT */
/*
 * Leaving the lock for a driver call, and being counted while outside.
 *
 * The count lets the out-of-memory ladder tell "nothing is left" from "another thread has it in its
 * hand right now". A thread's own calls are left out: a callback of the driver may enter the heap
 * again, and must not wait for the call it runs in.
 */
#include "allocator/inside.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

static __thread unsigned own_calls __attribute__((tls_model("initial-exec")));
/* locks held; written by its thread, read by its signal handlers */
static __thread volatile sig_atomic_t lock_held __attribute__((tls_model("initial-exec")));

void
ca_heap_lock(struct ca_heap *heap)
{
	lock_held++; /* first: between the two, a handler errs on the safe side */
	pthread_mutex_lock(&heap->lock);
}

void
ca_heap_unlock(struct ca_heap *heap)
{
	pthread_mutex_unlock(&heap->lock);
	lock_held--;
}

void
ca_order_lock(struct ca_order *order)
{
	lock_held++;
	pthread_mutex_lock(&order->lock);
}

void
ca_order_unlock(struct ca_order *order)
{
	pthread_mutex_unlock(&order->lock);
	lock_held--;
}

void
ca_outside_enter_locked(struct ca_space *space)
{
	space->device->in_flight++;
	own_calls++;
	ca_heap_unlock(space->heap);
}

void
ca_outside_leave(struct ca_space *space)
{
	ca_heap_lock(space->heap);
	own_calls--;
	space->device->in_flight--;
}

unsigned
ca_outside_others_locked(const struct ca_device *device)
{
	return device->in_flight > own_calls ? device->in_flight - own_calls : 0;
}

bool
ca_outside_self(void)
{
	return own_calls != 0;
}

bool
ca_heap_locked_here(void)
{
	return lock_held;
}

void
ca_outside_after_fork_child(void)
{
	own_calls = 0;
	lock_held = 0;
}

/* Sleeping needs no condition variable, which old glibc has in another library. */
void
ca_outside_pause(struct ca_heap *heap, long ns)
{
	struct timespec pause = { .tv_nsec = ns };
	int saved = errno;

	ca_heap_unlock(heap);
	if (heap->driver.pause)
		heap->driver.pause(heap->driver.self, (uint64_t)ns);
	else
		nanosleep(&pause, NULL);
	ca_heap_lock(heap);
	errno = saved;
}
