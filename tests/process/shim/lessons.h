/* SPDX-License-Identifier: MIT */
/*
 * What the cases about events and graphs have in common. A lesson is seen by its effect: a block
 * whose work is known to have finished is handed out again at once, one whose work is not known
 * must stay away. Unless said otherwise the clock is manual: work runs only for a call that waits
 * for it. Two streams exist, so the space is never quiet.
 */
#pragma once

#include <stdbool.h>

#include "tests/process/shim/cases.h"

enum {
	BLOCK = 12 * MIB, /* a segment of its own: the next of that size would be the same */
	WORDS = 1024,
};

static CUstream one, two;
static CUdeviceptr elsewhere; /* memory that is never freed */

static inline void
start(void)
{
	case_start();
	OK(cuStreamCreate(&one, 1));
	OK(cuStreamCreate(&two, 1));
	OK(cuMemAlloc_v2(&elsewhere, 4096));
	case_kernel("sim_fill");
}

static inline CUevent
make_event(void)
{
	CUevent event;

	OK(cuEventCreate(&event, 2));
	return event;
}

static inline CUdeviceptr
take(void)
{
	CUdeviceptr block;

	OK(cuMemAlloc_v2(&block, BLOCK));
	return block;
}

/* Frees `block`; is it the next that is handed out? */
static inline bool
comes_back(CUdeviceptr block)
{
	CUdeviceptr next;

	OK(cuMemFree_v2(block));
	next = take();
	OK(cuMemFree_v2(next));
	return next == block;
}

/* Work on `one` that uses a block, and an event behind it. */
static inline CUdeviceptr
used_and_recorded(CUevent event)
{
	CUdeviceptr block = take();

	case_fill(block, WORDS, 1, 0, one);
	OK(cuEventRecord(event, one));
	return block;
}

static inline bool
is_handed_out(CUdeviceptr block)
{
	CUdeviceptr next = take();

	OK(cuMemFree_v2(next));
	return next == block;
}
