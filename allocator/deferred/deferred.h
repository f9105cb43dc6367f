/* SPDX-License-Identifier: MIT */
/*
 * Freed memory that work may still use: where it waits, and how one learns that it has finished.
 *
 * Functions named *_locked want the heap's lock.
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/types.h"
#include "allocator/order/order.h"

enum ca_wait {
	CA_WAIT_EXACT, /* only for what the driver's own free would have waited for */
	/* the same, but for no stream that somebody else must let go on: that may need what the
	 * caller has taken since the free, a lock perhaps (but where no mark is to be had) */
	CA_WAIT_SAFE,
	CA_WAIT_LATER, /* the same, where kernels may wait for what the caller does next, too */
	/* also for work submitted after the free, which may need what the caller does next: asked
	 * about, and waited for only where nothing can be asked */
	CA_WAIT_ANY,
};

static inline bool
ca_wait_is_safe(enum ca_wait which)
{
	return which == CA_WAIT_SAFE || which == CA_WAIT_LATER;
}

/* ---- place.c: freed blocks that wait for streams */

/*
 * A freed block in no list and no index gets its place by what is unfinished of `users`: FREE,
 * STREAM_HELD or MULTI_HELD. False: only a context mark will do; the block is as it was.
 */
bool ca_held_place_locked(struct ca_block *block, struct ca_users *users);
/* A block with a user that comes out of a magazine becomes STREAM_HELD. False: more is to be asked.
 */
bool ca_held_goes_on_locked(const struct ca_block *block);
/* The place of such a block. */
void ca_held_place_kept_locked(struct ca_block *block);
/* A STREAM_HELD or MULTI_HELD block gets the place that is right for it now. */
void ca_held_place_again_locked(struct ca_block *block);
/* As ca_held_place_locked, but a block for which only a context mark will do waits for one. */
void ca_held_place_or_mark_locked(struct ca_block *block, struct ca_users *users);
/* Settles what finished streams have used, if any progressed since the last time. True if so. */
bool ca_held_settle_locked(struct ca_space *space);
/* The same, but of a bounded number of blocks: ca_held_has_progressed stays true while there are
 * more. */
bool ca_held_settle_some_locked(struct ca_space *space);
/* Some stream has progressed since the last settle. */
static inline bool
ca_held_has_progressed(const struct ca_space *space)
{
	return atomic_load_explicit(&space->order.progress, memory_order_acquire) != space->settled;
}
/* The stream's pools exist, or can be made. */
bool ca_held_pools_ready(struct ca_heap *heap, struct ca_stream_record *record);
/* No user is a stream that no mark can be had of. */
bool ca_held_is_markable(const struct ca_users *users);
/* True if the user is that stream. Needs no lock; a caller that hands memory out by that says so to
 * ca_order_expose, which sees to it if the space has ceased to be quiet. */
static inline bool
ca_held_is_quiet_for(struct ca_space *space, const struct ca_user *user)
{
	return ca_held_quiet_locked(space) == ca_held_record(user);
}
/* Blocks wait in the space. Needs no lock. */
static inline bool
ca_held_any(const struct ca_space *space)
{
	return atomic_load_explicit(&space->stream_held_blocks, memory_order_relaxed) ||
	       atomic_load_explicit(&space->mark_held_blocks, memory_order_relaxed);
}

/* ---- wait.c */

/* Bytes of the space's pool that wait. */
uint64_t ca_held_waiting_bytes_locked(struct ca_space *space, const struct ca_pool *pool);
/* As ca_held_look_locked, but settles all, and asks also the one stream of a quiet space. */
void ca_deferred_poll_locked(struct ca_space *space);
/* Something waits for a stream, although in a quiet space nothing has to wait for its one. */
bool ca_held_waits_for_streams_locked(struct ca_space *space);
/* Something waits, and looking at it might help. */
static inline bool
ca_held_is_waiting_locked(struct ca_space *space)
{
	return space->mark_held_blocks ||
	       (space->stream_held_blocks && ca_held_waits_for_streams_locked(space));
}
/* Looks at everything that waits in the space, without waiting, and settles some of it; true:
 * something was settled. Leaves and retakes the lock. */
bool ca_held_look_locked(struct ca_space *space);
/* Waits on the host for the oldest free of the calling thread: of what waits for streams, or else
 * for context marks. Result as of ca_context_mark_wait_locked; 0 also if it was in vain. */
int ca_deferred_wait_locked(struct ca_space *space, enum ca_wait which);
/* Other threads have submitted work that is not finished. It may wait for what the caller does
 * next: since no free waits, they may be several rounds ahead. */
bool ca_held_others_submit_locked(const struct ca_space *space);
/*
 * Before a wait for what was stamped up to `bound`, where others submit: asks the driver until
 * `is_over`. False: nothing of that work has ended for a second, or, once the cache is too large
 * (policy/grow.c), for CA_PATIENCE_S; then the caller must not wait. The next time that is half as
 * long, down to an eighth of a second. Leaves and retakes the lock.
 */
bool ca_held_await_others_locked(struct ca_space *space, uint64_t bound,
				 bool (*is_over)(struct ca_space *space, const void *what),
				 const void *what);
/* The block that such a wait would be for, or NULL. */
struct ca_block *ca_held_oldest_locked(const struct ca_space *space, enum ca_wait which);
/* True if blocks wait that another thread freed. */
bool ca_held_others_wait_locked(const struct ca_space *space);
/* The blocks are gone: the streams' pools and lists are empty. */
void ca_held_forget(struct ca_space *space);

/* ---- multi_user.c: freed blocks that several streams may still use */

/* As ca_held_place_locked, of more than one user. */
bool ca_multi_place_locked(struct ca_block *block, const struct ca_users *users);
/* At most `*most` blocks that a user has finished with, less those, get the place they have by now.
 * `all`: those for which it is dear to ask, too. False: they were not asked. */
bool ca_multi_settle_locked(struct ca_space *space, unsigned *most, bool all);
/* Memory is asked for, for that stream most likely: blocks whose users it has come after become its
 * own, if it is the stream that most memory is asked for. */
void ca_multi_take_over_locked(struct ca_space *space, struct ca_stream_record *record);

/* ---- context_mark.c: frees that wait for context marks. These leave and retake the lock. */

/* The fields that an ALLOCATED block has no room for while it waits; for a caller that may have to
 * make it ALLOCATED again. */
struct ca_saved_allocation {
	struct ca_block *block;
	uint64_t requested; /* bytes */
	uint64_t serial;
};

/*
 * A list of MARK_HELD blocks in a thread's hand gets a mark recorded from now on, or waits on the
 * host. Blocks are on a mark, FREE or on `unmarked` afterwards. > 0 or -EIO: mark and host wait
 * failed, the space is poisoned, and `keep` (may be NULL; the first of the list) is ALLOCATED
 * again.
 */
int ca_context_mark_submit_locked(struct ca_space *space, struct ca_list *hand,
				  const struct ca_saved_allocation *keep);
/* MARK_HELD blocks wait for the next mark, or for all that was submitted so far. */
void ca_unmarked_add_locked(struct ca_space *space, struct ca_list *blocks);
/* Settles them, if all that is known to have finished. True: something was settled. */
bool ca_unmarked_settle_locked(struct ca_space *space);
/* Blocks without a mark wait for work of other contexts, whose streams tell when it ends. */
bool ca_unmarked_waits_elsewhere_locked(struct ca_space *space);
/* Tries to get one mark for everything unmarked. */
void ca_context_mark_mark_unmarked_locked(struct ca_space *space);
/* Settles finished groups, oldest first. Returns how many. */
unsigned ca_context_mark_poll_locked(struct ca_space *space);
/* Drops every mark of a dead space, whose blocks are forgotten. */
void ca_context_mark_drop_all_locked(struct ca_space *space);
/* The driver answers nothing but errors: retires every segment of the space. */
void ca_context_mark_poison_locked(struct ca_space *space);
/* The blocks of a segment that is to be returned wait for nothing any more: the segment is
 * retired. */
void ca_context_mark_drop_segment_locked(struct ca_segment *segment);
/*
 * Waits on the host for the oldest group that the calling thread freed (another thread's free must
 * never hold this one up). 1: settled one; 0: nothing to wait for; -EAGAIN: work of other contexts
 * is in the way; -EBUSY: capture.
 */
int ca_context_mark_wait_locked(struct ca_space *space, enum ca_wait which);
/* There is a group that the calling thread freed, and no other thread asks it at the moment. */
bool ca_context_mark_has_own_locked(struct ca_space *space, enum ca_wait which);
/* There is one whose mark was recorded long after the free, or memory that has no mark so far. */
bool ca_context_mark_has_late_locked(struct ca_space *space);
/* The calling thread freed memory that the driver's own free would have waited for, and somebody
 * else must let work of the space go on. */
bool ca_deferred_is_held_up_locked(struct ca_space *space);
/* The order of work is not known: the host waits for all of it. 1: done; -EBUSY: a capture is in
 * the way; otherwise the space is poisoned, and 1 is returned, too. */
int ca_context_mark_sync_locked(struct ca_space *space);
/* Whether the whole context is idle, without waiting: the only way to learn of another thread's
 * per-thread stream. True: something waited for a stream and does no more. */
bool ca_context_mark_query_context_locked(struct ca_space *space);
/* True for an answer after which the order of work can no longer be known. */
static inline bool
ca_context_mark_is_lost(int r)
{
	return r > 0 || r == -EIO;
}

/* ---- await.c: before memory goes back to the driver. These leave and retake the lock. */

/* ca_order_has_finished after asking the driver, without waiting. */
bool ca_await_query_locked(struct ca_space *space, uint64_t bound);
/* The same, after waiting on the host: for no stream that captures without a mark or that somebody
 * else must let go on, and for nothing of other contexts. For the program's own free only: the wait
 * has no end where a kernel waits for what the calling thread does next. */
bool ca_await_locked(struct ca_space *space, uint64_t bound);

/* Work of which none ends for so many seconds is held up, most likely, by what the calling thread
 * has yet to do. */
enum { CA_PATIENCE_S = 10 };

/* The time that one allocation has waited in vain, in all. Zero-initialised. */
struct ca_patience {
	uint64_t waited_ns; /* since work was last seen to end */
	bool over;          /* nothing is waited for any more, only asked */
};
/* Asks the driver again and again, as long as work goes on that is stamped up to `bound`. 0: all of
 * that has finished (ca_order_has_finished); -EAGAIN: patience is over; -EBUSY: of what has not, a
 * capture is in the way of every mark. */
int ca_await_patiently_locked(struct ca_space *space, uint64_t bound, struct ca_patience *patience);
/* The same until memory became available on the device, by this or another thread: 1. 0: it did
 * not; -EBUSY. `exact`: also for what the driver's own free would have waited for: of other
 * contexts, or for half a minute where somebody else must let it go on. */
int ca_await_any_locked(struct ca_space *space, bool exact, struct ca_patience *patience);

/* ---- graph.c: memory that graphs may use */

/* Before a capture begins, in which no context mark can be recorded: looks at memory that waits for
 * one, that of ended captures included, so that the next ones find it FREE. Waits for nothing.
 * Takes the heap's lock. (wait.c) */
void ca_deferred_before_capture(struct ca_heap *heap);

/* True, and it waits in space->graph_held: the block was handed out in a capture and freed, and a
 * graph may use it. It is in no list. */
bool ca_graph_keeps_locked(struct ca_block *block);
/* Lets go of what no graph can use any more. True: something was. Leaves and retakes the lock. */
bool ca_graph_look_locked(struct ca_heap *heap);

/*
 * Graphs. Memory handed out while something captures may be named by the graph that comes of it.
 * Read the serial before the capture begins and after it ended; then, before the driver says that
 * nothing captures any more, tell the heap of the graph: blocks with first < serial <= last are not
 * handed out again after their free until *gone is true (it must stay readable for ever). A capture
 * that ends without a graph need not be told. No driver call. -ENOMEM.
 */
uint64_t ca_graph_serial(struct ca_heap *heap);
int ca_graph_hold(struct ca_heap *heap, uint64_t first, uint64_t last, _Atomic bool *ended);
/* The end of the graph cannot be learned: their segments are retired, as by ca_retire. */
void ca_graph_retire(struct ca_heap *heap, uint64_t first, uint64_t last);

/* ---- register.c: former users of ALLOCATED memory */

/* The unfinished users that ALLOCATED blocks of ours (of any space) in the named ranges inherited.
 * Takes the heap's lock itself. `context`: more than fit, or not known. */
void ca_touch_users(struct ca_space *space, const struct ca_touch *touch,
		    struct ca_users *ret_users);

/*
 * An accessor that is no stream is given [address, address + bytes). Waits on the host for what the
 * inherited users of each block of ours there have not finished (counted as `settles`): exactly for
 * them where that is known, else, in a quiet space, for what was submitted to their stream so far.
 * From then on the space is not quiet any more, and memory of the range is handed out finished
 * only, until its segment is back at the driver. -ENOENT: nothing of ours is there;
 * -EBUSY: a capture of that very stream is in the way.
 */
int ca_register(struct ca_heap *heap, uint64_t address, uint64_t bytes);
/* Memory will be registered: no space of the heap is quiet any more, so that the first
 * registration, too, waits exactly for what it must. */
void ca_register_begins(struct ca_heap *heap);
