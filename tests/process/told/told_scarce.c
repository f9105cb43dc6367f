/* SPDX-License-Identifier: MIT */
/*
 * Memory is scarce, and a kernel lasts until the host says so: natively nobody has to wait for it.
 * Most of a device of 256 MiB is wanted twice.
 */
#include "tests/process/told/told.h"

enum { MOST = 200 * MIB };

static CUstream b, n, m; /* blocking; not */
static volatile uint32_t *word;

static void
begin(void)
{
	told_start();
	b = order_stream(BLOCKING);
	n = order_stream(NONBLOCKING);
	m = order_stream(NONBLOCKING);
	word = order_word();
}

static void
take_most(CUstream stream)
{
	CUdeviceptr y = told_take(MOST, stream);

	*word = 1;
	order_use(y, 2, stream);
	told_give(y, stream);
	order_end();
}

/* `lasts` has the kernel, which what `stream` frees comes behind, and what it takes, too. */
static void
taken_again_behind(CUstream lasts, CUstream stream)
{
	CUdeviceptr x = told_take(MOST, stream);

	order_fill(x, 1, 0, stream);
	order_wait(word, 1, lasts);
	told_give(x, stream);
	take_most(stream);
}

static void
taken_again_behind_legacy(void)
{
	begin();
	taken_again_behind(NULL, b);
}

static void
taken_again_behind_blocking(void)
{
	begin();
	taken_again_behind(b, NULL);
}

/* On a device that is not full. */
static void
taken_again_in_a_loop(void)
{
	CUdeviceptr x, z;

	begin();
	z = told_take(SMALL, NULL);
	OK(cuCtxSynchronize());
	order_fill(z, 1, 50 * LONG, NULL);
	for (unsigned i = 0; i < 30; i++) {
		x = told_take(BIG, b);
		order_use(x, i, b);
		told_give(x, b);
	}
	printf("%d\n",
	       told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < 64 * MIB);
	told_give(z, NULL);
	order_end();
}

/* The rest of what was freed first was put behind what was freed later. */
static void
older_rest(void)
{
	CUdeviceptr x, y, z;

	begin();
	x = told_take(160 * MIB, n);
	y = told_take(50 * MIB, n);
	order_fill(x, 1, 0, n);
	told_give(x, n);
	order_fill(y, 1, 0, n);
	order_wait(word, 1, n);
	told_give(y, n);
	z = told_take(60 * MIB, n);
	order_sleep(50 * 1000);
	x = told_take(48 * MIB, m); /* of the 100 MiB that are left of the first */
	order_use(x, 2, m);
	OK(cuStreamSynchronize(m));
	*word = 1;
	told_give(x, m);
	told_give(z, n);
	order_end();
}

/* As above, and between the two ends of the list: what was freed first was not found to have ended.
 */
static void
middle_rest(void)
{
	CUdeviceptr x, y, z, piece[18];
	CUevent ended;

	begin();
	z = told_take(SMALL, m);
	order_use(z, 1, m);
	told_give(z, m);
	x = told_take(100 * MIB, n);
	y = told_take(60 * MIB, n);
	for (int i = 0; i < 18; i++)
		piece[i] = told_take(2 * MIB, n);
	OK(cuCtxSynchronize());
	order_fill(x, 1, LONG, n);
	told_give(x, n);
	ended = order_event();
	OK(cuEventRecord(ended, n));
	order_wait(word, 1, n);
	told_give(y, n);
	for (int i = 0; i < 18; i += 2) {
		order_fill(piece[i], 1, 0, n);
		told_give(piece[i], n);
	}
	z = told_take(20 * MIB, n); /* of the 60 MiB */
	OK(cuEventSynchronize(ended));
	OK(cuMemPoolTrimTo(told_default(), 0));
	x = order_take(95 * MIB);
	*word = 1;
	order_use(x, 2, m);
	order_give(x);
	told_give(z, n);
	for (int i = 1; i < 18; i += 2)
		told_give(piece[i], n);
	order_end();
}

/*
 * Memory that was used in `user` is freed in `freer`; then `later`, which the driver orders that
 * one with, waits for what m does behind an allocation from that memory: natively only the free
 * stands in front of it. `records`: so does an event of the program's in `freer`.
 */
static void
taken_before_a_wait(CUstream user, CUstream freer, CUstream later, bool kernel, bool records)
{
	CUdeviceptr x = told_take(MOST, freer), y, few = told_take(SMALL, later);

	order_use(few, 1, later);
	OK(cuCtxSynchronize());
	order_use(few, 1, m);
	OK(cuCtxSynchronize());
	order_fill(x, 1, LONG, user);
	told_give(x, freer);
	if (kernel)
		order_wait(word, 1, later);
	else
		OK(cuStreamWaitValue32_v2(later, (CUdeviceptr)(uintptr_t)word, 1, 0));
	if (records)
		OK(cuEventRecord(order_event(), freer));
	y = told_take(MOST, m);
	order_use(y, 2, m);
	order_signal(word, 1, m);
	told_give(y, m);
	told_give(few, m);
	order_end();
}

static void
taken_before_legacy_waits(void)
{
	begin();
	taken_before_a_wait(b, b, NULL, false, false);
}

static void
taken_before_legacy_waits_used_there(void)
{
	begin();
	taken_before_a_wait(NULL, b, NULL, false, false);
}

static void
taken_before_a_kernel_of_legacy(void)
{
	begin();
	taken_before_a_wait(b, b, NULL, true, false);
}

static void
taken_before_blocking_waits(void)
{
	begin();
	taken_before_a_wait(NULL, NULL, b, false, true);
}

static void
taken_before_a_kernel_of_blocking(void)
{
	begin();
	taken_before_a_wait(b, NULL, b, true, true);
}

/* The newest context's work has failed: idle memory goes back in another one. */
static void
beside_a_broken_context(void)
{
	CUdeviceptr x[2];
	CUcontext good;

	begin();
	OK(cuCtxGetCurrent(&good));
	order_context(0);
	order_fault();
	order_enter(good);
	for (int i = 0; i < 2; i++)
		x[i] = told_take(MOST / 2, n);
	for (int i = 0; i < 2; i++)
		told_give(x[i], n);
	OK(cuStreamSynchronize(n));
	take_most(n);
}

const struct order_case told_scarce[] = {
	{ "taken_again_behind_legacy", taken_again_behind_legacy },
	{ "taken_again_behind_blocking", taken_again_behind_blocking },
	{ "taken_again_in_a_loop", taken_again_in_a_loop },
	{ "older_rest", older_rest },
	{ "middle_rest", middle_rest },
	{ "taken_before_legacy_waits", taken_before_legacy_waits },
	{ "taken_before_legacy_waits_used_there", taken_before_legacy_waits_used_there },
	{ "taken_before_a_kernel_of_legacy", taken_before_a_kernel_of_legacy },
	{ "taken_before_blocking_waits", taken_before_blocking_waits },
	{ "taken_before_a_kernel_of_blocking", taken_before_a_kernel_of_blocking },
	{ "beside_a_broken_context", beside_a_broken_context },
	{ 0 },
};
