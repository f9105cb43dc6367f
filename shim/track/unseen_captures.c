/* SPDX-License-Identifier: MIT */
/*
 * The table of streams is read in small parts, since no lock may be held while the driver is asked.
 * A stream must live while it is asked about: its destruction waits for questions that have begun
 * (ca_stream_table_hold), and its context is entered.
 */
#include "shim/track/captures.h"

#include "allocator/order/order.h"
#include "shim/bind/scope.h"
#include "shim/bind/unseen_calls.h"
#include "shim/state/process.h"
#include "shim/track/contexts.h"
#include "shim/track/stream_table.h"
#include "shim/track/streams.h"

/* One of the calling thread's own, whose context has to be current, or a created one. */
static bool
captures(const struct ca_real *real, const struct ca_stream_known *known)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	bool is_default = ca_stream_is_default(known->handle), pushed;
	CUresult rc;

	if (is_default && known->thread != ca_order_thread())
		return false;
	if (!ca_context_enter(known->context))
		return false;
	rc = is_default ? ca_context_push(real, known->context, &pushed) : CUDA_SUCCESS;
	if (!rc) {
		rc = CA_INSIDE(real->cuStreamIsCapturing(known->handle, &status));
		if (is_default)
			ca_context_pop(real, pushed);
	}
	ca_context_leave(known->context);
	return !rc && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool
ca_unseen_capture(const struct ca_real *real)
{
	struct ca_stream_known known[CA_STREAM_KNOWN_MAX];
	unsigned n, place = 0;
	CA_KEEP_ERRNO;
	bool found = false;

	if (!ca_unseen_calls() || !real->cuStreamIsCapturing)
		return false;
	ca_stream_table_hold();
	while (!found && (n = ca_stream_table_list(&place, known)))
		while (!found && n)
			found = captures(real, &known[--n]);
	ca_stream_table_release();
	return found;
}
