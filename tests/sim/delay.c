/* SPDX-License-Identifier: MIT */
/*
 * SIMCUDA_LATENCY. A delay of one's own comes before the call has any effect, to open the windows
 * that races need. Published figures are what a whole call took, so they are waited for at the end,
 * counted from the start: our own time is part of them.
 */
#include "tests/sim/delay.h"

#include <time.h>

#include "tests/sim/knobs.h"

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

void
simb_delay_enter(struct simb_call *call)
{
	const struct simb_knobs *knobs = simb_knobs();
	const struct simb_latency *latency = &knobs->latency[call->name];

	charged_ns = 0;
	call->start_ns = 0;
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
