/* SPDX-License-Identifier: MIT */
/*
 * Waits for a value in memory: sim_wait, sim_signal, and the memory operations of streams.
 *
 * A wait is an operation like any other that, once all before it is done, is put aside until the
 * word satisfies its comparison; nothing else of the device is held up. The word is looked at with
 * an atomic load by whoever runs operations (executor.c, manual.c), and only then: a value that was
 * there for a moment may be missed, as natively. Both ends touch the word atomically, so they do
 * not race with each other; order.c says what they teach.
 */
#include "tests/sim/engine/internal.h"

bool
sim_await_holds(const struct sim_work *work, uint64_t have)
{
	uint64_t want = work->a[1];
	bool wide = work->a[3] == 8;

	switch ((enum sim_compare)work->a[2]) {
	case SIM_COMPARE_GEQ:
		return wide ? (int64_t)(have - want) >= 0
			    : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
	case SIM_COMPARE_EQ:
		return have == want;
	case SIM_COMPARE_AND:
		return (have & want) != 0;
	case SIM_COMPARE_NOR:
		return (wide ? ~(have | want) : (uint32_t) ~(have | want)) != 0;
	case SIM_COMPARE_TIMELINE:
		return have >= want;
	}
	return false;
}

bool
sim_await_met_locked(const struct sim_op *op)
{
	const struct sim_work *work = &op->work;
	const void *word = (const void *)(uintptr_t)work->a[0];
	const struct sim_mem *mem = sim_mem_hold_locked(work->a[0], work->a[3]);

	if (op->ctx->sticky || !mem || !sim_peer_reaches_locked(op, mem, &work->touch[0]))
		return true;
	if (work->a[3] == 8)
		return sim_await_holds(work,
				       __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE));
	return sim_await_holds(work, __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE));
}

static int
value_submit(CUstream handle, const struct sim_work *work)
{
	struct sim_stream *stream;
	int rc;

	if ((work->a[3] != 4 && work->a[3] != 8) || work->a[0] % work->a[3])
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && !sim_mem_hold_locked(work->a[0], work->a[3]))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				       "0x%llx is no memory that the device can reach",
				       (unsigned long long)work->a[0]);
	if (!rc)
		rc = sim_submit_locked(stream, work, NULL, NULL, NULL);
	sim_unlock();
	return rc;
}

static int
wait_submit(CUstream handle, CUdeviceptr ptr, uint64_t value, unsigned n_bytes,
	    enum sim_compare compare)
{
	struct sim_work work = {
		.kind = SIM_WORK_AWAIT,
		.name = "wait value",
		.a = { ptr, n_bytes == 8 ? value : (uint32_t)value, compare, n_bytes },
		.touch = { { .addr = ptr, .n_bytes = n_bytes, .access = SIM_ATOMIC } },
		.n_touches = 1,
	};

	return value_submit(handle, &work);
}

int
sim_stream_wait_value(CUstream handle, CUdeviceptr ptr, uint64_t value, unsigned n_bytes,
		      enum sim_compare compare)
{
	return (unsigned)compare > SIM_COMPARE_NOR
		       ? CUDA_ERROR_INVALID_VALUE
		       : wait_submit(handle, ptr, value, n_bytes, compare);
}

int
sim_stream_wait_timeline(CUstream handle, CUdeviceptr ptr, uint64_t value)
{
	return wait_submit(handle, ptr, value, 8, SIM_COMPARE_TIMELINE);
}

static int
write_submit(CUstream handle, CUdeviceptr ptr, uint64_t value, unsigned n_bytes,
	     enum sim_release release)
{
	struct sim_work work = {
		.kind = SIM_WORK_SIGNAL,
		.name = "write value",
		.a = { ptr, n_bytes == 8 ? value : (uint32_t)value, release, n_bytes },
		.touch = { { .addr = ptr, .n_bytes = n_bytes, .access = SIM_ATOMIC } },
		.n_touches = 1,
	};

	return value_submit(handle, &work);
}

int
sim_stream_write_value(CUstream handle, CUdeviceptr ptr, uint64_t value, unsigned n_bytes,
		       bool release)
{
	return write_submit(handle, ptr, value, n_bytes,
			    release ? SIM_RELEASE_ORDER : SIM_RELEASE_NOTHING);
}

int
sim_stream_write_timeline(CUstream handle, CUdeviceptr ptr, uint64_t value)
{
	return write_submit(handle, ptr, value, 8, SIM_RELEASE_TIMELINE);
}
