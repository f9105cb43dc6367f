/* SPDX-License-Identifier: MIT */
#include "allocator/api/oom_report.h"

#include "allocator/api/heap.h"
#include "allocator/core/lock.h"
#include "allocator/told/told.h"

/* Keeps the largest, in order. */
static void
add_stream(struct ca_report *report, const struct ca_stream_record *record, uint64_t bytes)
{
	unsigned at = report->n_streams;

	while (at && report->streams[at - 1].bytes < bytes)
		at--;
	if (at == CA_REPORT_STREAMS)
		return;
	if (report->n_streams < CA_REPORT_STREAMS)
		report->n_streams++;
	for (unsigned i = report->n_streams - 1; i > at; i--)
		report->streams[i] = report->streams[i - 1];
	report->streams[at] = (struct ca_report_stream){
		.handle = record->handle,
		.kind = record->kind,
		.bytes = bytes,
	};
}

static uint64_t
owned_bytes(const struct ca_stream_record *record)
{
	const struct ca_list *link;
	uint64_t bytes = 0;

	for (link = record->waiting.next; link != &record->waiting; link = link->next)
		bytes += CA_CONTAINER_OF((struct ca_list *)link, struct ca_block, waiting)->bytes;
	return bytes;
}

static void
fill_streams(struct ca_space *space, struct ca_report *report)
{
	unsigned i, n = atomic_load(&space->order.n_streams);

	for (i = 0; space->stream_held_blocks && i < n; i++) {
		const struct ca_stream_record *record = space->order.streams[i];
		uint64_t bytes = record ? owned_bytes(record) : 0;

		if (bytes)
			add_stream(report, record, bytes);
	}
}

unsigned
ca_report_device(const struct ca_space *space)
{
	return space->device->ordinal;
}

void
ca_report_fill(struct ca_space *space, uint64_t requested, struct ca_report *ret_report)
{
	struct ca_heap *heap = space->heap;
	const struct ca_driver *driver = &heap->driver;
	struct ca_report report = {
		.device = space->device->ordinal,
		.requested = requested,
		.tried = ca_oom_tried,
	};
	struct ca_stats stats;

	report.known =
		!driver->memory_info(driver->self, space->context, &report.free, &report.total);
	report.allowed = ca_limit_allowed(space, &report.limit_kind);
	ca_heap_stats(heap, report.device, &stats);
	ca_told_device_stats(heap, report.device, &stats);
	report.live = stats.allocated_bytes.current;
	report.reserved = stats.reserved_bytes.current;
	report.async_live = stats.async_bytes.current;
	report.async_reserved = stats.async_reserved_bytes.current;
	report.largest = stats.largest_free_block_bytes;
	report.clean = stats.cached_bytes.current;
	report.waiting = stats.active_bytes.current - stats.allocated_bytes.current;
	ca_heap_lock(heap);
	fill_streams(space, &report);
	ca_heap_unlock(heap);
	*ret_report = report;
}
