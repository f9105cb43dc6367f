/* SPDX-License-Identifier: MIT */
/*
 * One thread at a time writes a file for the user. Another that comes meanwhile goes on without,
 * but for the process's last word, which waits for a second: the writer may be in the middle of an
 * older one. It waits for no turn of its own, whose end would never come (exit() in a signal
 * handler). All zero: free. errno kept.
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/core/thread.h"

enum { CA_TURN_PAUSE_NS = 1000 * 1000, CA_TURN_PAUSES = 1000 };

struct ca_turn {
	_Atomic uint64_t thread; /* whose it is (ca_order_thread); 0: nobody's */
};

/* False: it is another's, or the calling thread's already. */
static inline bool
ca_turn_take(struct ca_turn *turn)
{
	uint64_t none = 0;

	return atomic_compare_exchange_strong(&turn->thread, &none, ca_order_thread());
}

/* The same, for the last time. */
static inline bool
ca_turn_await(struct ca_turn *turn)
{
	const struct timespec pause = { .tv_nsec = CA_TURN_PAUSE_NS };
	unsigned pauses = CA_TURN_PAUSES;
	int saved = errno;
	bool taken;

	while (!(taken = ca_turn_take(turn)) && pauses-- &&
	       atomic_load(&turn->thread) != ca_order_thread()) {
		/* not nanosleep(): that is a cancellation point */
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	errno = saved;
	return taken;
}

static inline void
ca_turn_leave(struct ca_turn *turn)
{
	atomic_store(&turn->thread, 0);
}
