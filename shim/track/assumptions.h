/* SPDX-License-Identifier: MIT */
/*
 * Assumptions about the driver: the order of several streams rests on them, and cuda.h does not
 * promise them.
 *
 * A context *needs* an assumption (assumption_trial.h) from the moment when a program could come to
 * rely on it: a second stream for marks of the whole context, a legacy stream beside another
 * blocking one for marks of the legacy stream. It is tried then, and if nothing was shown, at later
 * moments that look quiet, less and less often. Until it is known to be kept only finished memory
 * is reused, and no mark is made that rests on it. An assumption that is broken, or of which eight
 * trials showed nothing because even the control did not end or no thread could be made, is given
 * up for ever, with one line in the log.
 *
 * A context with one stream rests on no assumption. Thread-safe; errno kept; no lock is held in
 * driver calls.
 */
#pragma once

#include <stdbool.h>

#include "shim/bind/libcuda.h"
#include "shim/track/assumption_trial.h"
#include "shim/track/contexts.h"

/* Known to be kept. */
bool ca_assumption_holds(const struct ca_context *context, enum ca_assumption assumption);
/* All that the context needs is known to be kept. May be called with a lock held. */
bool ca_assumptions_hold(const struct ca_context *context);

/* Before a stream of `kind` is opened in the context's space, which it has. A legacy stream is
 * opened because the calling thread is about to submit to it. */
void ca_assumptions_stream_opening(const struct ca_real *real, struct ca_context *context,
				   enum ca_stream_kind kind);
/* After it: two threads may each have opened the context's first. */
void ca_assumptions_stream_opened(const struct ca_real *real, struct ca_context *context);
/* A context mark is wanted: true if the assumption is known to be kept, or is found to be now. The
 * capture gate is entered, and so is the context. */
bool ca_assumptions_want_mark(const struct ca_real *real, struct ca_context *context);
/* Contexts that need an assumption which has not been settled. */
extern _Atomic unsigned ca_assumptions_open __attribute__((visibility("hidden")));
void ca_assumptions_try_again(const struct ca_real *real);
/* The device was just seen to have finished something, so it may be idle. */
static inline void
ca_assumptions_look(const struct ca_real *real)
{
	if (__builtin_expect(atomic_load_explicit(&ca_assumptions_open, memory_order_relaxed) != 0,
			     0))
		ca_assumptions_try_again(real);
}
/* The context is dead. */
void ca_assumptions_context_died(struct ca_context *context);
void ca_assumptions_after_fork_child(void);
