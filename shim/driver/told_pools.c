/* SPDX-License-Identifier: MIT */
/*
 * A segment goes back by cuMemFree, which does not wait for memory of a pool (cuda.h): all work on
 * it has finished, and the driver's pool can give it to the system at once. It is made in relaxed
 * capture mode, and by a thread that may call cuMemFree, as in driver_table.c; any context of the
 * device will do.
 */
#include "shim/driver/told_pools.h"

#include <pthread.h>
#include <stddef.h>

#include "shim/bind/scope.h"
#include "shim/driver/pool_calls.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

struct ca_told_pool *_Atomic ca_told_current_pools[CA_TOLD_DEVICES_MAX];

_Atomic bool ca_told_on;
_Atomic bool ca_told_thresholds;

struct device_pools {
	_Atomic(CUmemoryPool) default_handle;
	_Atomic unsigned changes; /* of the current pool, as far as was noticed */
	_Atomic bool known;
};
static struct device_pools devices[CA_TOLD_DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around stores of current pools */
static struct ca_heap *_Atomic heap_served;

void
ca_told_pools_start(struct ca_heap *heap)
{
	atomic_store(&heap_served, heap);
	atomic_store(&ca_told_on, true);
}

static struct device_pools *
pools_of(int device)
{
	return device >= 0 && device < CA_TOLD_DEVICES_MAX ? &devices[device] : NULL;
}

struct ca_told_pool *
ca_told_pools_find(CUmemoryPool handle)
{
	if (!atomic_load_explicit(&ca_told_on, memory_order_relaxed) || !handle)
		return NULL;
	return ca_told_pool_find(atomic_load(&heap_served), handle);
}

/* ---- pools come and go */

static void
read_reuse(const struct ca_real *real, struct ca_told_pool *pool, CUmemoryPool handle)
{
	static const CUmemPool_attribute attributes[CA_TOLD_RULES] = {
		[CA_TOLD_FOLLOWS] = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
		[CA_TOLD_OPPORTUNISTIC] = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
		[CA_TOLD_INTERNAL] = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
	};

	for (unsigned i = 0; i < CA_TOLD_RULES; i++) {
		int allows = 0;

		if (ca_pool_get(real, handle, attributes[i], &allows))
			allows = 0;
		ca_told_pool_set_reuse(pool, (enum ca_told_reuse)i, allows);
	}
}

static void
read_total(const struct ca_real *real, struct ca_told_pool *pool, CUdevice device)
{
	size_t bytes;

	if (real->cuDeviceTotalMem_v2 && !CA_INSIDE(real->cuDeviceTotalMem_v2(&bytes, device)))
		ca_told_pool_set_total(pool, bytes);
}

/* One that the program set before the pool was seen. The driver's own is 0. */
static void
read_threshold(const struct ca_real *real, struct ca_told_pool *pool, CUmemoryPool handle)
{
	cuuint64_t bytes = 0;

	if (!ca_pool_get(real, handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes) && bytes)
		ca_told_pools_set_threshold(pool, bytes);
}

static struct ca_told_pool *
open_pool(const struct ca_real *real, CUmemoryPool handle, CUdevice device)
{
	struct ca_told_pool *pool =
		ca_told_pool_open(atomic_load(&heap_served), handle, (unsigned)device);

	if (pool) {
		read_total(real, pool, device);
		read_reuse(real, pool, handle);
		read_threshold(real, pool, handle);
	}
	return pool;
}

static bool
has_all(const struct ca_real *real)
{
	return real && real->cuDeviceGetDefaultMemPool && real->cuDeviceGetMemPool &&
	       real->cuMemPoolGetAttribute && real->cuMemPoolTrimTo &&
	       real->cuMemAllocFromPoolAsync && real->cuMemFreeAsync && real->cuMemFree_v2 &&
	       real->cuStreamIsCapturing;
}

/* ---- the current pool of a device */

/* False: a change was noticed since `changes` were. */
static bool
store_current(CUdevice device, struct ca_told_pool *pool, unsigned changes)
{
	CA_HOLD_LOCK(&lock);
	if (atomic_load(&devices[device].changes) != changes)
		return false;
	if (pool)
		ca_told_pool_note_current(pool);
	atomic_store(&ca_told_current_pools[device], pool);
	return true;
}

/* NULL: the driver serves, or does not say. */
static struct ca_told_pool *
find_current(const struct ca_real *real, CUdevice device)
{
	CUmemoryPool handle;

	return ca_pool_current(real, device, &handle) ? NULL : ca_told_pools_find(handle);
}

/*
 * Another thread may change the pool after the driver's answer. That thread counts its change
 * behind the driver's call, and asks then, too: an answer from before it is not stored any more,
 * and the last one that is stored was given after all changes.
 */
void
ca_told_pools_note_current(const struct ca_real *real, CUdevice device)
{
	struct device_pools *pools = pools_of(device);
	unsigned changes;
	CA_KEEP_ERRNO;

	if (!atomic_load(&ca_told_on) || !pools || !has_all(real))
		return;
	changes = atomic_fetch_add(&pools->changes, 1) + 1;
	while (!store_current(device, find_current(real, device), changes))
		changes = atomic_load(&pools->changes);
}

void
ca_told_pools_note_device(CUdevice device)
{
	struct device_pools *pools = pools_of(device);
	const struct ca_real *real = ca_real();
	CUmemoryPool handle;
	CA_KEEP_ERRNO;

	if (!atomic_load(&ca_told_on) || !pools || !has_all(real) || atomic_load(&pools->known) ||
	    CA_INSIDE(real->cuDeviceGetDefaultMemPool(&handle, device)) ||
	    !open_pool(real, handle, device))
		return;
	atomic_store(&pools->default_handle, handle);
	if (!atomic_exchange(&pools->known, true))
		ca_told_pools_note_current(real, device);
}

struct ca_told_pool *
ca_told_pools_find_early(const struct ca_real *real, CUmemoryPool handle)
{
	struct ca_told_pool *pool = ca_told_pools_find(handle);
	CUmemoryPool one;
	CA_KEEP_ERRNO;

	if (pool || !atomic_load(&ca_told_on) || !has_all(real))
		return pool;
	for (int device = 0; device < CA_TOLD_DEVICES_MAX; device++) {
		if (CA_INSIDE(real->cuDeviceGetDefaultMemPool(&one, device)))
			break;
		if (one == handle)
			ca_told_pools_note_device(device);
	}
	return ca_told_pools_find(handle);
}

/* Of pinned type, in device memory, exported to nobody, and without special uses. */
static bool
is_ours(const CUmemPoolProps *props)
{
	return props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       props->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
	       props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !props->usage &&
	       !props->gpuDirectRDMACapable;
}

void
ca_told_pools_created(const struct ca_real *real, CUmemoryPool handle, const CUmemPoolProps *props)
{
	CA_KEEP_ERRNO;

	struct ca_told_pool *pool = has_all(real) && is_ours(props)
					    ? open_pool(real, handle, props->location.id)
					    : NULL;

	if (pool && props->maxSize)
		ca_told_pool_set_limited(pool);
}

static bool
is_default(CUmemoryPool handle)
{
	for (unsigned i = 0; i < CA_TOLD_DEVICES_MAX; i++)
		if (atomic_load(&devices[i].default_handle) == handle)
			return true;
	return false;
}

struct ca_told_pool *
ca_told_pools_destroying(const struct ca_real *real, CUmemoryPool handle)
{
	struct ca_told_pool *pool = is_default(handle) ? NULL : ca_told_pools_find(handle);

	if (pool) { /* its handle may come back before the driver's call does */
		ca_told_pool_close(pool);
		ca_told_pool_await(pool);
	}
	return pool;
}

/* A device whose current pool it was has its default pool again (cuda.h, cuMemPoolDestroy). */
void
ca_told_pools_destroyed(const struct ca_real *real, struct ca_told_pool *pool, CUmemoryPool handle,
			CUresult rc)
{
	CA_KEEP_ERRNO;

	if (rc && pool)
		ca_told_pool_open_again(pool, handle);
	for (int i = 0; i < CA_TOLD_DEVICES_MAX; i++)
		if (atomic_load(&devices[i].changes)) /* it was asked for */
			ca_told_pools_note_current(real, i);
	if (pool && !rc)
		ca_told_pool_retire(pool);
	ca_told_pools_tidy();
	if (ca_told_has_closed(atomic_load(&heap_served)))
		atomic_store(&ca_told_thresholds, true);
}

void
ca_told_pools_reset(const struct ca_real *real, CUdevice device)
{
	struct ca_heap *heap = atomic_load(&heap_served);
	struct ca_told_pool *pool = NULL, *fresh;
	CA_KEEP_ERRNO;

	while (heap && (pool = ca_told_pool_next(heap, pool, (unsigned)device))) {
		CUmemoryPool handle = ca_told_pool_handle(pool);

		if (!handle)
			continue;
		ca_told_pool_close(pool);
		fresh = open_pool(real, handle, device);
		if (fresh)
			ca_told_pool_set_threshold(fresh, ca_told_pool_threshold(pool));
	}
	ca_told_pools_note_current(real, device);
	if (heap)
		ca_told_pools_tidy();
}

/* ---- segments go back */

/* The charge is dropped first: the address may come back to another thread. */
static CUresult
give_back(const struct ca_real *real, uint64_t address)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct ca_heap *heap = atomic_load(&heap_served);
	struct ca_space *space;
	bool exchanged;
	CUresult rc;
	uint64_t charged = ca_charge_drop(heap, CA_CHARGE_ADDRESS, address, &space);

	exchanged = ca_capture_exchange_mode(real, &mode);
	rc = CA_INSIDE(real->cuMemFree_v2(address));
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	if (rc && charged)
		ca_charge_restore(space, CA_CHARGE_ADDRESS, address, charged);
	return rc;
}

static bool
is_of(const struct ca_context *context, unsigned device)
{
	return (unsigned)context->device == device &&
	       atomic_load(&context->kind) != CA_CONTEXT_GREEN;
}

/* The current context's work has not failed: a harmless question is answered. */
static bool
context_answers(const struct ca_real *real)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = ca_capture_exchange_mode(real, &mode);
	size_t free, total;
	bool answers = !real->cuMemGetInfo_v2 || !CA_INSIDE(real->cuMemGetInfo_v2(&free, &total));

	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return answers;
}

/* A context of which work has failed refuses it. It is not tried twice: a free that answers an
 * earlier error may have been done, and the address be another's. */
static CUresult
give_back_in_any(const struct ca_real *real, unsigned device, uint64_t address)
{
	struct ca_context *context = ca_context_first();
	CUresult rc = CUDA_SUCCESS;

	for (; context; context = ca_context_next(context)) {
		bool pushed = false, answers;

		if (!is_of(context, device) || !ca_context_enter(context))
			continue;
		if (ca_context_push(real, context, &pushed))
			pushed = false;
		answers = context_answers(real);
		if (answers)
			rc = give_back(real, address);
		ca_context_pop(real, pushed);
		ca_context_leave(context);
		if (answers)
			return rc;
	}
	return give_back(real, address);
}

/* False: the driver did not take it. */
static bool
give_back_in(const struct ca_real *real, const struct ca_told_idle *idle)
{
	CUresult rc = give_back_in_any(real, ca_told_pool_device(idle->pool), idle->address);

	if (rc)
		ca_told_put_back(idle);
	return !rc;
}

/* The same; nothing else has to be done for others to have the memory. */
static bool
give_back_at_once(const struct ca_real *real, const struct ca_told_idle *idle)
{
	bool given = give_back_in(real, idle);

	ca_told_hand_empty(idle->pool, 1);
	return given;
}

/* Afterwards nobody may know whose the addresses are. */
void
ca_told_pools_resetting(const struct ca_real *real, CUdevice device)
{
	struct ca_heap *heap = atomic_load(&heap_served);
	struct ca_told_idle idle;
	CA_KEEP_ERRNO;

	if (!heap || !has_all(real) || ca_capture_disallows())
		return;
	(void)ca_told_poll_all(heap, (unsigned)device);
	while (ca_told_take_idle(heap, NULL, (unsigned)device, &idle) &&
	       give_back_at_once(real, &idle))
		;
}

/* Another thread may destroy the pool meanwhile: its handle is used inside ca_told_pool_enter. */
static uint64_t
reserved_of(const struct ca_real *real, struct ca_told_pool *pool)
{
	CUmemoryPool handle = ca_told_pool_enter(pool);
	cuuint64_t bytes = 0;

	if (!handle)
		return 0;
	if (ca_pool_get(real, handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes))
		bytes = 0;
	ca_told_pool_leave(pool);
	return bytes;
}

static bool
trim_to(const struct ca_real *real, struct ca_told_pool *pool, uint64_t keep_bytes)
{
	CUmemoryPool handle = ca_told_pool_enter(pool);
	CUresult rc;

	if (!handle)
		return false;
	rc = ca_pool_trim(real, handle, keep_bytes);
	ca_told_pool_leave(pool);
	return !rc;
}

/* `*segments` more are in the caller's hand until the pool was trimmed. */
static uint64_t
shrink(const struct ca_real *real, struct ca_told_pool *pool, uint64_t keep_bytes,
       unsigned *segments)
{
	struct ca_heap *heap = atomic_load(&heap_served);
	unsigned device = ca_told_pool_device(pool);
	struct ca_told_idle idle;
	uint64_t given = 0, reserved;

	if (!ca_told_pool_handle(pool) || ca_capture_disallows())
		return 0;
	reserved = reserved_of(real, pool);
	(void)ca_told_poll_all(heap, device);
	while (reserved > keep_bytes + given && ca_told_take_idle(heap, pool, device, &idle)) {
		++*segments;
		if (!give_back_in(real, &idle))
			break;
		given += idle.bytes;
	}
	return given;
}

uint64_t
ca_told_pools_shrink(const struct ca_real *real, struct ca_told_pool *pool, uint64_t keep_bytes)
{
	unsigned segments = 0;
	uint64_t given;
	CA_KEEP_ERRNO;

	given = shrink(real, pool, keep_bytes, &segments);
	ca_told_hand_empty(pool, segments);
	return given;
}

void
ca_told_pools_make_budget(const struct ca_real *real, struct ca_told_pool *pool,
			  uint64_t more_bytes)
{
	struct ca_told_idle idle;
	uint64_t given = 0, reserved;
	unsigned segments = 0;

	if (ca_capture_is_near())
		return;
	while (ca_told_take_surplus(pool, more_bytes, &idle)) {
		segments++;
		if (!give_back_in(real, &idle))
			break;
		given += idle.bytes;
	}
	if (given) {
		reserved = reserved_of(real, pool);
		(void)trim_to(real, pool, reserved > given ? reserved - given : 0);
	}
	ca_told_hand_empty(pool, segments);
}

void
ca_told_pools_tidy(void)
{
	struct ca_heap *heap = atomic_load(&heap_served);
	const struct ca_real *real = ca_real();
	struct ca_told_idle idle;
	CA_KEEP_ERRNO;

	while (real && heap && !ca_capture_disallows() && ca_told_take_closed(heap, &idle) &&
	       give_back_at_once(real, &idle))
		;
}

/* Returns what the driver's reserved bytes fell by. */
static uint64_t
trim(const struct ca_real *real, struct ca_told_pool *pool, uint64_t keep_bytes)
{
	uint64_t before = reserved_of(real, pool), after = before;
	unsigned segments = 0;

	if (before <= keep_bytes)
		return 0;
	(void)shrink(real, pool, keep_bytes, &segments);
	if (trim_to(real, pool, keep_bytes))
		after = reserved_of(real, pool);
	ca_told_hand_empty(pool, segments);
	return before > after ? before - after : 0;
}

uint64_t
ca_told_pools_trim(const struct ca_real *real, unsigned device, uint64_t keep_bytes)
{
	struct ca_told_pool *pool = NULL;
	uint64_t given = 0;

	if (!atomic_load(&ca_told_on))
		return 0;
	ca_told_pools_tidy();
	while ((pool = ca_told_pool_next(atomic_load(&heap_served), pool, device)))
		given += trim(real, pool, keep_bytes);
	return given;
}

void
ca_told_pools_note_foreign(const struct ca_real *real, struct ca_told_pool *pool)
{
	CUmemoryPool handle;
	cuuint64_t bytes = 0;
	CA_KEEP_ERRNO;

	handle = ca_told_pool_enter(pool);
	if (!handle)
		return;
	if (!ca_pool_get(real, handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes))
		ca_told_pool_note_driver(pool, bytes); /* while the record is this pool's */
	ca_told_pool_leave(pool);
}

void
ca_told_pools_foreign_freed(const struct ca_real *real)
{
	struct ca_heap *heap = atomic_load(&heap_served);

	for (unsigned device = 0; heap && ca_told_has_foreign(heap) && device < CA_TOLD_DEVICES_MAX;
	     device++) {
		struct ca_told_pool *pool = NULL;

		while ((pool = ca_told_pool_next(heap, pool, device)))
			ca_told_pools_note_foreign(real, pool);
	}
}

void
ca_told_pools_set_threshold(struct ca_told_pool *pool, uint64_t bytes)
{
	ca_told_pool_set_threshold(pool, bytes);
	if (bytes != UINT64_MAX)
		atomic_store(&ca_told_thresholds, true);
}

/* The driver has just done so with what its own pool keeps. */
void
ca_told_pools_synchronized(const struct ca_real *real)
{
	struct ca_heap *heap = atomic_load(&heap_served);
	CA_KEEP_ERRNO;

	ca_told_pools_tidy();
	for (unsigned device = 0; heap && device < CA_TOLD_DEVICES_MAX; device++) {
		struct ca_told_pool *pool = NULL;

		while ((pool = ca_told_pool_next(heap, pool, device))) {
			uint64_t keep_bytes = ca_told_pool_threshold(pool);

			if (keep_bytes == UINT64_MAX || !ca_told_pool_handle(pool))
				continue;
			ca_told_note_trim(pool, keep_bytes);
			if (ca_told_pools_shrink(real, pool, keep_bytes))
				(void)trim_to(real, pool, keep_bytes);
		}
	}
}

void
ca_told_pools_after_fork_child(void)
{
	atomic_store(&ca_told_thresholds, false);
	atomic_store(&ca_told_on, false);
	atomic_store(&heap_served, NULL);
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (unsigned i = 0; i < CA_TOLD_DEVICES_MAX; i++) {
		atomic_store(&devices[i].known, false);
		atomic_store(&devices[i].changes, 0);
		atomic_store(&devices[i].default_handle, NULL);
		atomic_store(&ca_told_current_pools[i], NULL);
	}
}
