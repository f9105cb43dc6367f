/* SPDX-License-Identifier: MIT */
/* The calling thread: its number, and its last submission. */
#pragma once

#include <stdint.h>

struct ca_stream;

/* The stream of the calling thread's last submission; NULL: none. */
extern __thread struct ca_stream *ca_order_last_stream __attribute__((tls_model("initial-exec")));
/* A number for the calling thread: never 0, never another thread's. A block has room for the lower
 * 32 bits; a number that needs more has none there, and so is never equal to a block's. */
uint64_t ca_order_thread(void);
