/* SPDX-License-Identifier: MIT */
/*
 * The records of the order tracker (allocator/order/order.h): streams, stamps, users, marks.
 *
 * Locks: the heap's lock may be held when a space's order lock is taken, never the other way round;
 * neither is held in a driver call.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/driver.h"
#include "allocator/util/arena.h"
#include "allocator/util/list.h"
#include "allocator/util/tree.h"

struct ca_pool;
struct ca_space;

enum ca_stream_kind {
	CA_STREAM_BLOCKING, /* ordered with the legacy stream by the driver */
	CA_STREAM_NONBLOCKING,
	CA_STREAM_LEGACY,
	CA_STREAM_PER_THREAD, /* blocking, and only its own thread can name it */
};

/* The words every submission reads; one a space. */
struct ca_order_words {
	/* G: even, starting at 2; one more once a stream was stamped with it */
	_Alignas(64) _Atomic uint64_t epoch;
	_Alignas(64) _Atomic uint64_t
		exposed_count; /* moves when something is exposed; starts at 1 */
	/* ticks without a submission that are a lull; 0: none is. Constant, as is a 16th of it */
	uint64_t lull, lull_step;
};

/* The part of a stream that a submission reads and writes. Embedded at the start of the private
 * record (struct ca_stream_record); valid for the life of the process: a closed stream's record may
 * later serve another stream of the same space. */
struct ca_stream {
	_Alignas(64) struct ca_order_words *words; /* constant */
	/* `exposed_count` for which the guard has run; 0: never. And CA_WATCHED: memory was handed
	 * out unfinished with no mark to come, so the next submission behind a lull records one.
	 * CA_ORDERED_ARMED: so does the next one for armed streams that come after it. */
	_Atomic uint64_t seen;
	_Atomic uint64_t armed; /* != 0: record a mark before the next submission */
	_Atomic uint64_t last;  /* largest stamp; 0: never submitted */
	/* watched: ticks of the last submission, or of one at most a grain before it */
	_Atomic uint64_t noted;
	_Atomic unsigned stamping; /* threads inside ca_submit_stamp */
};

/* ca_stream.seen */
#define CA_WATCHED ((uint64_t)1 << 63)
#define CA_ORDERED_ARMED ((uint64_t)1 << 62)
#define CA_SEEN_FLAGS (CA_WATCHED | CA_ORDERED_ARMED)

/* A part of what a stream is known to come after (allocator/order/clock.c). */
enum {
	CA_CLOCK_PARTS = 8, /* of other spaces, a stream */
	CA_EVENT_PARTS =
		16, /* an event; of more streams that it is ordered after some are forgotten */
};
struct ca_clock_part {
	struct ca_stream *stream;
	uint64_t stamp;
};

enum {
	/* More users: the block waits for a context mark. Mean waste of the 44 workloads with 4:
	 * -0.1 to 0 points. */
	CA_USERS_MAX = 8,
	CA_STREAMS_MAX = 256, /* tracked at a time in a space, ghosts included */
	CA_ACTIVE_WORDS = CA_STREAMS_MAX / 64,
};

/* The work that an event's stream was ordered after when the event was recorded. */
struct ca_event_clock {
	unsigned words, stamps, parts; /* of the next three, as many are set; 0 words: nothing is */
	/* != 0: the three above count for nothing. The space had only so many streams, and work of
	 * no other space came before: `stamp` is of all of them, by index, and has the event's own
	 * bound at the place of its stream; 0 in front of those behind. */
	unsigned few;
	uint64_t own[CA_ACTIVE_WORDS];             /* bits: streams of its space, by index */
	uint64_t stamp[CA_EVENT_PARTS];            /* theirs, in that order */
	struct ca_clock_part part[CA_CLOCK_PARTS]; /* of streams of other spaces */
};

/* Work of `stream` stamped at most `stamp` may touch the memory. */
struct ca_user {
	struct ca_stream *stream;
	uint64_t stamp;
};

/*
 * The users of a block that a magazine keeps, in the place of one: where they are several, `stream`
 * is no pointer but has a bit for each, by its index, above bit 0, which is set, and `stamp` covers
 * what each was given before the free.
 */
enum { CA_MULTI_STREAMS = 63 };
static inline bool
ca_user_is_multi(const struct ca_user *user)
{
	return (uintptr_t)user->stream & 1;
}

struct ca_users {
	uint8_t n;
	bool context; /* users that no stream mark covers: only a context mark will do */
	struct ca_user user[CA_USERS_MAX];
};

/* The user that is the stream; NULL: none is. */
static inline struct ca_user *
ca_users_find(struct ca_users *users, const struct ca_stream *stream)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		if (users->user[i].stream == stream)
			return &users->user[i];
	return NULL;
}

/* The stream is a user, with the larger stamp if it was one already. False: there is no room. */
static inline bool
ca_users_raise(struct ca_users *users, const struct ca_user *user)
{
	struct ca_user *known = ca_users_find(users, user->stream);

	if (!known && users->n == CA_USERS_MAX)
		return false;
	if (!known)
		users->user[users->n++] = *user;
	else if (known->stamp < user->stamp)
		known->stamp = user->stamp;
	return true;
}

/* A mark on a stream that has been recorded: covers stamps up to bound. */
struct ca_stream_mark {
	struct ca_list link; /* record->points, in the order in which the driver's calls returned */
	struct ca_tree_node node; /* record->by_bound, if its bound was larger than all before */
	ca_mark mark;
	uint64_t bound;
	unsigned references; /* the list, and threads that use the mark without the lock */
};

struct ca_stream_record {
	struct ca_stream stream; /* first */
	struct ca_space *space;
	void *handle;
	_Atomic enum ca_stream_kind kind;
	unsigned index; /* in order->streams */
	/* under the order lock */
	uint64_t thread; /* the only thread that ever submitted to it, or made it; 0: several */
	uint64_t arms;   /* the last number in stream.armed */
	/* The epoch after the last wait that raised `known` had returned: a wait for a stamp that
	 * is not smaller is a wait for all that is known. */
	uint64_t known_epoch;
	unsigned submitting; /* hazards whose submission goes on */
	unsigned calls;      /* calls of ours into the driver that name the handle now */
	unsigned clock_next; /* the part of the clock to forget next */
	bool submitted; /* ca_stream_note_thread was called: `thread` is not only who made it */
	_Alignas(64) _Atomic uint64_t done; /* work stamped at most this has finished */
	_Atomic uint64_t hazard;  /* stamp of the last operation that somebody else must end */
	_Atomic uint64_t exposed; /* largest stamp of its unfinished memory handed out */
	/* != 0: since the last launch that waited for all before, memory of the stream was exposed,
	 * or a guard left it to the driver that the stream comes after an exposed user */
	_Atomic uint64_t reused_unordered;
	/* Memory freed at a stamp up to this may have no exact mark (it was freed in a quiet space,
	 * or a capture was in the way of the mark): not exposed unless the space is quiet. */
	_Atomic uint64_t exact_after;
	_Atomic uint64_t known_generation; /* moves when `known` grows */
	_Atomic uint64_t told_armed; /* stream.armed, when ca_told_arm was true the last time */
	/* An operation of the stream was put behind what streams that the driver orders it with are
	 * stamped with up to this. */
	_Atomic uint64_t joined;
	_Atomic unsigned unmade; /* marks that were not, for want of memory, since the last one */
	_Atomic bool closed;     /* a ghost: no handle any more */
	_Atomic bool lost;       /* no mark of it can be had any more: context marks only */
	_Atomic bool followed;   /* some other stream waited for it by an event of the program's */
	/* under the order lock */
	unsigned marked; /* marks that were ever recorded */
	uint64_t wanted; /* the largest stamp that it was armed for, perhaps larger than `last` */
	struct ca_list points;
	struct ca_tree by_bound;
	/* its next submission comes after these: of the own space, by index (itself: for ever), and
	 * of others */
	uint64_t known[CA_STREAMS_MAX];
	struct ca_clock_part clock[CA_CLOCK_PARTS];
	uint64_t unfinished[CA_ACTIVE_WORDS]; /* of `known`, perhaps more */
	uint64_t unfinished_at; /* `progress` of the space for which that was last looked through */
	_Atomic bool has_clock; /* some of it may be unfinished, or records are traced */
	/* under the heap's lock: the blocks' side */
	struct ca_pool *pools;  /* [2]: STREAM_HELD blocks, by size */
	struct ca_list waiting; /* ca_block.waiting of STREAM_HELD blocks, smallest stamp first */
	uint64_t
		seen_generation; /* `known_generation` for which deferred/multi_user.c has looked */
};

/* A context mark that is asked about now and then, until it is done: one at a time. */
struct ca_polled_mark {
	_Atomic bool busy; /* a thread asks, or nobody may any more */
	ca_mark mark;      /* CA_MARK_NONE: none is pending; of the thread that asks */
	uint64_t bound;    /* as the one who recorded it gave it */
};

/* For the statistics, of all spaces of a device. */
struct ca_order_counts {
	_Atomic uint64_t marks, waits, stripped, fallbacks;
	_Atomic uint64_t finished_only; /* CA_REASON_* of any */
};

/* core/lock.h. AWAITED: held, and perhaps somebody sleeps until it is not. */
enum { CA_LOCK_FREE, CA_LOCK_HELD, CA_LOCK_AWAITED };
struct ca_lock {
	_Atomic unsigned word; /* one of these; all zero: FREE */
};

/* One a space. */
struct ca_order {
	struct ca_order_words words;
	_Alignas(64) _Atomic uint64_t
		active[CA_ACTIVE_WORDS]; /* streams with last > done, perhaps more */
	_Atomic uint64_t progress;       /* moves when some stream's done or lost changes */
	_Atomic uint64_t hazards;        /* that ever began; 0: none need be looked for */
	_Atomic uint64_t foreign;        /* stamp of the last work of another space; 0: none */
	_Atomic uint64_t foreign_done;   /* as far as that has finished */
	bool traced;                     /* constant: the heap has a tracer */
	struct ca_polled_mark polled;
	_Atomic bool foreign_unknown;   /* some foreign work is in no stream that has a record */
	_Atomic unsigned finished_only; /* CA_REASON_* */
	_Atomic unsigned submitting;    /* hazards whose submission goes on */
	_Atomic unsigned barriers; /* sections of ours in which the legacy stream may be used */
	/* Streams that could submit, one more if there is company, one more if `needs_exact_marks`:
	 * quiet if at most 1. */
	_Atomic unsigned candidates;
	_Atomic unsigned crossing; /* our calls for the legacy stream that go on in them */
	struct ca_stream_record *_Atomic only_stream; /* the one candidate, if there is one */
	struct ca_order_counts *counts;               /* of the device */
	struct ca_lock lock;
	_Atomic unsigned n_streams; /* entries of streams[] in use, ghosts and free ones included */
	struct ca_stream_record *streams[CA_STREAMS_MAX];
	/* Bits, by index, of legacy streams [1] and of blocking ones [0], ghosts and free ones
	 * included: what the driver orders with each other. Written under the lock. */
	_Atomic uint64_t ordered[2][CA_ACTIVE_WORDS];
	/* under the heap's lock and this one */
	bool had_stream; /* it ever had a candidate, and is alive: company for the other spaces */
	/* under the lock */
	bool passed; /* a submission did not wait for the end of a section that goes on */
	bool dead;
	bool needs_exact_marks; /* memory is, or will be, registered to somebody who is no stream */
	struct ca_stream_record *_Atomic only_user; /* see ca_order_set_only_user; NULL: any */
	struct ca_arena arena;                      /* records of streams, points */
	struct ca_objects points;
};
