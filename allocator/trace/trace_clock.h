/* SPDX-License-Identifier: MIT */
/*
 * The time of a record, cheaply: a system's clock costs two to four times as much as all the rest
 * of a record, the processor's counter of ticks does not.
 *
 * How long a tick takes is learned from pairs of both, and checked with each further pair: when the
 * counter disagrees with the clock by more than 1 ms (not the same on every processor, or stopped
 * with the machine) it is not used again. Until enough is known, the clock is asked.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/driver.h"

struct ca_trace_clock {
	struct ca_driver driver; /* clock_ns and self */
	/* guarded by `sequence`: odd while they change */
	_Atomic uint64_t sequence;
	_Atomic uint64_t ticks, ns; /* a pair */
	_Atomic uint64_t rate;      /* ns a tick, times 2^32; 0: ask the clock */
	/* of the one thread that learns */
	uint64_t first_ticks, first_ns;
	bool usable;
};

/* `counter`: the driver's clock is the machine's, so that its counter may be used. */
void ca_trace_clock_init(struct ca_trace_clock *clock, const struct ca_driver *driver,
			 bool counter);
/* In ns, as the driver's clock has it. Thread-safe. */
uint64_t ca_trace_clock_now(struct ca_trace_clock *clock);
/* Reads both clocks, now and then. By one thread at a time. */
void ca_trace_clock_update(struct ca_trace_clock *clock);
/* The same with a pair that somebody else read: for tests. */
void ca_trace_clock_update_pair(struct ca_trace_clock *clock, uint64_t ticks, uint64_t ns);
/* The time that `ticks` stand for; false: the clock has to be asked. */
bool ca_trace_clock_convert(struct ca_trace_clock *clock, uint64_t ticks, uint64_t *ret_ns);
