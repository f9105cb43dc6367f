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
#include "config/mutant.h"

static __thread unsigned own_calls __attribute__((tls_model("initial-exec")));
__thread sig_atomic_t ca_locks_held __attribute__((tls_model("initial-exec")));

/*
 * Pauses before a thread sleeps, in all and between two looks: each look takes the word's cache
 * line away from its holder. All of them are about 40 us, as long as to sleep and be woken takes.
 * (Two threads that miss all the time, a ring of 64 blocks of 96 sizes each, 10 seeds: of a million
 * pairs 8 sleep, with 200 pauses 670; the time is the same, and the processors' time 13 % more.)
 */
enum { SPINS = 1000, SPINS_AT_A_TIME = 16 };

CA_APART void
ca_lock_await(struct ca_lock *lock)
{
	int saved = errno;
	unsigned spins = 0, pauses = 1, i;

	while (spins < SPINS) {
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == CA_LOCK_FREE &&
		    ca_lock_try(lock))
			return;
		for (i = 0; i < pauses; i++)
			ca_cpu_pause();
		spins += pauses;
		if (pauses < SPINS_AT_A_TIME)
			pauses *= 2;
	}
	/* a thread that comes from here does not know whether others sleep, and wakes one in any
	 * case */
	while (atomic_exchange_explicit(&lock->word, CA_LOCK_AWAITED, memory_order_acquire) !=
	       CA_LOCK_FREE)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, CA_LOCK_AWAITED, NULL, NULL, 0);
	errno = saved;
}

CA_APART void
ca_lock_wake_one(struct ca_lock *lock)
{
	int saved = errno;

	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

/*
 * Requests with the lock, after one that found it taken, that count as contention. Threads that
 * take turns have nothing of segments of their own: each would fill those, and leave the holes of
 * the others. (5,000 blocks up to 1 MiB, 2.6 GiB in all, handed around among 2 and 16 threads,
 * reserve 4 and 2 MiB more than with one thread; where each thread had its own, 138 and 148.)
 */
enum { CONTENTION_FOR = 1024 };

void
ca_heap_lock_leased(struct ca_heap *heap)
{
	ca_locks_count_one();
	if (__builtin_expect(ca_lock_try(&heap->lock), 1))
		return;
	ca_lock_await(&heap->lock);
	heap->contention_until = heap->requests + CONTENTION_FOR;
}

bool
ca_heap_has_contention_locked(const struct ca_heap *heap)
{
	return heap->requests < heap->contention_until;
}

void
ca_heap_lock(struct ca_heap *heap)
{
	ca_lock_enter(&heap->lock);
	if (__builtin_expect(heap->leases != NULL, 0) && !CA_MUTANT(LEASES_GO_ON))
		heap->hooks.end_leases(heap);
}

void
ca_heap_unlock(struct ca_heap *heap)
{
	ca_lock_leave(&heap->lock);
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
	else /* not nanosleep(): that is a cancellation point */
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	ca_heap_lock(heap);
	errno = saved;
}
