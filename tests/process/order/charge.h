/* SPDX-License-Identifier: MIT */
/* What the programs of test_charge.py have in common. */
#pragma once

#include "tests/process/order/order.h"

enum { AHEAD = 1000, ROUNDS = 100, FORKED_MAX = 30 };

static CUstream s, r;
static volatile uint32_t *word;

static inline void
two_streams(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	word = order_word();
}

static inline CUdeviceptr
used_by(CUstream stream)
{
	CUdeviceptr x = order_take(BIG);

	order_fill(x, 1, 0, stream);
	return x;
}

/* Of charge_found.c and charge_beyond.c. */
extern const struct order_case charge_found[], charge_beyond[];
