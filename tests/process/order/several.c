/* SPDX-License-Identifier: MIT */
/*
 * Memory that several streams use: `order_several CASE`.
 *
 * One thread, three streams that are always busy (manual clock). The work of a block's next life on
 * one stream is ordered after none of the streams that used it before, as far as the program goes.
 * `random` plays ORDER_OPERATIONS random operations made from ORDER_SEED; it is right natively, as
 * each use of a block comes after the uses before it in the same life.
 */
#include "tests/process/order/order.h"

enum { STREAMS = 3, BLOCKS = 10, HALF = MIB, SMALL = 640 * 1024 };

static CUstream stream[STREAMS];

static void
begin(void)
{
	order_start();
	for (int i = 0; i < STREAMS; i++) {
		CUdeviceptr x;

		stream[i] = order_stream(NONBLOCKING);
		x = order_take(BIG);
		order_fill(x, 1, 0, stream[i]);
		OK(cuCtxSynchronize_v2(NULL));
		order_give(x);
	}
}

static void
after(CUstream later, CUstream earlier)
{
	CUevent event = order_event();

	OK(cuEventRecord(event, earlier));
	OK(cuStreamWaitEvent(later, event, 0));
	OK(cuEventDestroy_v2(event));
}

/* Two streams that have nothing to do with each other use two parts of it. */
static CUdeviceptr
used_by_two(void)
{
	CUdeviceptr x = order_take(BIG);

	order_fill(x, 1, LONG, stream[0]);
	order_fill(x + HALF, 1, LONG, stream[1]);
	return x;
}

static void
use_both(CUdeviceptr x, CUstream by)
{
	order_use(x, 2, by);
	order_use(x + HALF, 3, by);
}

/* The third one uses it next: it comes after both. */
static void
two_users(void)
{
	CUdeviceptr x;

	begin();
	x = order_again(used_by_two(), BIG);
	use_both(x, stream[2]);
	order_end();
}

/* It is handed out twice before anybody uses it again. */
static void
two_users_inherited(void)
{
	CUdeviceptr x;

	begin();
	x = order_again(used_by_two(), BIG);
	x = order_again(x, BIG);
	use_both(x, stream[2]);
	order_end();
}

/* The pieces of it have both users, too. */
static void
two_users_of_each_piece(void)
{
	CUdeviceptr x[2];

	begin();
	order_give(used_by_two());
	for (int i = 0; i < 2; i++)
		x[i] = order_take(2 * MIB);
	for (int i = 0; i < 2; i++)
		use_both(x[i], stream[2]);
	order_end();
}

/* A copy that names it: nothing else is waited for. */
static void
two_users_of_what_a_set_names(void)
{
	CUdeviceptr x;

	begin();
	x = order_again(used_by_two(), BIG);
	OK(cuMemsetD32Async(x, 2, HALF / 4 + WORDS, stream[2]));
	order_end();
}

/* Memory for stream 0, which comes after stream 1's work on it by a wait that is younger than the
 * free, and than the mark behind its own work. */
static void
an_own_stamp_older_than_the_wait(void)
{
	CUdeviceptr x, z;

	begin();
	x = used_by_two();
	for (int i = 0; i < 8; i++) { /* most memory is asked for this stream */
		z = order_take(SMALL);
		order_fill(z, 1, LONG, stream[0]);
		order_give(z);
	}
	order_give(x);
	after(stream[0], stream[1]);
	x = order_take(BIG);
	use_both(x, stream[2]);
	order_end();
}

/* What is found for stream 0, and has to be cut, lies beside what stream 0 comes after by a wait:
 * that becomes its own, too, and both are one. The other stream is gone, its work is not. */
static void
a_neighbour_that_becomes_its_own(void)
{
	CUdeviceptr x, y, z;

	begin();
	OK(cuStreamDestroy_v2(stream[2]));
	x = order_take(PART);
	order_fill(x, 1, LONG, stream[1]);
	y = order_take(PART);
	order_fill(y, 1, LONG, stream[0]);
	order_give(x);
	for (int i = 0; i < 8; i++) { /* most memory is asked for this stream */
		z = order_take(SMALL);
		order_fill(z, 1, LONG, stream[0]);
		order_give(z);
	}
	order_give(y);
	after(stream[0], stream[1]);
	OK(cuStreamDestroy_v2(stream[1]));
	for (int i = 0; i < 4; i++) {
		x = order_take(3 * MIB);
		use_both(x, stream[0]);
	}
	order_end();
}

/* ---- random */

static struct {
	CUdeviceptr at; /* 0: none */
	int last;       /* stream */
	uint32_t value;
} block[BLOCKS];

static uint64_t
number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static uint32_t
pick(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % n;
}

static void
take(int i, int by, uint64_t *state)
{
	static const size_t sizes[] = { SMALL, 2 * MIB, 3 * MIB, PART, BIG };

	block[i].at = order_take(sizes[pick(state, 5)]);
	block[i].last = by;
	block[i].value = pick(state, 1 << 30);
	order_fill(block[i].at, block[i].value, 10, stream[by]);
}

static void
use(int i, int by)
{
	if (block[i].last != by)
		after(stream[by], stream[block[i].last]);
	order_check(block[i].at, block[i].value, stream[by]);
	order_fill(block[i].at, ++block[i].value, 10, stream[by]);
	block[i].last = by;
}

static void
operation(uint64_t *state)
{
	int i = (int)pick(state, BLOCKS), by = (int)pick(state, STREAMS);
	uint32_t dice = pick(state, 100);

	if (dice < 5)
		after(stream[by], stream[pick(state, STREAMS)]);
	else if (dice == 5 && !pick(state, 20))
		OK(cuStreamSynchronize(stream[by]));
	else if (!block[i].at)
		take(i, by, state);
	else if (dice < 60)
		use(i, by);
	else {
		order_give(block[i].at);
		block[i].at = 0;
		if (dice > 80) /* of the same size, most likely, and by another stream */
			take(i, by, state);
	}
}

static void
random_operations(void)
{
	uint64_t seed = number_of("ORDER_SEED", 1), n = number_of("ORDER_OPERATIONS", 2000);
	uint64_t state = seed;

	begin();
	for (uint64_t i = 0; i < n; i++)
		operation(&state);
	order_end();
	printf("seed %llu, %llu operations\n", (unsigned long long)seed, (unsigned long long)n);
}

static const struct order_case several_cases[] = {
	{ "two_users", two_users },
	{ "two_users_inherited", two_users_inherited },
	{ "two_users_of_each_piece", two_users_of_each_piece },
	{ "two_users_of_what_a_set_names", two_users_of_what_a_set_names },
	{ "an_own_stamp_older_than_the_wait", an_own_stamp_older_than_the_wait },
	{ "a_neighbour_that_becomes_its_own", a_neighbour_that_becomes_its_own },
	{ "random", random_operations },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { several_cases, NULL };
