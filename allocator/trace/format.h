/* SPDX-License-Identifier: MIT */
/*
 * The format of a trace: the acts of a program under cachealloc on device memory, event by event.
 * Written by allocator/trace/writer.c, read by allocator/replay/input_trace.c; cachealloc-trace(5)
 * says the same to people.
 *
 *   header    struct ca_trace_header, then fields (struct ca_trace_field) up to `header_bytes`
 *   records   of `record_bytes` each, to the end of the file
 *
 * All numbers are little-endian. The file may end anywhere: the records before the end are complete
 * and in order, a record that is cut is to be dropped. A trace that ends with CA_TRACE_END is
 * whole.
 *
 * Order: a record stands behind everything that its event depends on. So the FREE of an address
 * comes before the ALLOC that hands it out again, also when another thread does that. Times of
 * several threads may be out of order by the time between reading the clock and writing.
 *
 * The allocator's decisions depend on what it knows of the device. It knows that a stream has
 * work (WORK) until it learns that this has finished (FINISHED): by a call of the program, or by
 * asking (LOOK). With that a replay decides likewise.
 *
 * Versions: readers refuse another `version`. A larger `minor` adds kinds of records, fields, bytes
 * at the end of the header's fixed part or of each record: readers skip what they do not know.
 */
#pragma once

#include <stdint.h>

/* The first byte and the line ends catch transfers as text. */
#define CA_TRACE_MAGIC "\211CAtr\r\n\n" /* 8 bytes without the terminator */

enum {
	CA_TRACE_VERSION = 1,
	CA_TRACE_MINOR = 2,
	CA_TRACE_MINOR_WORK = 1,  /* from then on there is WORK and LOOK */
	CA_TRACE_MINOR_ROADS = 2, /* and POOL and what follows */
	CA_TRACE_BYTE_ORDER = 0x01020304,
	CA_TRACE_HEADER_MAX = 1 << 20, /* header_bytes: readers need not take more */
	CA_TRACE_RECORD_MAX = 1 << 12, /* record_bytes, likewise */
};

struct ca_trace_header {
	uint8_t magic[8];
	uint32_t byte_order;    /* CA_TRACE_BYTE_ORDER as the writer has it in memory */
	uint16_t version;       /* CA_TRACE_VERSION */
	uint16_t minor;         /* CA_TRACE_MINOR */
	uint32_t header_bytes;  /* where the records begin: the fields included, a multiple of 8 */
	uint32_t fixed_bytes;   /* where the fields begin: size of this struct, a multiple of 8 */
	uint32_t record_bytes;  /* 24; a multiple of 8 */
	uint32_t tick_ns;       /* unit of the records' times: 1 */
	uint64_t start_ns;      /* of the monotonic clock, when the file was made */
	uint64_t start_unix_ns; /* the same moment since 1970 */
	uint32_t pid;
	uint32_t parent_pid;
};

/* Followed by `length` bytes of UTF-8 without terminator, and zeros up to a multiple of 8. */
struct ca_trace_field {
	uint32_t tag;
	uint32_t length;
};

enum ca_trace_tag {
	CA_TRACE_FIELD_LIBRARY = 1,  /* version of the library that wrote it */
	CA_TRACE_FIELD_PROGRAM = 2,  /* name of the program */
	CA_TRACE_FIELD_SETTINGS = 3, /* one a line: each that differs from its default */
};

/*
 * Kinds of records: name, number, name for people.
 *
 *            a                             b
 *   ALLOC    address                       bytes asked for | thread
 *   ADOPT    the same: memory that the program got from the driver itself and gives back by FREE
 *   FREE     address                       three more users | thread
 *   KEPT     address                       bytes | thread: the FREE failed, the block lives on
 *   FAILED   bytes asked for               driver's code | thread: an allocation was refused
 *   TAKEN    address of a segment          bytes | thread: the driver gave it
 *   RETURNED address of a segment          bytes | thread: it is the driver's again
 *   REFUSED  bytes of a segment            driver's code | thread: the driver did not give it
 *   FINISHED streams of the context with   thread: all that was submitted to the stream has
 *            unfinished work               finished as far as the trace's order tells; or its
 * lowest bit is 1 where only what is stamped with no more than the other 47 has STREAM   0 sort
 * (CA_TRACE_STREAM_*) | thread: from now on the stream's number means another stream DEVICE   bytes
 * of memory, 0: unknown   0 NAME     8 bytes of the device's name  8 more, padded with zeros;
 * `stream`: which 16 bytes TIME     absolute time in ticks        0: before an event that came long
 * after the last FORK     0                             thread: the process made a copy of itself
 *   END      0                             0: the process ended, nothing is missing
 *   WORK     0                             thread: the stream, of which nothing was unfinished, was
 *                                          given work
 *   LOOK     0                             thread: the allocator begins to ask the device, for a
 *                                          moment, whether it is idle
 *
 * Stream-ordered memory (async:pool), and the program's own order between streams, which decides
 * where it is reused:
 *
 *   POOL            rules: a bit each,            1: it is open; 0: destroyed | thread
 *                   CA_TRACE_POOL_*
 *   ASYNC_ALLOC     address                       bytes asked for | thread
 *   ASYNC_FREE      address                       stamp of the stream's work so far | thread
 *   ASYNC_FAILED    bytes asked for               driver's code | thread
 *   ASYNC_TAKEN     address of a segment          bytes | thread
 *   ASYNC_RETURNED  address of a segment          bytes | thread
 *   ASYNC_REFUSED   bytes of a segment            driver's code | thread
 *   ASYNC_TRIM      bytes                         thread: by a call of the program, idle segments
 * go back until the pool has no more than `a` bytes EVENT           number of an event thread: it
 * is recorded in the stream WAIT            number of an event            thread: the stream comes
 * after its last record
 *
 * An allocation is of the pool of its segment. Page-locked host memory (pinned:cache), on the
 * device of its context:
 *
 *   PINNED_ALLOC    address                       bytes asked for | thread
 *   PINNED_FREE     address                       thread: it is kept
 *   PINNED_TAKEN    address                       bytes | thread: the driver allocated it
 *   PINNED_RETURNED address                       bytes | thread: it is the driver's again, from
 * the program itself or from the cache
 */
#define CA_TRACE_KINDS(X)                                                                          \
	X(ALLOC, 1, "alloc")                                                                       \
	X(ADOPT, 2, "adopt")                                                                       \
	X(FREE, 3, "free")                                                                         \
	X(KEPT, 4, "kept")                                                                         \
	X(FAILED, 5, "failed")                                                                     \
	X(TAKEN, 6, "taken")                                                                       \
	X(RETURNED, 7, "returned")                                                                 \
	X(REFUSED, 8, "refused")                                                                   \
	X(FINISHED, 9, "finished")                                                                 \
	X(STREAM, 10, "stream")                                                                    \
	X(DEVICE, 11, "device")                                                                    \
	X(NAME, 12, "name")                                                                        \
	X(TIME, 13, "time")                                                                        \
	X(FORK, 14, "fork")                                                                        \
	X(END, 15, "end")                                                                          \
	X(WORK, 16, "work")                                                                        \
	X(LOOK, 17, "look")                                                                        \
	X(POOL, 18, "pool")                                                                        \
	X(ASYNC_ALLOC, 19, "async_alloc")                                                          \
	X(ASYNC_FREE, 20, "async_free")                                                            \
	X(ASYNC_FAILED, 21, "async_failed")                                                        \
	X(ASYNC_TAKEN, 22, "async_taken")                                                          \
	X(ASYNC_RETURNED, 23, "async_returned")                                                    \
	X(ASYNC_REFUSED, 24, "async_refused")                                                      \
	X(PINNED_ALLOC, 25, "pinned_alloc")                                                        \
	X(PINNED_FREE, 26, "pinned_free")                                                          \
	X(PINNED_TAKEN, 27, "pinned_taken")                                                        \
	X(PINNED_RETURNED, 28, "pinned_returned")                                                  \
	X(ASYNC_TRIM, 29, "async_trim")                                                            \
	X(EVENT, 30, "event")                                                                      \
	X(WAIT, 31, "wait")

enum ca_trace_kind {
#define X(name, number, text) CA_TRACE_##name = number,
	CA_TRACE_KINDS(X)
#undef X
};

/*
 * A record. `stream` is a number of the trace's own: the one the allocating thread last submitted
 * to (ALLOC, ADOPT), the first user (FREE), the stream itself (FINISHED, STREAM), the one that the
 * call names (ASYNC_ALLOC, ASYNC_FAILED, ASYNC_FREE: NONE where the call names none, ANY where it
 * is not tracked); of POOL, ASYNC_TAKEN, ASYNC_RETURNED and ASYNC_REFUSED the number of the pool;
 * else NONE. The users of a freed block are the streams whose unfinished work may touch it.
 *
 * `time` has the low 32 bits of the time in ticks; the reader adds the rest, since two records that
 * follow each other without a TIME between them are less than 2^31 ticks apart.
 */
struct ca_trace_record {
	uint8_t kind;   /* enum ca_trace_kind; 0: nothing */
	uint8_t device; /* ordinal; CA_TRACE_NO_DEVICE */
	uint16_t stream;
	uint32_t time;
	uint64_t a;
	uint64_t b;
};

enum {
	CA_TRACE_NO_DEVICE = 0xff,
	CA_TRACE_NO_STREAM = 0xffff,
	CA_TRACE_ANY_STREAM = 0xfffe, /* users that are not listed one by one */
	CA_TRACE_BYTES_BITS = 48,     /* of b: bytes below, the thread's number (mod 2^16) above */
	CA_TRACE_MORE_USERS = 3,      /* of b: 16 bits each from the lowest; NO_STREAM: none */
};

/* On which conditions a pool lets another stream have what was freed before it has finished. */
enum {
	CA_TRACE_POOL_FOLLOWS = 1,       /* it comes after, by the program's events */
	CA_TRACE_POOL_OPPORTUNISTIC = 2, /* it turns out to have finished */
	CA_TRACE_POOL_INTERNAL = 4,      /* behind a wait that is put into the stream */
	CA_TRACE_POOL_LIMITED = 8,       /* no condition: segments are no larger than a request */
};

enum ca_trace_stream {
	CA_TRACE_STREAM_BLOCKING,
	CA_TRACE_STREAM_NONBLOCKING,
	CA_TRACE_STREAM_LEGACY,
	CA_TRACE_STREAM_PER_THREAD,
};
