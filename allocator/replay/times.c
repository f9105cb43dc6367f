/* SPDX-License-Identifier: MIT */
#include "allocator/replay/times.h"

enum { READINGS = 1000 };

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void
ca_replay_timer_start(struct ca_replay_timer *watch)
{
	unsigned i;

	watch->overhead = UINT64_MAX;
	for (i = 0; i < READINGS; i++) {
		uint64_t before = ca_replay_ticks(), took = ca_replay_ticks() - before;

		if (took < watch->overhead)
			watch->overhead = took;
	}
	watch->start_ns = now_ns();
	watch->start_ticks = ca_replay_ticks();
}

static unsigned
bucket_of(uint64_t ticks)
{
	unsigned log;

	if (ticks < CA_REPLAY_TIMES_EXACT)
		return (unsigned)ticks;
	log = 63 - (unsigned)__builtin_clzll(ticks); /* from 12 on */
	return CA_REPLAY_TIMES_EXACT + (log - 12) * CA_REPLAY_TIMES_STEPS +
	       (unsigned)(ticks >> (log - 6) & 63);
}

/* The smallest value of the bucket. */
static uint64_t
value_of(unsigned bucket)
{
	unsigned above = bucket - CA_REPLAY_TIMES_EXACT;

	if (bucket < CA_REPLAY_TIMES_EXACT)
		return bucket;
	return (uint64_t)(64 + above % 64) << (above / 64 + 6);
}

void
ca_replay_buckets_add(struct ca_replay_histogram *histogram, uint64_t ticks)
{
	histogram->count++;
	histogram->sum += ticks;
	histogram->bucket[bucket_of(ticks)]++;
}

/* The value that `per_mille` of all do not exceed. */
static uint64_t
time_at_rank(const struct ca_replay_histogram *histogram, uint64_t per_mille)
{
	uint64_t wanted = (histogram->count * per_mille + 999) / 1000, seen = 0;
	unsigned i;

	for (i = 0; i < CA_REPLAY_TIMES_BUCKETS; i++) {
		seen += histogram->bucket[i];
		if (seen >= wanted)
			return value_of(i);
	}
	return 0;
}

static struct ca_replay_percentiles
times_at_ranks(const struct ca_replay_histogram *histogram, double ns_per_tick)
{
	struct ca_replay_percentiles ns = { 0 };

	if (!histogram->count)
		return ns;
	ns.mean = (uint64_t)((double)histogram->sum / (double)histogram->count * ns_per_tick + 0.5);
	ns.p50 = (uint64_t)((double)time_at_rank(histogram, 500) * ns_per_tick + 0.5);
	ns.p99 = (uint64_t)((double)time_at_rank(histogram, 990) * ns_per_tick + 0.5);
	ns.p999 = (uint64_t)((double)time_at_rank(histogram, 999) * ns_per_tick + 0.5);
	return ns;
}

void
ca_replay_timer_read(const struct ca_replay_timer *watch, struct ca_replay_times *ret_times)
{
	uint64_t ticks = ca_replay_ticks() - watch->start_ticks, ns = now_ns() - watch->start_ns;
	double rate = ticks ? (double)ns / (double)ticks : 0;

	ret_times->measured = true;
	ret_times->op = times_at_ranks(&watch->op, rate);
	ret_times->miss = times_at_ranks(&watch->miss, rate);
}
