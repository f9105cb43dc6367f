/* SPDX-License-Identifier: MIT */
/*
 * Two threads want memory when the process may have no more addresses, and freed memory would do
 * for both. One of them gives it back, which takes the driver as long as SIMCUDA_LATENCY says;
 * meanwhile nothing is there for the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/process/pinned/pinned.h"

enum {
	PARTS = 4,
	PART_BYTES = 24 * MIB,
	HALF = 40 * MIB,
	SPARE = 16 * MIB, /* bytes of addresses that are to be had besides */
};

static pthread_barrier_t all;

static uint64_t
address_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	char line[128];
	long pages;

	EXPECT(file && fgets(line, sizeof(line), file));
	pages = strtol(line, NULL, 10); /* the first number */
	EXPECT(pages > 0);
	fclose(file);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void
free_all_and_limit(void)
{
	struct rlimit limit = { 0 };
	void *part[PARTS];

	for (int i = 0; i < PARTS; i++)
		part[i] = take(PART_BYTES, 0);
	limit.rlim_cur = limit.rlim_max = address_bytes() + SPARE;
	for (int i = 0; i < PARTS; i++)
		give(part[i]);
	OK(cuCtxSynchronize());
	EXPECT(!setrlimit(RLIMIT_AS, &limit));
}

static void
take_half_or_limit(int number)
{
	void *p;

	give(take(MIB, 0)); /* and what the thread needs by itself */
	pthread_barrier_wait(&all);
	if (number == 2)
		free_all_and_limit();
	pthread_barrier_wait(&all);
	if (number < 2) {
		p = take(HALF, 0);
		write_words(p, (uint32_t)number);
	}
	pthread_barrier_wait(&all);
	if (number < 2)
		give(p);
}

static void
others_hand(void)
{
	order_start();
	pthread_barrier_init(&all, NULL, 3);
	order_threads(3, take_half_or_limit);
	order_end();
}

static _Atomic bool is_answered;

/* The driver has nothing for the first (SIMCUDA_FAIL=cuMemAllocHost_v2:1+:2), and the others have
 * always something that goes back. */
static void
ask_or_turn(int number)
{
	void *p;

	pthread_barrier_wait(&all);
	if (!number) {
		usleep(100 * 1000); /* they have begun */
		EXPECT(cuMemAllocHost_v2(&p, 16 * (size_t)MIB) == CUDA_ERROR_OUT_OF_MEMORY);
		is_answered = true;
	}
	while (!is_answered) {
		give(take((size_t)(1 + number) * MIB, 0));
		usleep(100);
	}
}

static void
others_turn(void)
{
	order_start();
	pthread_barrier_init(&all, NULL, 12);
	order_threads(12, ask_or_turn);
	order_end();
}

const struct order_case pinned_hands[] = {
	{ "others_hand", others_hand },
	{ "others_turn", others_turn },
	{ NULL, NULL },
};
