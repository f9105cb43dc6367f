/* SPDX-License-Identifier: MIT */
/*
 * Attempts that may be in vain: each one that is doubles the number of occasions that pass until
 * the next. All zero: the first occasion is an attempt. Under the owner's lock.
 */
#pragma once

#include <stdbool.h>

/* The most doublings. The 44 workloads (tests/traces/README.md) are the same with 4 and 12. */
enum { CA_BACKOFF_MAX = 8 };

struct ca_backoff {
	unsigned failures; /* attempts, since the last that was not */
	unsigned pass;     /* occasions until the next attempt */
};

/* An occasion. True: to be attempted. */
static inline bool
ca_backoff_is_due(struct ca_backoff *backoff)
{
	if (!backoff->pass)
		return true;
	backoff->pass--;
	return false;
}

static inline void
ca_backoff_succeeded(struct ca_backoff *backoff)
{
	backoff->failures = 0;
}

static inline void
ca_backoff_failed(struct ca_backoff *backoff)
{
	if (backoff->failures < CA_BACKOFF_MAX)
		backoff->failures++;
	backoff->pass = (1u << backoff->failures) - 1;
}
