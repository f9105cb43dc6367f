/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's sentence comes first, figure by figure, because people and tools know it; the figures
 * that it lacks come after: the request itself, the largest free block, the users of freed memory.
 */
#include "shim/process/oom_message.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "allocator/api/oom_report.h"
#include "allocator/core/stats.h"
#include "config/log.h"
#include "config/text.h"
#include "shim/bind/scope.h"
#include "shim/driver/driver_table.h"
#include "shim/pinned/pinned.h"
#include "shim/process/lifecycle.h"
#include "shim/process/site_conf.h"
#include "shim/process/snapshots.h"
#include "shim/process/tracing.h"

enum { DEVICES_MAX = 32, LINE_BYTES = 512 };
#define SPACING_NS ((uint64_t)1000000000)
#define SLACK ((uint64_t)32 << 20) /* a driver may refuse a piece although so much more is free */

static _Atomic uint64_t told[DEVICES_MAX]; /* a bit per size class */
static _Atomic uint64_t next_ns;           /* none before that */
static _Atomic unsigned reports;

/* A size as text, for the arguments of a format. */
#define SIZE(bytes) ca_text_bytes((char[CA_TEXT_SIZE_MAX]){ 0 }, bytes)

void
ca_report_after_fork_child(void)
{
	for (unsigned i = 0; i < DEVICES_MAX; i++)
		atomic_store(&told[i], 0);
	atomic_store(&next_ns, 0);
	atomic_store(&reports, 0);
}

static bool
is_due(void)
{
	const struct ca_driver *driver = ca_driver_table();
	uint64_t now = driver->clock_ns(driver->self), next = atomic_load(&next_ns);

	return now >= next && atomic_compare_exchange_strong(&next_ns, &next, now + SPACING_NS);
}

static bool
is_new(unsigned device, uint64_t bytes)
{
	uint64_t bit = (uint64_t)1 << (63 - __builtin_clzll(bytes | 1));

	if (device >= DEVICES_MAX || atomic_load(&told[device]) & bit ||
	    atomic_load(&reports) >= CA_REPORTS_MAX || !is_due())
		return false;
	return !(atomic_fetch_or(&told[device], bit) & bit) &&
	       atomic_fetch_add(&reports, 1) < CA_REPORTS_MAX;
}

static void
print_summary(const struct ca_report *report)
{
	char capacity[LINE_BYTES] = "", allowed[32] = "";

	if (report->known)
		ca_text_format(capacity, sizeof(capacity),
			       "GPU %u has a total capacity of %s of which %s is free. ",
			       report->device, SIZE(report->total), SIZE(report->free));
	if (report->allowed)
		ca_text_format(allowed, sizeof(allowed), "%s allowed; ", SIZE(report->allowed));
	ca_warn("CUDA out of memory. Tried to allocate %s. %s%sOf the allocated memory %s is "
		"allocated by the program, and %s is reserved by cachealloc but unallocated.",
		SIZE(report->requested), capacity, allowed, SIZE(report->live),
		SIZE(report->reserved - report->live));
}

static void
print_free(const struct ca_report *report)
{
	char streams[LINE_BYTES] = "";
	size_t length = 0;

	for (unsigned i = 0; i < report->n_streams && length < sizeof(streams); i++) {
		const struct ca_report_stream *one = &report->streams[i];
		const char *name = one->kind == CA_STREAM_LEGACY       ? "the legacy stream"
				   : one->kind == CA_STREAM_PER_THREAD ? "a per-thread stream"
								       : "stream";

		length += ca_text_format(streams + length, sizeof(streams) - length, "%s%s by %s",
					 i ? ", " : ": ", SIZE(one->bytes), name);
		if (one->kind != CA_STREAM_LEGACY && one->kind != CA_STREAM_PER_THREAD &&
		    length < sizeof(streams))
			length += ca_text_format(streams + length, sizeof(streams) - length, " %p",
						 one->handle);
	}
	ca_warn("out of memory: %llu bytes were asked for; the largest free block has %llu bytes. "
		"Free: %s for every stream, %s still in use%s",
		(unsigned long long)report->requested, (unsigned long long)report->largest,
		SIZE(report->clean), SIZE(report->waiting), streams);
}

static void
print_tried(const struct ca_tried *tried)
{
	if (tried->capture) {
		ca_warn("out of memory: a stream captures, so that only memory of its own would "
			"do; %s "
			"went back to the driver",
			SIZE(tried->given_bytes));
		return;
	}
	if (tried->pool_bytes)
		ca_warn("out of memory: %s went back from pools and graphs of the driver's%s",
			SIZE(tried->pool_bytes),
			atomic_load(&ca_pinned_on) ? ", and from pinned:cache" : "");
	ca_warn("out of memory: tried: searched %u times, asked the driver %u times more, gave %s "
		"(%u segments) back to it, waited %u times for freed memory%s",
		tried->searches, tried->attempts, SIZE(tried->given_bytes), tried->given_segments,
		tried->waits,
		tried->others ? ", looked ten seconds at what other threads had freed" : "");
}

static void
print_async(const struct ca_report *report)
{
	if (report->async_reserved)
		ca_warn("out of memory: stream-ordered memory besides: %s held by the program, %s "
			"reserved by cachealloc but unallocated (async:pool)",
			SIZE(report->async_live),
			SIZE(report->async_reserved - report->async_live));
}

/* Host memory; but a device that maps it may have no room for the map. */
static void
print_pinned(unsigned device)
{
	struct ca_stats stats = { 0 };

	ca_pinned_stats(device, &stats);
	if (stats.pinned_bytes.current || stats.pinned_cached_bytes.current)
		ca_warn("out of memory: page-locked host memory: %s held by the program, %s freed "
			"and kept (pinned:cache)",
			SIZE(stats.pinned_bytes.current), SIZE(stats.pinned_cached_bytes.current));
}

/* Which setting needs less memory is another one for each program, so none is named: a recording of
 * the program tells. */
static void
print_next_steps(void)
{
	if (ca_tracing_tracer)
		ca_warn("hint: the free memory is in pieces: when the program has ended, "
			"`cachealloc explain %s` tells which setting would have let it live",
			ca_tracer_path(ca_tracing_tracer));
	else
		ca_warn("hint: the free memory is in pieces: CACHEALLOC_TRACE=oom.trace before the "
			"program's command records it, then `cachealloc explain oom.trace` tells "
			"which setting would have let it live");
}

static void
print_limit(const struct ca_report *report)
{
	if (report->limit_kind == CA_LIMIT_FORCED)
		ca_warn("hint: %s allows %s on this device, and no variable raises that; cached "
			"memory is given up first: use less",
			ca_site_conf_path(), SIZE(report->allowed));
	else
		ca_warn("hint: %s allows %s on this device, cached memory is given up first: raise "
			"it, or use less",
			report->limit_kind == CA_LIMIT_OWN ? "CACHEALLOC_LIMIT"
							   : "per_process_memory_fraction",
			SIZE(report->allowed));
}

/* The cause that explains most, and what to do about it. */
static void
print_hint(const struct ca_report *report)
{
	uint64_t used = report->known ? report->total - report->free : 0;
	uint64_t reserved = report->reserved + report->async_reserved;
	uint64_t live = report->live + report->async_live;
	uint64_t others = used > reserved ? used - reserved : 0;
	/* even as one piece, with what the driver would have given, they would not have done */
	uint64_t pieces = reserved - live + (report->free > SLACK ? report->free - SLACK : 0);

	if (report->tried.capture)
		ca_warn("hint: allocate before the capture begins");
	else if (report->tried.rejected_by_us)
		print_limit(report);
	else if (report->known && live + report->requested > report->total)
		ca_warn("hint: live memory alone exceeds the device: %s allocated and %s asked for "
			"are more than %s; use less (a smaller batch), or a larger device",
			SIZE(live), SIZE(report->requested), SIZE(report->total));
	else if (report->known && report->free >= report->requested + SLACK)
		ca_warn("hint: the device reported %s free and refused all the same: another "
			"process took it at that moment, or the system refused (the host's "
			"memory, a container's limit, MIG)",
			SIZE(report->free));
	else if (report->known && (live + report->requested + others > report->total ||
				   (others && pieces < report->requested)))
		ca_warn("hint: %s of the device are used by others: other processes, libraries, "
			"pools and arrays of this one, the contexts themselves",
			SIZE(others));
	else if (report->waiting >= report->requested)
		ca_warn("hint: freed memory is still in use by other threads' work: synchronise "
			"before allocating, or free in the thread that allocates");
	else
		print_next_steps();
}

static void
print_report(struct ca_space *space, uint64_t bytes, bool async)
{
	struct ca_report report;

	ca_report_fill(space, bytes, &report);
	if (async) /* it went another way */
		report.tried = (struct ca_tried){ 0 };
	print_summary(&report);
	print_free(&report);
	if (!async)
		print_tried(&report.tried);
	print_async(&report);
	print_pinned(report.device);
	print_hint(&report);
}

static void
report_any(struct ca_space *space, uint64_t bytes, bool async)
{
	struct ca_process *process = ca_process();
	char path[CA_PATH_MAX], shown[LINE_BYTES];
	CA_KEEP_ERRNO;

	if (!process || !process->caches || !is_new(ca_report_device(space), bytes))
		return;
	if (ca_log_enabled(CA_LOG_WARN))
		print_report(space, bytes, async);
	if (ca_snapshots_oom(process->heap, bytes, path))
		ca_warn("out of memory: every segment and block is in %s, for PyTorch's memory "
			"viewers",
			ca_text_escape(shown, sizeof(shown), path));
}

__attribute__((noinline, cold)) void
ca_report_oom(struct ca_space *space, uint64_t bytes)
{
	report_any(space, bytes, false);
}

void
ca_report_async_oom(struct ca_space *space, uint64_t bytes)
{
	report_any(space, bytes, true);
}
