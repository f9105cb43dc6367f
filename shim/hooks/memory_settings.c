/* SPDX-License-Identifier: MIT */
/*
 * A fill runs in a stream of ours that waits for nobody. Before it, nothing uses the memory: memory
 * that is handed out has been finished with (zero and poison imply reuse:finished), and a free
 * waits for its context first. After it, the host waits, so whatever the program submits later
 * comes after it. In an allocation beside other work it is asked for, not waited for: a kernel that
 * fills the whole device may itself wait for the program.
 */
#include "shim/hooks/memory_settings.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/order/order.h"
#include "config/log.h"
#include "shim/hooks/hook.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

enum {
	FILL_ALLOCATED = 0xff, /* NaN in every floating-point format */
	FILL_FREED = 0xfe,
	ASK_PAUSE_NS = 50 * 1000,
	ASKS_MAX = 200 * 1000, /* 10 s, and more */
	FAILED_MAX = 100,
	STREAM_NON_BLOCKING = 1,
};

/* 0: submitted; -EBUSY: a capture is in the way; > 0: the driver's error. */
static int
submit_fill(const struct ca_real *real, struct ca_context *context, CUdeviceptr dptr, size_t bytes,
	    unsigned char value, CUstream *ret_stream)
{
	CUresult rc;

	if (!ca_gate_enter())
		return -EBUSY;
	rc = ca_context_own_stream(real, &context->filler, STREAM_NON_BLOCKING);
	*ret_stream = atomic_load(&context->filler);
	if (!rc)
		rc = CA_INSIDE(real->cuMemsetD8Async(dptr, value, bytes, *ret_stream));
	ca_gate_leave();
	return ca_capture_is_error(rc) ? -EBUSY : (int)rc;
}

/* Where the device has nothing else to do, or the driver's own free would wait as well, the host
 * may wait for the fill. -EBUSY: a capture is in the way. */
static int
wait_for_fill(const struct ca_real *real, CUstream stream)
{
	CUresult rc;

	if (!ca_gate_enter())
		return -EBUSY;
	rc = CA_INSIDE(real->cuStreamSynchronize(stream));
	ca_gate_leave();
	return rc == CUDA_SUCCESS ? 0 : -EBUSY;
}

/* False: it has not ended, for all we know. */
static bool
await_fill(const struct ca_real *real, CUstream stream)
{
	static const struct timespec pause = { .tv_nsec = ASK_PAUSE_NS };

	unsigned failed = 0;

	for (unsigned asked = 0; asked < ASKS_MAX; asked++) {
		CUresult rc = CUDA_ERROR_NOT_READY;

		if (ca_gate_enter()) {
			rc = CA_INSIDE(real->cuStreamQuery(stream));
			ca_gate_leave();
		}
		if (rc == CUDA_SUCCESS)
			return true;
		if (rc != CUDA_ERROR_NOT_READY && !ca_capture_is_error(rc) &&
		    ++failed == FAILED_MAX)
			return true; /* the device is lost */
		/* not nanosleep(): that is a cancellation point */
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	return false;
}

/* In the current context. False: it goes on. */
static bool
fill(const struct ca_real *real, const struct ca_block_info *info, size_t bytes,
     unsigned char value, bool may_wait)
{
	CUstream stream = NULL;
	bool done = true;
	int r = -EBUSY;

	if (real->cuStreamCreate && real->cuStreamDestroy_v2 && real->cuMemsetD8Async &&
	    real->cuStreamQuery && real->cuStreamSynchronize)
		r = submit_fill(real, info->context, info->address, bytes, value, &stream);
	if (!r && (!may_wait || wait_for_fill(real, stream)))
		done = await_fill(real, stream);
	ca_note_fill(info->space, !r && done);
	if (!done)
		ca_warn("the device did not fill %zu bytes within ten seconds: that memory is lost",
			bytes);
	return done;
}

/* A free of the driver's own, which waits as far as a capture allows. > 0: its error; -EBUSY. */
static int
free_natively(const struct ca_real *real)
{
	CUdeviceptr probe;
	CUresult rc = CA_INSIDE(real->cuMemAlloc_v2(&probe, 1));

	if (rc == CUDA_SUCCESS)
		rc = CA_INSIDE(real->cuMemFree_v2(probe));
	if (rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY || ca_capture_is_error(rc))
		return -EBUSY;
	return (int)rc;
}

/* Waits for the context, unless something captures: that would invalidate the capture. -EBUSY. */
static int
wait_for_context(const struct ca_real *real, const struct ca_block_info *info)
{
	CUresult rc;
	uint64_t bound;

	if (ca_unseen_capture(real) || !ca_gate_enter())
		return -EBUSY;
	bound = ca_order_space_bound(info->space);
	rc = CA_INSIDE(real->cuCtxSynchronize());
	if (!rc)
		ca_order_space_finished(info->space, bound, false);
	ca_gate_leave();
	return ca_capture_is_error(rc) ? -EBUSY : (int)rc;
}

/* In the block's context: free_sync:host, and poison. > 0: the driver's error; -EBUSY: the memory
 * is lost. */
static int
prepare_in_context(const struct ca_real *real, const struct ca_config *config,
		   const struct ca_block_info *info)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	int rc = wait_for_context(real, info);

	if (rc == -EBUSY && config->free_sync_host)
		rc = free_natively(real);
	if (config->poison && rc)
		ca_note_fill(info->space, false);
	else if (config->poison && !fill(real, info, info->requested_bytes, FILL_FREED, true))
		rc = -ENODEV;
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return rc == -EBUSY ? 0 : rc;
}

static int
prepare(const struct ca_real *real, const struct ca_config *config,
	const struct ca_block_info *info)
{
	bool pushed;
	int rc;

	if (!real->cuCtxSynchronize || !ca_context_enter(info->context))
		return 0;
	rc = (int)ca_context_push(real, info->context, &pushed);
	if (!rc) {
		rc = prepare_in_context(real, config, info);
		ca_context_pop(real, pushed);
	}
	ca_context_leave(info->context);
	return rc;
}

int
ca_settings_free(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr)
{
	const struct ca_config *config = &process->config;
	struct ca_block_info info;
	int rc = 0;

	if (ca_lookup(process->heap, dptr, &info) || !info.live || info.address != dptr)
		return ca_free(process->heap, dptr);
	if (config->free_sync_host || config->poison)
		rc = prepare(real, config, &info);
	if (rc)
		return rc == -ENODEV ? 0 : rc; /* the program has freed it all the same */
	rc = ca_free(process->heap, dptr);
	if (!rc)
		ca_auto_trim(info.space, true);
	return rc;
}

bool
ca_settings_alloc(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr,
		  size_t bytes)
{
	struct ca_block_info info;

	if (ca_lookup(process->heap, dptr, &info))
		return true;
	return fill(real, &info, bytes, process->config.zero ? 0 : FILL_ALLOCATED,
		    ca_device_is_idle(info.space));
}

/* The driver's answer to a question of ours, as far as it is about earlier work. It may have been
 * given for the first and last time, so the program gets it. */
static int
error_of_work(CUresult rc)
{
	if (rc == CUDA_ERROR_NOT_READY || rc == CUDA_ERROR_INVALID_HANDLE ||
	    rc == CUDA_ERROR_OUT_OF_MEMORY || ca_capture_is_error(rc))
		return 0;
	return (int)rc;
}

int
ca_settings_error(const struct ca_real *real)
{
	struct ca_context *context = NULL;
	CUstream stream;
	CUresult rc = CUDA_SUCCESS;

	if (real->cuStreamCreate && real->cuStreamDestroy_v2 && real->cuStreamQuery)
		context = ca_context_find(ca_context_current(real));
	if (!context || ca_unseen_capture(real) || !ca_context_enter(context))
		return 0;
	if (ca_gate_enter()) {
		rc = ca_context_own_stream(real, &context->filler, STREAM_NON_BLOCKING);
		stream = atomic_load(&context->filler);
		if (!rc)
			rc = CA_INSIDE(real->cuStreamQuery(stream));
		ca_gate_leave();
	}
	ca_context_leave(context);
	return error_of_work(rc);
}
