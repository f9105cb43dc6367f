/* SPDX-License-Identifier: MIT */
/*
 * Marks: one event a living context, recorded by cuCtxRecordEvent, which captures all work of the
 * context whatever stream it went to. An event belongs to one context for ever, so each context
 * keeps a list of spare parts; a part goes back there when its mark is dropped, and becomes an
 * empty record when the context dies.
 *
 * Recording and querying happen inside the capture gate. Waiting may block on the device, so it
 * stays outside (a begin-capture must not wait for the device) and runs in relaxed capture mode
 * instead, in which the driver does not prohibit it.
 *
 * A context that is being destroyed while a mark is recorded gets a part without a record: done
 * once the context is dead, and recorded at the next look if it turns out to live on (later than
 * the free, so it covers what must be covered).
 */
#include "shim/driver/context_event.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "allocator/util/yield.h"
#include "config/mutant.h"
#include "shim/bind/libcuda.h"
#include "shim/driver/driver_table.h"
#include "shim/state/leaf_lock.h"
#include "shim/state/process.h"
#include "shim/state/record_arena.h"
#include "shim/track/assumptions.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

/* A mark recorded while no context was alive: nothing can be running. */
static const ca_mark EMPTY_MARK = 1;

/* A device that was full for a moment has events again: the mark is tried later. */
enum { UNMADE_MAX = 8 };

static struct ca_leaf_lock lock;
static struct ca_mark_part *blank; /* parts without an event; under lock */
static _Atomic bool no_marks;      /* the driver said that it has none */

struct ca_mark_part *
ca_mark_part_of(ca_mark mark)
{
	if (mark == EMPTY_MARK)
		return NULL;
	mark &= ~(ca_mark)CA_MARK_STREAM_BIT;
	return (struct ca_mark_part *)(uintptr_t)mark; // NOLINT: our own value
}

static struct ca_mark_part *
pop(struct ca_mark_part **list)
{
	struct ca_mark_part *part;

	ca_leaf_lock_enter(&lock);
	part = *list;
	if (part)
		*list = part->next;
	ca_leaf_lock_leave(&lock);
	return part;
}

static void
push(struct ca_mark_part **list, struct ca_mark_part *part)
{
	ca_leaf_lock_enter(&lock);
	part->next = *list;
	*list = part;
	ca_leaf_lock_leave(&lock);
}

/* Back to its context's spares; a dead context's events died with it. */
void
ca_mark_part_retire(struct ca_mark_part *part)
{
	struct ca_context *context = part->context;

	ca_leaf_lock_enter(&lock);
	struct ca_mark_part **list = &context->spare;

	if (!part->has_event || atomic_load(&context->dead)) {
		part->has_event = false;
		list = &blank;
	}
	part->next = *list;
	*list = part;
	ca_leaf_lock_leave(&lock);
}

CUresult
ca_mark_part_create_event(const struct ca_real *real, struct ca_mark_part *part)
{
	bool pushed;
	CUresult rc;

	if (part->has_event)
		return CUDA_SUCCESS;
	rc = ca_context_push(real, part->context, &pushed);
	if (rc)
		return rc;
	rc = CA_INSIDE(real->cuEventCreate(&part->event, CU_EVENT_DISABLE_TIMING));
	ca_context_pop(real, pushed);
	part->has_event = rc == CUDA_SUCCESS;
	return rc;
}

struct ca_mark_part *
ca_mark_part_take(struct ca_context *context, struct ca_context *owner)
{
	struct ca_mark_part *part = pop(&context->spare);

	if (!part)
		part = pop(&blank);
	if (!part)
		part = ca_slab_take(sizeof(*part));
	if (!part)
		return NULL;
	part->context = context;
	part->owner = owner;
	part->next = NULL;
	part->recorded = false;
	atomic_store_explicit(&part->done, false, memory_order_relaxed);
	return part;
}

void
ca_mark_drop(void *self, ca_mark mark)
{
	struct ca_mark_part *part = ca_mark_part_of(mark);

	while (part) {
		struct ca_mark_part *next = part->next;

		ca_mark_part_retire(part);
		part = next;
	}
}

/* The allocator's code for a failed call on `context`, for memory of `owner`. */
static int
error_of(CUresult rc, const struct ca_context *context, const struct ca_context *owner)
{
	if (ca_capture_is_error(rc))
		return -EBUSY; /* a capture that we did not see begin */
	return context == owner ? (int)rc : -EIO;
}

static int
record_error(CUresult rc, const struct ca_context *context, const struct ca_context *owner)
{
	switch (rc) {
	case CUDA_ERROR_NOT_SUPPORTED:
	case CUDA_ERROR_NOT_FOUND:
		atomic_store(&no_marks, true);
		return -ENOTSUP;
	default:
		return error_of(rc, context, owner);
	}
}

/* In the gate; the part's context is entered. */
static int
record_part(const struct ca_real *real, struct ca_mark_part *part)
{
	struct ca_context *context = part->context;
	CUresult rc;

	if (!ca_assumptions_want_mark(real, context))
		return -ENODATA;
	rc = ca_mark_part_create_event(real, part);
	if (rc == CUDA_ERROR_OUT_OF_MEMORY && atomic_fetch_add(&context->unmade, 1) < UNMADE_MAX)
		return -ENODATA;
	if (rc)
		return error_of(rc, context, part->owner);
	atomic_store(&context->unmade, 0);
	/* the calls before may have been slow: no capture is opening, or open, by now */
	if (ca_unseen_capture(real) || ca_capture_active())
		return -EBUSY;
	rc = CA_INSIDE(real->cuCtxRecordEvent(context->handle, part->event));
	if (rc)
		return record_error(rc, context, part->owner);
	part->recorded = true;
	return 0;
}

/* Adds a part for `context` to the chain, recorded unless the context is being destroyed. */
static int
add_part(const struct ca_real *real, struct ca_context *context, struct ca_context *owner,
	 struct ca_mark_part **chain)
{
	struct ca_mark_part *part = ca_mark_part_take(context, owner);
	int rc = 0;

	if (!part)
		return -ENOMEM;
	if (ca_context_enter(context)) {
		rc = record_part(real, part);
		ca_context_leave(context);
	}
	if (rc) {
		ca_mark_part_retire(part);
		return rc;
	}
	part->next = *chain;
	*chain = part;
	return 0;
}

static int
record_all(const struct ca_real *real, struct ca_context *owner, struct ca_mark_part **chain)
{
	struct ca_context *context;
	int rc = 0;

	for (context = ca_context_first(); context && !rc; context = ca_context_next(context)) {
		if (atomic_load(&context->kind) == CA_CONTEXT_GREEN)
			continue;
		if (CA_MUTANT(OWN_CONTEXT_ONLY) && context != owner)
			continue;
		rc = add_part(real, context, owner, chain);
	}
	return rc;
}

static bool
has_calls(const struct ca_real *real)
{
	return real && real->cuCtxRecordEvent && real->cuEventCreate && real->cuEventQuery &&
	       real->cuEventSynchronize && !atomic_load(&no_marks);
}

bool
ca_has_marks(void *self)
{
	struct ca_context *context;

	if (!has_calls(ca_real()))
		return false;
	for (context = ca_context_first(); context; context = ca_context_next(context))
		if (atomic_load(&context->kind) != CA_CONTEXT_GREEN &&
		    !ca_assumption_holds(context, CA_ASSUMPTION_CONTEXT_RECORD))
			return false;
	return true;
}

int
ca_mark_record(void *self, void *space_context, ca_mark *ret_mark)
{
	const struct ca_real *real = ca_real();
	struct ca_mark_part *chain = NULL;
	int rc;

	if (!has_calls(real))
		return -ENOTSUP;
	if (!ca_gate_enter())
		return -EBUSY;
	rc = record_all(real, space_context, &chain);
	ca_gate_leave();
	ca_mark mark = chain ? (ca_mark)(uintptr_t)chain : EMPTY_MARK;

	if (rc)
		ca_mark_drop(self, mark);
	else
		*ret_mark = mark;
	return rc;
}

typedef CUresult event_call(CUevent event);

/* Some drivers want the event's own context current. */
static CUresult
call_in_context(const struct ca_real *real, struct ca_mark_part *part, event_call *call)
{
	CUresult rc = CA_INSIDE(call(part->event));
	bool pushed;

	if (rc != CUDA_ERROR_INVALID_CONTEXT || ca_context_push(real, part->context, &pushed))
		return rc;
	rc = CA_INSIDE(call(part->event));
	ca_context_pop(real, pushed);
	return rc;
}

/* A part of a context that was closed, and lives on. The gate is entered, or entered here. */
static int
record_late(const struct ca_real *real, struct ca_mark_part *part, bool in_gate)
{
	int rc;

	if (!in_gate && !ca_gate_enter())
		return -EBUSY;
	rc = record_part(real, part);
	if (!in_gate)
		ca_gate_leave();
	return rc == -ENOTSUP ? -EIO : rc == -ENODATA ? -EBUSY : rc;
}

static int
call_part(const struct ca_real *real, struct ca_mark_part *part, event_call *call, bool wait)
{
	CUresult rc;
	int late = 0;

	if (atomic_load_explicit(&part->done, memory_order_acquire))
		return 0;
	while (!ca_context_enter(part->context)) {
		if (atomic_load(&part->context->dead))
			return 0;
		if (!wait)
			return -EAGAIN;
		ca_yield(); /* until its destruction has come to an end */
	}
	if (!part->recorded)
		late = record_late(real, part, !wait);
	rc = late ? CUDA_SUCCESS : call_in_context(real, part, call);
	ca_context_leave(part->context);
	if (late)
		return late;
	switch (rc) {
	case CUDA_SUCCESS:
		atomic_store_explicit(&part->done, true, memory_order_release);
		return 0;
	case CUDA_ERROR_NOT_READY:
		return -EAGAIN;
	default:
		return error_of(rc, part->context, part->owner);
	}
}

/* All parts, or those of the memory's own context. In the gate, or `relaxed`: in the mode in which
 * no question is refused. */
static int
query_parts(ca_mark mark, const struct ca_real *real, bool own, bool relaxed)
{
	struct ca_mark_part *part;
	int rc = 0;

	for (part = ca_mark_part_of(mark); part && !rc; part = part->next) {
		if (own && part->context != part->owner)
			continue;
		rc = relaxed || !ca_capture_active()
			     ? call_part(real, part, real->cuEventQuery, false)
			     : -EBUSY;
	}
	return rc;
}

/* Waits for the parts of the memory's own context. */
static int
wait_for_parts(ca_mark mark, const struct ca_real *real)
{
	struct ca_mark_part *part;
	int rc = 0;

	for (part = ca_mark_part_of(mark); part && !rc; part = part->next)
		if (part->context == part->owner)
			rc = call_part(real, part, real->cuEventSynchronize, true);
	return rc;
}

/* While something captures the mark of a stream can be asked, in the mode in which it can be waited
 * for: it was recorded before. */
static int
query_in_capture(ca_mark mark, const struct ca_real *real)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int rc;

	if (!ca_capture_exchange_mode(real, &mode))
		return -EBUSY;
	rc = query_parts(mark, real, false, true);
	ca_capture_restore_mode(real, mode);
	return rc;
}

static int
query(ca_mark mark, bool own)
{
	const struct ca_real *real = ca_real();
	int rc;

	if (!real)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (CA_MUTANT(REUSE_AT_ONCE))
		return 0;
	if (!ca_gate_enter())
		return mark & CA_MARK_STREAM_BIT ? query_in_capture(mark, real) : -EBUSY;
	rc = query_parts(mark, real, own, false);
	ca_gate_leave();
	return rc;
}

int
ca_mark_query(void *self, ca_mark mark)
{
	return query(mark, false);
}

int
ca_mark_query_own(void *self, ca_mark mark)
{
	return query(mark, true);
}

int
ca_mark_wait(void *self, ca_mark mark)
{
	const struct ca_real *real = ca_real();
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool of_stream = mark & CA_MARK_STREAM_BIT, exchanged;
	int rc;

	if (!real)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (ca_capture_active() && !of_stream)
		return -EBUSY;
	exchanged = ca_capture_exchange_mode(real, &mode);
	rc = wait_for_parts(mark, real);
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	if (rc == -EAGAIN)
		return -EBUSY; /* its context is being destroyed */
	return rc || of_stream ? rc : ca_mark_query(self, mark);
}

void
ca_marks_context_died(struct ca_context *context)
{
	struct ca_mark_part *part;

	while ((part = pop(&context->spare))) {
		part->has_event = false;
		push(&blank, part);
	}
}

void
ca_marks_after_fork_child(void)
{
	ca_leaf_lock_leave(&lock);
	blank = NULL;
	atomic_store(&no_marks, false);
}
