/* SPDX-License-Identifier: MIT */
#include "tests/bench/peers/sample.h"

#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/api.h"

/* The group's leader, which counts cycles; its other member counts instructions. < 0: none. */
static __thread int counters = -1;

static int
counter_new(uint64_t what, int leader)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attributes),
		.config = what,
		.read_format = PERF_FORMAT_GROUP,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, leader, 0);
}

bool
counters_open(void)
{
	counters = counter_new(PERF_COUNT_HW_CPU_CYCLES, -1);
	if (counters < 0)
		return false;
	if (counter_new(PERF_COUNT_HW_INSTRUCTIONS, counters) >= 0)
		return true;
	close(counters);
	counters = -1;
	return false;
}

static uint64_t
thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void
sample_read(struct sample *ret_sample)
{
	uint64_t group[3] = { 0 }; /* how many, cycles, instructions */
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	ret_sample->sleeps = (uint64_t)usage.ru_nvcsw;
	ret_sample->wall_ns = now_ns();
	ret_sample->cpu_ns = thread_cpu_ns();
	if (counters >= 0 && read(counters, group, sizeof(group)) != sizeof(group))
		api_fail("read of the counters", 0);
	ret_sample->cycles = group[1];
	ret_sample->instructions = group[2];
}

void
sample_add(struct sample *total, const struct sample *start, const struct sample *end)
{
	total->wall_ns += end->wall_ns - start->wall_ns;
	total->cpu_ns += end->cpu_ns - start->cpu_ns;
	total->cycles += end->cycles - start->cycles;
	total->instructions += end->instructions - start->instructions;
	total->sleeps += end->sleeps - start->sleeps;
}
