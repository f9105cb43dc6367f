/* SPDX-License-Identifier: MIT */
/*
 * A snapshot that `cachealloc convert` made of a trace has the whole trace with it, as a list of
 * texts in base64: the trace tells more than a snapshot can, such as when work on a stream had
 * ended, and a replay needs all of it.
 */
#include "allocator/replay/snapshot_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/replay/input_trace.h"

struct bytes {
	uint8_t *data;
	size_t count, room;
};

static int
digit(uint8_t c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Four characters are three bytes, or less where there is padding; 0: they are no base64. */
static unsigned
decode(const char *from, uint8_t *ret)
{
	unsigned count = from[3] != '=' ? 3 : from[2] != '=' ? 2 : 1, i;
	uint32_t bits = 0;

	for (i = 0; i < 4; i++) {
		int value = i > count ? 0 : digit((uint8_t)from[i]);

		if (value < 0)
			return 0;
		bits = bits << 6 | (uint32_t)value;
	}
	for (i = 0; i < 3; i++)
		ret[i] = (uint8_t)(bits >> 8 * (2 - i));
	return count;
}

static int
append(struct bytes *bytes, struct ca_replay_text text)
{
	size_t most = bytes->count + text.length / 4 * 3, i;
	unsigned count = 3;

	if (text.length % 4)
		return -EINVAL;
	if (most > bytes->room) {
		size_t room = most > 2 * bytes->room ? most : 2 * bytes->room;
		uint8_t *bigger = realloc(bytes->data, room);

		if (!bigger)
			return -ENOMEM;
		bytes->data = bigger;
		bytes->room = room;
	}
	for (i = 0; i < text.length; i += 4) {
		if (count < 3)
			return -EINVAL; /* padding is last */
		count = decode(text.at + i, bytes->data + bytes->count);
		if (!count)
			return -EINVAL;
		bytes->count += count;
	}
	return 0;
}

int
ca_snapshot_read_trace(const struct ca_snapshot_source *source,
		       const struct ca_snapshot_value *list, struct ca_replay_input *input,
		       struct ca_replay_error *error)
{
	struct ca_snapshot_cursor cursor = { .list = list->number };
	struct ca_snapshot_value piece;
	struct bytes bytes = { 0 };
	int r;

	while ((r = source->next(source->self, &cursor, &piece, error)) > 0) {
		/* a pickle may name one text many times */
		if (piece.type == CA_SNAPSHOT_TEXT &&
		    piece.text.length / 4 * 3 > source->bytes - bytes.count) {
			r = ca_replay_fail(error,
					   "the trace in the snapshot is larger than the file");
			break;
		}
		r = piece.type == CA_SNAPSHOT_TEXT ? append(&bytes, piece.text) : -EINVAL;
		if (r == -EINVAL)
			ca_replay_fail(error, "the trace in the snapshot is not in base64");
		if (r)
			break;
	}
	if (!r && !ca_replay_is_trace(bytes.data, bytes.count))
		r = ca_replay_fail(error, "the trace in the snapshot is none");
	if (!r)
		r = ca_replay_read_trace(bytes.data, bytes.count, input, error);
	free(bytes.data);
	return r;
}
