/* SPDX-License-Identifier: MIT */
#include "allocator/util/yield.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPS_EVERY = 20, SLEEP_NS = 50 * 1000 };

void
ca_yield(void)
{
	static __thread unsigned calls __attribute__((tls_model("initial-exec")));
	const struct timespec sleep = { .tv_nsec = SLEEP_NS };
	int saved = errno;

	if (++calls % SLEEPS_EVERY)
		sched_yield();
	else /* not nanosleep(): that is a cancellation point */
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &sleep, NULL);
	errno = saved;
}
