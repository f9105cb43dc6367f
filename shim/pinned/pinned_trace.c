/* SPDX-License-Identifier: MIT */
#include "allocator/trace/trace.h"
#include "shim/pinned/internal.h"
#include "shim/state/process.h"
#include "shim/track/contexts.h"

void
ca_pinned_trace_locked(const struct ca_pinned_record *record, enum ca_trace_kind kind)
{
	const struct ca_process *process = ca_process_made();
	uint64_t bytes = 0;

	if (!process || !ca_tracing(process->heap))
		return;
	if (kind == CA_TRACE_PINNED_ALLOC)
		bytes = record->requested;
	else if (kind != CA_TRACE_PINNED_FREE)
		bytes = record->kind.bytes;
	ca_trace_add(process->heap, kind, (unsigned)record->kind.context->device,
		     CA_TRACE_NO_STREAM, record->by_address.key, bytes);
}
