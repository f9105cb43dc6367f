/* SPDX-License-Identifier: MIT */
/*
 * A pickle is a program for a stack: what is pushed between a mark and SETITEMS goes into the
 * dictionary below the mark, APPEND puts one value into the list below it. Only instructions are
 * used that PyTorch's page reads, too (protocol 4). A key is written out once, and then named by
 * its number in the memo.
 */
#include "allocator/api/heap_snapshot.h"

#include <string.h>

#include "config/text.h"

#define PROTOCOL "\x80\x04"
enum { SMALL_SEGMENT = 2 << 20, BUFFER_BYTES = 4096, TEXT_MAX = 200 };

#define KEYS(X)                                                                                    \
	X(segments)                                                                                \
	X(device_traces)                                                                           \
	X(allocator_settings)                                                                      \
	X(external_annotations)                                                                    \
	X(made_by)                                                                                 \
	X(reason)                                                                                  \
	X(program)                                                                                 \
	X(pid)                                                                                     \
	X(time_us)                                                                                 \
	X(action)                                                                                  \
	X(addr)                                                                                    \
	X(refused_size)                                                                            \
	X(device)                                                                                  \
	X(address)                                                                                 \
	X(total_size)                                                                              \
	X(allocated_size)                                                                          \
	X(active_size)                                                                             \
	X(requested_size)                                                                          \
	X(stream)                                                                                  \
	X(segment_type)                                                                            \
	X(road)                                                                                    \
	X(segment_pool_id)                                                                         \
	X(is_expandable)                                                                           \
	X(frames)                                                                                  \
	X(blocks)                                                                                  \
	X(size)                                                                                    \
	X(state)

enum key {
#define X(name) KEY_##name,
	KEYS(X)
#undef X
		KEY_COUNT,
};
_Static_assert(KEY_COUNT <= 32, "a bit each");

struct emitter {
	ca_emit_write_fn *write;
	void *arg;
	int r; /* of `write`; nothing is written after a failure */
	size_t length;
	uint32_t known; /* keys that were written out */
	char buffer[BUFFER_BYTES];
};

static void
flush(struct emitter *e)
{
	if (!e->r && e->length)
		e->r = e->write(e->arg, e->buffer, e->length);
	e->length = 0;
}

static void
put(struct emitter *e, const char *bytes, size_t length)
{
	if (length > sizeof(e->buffer) - e->length)
		flush(e);
	memcpy(e->buffer + e->length, bytes, length);
	e->length += length;
}

#define PUT(e, bytes) put(e, bytes, sizeof(bytes) - 1)

/* At most TEXT_MAX bytes. */
static void
put_text(struct emitter *e, const char *text)
{
	size_t length = strlen(text);
	char head[2] = { (char)0x8c, (char)length }; /* SHORT_BINUNICODE */

	put(e, head, sizeof(head));
	put(e, text, length);
}

static void
put_key(struct emitter *e, enum key key)
{
	static const char *const names[] = {
#define X(name) #name,
		KEYS(X)
#undef X
	};
	char number[2] = { 'q', (char)key }; /* BINPUT */

	if (e->known >> key & 1)
		number[0] = 'h'; /* BINGET */
	else
		put_text(e, names[key]);
	put(e, number, sizeof(number));
	e->known |= (uint32_t)1 << key;
}

static void
put_number(struct emitter *e, enum key key, uint64_t value)
{
	char bytes[11] = { (char)0x8a, 9 }; /* LONG1, with a byte for the sign */
	unsigned i;

	put_key(e, key);
	if (value < 256) {
		bytes[0] = 'K'; /* BININT1 */
		bytes[1] = (char)value;
		put(e, bytes, 2);
		return;
	}
	for (i = 0; i < 8; i++)
		bytes[2 + i] = (char)(value >> 8 * i);
	bytes[1] = value >> 63 ? 9 : 8; /* the page takes no more than 8 as a number */
	put(e, bytes, (size_t)bytes[1] + 2);
}

static void
put_string(struct emitter *e, enum key key, const char *text)
{
	char shown[TEXT_MAX];

	put_key(e, key);
	put_text(e, ca_text_escape(shown, sizeof(shown), text));
}

static void
put_block(struct emitter *e, const struct ca_snapshot_row *row)
{
	static const char *const states[] = {
		[CA_SNAPSHOT_LIVE] = "active_allocated",
		[CA_SNAPSHOT_WAITS] = "active_pending_free",
		[CA_SNAPSHOT_FREE] = "inactive",
	};

	PUT(e, "}(");
	put_number(e, KEY_address, row->address);
	put_number(e, KEY_size, row->bytes);
	put_number(e, KEY_requested_size,
		   row->kind == CA_SNAPSHOT_LIVE ? row->requested : row->bytes);
	put_string(e, KEY_state, states[row->kind]);
	put_key(e, KEY_frames);
	PUT(e, "]ua");
}

/* As of PyTorch's own pools: (0, 0) is none. */
static void
put_pool(struct emitter *e, unsigned pool)
{
	char id[] = { 'K', 0, 'K', (char)(pool < 255 ? pool : 255), (char)0x86 }; /* TUPLE2 */

	put_key(e, KEY_segment_pool_id);
	put(e, id, sizeof(id));
}

/* The segment's own values, of which three are sums over its blocks, up to `end`. */
static void
put_segment_head(struct emitter *e, const struct ca_snapshot_row *segment,
		 const struct ca_snapshot_row *end)
{
	uint64_t live = 0, active = 0, requested = 0;
	const struct ca_snapshot_row *row;

	for (row = segment + 1; row < end; row++) {
		live += row->kind == CA_SNAPSHOT_LIVE ? row->bytes : 0;
		active += row->kind == CA_SNAPSHOT_FREE ? 0 : row->bytes;
		requested += row->requested;
	}
	put_number(e, KEY_device, segment->device & ~CA_SNAPSHOT_EXTENT);
	put_number(e, KEY_address, segment->address);
	put_number(e, KEY_total_size, segment->bytes);
	put_number(e, KEY_allocated_size, live);
	put_number(e, KEY_active_size, active);
	put_number(e, KEY_requested_size, requested);
	put_number(e, KEY_stream, 0);
	put_string(e, KEY_segment_type, segment->bytes <= SMALL_SEGMENT ? "small" : "large");
	put_string(e, KEY_road, segment->pool ? "async" : "sync");
	put_pool(e, segment->pool);
	put_key(e, KEY_is_expandable);
	if (segment->device & CA_SNAPSHOT_EXTENT)
		PUT(e, "\x88"); /* NEWTRUE */
	else
		PUT(e, "\x89"); /* NEWFALSE */
	put_key(e, KEY_frames);
	PUT(e, "]");
}

static void
put_segments(struct emitter *e, const struct ca_heap_snapshot *snapshot)
{
	const struct ca_snapshot_row *row = snapshot->rows, *end = row + snapshot->count, *next;

	put_key(e, KEY_segments);
	PUT(e, "]");
	for (; row < end && !e->r; row = next) {
		for (next = row + 1; next < end && next->kind != CA_SNAPSHOT_SEGMENT; next++)
			;
		PUT(e, "}(");
		put_segment_head(e, row, next);
		put_key(e, KEY_blocks);
		PUT(e, "]");
		for (row++; row < next; row++)
			put_block(e, row);
		PUT(e, "ua");
	}
}

/* The one event of each device: that the snapshot was taken. Without any the page shows no map. */
static void
put_traces(struct emitter *e, unsigned devices, uint64_t time_us)
{
	unsigned i;

	put_key(e, KEY_device_traces);
	PUT(e, "]");
	for (i = 0; i < devices; i++) {
		PUT(e, "]}(");
		put_string(e, KEY_action, "snapshot");
		put_number(e, KEY_addr, 0);
		put_number(e, KEY_size, 0);
		put_number(e, KEY_stream, 0);
		put_number(e, KEY_time_us, time_us);
		put_key(e, KEY_frames);
		PUT(e, "]uaa");
	}
}

static void
put_note(struct emitter *e, const struct ca_snapshot_note *note)
{
	put_string(e, KEY_made_by, "cachealloc " CA_VERSION);
	put_string(e, KEY_reason, note->reason);
	put_string(e, KEY_program, note->program ? note->program : "");
	put_number(e, KEY_pid, (uint64_t)note->pid);
	put_number(e, KEY_time_us, note->time_unix_ns / 1000);
	put_number(e, KEY_refused_size, note->failed_bytes);
}

int
ca_heap_snapshot_emit(const struct ca_heap_snapshot *snapshot, const struct ca_snapshot_note *note,
		      ca_emit_write_fn *write, void *arg)
{
	struct emitter e = { .write = write, .arg = arg };

	PUT(&e, PROTOCOL "}(");
	put_segments(&e, snapshot);
	put_traces(&e, snapshot->devices, note->time_unix_ns / 1000);
	put_key(&e, KEY_allocator_settings);
	PUT(&e, "}");
	put_key(&e, KEY_external_annotations);
	PUT(&e, "]");
	put_note(&e, note);
	PUT(&e, "u.");
	flush(&e);
	return e.r;
}
