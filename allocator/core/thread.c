/* SPDX-License-Identifier: MIT */
#include "allocator/core/thread.h"

#include <stdatomic.h>

#include "allocator/core/order_types.h"

__thread struct ca_stream *ca_order_last_stream __attribute__((tls_model("initial-exec")));

uint64_t
ca_order_thread(void)
{
	static _Atomic uint64_t threads;
	static __thread uint64_t own __attribute__((tls_model("initial-exec")));

	if (__builtin_expect(!own, 0)) {
		own = atomic_fetch_add(&threads, 1) + 1;
		if (own > UINT32_MAX)
			own <<= 32;
	}
	return own;
}
