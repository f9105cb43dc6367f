/* SPDX-License-Identifier: MIT */
/*
 * Work: what copies, sets and kernels do to memory. Runs without the lock; the memory is pinned.
 */
#include "tests/sim/engine/internal.h"

static void *
at(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

static void
copy_run(const struct sim_work *work)
{
	const struct sim_area *to = &work->to;
	struct sim_area from = work->from;

	if (work->staged) {
		from.addr = (uintptr_t)work->staged;
		from.pitch = from.width;
		from.slice = from.width * from.rows;
	}
	sim_area_copy(to, &from);
}

static void
fill_run(uint32_t *words, uint64_t n, uint32_t value)
{
	for (uint64_t i = 0; i < n; i++)
		words[i] = value;
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
		copy_run(work);
		break;
	case SIM_WORK_SET:
		sim_area_set(&work->to, (uint32_t)a[0], a[1]);
		break;
	case SIM_WORK_FILL:
		fill_run(at(a[0]), a[1], (uint32_t)a[2]);
		break;
	case SIM_WORK_CHECK:
		check_run(work->staged ? work->staged : at(a[0]), a[1], (uint32_t)a[2], at(a[3]));
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
