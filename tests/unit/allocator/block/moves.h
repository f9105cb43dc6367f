/* SPDX-License-Identifier: MIT */
/* For tests of memory that moves: extents that outgrow their slack. */
#pragma once

#include "tests/unit/allocator/deferred/scene.h"

static inline void
moves_defaults(struct fixture *f, uint64_t slack_percent)
{
	fixture_defaults(f);
	f->config.expandable_segments = true;
	f->config.expandable_slack_percent = slack_percent;
}

static inline void
moves_start(struct fixture *f, uint64_t slack_percent)
{
	moves_defaults(f, slack_percent);
	f->pretend.finish_at_once = true;
	fixture_start(f);
}

static inline uint64_t
called(struct fixture *f, enum ca_model_function function)
{
	return fixture_sums(f).calls[function];
}

static inline uint64_t
held(struct fixture *f)
{
	return fixture_sums(f).held_bytes;
}

static inline bool
is_mapped(struct fixture *f, uint64_t address)
{
	struct ca_block_info info;

	return !ca_lookup(f->heap, address, &info);
}

/* [ ][b][ ][d], of 10 MiB each. */
static inline void
two_holes(struct fixture *f, uint64_t at[4])
{
	unsigned i;

	for (i = 0; i < 4; i++)
		at[i] = fixture_alloc(f, 10 * MIB);
	fixture_free(f, at[0]);
	fixture_free(f, at[2]);
}
