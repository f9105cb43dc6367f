/* SPDX-License-Identifier: MIT */
/*
 * Under the preload the calls go through our own entry points, so that memory is served by the
 * heap of cuMemAlloc: every submission is seen, the stream of the free counts as a user besides,
 * and a recorded stream tells nothing new. PyTorch's own cache is out of use then, although its
 * library is there.
 *
 * Opened by dlopen alone the library sees no submission and no event, so that it cannot keep
 * anything itself. The driver's pool does, in the order of the streams that are named: a free waits
 * on the device for the streams that were recorded, and the pool's threshold is raised. Memory that
 * was allocated while its stream captured comes from cuMemAlloc and never goes back, nor does what
 * was recorded by a stream that captured: a graph may use it at any time.
 */
#include "shim/process/cachealloc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "config/log.h"
#include "shim/bind/hooks.h"
#include "shim/bind/libcuda.h"
#include "shim/bind/loader.h"
#include "shim/bind/scope.h"
#include "shim/driver/pool_calls.h"
#include "shim/driver/pools.h"
#include "shim/framework/framework.h"
#include "shim/framework/take_over.h"
#include "shim/process/lifecycle.h"
#include "shim/state/handle_table.h"
#include "shim/state/record_arena.h"
#include "shim/track/captures.h"
#include "shim/track/streams.h"

enum { DEVICES_MAX = 64, TOLD_MAX = 16 };

/* A stream that works with a block besides the one that frees it. */
struct recorded {
	struct recorded *next;
	CUstream stream;
	CUcontext context; /* the stream's; of a default stream, the current one of that time */
};

/* A block, found by its address; dlopen only. */
struct block {
	struct recorded *recorded; /* under the lock */
	CUdeviceptr address;
	CUstream freed_in;  /* where the free waits for the end of a capture */
	CUcontext freed_at; /* the current context then */
	struct block *next; /* in `waiting` or `unused`; under the lock */
	bool captured;      /* allocated in a capture: never freed */
};

static struct ca_handles blocks;
static struct block *waiting, *unused_blocks;
static struct recorded *unused_recorded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool kept[DEVICES_MAX];     /* the pool's threshold is raised */
static _Atomic bool retained[DEVICES_MAX]; /* the primary context, for as long as the process */
static _Atomic unsigned told;              /* failures that a line told of */

static bool
is_preloaded(void)
{
	static _Atomic int known; /* 1: yes, 2: no */
	int is = atomic_load_explicit(&known, memory_order_relaxed);

	if (!is) {
		is = ca_take_over_is_late() ? 2 : 1;
		atomic_store(&known, is);
	}
	return is == 1;
}

/* In a process that was forked off CUDA does not work, and another thread may have held the lock.
 */
static bool
is_forked(void)
{
	static _Atomic pid_t first; /* that came here */
	pid_t seen = 0;

	return !atomic_compare_exchange_strong(&first, &seen, getpid()) && seen != getpid();
}

/* The real driver that has all that is needed; NULL: there is none. */
static const struct ca_real *
driver(void)
{
	const struct ca_real *real = is_preloaded() || !is_forked() ? ca_real() : NULL;

	return real && real->cuCtxGetDevice && real->cuMemAllocAsync && real->cuMemFreeAsync &&
			       real->cuEventRecord && real->cuStreamWaitEvent &&
			       real->cuThreadExchangeStreamCaptureMode &&
			       real->cuDeviceGetDefaultMemPool && real->cuMemPoolTrimTo
		       ? real
		       : NULL;
}

/* ---- the device that is named, for a default stream is the current context's */

static bool
enter_device(const struct ca_real *real, int device)
{
	CUcontext context;
	CUdevice current;

	if (!CA_INSIDE(real->cuCtxGetDevice(&current)) && current == device)
		return false;
	if (cuDevicePrimaryCtxRetain(&context, device))
		return false;
	(void)CA_INSIDE(real->cuCtxPushCurrent_v2(context));
	return true;
}

static void
leave_device(const struct ca_real *real, int device, bool entered)
{
	CUcontext context;

	if (!entered)
		return;
	(void)CA_INSIDE(real->cuCtxPopCurrent_v2(&context));
	/* the first one is kept, as the runtime does: without it memory may go with its context */
	if (device < 0 || device >= DEVICES_MAX || atomic_exchange(&retained[device], true))
		(void)cuDevicePrimaryCtxRelease_v2(device);
}

static CUcontext
current_context(const struct ca_real *real)
{
	CUcontext context = NULL;

	return real->cuCtxGetCurrent && !CA_INSIDE(real->cuCtxGetCurrent(&context)) ? context
										    : NULL;
}

/* NULL: the driver does not say. */
static CUcontext
context_of(const struct ca_real *real, CUstream stream)
{
	CUcontext context = NULL;

	if (ca_stream_is_default(stream))
		return current_context(real);
	return real->cuStreamGetCtx && !CA_INSIDE(real->cuStreamGetCtx(stream, &context)) ? context
											  : NULL;
}

/* False: it is current already, or the driver does not take it. */
static bool
enter_context(const struct ca_real *real, CUcontext context)
{
	return context && context != current_context(real) &&
	       !CA_INSIDE(real->cuCtxPushCurrent_v2(context));
}

static void
leave_context(const struct ca_real *real, bool entered)
{
	CUcontext context;

	if (entered)
		(void)CA_INSIDE(real->cuCtxPopCurrent_v2(&context));
}

/* ---- failure */

/* PyTorch looks at no result, and goes on with NULL as with memory. */
static void *
fail(size_t bytes, int device, CUresult rc)
{
	void (*raise)(void) = NULL;
	ca_dlsym_fn *find = ca_loader_dlsym();

	if (atomic_fetch_add(&told, 1) < TOLD_MAX)
		ca_warn("cachealloc_torch_malloc: %zu bytes on device %d: CUDA error %d", bytes,
			device, (int)rc);
	if (find)
		raise = (void (*)(void))(uintptr_t)find(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
	if (raise)
		raise();
	return NULL;
}

/* ---- by dlopen alone */

static bool
captures(const struct ca_real *real, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return real->cuStreamIsCapturing &&
	       (CA_INSIDE(real->cuStreamIsCapturing(stream, &status)) ||
		status != CU_STREAM_CAPTURE_STATUS_NONE);
}

static struct block *
block_new(CUdeviceptr address, bool captured)
{
	struct block *block;
	uint64_t old;

	CA_HOLD_LOCK(&lock);
	block = unused_blocks;
	if (block)
		unused_blocks = block->next;
	else
		block = ca_slab_take(sizeof(*block));
	if (!block)
		return NULL;
	*block = (struct block){ .address = address, .captured = captured };
	if (ca_handles_put(&blocks, (void *)(uintptr_t)address, (uintptr_t)block, &old)) {
		block->next = unused_blocks;
		unused_blocks = block;
		return NULL;
	}
	return block;
}

static struct block *
block_of(const void *memory)
{
	return (struct block *)(uintptr_t)ca_handles_get(&blocks, memory);
}

static CUresult
take_in_capture(const struct ca_real *real, CUdeviceptr *ret_address, size_t bytes)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult rc;

	(void)CA_INSIDE(real->cuThreadExchangeStreamCaptureMode(&mode));
	rc = CA_INSIDE(real->cuMemAlloc_v2(ret_address, bytes));
	(void)CA_INSIDE(real->cuThreadExchangeStreamCaptureMode(&mode));
	return rc;
}

/* An event behind what the stream of the current context was given so far; NULL: there is none. */
static CUevent
event_recorded(const struct ca_real *real, CUstream stream)
{
	CUevent event;

	if (CA_INSIDE(real->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
		return NULL;
	if (!CA_INSIDE(real->cuEventRecord(event, stream)))
		return event;
	(void)CA_INSIDE(real->cuEventDestroy_v2(event));
	return NULL;
}

/* `stream` comes after what the recorded one of that context was given so far; false: it could not
 * be done. An event is recorded by streams of its own context only. */
static bool
order_after(const struct ca_real *real, CUstream recorded, CUcontext context, CUstream stream)
{
	bool entered = enter_context(real, context), done;
	CUevent event = NULL;

	if (!context || current_context(real) == context)
		event = event_recorded(real, recorded);
	leave_context(real, entered);
	if (!event)
		return false;
	done = !CA_INSIDE(real->cuStreamWaitEvent(stream, event, 0));
	(void)CA_INSIDE(real->cuEventDestroy_v2(event));
	return done;
}

/* PyTorch may have meant the default stream of the block's device, or of the current one. */
static bool
order_after_recorded(const struct ca_real *real, const struct recorded *one, CUstream stream)
{
	CUcontext here = current_context(real);
	bool is_default = ca_stream_is_default(one->stream);

	if (one->stream == stream && (!is_default || one->context == here))
		return true;
	if (is_default && one->context != here && one->stream != stream &&
	    !order_after(real, one->stream, here, stream))
		return false;
	return order_after(real, one->stream, one->context, stream);
}

static bool
captures_in(const struct ca_real *real, CUstream stream, CUcontext context)
{
	bool entered = enter_context(real, context), is = captures(real, stream);

	leave_context(real, entered);
	return is;
}

/* No free is possible: a wait for a stream that captures would pull the other one in. */
static bool
captures_any(const struct ca_real *real, const struct block *block, CUstream stream)
{
	const struct recorded *one = block->recorded;

	if (captures(real, stream))
		return true;
	while (one && !captures_in(real, one->stream, one->context))
		one = one->next;
	return one;
}

static void
give_back(const struct ca_real *real, struct block *block, CUstream stream)
{
	struct recorded *one, *last = NULL;

	for (one = block->recorded; one; one = one->next) {
		if (!order_after_recorded(real, one, stream)) {
			if (atomic_fetch_add(&told, 1) < TOLD_MAX)
				ca_warn("cachealloc_torch_free: a recorded stream cannot be waited "
					"for, so its memory is never freed");
			return;
		}
		last = one;
	}
	(void)CA_INSIDE(real->cuMemFreeAsync(block->address, stream));
	CA_HOLD_LOCK(&lock);
	if (last) {
		last->next = unused_recorded;
		unused_recorded = block->recorded;
	}
	block->next = unused_blocks;
	unused_blocks = block;
}

/* Frees in streams that captured then, and do no more. */
static void
free_waiting(const struct ca_real *real)
{
	struct block *all, *block;
	bool entered, gives;

	if (!__atomic_load_n(&waiting, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	all = waiting;
	waiting = NULL;
	pthread_mutex_unlock(&lock);
	while ((block = all)) {
		all = block->next;
		entered = enter_context(real, block->freed_at);
		gives = !captures_any(real, block, block->freed_in);
		if (gives)
			give_back(real, block, block->freed_in);
		leave_context(real, entered);
		if (gives)
			continue;
		CA_HOLD_LOCK(&lock);
		block->next = waiting;
		waiting = block;
	}
}

static CUresult
pool_take(const struct ca_real *real, CUdeviceptr *ret_address, size_t bytes, int device,
	  CUstream stream)
{
	bool captured = captures(real, stream);
	CUresult rc;

	if (device >= 0 && device < DEVICES_MAX && !atomic_exchange(&kept[device], true))
		ca_pools_keep(device);
	free_waiting(real);
	rc = captured ? take_in_capture(real, ret_address, bytes)
		      : CA_INSIDE(real->cuMemAllocAsync(ret_address, bytes, stream));
	if (rc || block_new(*ret_address, captured))
		return rc;
	if (!captured)
		(void)CA_INSIDE(real->cuMemFreeAsync(*ret_address, stream));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static void
pool_free(const struct ca_real *real, void *memory, CUstream stream)
{
	struct block *block = block_of(memory);

	if (!block || block->captured)
		return;
	(void)ca_handles_remove(&blocks, memory);
	block->freed_in = stream;
	block->freed_at = current_context(real);
	if (!captures_any(real, block, stream)) {
		give_back(real, block, stream);
	} else {
		CA_HOLD_LOCK(&lock);
		block->next = waiting;
		waiting = block;
	}
}

static void
pool_record(const void *memory, CUstream stream)
{
	const struct ca_real *real = driver();
	struct block *block = block_of(memory);
	bool captured = real && captures(real, stream);
	CUcontext context = real && !captured ? context_of(real, stream) : NULL;
	struct recorded *one;

	if (!block)
		return;
	CA_HOLD_LOCK(&lock);
	if (captured) /* its graph may use the memory at any time */
		block->captured = true;
	for (one = block->recorded; one; one = one->next)
		if (one->stream == stream && one->context == context)
			return;
	one = unused_recorded;
	if (one)
		unused_recorded = one->next;
	else
		one = ca_slab_take(sizeof(*one));
	if (one)
		*one = (struct recorded){ block->recorded, stream, context };
	else /* nobody can say when it is free of work any more */
		block->captured = true;
	if (one)
		block->recorded = one;
}

static void
pool_empty(const struct ca_real *real)
{
	CUmemoryPool pool;

	free_waiting(real);
	for (int i = 0; i < DEVICES_MAX; i++)
		if (atomic_load(&kept[i]) && !CA_INSIDE(real->cuDeviceGetDefaultMemPool(&pool, i)))
			(void)ca_pool_trim(real, pool, 0);
}

/* ---- under the preload */

/* As PyTorch's own allocator asks for memory while a stream captures. */
static CUresult
take_here(CUdeviceptr *ret_address, size_t bytes)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool relaxes = ca_capture_active() && !cuThreadExchangeStreamCaptureMode(&mode);
	CUresult rc;

	ca_framework_cache_all();
	rc = cuMemAlloc_v2(ret_address, bytes);
	if (relaxes)
		(void)cuThreadExchangeStreamCaptureMode(&mode);
	return rc;
}

/* A stream that captures takes no memory of ours: all streams count as users then. */
static void
free_here(CUdeviceptr address, CUstream stream)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool relaxes;

	if (!cuMemFreeAsync(address, stream))
		return;
	relaxes = ca_capture_active() && !cuThreadExchangeStreamCaptureMode(&mode);
	(void)cuMemFree_v2(address);
	if (relaxes)
		(void)cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- what PyTorch calls */

CA_EXPORT void *
cachealloc_torch_malloc(size_t bytes, int device, void *stream)
{
	const struct ca_real *real = driver();
	CUdeviceptr address = 0;
	int saved = errno;
	CUresult rc;
	bool entered;

	if (!bytes)
		return NULL;
	if (!real)
		return fail(bytes, device, CUDA_ERROR_NOT_SUPPORTED);
	entered = enter_device(real, device);
	rc = is_preloaded() ? take_here(&address, bytes)
			    : pool_take(real, &address, bytes, device, stream);
	leave_device(real, device, entered);
	errno = saved;
	return rc ? fail(bytes, device, rc) : (void *)(uintptr_t)address;
}

CA_EXPORT void
cachealloc_torch_free(void *memory, size_t bytes, int device, void *stream)
{
	const struct ca_real *real = memory ? driver() : NULL;
	CA_KEEP_ERRNO;
	bool entered;

	if (!real)
		return;
	entered = enter_device(real, device);
	if (is_preloaded())
		free_here((CUdeviceptr)(uintptr_t)memory, stream);
	else
		pool_free(real, memory, stream);
	leave_device(real, device, entered);
}

CA_EXPORT void
cachealloc_torch_record_stream(void *memory, void *stream)
{
	CA_KEEP_ERRNO;

	if (!is_preloaded() && driver())
		pool_record(memory, stream);
}

CA_EXPORT void
cachealloc_torch_empty_cache(void)
{
	const struct ca_real *real = driver();
	CA_KEEP_ERRNO;

	if (is_preloaded())
		(void)cachealloc_trim(0);
	else if (real)
		pool_empty(real);
}
