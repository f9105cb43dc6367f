/* SPDX-License-Identifier: MIT */
/*
 * Leaving the lock for a driver call, and being counted while outside.
 *
 * The count lets the out-of-memory ladder tell "nothing is left" from "another thread has it in its
 * hand right now". A thread's own calls are left out: a callback of the driver may enter the heap
 * again, and must not wait for the call it runs in.
 */
#include "allocator/core/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/core/types.h"

static __thread unsigned own_calls __attribute__((tls_model("initial-exec")));
__thread volatile sig_atomic_t ca_locks_held __attribute__((tls_model("initial-exec")));

/* Of the heap's lock; AWAITED: held, and perhaps somebody sleeps until it is not. */
enum { FREE, HELD, AWAITED };
enum { SPINS = 200 };

static bool
try_lock(struct ca_heap *heap)
{
	unsigned free = FREE;

	return atomic_compare_exchange_strong_explicit(&heap->lock, &free, HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/* It is held for a few instructions, mostly: to sleep and be woken takes much longer. */
static CA_APART void
await_lock(struct ca_heap *heap)
{
	int saved = errno;
	unsigned spins;

	for (spins = 0; spins < SPINS; spins++) {
		if (atomic_load_explicit(&heap->lock, memory_order_relaxed) == FREE &&
		    try_lock(heap))
			return;
		ca_cpu_pause();
	}
	/* a thread that comes from here does not know whether others sleep, and wakes one in any
	 * case */
	while (atomic_exchange_explicit(&heap->lock, AWAITED, memory_order_acquire) != FREE)
		syscall(SYS_futex, &heap->lock, FUTEX_WAIT_PRIVATE, AWAITED, NULL, NULL, 0);
	errno = saved;
}

static CA_APART void
wake_one(struct ca_heap *heap)
{
	int saved = errno;

	syscall(SYS_futex, &heap->lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

void
ca_heap_lock(struct ca_heap *heap)
{
	ca_locks_held++; /* first: between the two, a handler errs on the safe side */
	if (__builtin_expect(!try_lock(heap), 0))
		await_lock(heap);
}

void
ca_heap_unlock(struct ca_heap *heap)
{
	if (__builtin_expect(atomic_exchange_explicit(&heap->lock, FREE, memory_order_release) ==
				     AWAITED,
			     0))
		wake_one(heap);
	ca_locks_held--;
}

void
ca_order_lock(struct ca_order *order)
{
	ca_locks_held++;
	pthread_mutex_lock(&order->lock);
}

void
ca_order_unlock(struct ca_order *order)
{
	pthread_mutex_unlock(&order->lock);
	ca_locks_held--;
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

void
ca_outside_after_fork_child(void)
{
	own_calls = 0;
	ca_locks_held = 0;
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
