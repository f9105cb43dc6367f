/* SPDX-License-Identifier: MIT */
/*
 * The price of an allocation that the cache serves, and of its free:
 *
 *   hits [--arm cuda|mimalloc|cub] [--cpu N] [--rounds N] [--pairs N] [--threads N] [--live N]
 *        [--holes N] [--contexts N] [--trace FILE] SITUATION
 *
 *   pair      free follows allocation at once, all of one size, after a kernel on the one stream
 *   own       the same in --threads threads on processors of their own, each with its own stream
 *   handoff   one thread allocates 64 blocks and hands them over; another frees them
 *   live      --live blocks of mixed sizes are alive and --holes were freed between them; each
 *             pair frees one of them and allocates one, at random
 *   contexts  as pair, each in the next of --contexts contexts; contexts_away: the block is freed
 *             while another one is current
 *   told      as pair, by cuMemAllocAsync and cuMemFreeAsync in the one stream; told_streams: in
 *             eight streams in rotation; told_pool: in one stream, from a pool of the program's
 *             own; told_legacy, told_per_thread, told_blocking: in a stream of that kind, beside
 *             seven non-blocking ones; told_legacy_beside_blocking: beside seven blocking ones;
 *             told_blocking_beside_legacy: in a blocking one beside seven and the legacy stream
 *   trace     the allocations and frees of a recorded trace, work on one stream after each; each
 *             call is timed alone, less what reading the clock costs
 *
 * `--arm mimalloc` does the same with mi_malloc and mi_free (libmimalloc.so.2), `--arm cub` with
 * CUB's CachingDeviceAllocator (cub.cpp; libbench_cub.so is looked for where the loader looks), for
 * comparison.
 *
 * Prints one JSON object: nanoseconds a pair (trace: a call) by rounds; handoff also the time that
 * its threads' processors spent on it ("cpu_ns"), less waiting for each other. The calls run inside
 * measured_*(), for callgrind's --toggle-collect; the first round is for warming up.
 */
#include "tests/bench/arguments.h"
#include "tests/bench/hits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options options = {
	.cpu = -1, .rounds = 20, .pairs = 10000, .threads = 2, .live = 1000, .contexts = 2
};
double *round_ns, *cpu_ns;

static const struct situation {
	const char *name;
	void (*run)(void);
} situations[] = {
	{ "pair", hits_pair },
	{ "own", hits_own },
	{ "handoff", hits_handoff },
	{ "live", hits_live },
	{ "trace", hits_trace },
	{ "contexts", hits_contexts },
	{ "contexts_away", hits_contexts_away },
	{ "told", hits_told },
	{ "told_streams", hits_told_streams },
	{ "told_pool", hits_told_pool },
	{ "told_legacy", hits_told_legacy },
	{ "told_per_thread", hits_told_per_thread },
	{ "told_blocking", hits_told_blocking },
	{ "told_legacy_beside_blocking", hits_told_legacy_beside_blocking },
	{ "told_blocking_beside_legacy", hits_told_blocking_beside_legacy },
	{ NULL, NULL },
};

static bool
read_arguments(int argc, char **argv, const char **ret_situation)
{
	const char *arm = "cuda";
	const struct argument arguments[] = {
		{ "arm", .text = &arm },
		{ "cpu", .integer = &options.cpu },
		{ "rounds", .number = &options.rounds },
		{ "pairs", .number = &options.pairs },
		{ "threads", .number = &options.threads },
		{ "live", .number = &options.live },
		{ "holes", .number = &options.holes },
		{ "contexts", .number = &options.contexts },
		{ "trace", .text = &options.trace },
		{ .name = NULL },
	};

	return arguments_read(argc, argv, arguments, ret_situation) && arm_choose(arm) &&
	       options.pairs >= BATCH && options.rounds && options.threads &&
	       options.threads <= THREADS_MAX && options.contexts &&
	       options.contexts <= CONTEXTS_MAX;
}

int
main(int argc, char **argv)
{
	const struct situation *s = situations;
	const char *name;

	if (!read_arguments(argc, argv, &name)) {
		fputs("usage: hits [--arm cuda|mimalloc|cub] [--cpu N] [--rounds N] [--pairs N] "
		      "[--threads N] [--live N] [--holes N] [--contexts N] [--trace FILE] "
		      "SITUATION\n",
		      stderr);
		return 2;
	}
	while (s->name && strcmp(s->name, name))
		s++;
	if (!s->name)
		api_fail("no such situation", 0);
	pin_to(options.cpu);
	arm_open();
	round_ns = calloc(options.rounds, sizeof(*round_ns));
	if (!round_ns)
		api_fail("calloc", ENOMEM);
	s->run();
	printf("%s\"situation\": \"%s\", \"arm\": \"%s\", \"ns\": [",
	       s->run == hits_trace ? "" : "{", s->name, arm_name());
	for (unsigned long r = 0; r < options.rounds; r++)
		printf("%s%.2f", r ? ", " : "", round_ns[r]);
	for (unsigned long r = 0; cpu_ns && r < options.rounds; r++)
		printf("%s%.2f", r ? ", " : "], \"cpu_ns\": [", cpu_ns[r]);
	printf("]}\n");
	return 0;
}
