/* SPDX-License-Identifier: MIT */
/*
 * The file of timelines. Why a segment went back is decided from its neighbours: segments that come
 * and go between two events of the program belong to one call.
 */
#include "allocator/replay/timeline_inside.h"

#include <errno.h>
#include <inttypes.h>

#include "allocator/replay/emit.h"

static bool
is_the_programs(uint64_t kind)
{
	return kind == CA_TIMELINE_LIVE || kind == CA_TIMELINE_ALLOC || kind == CA_TIMELINE_FREED;
}

/* Each return of the events from `first` up to, and not including, `end`, which are one call's. */
static void
name_returns(struct ca_timeline *timeline, size_t first, size_t end)
{
	uint8_t *kind = timeline->column[CA_TIMELINE_COLUMN_kind].data;
	bool later = false, refused = false;
	size_t i;

	for (i = end; i-- > first;) {
		if (kind[i] == CA_TIMELINE_TRIM && later)
			kind[i] = CA_TIMELINE_GIVE_BACK;
		later |= kind[i] == CA_TIMELINE_TAKEN || kind[i] == CA_TIMELINE_REFUSED ||
			 kind[i] == CA_TIMELINE_FAILED;
	}
	for (i = first; i < end; i++) {
		if (kind[i] == CA_TIMELINE_GIVE_BACK && refused)
			kind[i] = CA_TIMELINE_FLUSH;
		refused |= kind[i] == CA_TIMELINE_REFUSED;
	}
}

static void
name_all_returns(struct ca_timeline *timeline)
{
	const struct ca_timeline_column *kind = &timeline->column[CA_TIMELINE_COLUMN_kind];
	size_t first = 0, i;

	for (i = 0; i < kind->count; i++) {
		bool failed = kind->data[i] == CA_TIMELINE_FAILED;

		if (!failed && !is_the_programs(kind->data[i]))
			continue;
		name_returns(timeline, first, i + failed);
		first = i + 1;
	}
	name_returns(timeline, first, kind->count);
}

static void
write_text(const char *name, const char *text, FILE *out)
{
	fprintf(out, ",\"%s\":", name);
	if (text && *text)
		ca_replay_emit_string(out, text);
	else
		fprintf(out, "null");
}

static void
write_head(const struct ca_timeline *timeline, const struct ca_replay_input *input, unsigned device,
	   const char *source, FILE *out)
{
	uint64_t bytes = 0;
	unsigned i;

	fprintf(out,
		"{\"format\":\"timeline\",\"format_version\":1,\"device\":%u,\"source\":\"%s\","
		"\"clock\":%s,\"start_unix_ns\":%" PRIu64 ",\"pid\":%" PRIu32
		",\"device_bytes\":%" PRIu64,
		device, source, timeline->last_ns == CA_REPLAY_NO_TIME ? "false" : "true",
		input->about.start_unix_ns, input->about.pid, input->about.device_bytes[device]);
	write_text("device_name", input->about.device_name[device], out);
	write_text("program", input->about.program, out);
	write_text("settings", input->about.settings, out);
	fprintf(out, ",\"columns\":[");
	for (i = 0; i < CA_TIMELINE_COLUMN_COUNT; i++) {
		fprintf(out, "%s[\"%s\",\"%s\",%zu]", i ? "," : "", ca_timeline_columns[i].name,
			ca_timeline_columns[i].type, timeline->column[i].count);
		bytes += (uint64_t)timeline->column[i].count * ca_timeline_columns[i].width;
	}
	fprintf(out, "],\"bytes\":%" PRIu64 "}\n", bytes);
}

int
ca_timeline_write(struct ca_timeline *timeline, const struct ca_replay_input *input,
		  unsigned device, const char *source, FILE *out)
{
	unsigned i;

	if (timeline->failed)
		return -ENOMEM;
	name_all_returns(timeline);
	write_head(timeline, input, device, source, out);
	for (i = 0; i < CA_TIMELINE_COLUMN_COUNT; i++)
		if (timeline->column[i].count)
			fwrite(timeline->column[i].data, ca_timeline_columns[i].width,
			       timeline->column[i].count, out);
	return ferror(out) ? -EIO : 0;
}
