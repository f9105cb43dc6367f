/* SPDX-License-Identifier: MIT */
/* The end of a context: all that is known by it is forgotten, and last that the handle is taken. */
#include <stdatomic.h>

#include "shim/driver/driver_table.h"
#include "shim/pinned/pinned.h"
#include "shim/process/lifecycle.h"
#include "shim/track/assumptions.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"
#include "shim/track/events.h"
#include "shim/track/streams.h"

void
ca_context_teardown(struct ca_context *context)
{
	struct ca_space *space;

	if (!atomic_exchange(&context->dead, true)) {
		atomic_fetch_add(&ca_capture_word, CA_STREAM_GENERATION);
		space = atomic_load(&context->space);
		if (space)
			ca_context_kill_space(context, space);
		ca_streams_context_died(context);
		ca_marks_context_died(context);
		ca_assumptions_context_died(context);
		ca_capture_context_died(context->handle);
		ca_events_context_died(context->handle);
		ca_pinned_context_died(context);
		ca_context_unlink(context);
	}
	atomic_fetch_sub(&ca_context_closings, 1);
}
