/* SPDX-License-Identifier: MIT */
/*
 * Memory is freed behind work that goes on, and as much is taken by the same stream, or by another
 * one that comes after it, or does not. Contents and the race oracle judge.
 */
#include "tests/process/told/told.h"

static CUstream s, r;

static void
begin(unsigned flags)
{
	told_start();
	s = order_stream(flags);
	r = order_stream(NONBLOCKING);
}

static void
same_stream(void)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, s), y;

		order_fill(x, 1, LONG, s);
		told_give(x, s);
		y = told_take(PART, s);
		printf("%d\n", x == y);
		order_use(y, 2, s);
		told_give(y, s);
	}
	order_end();
}

/* In pieces, which are one block again. */
static void
same_stream_pieces(void)
{
	CUdeviceptr x[4], y;

	begin(NONBLOCKING);
	for (int i = 0; i < 4; i++)
		x[i] = told_take(2 * MIB, s);
	for (int i = 0; i < 4; i++)
		order_fill(x[i], 1, LONG / 4, s);
	for (int i = 3; i >= 0; i--)
		told_give(x[i], s);
	y = told_take(8 * MIB, s);
	order_use(y, 2, s);
	order_use(y + 7 * MIB, 3, s);
	told_give(y, s);
	order_end();
}

static void
unordered_with(size_t bytes)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(bytes, s), y;

		order_fill(x, 1, LONG, s);
		told_give(x, s);
		y = told_take(bytes, r);
		order_use(y, 2, r);
		told_give(y, r);
	}
	order_end();
}

static void
unordered(void)
{
	unordered_with(PART);
}

static void
unordered_small(void)
{
	unordered_with(SMALL);
}

/* The device needs no more memory for what comes after it by an event. */
static void
followed(void)
{
	cuuint64_t reserved = 0;

	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, s), y;

		order_fill(x, 1, LONG, s);
		told_give(x, s);
		told_join(s, r);
		y = told_take(BIG, r);
		order_use(y, 2, r);
		told_give(y, r);
		told_join(r, s);
		if (!i)
			reserved = told_attribute(told_default(),
						  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	}
	EXPECT(told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved);
	order_end();
}

/* The other stream has waited, but for an earlier place than the free. */
static void
followed_too_early(void)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, s), y;
		CUevent event = order_event();

		OK(cuEventRecord(event, s));
		order_fill(x, 1, LONG, s);
		told_give(x, s);
		OK(cuStreamWaitEvent(r, event, 0));
		y = told_take(PART, r);
		order_use(y, 2, r);
		told_give(y, r);
		OK(cuEventDestroy_v2(event));
	}
	order_end();
}

/* Memory used in two streams and freed in one of them, which comes after the other. */
static void
joined(void)
{
	CUstream other;

	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, s), y;

		told_join(s, r);
		order_fill(x, 1, LONG, r);
		told_join(r, s);
		told_give(x, s);
		other = i % 2 ? s : order_stream(NONBLOCKING);
		y = told_take(PART, other);
		order_use(y, 2, other);
		told_give(y, other);
	}
	order_end();
}

/* Once the work has ended another stream gets the memory without a word from the program. */
static void
opportunistic(void)
{
	CUdeviceptr x, y;

	begin(NONBLOCKING);
	x = told_take(BIG, s);
	order_fill(x, 1, LONG, s);
	told_give(x, s);
	y = told_take(BIG, r); /* asks, in vain */
	order_use(y, 2, r);
	OK(cuCtxSynchronize());
	OK(cuMemFree_v2(y));
	for (int i = 0; i < ROUNDS; i++) {
		x = told_take(BIG, i % 2 ? r : s);
		order_use(x, 3, i % 2 ? r : s);
		told_give(x, i % 2 ? r : s);
		OK(cuStreamSynchronize(i % 2 ? r : s));
	}
	EXPECT(told_attribute(told_default(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 64 * MIB);
	order_end();
}

/* On a device with room for one block: what waits in one stream serves the other behind a wait. */
static void
behind(void)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(40 * MIB, s), y;

		order_fill(x, 1, 10 * LONG, s);
		told_give(x, s);
		y = told_take(40 * MIB, r);
		order_use(y, 2, r);
		told_give(y, r);
	}
	order_end();
}

/* A segment that is taken behind work of its stream: the rest of it is not another's at once. */
static void
born(void)
{
	CUdeviceptr x, y, z;

	begin(NONBLOCKING);
	(void)told_take(SMALL, r);
	x = told_take(BIG, s);
	for (int i = 0; i < ROUNDS; i++) {
		order_fill(x, 1, LONG, s);
		y = told_take(900 * 1024, s);
		z = told_take(900 * 1024, r);
		order_use(z, 2, r);
		order_use(y, 3, s);
	}
	order_end();
}

/* ---- default streams */

/* Others take as much, of which nothing comes after the busy stream. */
static void
take_unordered(CUstream t)
{
	CUdeviceptr y[3];

	for (int i = 0; i < 3; i++) {
		y[i] = told_take(BIG, t);
		order_use(y[i], 2, t);
	}
	OK(cuCtxSynchronize());
	for (int i = 0; i < 3; i++)
		told_give(y[i], t);
	OK(cuMemPoolTrimTo(told_default(), 0));
}

/* Freed in the legacy stream, which comes after the blocking one: so does nobody else. */
static void
legacy_free(void)
{
	begin(BLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, s);

		OK(cuStreamSynchronize(s));
		order_fill(x, 1, 10 * LONG, s);
		told_give(x, NULL);
		take_unordered(r);
	}
	order_end();
}

/* Used in the blocking stream t, freed in the legacy one. */
static void
free_in_legacy(CUstream t)
{
	CUdeviceptr x = told_take(BIG, t);

	OK(cuStreamSynchronize(t));
	order_fill(x, 1, 10 * LONG, t);
	told_give(x, NULL);
	take_unordered(r);
}

/* The same where the blocking stream is beyond the first streams, and where it follows one of
 * another kind, or that one follows it. */
static void
legacy_free_many(void)
{
	CUstream t;

	begin(NONBLOCKING);
	order_use(told_take(SMALL, NULL), 1, NULL);
	for (int i = 0; i < 80; i++)
		(void)told_take(SMALL, order_stream(NONBLOCKING));
	t = order_stream(BLOCKING);
	for (int i = 0; i < ROUNDS; i++)
		free_in_legacy(t);
	order_end();
}

static void
legacy_free_followed(void)
{
	begin(NONBLOCKING);
	order_use(told_take(SMALL, NULL), 1, NULL);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		CUstream t = order_stream(i % 2 ? BLOCKING : NONBLOCKING);
		CUdeviceptr x = told_take(SMALL, t);

		order_use(x, 2, t);
		OK(cuStreamSynchronize(t));
		told_give(x, t);
		if (i % 2)
			free_in_legacy(t);
		OK(cuStreamDestroy_v2(t));
	}
	order_end();
}

/* A destroyed blocking stream still works. */
static void
legacy_free_destroyed(void)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUstream t = order_stream(BLOCKING);
		CUdeviceptr x = told_take(BIG, t);

		OK(cuStreamSynchronize(t));
		order_fill(x, 1, 10 * LONG, t);
		OK(cuStreamDestroy_v2(t));
		told_give(x, NULL);
		take_unordered(r);
	}
	order_end();
}

static CUdeviceptr used;

static void
use_in_thread(int number)
{
	order_fill_ptsz(used, (uint32_t)number, 10 * LONG, NULL);
}

/* Another thread's default stream, which is a blocking one. */
static void
legacy_free_threads(void)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		used = told_take(BIG, NULL);
		OK(cuStreamSynchronize(NULL));
		order_threads(1, use_in_thread);
		told_give(used, NULL);
		take_unordered(r);
	}
	order_end();
}

static void
blocking_free(void)
{
	begin(BLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, NULL);

		order_fill(x, 1, LONG, NULL);
		told_give(x, s);
		take_unordered(r);
	}
	order_end();
}

/* The blocking stream has had memory of the size before. */
static void
blocking_free_again(void)
{
	begin(BLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(BIG, NULL), y = told_take(BIG, s);

		order_use(y, 3, s);
		OK(cuStreamSynchronize(s));
		told_give(y, s);
		order_fill(x, 1, 10 * LONG, NULL);
		told_give(x, s);
		take_unordered(r);
	}
	order_end();
}

static void
legacy_order(void)
{
	begin(BLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, s), y;

		order_fill(x, 1, LONG, s);
		told_give(x, s);
		y = told_take(PART, NULL);
		order_use(y, 2, NULL);
		told_give(y, NULL);
		x = told_take(PART, s);
		order_use(x, 3, s);
		told_give(x, s);
	}
	order_end();
}

static void
per_thread_of(int number)
{
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x;

		OK(cuMemAllocAsync_ptsz(&x, PART, NULL));
		order_fill_ptsz(x, (uint32_t)number, LONG / 4, NULL);
		order_check_ptsz(x, (uint32_t)number, NULL);
		OK(cuMemFreeAsync_ptsz(x, NULL));
	}
}

static void
per_thread(void)
{
	begin(NONBLOCKING);
	order_threads(3, per_thread_of);
	order_threads(3, per_thread_of);
	order_end();
}

/* A kernel that may begin before its predecessor has ended must not get that one's memory: in the
 * stream of the allocation, or in one that natively comes behind it. */
static void
programmatic_in(CUstream own, CUstream next)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
	};

	*(int *)&attribute.value = 1;
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr x = told_take(PART, own), y;

		order_fill(x, 1, LONG, own);
		told_give(x, own);
		y = told_take(PART, own);
		order_fill_with(&attribute, y, 2, 0, next);
		order_check(y, 2, next);
		told_give(y, next);
		OK(cuCtxSynchronize());
	}
	order_end();
}

static void
programmatic(void)
{
	told_start();
	s = order_stream(NONBLOCKING); /* alone: a mark in between would be an order, too */
	programmatic_in(s, s);
}

static void
programmatic_behind_legacy(void)
{
	told_start();
	programmatic_in(NULL, order_stream(BLOCKING));
}

static void
programmatic_behind_blocking(void)
{
	told_start();
	programmatic_in(order_stream(BLOCKING), NULL);
}

/* ---- streams that go */

static void
destroyed_stream(void)
{
	begin(NONBLOCKING);
	for (int i = 0; i < ROUNDS; i++) {
		CUstream gone = order_stream(i % 2 ? BLOCKING : NONBLOCKING), fresh;
		CUdeviceptr x = told_take(PART, gone), y, z = told_take(PART, gone);

		order_fill(x, 1, LONG, gone);
		told_give(x, gone);
		OK(cuStreamDestroy_v2(gone));
		fresh = order_stream(NONBLOCKING);
		y = told_take(PART, fresh);
		order_use(y, 2, fresh);
		told_give(y, fresh);
		OK(cuCtxSynchronize());
		told_give(z, fresh);
		OK(cuStreamDestroy_v2(fresh));
	}
	order_end();
}

const struct order_case told_order[] = {
	{ "same_stream", same_stream },
	{ "same_stream_pieces", same_stream_pieces },
	{ "unordered", unordered },
	{ "unordered_small", unordered_small },
	{ "followed", followed },
	{ "followed_too_early", followed_too_early },
	{ "joined", joined },
	{ "opportunistic", opportunistic },
	{ "behind", behind },
	{ "born", born },
	{ "legacy_free", legacy_free },
	{ "legacy_free_many", legacy_free_many },
	{ "legacy_free_followed", legacy_free_followed },
	{ "legacy_free_destroyed", legacy_free_destroyed },
	{ "legacy_free_threads", legacy_free_threads },
	{ "blocking_free", blocking_free },
	{ "blocking_free_again", blocking_free_again },
	{ "legacy_order", legacy_order },
	{ "per_thread", per_thread },
	{ "programmatic", programmatic },
	{ "programmatic_behind_legacy", programmatic_behind_legacy },
	{ "programmatic_behind_blocking", programmatic_behind_blocking },
	{ "destroyed_stream", destroyed_stream },
	{ 0 },
};
