/* SPDX-License-Identifier: MIT */
/*
 * SIMCUDA_LATENCY. A delay of one's own comes before the call has any effect, to open the windows
 * that races need. Published figures are what a whole call took, so they are waited for at the end,
 * counted from the start: our own time is part of them.
 *
 * SIMCUDA_JITTER. Random delays between the entry of a call that submits, or asks about an event,
 * and its effect, and between that and its return, to widen the races of a library that wraps such
 * calls.
 */
#include "tests/sim/delay.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tests/sim/knobs.h"
#include "tests/sim/names.h"

static _Thread_local uint64_t charged_ns; /* by simb_charge() in the call under way */

static uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Sleeps all but the end, which a sleep would miss by some 60 us, and spins that. */
static void
delay_until(uint64_t end_ns)
{
	const uint64_t spin_ns = 100000;
	uint64_t now = clock_ns();

	if (end_ns > now + spin_ns) {
		uint64_t nap_ns = end_ns - now - spin_ns;
		struct timespec nap = { (time_t)(nap_ns / 1000000000),
					(long)(nap_ns % 1000000000) };

		nanosleep(&nap, NULL);
	}
	while (clock_ns() < end_ns)
		;
}

/* Calls that put something into a stream, or ask about an event, by how their names begin. */
static bool
is_delayed(const char *symbol)
{
	static const char *const begins[] = {
		"cuLaunch",
		"cuMemcpy",
		"cuMemset",
		"cuGraphLaunch",
		"cuEventRecord",
		"cuStreamWaitEvent",
		"cuStreamWaitValue",
		"cuStreamWriteValue",
		"cuStreamBatchMemOp",
		"cuStreamAddCallback",
		"cuMemAllocAsync",
		"cuMemFreeAsync",
		"cuMemAllocFromPoolAsync",
		"cuCtxRecordEvent",
		"cuCtxWaitEvent",
		"cuEventQuery",
	};

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (!strncmp(symbol, begins[i], strlen(begins[i])))
			return true;
	return false;
}

/* The next number of the seed's sequence (splitmix64), over all threads. */
static uint64_t
random_next(uint64_t seed)
{
	static _Atomic uint64_t n;
	uint64_t x = atomic_fetch_add_explicit(&n, 1, memory_order_relaxed) + 1;

	x = seed + x * 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* A third of the time nothing, a third a yield, a third a delay: the order of threads should vary
 * as much as the distance between them. */
static void
jitter(int name)
{
	const struct simb_knobs *knobs = simb_knobs();
	uint64_t x;

	if (!knobs->jitter_us || !is_delayed(simb_names[name].symbol))
		return;
	x = random_next(knobs->jitter_seed);
	if (x % 3 == 1)
		sched_yield();
	else if (x % 3 == 2)
		delay_until(clock_ns() + (x >> 8) % (knobs->jitter_us * 1000ull + 1));
}

void
simb_delay_enter(struct simb_call *call)
{
	const struct simb_knobs *knobs = simb_knobs();
	const struct simb_latency *latency = &knobs->latency[call->name];

	charged_ns = 0;
	call->start_ns = 0;
	jitter(call->name);
	if (!latency->fixed_ns)
		return;
	call->start_ns = clock_ns();
	if (!knobs->latency_whole)
		delay_until(call->start_ns + latency->fixed_ns);
}

void
simb_delay_leave(const struct simb_call *call)
{
	const struct simb_knobs *knobs = simb_knobs();
	const struct simb_latency *latency = &knobs->latency[call->name];

	jitter(call->name);
	if (latency->fixed_ns && knobs->latency_whole)
		delay_until(call->start_ns + latency->fixed_ns + charged_ns);
}

void
simb_charge(size_t n_bytes)
{
	int name = simb_call_name();

	if (name >= 0)
		charged_ns += (n_bytes >> 20) * simb_knobs()->latency[name].ns_per_mib;
}
