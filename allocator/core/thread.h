/* SPDX-License-Identifier: MIT */
/* The calling thread: its number, and its last submission. */
#pragma once

#include <stdint.h>

struct ca_stream;

/* The stream of the calling thread's last submission; NULL: none. */
extern __thread struct ca_stream *ca_order_last_stream __attribute__((tls_model("initial-exec")));
/* A number for the calling thread: never 0, never another thread's. A block has room for the lower
 * 32 bits; a number that needs more has none there, and so is never equal to a block's. */
extern __thread uint64_t ca_order_own_thread __attribute__((tls_model("initial-exec")));
uint64_t ca_order_new_thread(void);
static inline uint64_t
ca_order_thread(void)
{
	uint64_t own = ca_order_own_thread; /* 0: none so far */

	return __builtin_expect(own != 0, 1) ? own : ca_order_new_thread();
}
