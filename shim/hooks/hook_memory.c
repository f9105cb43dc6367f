/* SPDX-License-Identifier: MIT */
/*
 * Allocation and free: hook -> context -> heap -> out.
 *
 * Whatever the heap does not know or cannot do goes to the driver with the program's own arguments,
 * so that errors, NULL and zero sizes are answered as natively. Outputs are written only on
 * success.
 */
#include "allocator/order/order_told.h"
#include "allocator/tcache/fast.h"
#include "shim/framework/framework.h"
#include "shim/hooks/foreign_limit.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/hook_told.h"
#include "shim/hooks/late_free.h"
#include "shim/hooks/memory_settings.h"
#include "shim/hooks/submission.h"
#include "shim/process/lifecycle.h"
#include "shim/state/pitch_table.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

enum { LOOK_EVERY = 64 }; /* allocations of a thread */

/* Whether memory may be reused before it is finished depends on what else is in the process. */
static __attribute__((noinline, cold)) void
look_around(struct ca_process *process)
{
	ca_quick.looks = LOOK_EVERY;
	if (process)
		ca_fallback_look_around(process);
	ca_late_free_all();
}

/* The extras that few programs want: zero, poison, trims, repeated statistics. */
static __attribute__((noinline, cold)) CUresult
finish_alloc(const struct ca_real *real, struct ca_process *process, CUdeviceptr *dptr,
	     size_t bytes, CUresult rc)
{
	int saved = errno;

	if (rc == CUDA_SUCCESS && process->fills && !ca_settings_alloc(real, process, *dptr, bytes))
		rc = CA_INSIDE(real->cuMemAlloc_v2(dptr, bytes));
	errno = saved;
	ca_process_tick(process);
	return rc;
}

/* The space that serves the call; remembered for calls to come. */
static struct ca_space *
find_space(const struct ca_real *real, struct ca_process *process)
{
	uint64_t word = atomic_load(&ca_capture_word);
	CUcontext current = NULL;
	struct ca_space *space = ca_context_space_current(real, &current);

	if (space)
		ca_quick.permitted = true;
	if (process->is_plain && space && !(word & CA_CAPTURES)) {
		ca_quick.heap = process->heap;
		ca_quick.get_current = real->cuCtxGetCurrent;
		ca_quick.space = space;
		ca_quick.context = current;
		ca_quick.word = word;
	}
	return space;
}

/* The host has no memory for a record of it. Under CACHEALLOC_LIMIT such memory is refused, for
 * nobody could tell what a free of it gives back. */
static __attribute__((noinline, cold)) CUresult
alloc_without_record(const struct ca_real *real, const struct ca_process *process,
		     CUdeviceptr *dptr, size_t bytes, struct ca_space *space)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	CUresult rc;
	CA_KEEP_ERRNO;

	if (!atomic_flag_test_and_set(&warned))
		ca_warn("no memory for records: allocations that need one are %s",
			process->limited ? "refused, to keep to CACHEALLOC_LIMIT"
					 : "the driver's own");
	if (process->limited) {
		ca_report_oom(space, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	rc = CA_ROOM_RETRIED(real->cuMemAlloc_v2(dptr, bytes), ca_make_capacity, real, bytes);
	if (rc == CUDA_SUCCESS)
		ca_note_other_alloc(space);
	return rc;
}

/* The heap's answer in the driver's words. */
static inline CUresult
answer_alloc(const struct ca_real *real, struct ca_process *process, CUdeviceptr *dptr,
	     size_t bytesize, struct ca_space *space, int rc)
{
	if (__builtin_expect(rc == -ENOMEM, 0))
		return alloc_without_record(real, process, dptr, bytesize, space);
	if (rc < 0)
		return CA_INSIDE(real->cuMemAlloc_v2(dptr, bytesize));
	if (rc == CUDA_ERROR_OUT_OF_MEMORY)
		ca_report_oom(space, bytesize);
	if (__builtin_expect(process->ticks, 0))
		return finish_alloc(real, process, dptr, bytesize, (CUresult)rc);
	return (CUresult)rc;
}

/* The calling thread's magazine was tried in that space. */
static __attribute__((noinline)) CUresult
alloc_rest(CUdeviceptr *dptr, size_t bytesize, struct ca_space *space)
{
	struct ca_process *process = ca_process();
	uint64_t address;
	int rc = ca_alloc_rest(space, bytesize, &address);

	if (!rc)
		*dptr = address;
	if (__builtin_expect(!rc && !process->ticks, 1))
		return CUDA_SUCCESS;
	return answer_alloc(ca_real(), process, dptr, bytesize, space, rc);
}

/* Any allocation, with all checks. */
static __attribute__((noinline)) CUresult
alloc_any(CUdeviceptr *dptr, size_t bytesize)
{
	CA_HOOK_REAL(real, cuMemAlloc_v2);
	struct ca_process *process = ca_hook_process();
	struct ca_space *space = NULL;
	uint64_t address;
	bool passes = false, looks = ca_quick.looks <= 1;
	int saved = errno;
	int rc = -ENODEV, error = 0;

	if (process && dptr && bytesize && (space = find_space(real, process))) {
		if (process->has_extras && process->config.free_sync_host)
			error = ca_settings_error(real);
		if (error) {
			errno = saved;
			return (CUresult)error;
		}
		if (looks)
			look_around(process);
		else
			ca_quick.looks--;
		passes = !ca_framework_is_quiet() && ca_framework_passes(process, bytesize);
		rc = passes ? ca_alloc_passthrough(space, bytesize, &address)
			    : ca_alloc(space, bytesize, &address);
	}
	errno = saved;
	if (!rc) {
		*dptr = address;
		if (looks)
			ca_process_note_allocation(process, bytesize, !passes);
	}
	return answer_alloc(real, process, dptr, bytesize, space, rc);
}

/* Nothing is unusual about an allocation in the context that ca_quick has. (There is one: the word
 * of a capture is never 0.) */
static inline bool
is_common_alloc(void)
{
	return !(ca_inside | atomic_load(&ca_capture_preparing)) &&
	       atomic_load(&ca_capture_word) == ca_quick.word && ca_framework_is_quiet();
}

/* The context that is current now becomes the one that ca_quick has: it was so in the moment in
 * which it was asked for. False: that takes all checks. */
static __attribute__((noinline)) bool
changes_context(CUcontext current)
{
	struct ca_space *space = ca_context_known_space(current);

	if (!space)
		return false;
	ca_quick.space = space;
	ca_quick.context = current;
	ca_magazine_expect(space);
	return true;
}

/* ca_quick has the calling thread's current context. False: it does not. */
static inline bool
is_in_context(void)
{
	CUcontext current;

	return CA_INSIDE(ca_quick.get_current(&current)) == CUDA_SUCCESS &&
	       (__builtin_expect(current == ca_quick.context, 1) || changes_context(current));
}

/* The quick way has come to that stack. */
static __attribute__((noinline)) CUresult
alloc_on(CUdeviceptr *dptr, size_t bytesize, struct ca_space *space, struct ca_stack *stack)
{
	uint64_t address;

	if (!ca_magazine_take_on(space, bytesize, stack, &address))
		return alloc_rest(dptr, bytesize, space);
	*dptr = address;
	return CUDA_SUCCESS;
}

/* In the context that ca_quick has. A call of its own costs a hit 8 instructions. */
static inline __attribute__((always_inline)) CUresult
alloc_common(CUdeviceptr *dptr, size_t bytesize)
{
	struct ca_space *space = ca_quick.space;
	struct ca_stack *stack;
	uint64_t address;

	if (__builtin_expect(ca_alloc_quick(space, bytesize, &address, &stack), 1)) {
		*dptr = address;
		return CUDA_SUCCESS;
	}
	return stack ? alloc_on(dptr, bytesize, space, stack) : alloc_rest(dptr, bytesize, space);
}

CUresult
cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	if (__builtin_expect(!is_common_alloc() || !dptr, 0))
		return alloc_any(dptr, bytesize);
	if (__builtin_expect(!--ca_quick.looks, 0))
		look_around(ca_process());
	if (__builtin_expect(!is_in_context(), 0))
		return alloc_any(dptr, bytesize);
	return alloc_common(dptr, bytesize);
}

/* The driver chooses the pitch. */
static CUresult
alloc_pitch_natively(const struct ca_real *real, struct ca_space *space, CUdeviceptr *dptr,
		     size_t *pPitch, size_t WidthInBytes, size_t Height,
		     unsigned int ElementSizeBytes)
{
	/* charged by its segment later on, until then like other memory */
	struct ca_road road = ca_foreign_begin(real, -1, WidthInBytes * Height, space != NULL);
	CA_KEEP_ERRNO;
	struct ca_rounds rounds = { 0 };
	CUresult rc;

	if (road.rejected)
		return CUDA_ERROR_OUT_OF_MEMORY;
	do {
		rc = CA_INSIDE(real->cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height,
							ElementSizeBytes));
	} while (rc == CUDA_ERROR_OUT_OF_MEMORY && space &&
		 ca_reclaim(space, WidthInBytes * Height, &rounds));
	if (rc == CUDA_SUCCESS && space && *dptr) {
		ca_pitch_note(space->number, WidthInBytes, ElementSizeBytes, *pPitch);
		(void)ca_track_foreign(space, *dptr, *pPitch * Height, WidthInBytes * Height);
	}
	ca_foreign_failed(&road);
	return rc;
}

static __attribute__((noinline)) CUresult
alloc_pitch_any(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
		unsigned int ElementSizeBytes)
{
	CA_HOOK_REAL(real, cuMemAllocPitch_v2);
	struct ca_process *process = ca_hook_process();
	struct ca_space *space = process && dptr && pPitch ? ca_context_space(real) : NULL;
	size_t pitch, bytes;
	CUresult rc;

	if (!space ||
	    !ca_pitch_find(space->number, WidthInBytes, ElementSizeBytes, Height, &pitch, &bytes))
		return alloc_pitch_natively(real, space, dptr, pPitch, WidthInBytes, Height,
					    ElementSizeBytes);
	rc = alloc_any(dptr, bytes);
	if (rc == CUDA_SUCCESS)
		*pPitch = pitch;
	return rc;
}

/* Once the driver has chosen the pitch, rows are memory like any other. */
CUresult
cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
		   unsigned int ElementSizeBytes)
{
	size_t pitch, bytes;
	CUresult rc;

	if (!is_common_alloc() || !dptr || !pPitch || ca_quick.looks <= 1 || !is_in_context() ||
	    !ca_pitch_find(ca_quick.space->number, WidthInBytes, ElementSizeBytes, Height, &pitch,
			   &bytes))
		return alloc_pitch_any(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	ca_quick.looks--;
	rc = alloc_common(dptr, bytes);
	if (rc == CUDA_SUCCESS)
		*pPitch = pitch;
	return rc;
}

/*
 * A free that a capture prohibits gets the driver's own code and invalidates the capture (cuda.h,
 * cuThreadExchangeStreamCaptureMode). The block's memory cannot be shown to the driver for that, so
 * an allocation is, which is prohibited likewise. 0: it is not prohibited after all.
 */
static int
reject_in(const struct ca_real *real, struct ca_context *context)
{
	CUdeviceptr probe;
	bool pushed = false;
	CUresult rc;

	if (!ca_context_enter(context))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	(void)ca_context_push(real, context,
			      &pushed); /* an allocation needs one, a free does not */
	rc = CA_INSIDE(real->cuMemAlloc_v2(&probe, 1));
	if (rc == CUDA_SUCCESS)
		(void)CA_INSIDE(real->cuMemFree_v2(probe));
	ca_context_pop(real, pushed);
	ca_context_leave(context);
	if (rc == CUDA_SUCCESS)
		return 0;
	return ca_capture_is_error(rc) ? (int)rc : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* The same for the block at `dptr`, if there is one. */
static __attribute__((noinline, cold)) int
reject_in_capture(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr)
{
	struct ca_block_info info;

	if (ca_lookup(process->heap, dptr, &info) || !info.live || info.address != dptr)
		return 0;
	return reject_in(real, info.context);
}

/* Waits until none of the memory of `process` may be in a dying context. */
static __attribute__((noinline, cold)) void
await_teardowns(struct ca_process *process, CUdeviceptr dptr)
{
	struct ca_block_info info;

	(void)ca_context_lookup(process->heap, dptr, &info);
}

/* The heap's answer in the driver's words. < 0 only for -ENOENT: not ours. */
static int
answer_free(int rc)
{
	return rc < 0 && rc != -ENOENT ? CUDA_ERROR_INVALID_VALUE : rc;
}

static int
free_block(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr)
{
	int rc;

	if (ca_context_any_closed())
		await_teardowns(process, dptr);
	if (process->caches && ca_capture_disallows() &&
	    (rc = reject_in_capture(real, process, dptr)))
		return rc;
	if (__builtin_expect(process->has_extras, 0))
		return answer_free(ca_settings_free(real, process, dptr));
	return answer_free(ca_free(process->heap, dptr));
}

/* Of memory that is not ours. */
static CUresult
free_foreign(const struct ca_real *real, CUdeviceptr dptr)
{
	struct ca_road road;
	CUresult rc;

	if (atomic_load_explicit(&ca_told_on, memory_order_relaxed) &&
	    ca_told_free_host(real, dptr, &rc))
		return rc;
	road = ca_foreign_end_begin(CA_CHARGE_ADDRESS, dptr);
	rc = CA_INSIDE(real->cuMemFree_v2(dptr));
	ca_foreign_end_done(&road, rc, CA_CHARGE_ADDRESS, dptr);
	ca_told_driver_freed(real);
	return rc;
}

/*
 * Inside a host function every call is refused (cuda.h, cuLaunchHostFunc), and a free is to free
 * nothing. So a thread is asked about until the driver has answered it once: those that run host
 * functions do nothing else. The block's memory cannot be shown to the driver for its own code.
 */
static __attribute__((noinline, cold)) bool
is_rejected(const struct ca_real *real, struct ca_process *process, CUdeviceptr dptr)
{
	struct ca_block_info info;
	struct ca_told_info told;
	CUcontext current;
	CUresult rc;

	if (!real->cuCtxGetCurrent)
		return false;
	rc = CA_INSIDE(real->cuCtxGetCurrent(&current));
	if (rc == CUDA_SUCCESS)
		ca_quick.permitted = true;
	return rc == CUDA_ERROR_NOT_PERMITTED &&
	       (!ca_lookup(process->heap, dptr, &info) || ca_told_holds(dptr, &told));
}

/* The calling thread's magazine was tried with the block, if that is not NULL. */
static __attribute__((noinline)) CUresult
free_rest(CUdeviceptr dptr, const struct ca_block *block)
{
	int saved = errno;
	int rc = answer_free(ca_free_rest(ca_quick.heap, dptr, block));

	errno = saved;
	return rc < 0 ? free_foreign(ca_real(), dptr) : (CUresult)rc;
}

/* The quick way has claimed the block. */
static __attribute__((noinline)) CUresult
free_on(struct ca_heap *heap, CUdeviceptr dptr, struct ca_block *block)
{
	return ca_magazine_give_on(heap, block) ? CUDA_SUCCESS : free_rest(dptr, block);
}

static __attribute__((noinline)) CUresult
free_any(CUdeviceptr dptr)
{
	CA_HOOK_REAL(real, cuMemFree_v2);
	struct ca_process *process = ca_hook_process();
	int saved = errno;
	int rc = -ENOENT;
	CUresult answer;

	if (ca_inside && ca_late_free_note(dptr, &answer))
		return answer;
	if (process && dptr && process->caches && !ca_quick.permitted &&
	    is_rejected(real, process, dptr)) {
		errno = saved;
		return CUDA_ERROR_NOT_PERMITTED;
	}
	if (process && process->is_plain && ca_quick.permitted)
		ca_quick.heap = process->heap;
	if (process && dptr)
		rc = free_block(real, process, dptr);
	errno = saved;
	if (rc < 0)
		return free_foreign(real, dptr);
	ca_process_tick(process);
	return (CUresult)rc;
}

static inline bool
is_special_free(void)
{
	uint64_t captures = atomic_load(&ca_capture_word) & CA_CAPTURES;

	/* one comparison of all */
	return (ca_inside | atomic_load(&ca_context_closings) | captures) != 0;
}

CUresult
cuMemFree_v2(CUdeviceptr dptr)
{
	struct ca_heap *heap = ca_quick.heap;
	struct ca_block *block;

	if (__builtin_expect(!heap || is_special_free(), 0))
		return free_any(dptr);
	if (__builtin_expect(ca_free_quick(heap, dptr, &block), 1))
		return CUDA_SUCCESS;
	return block ? free_on(heap, dptr, block) : free_rest(dptr, NULL);
}

typedef CUresult free_async_call(CUdeviceptr dptr, CUstream stream);

/* Of memory that is not ours: nothing of ours is touched, but an allocation elsewhere may be made
 * to wait for it. */
static CUresult
free_others(CUdeviceptr dptr, CUstream stream, free_async_call *real_free, enum ca_flavour flavour)
{
	static const struct ca_touch nothing;
	struct ca_stream *submitted = ca_submission_begin(flavour, stream, &nothing);
	struct ca_road road = ca_foreign_end_begin(CA_CHARGE_ADDRESS, dptr);
	CUresult rc = CA_INSIDE(real_free(dptr, stream));

	ca_foreign_end_done(&road, rc, CA_CHARGE_ADDRESS, dptr);
	ca_submission_end(submitted);
	ca_told_driver_freed(ca_real());
	return rc;
}

/*
 * A free of our block that takes effect behind a stream, of whatever context, which so counts as
 * its last user. The stream is shown to the driver first, which answers for bad handles; a
 * capturing stream takes only the addresses of graph allocations (cuda.h, cuMemFreeAsync).
 */
static __attribute__((noinline)) CUresult
free_untold(const struct ca_real *real, CUdeviceptr dptr, CUstream stream,
	    free_async_call *real_free, enum ca_flavour flavour)
{
	struct ca_process *process = ca_hook_process();
	static const struct ca_touch nothing;
	const struct ca_touch block = { .n = 1, .range = { { dptr, 1 } } };
	struct ca_stream *submitted;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct ca_block_info info;
	int saved = errno;
	CUresult rc;
	int freed;

	if (!process || !dptr || ca_context_lookup(process->heap, dptr, &info))
		return free_others(dptr, stream, real_free, flavour);
	if (!process->caches) {
		rc = CA_INSIDE(real_free(dptr, stream));
		if (rc == CUDA_SUCCESS && info.live && info.address == dptr)
			ca_forget_block(process->heap, dptr);
		errno = saved;
		return rc;
	}
	rc = CUDA_SUCCESS;
	if (real->cuStreamIsCapturing)
		rc = CA_INSIDE(
			real->cuStreamIsCapturing(ca_submission_handle(flavour, stream), &status));
	if (rc)
		return rc;
	if (status != CU_STREAM_CAPTURE_STATUS_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	submitted = ca_submission_begin(flavour, stream, &nothing);
	if (!submitted)
		rc = ca_told_operation_untracked(real, stream, flavour);
	else if (ca_told_put_operation(submitted))
		rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (rc) {
		errno = saved;
		return rc;
	}
	ca_submission_foreign(submitted, &block);
	freed = ca_free_async(process->heap, dptr, submitted);
	if (!freed && process->config.poison)
		ca_note_fill(info.space, false); /* nothing here waits for the stream */
	errno = saved;
	ca_process_tick(process);
	return freed < 0 ? CUDA_ERROR_INVALID_VALUE : (CUresult)freed;
}

static CUresult
free_async(const struct ca_real *real, CUdeviceptr dptr, CUstream stream,
	   free_async_call *real_free, enum ca_flavour flavour)
{
	CUresult rc;

	if (ca_inside && ca_late_free_note(dptr, &rc))
		return rc;
	if (atomic_load_explicit(&ca_told_on, memory_order_relaxed) &&
	    ca_told_free_async(real, dptr, stream, flavour, &rc))
		return rc;
	return free_untold(real, dptr, stream, real_free, flavour);
}

#define FREE_ASYNC(symbol, flavour)                                                                \
	static __attribute__((noinline))                                                           \
	CUresult symbol##_closely(CUdeviceptr dptr, CUstream stream)                               \
	{                                                                                          \
		if (ca_told_default_free_at_once(flavour, stream, dptr))                           \
			return CUDA_SUCCESS;                                                       \
		CA_HOOK_REAL(real, symbol);                                                        \
		return free_async(real, dptr, stream, real->symbol, flavour);                      \
	}                                                                                          \
	CUresult symbol(CUdeviceptr dptr, CUstream hStream)                                        \
	{                                                                                          \
		if (ca_told_free_at_once(flavour, hStream, dptr))                                  \
			return CUDA_SUCCESS;                                                       \
		return symbol##_closely(dptr, hStream);                                            \
	}

FREE_ASYNC(cuMemFreeAsync, CA_FLAVOUR_LEGACY)
FREE_ASYNC(cuMemFreeAsync_ptsz, CA_FLAVOUR_PER_THREAD)
