/* SPDX-License-Identifier: MIT */
/*
 * One emitter: names come from the X-macros of allocator/core/stats.h, so JSON and struct cannot
 * drift apart.
 *
 * Output is collected in a buffer on the stack and handed to the caller's write function when
 * that is full; the first error sticks and ends the output.
 */
#include "allocator/api/stats_text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/order/order.h"
#include "allocator/trace/format.h"
#include "config/text.h"

struct out {
	ca_emit_write_fn *write;
	void *arg;
	int error;       /* of the first write that failed */
	size_t length;   /* of text */
	char text[4096]; /* one write for a usual line or table */
};

static void
out_flush(struct out *out)
{
	if (out->length && !out->error)
		out->error = out->write(out->arg, out->text, out->length);
	out->length = 0;
}

static void
put_bytes(struct out *out, const char *text, size_t length)
{
	while (length) {
		size_t room = sizeof(out->text) - out->length;
		size_t piece = length < room ? length : room;

		memcpy(out->text + out->length, text, piece);
		out->length += piece;
		text += piece;
		length -= piece;
		if (out->length == sizeof(out->text))
			out_flush(out);
	}
}

static void
put(struct out *out, const char *text)
{
	put_bytes(out, text, strlen(text));
}

static void __attribute__((format(printf, 2, 3))) putf(struct out *out, const char *format, ...)
{
	char line[256];
	va_list args;

	va_start(args, format);
	ca_text_format_va(line, sizeof(line), format, args);
	va_end(args);
	put(out, line);
}

/* A JSON string, or null. */
static void
put_string(struct out *out, const char *name, const char *text)
{
	putf(out, ",\"%s\":", name);
	if (!text) {
		put(out, "null");
		return;
	}
	put(out, "\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			put(out, "\\");
		if (c < 0x20)
			putf(out, "\\u%04x", (unsigned)c);
		else
			put_bytes(out, text, 1);
	}
	put(out, "\"");
}

static void
put_gauge(struct out *out, const char *name, const struct ca_gauge *gauge)
{
	putf(out, ",\"%s\":{\"current\":%llu,\"peak\":%llu,\"total\":%llu}", name,
	     (unsigned long long)gauge->current, (unsigned long long)gauge->peak,
	     (unsigned long long)gauge->total);
}

/* Why the device's memory is reused only when it is finished (allocator/order/order.h): the name in
 * JSON, and words for people. */
static const struct {
	const char *name, *why;
} reason_of_bit[] = {
#define X(name, text, why) [CA_BIT_##name] = { text, why },
	CA_FINISHED_ONLY_REASONS(X)
#undef X
};
enum { REASONS = sizeof(reason_of_bit) / sizeof(reason_of_bit[0]) };

static void
put_reasons(struct out *out, uint64_t reasons)
{
	const char *comma = "";
	unsigned i;

	put(out, ",\"finished_only_reasons\":[");
	for (i = 0; i < REASONS; i++) {
		if (!(reasons >> i & 1))
			continue;
		putf(out, "%s\"%s\"", comma, reason_of_bit[i].name);
		comma = ",";
	}
	put(out, "]");
}

static void
put_device(struct out *out, const struct ca_emit_device *device)
{
	const struct ca_stats *stats = device->stats;

	putf(out, "{\"index\":%u", device->index);
	put_string(out, "name", device->name);
	put_string(out, "uuid", device->uuid);
	put_string(out, "version", CA_VERSION);
#define X(field) putf(out, ",\"%s\":%llu", #field, (unsigned long long)stats->field);
	CA_STATS_COUNTERS(X)
	CA_STATS_FIGURES(X)
#undef X
	put_reasons(out, stats->finished_only_reasons);
#define X(field) put_gauge(out, #field, &stats->field);
	CA_STATS_GAUGES(X)
#undef X
	put(out, "}");
}

static void
put_identity(struct out *out, const struct ca_emit_identity *identity)
{
	putf(out, ",\"time_unix_ns\":%llu,\"elapsed_ns\":%llu,\"seq\":%llu",
	     (unsigned long long)identity->time_unix_ns, (unsigned long long)identity->elapsed_ns,
	     (unsigned long long)identity->seq);
	putf(out, ",\"pid\":%ld,\"ppid\":%ld", identity->pid, identity->parent_pid);
	put_string(out, "host", identity->host);
	putf(out, ",\"rank\":%s", identity->rank ? identity->rank : "null");
	put_string(out, "program", identity->program);
	put_string(out, "command", identity->command);
	put_string(out, "conf", identity->conf);
	if (identity->driver_version)
		putf(out, ",\"driver_version\":%d", identity->driver_version);
	else
		put(out, ",\"driver_version\":null");
}

int
ca_emit_stats_json(const struct ca_emit_process *process, const struct ca_emit_device *devices,
		   unsigned count, ca_emit_write_fn *write, void *arg)
{
	struct out out = { .write = write, .arg = arg };
	unsigned i;

	put(&out, "{\"format\":\"stats\",\"format_version\":1");
	if (process->identity)
		put_identity(&out, process->identity);
	put_string(&out, "site_conf", process->site_conf);
	put(&out, ",\"devices\":[");
	for (i = 0; i < count; i++) {
		if (i)
			put(&out, ",");
		put_device(&out, &devices[i]);
	}
	put(&out, "]}\n");
	out_flush(&out);
	return out.error;
}

static void
row(struct out *out, const char *label, const struct ca_gauge *gauge, bool total)
{
	char a[CA_TEXT_SIZE_MAX], b[CA_TEXT_SIZE_MAX], c[CA_TEXT_SIZE_MAX];

	ca_text_bytes(a, gauge->current);
	ca_text_bytes(b, gauge->peak);
	ca_text_bytes(c, gauge->total);
	if (total)
		putf(out, "  %-28s %12s %12s %12s\n", label, a, b, c);
	else
		putf(out, "  %-28s %12s %12s\n", label, a, b);
}

/* With it the rows add up: a program that ends may not have asked for the end of its work. */
static void
row_unfinished(struct out *out, const struct ca_stats *stats)
{
	uint64_t active = stats->active_bytes.current, live = stats->allocated_bytes.current;
	char text[CA_TEXT_SIZE_MAX];

	if (active <= live)
		return;
	ca_text_bytes(text, active - live);
	putf(out, "  %-28s %12s\n", "freed, may still be in use", text);
}

/* Hundredths of a percent, rounded down, so that 100.00% means all. */
static void
put_percent(struct out *out, uint64_t part, uint64_t whole)
{
	uint64_t points =
		whole ? (uint64_t)((__extension__(unsigned __int128) part * 10000) / whole) : 0;

	putf(out, "%llu.%llu%llu%%", (unsigned long long)(points / 100),
	     (unsigned long long)(points / 10 % 10), (unsigned long long)(points % 10));
}

static void
put_duration(struct out *out, uint64_t ns)
{
	unsigned long long seconds = ns / 1000000000, ms = ns / 1000000, us = ns / 1000;

	if (seconds >= 3600)
		putf(out, "%lluh%llum", seconds / 3600, seconds / 60 % 60);
	else if (seconds >= 60)
		putf(out, "%llum%llus", seconds / 60, seconds % 60);
	else if (seconds >= 1)
		putf(out, "%llu.%llu s", seconds, ms / 100 % 10);
	else if (ms >= 1)
		putf(out, "%llu.%llu ms", ms, us / 100 % 10);
	else
		putf(out, "%llu us", us);
}

static void
put_changes(struct out *out, const struct ca_emit_note *note)
{
	for (unsigned i = 0; i < 2; i++)
		if (note->change[i][0])
			putf(out, "        %s\n", note->change[i]);
}

/* Hits are a share of what could be one. */
static void
table_calls(struct out *out, const struct ca_stats *stats)
{
	uint64_t passed = stats->passed_alloc_calls;
	uint64_t rest = stats->alloc_calls > passed ? stats->alloc_calls - passed : 0;

	putf(out, "calls   %llu alloc, %llu free; ", (unsigned long long)stats->alloc_calls,
	     (unsigned long long)stats->free_calls);
	if (passed && !rest) {
		put(out, "all were passed on\n");
		return;
	}
	if (passed)
		putf(out, "of %llu not passed on ", (unsigned long long)rest);
	put_percent(out, stats->cache_hits, rest);
	put(out, " served from cache\n");
}

static void
table_pinned(struct out *out, const struct ca_stats *stats)
{
	char live[CA_TEXT_SIZE_MAX], peak[CA_TEXT_SIZE_MAX], cached[CA_TEXT_SIZE_MAX];

	if (!stats->pinned_alloc_calls)
		return;
	ca_text_bytes(live, stats->pinned_bytes.current);
	ca_text_bytes(peak, stats->pinned_bytes.peak);
	ca_text_bytes(cached, stats->pinned_cached_bytes.current);
	putf(out, "pinned  %llu alloc; ", (unsigned long long)stats->pinned_alloc_calls);
	put_percent(out, stats->pinned_cache_hits, stats->pinned_alloc_calls);
	putf(out, " served from cache; %s live (peak %s), %s kept\n", live, peak, cached);
}

static void
table_async(struct out *out, const struct ca_stats *stats)
{
	char live[CA_TEXT_SIZE_MAX], peak[CA_TEXT_SIZE_MAX], reserved[CA_TEXT_SIZE_MAX];

	if (!stats->async_alloc_calls)
		return;
	ca_text_bytes(live, stats->async_bytes.current);
	ca_text_bytes(peak, stats->async_bytes.peak);
	ca_text_bytes(reserved, stats->async_reserved_bytes.peak);
	putf(out, "async   %llu alloc, %llu free; ", (unsigned long long)stats->async_alloc_calls,
	     (unsigned long long)stats->async_free_calls);
	put_percent(out, stats->async_cache_hits, stats->async_alloc_calls);
	putf(out, " served from cache; %s live (peak %s), at most %s reserved\n", live, peak,
	     reserved);
}

static void
table_passed(struct out *out, const struct ca_stats *stats, const struct ca_emit_process *process)
{
	if (stats->passed_alloc_calls) {
		putf(out, "passed  %llu of these straight to the driver%s%s\n",
		     (unsigned long long)stats->passed_alloc_calls,
		     process->passed.why[0] ? ": " : "", process->passed.why);
		put_changes(out, &process->passed);
	}
	if (stats->other_alloc_calls)
		putf(out,
		     "other   %llu alloc by calls that the driver serves itself: stream-ordered\n"
		     "        memory (async:pool caches it), managed, virtual memory, arrays\n",
		     (unsigned long long)stats->other_alloc_calls);
}

/* By a setting, or by what the program did. */
static void
table_finished(struct out *out, const struct ca_stats *stats, const struct ca_emit_process *process)
{
	if (process->finished.why[0]) {
		putf(out, "reuse   only finished memory: %s\n", process->finished.why);
		put_changes(out, &process->finished);
	}
	if (!stats->finished_only_reasons)
		return;
	for (unsigned i = 0; i < REASONS; i++)
		if (stats->finished_only_reasons >> i & 1)
			putf(out, "reuse   only finished memory: %s\n", reason_of_bit[i].why);
	put(out, "        no setting changes it\n");
}

static void
table_device(struct out *out, const struct ca_emit_device *device,
	     const struct ca_emit_process *process)
{
	const struct ca_stats *stats = device->stats;

	putf(out, "device %-2u %-21.21s %12s %12s %12s\n", device->index,
	     device->name ? device->name : "", "current", "peak", "total");
	row(out, "requested by program", &stats->requested_bytes, true);
	row(out, "allocated (after rounding)", &stats->allocated_bytes, true);
	row(out, "reserved from driver", &stats->reserved_bytes, true);
	row(out, "cached, free to reuse", &stats->cached_bytes, false);
	row_unfinished(out, stats);
	table_calls(out, stats);
	putf(out, "driver  %llu alloc, %llu free, %llu OOM; ",
	     (unsigned long long)stats->driver_alloc_calls,
	     (unsigned long long)stats->driver_free_calls, (unsigned long long)stats->ooms);
	put_duration(out, stats->driver_ns);
	put(out, " inside\n");
	table_pinned(out, stats);
	table_async(out, stats);
	table_passed(out, stats, process);
	table_finished(out, stats, process);
}

int
ca_emit_stats_table(const struct ca_emit_process *process, const struct ca_emit_device *devices,
		    unsigned count, ca_emit_write_fn *write, void *arg)
{
	struct out out = { .write = write, .arg = arg };
	unsigned i;

	putf(&out, "cachealloc %s  pid %ld  %.40s  ", CA_VERSION, process->pid,
	     process->program ? process->program : "");
	put_duration(&out, process->elapsed_ns);
	put(&out, "\n");
	for (i = 0; i < count; i++)
		table_device(&out, &devices[i], process);
	if (process->site_conf) {
		put(&out, "site    settings of ");
		put(&out, process->site_conf);
		put(&out, "\n");
	}
	out_flush(&out);
	return out.error;
}

int
ca_emit_to_buffer(void *arg, const char *text, size_t length)
{
	struct ca_emit_buffer *buffer = arg;
	size_t last = buffer->size ? buffer->size - 1 : 0, end;
	size_t room = last > buffer->length ? last - buffer->length : 0;
	size_t piece = length < room ? length : room;

	if (piece)
		memcpy(buffer->text + buffer->length, text, piece);
	buffer->length += length;
	end = buffer->length < last ? buffer->length : last;
	if (buffer->size)
		buffer->text[end] = '\0';
	return 0;
}
