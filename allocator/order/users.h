/* SPDX-License-Identifier: MIT */
/*
 * What lies between the order tracker (stream_record.c, guard.c, vector_clock.c) and the blocks
 * (policy/alloc.c, policy/free.c, deferred/context_mark.c, deferred/place.c): private to
 * allocator/, included by core/types.h.
 *
 * Locks: the heap's lock may be held when a space's order lock is taken, never the other way round;
 * neither is held in a driver call. What takes a struct ca_order makes no driver call and may be
 * called with the heap's lock held; what takes a space wants no lock, and may call the driver.
 */
#pragma once

#include <pthread.h>

#include "allocator/util/arena.h"
#include "allocator/util/list.h"
#include "allocator/order/order.h"
#include "allocator/util/tree.h"

enum {
	CA_USERS_MAX = 8,     /* more users: the block waits for a context mark */
	CA_STREAMS_MAX = 256, /* tracked at a time in a space, ghosts included */
	CA_ACTIVE_WORDS = CA_STREAMS_MAX / 64,
};

/* Work of `stream` stamped at most `stamp` may touch the memory. */
struct ca_user {
	struct ca_stream *stream;
	uint64_t stamp;
};

struct ca_users {
	uint8_t n;
	bool context; /* users that no stream mark covers: only a context mark will do */
	struct ca_user user[CA_USERS_MAX];
};

/* A mark on a stream that has been recorded: covers stamps up to bound. */
struct ca_point {
	struct ca_list link; /* record->points, in the order in which the driver's calls returned */
	struct ca_tree_node node; /* record->by_bound, if its bound was larger than all before */
	ca_mark mark;
	uint64_t bound;
	unsigned references; /* the list, and threads that use the mark without the lock */
};

struct ca_stream_record {
	struct ca_stream hot; /* first */
	struct ca_space *space;
	void *handle;
	_Atomic enum ca_stream_kind kind;
	unsigned index; /* in order->streams */
	/* under the order lock */
	uint64_t thread; /* the only thread that ever submitted to it, or made it; 0: several */
	uint64_t arms;   /* the last number in hot.armed */
	/* The epoch after the last wait that raised `known` had returned: whoever waits for a stamp
	 * that is not smaller waits for all that is known. */
	uint64_t learned;
	unsigned coming;     /* hazards whose submission goes on */
	unsigned calls;      /* calls of ours into the driver that name the handle now */
	unsigned clock_next; /* the part of the clock to forget next */
	bool submitted; /* ca_stream_note_thread was called: `thread` is not only who made it */
	_Alignas(64) _Atomic uint64_t done; /* work stamped at most this has finished */
	_Atomic uint64_t hazard;  /* stamp of the last operation that somebody else must end */
	_Atomic uint64_t exposed; /* largest stamp of its unfinished memory handed out */
	/* != 0: since the last launch that waited for all before, memory of the stream was exposed,
	 * or a guard left it to the driver that the stream comes after an exposed user */
	_Atomic uint64_t loose;
	/* Memory freed at a stamp up to this may have no exact mark (it was freed in a quiet space,
	 * or a capture was in the way of the mark): not exposed unless the space is quiet. */
	_Atomic uint64_t inexact;
	_Atomic uint64_t lessons; /* moves when `known` grows */
	_Atomic bool closed;      /* a ghost: no handle any more */
	_Atomic bool lost;        /* no mark of it can be had any more: context marks only */
	/* under the order lock */
	struct ca_list points;
	struct ca_tree by_bound;
	struct ca_clock_part clock[CA_CLOCK_PARTS]; /* what its next submission comes after */
	uint64_t known[CA_STREAMS_MAX];             /* the same of the own space, whole; by index */
	/* under the heap's lock: the blocks' side */
	struct ca_pool *pools;  /* [2]: OWNED blocks, by size */
	struct ca_list waiting; /* ca_block.waiting of OWNED blocks, smallest stamp first */
	uint64_t adopted;       /* `lessons` for which deferred/multi_user.c has looked */
};

/* One a space. */
struct ca_order {
	struct ca_order_words words;
	_Alignas(64) _Atomic uint64_t
		active[CA_ACTIVE_WORDS]; /* streams with last > done, perhaps more */
	bool traced;                     /* constant: the heap has a tracer */
	_Atomic uint64_t progress;       /* moves when some stream's done or lost changes */
	_Atomic uint64_t hazards;        /* that ever began; 0: none need be looked for */
	_Atomic unsigned coming;         /* of those, whose submission goes on */
	_Atomic uint64_t foreign;        /* stamp of the last work of another space; 0: none */
	_Atomic uint64_t foreign_done;
	/* Streams that could submit, one more if there is company, one more if `shown`: quiet if at
	 * most 1. */
	_Atomic unsigned candidates;
	struct ca_stream_record *_Atomic only;              /* the one candidate, if there is one */
	_Atomic unsigned finished_only;                     /* CA_REASON_* */
	_Atomic uint64_t marks, waits, stripped, fallbacks; /* for the statistics */
	pthread_mutex_t lock;
	_Atomic unsigned n_streams; /* entries of streams[] in use, ghosts and free ones included */
	struct ca_stream_record *streams[CA_STREAMS_MAX];
	/* under the heap's lock and this one */
	bool peopled; /* it ever had a candidate, and is alive: company for the other spaces */
	/* under the lock */
	bool dead;
	bool shown; /* memory is, or will be, registered to somebody who is no stream */
	struct ca_stream_record *_Atomic sole_user; /* see ca_order_set_sole_user; NULL: any */
	struct ca_arena arena;                      /* records of streams, points */
	struct ca_objects points;
};

/* ---- life */
void ca_order_init(struct ca_space *space);
/* The context is gone: drops all points, forgets handles; every stamp counts as finished. */
void ca_order_kill(struct ca_space *space);
/* The space is as if it had one stream more from now on: frees get exact marks. */
void ca_order_end_quiet(struct ca_space *space);
/* Unmaps the records; no call is in progress. */
void ca_order_destroy(struct ca_order *order);
/* As ca_order_kill, but the locks are remade and nothing is walked or dropped. */
void ca_order_after_fork_child(struct ca_order *order);

/* Records a mark on every stream of the space that is busy and has none for its last work, for
 * ca_order_poll to ask. */
void ca_order_mark_busy(struct ca_space *space);

/* ---- stamps and users */

/* The birth of an allocation: every stamp so far is smaller. */
uint64_t ca_order_born(struct ca_order *order);
/* Work of another space may touch what was born then. */
static inline bool
ca_order_has_foreign_user(struct ca_order *order, uint64_t born)
{
	uint64_t foreign = atomic_load(&order->foreign);

	return foreign >= born && foreign > atomic_load(&order->foreign_done);
}

/* The half of ca_order_is_untouched that is not about the space (for that: CA_ATTENTION_ORDER). */
static inline bool
ca_order_is_unstamped(struct ca_order *order, uint64_t born)
{
	return atomic_load(&order->words.epoch) == born && !ca_order_has_foreign_user(order, born);
}
/*
 * What is usual at a free, cheaply, without a lock. True only if no stream was stamped since
 * `born`: the present epoch is the one of the birth, and nobody was stamped with it.
 */
static inline bool
ca_order_is_untouched(struct ca_order *order, uint64_t born)
{
	return !(atomic_load(&order->finished_only) & ~(unsigned)CA_REASON_NETWORK) &&
	       ca_order_is_unstamped(order, born) && !atomic_load(&order->hazards);
}

/*
 * The users of a block at its free: of `inherited` those that have not finished, and every stream
 * stamped at `born` or later; without those that another one stands for. Arms them unless the
 * space is quiet. *ret_users is not *inherited.
 */
void ca_order_users(struct ca_order *order, uint64_t born, const struct ca_users *inherited,
		    struct ca_users *ret_users);
/* A free takes effect behind what was submitted to the stream, and what the driver orders before
 * it, which may be what makes other streams' later use of the memory come first. */
void ca_order_free_in(struct ca_stream *stream);
static inline bool
ca_user_is_done(const struct ca_user *user)
{
	const struct ca_stream_record *record = (const struct ca_stream_record *)user->stream;

	return atomic_load(&record->done) >= user->stamp; /* hot comes first */
}
/* Takes finished users out. True: none is left. */
bool ca_users_prune(struct ca_users *users);
bool ca_order_is_quiet(struct ca_order *order);
static inline bool
ca_record_has_hazard(const struct ca_stream_record *record)
{
	return atomic_load(&record->hazard) > atomic_load(&record->done);
}
/* Somebody else must end what was submitted to the stream, or to one that it waits for. */
bool ca_record_is_held_up(struct ca_stream_record *record);
/* Or to one of the space. */
bool ca_order_is_held_up(struct ca_order *order);
/* The candidate, if it is the one stream of a quiet space and has unfinished work, or NULL. */
struct ca_stream_record *ca_order_is_only_stream(struct ca_order *order,
						 struct ca_stream_record *only);
/* The one stream of a quiet space that has unfinished work, or NULL. */
static inline struct ca_stream_record *
ca_order_only_stream(struct ca_order *order)
{
	struct ca_stream_record *only = atomic_load(&order->only);

	if (!only)
		return NULL;
	if (__builtin_expect(atomic_load(&order->candidates) > 1 || atomic_load(&order->hazards),
			     0))
		return ca_order_is_only_stream(order, only);
	return atomic_load(&only->hot.last) > atomic_load(&only->done) ? only : NULL;
}
/* False: somebody who knows says that it is no user of anything (ca_order_set_sole_user). */
static inline bool
ca_order_is_user(const struct ca_order *order, const struct ca_stream_record *record)
{
	const struct ca_stream_record *sole = atomic_load(&order->sole_user);

	return !sole || sole == record;
}
/*
 * The one stream that may use what a free gives back, without a lock: the space is quiet, no other
 * stream has unfinished work, and what is freed now is marked if the space ceases to be quiet.
 * *ret_last: that stream's last stamp. NULL: it is not known to be so simple.
 */
struct ca_stream_record *ca_order_quiet_stream(struct ca_order *order, uint64_t *ret_last);
/* The unfinished users that LIVE blocks of ours (of any space) in the named ranges inherited.
 * Takes the heap's lock itself. `context`: more than fit, or not known. */
void ca_touch_users(struct ca_space *space, const struct ca_touch *touch,
		    struct ca_users *ret_users);

/* ---- exposure */

/* Something captures, or is about to: nothing unfinished may be handed out any more. Asked under
 * the heap's lock or a magazine's, which ca_order_mark_before_capture takes afterwards: it misses
 * no exposure. */
bool ca_order_may_capture(const struct ca_heap *heap);
/* Every stream is submitted to by the calling thread only. */
bool ca_order_is_ours(struct ca_order *order);
/* The next submission to `record` comes after `user` by waits that it has made. */
bool ca_order_is_behind(struct ca_stream_record *record, const struct ca_users *users);
/* If what `users` have not finished is handed to `record`, no other stream that has work comes to
 * wait: each comes after them anyway, or `record` comes after all of its work. */
bool ca_order_exposes_freely(struct ca_stream_record *record, const struct ca_users *users);
/* May memory with these users be handed to the calling thread? Yes in a quiet space, or if, for
 * each of them, every other stream has only the calling thread as submitter, and an exact mark is
 * to be had. */
bool ca_order_may_expose(struct ca_order *order, const struct ca_users *users);
/* It was: before the block leaves the heap's lock. */
void ca_order_expose(struct ca_order *order, const struct ca_user *user);

/* ---- marks: these call the driver */

/* Asks the oldest points of every stream, recording a mark where blocks wait for one and there is
 * none. 0, or the first error (> 0 the driver's, -EIO); -EBUSY: a capture is in the way. */
int ca_order_poll(struct ca_space *space);
/* Waits on the host for exactly this user. 0: done; -EAGAIN: no exact mark is to be had; -EBUSY;
 * > 0, -EIO: errors. */
int ca_order_wait(struct ca_space *space, const struct ca_user *user);
/* A context mark covers everything stamped before this was taken; once it is done, tell. */
uint64_t ca_order_context_bound(struct ca_order *order);
void ca_order_context_finished(struct ca_order *order, uint64_t bound);
