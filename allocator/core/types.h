/* SPDX-License-Identifier: MIT */
/*
 * The records behind allocator/api/heap.h: private to allocator/.
 *
 * One lock a heap guards every field here. A thread that leaves the lock to call the driver may
 * keep records only *in its hand*: on a list of its own (struct ca_hand, a segment's `hand` link).
 * Whoever forgets a record while the lock is free (context death, stale address) unlinks it from
 * whatever list it is on, so after taking the lock again a thread looks at its list: what is no
 * longer there has died and must not be touched.
 *
 * A block's way:  FRESH -> LIVE -> CLEAN -> LIVE ...           nobody uses it any more
 *                          LIVE -> OWNED or MULTI -> CLEAN     when its users have finished
 *                                  OWNED or MULTI -> LIVE      exposed: its users are inherited
 *                          LIVE -> WAITING -> CLEAN            users that no stream mark covers
 *                                  any of these -> IDLE (segment retired) -> returned
 * WAITING blocks are in exactly one list: a thread's hand, a mark's `blocks`, the space's
 * `unmarked`, or its `held`. An OWNED block is in the list of its stream, a MULTI block in that of
 * its set of users; neither is ever in a hand. CLEAN blocks are in their pool's indexes, the others
 * in those of their stream or set. Neighbouring CLEAN blocks are always merged, and so are
 * neighbours OWNED by the same stream and MULTI ones of the same set (ca_block_is_alike).
 * A block that its free left in a magazine is still LIVE here (allocator/tcache/tcache.h); when it
 * comes out, it is CLEAN_OUT or OWNED_OUT until it has got the place that it would have got at its
 * free.
 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "allocator/util/arena.h"
#include "allocator/block/live_table.h"
#include "allocator/policy/policy.h"
#include "allocator/block/registered.h"
#include "allocator/api/heap.h"
#include "allocator/util/size_index.h"
#include "allocator/util/list.h"
#include "allocator/tcache/tcache.h"
#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/policy/held.h"
#include "allocator/util/slab.h"
#include "allocator/order/users.h"
#include "allocator/trace/trace_event.h"
#include "allocator/trace/trace.h"
#include "allocator/util/tree.h"

/* What is seldom called from where every call passes: apart, so that only it saves registers. */
#define CA_APART __attribute__((noinline, cold))

/* In a loop that waits for another processor. */
static inline void
ca_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Sizes, in bytes. */
#define CA_GRAIN ((uint64_t)512)             /* every block is a multiple */
#define CA_SMALL_MAX ((uint64_t)1 << 20)     /* largest block of the small pool */
#define CA_SMALL_SEGMENT ((uint64_t)2 << 20) /* segment of the small pool */
#define CA_LARGE_MIN ((uint64_t)10 << 20)    /* from here a request has a segment of its size */
#define CA_PAGE ((uint64_t)2 << 20)          /* the driver's: large segments are multiples */
#define CA_ALIGNED_MIN ((uint64_t)2 << 20)   /* from here a request starts on a boundary of */
#define CA_ALIGNMENT ((uint64_t)64 << 10) /* its segment, which starts on a page (block/pool.c) */
#define CA_SIZE_MAX ((uint64_t)1 << 60)   /* larger requests are not ours */

enum ca_block_state {
	CA_BLOCK_FRESH,   /* just made, in no sum and no index */
	CA_BLOCK_LIVE,    /* the program has it */
	CA_BLOCK_WAITING, /* freed; waits for a context mark, or for the end of a graph */
	CA_BLOCK_OWNED,   /* freed; one stream may still use it, or what it comes after; indexed */
	CA_BLOCK_MULTI,   /* freed; several streams may still use it; indexed */
	CA_BLOCK_CLEAN,   /* free, finished, indexed */
	CA_BLOCK_IDLE,    /* free in a retired segment: never handed out again */
	CA_BLOCK_CLEAN_OUT, /* just out of a magazine, in no index: about to become CLEAN */
	CA_BLOCK_OWNED_OUT, /* the same, with a user: OWNED, most likely */
};

struct ca_segment;

struct ca_user_set;

/* The users of a block that has several, or another one than its stream; each stream once. */
struct ca_several {
	struct ca_users users;
	union {
		uint64_t born;           /* LIVE: epoch */
		struct ca_user_set *set; /* MULTI */
	};
};

/* What a block needs only while it is free: its places in the trees. */
struct ca_places {
	struct ca_tree_node by_size;   /* pool->by_size */
	struct ca_tree_node by_usable; /* large pool: pool->by_usable */
	struct ca_block *block;
	struct ca_several *several; /* OWNED: NULL: its stream is its one user; MULTI */
};

/*
 * What a hit of a magazine touches is the last 64 bytes. Records lie side by side, every other one
 * on a cache line (util/slab.h): so of two neighbours the one has its 64 bytes in a line of their
 * own, the other in two, of which nobody else's hits touch anything. Threads whose blocks' records
 * are neighbours do not disturb each other.
 */
struct ca_block {
	struct ca_block *prev, *next; /* neighbours in the segment */
	uint64_t address;
	struct ca_segment *segment;
	uint64_t bytes;
	union {
		/* in a list; WAITING, OWNED, MULTI: see above */
		struct ca_list waiting;
		/* LIVE, of the last allocation. Where the block is in a magazine, or may get there,
		 * this belongs to who has it, and so do `born`, `below`, `thread` and `user`: the
		 * program's calls and the magazine's lock exclude each other. */
		struct {
			_Atomic uint64_t requested; /* bytes */
			_Atomic uint64_t serial;
		};
	};
	/* LIVE: whose unfinished memory it was handed out as; OWNED: in whose list it is,
	 * and where there; MULTI: of the first stream of its set. Its one user, if it has no
	 * `several`. No stream: none. */
	struct ca_user user;
	/* NULL in any other state */
	union {
		uint64_t born;              /* LIVE, the program has it: epoch */
		struct ca_block *below;     /* LIVE, in a magazine: freed before it */
		struct ca_several *several; /* LIVE, `has_several`: and when it was born */
		struct ca_places *places;   /* CLEAN, OWNED, MULTI: indexed, or about to be */
	};
	/* LIVE: that allocated it; freed: that freed it, 0 if several. See ca_order_thread */
	uint32_t thread;
	union {
		struct {
			uint32_t space : 22;      /* its number */
			uint32_t sync_memops : 1; /* LIVE: set by the program; no magazine either */
			uint32_t has_several : 1; /* LIVE: users; no magazine takes it then */
			enum ca_block_state state : 8;
		};
		uint32_t space_and_state;
	};
	/* last: read without a lock, even when the record has gone round */
	_Atomic uint64_t quick; /* allocator/tcache/tcache.h */
};
_Static_assert(sizeof(struct ca_block) == 96, "what 100,000 live blocks cost");
_Static_assert(offsetof(struct ca_block, bytes) == 32, "what a hit touches");
/* ca_block.space_and_state */
#define CA_SPACES_MAX ((uint32_t)1 << 22)
static inline uint32_t
ca_block_word(uint32_t space, enum ca_block_state state)
{
	return (struct ca_block){ .space = space & (CA_SPACES_MAX - 1), .state = state }
		.space_and_state;
}

/* The lowest blocks at equal distances, powers of two, in a segment of several:
 * ca_block_find_locked. */
enum { CA_CHART_LOG = 5, CA_CHART = 1 << CA_CHART_LOG };
struct ca_chart {
	struct ca_block *at[CA_CHART];
};

/* A space's pool of CLEAN blocks, a stream's of OWNED ones, or a set's of MULTI ones. */
struct ca_pool {
	struct ca_index by_size; /* by (bytes, address) */
	/* blocks with 2 MiB or more behind a boundary inside, by (bytes from there, address) */
	struct ca_index by_usable;
	uint64_t waiting_bytes; /* a space's: in WAITING and MULTI blocks */
	uint64_t owned_bytes;   /* a space's: in OWNED blocks */
	bool small;
};

/* Streams that are the users of the same blocks: deferred/multi_user.c. */
struct ca_user_set {
	struct ca_list link; /* space->sets */
	unsigned n;          /* streams; 0: blocks of any users are here, for want of sets */
	struct ca_stream *stream[CA_USERS_MAX]; /* by index */
	struct ca_pool pools[2];
	struct ca_list blocks; /* ca_block.waiting, smallest stamp of the first stream first */
};

enum {
	CA_STUCK = 1, /* the driver refused it: not offered again in this round */
	CA_RESTS = 2, /* was seen whole and free, at the two moments below */
};

struct ca_segment {
	struct ca_tree_node by_address;   /* heap->by_address */
	struct ca_tree_node by_whole;     /* one block, CLEAN, not stuck: space->wholes */
	struct ca_registered *registered; /* NULL: nothing of it was ever registered */
	struct ca_chart *chart; /* NULL: it is one block, or was when there was no memory */
	uint64_t rests_since_ns;
	uint64_t rests_since; /* heap->serial */
	struct ca_list link;  /* space->segments */
	struct ca_list hand;  /* a thread returning it, or space->due */
	uint64_t serial;      /* `captured`, and its block freed: the block's */
	struct ca_space *space;
	struct ca_pool *pool;
	struct ca_block *first; /* lowest block */
	uint64_t address;
	uint64_t bytes;
	uint64_t live; /* LIVE blocks */
	bool adopted;  /* the program took it from the driver itself */
	bool retired;  /* adopted, exported, poisoned: back to the driver at the last free */
	bool managed;  /* managed memory, for want of other */
	unsigned char standing; /* CA_STUCK, CA_RESTS; 0 again when memory of it is handed out */
	bool returning;         /* inside the driver's free: its address may be another's already */
	bool captured; /* its one block was handed out in a capture (deferred/graph_memory.c) */
	unsigned char chart_log; /* of the distance of the chart's blocks, bytes */
};

/* By a node of space->wholes. */
static inline struct ca_block *
ca_whole_block(struct ca_tree_node *node)
{
	return CA_CONTAINER_OF(node, struct ca_segment, by_whole)->first;
}

/* A mark and the blocks that wait for it. */
struct ca_group {
	struct ca_list link;   /* space->pending, oldest first */
	struct ca_list blocks; /* ca_block.waiting */
	ca_mark mark;
	uint64_t bound;  /* of the stamps that the mark covers */
	uint64_t thread; /* that freed all the blocks; 0: several */
	bool late;       /* some of the blocks were freed long before the mark was recorded */
};

/* Memory handed out in a capture from which a graph was made. */
struct ca_hold {
	struct ca_list link;  /* heap->graphs */
	uint64_t first, last; /* serials: first < serial <= last */
	_Atomic bool *gone;   /* the last graph that can use it is gone */
};

/* Memory by a call that is not ours to serve, where there is a limit. */
struct ca_charge {
	struct ca_tree_node node; /* heap->charged, by (handle, kind) */
	struct ca_space *space;
	uint64_t bytes; /* requested */
};

struct ca_device {
	struct ca_device *next;
	unsigned ordinal;
	unsigned in_flight;       /* driver calls in progress that may bring memory back */
	uint64_t generation;      /* advances whenever memory may have become available */
	uint64_t drainable_bytes; /* in segments without a live block */
	uint64_t total_bytes;     /* of the device; 0: not asked yet (policy/memory_limit.c) */
	uint64_t taking_bytes;    /* segments being asked of the driver, where there is a limit */
	uint64_t other_bytes;     /* of calls that are not ours to serve, where there is a limit */
	uint64_t managed_bytes;   /* in managed segments */
	uint64_t next_trim;       /* alloc_calls at which trim_every is due (policy/trim.c) */
	uint64_t next_look_ns;    /* when trim_idle_ms looks again */
	uint64_t gc_wanted;       /* bytes that the next free is to give back */
	struct ca_budget budget;
	struct ca_stats stats; /* figures (not gauges, counters) unused */
};

enum {
	CA_ATTENTION_ALWAYS = 1, /* they do not serve: dead, poisoned, or segments are due */
	/* what is freed may have a user though no stream was stamped: a hazard ever began, or more
	 * than a network card was seen that restricts reuse to finished memory. Set before those.
	 */
	CA_ATTENTION_ORDER = 2,
};

struct ca_space {
	struct ca_space *next; /* heap->spaces */
	struct ca_heap *heap;
	struct ca_device *device;
	void *context;
	struct ca_pool pools[2]; /* small, large */
	struct ca_index wholes;  /* by (bytes, address) */
	struct ca_list segments;
	struct ca_list due; /* ca_segment.hand: retired segments to be returned outside captures */
	uint64_t due_bound; /* of the stamps of work that may use them */
	uint64_t awaited;   /* unseen work was waited for up to this stamp, as far as it can be */
	struct ca_list pending;  /* ca_group.link */
	struct ca_list unmarked; /* ca_block.waiting */
	struct ca_list held;     /* ca_block.waiting: freed memory of captures */
	struct ca_list sets;     /* ca_user_set.link */
	unsigned n_sets;
	struct ca_stream_record
		*main; /* the stream that most memory is asked for: deferred/multi_user.c */
	unsigned main_votes;
	uint64_t id;                     /* no other space of the process ever had it */
	_Atomic unsigned attention;      /* CA_ATTENTION_*: what is not usual in magazines */
	_Atomic uint64_t waiting_blocks; /* WAITING */
	_Atomic uint64_t owned_blocks;   /* OWNED and MULTI */
	uint64_t settled;                /* order.progress for which streams' lists were settled */
	uint64_t stuck_segments;         /* at least as many as are stuck */
	uint64_t freed_by;               /* the thread that freed last; 0: none so far */
	unsigned impatience;             /* moments in vain, lately */
	unsigned not_now;                /* allocations until the next one */
	unsigned number;                 /* from 0, in the order of their making */
	bool several_free;               /* freed_by was another one before */
	bool dead;
	bool poisoned; /* the driver reports errors for everything: no reuse any more */
	struct ca_order order;
};

struct ca_heap {
	_Atomic bool shared;   /* ca_heap_share */
	_Atomic unsigned lock; /* lock.c */
	bool plain;            /* requests are rounded to the grain, and served */
	bool quick;            /* magazines serve */
	bool limited;          /* there is a limit, or something relative to one */
	struct ca_config config;
	struct ca_driver driver;
	struct ca_arena fixed; /* heap, devices, spaces: survive a fork */
	struct ca_arena records;
	struct ca_slabs blocks, places;
	struct ca_objects charts, ranges, segments, groups, users, holds, charges;
	struct ca_tree by_address; /* ca_segment.by_address */
	struct ca_tree charged;    /* struct ca_charge, by (handle, kind): policy/memory_limit.c */
	struct ca_bases bases;
	uint64_t id;                   /* no other heap of the process ever had it */
	struct ca_magazine *magazines; /* all of them */
	struct ca_magazine **magazines_end;
	struct ca_space *spaces; /* newest first */
	struct ca_device *devices;
	struct ca_list graphs;    /* ca_hold.link */
	uint64_t serial;          /* of the last allocation */
	uint64_t requests;        /* allocations that no magazine served without the lock */
	_Atomic bool no_marks;    /* mark_record answered -ENOTSUP */
	bool undecided;           /* memory of a capture was freed that no graph holds so far */
	unsigned finished_only;   /* CA_REASON_* of every space, those to come included */
	unsigned n_spaces;        /* made so far */
	struct ca_tracer *tracer; /* NULL: nobody records */
	unsigned peopled;         /* spaces that are: ca_order.peopled */
	bool registers; /* ca_register_begins: a space to come is `shown` from the start */
};

static inline uint64_t
ca_round_up(uint64_t bytes, uint64_t step)
{
	return (bytes + step - 1) / step * step;
}

/* ---- sums, and what api/stats.c makes of them */

static inline void
ca_gauge_add(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current += bytes;
	gauge->total += bytes;
	/* signed: what one thread allocated and another freed may be counted in that order */
	if ((int64_t)gauge->current > (int64_t)gauge->peak)
		gauge->peak = gauge->current;
}

static inline void
ca_gauge_sub(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current -= bytes;
}
#define CA_COUNT(space, name) ((space)->device->stats.name++)

/* Of words that others read without the lock. */
static inline void
ca_change(_Atomic uint64_t *word, uint64_t difference)
{
	atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + difference,
			      memory_order_relaxed);
}

/* ---- block/registered.c: see block/registered.h */
static inline bool
ca_registered_overlaps(const struct ca_block *block)
{
	return __builtin_expect(block->segment->registered != NULL, 0) &&
	       ca_registered_overlaps_some(block);
}

/* ---- block/round.c: the bytes of a block for `size` of them */

uint64_t ca_round_request(const struct ca_roundup *roundup, uint64_t size);
static inline uint64_t
ca_rounded(const struct ca_heap *heap, uint64_t size)
{
	if (__builtin_expect(!heap->plain, 0))
		return ca_round_request(&heap->config.roundup, size);
	return ca_round_up(size, CA_GRAIN);
}

/* ---- block/block.c: states, splitting and merging */

/* A record, zeroed but for `quick`. NULL: mmap fails. No free of it ever fails for want of memory.
 */
struct ca_block *ca_block_new_locked(struct ca_heap *heap);

static inline uint64_t
ca_block_requested(const struct ca_block *block)
{
	return atomic_load_explicit(&block->requested, memory_order_relaxed);
}

/* 0: not so many grains, or more than are kept count of. */
static inline uint32_t
ca_grains(uint64_t bytes)
{
	uint64_t grains = bytes / CA_GRAIN;

	return bytes % CA_GRAIN || grains > UINT32_MAX ? 0 : (uint32_t)grains;
}

/* Of what a LIVE block was last asked for, by the rules of sizes. */
static inline uint32_t
ca_block_grains(const struct ca_heap *heap, const struct ca_block *block)
{
	return ca_grains(ca_rounded(heap, ca_block_requested(block)));
}

/* Moves the block's bytes between the sums. Touches no index and no list. */
void ca_block_set_state_locked(struct ca_block *block, enum ca_block_state state);
/* Cuts an unindexed block; *upper becomes the part from `bytes` on, in the same state and no index,
 * and next to it in the list of its stream. */
void ca_block_split_locked(struct ca_block *block, uint64_t bytes, struct ca_block *upper);
/* The same from below: *lower becomes the first `bytes`, in no index and no list; `block`, what is
 * left, may stay indexed, but has to be indexed again. */
void ca_block_split_lower_locked(struct ca_block *block, uint64_t bytes, struct ca_block *lower);
/* A freed or FRESH block in no list and no index becomes free:
 * CLEAN, merged and indexed, or IDLE in a retired segment. */
void ca_block_settle_locked(struct ca_block *block);
/* The same for a block that `user` may still use: OWNED, merged, indexed and in its list.
 * `several` not NULL: its users are these, and the stream comes after all of them. */
void ca_block_own_locked(struct ca_block *block, struct ca_user user, struct ca_several *several);
/* The same for a block with several users, of a set: MULTI. */
void ca_block_wait_locked(struct ca_block *block, struct ca_several *several);
/* Nobody is the block's user any more. Before it leaves its state; it is in no index. */
void ca_block_drop_users_locked(struct ca_block *block);
/* Free neighbours, from `first` to `last`, become one block, CLEAN and in no index. */
struct ca_block *ca_block_gather_locked(struct ca_block *first, struct ca_block *last);
/* The block is about to be LIVE, born then, and has several users. */
void ca_block_keep_several_locked(struct ca_block *block, uint64_t born);
/* Two neighbours in the same state, OWNED, MULTI or CLEAN, are to be one. */
bool ca_block_is_alike(const struct ca_block *block, const struct ca_block *neighbour);
/* Takes the block out of whatever list and index its state has it in, and drops its users. */
void ca_block_detach_locked(struct ca_block *block);

static inline bool
ca_block_waits(const struct ca_block *block)
{
	return block->state == CA_BLOCK_WAITING || block->state == CA_BLOCK_OWNED ||
	       block->state == CA_BLOCK_MULTI;
}

static inline bool
ca_block_is_indexed(const struct ca_block *block)
{
	return (block->state == CA_BLOCK_CLEAN || block->state == CA_BLOCK_OWNED ||
		block->state == CA_BLOCK_MULTI) &&
	       block->places && block->places->by_size.height;
}

/* NULL: it has one user, or none. */
static inline struct ca_several *
ca_block_several(const struct ca_block *block)
{
	if (block->state == CA_BLOCK_LIVE)
		return block->has_several ? block->several : NULL;
	if (block->state != CA_BLOCK_OWNED && block->state != CA_BLOCK_MULTI)
		return NULL;
	return block->places ? block->places->several : NULL;
}

/* All users of a LIVE, OWNED or MULTI block, finished or not. */
static inline void
ca_block_users(const struct ca_block *block, struct ca_users *ret_users)
{
	const struct ca_several *several = ca_block_several(block);

	if (several) {
		*ret_users = several->users;
		return;
	}
	ret_users->context = false;
	ret_users->n = block->user.stream != NULL;
	ret_users->user[0] = block->user;
}

/* A block comes out of a magazine whose counts have it as free already: in no index and no list. */
void ca_block_come_out_locked(struct ca_block *block);

/* The block was the program's, at `address`, and is a magazine's from now on. Needs no lock; the
 * record may mean another block by now, or none. */
static inline bool
ca_block_claims_at(struct ca_block *block, uint64_t address)
{
	uint64_t live = address | CA_QUICK_LIVE;

	return atomic_compare_exchange_strong_explicit(&block->quick, &live,
						       address | CA_QUICK_KEPT,
						       memory_order_acq_rel, memory_order_relaxed);
}

/* LIVE, and not in a magazine: the program has it. */
static inline bool
ca_block_is_live(const struct ca_block *block)
{
	return block->state == CA_BLOCK_LIVE &&
	       !(atomic_load_explicit(&block->quick, memory_order_acquire) & CA_QUICK_KEPT);
}

/* ---- block/address.c: blocks by address: the segment, from its chart a block not far below, and
 * on */

/* The distance of the chart's blocks in a segment of so many bytes. */
unsigned char ca_chart_log(uint64_t bytes);
/* There is no chart so far. */
void ca_chart_make_locked(struct ca_segment *segment);
/* The block has come to hold [address, address + bytes). */
static inline void
ca_chart_note_locked(struct ca_block *block, uint64_t address, uint64_t bytes)
{
	struct ca_segment *segment = block->segment;
	uint64_t from = address - segment->address, to = from + bytes, i;

	if (__builtin_expect(!segment->chart, 0)) {
		ca_chart_make_locked(segment);
		return;
	}
	i = (from + ((uint64_t)1 << segment->chart_log) - 1) >> segment->chart_log;
	for (; i << segment->chart_log < to; i++)
		segment->chart->at[i] = block;
}

/* The program's block that begins at `address` belongs to the caller, for a free: no magazine has
 * or takes it. False: it is not the program's any more. */
bool ca_block_claim_locked(struct ca_block *block);
/* No magazine has or takes a block of the segment any more. Free blocks of its space may be merged.
 */
void ca_block_claim_all_locked(struct ca_segment *segment);
/* The segment that holds `address`, or the last before it, or NULL. */
struct ca_segment *ca_segment_at_most_locked(const struct ca_heap *heap, uint64_t address);
/* The block whose bytes hold `address`, or NULL. */
struct ca_block *ca_block_find_locked(struct ca_heap *heap, uint64_t address);
/*
 * For questions of the program: while the segment is on its way back, the driver may already have
 * given the address to somebody else, so the answer waits until that is decided. Leaves and retakes
 * the lock.
 */
struct ca_block *ca_block_find_settled_locked(struct ca_heap *heap, uint64_t address);

/* ---- block/pool.c: which block serves, and how it is cut */
void ca_pool_init(struct ca_pool *pool, bool small);
/* Also if it is indexed already, and its bytes or address have changed. */
void ca_pool_index_locked(struct ca_block *block);
void ca_pool_unindex_locked(struct ca_block *block);
/* An OWNED or MULTI block has those users; it may be indexed. */
void ca_pool_carry_locked(struct ca_block *block, struct ca_several *several);
static inline struct ca_pool *
ca_pool_for(struct ca_space *space, uint64_t bytes)
{
	return &space->pools[bytes > CA_SMALL_MAX];
}
/* The segment the pool's rule asks of the driver for
 * a request of `bytes` (rounded to the grain). */
uint64_t ca_pool_segment_bytes(const struct ca_config *config, uint64_t bytes);
/* Best fit in one pool, still indexed; NULL: nothing fits. */
struct ca_block *ca_pool_find_locked(const struct ca_config *config, const struct ca_pool *pool,
				     uint64_t bytes);
/* Cuts an indexed block for a request: in no index and no list, for the caller to make LIVE. NULL:
 * no record for the rest could be had, nothing was done. */
struct ca_block *ca_pool_cut_locked(struct ca_block *block, uint64_t bytes);
/* True when the cut would use the block as it is. */
bool ca_pool_is_whole(const struct ca_block *block, uint64_t bytes);
/* Could be handed out for `bytes`, whole or cut. */
bool ca_pool_fits(const struct ca_block *block, uint64_t bytes);
/* Not a segment of one large request's size. */
bool ca_pool_is_shared(const struct ca_config *config, const struct ca_block *block);
/* True when the rest of `block` behind the first `bytes` is worth a block of its own. */
bool ca_pool_splits(const struct ca_config *config, const struct ca_block *block, uint64_t bytes);
/* Bytes that a request of 2 MiB or more finds in the block; 0 without a boundary inside. */
static inline uint64_t
ca_block_usable(const struct ca_block *block, uint64_t *ret_pad)
{
	uint64_t pad = (block->segment->address - block->address) & (CA_ALIGNMENT - 1);

	*ret_pad = pad;
	return pad < block->bytes ? block->bytes - pad : 0;
}
/* The same, where it is of use to such a request: its key in the index by_usable. */
static inline uint64_t
ca_pool_usable(const struct ca_block *block)
{
	uint64_t pad, usable = block->segment->pool->small ? 0 : ca_block_usable(block, &pad);

	return usable >= CA_ALIGNED_MIN ? usable : 0;
}

/* ---- block/segment.c: taking from and giving back to the driver. These leave and retake the lock.
 */

enum ca_segment_kind {
	CA_SEGMENT_CUT,     /* the rest behind the block may become a free block */
	CA_SEGMENT_WHOLE,   /* one block */
	CA_SEGMENT_MANAGED, /* one block of managed memory, never cached */
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
/* A retired segment in no list, without a live block, goes back when it can. */
void ca_segment_make_due_locked(struct ca_segment *segment);
/* Returns what `due` holds, if all that may use it has finished (deferred/await.c). Bytes given
 * back; *ret_busy (may be NULL) is set when a capture stood in the way. */
uint64_t ca_segment_return_due_locked(struct ca_space *space, bool *ret_busy);

/* ---- deferred/await.c: before memory goes back to the driver. These leave and retake the lock,
 * but for the first. */

/* All that the space runs and that was stamped up to `bound` is known to have finished. True also
 * if the space is dead or poisoned. */
bool ca_await_is_finished(struct ca_space *space, uint64_t bound);
/* The same, after asking the driver, without waiting; in a capture nothing is asked. */
bool ca_await_ask_locked(struct ca_space *space, uint64_t bound);
/* The same, after waiting on the host: for no stream that captures without a mark or that somebody
 * else must let go on, and for nothing of other contexts. */
bool ca_await_locked(struct ca_space *space, uint64_t bound);

/* ---- deferred/place.c: freed blocks that wait for streams */

static inline struct ca_stream_record *
ca_owned_record(const struct ca_user *user)
{
	return CA_CONTAINER_OF(user->stream, struct ca_stream_record, hot);
}

/*
 * A freed block in no list and no index gets its place by what is unfinished of `users`: CLEAN,
 * OWNED or MULTI. False: only a context mark will do; the block is as it was.
 */
bool ca_owned_place_locked(struct ca_block *block, struct ca_users *users);
/* The place of a block with a user that comes out of a magazine. */
void ca_owned_place_kept_locked(struct ca_block *block);
/* A block of a stream's list gets the place that is right for it now. */
void ca_owned_place_again_locked(struct ca_block *block);
/* The same; what only a context mark will do for waits for one. */
void ca_owned_place_or_mark_locked(struct ca_block *block, struct ca_users *users);
/* The place that an OWNED or MULTI block has by now. */
void ca_owned_place_again_locked(struct ca_block *block);
/* Settles what finished streams have used, if any progressed since the last time. True if so. */
bool ca_owned_settle_locked(struct ca_space *space);
/* The stream's pools exist, or can be made. */
bool ca_owned_pools_ready(struct ca_heap *heap, struct ca_stream_record *record);
/* No user is a stream that no mark can be had of. */
bool ca_owned_is_markable(const struct ca_users *users);
/* Streams of the space, in use or not. */
static inline unsigned
ca_owned_streams(const struct ca_space *space)
{
	return atomic_load_explicit(&space->order.n_streams, memory_order_acquire);
}
/* Best fit of the pool that the budget does not keep. */
struct ca_block *ca_owned_find_best_locked(struct ca_space *space, const struct ca_pool *pool,
					   uint64_t bytes);
/* The smaller one; `a` if they are equal. */
static inline struct ca_block *
ca_owned_better(struct ca_block *a, struct ca_block *b)
{
	return !a || (b && b->bytes < a->bytes) ? b : a;
}
/* The stream whose unfinished memory is as good as CLEAN: the one stream of a quiet space. NULL:
 * there is none. */
static inline struct ca_stream_record *ca_owned_quiet_locked(struct ca_space *space);
/* Nothing unfinished is handed out. Needs no lock. */
static inline bool
ca_owned_is_finished_only(const struct ca_space *space)
{
	return __atomic_load_n(&space->heap->config.reuse_finished, __ATOMIC_RELAXED) ||
	       atomic_load_explicit(&space->order.finished_only, memory_order_relaxed);
}
static inline struct ca_stream_record *
ca_owned_quiet_locked(struct ca_space *space)
{
	struct ca_stream_record *only = ca_order_only_stream(&space->order);

	return only && !ca_owned_is_finished_only(space) ? only : NULL;
}
/* True if the user is that stream. Needs no lock; who hands memory out by that says so to
 * ca_order_expose, which sees to it if the space has ceased to be quiet. */
bool ca_owned_is_quiet_for(struct ca_space *space, const struct ca_user *user);
/* Blocks wait in the space. Needs no lock. */
static inline bool
ca_owned_any(const struct ca_space *space)
{
	return atomic_load_explicit(&space->owned_blocks, memory_order_relaxed) ||
	       atomic_load_explicit(&space->waiting_blocks, memory_order_relaxed);
}
/* Best fit of what is CLEAN or OWNED by the quiet space's stream, once all magazines are empty. */
struct ca_block *ca_owned_find_locked(struct ca_space *space, uint64_t bytes);
/* Of the same, for a request of up to 1 MiB: best fit of what is too small for the large pool that
 * it lies in. NULL for larger requests, too. */
struct ca_block *ca_owned_find_hole_locked(struct ca_space *space, uint64_t bytes);
/* The same of one pool. */
struct ca_block *ca_owned_hole_in_locked(const struct ca_space *space, const struct ca_pool *pool,
					 uint64_t bytes);
/* As ca_owned_find_locked, but only the calling thread's magazine is emptied. */
struct ca_block *ca_owned_find_own_locked(struct ca_space *space, uint64_t bytes);
/* ---- policy/search_early.c: unfinished memory for the calling thread, and the stream of its last
 * submission
 */

/* That stream takes over what it comes after by now. Merges: before anything is found, not after.
 */
void ca_owned_adopt_locked(struct ca_space *space);
/* Best fit of what that stream owns, or comes after, and may be exposed to it. */
struct ca_block *ca_owned_exposable_locked(struct ca_space *space, uint64_t bytes);
/* The same, if no other stream comes to wait because of it. */
struct ca_block *ca_owned_exposable_free_locked(struct ca_space *space, uint64_t bytes);
/* A fit of what any streams use, for which the device is to wait: beyond the slack. */
struct ca_block *ca_owned_exposable_late_locked(struct ca_space *space, uint64_t bytes);
/* Unfinished memory is handed out at all, and there is some. */
bool ca_owned_has_exposable(const struct ca_space *space);
/* The block, OWNED or MULTI, may be exposed to the calling thread; `freely`: so that nobody comes
 * to wait because of it. */
bool ca_owned_may_take_locked(const struct ca_block *block, bool freely);
/* A hole (ca_owned_find_hole_locked) that may be exposed at no cost. */
struct ca_block *ca_owned_exposable_hole_locked(struct ca_space *space, uint64_t bytes);
/* The block that the host would wait for could be handed out as it is, were it larger. */
bool ca_owned_wants_room_locked(struct ca_space *space);
/* Best fit of all that may be exposed of anybody: memory is short. */
struct ca_block *ca_owned_exposable_any_locked(struct ca_space *space, uint64_t bytes);

/* ---- policy/gather.c */

/* A free block put together of neighbours, indexed, that fits; NULL: there are none. On what terms
 * they may be exposed: ca_owned_may_take_locked. */
struct ca_block *ca_gather_locked(struct ca_space *space, uint64_t bytes, bool freely);

/* ---- deferred/multi_user.c: freed blocks that several streams may still use */

/* As ca_owned_place_locked, of more than one user. */
bool ca_several_place_locked(struct ca_block *block, const struct ca_users *users);
/* Blocks that a user has finished with get the place they have by now. True: something was settled.
 */
bool ca_several_settle_locked(struct ca_space *space);
/* Memory is asked for, for that stream most likely: blocks whose users it has come after become its
 * own, if it is the stream that most memory is asked for. */
void ca_several_adopt_locked(struct ca_space *space, struct ca_stream_record *record);
/* The next set of the space with blocks; NULL: the first, or there is none. */
struct ca_user_set *ca_several_next(const struct ca_space *space, const struct ca_user_set *set);

/* ---- deferred/place.c again */
/* Bytes of the space's pool that wait. */
uint64_t ca_owned_waiting_bytes_locked(struct ca_space *space, const struct ca_pool *pool);
/* Asks the streams' marks. True: something was settled. Leaves and retakes the lock. */
bool ca_owned_poll_locked(struct ca_space *space);
/* Something waits, and looking at it might help. */
bool ca_owned_is_waiting_locked(struct ca_space *space);
/* Looks at everything that waits in the space, without waiting; true: something was settled. Leaves
 * and retakes the lock. */
bool ca_owned_look_locked(struct ca_space *space);
/* As ca_pending_wait_locked, for what waits for streams. */
int ca_owned_wait_locked(struct ca_space *space, enum ca_wait which);
/* The block that such a wait would be for, or NULL. */
struct ca_block *ca_owned_oldest_locked(const struct ca_space *space, enum ca_wait which);
/* True if blocks wait that another thread freed. */
bool ca_owned_others_wait_locked(const struct ca_space *space);
/* The blocks are gone: the streams' pools and lists are empty. */
void ca_owned_forget(struct ca_space *space);

/* ---- deferred/graph_memory.c: memory that graphs may use */

/* True, and it waits in space->held: the block was handed out in a capture and freed, and a graph
 * may use it. It is in no list. */
bool ca_graph_keeps_locked(struct ca_block *block);
/* Lets go of what no graph can use any more. True: something was. Leaves and retakes the lock. */
bool ca_graph_look_locked(struct ca_heap *heap);

/* ---- policy/alloc.c */

/* Takes `block` (CLEAN or OWNED, indexed; NULL: NULL) for a request, counted; what its stream has
 * not finished is exposed. `waited`: the caller settled something before. In no index, for the
 * caller to make LIVE. */
struct ca_block *ca_alloc_hit_locked(struct ca_space *space, struct ca_block *block, uint64_t bytes,
				     bool waited);
/* What waits is more than reuse_slack. */
bool ca_alloc_is_crowded_locked(struct ca_space *space);

/* ---- policy/oom.c: out of memory */

/*
 * While something captures no mark can be asked, and memory that was freed natively would be free:
 * whole segments without a live block go back although the device may still use them, since the
 * driver's free waits as it does for the program's own. Returns bytes given back.
 */
uint64_t ca_ladder_release_unfinished_locked(struct ca_space *space, uint64_t bytes);
/* A request begins, in a capture or not: noted for a report. */
void ca_ladder_begin(bool capturing);
/* The take by the pool's rule, and the ladder if the driver is out of memory. *ret_block as from
 * the take, or CLEAN and in no index (a hit, counted). */
int ca_ladder_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);

/* Looks at what waits, and takes what fits: also what may be exposed of any stream. */
struct ca_block *ca_ladder_search_locked(struct ca_space *space, uint64_t bytes);
/* The smallest whole segment of the device, finished and free, of at least `bytes`; or the largest;
 * NULL: there is none. */
struct ca_block *ca_ladder_candidate_locked(struct ca_space *space, uint64_t bytes);
/* Empties all threads' magazines for the device: what they keep counts as live till then. */
void ca_ladder_clear_magazines_locked(struct ca_heap *heap, const struct ca_device *device);
/* As ca_reclaim, for a segment or another call. */
bool ca_ladder_reclaim_locked(struct ca_space *space, uint64_t bytes, bool segment);
/* Gives finished cached segments of the device back, just enough for `bytes`. Returns bytes given
 * back; *ret_busy is set when a capture stood in the way. */
uint64_t ca_ladder_release_locked(struct ca_space *space, uint64_t bytes, bool *ret_busy);

/* ---- policy/oom_last.c: the end of the ladder */

int ca_resort_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);
/* The same for what goes straight through: nothing cached. */
int ca_resort_through_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);

/* Somebody records: what trace/trace_event.h declares is for then. */
static inline bool
ca_tracing(const struct ca_heap *heap)
{
	return __builtin_expect(heap->tracer != NULL, 0);
}
