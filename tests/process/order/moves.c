/* SPDX-License-Identifier: MIT */
/*
 * Memory that moves while earlier work may use it (expandable_segments): `order_moves CASE`.
 *
 * A thread with up to three streams that are always busy (manual clock), and blocks of sizes that
 * never fit where the last one lay, so that what is free lies in pieces. `random` plays
 * ORDER_OPERATIONS random operations made from ORDER_SEED on ORDER_STREAMS streams. It is right
 * natively.
 */
#include "tests/process/order/order.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	STREAMS = 3,
	BLOCKS = 8,
	STEP = MIB / 2, /* sizes are multiples */
	LARGEST = 40,   /* steps */
	HOLE = 40 * MIB,
};

static CUstream stream[STREAMS];
static unsigned n_streams;
static uint64_t state;

static struct block {
	CUdeviceptr at; /* 0: none */
	size_t bytes;
	unsigned last; /* stream */
	uint32_t value;
} blocks[BLOCKS];

static uint64_t
number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static uint32_t
pick(uint32_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

static void
begin(unsigned streams)
{
	order_start();
	n_streams = streams;
	for (unsigned i = 0; i < n_streams; i++) {
		CUdeviceptr x = order_take(BIG);

		stream[i] = order_stream(NONBLOCKING);
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

/* Its first words, some in the middle, and its last ones. */
static void
each_part(const struct block *block, void (*touch)(CUdeviceptr part, const struct block *block))
{
	for (size_t at = 0; at + WORDS * 4 <= block->bytes; at += 2 * STEP)
		touch(block->at + at, block);
	touch(block->at + block->bytes - WORDS * 4, block);
}

static void
fill(CUdeviceptr part, const struct block *block)
{
	order_fill(part, block->value, 10, stream[block->last]);
}

static void
fill_early(CUdeviceptr part, const struct block *block)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
	};

	attribute.value.programmaticStreamSerializationAllowed = 1;
	order_fill_with(&attribute, part, block->value, 10, stream[block->last]);
}

static void
check(CUdeviceptr part, const struct block *block)
{
	order_check(part, block->value, stream[block->last]);
}

static void
take(struct block *block, size_t bytes, unsigned by)
{
	block->at = order_take(bytes);
	block->bytes = bytes;
	block->last = by;
	block->value = pick(1 << 30);
	each_part(block, pick(4) ? fill : fill_early);
}

static void
use(struct block *block, unsigned by)
{
	if (block->last != by)
		after(stream[by], stream[block->last]);
	block->last = by;
	each_part(block, check);
	block->value++;
	each_part(block, fill);
}

static void
operation(void)
{
	struct block *block = &blocks[pick(BLOCKS)];
	unsigned by = pick(n_streams);
	uint32_t dice = pick(100);

	if (dice < 3)
		after(stream[by], stream[pick(n_streams)]);
	else if (dice == 3 && !pick(10))
		OK(cuStreamSynchronize(stream[by]));
	else if (!block->at)
		take(block, STEP * (size_t)(2 + pick(LARGEST)), by);
	else if (dice < 40)
		use(block, by);
	else {
		order_give(block->at);
		block->at = 0;
	}
}

static void
random_operations(void)
{
	uint64_t seed = number_of("ORDER_SEED", 1), n = number_of("ORDER_OPERATIONS", 1000);

	state = seed;
	begin((unsigned)number_of("ORDER_STREAMS", STREAMS));
	for (uint64_t i = 0; i < n; i++)
		operation();
	order_end();
	printf("seed %llu, %llu operations\n", (unsigned long long)seed, (unsigned long long)n);
}

/* [a][b][c][d], of which a and c are given back while their work goes on, and then more is asked
 * for than either has: the pages of one come to the other. */
static void
hole_beside_hole(unsigned by, unsigned streams)
{
	struct block x[4] = { 0 }, y = { 0 };

	begin(streams);
	for (int i = 0; i < 4; i++) {
		x[i] = (struct block){ order_take(HOLE), HOLE, 0, 1 };
		for (int j = 0; j < 20; j++)
			order_fill(x[i].at + (CUdeviceptr)(j * 2 * MIB), 1, LONG / 4, stream[0]);
	}
	order_give(x[0].at);
	order_give(x[2].at);
	y = (struct block){ order_take(2 * HOLE), 2 * HOLE, by, 7 };
	each_part(&y, fill);
	each_part(&y, check);
	x[1].last = x[3].last = by;
	after(stream[by], stream[0]);
	each_part(&x[1], fill);
	each_part(&x[3], fill);
	each_part(&x[1], check);
	order_end();
	order_give(y.at);
}

static void
one_stream(void)
{
	hole_beside_hole(0, 1);
}

static void
its_own_of_two(void)
{
	hole_beside_hole(0, 2);
}

static void
another_stream(void)
{
	hole_beside_hole(1, 2);
}

/* ---- a child beside a move */

uint64_t cachealloc_trim(uint64_t keep_bytes) __attribute__((weak));

static _Atomic bool moving;
static _Atomic unsigned forked;

/* The child has none of the device, and nobody who would finish what another thread had in hand. */
static void
in_child(CUdeviceptr parents)
{
	CUdeviceptr memory;

	EXPECT(cuMemAlloc_v2(&memory, BIG) != CUDA_SUCCESS);
	EXPECT(cuMemFree_v2(parents) != CUDA_SUCCESS);
	if (cachealloc_trim)
		EXPECT(cachealloc_trim(0) == 0);
	exit(0);
}

static void *
fork_again(void *parents)
{
	while (atomic_load(&moving)) {
		pid_t child = fork();
		int status;

		EXPECT(child >= 0);
		if (!child)
			in_child((CUdeviceptr)(uintptr_t)parents);
		EXPECT(waitpid(child, &status, 0) == child);
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		atomic_fetch_add(&forked, 1);
	}
	return NULL;
}

static void
forks(void)
{
	CUdeviceptr x;
	pthread_t thread;

	order_start();
	x = order_take(BIG);
	atomic_store(&moving, true);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): an argument */
	EXPECT(!pthread_create(&thread, NULL, fork_again, (void *)(uintptr_t)x));
	do
		random_operations();
	while (atomic_load(&forked) <= 10);
	atomic_store(&moving, false);
	EXPECT(!pthread_join(thread, NULL));
	order_give(x);
}

static const struct order_case moves_cases[] = {
	{ "one_stream", one_stream },
	{ "its_own_of_two", its_own_of_two },
	{ "another_stream", another_stream },
	{ "random", random_operations },
	{ "forks", forks },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { moves_cases, NULL };
