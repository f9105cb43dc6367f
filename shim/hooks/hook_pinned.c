/* SPDX-License-Identifier: MIT */
/*
 * Page-locked host memory under pinned:cache (shim/pinned/pinned.h). A call that the driver might
 * refuse, inside a host function, without a context, or in a capture that prohibits it, goes to the
 * driver with the program's own arguments.
 */
#include <errno.h>

#include "allocator/util/yield.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/memory_settings.h"
#include "shim/pinned/pinned.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

/* No driver knows this address as page-locked. */
static char unknown_memory;

typedef CUresult alloc_call(const struct ca_real *real, void **pp, size_t bytes, unsigned flags);

static CUresult
alloc_plain(const struct ca_real *real, void **pp, size_t bytes, unsigned flags)
{
	return CA_INSIDE(real->cuMemAllocHost_v2(pp, bytes));
}

static CUresult
alloc_with_flags(const struct ca_real *real, void **pp, size_t bytes, unsigned flags)
{
	return CA_INSIDE(real->cuMemHostAlloc(pp, bytes, flags));
}

/* Of one request: the first ones may wait for the device. */
enum { RELEASES_UNTIMED = 4 };

/* The driver had no memory when `given` bytes had gone back. True: it may have some now. For 10 s:
 * other threads may take all that goes back, and give more. */
static bool
release(uint64_t given, unsigned number, uint64_t *until_ns)
{
	if (!*until_ns)
		*until_ns = ca_pinned_clock() + CA_PINNED_PATIENCE_NS;
	if ((number < RELEASES_UNTIMED || ca_pinned_clock() < *until_ns) &&
	    ca_pinned_release(CA_PINNED_PATIENCE_NS))
		return true;
	if (number < RELEASES_UNTIMED && ca_pinned_given() != given)
		return true;
	return ca_pinned_await_others(given, *until_ns);
}

/* Only where no memory at all is left is it taken without the rest of its class. */
static CUresult
alloc_new(const struct ca_real *real, void **pp, size_t bytes, unsigned flags,
	  const struct ca_pinned_kind *kind, alloc_call *call)
{
	uint64_t given, until = 0;
	unsigned number = 0;
	CUresult rc;

	do {
		given = ca_pinned_given();
		rc = call(real, pp, kind->bytes, flags);
	} while (rc == CUDA_ERROR_OUT_OF_MEMORY && release(given, number++, &until));
	if (rc == CUDA_SUCCESS)
		ca_pinned_enter(kind, bytes, *pp);
	return rc == CUDA_ERROR_OUT_OF_MEMORY && kind->bytes != bytes ? call(real, pp, bytes, flags)
								      : rc;
}

static CUresult
alloc(const struct ca_real *real, void **pp, size_t bytes, unsigned flags, unsigned key,
      alloc_call *call)
{
	struct ca_process *process = ca_hook_active_process();
	struct ca_pinned_kind kind;
	void *memory;
	int rc;
	CA_KEEP_ERRNO;

	if (!process || !atomic_load(&ca_pinned_on) || !pp || ca_capture_disallows() ||
	    !ca_pinned_kind_of(real, bytes, key, &kind))
		return call(real, pp, bytes, flags);
	if (process->config.free_sync_host && (rc = ca_settings_error(real)))
		return (CUresult)rc;
	memory = ca_pinned_take(&kind, bytes);
	rc = CUDA_SUCCESS;
	if (memory) {
		*pp = memory;
	} else {
		process->note_device(kind.context->device);
		rc = (int)alloc_new(real, pp, bytes, flags, &kind, call);
	}
	ca_process_tick(process);
	return (CUresult)rc;
}

CUresult
cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	CA_HOOK_REAL(real, cuMemAllocHost_v2);
	return alloc(real, pp, bytesize, 0, CA_PINNED_PLAIN, alloc_plain);
}

CUresult
cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuMemHostAlloc);
	if (Flags & CA_PINNED_PLAIN)
		return alloc_with_flags(real, pp, bytesize, Flags);
	return alloc(real, pp, bytesize, Flags, Flags, alloc_with_flags);
}

/* ---- frees */

static CUresult
free_natively(const struct ca_real *real, void *p)
{
	bool is_cached;
	struct ca_pinned_record *record = ca_pinned_free_begin(p, &is_cached);
	CUresult rc = CA_INSIDE(real->cuMemFreeHost(is_cached ? &unknown_memory : p));

	if (record)
		ca_pinned_free_end(record, rc == CUDA_SUCCESS);
	return rc;
}

/* free_sync:host. 0; -EBUSY: a capture is in the way, or the context is going; > 0: the driver's
 * error. */
static int
wait_in_context(const struct ca_real *real, struct ca_context *context)
{
	uint64_t frees = ca_pinned_frees();
	bool pushed;
	CUresult rc;

	if (ca_unseen_capture(real) || !ca_gate_enter())
		return -EBUSY;
	rc = ca_context_push(real, context, &pushed);
	if (!rc) {
		rc = ca_capture_active() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
					 : CA_INSIDE(real->cuCtxSynchronize());
		ca_context_pop(real, pushed);
	}
	ca_gate_leave();
	if (rc == CUDA_SUCCESS)
		ca_pinned_synchronized(context, frees);
	return ca_capture_is_error(rc) ? -EBUSY : (int)rc;
}

static int
wait_as_natively(const struct ca_real *real, void *p)
{
	struct ca_context *context = ca_pinned_context(p);
	int rc;

	if (!context || !real->cuCtxSynchronize || !ca_context_enter(context))
		return -EBUSY;
	rc = wait_in_context(real, context);
	ca_context_leave(context);
	return rc;
}

/* While a context dies, the driver may already have handed its memory out anew, although our
 * records are not gone yet. */
static void
await_teardown(void *p)
{
	struct ca_context *context;

	while (ca_context_any_closed() && (context = ca_pinned_context(p)) &&
	       atomic_load(&context->closing))
		ca_yield();
}

CUresult
cuMemFreeHost(void *p)
{
	CA_HOOK_REAL(real, cuMemFreeHost);
	struct ca_process *process = ca_hook_active_process();
	CA_KEEP_ERRNO;
	int rc = 0;

	if (!process || !atomic_load(&ca_pinned_on))
		return CA_INSIDE(real->cuMemFreeHost(p));
	await_teardown(p);
	if (ca_capture_disallows() || !ca_context_current(real))
		return free_natively(real, p);
	if (process->config.free_sync_host)
		rc = wait_as_natively(real, p);
	if (rc > 0)
		return (CUresult)rc;
	if (rc || ca_pinned_give(p))
		return free_natively(real, p);
	ca_pinned_shrink();
	ca_process_tick(process);
	return CUDA_SUCCESS;
}

/* ---- questions: freed memory, and what its class has beyond the request, is unknown */

static void *
visible(void *p)
{
	struct ca_pinned_view view;

	if (!ca_hook_active_process() || !atomic_load(&ca_pinned_on))
		return p;
	return ca_pinned_look_up((uintptr_t)p, &view) == -ESTALE ? &unknown_memory : p;
}

CUresult
cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	CA_HOOK_REAL(real, cuMemHostGetFlags);
	p = visible(p);
	return CA_INSIDE(real->cuMemHostGetFlags(pFlags, p));
}

CUresult
cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	CA_HOOK_REAL(real, cuMemHostGetDevicePointer_v2);
	p = visible(p);
	return CA_INSIDE(real->cuMemHostGetDevicePointer_v2(pdptr, p, Flags));
}

CUresult
cuMemHostUnregister(void *p)
{
	CA_HOOK_REAL(real, cuMemHostUnregister);
	p = visible(p);
	return CA_INSIDE(real->cuMemHostUnregister(p));
}
