/* SPDX-License-Identifier: MIT */
/* context_mark.c: frees that wait for marks. These leave and retake the lock. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct ca_block;
struct ca_list;
struct ca_space;

/* What a LIVE block has no room for while it waits; for who may have to make it LIVE again. */
struct ca_lent {
	struct ca_block *block;
	uint64_t requested; /* bytes */
	uint64_t serial;
};

/*
 * A list of WAITING blocks in a thread's hand gets a mark recorded from now on, or waits on the
 * host. Blocks are on a mark, CLEAN or on `unmarked` afterwards. > 0 or -EIO: mark and host wait
 * failed, the space is poisoned, and `keep` (may be NULL; the first of the list) is LIVE again.
 */
int ca_pending_submit_locked(struct ca_space *space, struct ca_list *hand,
			     const struct ca_lent *keep);
/* Tries to get one mark for everything unmarked. */
void ca_pending_mark_unmarked_locked(struct ca_space *space);
/* Settles finished groups, oldest first. Returns how many. */
unsigned ca_pending_poll_locked(struct ca_space *space);
/* Drops every mark of a dead space, whose blocks are forgotten. */
void ca_pending_drop_all_locked(struct ca_space *space);
/* The driver answers nothing but errors: retires every segment of the space. */
void ca_pending_poison_locked(struct ca_space *space);
enum ca_wait {
	CA_WAIT_EXACT, /* only for what the driver's own free would have waited for */
	/* the same, but for no stream that somebody else must let go on: that may need what the
	 * caller has taken since the free, a lock perhaps */
	CA_WAIT_LATER,
	CA_WAIT_ANY, /* also for work submitted after the free: memory is short */
};

/*
 * Waits on the host for the oldest group that the calling thread freed (another thread's free must
 * never hold this one up). 1: settled one; 0: nothing to wait for; -EAGAIN: work of other contexts
 * is in the way; -EBUSY: capture.
 */
int ca_pending_wait_locked(struct ca_space *space, enum ca_wait which);
/* There is a group that the calling thread freed, and no other thread asks it at the moment. */
bool ca_pending_has_own_locked(struct ca_space *space);
/*
 * Takes what waits in one segment without a live block, all of it freed by the calling thread, off
 * its marks and streams, and makes the segment due for return, which waits (await.c). False: there
 * is none.
 */
bool ca_pending_surrender_locked(struct ca_space *space);
/* The order of work is not known: the host waits for all of it. 1: done; -EBUSY: a capture is in
 * the way; otherwise the space is poisoned, and 1 is returned, too. */
int ca_pending_rescue_locked(struct ca_space *space);
/* Whether the whole context is idle, without waiting: the only way to learn of another thread's
 * per-thread stream. True: something waited for a stream and does no more. */
bool ca_pending_ask_context_locked(struct ca_space *space);
/* True for an answer after which the order of work can no longer be known. */
static inline bool
ca_pending_is_lost(int r)
{
	return r > 0 || r == -EIO;
}
