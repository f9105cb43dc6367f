/* SPDX-License-Identifier: MIT */
#include "allocator/trace/trace_clock.h"

#include "allocator/util/ticks.h"

enum {
	BASELINE_NS = 20 * 1000 * 1000, /* the first pairs are that far apart */
	DOUBT_NS = 1000 * 1000,
	TRIES = 4, /* for a pair that nothing came between */
};

#define PAIR_TICKS_MAX ((uint64_t)20000)

static uint64_t
query(const struct ca_trace_clock *clock)
{
	return clock->driver.clock_ns(clock->driver.self);
}

void
ca_trace_clock_init(struct ca_trace_clock *clock, const struct ca_driver *driver, bool counter)
{
	*clock = (struct ca_trace_clock){ .driver = *driver, .usable = counter };
	ca_trace_clock_update(clock);
}

bool
ca_trace_clock_convert(struct ca_trace_clock *clock, uint64_t ticks, uint64_t *ret_ns)
{
	uint64_t sequence = atomic_load_explicit(&clock->sequence, memory_order_acquire);
	/* a reader of anything newer than `sequence` sees it changed */
	uint64_t rate = atomic_load_explicit(&clock->rate, memory_order_acquire);
	uint64_t base = atomic_load_explicit(&clock->ticks, memory_order_acquire);
	uint64_t ns = atomic_load_explicit(&clock->ns, memory_order_acquire);
	uint64_t passed = ticks - base;

	if (!rate || sequence & 1 ||
	    atomic_load_explicit(&clock->sequence, memory_order_relaxed) != sequence)
		return false;
	if ((int64_t)passed < 0) /* another processor's may be a little behind */
		passed = 0;
	*ret_ns = ns + (uint64_t)((__extension__(unsigned __int128) passed * rate) >> 32);
	return true;
}

uint64_t
ca_trace_clock_now(struct ca_trace_clock *clock)
{
	uint64_t ns;

	if (ca_trace_clock_convert(clock, ca_ticks(), &ns))
		return ns;
	return query(clock);
}

static void
publish(struct ca_trace_clock *clock, uint64_t ticks, uint64_t ns, uint64_t rate)
{
	uint64_t sequence = atomic_load_explicit(&clock->sequence, memory_order_relaxed);

	atomic_store_explicit(&clock->sequence, sequence + 1, memory_order_relaxed);
	atomic_store_explicit(&clock->ticks, ticks, memory_order_release);
	atomic_store_explicit(&clock->ns, ns, memory_order_release);
	atomic_store_explicit(&clock->rate, rate, memory_order_release);
	atomic_store_explicit(&clock->sequence, sequence + 2, memory_order_release);
}

/* The counter has told another time than the clock. */
static bool
is_wrong(struct ca_trace_clock *clock, uint64_t ticks, uint64_t ns)
{
	uint64_t told;

	if (!ca_trace_clock_convert(clock, ticks, &told))
		return false;
	return (told > ns ? told - ns : ns - told) > DOUBT_NS;
}

void
ca_trace_clock_update_pair(struct ca_trace_clock *clock, uint64_t ticks, uint64_t ns)
{
	uint64_t passed_ticks, passed_ns;

	if (!clock->first_ticks) {
		clock->first_ticks = ticks;
		clock->first_ns = ns;
		return;
	}
	passed_ticks = ticks - clock->first_ticks;
	passed_ns = ns - clock->first_ns;
	if ((int64_t)passed_ns < BASELINE_NS)
		return;
	clock->usable = (int64_t)passed_ticks > 0 && !is_wrong(clock, ticks, ns);
	publish(clock, ticks, ns,
		clock->usable ? (uint64_t)((__extension__(unsigned __int128) passed_ns << 32) /
					   passed_ticks)
			      : 0);
}

void
ca_trace_clock_update(struct ca_trace_clock *clock)
{
	unsigned i;

	for (i = 0; clock->usable && i < TRIES; i++) {
		uint64_t before = ca_ticks(), ns = query(clock);
		uint64_t after = ca_ticks();

		if (after - before > PAIR_TICKS_MAX)
			continue;
		ca_trace_clock_update_pair(clock, before + (after - before) / 2, ns);
		return;
	}
}
