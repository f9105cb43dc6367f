/* SPDX-License-Identifier: MIT */
/*
 * The real driver behind struct ca_driver: segments by cuMemAlloc_v2 and cuMemFree_v2, marks by
 * context_event.c and stream_event.c, mapped memory by vmm.c.
 *
 * A segment is taken in whatever capture mode the program's thread is in, so that the driver
 * refuses where it would have refused the program. Memory goes back in relaxed mode and outside the
 * capture gate, because cuMemFree may wait for the device and a begin-capture must not wait for it.
 * While something captures it goes back only in a thread to which the driver would allow the
 * program's own cuMemFree.
 */
#include "shim/driver/driver_table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "allocator/util/yield.h"
#include "shim/bind/libcuda.h"
#include "shim/driver/context_event.h"
#include "shim/driver/pools.h"
#include "shim/driver/stream_event.h"
#include "shim/driver/vmm.h"
#include "shim/state/process.h"
#include "shim/track/assumptions.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

static int
synchronize_one(const struct ca_real *real, struct ca_context *context)
{
	bool pushed;
	CUresult rc;

	if (ca_unseen_capture(real))
		return -EBUSY;
	rc = ca_context_push(real, context, &pushed);
	if (rc)
		return (int)rc;
	rc = ca_capture_active() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
				 : CA_INSIDE(real->cuCtxSynchronize());
	ca_context_pop(real, pushed);
	return ca_capture_is_error(rc) ? -EBUSY : (int)rc;
}

/*
 * One context, in the gate: a capture may have begun during the wait for the one before. The end of
 * a destruction is awaited outside.
 */
static int
synchronize_context(const struct ca_real *real, struct ca_context *context)
{
	int rc;

	for (;;) {
		if (!ca_gate_enter())
			return -EBUSY;
		if (ca_context_enter(context))
			break;
		ca_gate_leave();
		if (atomic_load(&context->dead))
			return 0;
		ca_yield();
	}
	rc = synchronize_one(real, context);
	ca_context_leave(context);
	ca_gate_leave();
	return rc;
}

static int
synchronize(void *self, void *space_context)
{
	const struct ca_real *real = ca_real();
	struct ca_context *context;
	int rc = 0;

	if (!real || !real->cuCtxSynchronize)
		return CUDA_ERROR_NOT_INITIALIZED;
	for (context = ca_context_first(); context && !rc; context = ca_context_next(context)) {
		if (atomic_load(&context->kind) == CA_CONTEXT_GREEN)
			continue;
		rc = synchronize_context(real, context);
		if (rc > 0 && context != space_context)
			rc = -EIO;
	}
	return rc;
}

static int
context_synchronize(void *self, void *space_context)
{
	const struct ca_real *real = ca_real();

	if (!real || !real->cuCtxSynchronize)
		return CUDA_ERROR_NOT_INITIALIZED;
	return synchronize_context(real, space_context);
}

static int
segment_take(void *self, void *space_context, uint64_t size, uint64_t *ret_address)
{
	const struct ca_real *real = ca_real();
	CUdeviceptr address;
	CUresult rc;

	if (!real || !real->cuMemAlloc_v2)
		return CUDA_ERROR_NOT_INITIALIZED;
	rc = CA_INSIDE(real->cuMemAlloc_v2(&address, size));
	if (rc == CUDA_SUCCESS)
		*ret_address = address;
	return (int)rc;
}

static int
managed_take(void *self, void *space_context, uint64_t size, uint64_t *ret_address)
{
	const struct ca_real *real = ca_real();
	CUdeviceptr address;
	CUresult rc;

	if (!real || !real->cuMemAllocManaged)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = CA_INSIDE(real->cuMemAllocManaged(&address, size, CU_MEM_ATTACH_GLOBAL));
	if (rc == CUDA_SUCCESS)
		*ret_address = address;
	return rc == CUDA_SUCCESS ? 0 : CUDA_ERROR_OUT_OF_MEMORY; /* the answer is the first one */
}

static int
segment_return(void *self, void *space_context, uint64_t address)
{
	const struct ca_real *real = ca_real();
	struct ca_context *context = space_context;
	struct ca_process *process = ca_process_made();
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool pushed, exchanged;
	CUresult rc;

	if (!real || !real->cuMemFree_v2)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (process && !process->caches) /* the program's own call, counted */
		return (int)CA_INSIDE(real->cuMemFree_v2(address));
	if (ca_capture_disallows())
		return -EBUSY;
	while (!ca_context_enter(context)) {
		if (atomic_load(&context->dead))
			return 0;
		ca_yield(); /* being destroyed, or one usage fewer: it is known in a moment */
	}
	rc = ca_context_push(real, context, &pushed);
	if (!rc) {
		exchanged = ca_capture_exchange_mode(real, &mode);
		rc = CA_INSIDE(real->cuMemFree_v2(address));
		if (exchanged)
			ca_capture_restore_mode(real, mode);
		ca_context_pop(real, pushed);
	}
	ca_context_leave(context);
	return (int)rc;
}

static int
memory_info(void *self, void *space_context, uint64_t *ret_free, uint64_t *ret_total)
{
	const struct ca_real *real = ca_real();
	struct ca_context *context = space_context;
	size_t free_bytes, total_bytes;
	bool pushed;
	CUresult rc;

	if (!real || !real->cuMemGetInfo_v2)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!ca_context_enter(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	rc = ca_context_push(real, context, &pushed);
	if (!rc) {
		rc = CA_INSIDE(real->cuMemGetInfo_v2(&free_bytes, &total_bytes));
		ca_context_pop(real, pushed);
	}
	ca_context_leave(context);
	if (rc)
		return (int)rc;
	*ret_free = free_bytes;
	*ret_total = total_bytes;
	return 0;
}

static bool
capturing(void *self)
{
	return ca_capture_is_near();
}

static bool
capture_allows(void *self)
{
	return !ca_capture_disallows();
}

static bool
orders(void *self, void *space_context)
{
	return ca_assumptions_hold(space_context);
}

static uint64_t
clock_ns(void *self)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const struct ca_driver *
ca_driver_table(void)
{
	static const struct ca_driver driver = {
		.segment_take = segment_take,
		.managed_take = managed_take,
		.segment_return = segment_return,
		.range_reserve = ca_vmm_reserve,
		.range_map = ca_vmm_map,
		.range_alias = ca_vmm_alias,
		.range_unmap = ca_vmm_unmap,
		.range_release = ca_vmm_release,
		.mark_record = ca_mark_record,
		.has_marks = ca_has_marks,
		.mark_query = ca_mark_query,
		.mark_query_own = ca_mark_query_own,
		.mark_wait = ca_mark_wait,
		.stream_mark = ca_stream_mark,
		.stream_wait = ca_stream_wait,
		.stream_operation = ca_stream_operation,
		.stream_query = ca_stream_query,
		.stream_synchronize = ca_stream_synchronize,
		.mark_drop = ca_mark_drop,
		.synchronize = synchronize,
		.memory_info = memory_info,
		.context_synchronize = context_synchronize,
		.pools_trim = ca_pools_trim,
		.capturing = capturing,
		.capture_allows = capture_allows,
		.orders = orders,
		.clock_ns = clock_ns,
		.real_time = true,
	};

	return &driver;
}
