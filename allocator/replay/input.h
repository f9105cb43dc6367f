/* SPDX-License-Identifier: MIT */
/*
 * The events of a recorded trace, in the form in which a replay plays them, whatever the trace's
 * format.
 *
 * A reader is a function over the whole file in memory that appends events; it neither prints nor
 * exits, and believes nothing: every size, count, depth and number of the file is checked before it
 * is used, and no more memory is taken than the file's size allows for. The formats are listed in
 * allocator/replay/formats.c, which tells them apart by content. This is a tool's code: malloc and
 * stdio are allowed.
 *
 * A reader gives events in the order of the trace and may leave these things to
 * ca_replay_input_resolve, which runs after it:
 *   - an id names a block from its allocation to its free and may then be used again (an address);
 *   - a free of an id that is not live, with bytes: the block was live at the start;
 *   - blocks never freed stay live to the end;
 *   - a time that falls (several threads wrote the trace) is raised to the one before.
 *
 * Results: 0 done; -EINVAL: not of this format, or broken (the error says where); -ENOMEM. Not
 * thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/stats.h"

enum ca_replay_kind {
	CA_REPLAY_LIVE,  /* live at the start; may come at any place, counts as before all others */
	CA_REPLAY_ALLOC, /* of `bytes` on `stream` */
	CA_REPLAY_FREE,  /* `bytes` and `stream` only where the format tells them, else 0 */
	CA_REPLAY_PHASE, /* everything submitted to `device` has finished */
	CA_REPLAY_SUBMIT, /* work on `stream`; readers need not give any: allocations and frees
			   * imply a piece of work on their block's stream */
	CA_REPLAY_PLACE,  /* the next allocation may need a segment of `bytes`, which lay at `id` */
	CA_REPLAY_SEEN, /* at `id`, in ns as time_ns, all work of `stream` so far was seen finished
			 * by an allocator that asked from time_ns on */
	CA_REPLAY_PARTLY, /* all work of `stream` up to the free that is event `id` has finished */
	CA_REPLAY_TRIM,   /* the pool gives back until it has no more than `id` bytes */
	CA_REPLAY_RECORD, /* the event `id` is recorded in `stream` */
	CA_REPLAY_WAIT,   /* `stream` comes after its last record */
	CA_REPLAY_POOL, /* the pool has the rules `id` (CA_TRACE_POOL_*) from now on; bytes 0: it is
			 * destroyed */
};

/* By which calls memory comes and goes. */
enum ca_replay_road {
	CA_REPLAY_SYNC,  /* cuMemAlloc */
	CA_REPLAY_ASYNC, /* stream-ordered, from a pool */
	CA_REPLAY_ROADS,
};

#define CA_REPLAY_NO_TIME UINT64_MAX
enum {
	CA_REPLAY_DEVICES = 64, /* ordinals are below */
	CA_REPLAY_NAME_BYTES = 64,
};

/* Acts of the recording allocator: not played, for a timeline only. */
enum ca_replay_act_kind {
	CA_REPLAY_TAKEN,     /* a segment came from the driver */
	CA_REPLAY_RETURNED,  /* a range of segments went back to it */
	CA_REPLAY_HELD,      /* a segment that was there at the end of the recording */
	CA_REPLAY_REFUSED,   /* the driver refused a segment */
	CA_REPLAY_FAILED,    /* the program was refused an allocation */
	CA_REPLAY_SETTLING,  /* memory that the program freed waits for the device ... */
	CA_REPLAY_COMPLETED, /* ... and does no more */
};

struct ca_replay_event {
	uint64_t id;      /* LIVE, ALLOC, FREE: of the block: an address, or any number */
	uint64_t bytes;   /* as asked for; LIVE, ALLOC: > 0; FREE: 0 if not known */
	uint64_t time_ns; /* from any origin; or CA_REPLAY_NO_TIME */
	uint64_t stream;  /* as recorded (a handle or a number); 0: the default stream */
	uint64_t where;   /* line (from 1) or byte offset in the file, for messages */
	uint16_t thread;  /* as recorded, the low bits; 0: not known. For information only */
	uint16_t pool;    /* POOL, TRIM, and ALLOC of CA_REPLAY_ASYNC: its number */
	uint8_t device;   /* ordinal, below CA_REPLAY_DEVICES */
	uint8_t kind;     /* enum ca_replay_kind */
	uint8_t road;     /* enum ca_replay_road, of ALLOC, FREE, LIVE */
	bool birth : 1;   /* only where `told`. ALLOC of CA_REPLAY_ASYNC: a segment was allocated in
			   * the stream, which had nothing else to do */
	bool no_stream : 1; /* only where `told`. ALLOC: nothing was submitted before; FREE: no
			     * unfinished work may use the block. FREE of CA_REPLAY_ASYNC: it
			     * names no stream */
};

struct ca_replay_act {
	uint64_t before; /* the number of the event that follows */
	uint64_t time_ns;
	uint64_t address;
	uint64_t bytes;
	uint16_t device;
	uint8_t kind; /* enum ca_replay_act_kind */
	uint8_t road; /* enum ca_replay_road */
};

/* About the recording, for people; NULL or 0: not known. */
struct ca_replay_about {
	char *program, *settings; /* malloc */
	uint64_t start_unix_ns;
	uint32_t pid;
	uint64_t device_bytes[CA_REPLAY_DEVICES];
	char device_name[CA_REPLAY_DEVICES][CA_REPLAY_NAME_BYTES];
};

/* Page-locked host memory, as it was recorded: it is not played. */
struct ca_replay_pinned {
	uint64_t allocs, frees, hits;         /* calls; allocations of memory that had been freed */
	uint64_t taken, returned;             /* from and to the driver */
	uint64_t live_bytes, peak_live_bytes; /* as asked for */
	struct ca_gauge bytes,
		cached;               /* as the driver gave it: the program's, and freed and kept */
	uint64_t peak_reserved_bytes; /* both */
};

/* The last request that the recorded program was refused on a device. */
struct ca_replay_rejected {
	struct ca_replay_event event; /* an ALLOC; bytes 0: none was refused */
	uint64_t before;              /* the number of the event that follows */
	uint64_t reserved_bytes; /* held then by the recording allocator; UINT64_MAX: not known */
	uint64_t free_bytes;     /* of the device then; UINT64_MAX: not known */
	uint64_t segment_bytes;  /* the smallest that the driver refused for it; 0: not known */
};

struct ca_replay_input {
	struct ca_replay_event *events; /* malloc; freed by ca_replay_input_clear */
	size_t count;
	size_t room;        /* events that fit */
	const char *format; /* name for people, constant text; set by the caller of the reader */
	bool lines;         /* `where` counts lines, else bytes */
	/* The recording allocator told what work there was, by SUBMIT, `no_stream`, SEEN and PHASE:
	 * allocations imply none, and nothing ends before that is told. And it told where its
	 * segments lay, by PLACE: of two that fit alike the lower one is cut. */
	bool told;
	bool truncated; /* the file ends in the middle of a record that the format allows to be cut:
			 * everything before it was read */
	uint64_t segment_events; /* the recording allocator's own driver calls: not played */
	uint64_t other_events;   /* known and without meaning here (annotations, out of memory) */
	/* by device, what the recording allocator held at the end; 0: not known */
	uint64_t recorded_reserved_bytes[CA_REPLAY_DEVICES];
	uint64_t recorded_async_reserved_bytes[CA_REPLAY_DEVICES];
	bool has_pools; /* there is memory of CA_REPLAY_ASYNC */
	struct ca_replay_pinned pinned[CA_REPLAY_DEVICES];
	/* by device, requests that the program was refused: not played; count, and the largest */
	uint64_t recorded_failed_calls[CA_REPLAY_DEVICES];
	uint64_t recorded_failed_bytes[CA_REPLAY_DEVICES];
	struct ca_replay_act *acts; /* malloc; in their order */
	size_t n_acts, room_acts;
	struct ca_replay_about about;
	struct ca_replay_rejected rejected[CA_REPLAY_DEVICES];
	/* by ca_replay_input_resolve */
	uint32_t *blocks; /* by event: number of its block, from 0 (LIVE, ALLOC, FREE) */
	uint32_t n_blocks;
};

enum { CA_REPLAY_ERROR_MAX = 256 };

struct ca_replay_error {
	char text[CA_REPLAY_ERROR_MAX]; /* one sentence, without file name or place */
	uint64_t where;                 /* line (from 1) or byte offset; UINT64_MAX: no place */
	bool line;                      /* `where` is a line */
};

/* One per format. `input` is zeroed; on failure what was appended is the caller's to clear. */
typedef int ca_replay_reader(const uint8_t *data, size_t size, struct ca_replay_input *input,
			     struct ca_replay_error *error);
/* Does the file begin as one of the format? Looks at no more than it needs. */
typedef bool ca_replay_prober(const uint8_t *data, size_t size);

struct ca_replay_format {
	const char *name; /* "PyTorch snapshot (pickle)" */
	ca_replay_prober *is;
	ca_replay_reader *read;
};
/* Ended by a row without name. The first that `is` reads. */
extern const struct ca_replay_format ca_replay_formats[];

/* Appends a copy. 0, -ENOMEM. */
int ca_replay_input_add(struct ca_replay_input *input, const struct ca_replay_event *event);
/* The same; `before` is filled in: the event that will be added next. */
int ca_replay_input_add_act(struct ca_replay_input *input, const struct ca_replay_act *act);
void ca_replay_input_clear(struct ca_replay_input *input);
/* Counts a request that the program was refused, and makes it the device's rejected one, whose
 * other figures are not known yet. */
struct ca_replay_rejected *ca_replay_input_reject(struct ca_replay_input *input,
						  const struct ca_replay_event *event);

/* Write a place and a sentence; return -EINVAL. A text that is too long is cut. */
int ca_replay_fail_line(struct ca_replay_error *error, uint64_t line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int ca_replay_fail_byte(struct ca_replay_error *error, uint64_t offset, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Without a place. */
int ca_replay_fail(struct ca_replay_error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Recognises the format, reads, and resolves. *input is cleared on failure. -EINVAL, -ENOMEM, with
 * *error filled in either case.
 */
int ca_replay_input_read(const uint8_t *data, size_t size, struct ca_replay_input *ret_input,
			 struct ca_replay_error *error);
/*
 * Brings LIVE events to the front (in their order), makes the missing ones, numbers the blocks and
 * gives every FREE its block's bytes and stream. -EINVAL: an id allocated while it is live, or
 * freed while it is not (and without bytes); an event without bytes.
 */
int ca_replay_input_resolve(struct ca_replay_input *input, struct ca_replay_error *error);
