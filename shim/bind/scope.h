/* SPDX-License-Identifier: MIT */
/* Things that the end of a block undoes, whichever way the block is left. */
#pragma once

#include <errno.h>
#include <pthread.h>

/* errno becomes again what it is here. */
#define CA_KEEP_ERRNO                                                                              \
	const int ca_errno_kept __attribute__((unused, cleanup(ca_errno_restore))) = errno

static inline void
ca_errno_restore(const int *kept)
{
	errno = *kept;
}

/* Holds a mutex from here on. */
#define CA_HOLD_LOCK(mutex)                                                                        \
	pthread_mutex_t *const ca_lock_held __attribute__((unused, cleanup(ca_lock_release))) =    \
		ca_lock_acquire(mutex)

static inline pthread_mutex_t *
ca_lock_acquire(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	return mutex;
}

static inline void
ca_lock_release(pthread_mutex_t *const *held)
{
	pthread_mutex_unlock(*held);
}
