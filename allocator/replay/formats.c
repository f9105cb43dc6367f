/* SPDX-License-Identifier: MIT */
/* Every format that can be replayed, and the way from a file's bytes to its resolved events. */
#include <errno.h>
#include <string.h>

#include "allocator/replay/input.h"
#include "allocator/replay/input_trace.h"
#include "allocator/replay/readers.h"

/* Told apart by content: a format that can be mistaken for another stands behind it. */
const struct ca_replay_format ca_replay_formats[] = {
	{ "cachealloc trace", ca_replay_is_trace, ca_replay_read_trace },
	{ "PyTorch snapshot (pickle)", ca_replay_is_pickle, ca_replay_read_pickle },
	{ "PyTorch snapshot (JSON)", ca_replay_is_json, ca_replay_read_json },
	{ "RMM log", ca_replay_is_rmm, ca_replay_read_rmm },
	{ "lifetimes", ca_replay_is_lifetimes, ca_replay_read_lifetimes },
	{ "trc text", ca_replay_is_trc, ca_replay_read_trc },
	{ 0 },
};

/* Files that are something else, and what to do with them. */
static const struct {
	const char *magic;
	size_t length;
	const char *advice;
} compressed[] = {
	{ "\xfd\x37\x7a\x58\x5a", 5, "xz -dc FILE | cachealloc-replay -" },
	{ "\x1f\x8b", 2, "gzip -dc FILE | cachealloc-replay -" },
	{ "\x28\xb5\x2f\xfd", 4, "zstd -dc FILE | cachealloc-replay -" },
	{ "BZh", 3, "bzip2 -dc FILE | cachealloc-replay -" },
};

static int
unknown(const uint8_t *data, size_t size, struct ca_replay_error *error)
{
	size_t i;

	if (!size)
		return ca_replay_fail(error, "the file is empty");
	for (i = 0; i < sizeof(compressed) / sizeof(compressed[0]); i++)
		if (size >= compressed[i].length &&
		    !memcmp(data, compressed[i].magic, compressed[i].length))
			return ca_replay_fail(error, "the file is compressed; try: %s",
					      compressed[i].advice);
	return ca_replay_fail(error, "this is no trace of a known format; a log? "
				     "`cachealloc explain` reads it");
}

int
ca_replay_input_read(const uint8_t *data, size_t size, struct ca_replay_input *ret_input,
		     struct ca_replay_error *error)
{
	const struct ca_replay_format *format = ca_replay_formats;
	struct ca_replay_input input = { 0 };
	int r;

	while (format->name && !format->is(data, size))
		format++;
	if (!format->name)
		return unknown(data, size, error);
	input.format = format->name;
	r = format->read(data, size, &input, error);
	if (r == -ENOMEM)
		ca_replay_fail(error, "out of host memory");
	if (!r)
		r = ca_replay_input_resolve(&input, error);
	if (r)
		ca_replay_input_clear(&input);
	else
		*ret_input = input;
	return r;
}
