/* SPDX-License-Identifier: MIT */
/*
 * All segments and blocks of the heap at one moment, and the same as the pickle that PyTorch's
 * tools read (torch.cuda.memory._dump_snapshot, with the keys of current versions, without events
 * and without stacks).
 *
 * A snapshot is taken under the heap's lock into memory of its own, and written without a lock. No
 * malloc, no stdio, errno kept; not for signal handlers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/api/stats_text.h"

struct ca_heap;

enum ca_snapshot_kind {
	CA_SNAPSHOT_SEGMENT, /* its blocks, which tile it, follow */
	CA_SNAPSHOT_LIVE,    /* the program has it */
	CA_SNAPSHOT_WAITS,   /* freed; work that is not known to have finished may use it */
	CA_SNAPSHOT_FREE,
};

/* In a row's `device`: the segment is an extent (expandable_segments). Ordinals are below. */
enum { CA_SNAPSHOT_EXTENT = 1 << 15 };

struct ca_snapshot_row {
	uint64_t address;
	uint64_t bytes;
	uint64_t requested; /* LIVE: bytes; else 0 */
	uint32_t kind;      /* enum ca_snapshot_kind */
	uint16_t device;    /* ordinal; SEGMENT; with CA_SNAPSHOT_EXTENT */
	uint16_t pool; /* SEGMENT: 0: of cuMemAlloc; else of pools (async:pool), a number each */
};

/* All zero: nothing was taken so far. */
struct ca_heap_snapshot {
	struct ca_snapshot_row *rows; /* a mapping of room_bytes */
	size_t count, room_bytes;
	unsigned devices;        /* ordinals are below */
	uint64_t reserved_bytes; /* of all segments */
};

/* In place of what *snapshot has; its memory is used again. -ENOMEM, and then nothing is in it; no
 * lock of the heap may be held. */
int ca_heap_snapshot_take(struct ca_heap *heap, struct ca_heap_snapshot *snapshot);
void ca_heap_snapshot_clear(struct ca_heap_snapshot *snapshot);

struct ca_snapshot_note {
	const char *reason;  /* "exit" */
	const char *program; /* a file's name; may be NULL */
	long pid;
	uint64_t time_unix_ns;
	uint64_t failed_bytes; /* the request that was out of memory; 0: none */
};

/* 0, or what `write` returned. */
int ca_heap_snapshot_emit(const struct ca_heap_snapshot *snapshot,
			  const struct ca_snapshot_note *note, ca_emit_write_fn *write, void *arg);

/* The reserved bytes of a device have reached a new maximum since the last time this was asked. */
bool ca_heap_is_at_peak(struct ca_heap *heap);
