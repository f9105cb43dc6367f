/* SPDX-License-Identifier: MIT */
/*
 * A thread's end is told by a destructor of the C library (what C++ uses for thread_local), since
 * it needs no library but libc of any age and no constructor. It runs before the destructors of
 * pthread keys: a per-thread stream that one of those uses is entered anew and then stays open,
 * which costs marks, but is safe, as a thread's number never comes back.
 */
#include "shim/state/finished_only.h"
#include "shim/bind/scope.h"
#include "shim/track/streams.h"

#include <stddef.h>

#include "allocator/order/order_told.h"
#include "allocator/util/yield.h"
#include "config/log.h"
#include "config/mutant.h"
#include "shim/bind/libcuda.h"
#include "shim/state/process.h"
#include "shim/track/assumptions.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"
#include "shim/track/stream_table.h"

enum { THREAD_SHIFT = 2, STREAM_NON_BLOCKING = 1 /* CU_STREAM_NON_BLOCKING */ };

static _Atomic bool green; /* a green context was ever made */

/* glibc 2.18; registers `function` to be called with `object` when the calling thread ends. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *object,
				    void *library); // NOLINT(bugprone-reserved-identifier)
extern void *__dso_handle __attribute__((visibility("hidden"))); // NOLINT: the toolchain's name

void *
ca_stream_encode(CUstream handle, uint64_t thread)
{
	if (handle != CU_STREAM_PER_THREAD)
		return handle;
	return (void *)(uintptr_t)(thread << THREAD_SHIFT | // NOLINT(performance-no-int-to-ptr)
				   (uintptr_t)handle);
}

CUstream
ca_stream_decode(void *encoded, uint64_t *ret_thread)
{
	uintptr_t value = (uintptr_t)encoded;

	*ret_thread = 0;
	if ((value & ((1u << THREAD_SHIFT) - 1)) != (uintptr_t)CU_STREAM_PER_THREAD)
		return encoded;
	*ret_thread = value >> THREAD_SHIFT;
	return CU_STREAM_PER_THREAD;
}

/* A created stream's handle must not look like one of ours. */
static bool
can_encode(CUstream handle)
{
	return ca_stream_is_default(handle) || !((uintptr_t)handle & ((1u << THREAD_SHIFT) - 1));
}

/* From now on no slot of any thread's cache is valid. After the handle left the table. */
static void
move_generation(void)
{
	atomic_fetch_add(&ca_capture_word, CA_STREAM_GENERATION);
}

/* ---- the end of a thread */

bool
ca_streams_at_thread_end(void (*function)(void *ignored))
{
	return !__cxa_thread_atexit_impl(function, NULL, &__dso_handle);
}

static void
thread_ends(void *ignored)
{
	struct ca_stream *stream;
	CA_KEEP_ERRNO;

	while (ca_stream_table_take_of_thread(ca_order_thread(), &stream)) {
		move_generation();
		if (!stream)
			continue;
		ca_told_mark_own(stream);
		ca_stream_close(stream, true);
	}
}

static void
track_thread(void)
{
	static __thread bool watched __attribute__((tls_model("initial-exec")));

	if (!watched)
		watched = ca_streams_at_thread_end(thread_ends);
}

/* ---- entering */

/* NULL: not tracked. */
static struct ca_stream *
open_stream(struct ca_process *process, struct ca_context *context,
	    const struct ca_stream_name *name, enum ca_stream_kind kind, bool known)
{
	struct ca_stream *stream;
	struct ca_space *space;

	if (atomic_load(&context->kind) == CA_CONTEXT_GREEN)
		return NULL;
	space = ca_context_open_space(process, context);
	if (!space) { /* one that is made later would not know of the stream */
		ca_fallback(process, NULL, CA_REASON_STREAMS);
		return NULL;
	}
	if (!can_encode(name->handle)) {
		ca_fallback(process, space, CA_REASON_STREAMS);
		return NULL;
	}
	if (kind == CA_STREAM_PER_THREAD)
		track_thread();
	ca_assumptions_stream_opening(ca_real(), context, kind);
	if (ca_stream_open(space, kind, ca_stream_encode(name->handle, name->thread), known,
			   &stream))
		return NULL;
	ca_assumptions_stream_opened(ca_real(), context);
	return stream;
}

/* Enters a claimed stream of `context`. */
static struct ca_stream *
enter(struct ca_process *process, struct ca_context *context, const struct ca_stream_name *name,
      uint64_t claim, enum ca_stream_kind kind, bool known)
{
	struct ca_stream *stream = open_stream(process, context, name, kind, known);

	if (!ca_stream_table_enter(name, claim, context, stream) && stream) {
		ca_stream_close(stream, true);
		stream = NULL;
	}
	if (atomic_load(&context->dead)) /* its burial may have come too early to see the entry */
		ca_streams_context_died(context);
	return stream;
}

static struct ca_context *
register_pushed(const struct ca_real *real, CUcontext handle)
{
	struct ca_context *context = NULL;
	CUcontext popped;

	if (!real->cuCtxPushCurrent_v2 || !real->cuCtxPopCurrent_v2 ||
	    CA_INSIDE(real->cuCtxPushCurrent_v2(handle)))
		return NULL;
	context = ca_context_register(real, handle, -1, CA_CONTEXT_CREATED);
	(void)CA_INSIDE(real->cuCtxPopCurrent_v2(&popped));
	return context;
}

/* The record of a living context; NULL: there is none, or it may be a green one. */
static struct ca_context *
context_of(struct ca_process *process, const struct ca_real *real, CUcontext handle)
{
	struct ca_context *context = ca_context_find(handle);

	if (context)
		return context;
	if (atomic_load(&green)) { /* its stream's answer to cuStreamGetCtx, never to be pushed */
		ca_fallback(process, NULL, CA_REASON_GREEN);
		return NULL;
	}
	if (handle == ca_context_current(real))
		return ca_context_register(real, handle, -1, CA_CONTEXT_CREATED);
	return register_pushed(real, handle);
}

/* Enters a created stream of whose birth we know nothing. False: the driver does not know it. */
static bool
enter_unknown(struct ca_process *process, const struct ca_real *real,
	      const struct ca_stream_name *name, uint64_t claim, struct ca_stream **ret_stream)
{
	enum ca_stream_kind kind = CA_STREAM_BLOCKING; /* where the driver does not tell */
	struct ca_context *context;
	CUcontext handle = NULL;
	unsigned flags = 0;

	if (!real->cuStreamGetCtx)
		handle = ca_context_current(real);
	else if (CA_INSIDE(real->cuStreamGetCtx(name->handle, &handle)))
		handle = NULL;
	context = handle ? context_of(process, real, handle) : NULL;
	if (!context) {
		ca_stream_table_abandon(name, claim);
		return false;
	}
	if (real->cuStreamGetFlags &&
	    CA_INSIDE(real->cuStreamGetFlags(name->handle, &flags)) == CUDA_SUCCESS &&
	    flags & STREAM_NON_BLOCKING)
		kind = CA_STREAM_NONBLOCKING;
	*ret_stream = enter(process, context, name, claim, kind, false);
	return true;
}

static bool
find_or_enter(struct ca_process *process, const struct ca_real *real,
	      const struct ca_stream_name *name, struct ca_stream **ret_stream)
{
	uint64_t claim;

	for (;;) {
		switch (ca_stream_table_claim(name, ret_stream, &claim)) {
		case CA_STREAM_FOUND:
			return true;
		case CA_STREAM_NO_MEMORY:
			ca_fallback(process, NULL, CA_REASON_STREAMS);
			return false;
		case CA_STREAM_BUSY:
			ca_yield();
			continue;
		case CA_STREAM_CLAIMED:
			break;
		}
		break;
	}
	if (!name->context)
		return enter_unknown(process, real, name, claim, ret_stream);
	*ret_stream = enter(process, name->context, name, claim,
			    name->thread ? CA_STREAM_PER_THREAD : CA_STREAM_LEGACY, true);
	return true;
}

bool
ca_streams_find(CUstream handle, CUcontext current, bool submits, struct ca_stream **ret_stream)
{
	struct ca_stream_name name = { .handle = handle };
	struct ca_process *process = ca_process_made();
	const struct ca_real *real = ca_real();
	CA_KEEP_ERRNO;

	if (!process || !process->caches || !real)
		return false;
	if (ca_stream_is_default(handle)) {
		name.context = current ? context_of(process, real, current) : NULL;
		if (!name.context || atomic_load(&name.context->dead))
			return false;
		if (handle == CU_STREAM_PER_THREAD)
			name.thread = ca_order_thread();
		if (!submits) {
			*ret_stream = ca_stream_table_find(&name);
			return *ret_stream != NULL;
		}
	}
	return find_or_enter(process, real, &name, ret_stream);
}

/* ---- birth and death */

/* Forgets what `handle` meant. */
static void
drop(CUstream handle, bool gone)
{
	struct ca_stream *stream;

	if (!ca_stream_table_take(handle, &stream))
		return;
	move_generation();
	if (stream)
		ca_stream_close(stream, gone);
}

void
ca_streams_created(CUstream handle, CUcontext context_handle, unsigned flags)
{
	struct ca_stream_name name = { .handle = handle };
	struct ca_process *process = ca_process_made();
	const struct ca_real *real = ca_real();
	struct ca_context *context;
	struct ca_stream *ignored;
	CA_KEEP_ERRNO;
	uint64_t claim;

	if (!process || !process->caches || !real)
		return;
	if (!CA_MUTANT(STALE_HANDLE))
		drop(handle, true); /* it died with its context, or unseen */
	context = context_handle ? context_of(process, real, context_handle) : NULL;
	if (context && ca_stream_table_claim(&name, &ignored, &claim) == CA_STREAM_CLAIMED)
		(void)enter(process, context, &name, claim,
			    flags & STREAM_NON_BLOCKING ? CA_STREAM_NONBLOCKING
							: CA_STREAM_BLOCKING,
			    true);
}

void
ca_streams_created_untracked(CUstream handle)
{
	struct ca_stream_name name = { .handle = handle };
	struct ca_process *process = ca_process_made();
	struct ca_stream *ignored;
	CA_KEEP_ERRNO;
	uint64_t claim;

	if (!process || !process->caches)
		return;
	drop(handle, true);
	if (ca_stream_table_claim(&name, &ignored, &claim) == CA_STREAM_CLAIMED)
		(void)ca_stream_table_enter(&name, claim, NULL, NULL);
}

void
ca_streams_closing(CUstream handle)
{
	CA_KEEP_ERRNO;

	if (ca_stream_is_default(handle) || CA_MUTANT(STALE_HANDLE))
		return;
	drop(handle, false);
	ca_stream_table_await();
}

void
ca_streams_context_died(const struct ca_context *context)
{
	struct ca_stream *stream;

	while (ca_stream_table_take_of_context(context, &stream))
		if (stream)
			ca_stream_close(stream, true);
	move_generation();
}

void
ca_streams_green(CUdevice device)
{
	struct ca_process *process = ca_process_made();
	struct ca_space *space = NULL;
	struct ca_context *context;
	CA_KEEP_ERRNO;

	if (!process || !process->caches || CA_MUTANT(GREEN_UNSEEN))
		return;
	atomic_store(&green, true);
	for (context = ca_context_first(); context && !space; context = ca_context_next(context))
		if (atomic_load(&context->kind) == CA_CONTEXT_PRIMARY && context->device == device)
			space = ca_context_open_space(process, context);
	ca_fallback(process, space, CA_REASON_GREEN);
}

void
ca_streams_after_fork_child(void)
{
	ca_stream_table_after_fork_child();
	atomic_store(&green, false);
	move_generation();
}
