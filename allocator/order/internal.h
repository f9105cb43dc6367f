/* SPDX-License-Identifier: MIT */
/*
 * The files of the order tracker share this: stream.c (life of streams), pin.c, single_stream.c,
 * host_pause.c, epoch.c (stamps, users, bounds), early_reuse.c, stream_mark.c (marks),
 * stream_poll.c (questions to the driver), guard.c, clock.c (clocks), restrict.c.
 *
 * Functions named *_ordered want the order lock of the record's space and make no driver call.
 */
#pragma once

#include "allocator/core/lock.h"
#include "allocator/core/types.h"
#include "allocator/order/order.h"
#include "allocator/order/order_told.h"
#include "allocator/trace/trace.h"

static inline struct ca_stream_record *
ca_record(struct ca_stream *stream)
{
	return (struct ca_stream_record *)stream; /* hot comes first */
}

static inline struct ca_order *
ca_record_order(struct ca_stream_record *record)
{
	return &record->space->order;
}

static inline struct ca_space *
ca_order_space(struct ca_order *order)
{
	return CA_CONTAINER_OF(order, struct ca_space, order);
}

/* Raises *word to `value`. True if it was smaller. */
static inline bool
ca_raise(_Atomic uint64_t *word, uint64_t value)
{
	uint64_t was = atomic_load(word);

	while (was < value)
		if (atomic_compare_exchange_weak(word, &was, value))
			return true;
	return false;
}

/* Work of it may be unfinished. */
static inline bool
ca_record_is_busy(struct ca_stream_record *record)
{
	return atomic_load(&record->stream.last) > atomic_load(&record->done);
}

/* ---- pin.c */
/* True if the calling thread may hand the record's handle to the driver. */
bool ca_record_is_nameable_ordered(struct ca_stream_record *record);
/* Around driver calls that name the handle: false if it is not nameable (any more). Under the lock
 * unpin is `calls--`. */
bool ca_record_pin_ordered(struct ca_stream_record *record, void **ret_handle);
bool ca_record_pin(struct ca_stream_record *record, void **ret_handle);
void ca_record_unpin(struct ca_stream_record *record);

/* ---- single_stream.c */
/* By 1 or -1. */
void ca_order_candidates_change_ordered(struct ca_order *order, int change);
/* One candidate more. True if that ended a quiet space: mark what is exposed afterwards. */
bool ca_order_candidate_comes_ordered(struct ca_order *order);
/* A quiet space is about to end: memory freed until now has no exact marks, and those frees arm
 * their streams now. Mark what is exposed afterwards (ca_order_mark_exposed). */
void ca_order_leave_quiet_ordered(struct ca_order *order);
/* The space has a candidate. True if that makes it the second such space: one candidate more for
 * all. Under the heap's lock from before the candidate came; mark what is exposed afterwards. */
bool ca_order_other_active_locked(struct ca_space *space);
/* The space has died. */
void ca_order_other_inactive(struct ca_space *space);
/* Marks what is exposed in the space, or in every space. */
void ca_order_mark_exposed_in(struct ca_space *space, bool everywhere);

/* ---- host_pause.c */
/* Ticks without a submission that are a lull; 0: the driver's time is not the machine's. */
uint64_t ca_host_pause_ticks(const struct ca_driver *driver);
/* Memory of the stream was handed out unfinished, and it is not armed. */
void ca_host_pause_track(struct ca_stream *stream);
/* Before a submission to a watched stream: behind a lull, marks what is exposed of it. */
void ca_host_pause_look(struct ca_stream_record *record);

/* ---- epoch.c */
/* A bound that covers `last`: the epoch moves only if somebody was stamped with it. */
uint64_t ca_order_bound_over(struct ca_order *order, uint64_t last);
/* No mark of ours covers the work: the stream is another thread's, or lost. */
bool ca_record_needs_context(struct ca_stream_record *record);
/* The stream records a mark before its next submission, and before that of a stream that the driver
 * puts it behind. */
void ca_record_arm_ordered(struct ca_stream_record *record);
/* The user's stream does, one that covers it. */
void ca_user_arm_ordered(const struct ca_user *user);
/* Where nothing is exposed, memory freed in a quiet space waits as it does elsewhere. */
bool ca_order_waits_when_quiet(struct ca_order *order);
/* A new epoch begins. Returns a bound: of all stamps with earlier ones. */
uint64_t ca_order_advance(struct ca_order *order);
/* `done` of the record was raised: it may be idle now. */
void ca_record_settle_ordered(struct ca_stream_record *record);
/* Finished or lost: a thread that looks for progress finds it. */
void ca_order_note_progress(struct ca_order *order);
bool ca_order_is_quiet_ordered(struct ca_order *order);
/* Finished up to bound; the points that were waiting go to `dropped` (may be NULL: they stay). */
void ca_record_finished_ordered(struct ca_stream_record *record, uint64_t bound,
				struct ca_list *dropped);
void ca_record_finished(struct ca_stream_record *record, uint64_t bound, struct ca_list *dropped);
/* The next index >= *at of a stream with work unfinished; NULL: there is none. */
struct ca_stream_record *ca_order_next_active_ordered(struct ca_order *order, unsigned *at);

/* ---- stream_mark.c */
/* The first published point that covers `stamp`, or NULL. */
struct ca_stream_mark *ca_stream_mark_find_ordered(struct ca_stream_record *record, uint64_t stamp);
/* Records a mark on the stream, published on success. 0; -ENODEV: nobody can (closed, dead);
 * -ENOTSUP: this thread cannot; -EBUSY, -ENOMEM: not now; otherwise the stream is lost. */
int ca_stream_mark_record(struct ca_stream_record *record);
/* The same, but a failure means nothing: no mark was due. */
int ca_stream_mark_try(struct ca_stream_record *record);
/* The same for a question. `ret_point` not NULL: the mark, with a reference. */
int ca_stream_mark_record_to_poll(struct ca_stream_record *record,
				  struct ca_stream_mark **ret_point);
/* The driver's answer for `point`, or, if that is NULL, for the whole stream, which was pinned: 0:
 * done up to the bound; an error other than "not yet": the stream is lost. */
void ca_stream_mark_note_answer(struct ca_stream_record *record, struct ca_stream_mark *point,
				uint64_t bound, int r);
/* Asks about the point, which has a reference of the caller's. 0: it is done. */
int ca_stream_mark_query(struct ca_stream_record *record, struct ca_stream_mark *point,
			 int (*how)(void *self, ca_mark mark));
/* True if a mark is missing; otherwise whatever armed the stream is served. */
bool ca_stream_mark_is_due(struct ca_stream_record *record);
/* The same unless everything so far is covered or finished. */
int ca_stream_mark_record_if_due(struct ca_stream_record *record);
/* True: an exact point that covers `stamp` can be recorded now. *ret_code 0: that, or there is one;
 * -EAGAIN: neither. */
bool ca_stream_mark_is_missing(struct ca_stream_record *record, uint64_t stamp, int *ret_code);
/* As ca_stream_mark_find_ordered, with a reference, for a thread without the lock. */
struct ca_stream_mark *ca_stream_mark_get(struct ca_stream_record *record, uint64_t stamp);
void ca_stream_mark_unreference_ordered(struct ca_stream_mark *point, struct ca_list *dropped);
void ca_stream_mark_put(struct ca_stream_record *record, struct ca_stream_mark *point);
/* Finished points, and all of a dead space: to `dropped`, for ca_stream_mark_drop. */
void ca_stream_marks_collect_ordered(struct ca_stream_record *record, struct ca_list *dropped);
void ca_stream_marks_drop(struct ca_space *space, struct ca_list *dropped);
/* Its unfinished memory was handed out, and no mark covers that. */
bool ca_record_is_unmarked_ordered(struct ca_stream_record *record);
bool ca_record_is_unmarked(struct ca_stream_record *record);
/* No mark of the stream can be had any more. */
void ca_record_set_lost(struct ca_stream_record *record);
/* Marks every stream with unfinished memory handed out that has no mark for it. */
void ca_order_mark_exposed(struct ca_space *space);

/* ---- stream_poll.c */
/* Asks whether all of the space's work is through that was submitted before the question was first
 * put. */
void ca_order_poll_context(struct ca_space *space);

/* ---- guard.c */
/* Records the marks that are due of armed streams that the driver orders with this one: later they
 * would stand behind what is about to be submitted to it. */
void ca_record_mark_ordered(struct ca_stream_record *record);
/* The driver orders a legacy stream and the blocking ones of its context. (Not known of a destroyed
 * stream's work.) */
bool ca_record_is_ordered_by_driver(const struct ca_stream_record *a,
				    const struct ca_stream_record *b);

/* ---- early_reuse.c */
/* The next programmatic launch on the stream goes out without its attribute. */
void ca_record_note_reuse(struct ca_stream_record *record);

/* ---- dominance.c */
enum { CA_CANDIDATES_MAX = 64 };
/* Whatever may be a user of a freed block: each stream once, none finished. */
struct ca_candidates {
	unsigned n;
	bool more; /* than fit */
	struct ca_user user[CA_CANDIDATES_MAX];
};
/* Those that no other one stands for. `context` is raised if they are too many, never cleared. */
void ca_users_choose_ordered(const struct ca_candidates *all, struct ca_users *ret_users);

/* Adds the streams stamped at `birth` or later, and those that somebody else must end. (epoch.c) */
void ca_users_collect_ordered(struct ca_order *order, uint64_t birth, struct ca_candidates *all);

/* ---- clock.c */
/* Does the next submission to `record` come after (stream, stamp)? */
bool ca_clock_includes_ordered(const struct ca_stream_record *record,
			       const struct ca_stream *stream, uint64_t stamp);
void ca_clock_update_ordered(struct ca_stream_record *record, struct ca_stream *stream,
			     uint64_t stamp);
