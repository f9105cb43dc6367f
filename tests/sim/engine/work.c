/* SPDX-License-Identifier: MIT */
/*
 * Work: what copies, sets and kernels do to memory. Runs without the lock; the memory is pinned.
 */
#include "tests/sim/engine/internal.h"

#include <string.h>

static void *
at(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

static void
set_run(uint64_t dst, uint32_t value, uint64_t element_bytes, uint64_t n)
{
	if (element_bytes == 1) {
		memset(at(dst), (int)(value & 0xff), n);
		return;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (element_bytes == 2)
			((uint16_t *)at(dst))[i] = (uint16_t)value;
		else
			((uint32_t *)at(dst))[i] = value;
	}
}

/* errors is written to, by the atomic add, which the check does not see. */
static void
/* NOLINTNEXTLINE(readability-non-const-parameter) */
check_run(const uint32_t *words, uint64_t n, uint32_t value, uint64_t *errors)
{
	uint64_t bad = 0;

	for (uint64_t i = 0; i < n; i++)
		bad += words[i] != value;
	if (bad)
		__atomic_fetch_add(errors, bad, __ATOMIC_RELAXED);
}

static void
signal_run(void *word, uint64_t value, uint64_t n_bytes)
{
	if (n_bytes == 8)
		__atomic_store_n((uint64_t *)word, value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)word, (uint32_t)value, __ATOMIC_RELEASE);
}

void
sim_work_run(const struct sim_work *work)
{
	const uint64_t *a = work->a;

	switch (work->kind) {
	case SIM_WORK_COPY:
		memmove(at(a[0]), work->staged ? work->staged : at(a[1]), a[2]);
		break;
	case SIM_WORK_SET:
		set_run(a[0], (uint32_t)a[1], a[2], a[3]);
		break;
	case SIM_WORK_FILL:
		set_run(a[0], (uint32_t)a[2], 4, a[1]);
		break;
	case SIM_WORK_CHECK:
		check_run(at(a[0]), a[1], (uint32_t)a[2], at(a[3]));
		break;
	case SIM_WORK_SIGNAL:
		signal_run(at(a[0]), a[1], a[3]);
		break;
	case SIM_WORK_HOST:
	case SIM_WORK_AWAIT:
	case SIM_WORK_MARK:
	case SIM_WORK_ALLOC:
	case SIM_WORK_FREE:
	case SIM_WORK_FAULT:
		break;
	}
}
