/* SPDX-License-Identifier: MIT */
/*
 * The list of the living changes under one lock and is walked without it: a new record is complete
 * before it is linked, and an unlinked one keeps its `next`, so a walker that stands on it still
 * reaches the end.
 *
 * A record that is closed for a destruction which then fails is reopened; one whose context died is
 * unlinked before anybody can learn that the handle is free for reuse, because the driver call that
 * frees the handle happens after the close, and registering a handle whose record is closed waits
 * for burial or reopening. So burial unlinks last: the captures that it ends by handle are the old
 * bearer's.
 */
#include "shim/track/contexts.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "allocator/util/yield.h"
#include "shim/bind/scope.h"
#include "shim/state/process.h"
#include "shim/state/record_arena.h"
#include "shim/track/captures.h"

#define FOUR_LOCKS                                                                                 \
	PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,           \
		PTHREAD_MUTEX_INITIALIZER
#define PRIMARY_LOCKS_INITIALIZER FOUR_LOCKS, FOUR_LOCKS, FOUR_LOCKS, FOUR_LOCKS
enum { PRIMARY_LOCKS = 16 };

static struct ca_context *_Atomic first;
static _Atomic bool was_any;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t primary_locks[PRIMARY_LOCKS] = { PRIMARY_LOCKS_INITIALIZER };
_Atomic unsigned ca_context_spaces, ca_context_closings;

void
ca_context_primary_lock(CUdevice device)
{
	pthread_mutex_lock(&primary_locks[(unsigned)device % PRIMARY_LOCKS]);
}

void
ca_context_primary_unlock(CUdevice device)
{
	pthread_mutex_unlock(&primary_locks[(unsigned)device % PRIMARY_LOCKS]);
}

struct ca_context *
ca_context_first(void)
{
	return atomic_load_explicit(&first, memory_order_acquire);
}

struct ca_context *
ca_context_next(struct ca_context *context)
{
	return atomic_load_explicit(&context->next, memory_order_acquire);
}

struct ca_context *
ca_context_find(CUcontext handle)
{
	struct ca_context *context = ca_context_first();

	while (context && context->handle != handle)
		context = ca_context_next(context);
	return context;
}

/*
 * A context seen for the first time when it is used: is it its device's primary one? Asked only
 * when that is active, so that asking does not create it.
 */
static bool
is_primary(const struct ca_real *real, CUcontext handle, CUdevice device)
{
	CUcontext primary = NULL;
	unsigned int flags;
	int active = 0;

	if (!real->cuDevicePrimaryCtxGetState || !real->cuDevicePrimaryCtxRetain ||
	    !real->cuDevicePrimaryCtxRelease_v2)
		return false;
	ca_context_primary_lock(device);
	if (!CA_INSIDE(real->cuDevicePrimaryCtxGetState(device, &flags, &active)) && active &&
	    !CA_INSIDE(real->cuDevicePrimaryCtxRetain(&primary, device)))
		(void)CA_INSIDE(real->cuDevicePrimaryCtxRelease_v2(device));
	ca_context_primary_unlock(device);
	return primary == handle;
}

static struct ca_context *
make_record(const struct ca_real *real, CUcontext handle, CUdevice device,
	    enum ca_context_kind kind)
{
	struct ca_context *context = NULL;
	unsigned long long id = 0;

	if (device < 0) {
		if (!real->cuCtxGetDevice || CA_INSIDE(real->cuCtxGetDevice(&device)))
			return NULL;
		if (is_primary(real, handle, device))
			kind = CA_CONTEXT_PRIMARY;
	}
	if (real->cuCtxGetId && CA_INSIDE(real->cuCtxGetId(handle, &id)))
		id = 0;
	context = ca_slab_take(sizeof(*context));
	if (!context)
		return NULL;
	context->handle = handle;
	context->id = id;
	context->device = device;
	atomic_store(&context->kind, kind);
	context->usage = 1;
	return context;
}

struct ca_context *
ca_context_register(const struct ca_real *real, CUcontext handle, CUdevice device,
		    enum ca_context_kind kind)
{
	struct ca_context *context;

	while ((context = ca_context_find(handle)) && atomic_load(&context->closing))
		ca_yield(); /* its old bearer is between destruction and burial */
	if (context) {
		if (kind != CA_CONTEXT_CREATED && atomic_exchange(&context->kind, kind) != kind)
			atomic_fetch_add(&ca_capture_word, CA_STREAM_GENERATION);
		return context;
	}
	struct ca_context *fresh = make_record(real, handle, device, kind);

	if (!fresh)
		return NULL;
	CA_HOLD_LOCK(&lock);
	context = ca_context_find(handle);
	if (context)
		return context;
	atomic_store_explicit(&fresh->next, ca_context_first(), memory_order_relaxed);
	atomic_store_explicit(&first, fresh, memory_order_release);
	atomic_store(&was_any, true);
	/* a default stream is now looked for by context (shim/hooks/submission.h) */
	atomic_fetch_add(&ca_capture_word, CA_STREAM_GENERATION);
	return fresh;
}

void
ca_context_unlink(struct ca_context *gone)
{
	CA_HOLD_LOCK(&lock);
	struct ca_context *_Atomic *link = &first;
	struct ca_context *context;

	while ((context = atomic_load_explicit(link, memory_order_relaxed)) && context != gone)
		link = &context->next;
	if (context)
		atomic_store_explicit(link, atomic_load(&gone->next), memory_order_release);
}

bool
ca_context_is_only(void)
{
	struct ca_context *context = ca_context_first();

	return context && !ca_context_next(context);
}

void
ca_context_kill_space(struct ca_context *context, struct ca_space *space)
{
	ca_space_kill(space);
	if (atomic_exchange(&context->counts_space, false))
		atomic_fetch_sub(&ca_context_spaces, 1);
}

/* Two threads may both make a space: the loser's is killed, empty. */
struct ca_space *
ca_context_make_space(struct ca_process *process, struct ca_context *context)
{
	struct ca_space *space = NULL, *fresh;

	process->note_device(context->device);
	if (ca_space_create(process->heap, context, (unsigned)context->device, &fresh))
		return NULL;
	/* whoever sees the space sees that there is one more */
	atomic_fetch_add(&ca_context_spaces, 1);
	if (!atomic_compare_exchange_strong(&context->space, &space, fresh)) {
		atomic_fetch_sub(&ca_context_spaces, 1);
		ca_space_kill(fresh);
		return space;
	}
	atomic_store(&context->counts_space, true);
	if (atomic_load(&context->dead)) /* its burial may have come too early to see the space */
		ca_context_kill_space(context, fresh);
	return fresh;
}

CUcontext
ca_context_current(const struct ca_real *real)
{
	CUcontext current = NULL;

	if (!real->cuCtxGetCurrent || CA_INSIDE(real->cuCtxGetCurrent(&current)))
		return NULL;
	return current;
}

struct ca_space *
ca_context_space_on(CUdevice device)
{
	struct ca_context *context;
	struct ca_space *space;

	for (context = ca_context_first(); context; context = ca_context_next(context)) {
		space = atomic_load_explicit(&context->space, memory_order_acquire);
		if (space && context->device == device)
			return space;
	}
	return NULL;
}

static bool
has_space(const struct ca_context *context)
{
	return atomic_load(&context->kind) != CA_CONTEXT_GREEN && !atomic_load(&context->dead);
}

struct ca_space *
ca_context_space_current(const struct ca_real *real, CUcontext *ret_current)
{
	struct ca_process *process = ca_process_made();
	CUcontext handle = process ? ca_context_current(real) : NULL;

	if (!handle)
		return NULL;
	struct ca_context *context = ca_context_find(handle);

	if (!context)
		context = ca_context_register(real, handle, -1, CA_CONTEXT_CREATED);
	if (!context || !has_space(context))
		return NULL;
	*ret_current = handle;
	/* closed or not: one usage fewer is no end yet, and its death kills the space */
	return ca_context_open_space(process, context);
}

struct ca_space *
ca_context_known_space(CUcontext handle)
{
	struct ca_context *context = handle ? ca_context_find(handle) : NULL;

	return context && has_space(context)
		       ? atomic_load_explicit(&context->space, memory_order_acquire)
		       : NULL;
}

struct ca_space *
ca_context_space(const struct ca_real *real)
{
	CUcontext current;

	return ca_context_space_current(real, &current);
}

bool
ca_context_enter(struct ca_context *context)
{
	atomic_fetch_add(&context->users, 1);
	if (!atomic_load(&context->closing))
		return true;
	atomic_fetch_sub(&context->users, 1);
	return false;
}

void
ca_context_leave(struct ca_context *context)
{
	atomic_fetch_sub(&context->users, 1);
}

CUresult
ca_context_push(const struct ca_real *real, struct ca_context *context, bool *ret_pushed)
{
	CUresult rc;

	*ret_pushed = false;
	if (!real->cuCtxGetCurrent || !real->cuCtxPushCurrent_v2 || !real->cuCtxPopCurrent_v2)
		return CUDA_ERROR_NOT_INITIALIZED;
	/* where the driver does not tell, a push is right too */
	if (ca_context_current(real) == context->handle)
		return CUDA_SUCCESS;
	rc = CA_INSIDE(real->cuCtxPushCurrent_v2(context->handle));
	*ret_pushed = !rc;
	return rc;
}

void
ca_context_pop(const struct ca_real *real, bool pushed)
{
	CUcontext popped;

	if (pushed)
		(void)CA_INSIDE(real->cuCtxPopCurrent_v2(&popped));
}

CUresult
ca_context_own_stream(const struct ca_real *real, CUstream _Atomic *stream, unsigned flags)
{
	CUstream made, none = NULL;
	CUresult rc;

	if (atomic_load(stream))
		return CUDA_SUCCESS;
	if (!real->cuStreamCreate || !real->cuStreamDestroy_v2)
		return CUDA_ERROR_NOT_SUPPORTED;
	rc = CA_INSIDE(real->cuStreamCreate(&made, flags));
	if (!rc && !atomic_compare_exchange_strong(stream, &none, made))
		(void)CA_INSIDE(real->cuStreamDestroy_v2(made));
	return rc;
}

void
ca_context_close(struct ca_context *context)
{
	atomic_fetch_add(&ca_context_closings, 1);
	atomic_fetch_add(&context->closing, 1);
	while (atomic_load(&context->users))
		ca_yield();
}

void
ca_context_open_again(struct ca_context *context)
{
	atomic_fetch_sub(&context->closing, 1);
	atomic_fetch_sub(&ca_context_closings, 1);
}

int
ca_context_lookup(struct ca_heap *heap, uint64_t address, struct ca_block_info *ret_info)
{
	int rc = ca_lookup(heap, address, ret_info);

	while (!rc && ca_context_any_closed() &&
	       atomic_load(&((struct ca_context *)ret_info->context)->closing)) {
		ca_yield();
		rc = ca_lookup(heap, address, ret_info);
	}
	return rc;
}

bool
ca_context_after_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (unsigned i = 0; i < PRIMARY_LOCKS; i++)
		primary_locks[i] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	atomic_store(&ca_context_closings, 0);
	atomic_store(&ca_context_spaces, 0);
	atomic_store(&first, NULL);
	return atomic_load(&was_any);
}
