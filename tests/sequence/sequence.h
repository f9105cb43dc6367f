/* SPDX-License-Identifier: MIT */
/* Random sequences of everything the allocator can be asked for, against a naive reference. */
#pragma once

#include "allocator/fake/fake.h"
#include "tests/sequence/source.h"

struct sequence_options {
	unsigned check_every; /* steps between two invariant walks */
	unsigned actors;      /* threads that take turns; 0: by the source */
	unsigned streams;     /* open at a time; 0: by the source */
	unsigned keys;        /* chance of each key, in 16 */
	bool eager;           /* exposes as soon as it may: without slack, and without rare steps */
	bool mapped;          /* with expandable_segments */
	bool faults;          /* by the source; else only the fault below */
	enum ca_model_function fault;
	unsigned fault_in; /* the n-th call of that function fails; 0: none */
	bool fault_for_ever;
	int fault_code;
};

struct sequence_totals {
	uint64_t steps, allocs, ooms, reused, exposed, several, launches, kills, captures, graphs,
		switches;
	bool failed; /* the planned fault was reached, in the last sequence */
};

/* Runs until the source ends, and then takes everything back: nothing may be left. Aborts at the
 * first claim that is false, after a line on stderr that says which. */
void sequence_run(struct source source, const struct sequence_options *options,
		  struct sequence_totals *totals);
/* Ends the threads; sequences may be run again after it. */
void sequence_stop(void);
