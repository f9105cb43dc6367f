/* SPDX-License-Identifier: MIT */
/* Programs that would hang natively, where a free waits for everybody; they end with the library. A
 * part of charge.c. */
#include <stdatomic.h>

#include "tests/process/order/charge.h"

/* ------------------------------------------------- what stock would not end --- */
/* r is held up until all of s is done; nothing that s does may wait for it. */
static void
held_up(CUstream held, CUstream free_one, unsigned n)
{
	CUdeviceptr x = used_by(held);

	order_give(x);
	order_wait(word, 1, held);
	for (uint32_t i = 0; i < n; i++) {
		x = order_take(BIG);
		order_use(x, i, free_one);
		order_give(x);
	}
	OK(cuStreamSynchronize(free_one));
	*word = 1;
	order_end();
}

static void
compute_ends_beside_held_up_communication(void)
{
	two_streams();
	held_up(r, s, ROUNDS);
}

static void
high_priority_beside_low(void)
{
	two_streams();
	OK(cuStreamCreateWithPriority(&s, NONBLOCKING, -5));
	OK(cuStreamCreateWithPriority(&r, NONBLOCKING, 0));
	held_up(r, s, ROUNDS);
}

/* Both streams take and free in turn while the low one stands still. */
static void
high_priority_and_low_in_turn(void)
{
	CUdeviceptr x, y;

	two_streams();
	OK(cuStreamCreateWithPriority(&s, NONBLOCKING, -5));
	order_give(used_by(r));
	order_wait(word, 1, r);
	for (uint32_t i = 0; i < 8; i++) {
		x = order_take(BIG);
		order_use(x, i, r);
		order_give(x);
		y = order_take(BIG);
		order_use(y, i, s);
		order_give(y);
	}
	OK(cuStreamSynchronize(s));
	*word = 1;
	order_end();
}

static _Atomic int done, standing;

/* Thread 1 stands still until thread 0 is through with everything. */
static void
go_on_or_stand_still(int number)
{
	CUdeviceptr x;

	if (number) {
		x = used_by(r);
		order_give(x);
		order_wait(word, 1, r);
		atomic_store(&standing, 1);
		while (!atomic_load(&done))
			order_sleep(100);
		*word = 1;
		OK(cuStreamSynchronize(r));
		return;
	}
	while (!atomic_load(&standing)) /* what is taken from now on has nothing to do with r */
		order_sleep(100);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
	}
	OK(cuStreamSynchronize(s));
	atomic_store(&done, 1);
}

static void
a_thread_beside_one_that_stands_still(void)
{
	two_streams();
	order_threads(2, go_on_or_stand_still);
	order_end();
}

const struct order_case charge_beyond[] = {
	{ "beyond_compute_ends_beside_held_up_communication",
	  compute_ends_beside_held_up_communication },
	{ "beyond_high_priority_beside_low", high_priority_beside_low },
	{ "beyond_high_priority_and_low_in_turn", high_priority_and_low_in_turn },
	{ "beyond_a_thread_beside_one_that_stands_still", a_thread_beside_one_that_stands_still },
	{ NULL, NULL },
};
