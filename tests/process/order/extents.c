/* SPDX-License-Identifier: MIT */
/* Segments that grow and shrink by mapping (expandable_segments:True): `order_extents CASE`. */
#include "tests/process/order/order.h"

enum {
	HANDLE = 20 * MIB, /* made from 512 MiB in use on; they begin on its multiples */
	BEFORE = 26 * HANDLE,
};

uint64_t cachealloc_trim(uint64_t keep_bytes) __attribute__((weak));

/* Memory that beside its own work nobody uses goes back in a free, and the next one takes its
 * place.
 */
static void
freed_while_work_uses_it(void)
{
	CUstream s, r;
	CUdeviceptr x, y;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	for (unsigned i = 0; i < 8; i++) {
		x = order_take(BIG);
		y = order_take(PART);
		order_fill(x, i, LONG, s);
		order_give(x);
		order_use(y, i, r);
		order_give(y);
	}
	order_end();
}

/* Of a large handle the lower part is in use, and the upper one is free. */
static void
part_of_a_handle_in_use(void)
{
	CUdeviceptr before, x;

	order_start();
	before = order_take(BEFORE);
	x = order_again(order_take(HANDLE), PART);
	order_fill(x, 7, 0, NULL);
	OK(cuCtxSynchronize());
	if (cachealloc_trim)
		cachealloc_trim(0);
	order_check(x, 7, NULL);
	order_end();
	order_give(x);
	order_give(before);
}

static const struct order_case cases[] = {
	{ "freed_while_work_uses_it", freed_while_work_uses_it },
	{ "part_of_a_handle_in_use", part_of_a_handle_in_use },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, NULL };
