/* SPDX-License-Identifier: MIT */
/*
 * Allocators side by side in one process:
 *
 *   turns --arms NAME,... [--rounds N] [--pairs N] [--live N] [--threads N] [--trace FILE]
 *         [--streams N] [--budget SECONDS] [--cpu N] WORKLOAD
 *
 * Each arm (arms.c) makes what the workload needs alive, and warms up for a round. Then the arms
 * take turns, a round each; every time another one begins, so that what drifts meets all. An arm
 * that has used up its budget stops.
 *
 *   pair          free follows allocation at once, 64 KiB
 *   ring          64 blocks are alive; each pair frees the oldest; 96 sizes from 512 B to 2 MiB
 *   live_32       --live blocks of 32 sizes, 512 B to 16 KiB, a third as many holes between them;
 *                 each pair frees one of them and allocates one, at random
 *   live_log      the same from 512 B to 2 MiB, each power of two as likely as any other
 *   trace         the calls of a recorded trace;  trace_work: a launch after each allocation
 *   calls         each call of trace_work timed alone; of each call the quietest round counts
 *   threads_12    --threads threads, each with a ring of 64 blocks of 12 sizes from 512 B to 1 MiB
 *   threads_96    the same with the 96 sizes of `ring`
 *   threads_12_work, threads_96_work: a launch after each allocation, in a stream of the thread's
 *
 * Prints one JSON object: samples in the order in which they were taken.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/arguments.h"
#include "tests/bench/peers/workloads.h"

struct options options = {
	.rounds = 25, .pairs = 10000, .live = 1000, .threads = 2, .streams = 1, .budget_s = 20
};

static const struct workload *const workloads[] = {
	&workload_pair,
	&workload_ring,
	&workload_live_32,
	&workload_live_log,
	&workload_trace,
	&workload_calls,
	&workload_trace_work,
	&workload_threads_12,
	&workload_threads_96,
	&workload_threads_12_work,
	&workload_threads_96_work,
};

static struct turn {
	struct arm *arm;
	void *state; /* NULL: it gave up before its first round */
	bool stopped;
	uint64_t spent_ns;
} turns[ARMS_MAX];
static unsigned n_turns;
static int cpu = -1;

static bool
choose_arms(const char *names)
{
	while (*names && n_turns < ARMS_MAX) {
		size_t length = strcspn(names, ",");

		turns[n_turns].arm = arm_named(names, length);
		if (!turns[n_turns++].arm)
			return false;
		names += names[length] ? length + 1 : length;
	}
	return n_turns && !*names;
}

static const struct workload *
read_arguments(int argc, char **argv)
{
	const char *name, *names = "null,cachealloc";
	const struct argument arguments[] = {
		{ "arms", .text = &names },
		{ "cpu", .integer = &cpu },
		{ "rounds", .number = &options.rounds },
		{ "pairs", .number = &options.pairs },
		{ "live", .number = &options.live },
		{ "threads", .number = &options.threads },
		{ "streams", .number = &options.streams },
		{ "budget", .number = &options.budget_s },
		{ "trace", .text = &options.trace },
		{ .name = NULL },
	};

	if (!arguments_read(argc, argv, arguments, &name) || !choose_arms(names) ||
	    !options.rounds || !options.pairs || !options.live || !options.threads ||
	    !options.streams)
		return NULL;
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (!strcmp(workloads[i]->name, name))
			return workloads[i];
	return NULL;
}

static void
sample_print(const struct arm *arm, const struct sample *s)
{
	static bool more;

	printf("%s{\"arm\": \"%s\", \"wall_ns\": %llu, \"cpu_ns\": %llu, \"cycles\": %llu, "
	       "\"instructions\": %llu, \"sleeps\": %llu, \"operations\": %llu}",
	       more ? ",\n" : "", arm->name, (unsigned long long)s->wall_ns,
	       (unsigned long long)s->cpu_ns, (unsigned long long)s->cycles,
	       (unsigned long long)s->instructions, (unsigned long long)s->sleeps,
	       (unsigned long long)s->operations);
	more = true;
}

static void
take_turn(struct turn *turn, const struct workload *workload, bool counted)
{
	struct sample sample = { 0 };

	if (turn->stopped)
		return;
	workload->round(turn->state, &sample);
	turn->spent_ns += sample.cpu_ns;
	turn->stopped = turn->spent_ns > options.budget_s * 1000000000u;
	if (counted)
		sample_print(turn->arm, &sample);
}

static void
prepare(struct turn *turn, const struct workload *workload)
{
	arm_open(turn->arm, options.streams);
	budget_reset();
	turn->state = workload->prepare(turn->arm);
	turn->stopped = !turn->state;
	take_turn(turn, workload, false);
}

static void
run(const struct workload *workload)
{
	const char *separator = "";
	bool counting = counters_open();

	for (unsigned t = 0; t < n_turns; t++)
		prepare(&turns[t], workload);
	printf("{\"workload\": \"%s\", \"counters\": %s, \"samples\": [\n", workload->name,
	       counting ? "true" : "false");
	for (unsigned long r = 0; r < options.rounds; r++)
		for (unsigned t = 0; t < n_turns; t++)
			take_turn(&turns[(r + t) % n_turns], workload, true);
	printf("],\n\"arms\": {");
	for (unsigned t = 0; t < n_turns; t++) {
		printf("%s\"%s\": {\"stopped\": %s", separator, turns[t].arm->name,
		       turns[t].stopped ? "true" : "false");
		if (workload->report && turns[t].state)
			workload->report(turns[t].state);
		printf("}");
		separator = ", ";
	}
	printf("}}\n");
}

int
main(int argc, char **argv)
{
	const struct workload *workload = read_arguments(argc, argv);

	if (!workload) {
		fputs("usage: turns --arms NAME,... [--rounds N] [--pairs N] [--live N] [--threads "
		      "N] [--streams N] [--trace FILE] [--budget SECONDS] [--cpu N] WORKLOAD\n",
		      stderr);
		return 2;
	}
	pin_to(cpu);
	run(workload);
	return 0;
}
