/* SPDX-License-Identifier: MIT */
/*
 * How long operations took: a histogram in ticks of the processor's own counter, exact below 4096
 * ticks and to 1/64 above. The cost of reading the counter is measured and taken off.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
	CA_REPLAY_TIMES_EXACT = 4096,
	CA_REPLAY_TIMES_STEPS = 64, /* to a power of 2 */
	CA_REPLAY_TIMES_BUCKETS = CA_REPLAY_TIMES_EXACT + 52 * CA_REPLAY_TIMES_STEPS,
};

struct ca_replay_histogram {
	uint64_t count;
	uint64_t sum; /* ticks */
	uint32_t bucket[CA_REPLAY_TIMES_BUCKETS];
};

/* Nanoseconds; 0 where nothing was measured. */
struct ca_replay_percentiles {
	uint64_t mean, p50, p99, p999;
};

struct ca_replay_times {
	bool measured;
	struct ca_replay_percentiles op;   /* hits and frees */
	struct ca_replay_percentiles miss; /* allocations that called the driver, less that call */
};

struct ca_replay_timer {
	struct ca_replay_histogram op, miss;
	uint64_t overhead; /* ticks between two readings one behind the other */
	uint64_t start_ticks, start_ns;
	uint64_t driver_start, driver_ticks; /* within the operation */
};

static inline uint64_t
ca_replay_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* *watch is zeroed. */
void ca_replay_timer_start(struct ca_replay_timer *watch);
void ca_replay_buckets_add(struct ca_replay_histogram *histogram, uint64_t ticks);
void ca_replay_timer_read(const struct ca_replay_timer *watch, struct ca_replay_times *ret_times);
