/* SPDX-License-Identifier: MIT */
/*
 * The records behind allocator/heap.h: private to allocator/.
 *
 * One lock a heap guards every field here. A thread that leaves the lock to call the driver may
 * keep records only *in its hand*: on a list of its own (struct ca_hand, a segment's `hand` link).
 * Whoever forgets a record while the lock is free (context death, stale address) unlinks it from
 * whatever list it is on, so after taking the lock again a thread looks at its list: what is no
 * longer there has died and must not be touched.
 *
 * A block's way:  FRESH -> LIVE -> WAITING -> CLEAN -> LIVE ...
 *                                  WAITING -> IDLE (segment retired) -> returned
 * WAITING blocks are in exactly one list: a thread's hand, a mark's `blocks`, or the space's
 * `unmarked`. CLEAN blocks are in their pool's indexes. Neighbouring CLEAN blocks are always
 * merged.
 */
#pragma once

#include <pthread.h>

#include "allocator/arena.h"
#include "allocator/heap.h"
#include "allocator/list.h"
#include "allocator/stream.h"
#include "allocator/tree.h"

/* Sizes, in bytes. */
#define CA_GRAIN ((uint64_t)512)             /* every block is a multiple */
#define CA_SMALL_MAX ((uint64_t)1 << 20)     /* largest block of the small pool */
#define CA_SMALL_SEGMENT ((uint64_t)2 << 20) /* segment of the small pool */
#define CA_LARGE_MIN ((uint64_t)10 << 20)    /* from here a request has a segment of its size */
#define CA_BOUNDARY ((uint64_t)2 << 20)      /* from here a request starts on such a boundary */
#define CA_SIZE_MAX ((uint64_t)1 << 60)      /* larger requests are not ours */

enum ca_block_state {
	CA_BLOCK_FRESH,   /* just made, in no sum and no index */
	CA_BLOCK_LIVE,    /* the program has it */
	CA_BLOCK_WAITING, /* freed; the device may still use it */
	CA_BLOCK_CLEAN,   /* free, finished, indexed */
	CA_BLOCK_IDLE,    /* free in a retired segment: never handed out again */
};

struct ca_segment;

struct ca_block {
	struct ca_tree_node by_address; /* heap->by_address, always */
	struct ca_tree_node by_size;    /* CLEAN: pool->by_size */
	struct ca_tree_node by_usable;  /* CLEAN, large pool: pool->by_usable */
	struct ca_tree_node by_whole;   /* CLEAN, whole segment, not stuck: space->wholes */
	struct ca_list waiting;         /* WAITING: see above */
	struct ca_block *prev, *next;   /* neighbours in the segment */
	struct ca_segment *segment;
	uint64_t address;
	uint64_t bytes;
	uint64_t requested; /* bytes, of the last allocation */
	uint64_t serial;    /* of the last allocation */
	enum ca_block_state state;
};

struct ca_pool {
	struct ca_tree by_size; /* CLEAN blocks by (bytes, address) */
	/* CLEAN blocks with a 2 MiB boundary inside, by (bytes from there, address) */
	struct ca_tree by_usable;
	uint64_t waiting_bytes; /* in WAITING blocks */
	bool small;
};

struct ca_segment {
	struct ca_list link; /* space->segments */
	struct ca_list hand; /* a thread returning it, or space->due */
	struct ca_space *space;
	struct ca_pool *pool;
	struct ca_block *first; /* lowest block */
	uint64_t address;
	uint64_t bytes;
	uint64_t live;  /* LIVE blocks */
	bool adopted;   /* the program took it from the driver itself */
	bool retired;   /* adopted, exported, poisoned: back to the driver at the last free */
	bool stuck;     /* the driver refused it: not offered again in this round */
	bool returning; /* inside the driver's free: its address may be another's already */
};

/* A mark and the blocks that wait for it. */
struct ca_group {
	struct ca_list link;   /* space->pending, oldest first */
	struct ca_list blocks; /* ca_block.waiting */
	ca_mark mark;
	bool late; /* some of the blocks were freed long before the mark was recorded */
};

struct ca_device {
	struct ca_device *next;
	unsigned ordinal;
	unsigned in_flight;  /* driver calls in progress that may bring memory back */
	uint64_t generation; /* advances whenever memory may have become available */
	uint64_t put_back;   /* advances when a group comes back unchanged: others may ask it now */
	uint64_t drainable_bytes; /* in segments without a live block */
	struct ca_stats stats;    /* figures (not gauges, counters) unused */
};

struct ca_space {
	struct ca_space *next; /* heap->spaces */
	struct ca_heap *heap;
	struct ca_device *device;
	void *context;
	struct ca_pool pools[2]; /* small, large */
	struct ca_tree wholes;   /* by (bytes, address) */
	struct ca_list segments;
	struct ca_list due; /* ca_segment.hand: retired segments to be returned outside captures */
	struct ca_list pending;  /* ca_group.link */
	struct ca_list unmarked; /* ca_block.waiting */
	uint64_t waiting_blocks;
	uint64_t stuck_segments; /* at least as many as are stuck */
	bool dead;
	bool poisoned; /* the driver reports errors for everything: no reuse any more */
	struct ca_order order;
};

struct ca_heap {
	pthread_mutex_t lock;
	struct ca_config config;
	struct ca_driver driver;
	struct ca_arena fixed; /* heap, devices, spaces: survive a fork */
	struct ca_arena records;
	struct ca_objects blocks, segments, groups;
	struct ca_tree by_address;
	struct ca_space *spaces; /* newest first */
	struct ca_device *devices;
	uint64_t serial;        /* of the last allocation */
	bool no_marks;          /* mark_record answered -ENOTSUP */
	unsigned finished_only; /* CA_REASON_* of every space, those to come included */
};

static inline uint64_t
ca_round_up(uint64_t bytes, uint64_t step)
{
	return (bytes + step - 1) / step * step;
}

/* ---- stats.c: sums */
void ca_gauge_add(struct ca_gauge *gauge, uint64_t bytes);
void ca_gauge_sub(struct ca_gauge *gauge, uint64_t bytes);
#define CA_COUNT(space, name) ((space)->device->stats.name++)

/* ---- block.c: states, splitting and merging */

/* Moves the block's bytes between the sums. Touches no index and no list. */
void ca_block_set_state_locked(struct ca_block *block, enum ca_block_state state);
/* Cuts an unindexed block; *upper becomes the part from `bytes` on,
 * in the same state and no index. */
void ca_block_split_locked(struct ca_block *block, uint64_t bytes, struct ca_block *upper);
/* A WAITING or FRESH block in no list becomes free:
 * CLEAN, merged and indexed, or IDLE in a retired segment. */
void ca_block_settle_locked(struct ca_block *block);
/* The block whose bytes hold `address`, or NULL. */
struct ca_block *ca_block_find_locked(struct ca_heap *heap, uint64_t address);
/*
 * For questions of the program: while the segment is on its way back, the driver may already have
 * given the address to somebody else, so the answer waits until that is decided. Leaves and retakes
 * the lock.
 */
struct ca_block *ca_block_find_settled_locked(struct ca_heap *heap, uint64_t address);

/* ---- pool.c: which block serves, and how it is cut */
void ca_pool_init(struct ca_pool *pool, bool small);
void ca_pool_index_locked(struct ca_block *block);
void ca_pool_unindex_locked(struct ca_block *block);
struct ca_pool *ca_pool_for(struct ca_space *space, uint64_t bytes);
/* The segment the pool's rule asks of the driver for
 * a request of `bytes` (rounded to the grain). */
uint64_t ca_pool_segment_bytes(const struct ca_config *config, uint64_t bytes);
/* Best fit, cut: CLEAN, in no index, for the caller to make LIVE. NULL when nothing fits (or no
 * record for the rest could be had). */
struct ca_block *ca_pool_take_locked(struct ca_space *space, uint64_t bytes);
/* True when the next take would use a block as it is, without cutting one. */
bool ca_pool_fits_whole_locked(struct ca_space *space, uint64_t bytes);
/* True when the rest of `block` behind the first `bytes` is worth a block of its own. */
bool ca_pool_splits(const struct ca_config *config, const struct ca_block *block, uint64_t bytes);
/* Bytes that a request of 2 MiB or more finds in the block; 0 without a boundary inside. */
uint64_t ca_block_usable(const struct ca_block *block, uint64_t *ret_pad);

/* ---- segment.c: taking from and giving back to the driver. These leave and retake the lock. */

enum ca_segment_kind {
	CA_SEGMENT_CUT,   /* the rest behind the block may become a free block */
	CA_SEGMENT_WHOLE, /* one block */
};

/* A segment of segment_bytes and in it a FRESH block of `bytes` at its start, for the caller to
 * make LIVE. Driver's code, -ENOMEM, -ENODEV (space died). */
int ca_segment_take_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
			   enum ca_segment_kind kind, struct ca_block **ret_block);
/* Enters a segment of one FRESH block that somebody else took. -ENOMEM. */
int ca_segment_enter_locked(struct ca_space *space, uint64_t address, uint64_t bytes,
			    struct ca_block **ret_block);
/*
 * Gives a segment back whose blocks are IDLE or WAITING and whose `hand` is in no list. 0: gone,
 * forgotten; otherwise it is still there unless it died meanwhile, in which case 0 is returned: > 0
 * the driver's code, -EBUSY.
 */
int ca_segment_return_locked(struct ca_segment *segment);
/* Drops the records of a segment and all its blocks, without the driver. */
void ca_segment_forget_locked(struct ca_segment *segment);
/* No reuse from now on; without a live block it is due for return. */
void ca_segment_retire_locked(struct ca_segment *segment);
/* A whole CLEAN segment, by its one block.
 * Result as ca_segment_return_locked; on failure it is CLEAN again. */
int ca_segment_release_locked(struct ca_block *block);
/* A new round of giving back begins: what the driver refused in the last one is offered again. */
void ca_segment_unstick_locked(struct ca_space *space);
/* Returns what `due` holds. Bytes given back; *ret_busy (may be NULL) is set when a capture stood
 * in the way. */
uint64_t ca_segment_return_due_locked(struct ca_space *space, bool *ret_busy);

/* ---- pending.c: frees that wait for marks. These leave and retake the lock. */

/*
 * A list of WAITING blocks in a thread's hand gets a mark recorded from now on, or waits on the
 * host. Blocks are on a mark, CLEAN or on `unmarked` afterwards. > 0 or -EIO: mark and host wait
 * failed, the space is poisoned, and `keep` (may be NULL; the first of the list) is LIVE again.
 */
int ca_pending_submit_locked(struct ca_space *space, struct ca_list *hand, struct ca_block *keep);
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
	CA_WAIT_ANY,   /* also for work submitted after the free: memory is short */
};

/* Waits on the host for the oldest group. 1: settled one; 0: nothing to wait for;
 * -EAGAIN: work of other contexts is in the way; -EBUSY: capture. */
int ca_pending_wait_locked(struct ca_space *space, enum ca_wait which);
/* Takes the WAITING blocks of one segment without a live block off their marks and makes the
 * segment due for return, where the driver's free does the waiting. False: there is none. */
bool ca_pending_surrender_locked(struct ca_space *space);

/* ---- ladder.c: out of memory */

/*
 * While something captures no mark can be asked, and memory that was freed natively would be free:
 * whole segments without a live block go back although the device may still use them, since the
 * driver's free waits as it does for the program's own. Returns bytes given back.
 */
uint64_t ca_ladder_release_unfinished_locked(struct ca_space *space, uint64_t bytes);
/* The take by the pool's rule, and the ladder if the driver is out of memory. *ret_block as from
 * the take, or CLEAN and in no index (a hit, counted). */
int ca_ladder_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);

/* ---- outside.c: the locks, and leaving it for a driver call */

void ca_heap_lock(struct ca_heap *heap);
void ca_heap_unlock(struct ca_heap *heap);
/* May be taken with the heap's lock held. */
void ca_order_lock(struct ca_order *order);
void ca_order_unlock(struct ca_order *order);
/* Around a driver call that may bring memory back:
 * leaves the lock, counted as in flight; takes it again. */
void ca_outside_enter_locked(struct ca_space *space);
void ca_outside_leave(struct ca_space *space);
/* The child's one thread is in no driver call it could return from. */
void ca_outside_after_fork_child(void);
/* In-flight calls of other threads. */
unsigned ca_outside_others_locked(const struct ca_device *device);
/* True inside a driver call of the calling thread's own. */
bool ca_outside_self(void);
