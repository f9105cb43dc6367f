/* SPDX-License-Identifier: MIT */
/*
 * The price of a malloc and free while several streams are at work:
 *
 *   pairs [--cpu N] [--rounds N] [--pairs N] [--streams N] [--seed N] VARIANT
 *
 * A round launches one kernel, on the next of the streams in turn, and then makes 1,000 pairs of
 * cuMemAlloc and cuMemFree. Launches are not timed. The kernel fills the newest of 64 blocks
 * that are alive, so that in all variants but the first memory is freed that unfinished work may
 * touch.
 *
 *   same    free follows malloc at once, all of one size
 *   ring    each pair frees the oldest of the 64 blocks and allocates its successor
 *   mixed   as ring, sizes from 512 bytes to 8 MiB, the same sequence for the same seed
 *   used    as ring, and every block is filled by a kernel of its own between malloc and free,
 *           on the streams in turn: a pair is timed around its launch
 *
 * Prints one JSON object: nanoseconds a pair by rounds. The pairs run inside measured_*(), for
 * callgrind's --toggle-collect; the first round is for warming up, and neither printed nor counted.
 */
#include "tests/bench/api.h"
#include "tests/bench/arguments.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 64, STREAMS_MAX = 64, SAME_BYTES = 64 << 10, SIZES = 1024 };

struct variant {
	const char *name;
	bool ring, mixed, used;
};

static const struct variant variants[] = {
	{ "same", false, false, false }, { "ring", true, false, false },
	{ "mixed", true, true, false },  { "used", true, false, true },
	{ NULL, false, false, false },
};

static struct {
	const struct variant *variant;
	int cpu;
	unsigned long rounds, pairs, streams, seed;
} options = {
	.variant = variants, .cpu = -1, .rounds = 24, .pairs = 1000, .streams = 8, .seed = 1
};

static CUstream streams[STREAMS_MAX];
static CUdeviceptr ring[RING];
static size_t sizes[SIZES];
static unsigned long n_launched, n_done;
static void *fill;

void measured_pairs(void);
void measured_free(CUdeviceptr address);
CUdeviceptr measured_alloc(size_t bytes);

static uint64_t
random_next(void)
{
	static uint64_t n;
	uint64_t x = options.seed + ++n * 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* 512 bytes to 8 MiB, each power of two as likely as any other. */
static size_t
random_size(void)
{
	size_t power = (size_t)512 << random_next() % 14;

	return power + random_next() % power;
}

static void
launch(CUdeviceptr target)
{
	uint64_t words = 16, value = 1, spin_us = 0;
	void *arguments[] = { &target, &words, &value, &spin_us };

	CALL(cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, streams[n_launched % options.streams],
	     arguments, NULL);
	n_launched++;
}

static CUdeviceptr
take(size_t bytes)
{
	CUdeviceptr address;

	CALL(cuMemAlloc_v2, &address, bytes);
	return address;
}

static void
pairs(void)
{
	for (unsigned long i = 0; i < options.pairs; i++, n_done++) {
		CUdeviceptr *oldest = &ring[n_done % RING];

		if (options.variant->ring) {
			CALL(cuMemFree_v2, *oldest);
			*oldest = take(sizes[n_done % SIZES]);
		} else {
			CALL(cuMemFree_v2, take(sizes[n_done % SIZES]));
		}
	}
}

__attribute__((noinline)) void
measured_pairs(void)
{
	pairs();
}

__attribute__((noinline)) void
measured_free(CUdeviceptr address)
{
	CALL(cuMemFree_v2, address);
}

__attribute__((noinline)) CUdeviceptr
measured_alloc(size_t bytes)
{
	return take(bytes);
}

/* Nanoseconds of a round's pairs. */
static uint64_t
round_used(bool measured)
{
	uint64_t sum = 0;

	for (unsigned long i = 0; i < options.pairs; i++, n_done++) {
		CUdeviceptr *oldest = &ring[n_done % RING];
		size_t bytes = sizes[n_done % SIZES];
		uint64_t start = now_ns();

		if (measured) {
			measured_free(*oldest);
			*oldest = measured_alloc(bytes);
		} else {
			CALL(cuMemFree_v2, *oldest);
			*oldest = take(bytes);
		}
		sum += now_ns() - start;
		launch(*oldest);
	}
	return sum;
}

static uint64_t
round_of_pairs(bool measured)
{
	uint64_t start;

	if (options.variant->used)
		return round_used(measured);
	launch(ring[(n_done + RING - 1) % RING]);
	start = now_ns();
	if (measured)
		measured_pairs();
	else
		pairs();
	return now_ns() - start;
}

static void
set_up(void)
{
	api_open(ROAD_PROC);
	fill = api_kernel("sim_fill");
	for (unsigned long i = 0; i < options.streams; i++)
		CALL(cuStreamCreate, &streams[i], 0);
	for (int i = 0; i < SIZES; i++)
		sizes[i] = options.variant->mixed ? random_size() : SAME_BYTES;
	for (int i = 0; i < RING; i++)
		ring[i] = take(sizes[SIZES - RING + i]);
}

static bool
read_arguments(int argc, char **argv)
{
	const struct argument arguments[] = {
		{ "cpu", .integer = &options.cpu },    { "rounds", .number = &options.rounds },
		{ "pairs", .number = &options.pairs }, { "streams", .number = &options.streams },
		{ "seed", .number = &options.seed },   { .name = NULL },
	};
	const char *name;

	if (!arguments_read(argc, argv, arguments, &name))
		return false;
	while (options.variant->name && strcmp(name, options.variant->name))
		options.variant++;
	return options.variant->name && options.pairs && options.streams &&
	       options.streams <= STREAMS_MAX;
}

int
main(int argc, char **argv)
{
	if (!read_arguments(argc, argv)) {
		fputs("usage: pairs [--cpu N] [--rounds N] [--pairs N] [--streams N] [--seed N] "
		      "same|ring|mixed|used\n",
		      stderr);
		return 2;
	}
	pin_to(options.cpu);
	set_up();
	round_of_pairs(false);
	printf("{\"variant\": \"%s\", \"streams\": %lu, \"pairs\": %lu, \"ns_per_pair\": [",
	       options.variant->name, options.streams, options.pairs);
	for (unsigned long i = 0; i < options.rounds; i++)
		printf("%s%.1f", i ? ", " : "",
		       (double)round_of_pairs(true) / (double)options.pairs);
	printf("], \"launches\": %lu, \"frees\": %lu}\n", n_launched, n_done);
	return 0;
}
