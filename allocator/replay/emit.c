/* SPDX-License-Identifier: MIT */
/*
 * Names are those of the statistics (allocator/core/stats.h) and the replay's own. At the top stand
 * the sums over the devices, and for the capacity the largest of them, since each device has the
 * same.
 */
#include "allocator/replay/emit.h"

#include <inttypes.h>

#include "allocator/order/order.h"
#include "config/text.h"

/* X(name, figure of a result) */
#define FIGURES(X)                                                                                 \
	X(peak_live_bytes, peak_live_bytes)                                                        \
	X(peak_reserved_bytes, peak_reserved_bytes)                                                \
	X(bytes_from_driver, bytes_from_driver)                                                    \
	X(hits, hits)                                                                              \
	X(misses, misses)                                                                          \
	X(live_at_start, at_start)                                                                 \
	X(allocations, allocations)                                                                \
	X(frees, frees)                                                                            \
	X(phases, phases)                                                                          \
	X(later_driver_alloc_calls, later_driver_allocs)                                           \
	X(later_driver_free_calls, later_driver_frees)

uint64_t
ca_replay_overhead(uint64_t live_bytes, uint64_t reserved_bytes)
{
	if (reserved_bytes <= live_bytes)
		return 0;
	return (uint64_t)(__extension__(unsigned __int128)(reserved_bytes - live_bytes) * 1000000 /
			  reserved_bytes);
}

/* ---- JSON */

void
ca_replay_emit_string(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			putc(c, out);
	}
	putc('"', out);
}

static void
put_number(FILE *out, const char *name, uint64_t number)
{
	fprintf(out, ",\"%s\":%" PRIu64, name, number);
}

/* null if it is not known. */
static void
put_known(FILE *out, const char *name, bool known, uint64_t number)
{
	if (known)
		put_number(out, name, number);
	else
		fprintf(out, ",\"%s\":null", name);
}

static void
put_times(FILE *out, const struct ca_replay_times *times)
{
	bool op = times->measured && times->op.p50 + times->op.p999;
	bool miss = times->measured && times->miss.p50 + times->miss.p999;

	put_known(out, "op_ns_mean", op, times->op.mean);
	put_known(out, "op_ns_p50", op, times->op.p50);
	put_known(out, "op_ns_p99", op, times->op.p99);
	put_known(out, "op_ns_p999", op, times->op.p999);
	put_known(out, "miss_ns_mean", miss, times->miss.mean);
	put_known(out, "miss_ns_p50", miss, times->miss.p50);
	put_known(out, "miss_ns_p99", miss, times->miss.p99);
	put_known(out, "miss_ns_p999", miss, times->miss.p999);
}

static void
put_reasons(FILE *out, uint64_t reasons)
{
	const char *comma = "";

	fprintf(out, ",\"finished_only_reasons\":[");
#define X(name, text, why)                                                                         \
	if (reasons & CA_REASON_##name) {                                                          \
		fprintf(out, "%s\"%s\"", comma, text);                                             \
		comma = ",";                                                                       \
	}
	CA_FINISHED_ONLY_REASONS(X)
#undef X
	fprintf(out, "]");
}

static void
put_stats(FILE *out, const struct ca_stats *stats)
{
#define X(name) put_number(out, #name, stats->name);
	CA_STATS_COUNTERS(X)
	CA_STATS_FIGURES(X)
#undef X
	put_reasons(out, stats->finished_only_reasons);
#define X(name)                                                                                    \
	fprintf(out,                                                                               \
		",\"" #name "\":{\"current\":%" PRIu64 ",\"peak\":%" PRIu64 ",\"total\":%" PRIu64  \
		"}",                                                                               \
		stats->name.current, stats->name.peak, stats->name.total);
	CA_STATS_GAUGES(X)
#undef X
}

static void
put_oom(FILE *out, const struct ca_replay_report *report, const struct ca_replay_result *result)
{
	const struct ca_replay_oom *oom = &result->oom;

	if (!result->out_of_memory) {
		fprintf(out, ",\"out_of_memory\":null");
		return;
	}
	fprintf(out, ",\"out_of_memory\":{\"event\":%" PRIu64, oom->event);
	put_number(out, report->input->lines ? "line" : "offset", oom->where);
	put_number(out, "request_bytes", oom->request_bytes);
	put_number(out, "live_bytes", oom->live_bytes);
	put_number(out, "reserved_bytes", oom->reserved_bytes);
	fprintf(out, "}");
}

static void
put_rejected(FILE *out, const struct ca_replay_rejected *rejected)
{
	if (!rejected->event.bytes) {
		fprintf(out, ",\"recorded_refusal\":null");
		return;
	}
	fprintf(out, ",\"recorded_refusal\":{\"request_bytes\":%" PRIu64, rejected->event.bytes);
	fprintf(out, ",\"road\":\"%s\"",
		rejected->event.road == CA_REPLAY_ASYNC ? "async" : "sync");
	put_number(out, "event", rejected->before + 1);
	put_known(out, "reserved_bytes", rejected->reserved_bytes != UINT64_MAX,
		  rejected->reserved_bytes);
	put_known(out, "free_bytes", rejected->free_bytes != UINT64_MAX, rejected->free_bytes);
	put_known(out, "segment_bytes", rejected->segment_bytes != 0, rejected->segment_bytes);
	fprintf(out, "}");
}

static void
put_road(FILE *out, const char *name, const struct ca_replay_road_result *road,
	 uint64_t reserved_bytes, uint64_t recorded_bytes)
{
	fprintf(out, "\"%s\":{\"allocations\":%" PRIu64, name, road->hits + road->misses);
	put_number(out, "frees", road->frees);
	put_number(out, "hits", road->hits);
	put_number(out, "misses", road->misses);
	put_number(out, "live_bytes", road->live_bytes);
	put_number(out, "driver_alloc_calls", road->driver_allocs);
	put_number(out, "driver_free_calls", road->driver_frees);
	put_number(out, "peak_live_bytes", road->peak_live_bytes);
	put_number(out, "peak_reserved_bytes", reserved_bytes);
	put_known(out, "recorded_reserved_bytes", recorded_bytes != 0, recorded_bytes);
	fprintf(out, "}");
}

static void
put_roads(FILE *out, const struct ca_replay_report *report, const struct ca_replay_result *result)
{
	const struct ca_replay_input *input = report->input;
	const struct ca_replay_pinned *pinned = &input->pinned[result->device];
	const struct ca_replay_road_result recorded = { .hits = pinned->hits,
							.misses = pinned->allocs - pinned->hits,
							.frees = pinned->frees,
							.live_bytes = pinned->live_bytes,
							.driver_allocs = pinned->taken,
							.driver_frees = pinned->returned,
							.peak_live_bytes =
								pinned->peak_live_bytes };

	fprintf(out, ",\"roads\":{");
	put_road(out, "sync", &result->road[CA_REPLAY_SYNC], result->stats.reserved_bytes.peak,
		 input->recorded_reserved_bytes[result->device]);
	fprintf(out, ",");
	put_road(out, "async", &result->road[CA_REPLAY_ASYNC],
		 result->stats.async_reserved_bytes.peak,
		 input->recorded_async_reserved_bytes[result->device]);
	fprintf(out, ",");
	put_road(out, "pinned", &recorded, pinned->peak_reserved_bytes,
		 pinned->bytes.current + pinned->cached.current);
	fprintf(out, "}");
}

static void
put_device(FILE *out, const struct ca_replay_report *report, unsigned i)
{
	const struct ca_replay_result *result = &report->results[i];
	uint64_t recorded = report->input->recorded_reserved_bytes[result->device];

	fprintf(out, "{\"index\":%u", result->device);
#define X(name, figure) put_number(out, #name, result->figure);
	FIGURES(X)
#undef X
	put_number(out, "streams", result->streams);
	put_number(out, "waste_ppm",
		   ca_replay_overhead(result->peak_live_bytes, result->peak_reserved_bytes));
	put_known(out, "min_capacity_bytes", report->min_capacity_bytes,
		  report->min_capacity_bytes ? report->min_capacity_bytes[i] : 0);
	put_known(out, "recorded_reserved_bytes", recorded != 0, recorded);
	put_number(out, "recorded_failed_calls",
		   report->input->recorded_failed_calls[result->device]);
	put_number(out, "recorded_failed_bytes",
		   report->input->recorded_failed_bytes[result->device]);
	put_known(out, "recorded_memory_bytes",
		  report->input->about.device_bytes[result->device] != 0,
		  report->input->about.device_bytes[result->device]);
	put_rejected(out, &report->input->rejected[result->device]);
	put_times(out, &result->times);
	put_oom(out, report, result);
	put_roads(out, report, result);
	put_stats(out, &result->stats);
	fprintf(out, "}");
}

static void
put_sums(FILE *out, const struct ca_replay_report *report)
{
	uint64_t live = 0, reserved = 0, capacity = 0;
	unsigned i;

#define X(name, figure)                                                                            \
	{                                                                                          \
		uint64_t sum = 0;                                                                  \
		for (i = 0; i < report->n_results; i++)                                            \
			sum += report->results[i].figure;                                          \
		put_number(out, #name, sum);                                                       \
	}
	FIGURES(X)
#undef X
	for (i = 0; i < report->n_results; i++) {
		live += report->results[i].peak_live_bytes;
		reserved += report->results[i].peak_reserved_bytes;
		if (report->min_capacity_bytes && report->min_capacity_bytes[i] > capacity)
			capacity = report->min_capacity_bytes[i];
	}
	put_number(out, "waste_ppm", ca_replay_overhead(live, reserved));
	put_known(out, "min_capacity_bytes", report->min_capacity_bytes, capacity);
}

static bool
completed(const struct ca_replay_report *report)
{
	unsigned i;

	for (i = 0; i < report->n_results; i++)
		if (report->results[i].out_of_memory)
			return false;
	return true;
}

void
ca_replay_emit_json(const struct ca_replay_report *report, FILE *out)
{
	const struct ca_replay_input *input = report->input;
	unsigned i;

	fprintf(out, "{\"format\":\"replay\",\"format_version\":1,\"version\":\"%s\",\"file\":",
		CA_VERSION);
	ca_replay_emit_string(out, report->file);
	fprintf(out, ",\"input_format\":");
	ca_replay_emit_string(out, input->format);
	fprintf(out, ",\"conf\":");
	ca_replay_emit_string(out, report->conf);
	put_known(out, "lag_us", report->lag_ns != CA_REPLAY_AS_TOLD || !input->told,
		  report->lag_ns == CA_REPLAY_AS_TOLD ? 0 : report->lag_ns / 1000);
	put_known(out, "memory_bytes", report->memory_bytes != CA_REPLAY_UNLIMITED,
		  report->memory_bytes);
	fprintf(out, ",\"to_refusal\":%s", report->to_rejected ? "true" : "false");
	put_number(out, "events", input->count);
	put_number(out, "segment_events", input->segment_events);
	put_number(out, "other_events", input->other_events);
	fprintf(out, ",\"truncated\":%s,\"completed\":%s", input->truncated ? "true" : "false",
		completed(report) ? "true" : "false");
	put_sums(out, report);
	fprintf(out, ",\"devices\":[");
	for (i = 0; i < report->n_results; i++) {
		if (i)
			fprintf(out, ",");
		put_device(out, report, i);
	}
	fprintf(out, "]}\n");
}

/* ---- for people */

static void
size_line(FILE *out, const char *label, uint64_t bytes)
{
	char text[CA_TEXT_SIZE_MAX];

	fprintf(out, "  %-24s %12s\n", label, ca_text_bytes(text, bytes));
}

static void
text_times(FILE *out, const struct ca_replay_times *times)
{
	if (!times->measured)
		return;
	fprintf(out,
		"  %-24s %9" PRIu64 " ns mean, %" PRIu64 " p50, %" PRIu64 " p99, %" PRIu64
		" p99.9\n",
		"hits and frees", times->op.mean, times->op.p50, times->op.p99, times->op.p999);
	fprintf(out,
		"  %-24s %9" PRIu64 " ns mean, %" PRIu64 " p50, %" PRIu64 " p99, %" PRIu64
		" p99.9, without the driver\n",
		"misses", times->miss.mean, times->miss.p50, times->miss.p99, times->miss.p999);
}

/* Memory that is enough for what the program got may be the very memory in which it was refused
 * more. */
static void
text_failed(FILE *out, const struct ca_replay_report *report, unsigned device)
{
	const struct ca_replay_input *input = report->input;
	char text[CA_TEXT_SIZE_MAX];

	if (input->recorded_failed_calls[device])
		fprintf(out, "  %-24s %12" PRIu64 " requests, %s; the largest: %s\n",
			"refused when recorded", input->recorded_failed_calls[device],
			report->to_rejected ? "the last played" : "not played",
			ca_text_bytes(text, input->recorded_failed_bytes[device]));
}

/* Beside cuMemAlloc's, where there is any. */
static void
text_roads(FILE *out, const struct ca_replay_report *report, const struct ca_replay_result *result)
{
	const struct ca_replay_road_result *async = &result->road[CA_REPLAY_ASYNC];
	const struct ca_replay_pinned *pinned = &report->input->pinned[result->device];
	char live[CA_TEXT_SIZE_MAX], reserved[CA_TEXT_SIZE_MAX];

	if (async->hits + async->misses)
		fprintf(out, "  %-24s %12" PRIu64 " allocations; peak live %s, reserved %s\n",
			"of that stream-ordered", async->hits + async->misses,
			ca_text_bytes(live, async->peak_live_bytes),
			ca_text_bytes(reserved, result->stats.async_reserved_bytes.peak));
	if (pinned->allocs)
		fprintf(out,
			"  %-24s %12" PRIu64 " allocations; peak live %s, reserved %s (recorded)\n",
			"page-locked besides", pinned->allocs,
			ca_text_bytes(live, pinned->peak_live_bytes),
			ca_text_bytes(reserved, pinned->peak_reserved_bytes));
}

static void
text_device(FILE *out, const struct ca_replay_report *report, unsigned i)
{
	const struct ca_replay_result *result = &report->results[i];
	uint64_t waste = ca_replay_overhead(result->peak_live_bytes, result->peak_reserved_bytes);
	uint64_t recorded = report->input->recorded_reserved_bytes[result->device] +
			    report->input->recorded_async_reserved_bytes[result->device];

	fprintf(out,
		"device %u: %" PRIu64 " allocations (%" PRIu64 " live at the start), %" PRIu64
		" frees, %" PRIu64 " phases\n",
		result->device, result->hits + result->misses, result->at_start, result->frees,
		result->phases);
	size_line(out, "peak live", result->peak_live_bytes);
	size_line(out, "peak reserved", result->peak_reserved_bytes);
	fprintf(out, "  %-24s %9" PRIu64 ".%02" PRIu64 " %%\n", "waste", waste / 10000,
		waste / 100 % 100);
	if (recorded)
		size_line(out, "reserved when recorded", recorded);
	text_failed(out, report, result->device);
	if (report->min_capacity_bytes)
		size_line(out, "smallest memory", report->min_capacity_bytes[i]);
	fprintf(out, "  %-24s %12" PRIu64 " of %" PRIu64 "\n", "hits", result->hits,
		result->hits + result->misses);
	size_line(out, "taken from the driver", result->bytes_from_driver);
	fprintf(out, "  %-24s %12" PRIu64 " alloc, %" PRIu64 " free", "driver calls",
		result->road[CA_REPLAY_SYNC].driver_allocs +
			result->road[CA_REPLAY_ASYNC].driver_allocs,
		result->road[CA_REPLAY_SYNC].driver_frees +
			result->road[CA_REPLAY_ASYNC].driver_frees);
	if (result->phases > 1)
		fprintf(out, " (after the first phase %" PRIu64 " and %" PRIu64 ")",
			result->later_driver_allocs, result->later_driver_frees);
	fprintf(out, "\n");
	text_roads(out, report, result);
	text_times(out, &result->times);
}

void
ca_replay_emit_text(const struct ca_replay_report *report, FILE *out)
{
	unsigned i;

	fprintf(out, "%s: %s, %zu events\n", report->file, report->input->format,
		report->input->count);
	for (i = 0; i < report->n_results; i++)
		text_device(out, report, i);
}
