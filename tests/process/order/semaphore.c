/* SPDX-License-Identifier: MIT */
/*
 * Order by external semaphores: `order_semaphore CASE`. What begins with `wrong_` lacks the order
 * that it seems to have, and the race oracle must say so; the others are right, natively and with
 * memory that was freed before.
 */
#include "tests/process/order/order.h"

#include <sys/mman.h>
#include <unistd.h>

struct scene {
	CUstream a, b, c;
	CUexternalSemaphore semaphore, other;
	CUdeviceptr memory;
};

/* Of a file that more imports may follow of; ret_file may be NULL. */
static CUexternalSemaphore
semaphore(int *ret_file)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
	};
	CUexternalSemaphore made;

	desc.handle.fd = memfd_create("semaphore", MFD_CLOEXEC);
	EXPECT(desc.handle.fd >= 0);
	if (ret_file)
		*ret_file = dup(desc.handle.fd);
	OK(cuImportExternalSemaphore(&made, &desc));
	return made;
}

static void
signals(CUexternalSemaphore which, unsigned long long value, CUstream stream)
{
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params = { .params.fence.value = value };

	OK(cuSignalExternalSemaphoresAsync(&which, &params, 1, stream));
}

static void
waits(CUexternalSemaphore which, unsigned long long value, CUstream stream)
{
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params = { .params.fence.value = value };

	OK(cuWaitExternalSemaphoresAsync(&which, &params, 1, stream));
}

static struct scene
begin(void)
{
	struct scene x;

	order_start();
	x.a = order_stream(NONBLOCKING);
	x.b = order_stream(NONBLOCKING);
	x.c = order_stream(NONBLOCKING);
	x.semaphore = semaphore(NULL);
	x.other = semaphore(NULL);
	x.memory = order_take(BIG);
	return x;
}

/* ----------------------------------------------------------------- right --- */
static void
waits_for_the_signal(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	waits(x.semaphore, 1, x.b);
	order_use(x.memory, 2, x.b);
	order_end();
}

static void
a_later_value_will_do(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 5, x.a);
	waits(x.semaphore, 3, x.b);
	order_use(x.memory, 2, x.b);
	order_end();
}

static void
waits_before_the_signal(void)
{
	struct scene x = begin();

	waits(x.semaphore, 1, x.b);
	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	order_use(x.memory, 2, x.b);
	order_end();
}

static void
from_one_to_the_next(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	waits(x.semaphore, 1, x.b);
	signals(x.other, 1, x.b);
	waits(x.other, 1, x.c);
	order_use(x.memory, 2, x.c);
	order_end();
}

/* Each of many signals orders what is behind a wait for it. */
static void
to_and_fro(void)
{
	struct scene x = begin();

	for (unsigned i = 1; i < 40; i += 2) {
		order_fill(x.memory, i, 0, x.a);
		signals(x.semaphore, i, x.a);
		waits(x.semaphore, i, x.b);
		order_fill(x.memory, i + 1, 0, x.b);
		signals(x.semaphore, i + 1, x.b);
		waits(x.semaphore, i + 1, x.a);
		if (i % 8 == 1)
			OK(cuStreamSynchronize(x.a));
	}
	order_end();
}

static void
imported_twice(void)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
	};
	struct scene x = begin();
	CUexternalSemaphore one = semaphore(&desc.handle.fd), two;

	OK(cuImportExternalSemaphore(&two, &desc));
	order_fill(x.memory, 1, LONG, x.a);
	signals(one, 1, x.a);
	waits(two, 1, x.b);
	order_use(x.memory, 2, x.b);
	OK(cuDestroyExternalSemaphore(one));
	order_end();
}

static void
two_in_one_call(void)
{
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params[2] = { { .params.fence.value = 1 },
							  { .params.fence.value = 1 } };
	struct scene x = begin();
	CUexternalSemaphore both[] = { x.semaphore, x.other };

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	order_fill(x.memory + 4ul * WORDS, 1, LONG, x.b);
	signals(x.other, 1, x.b);
	OK(cuWaitExternalSemaphoresAsync_ptsz(both, params, 2, NULL));
	order_fill_ptsz(x.memory, 2, 0, NULL);
	order_fill_ptsz(x.memory + 4ul * WORDS, 2, 0, NULL);
	order_end();
}

/* ---- on memory that somebody used before: the order of the next life is its own */
static void
freed_by_the_signalling_stream(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	x.memory = order_again(x.memory, BIG);
	order_use(x.memory, 2, x.b);
	order_end();
}

static void
freed_behind_a_wait(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	waits(x.semaphore, 1, x.b);
	order_use(x.memory, 2, x.b);
	x.memory = order_again(x.memory, BIG);
	order_use(x.memory, 3, x.c);
	order_end();
}

/* The next submission signals the other stream's semaphore: nobody may wait for that first. */
static void
freed_beside_an_open_wait(void)
{
	struct scene x = begin();
	CUdeviceptr next;

	order_fill(x.memory, 1, LONG, x.a);
	OK(cuCtxSynchronize());
	waits(x.semaphore, 1, x.b);
	next = order_take(BIG);
	order_use(next, 2, x.a);
	signals(x.semaphore, 1, x.a);
	order_give(x.memory);
	x.memory = order_take(BIG);
	order_use(x.memory, 3, x.c);
	order_end();
}

/* ----------------------------------------------------------------- wrong --- */
static void
wrong_nobody_waits(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

static void
wrong_signalled_too_early(void)
{
	struct scene x = begin();

	signals(x.semaphore, 1, x.a);
	order_fill(x.memory, 1, LONG, x.a);
	waits(x.semaphore, 1, x.b);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

static void
wrong_an_older_value(void)
{
	struct scene x = begin();

	signals(x.semaphore, 1, x.a);
	waits(x.semaphore, 1, x.b);
	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 2, x.a);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

/* The same, but the wait comes last. */
static void
wrong_the_first_that_will_do(void)
{
	struct scene x = begin();

	signals(x.semaphore, 1, x.a);
	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 2, x.a);
	waits(x.semaphore, 1, x.b);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

/* The host knows of the signal that ends the wait. */
static void
wrong_signalled_long_ago(void)
{
	struct scene x = begin();

	signals(x.semaphore, 1, x.a);
	OK(cuStreamSynchronize(x.a));
	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 2, x.a);
	waits(x.semaphore, 1, x.b);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

static void
wrong_another_semaphore(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	signals(x.other, 1, x.c);
	waits(x.other, 1, x.b);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

static void
wrong_another_stream_waits(void)
{
	struct scene x = begin();

	order_fill(x.memory, 1, LONG, x.a);
	signals(x.semaphore, 1, x.a);
	waits(x.semaphore, 1, x.c);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

static void
wrong_the_other_way_round(void)
{
	struct scene x = begin();

	signals(x.semaphore, 1, x.a);
	waits(x.semaphore, 1, x.b);
	order_fill(x.memory, 1, LONG, x.b);
	order_fill(x.memory, 2, 0, x.a);
	order_end();
}

#define CASES(X)                                                                                   \
	X(waits_for_the_signal)                                                                    \
	X(a_later_value_will_do)                                                                   \
	X(waits_before_the_signal)                                                                 \
	X(from_one_to_the_next)                                                                    \
	X(to_and_fro)                                                                              \
	X(imported_twice)                                                                          \
	X(two_in_one_call)                                                                         \
	X(freed_by_the_signalling_stream)                                                          \
	X(freed_behind_a_wait)                                                                     \
	X(freed_beside_an_open_wait)                                                               \
	X(wrong_nobody_waits)                                                                      \
	X(wrong_signalled_too_early)                                                               \
	X(wrong_the_first_that_will_do)                                                            \
	X(wrong_signalled_long_ago)                                                                \
	X(wrong_an_older_value)                                                                    \
	X(wrong_another_semaphore)                                                                 \
	X(wrong_another_stream_waits)                                                              \
	X(wrong_the_other_way_round)

static const struct order_case semaphores[] = {
#define X(name) { #name, name },
	CASES(X)
#undef X
		{ NULL, NULL },
};

const struct order_case *const order_cases[] = { semaphores, NULL };
