/* SPDX-License-Identifier: MIT */
#include "allocator/core/thread.h"

#include <stdatomic.h>

#include "allocator/core/order_types.h"

__thread struct ca_stream *ca_order_last_stream __attribute__((tls_model("initial-exec")));

__thread uint64_t ca_order_own_thread __attribute__((tls_model("initial-exec")));

uint64_t
ca_order_new_thread(void)
{
	static _Atomic uint64_t threads;
	uint64_t own = atomic_fetch_add(&threads, 1) + 1;

	ca_order_own_thread = own > UINT32_MAX ? own << 32 : own;
	return ca_order_own_thread;
}
