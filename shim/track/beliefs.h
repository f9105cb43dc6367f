/* SPDX-License-Identifier: MIT */
/*
 * What the order of several streams rests on and cuda.h does not promise: whether this driver keeps
 * it.
 *
 * A context *needs* a belief (belief_trial.h) from the moment when a program could come to rely on
 * it: a second stream for marks of the whole context, a legacy stream beside another blocking one
 * for marks of the legacy stream. It is tried then, and if nothing was shown, at later moments that
 * look quiet, less and less often. Until it is known to be kept only finished memory is reused, and
 * no mark is made that rests on it. A belief that is broken, or of which eight trials showed
 * nothing because even the control did not end, is given up for ever, with one line in the log.
 *
 * A context with one stream rests on no belief. Thread-safe; errno kept; no lock is held in driver
 * calls.
 */
#pragma once

#include <stdbool.h>

#include "shim/bind/libcuda.h"
#include "shim/track/belief_trial.h"
#include "shim/track/contexts.h"

/* Known to be kept. */
bool ca_belief_holds(const struct ca_context *context, enum ca_belief belief);
/* All that the context needs is known to be kept. May be called with a lock held. */
bool ca_beliefs_hold(const struct ca_context *context);

/* Before a stream of `kind` is opened in the context's `space` (NULL: it has none). A legacy stream
 * is opened because the calling thread is about to submit to it. */
void ca_beliefs_stream_comes(const struct ca_real *real, struct ca_context *context,
			     enum ca_stream_kind kind);
/* A context mark is wanted: true if the belief is known to be kept, or is found to be now. The
 * capture gate is entered, and so is the context. */
bool ca_beliefs_want_mark(const struct ca_real *real, struct ca_context *context);
/* Contexts that need a belief which has not been settled. */
extern _Atomic unsigned ca_beliefs_open __attribute__((visibility("hidden")));
void ca_beliefs_try_again(const struct ca_real *real);
/* The device was just seen to have finished something, so it may be idle. */
static inline void
ca_beliefs_look(const struct ca_real *real)
{
	if (__builtin_expect(atomic_load_explicit(&ca_beliefs_open, memory_order_relaxed) != 0, 0))
		ca_beliefs_try_again(real);
}
/* The context is dead. */
void ca_beliefs_context_died(struct ca_context *context);
void ca_beliefs_after_fork_child(void);
