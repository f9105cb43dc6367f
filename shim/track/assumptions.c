/* SPDX-License-Identifier: MIT */
/*
 * When it is safe to let the legacy stream wait for a word: whatever is submitted to it stands
 * between the earlier and the later work of all blocking streams. So a trial could order two
 * kernels of the program that wait for each other. It cannot while no blocking stream but the
 * legacy one was ever given work, nor if the calling thread is about to submit to the legacy stream
 * anyway, nor if all is finished and no other thread submits.
 */
#include "shim/track/assumptions.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/order/order.h"
#include "config/mutant.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"

enum {
	ALL = CA_ASSUMPTION_LEGACY_RECORD | CA_ASSUMPTION_CONTEXT_RECORD,
	/* A busy machine may keep the thread of a trial, or the device, from running for 1 ms. */
	SILENT_MAX = 8,
	/* after a trial that showed nothing, doubled each time */
	GAP_FIRST_US = 1000,
	GAP_LAST_US = 1000000,
	PAUSES_MAX = 100, /* 10 ms: longer than an undisturbed trial */
	/* with 1, 2, 4, 8 ms between: a scheduler that has four threads for each processor lets one
	 * wait for 12 ms. (With two tries at once, one of 15 programs beside six busy loops did
	 * without reuse of unfinished memory for all its life.) */
	TRIES_MORE = 4,
	TRIES_GAP_NS = 1000 * 1000,
};

_Atomic unsigned ca_assumptions_open;
static _Atomic bool trying;

bool
ca_assumption_holds(const struct ca_context *context, enum ca_assumption assumption)
{
	return atomic_load(&context->kept) & assumption || CA_MUTANT(ASSUMPTIONS_UNPROBED);
}

bool
ca_assumptions_hold(const struct ca_context *context)
{
	return !(atomic_load(&context->needs) & ~atomic_load(&context->kept));
}

static unsigned
unsettled(const struct ca_context *context)
{
	return atomic_load(&context->needs) &
	       ~(atomic_load(&context->kept) | atomic_load(&context->rejected));
}

/* True if that is news. */
static bool
need(const struct ca_real *real, struct ca_context *context, unsigned assumptions)
{
	unsigned fresh;

	if (CA_MUTANT(ASSUMPTIONS_UNPROBED))
		return false;
	if (!ca_assumption_trial_has_context_marks(real)) /* then nothing rests on them */
		assumptions &= ~(unsigned)CA_ASSUMPTION_CONTEXT_RECORD;
	fresh = assumptions & ~atomic_fetch_or(&context->needs, assumptions);
	atomic_fetch_add(&ca_assumptions_open, (unsigned)__builtin_popcount(fresh));
	return fresh;
}

/* ---- what a trial showed */

static void
keep(struct ca_context *context, unsigned assumptions)
{
	atomic_fetch_or(&context->kept, assumptions);
	atomic_fetch_sub(&ca_assumptions_open, (unsigned)__builtin_popcount(assumptions));
}

static void
reject(struct ca_context *context, unsigned assumptions, unsigned reason)
{
	struct ca_process *process = ca_process_made();
	struct ca_space *space = atomic_load(&context->space);

	atomic_fetch_or(&context->rejected, assumptions);
	atomic_fetch_sub(&ca_assumptions_open, (unsigned)__builtin_popcount(assumptions));
	if (process && space)
		ca_order_finished_only(process->heap, space, reason);
}

static void
set_result(struct ca_context *context, enum ca_assumption assumption, enum ca_trial_result result,
	   unsigned reason)
{
	switch (result) {
	case CA_TRIAL_KEPT:
		keep(context, assumption);
		return;
	case CA_TRIAL_BROKEN:
		reject(context, assumption, reason);
		return;
	case CA_TRIAL_UNABLE:
		reject(context, assumption, CA_REASON_NO_TRIAL);
		return;
	case CA_TRIAL_SILENT:
	case CA_TRIAL_LIKELY:
	case CA_TRIAL_NONE:
		return;
	}
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool
is_due(const struct ca_context *context)
{
	return now_ns() >= atomic_load(&context->next_trial_ns);
}

/* In all but the last, nothing more is tried. */
static void
wait_for_better_times(struct ca_context *context, bool failed_trials)
{
	unsigned gap = context->trial_gap_us ? context->trial_gap_us * 2 : GAP_FIRST_US;

	context->trial_gap_us = gap < GAP_LAST_US ? gap : GAP_LAST_US;
	atomic_store(&context->next_trial_ns, now_ns() + (uint64_t)context->trial_gap_us * 1000);
	context->failed_trials += failed_trials;
	if (context->failed_trials >= SILENT_MAX)
		reject(context, unsettled(context), CA_REASON_NO_TRIAL);
}

/* The flag that one thread at a time tries. A moment that will not come back is worth a wait for
 * another thread's trial. */
static bool
begin(bool now)
{
	const struct timespec pause = { .tv_nsec = 100000 };
	unsigned pauses = now ? PAUSES_MAX : 0;

	while (atomic_exchange(&trying, true)) {
		if (!pauses--)
			return false;
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	return true;
}

static bool
is_open(struct ca_trial_results results, unsigned wanted)
{
	return (wanted & CA_ASSUMPTION_LEGACY_RECORD && results.legacy <= CA_TRIAL_SILENT) ||
	       (wanted & CA_ASSUMPTION_CONTEXT_RECORD && results.context <= CA_TRIAL_SILENT);
}

/* A moment that will not come back is worth another try: it is often the processor that is busy,
 * and not the device. */
static struct ca_trial_results
trial(const struct ca_real *real, struct ca_context *context, unsigned wanted, bool now)
{
	struct ca_trial_results results = ca_assumption_trial(real, context, wanted);
	struct timespec gap = { .tv_nsec = TRIES_GAP_NS };

	for (unsigned more = now ? TRIES_MORE : 0; more && is_open(results, wanted); more--) {
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &gap, NULL);
		gap.tv_nsec *= 2;
		if (ca_capture_active()) /* it waits for this thread, a second at most */
			break;
		results = ca_assumption_trial(real, context, wanted);
	}
	return results;
}

/* The gate and the context are entered. `now`: however short ago the last trial was. */
static void
try_assumptions(const struct ca_real *real, struct ca_context *context, unsigned assumptions,
		bool now)
{
	unsigned wanted = unsettled(context) & assumptions;
	struct ca_trial_results results;

	if (!wanted || !begin(now))
		return;
	wanted &= unsettled(context);
	if (wanted && (now || is_due(context)) && !ca_unseen_capture(real)) {
		results = trial(real, context, wanted, now);
		if (wanted & CA_ASSUMPTION_LEGACY_RECORD)
			set_result(context, CA_ASSUMPTION_LEGACY_RECORD, results.legacy,
				   CA_REASON_LEGACY_RECORD);
		if (wanted & CA_ASSUMPTION_CONTEXT_RECORD)
			set_result(context, CA_ASSUMPTION_CONTEXT_RECORD, results.context,
				   CA_REASON_CONTEXT_RECORD);
		if (unsettled(context))
			wait_for_better_times(context, results.legacy == CA_TRIAL_SILENT ||
							       results.context == CA_TRIAL_SILENT);
	}
	atomic_store(&trying, false);
}

static void
try_outside(const struct ca_real *real, struct ca_context *context, unsigned assumptions, bool now)
{
	int saved = errno;

	if (ca_gate_enter()) {
		if (ca_context_enter(context)) {
			try_assumptions(real, context, assumptions, now);
			ca_context_leave(context);
		}
		ca_gate_leave();
	}
	errno = saved;
}

/* ---- when */

static unsigned
kinds_of(const struct ca_context *context)
{
	struct ca_space *space = atomic_load(&context->space);

	return space ? ca_order_open_kinds(&space->order) : 0;
}

/* The assumptions (bits) that several streams of these kinds (bits) rest on. */
static unsigned
needs_of(unsigned kinds)
{
	const unsigned legacy = 1u << CA_STREAM_LEGACY;
	const unsigned blocking = 1u << CA_STREAM_BLOCKING | 1u << CA_STREAM_PER_THREAD;

	return kinds & legacy && kinds & blocking ? ALL : CA_ASSUMPTION_CONTEXT_RECORD;
}

static void
add_to_others(const struct ca_real *real, const struct ca_context *own)
{
	struct ca_context *context;

	for (context = ca_context_first(); context; context = ca_context_next(context)) {
		if (context == own || !kinds_of(context))
			continue;
		need(real, context, CA_ASSUMPTION_CONTEXT_RECORD);
		try_outside(real, context, CA_ASSUMPTION_CONTEXT_RECORD, false);
	}
}

void
ca_assumptions_stream_opening(const struct ca_real *real, struct ca_context *context,
			      enum ca_stream_kind kind)
{
	struct ca_space *space = atomic_load(&context->space);
	unsigned kinds = kinds_of(context);
	bool fresh;

	if (!kinds && !ca_context_multiple())
		return;
	fresh = need(real, context, needs_of(kinds | 1u << kind));
	if (ca_context_multiple())
		add_to_others(real, context);
	if (!unsettled(context))
		return;
	if (kind == CA_STREAM_LEGACY) {
		try_outside(real, context, ALL, fresh);
	} else if (ca_order_legacy_begin(space, false)) {
		try_outside(real, context, ALL, fresh);
		ca_order_legacy_end(space);
	} else {
		try_outside(real, context, CA_ASSUMPTION_CONTEXT_RECORD, fresh);
	}
}

void
ca_assumptions_stream_opened(const struct ca_real *real, struct ca_context *context)
{
	struct ca_space *space = atomic_load(&context->space);

	if (atomic_load(&space->order.candidates) > 1 &&
	    need(real, context, needs_of(kinds_of(context))))
		try_outside(real, context, CA_ASSUMPTION_CONTEXT_RECORD, true);
}

bool
ca_assumptions_want_mark(const struct ca_real *real, struct ca_context *context)
{
	int saved = errno;

	if (!ca_assumption_trial_has_context_marks(real))
		return true; /* the driver's own answer */
	if (!ca_assumption_holds(context, CA_ASSUMPTION_CONTEXT_RECORD)) {
		need(real, context, CA_ASSUMPTION_CONTEXT_RECORD);
		try_assumptions(real, context, CA_ASSUMPTION_CONTEXT_RECORD, false);
	}
	errno = saved;
	return ca_assumption_holds(context, CA_ASSUMPTION_CONTEXT_RECORD);
}

static void
try_when_idle(const struct ca_real *real, struct ca_context *context)
{
	struct ca_space *space = atomic_load(&context->space);

	if (space && ca_order_legacy_begin(space, true)) {
		try_outside(real, context, ALL, false);
		ca_order_legacy_end(space);
	} else {
		try_outside(real, context, CA_ASSUMPTION_CONTEXT_RECORD, false);
	}
}

void
ca_assumptions_try_again(const struct ca_real *real)
{
	struct ca_context *context;

	for (context = ca_context_first(); context; context = ca_context_next(context))
		if (unsettled(context) && is_due(context))
			try_when_idle(real, context);
}

void
ca_assumptions_context_died(struct ca_context *context)
{
	unsigned assumptions = unsettled(context);

	atomic_fetch_or(&context->rejected, assumptions);
	atomic_fetch_sub(&ca_assumptions_open, (unsigned)__builtin_popcount(assumptions));
}

void
ca_assumptions_after_fork_child(void)
{
	atomic_store(&trying, false);
	atomic_store(&ca_assumptions_open, 0);
	ca_assumption_trial_after_fork_child();
}
