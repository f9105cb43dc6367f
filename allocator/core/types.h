/* SPDX-License-Identifier: MIT */
/*
 * The records behind allocator/api/heap.h: private to allocator/.
 *
 * The heap's lock guards every field here but four kinds: atomics, of which each says who reads or
 * changes it; struct ca_order and the records of streams, most of which the space's order lock
 * guards (order_types.h); the blocks of leased segments (allocator/block/lease.h); and what an
 * ALLOCATED block that a magazine may have lends to it: `user`,
 * `thread`, `requested`, `serial`, and `birth` or `below`. Its `quick` word tells who may change
 * those six:
 *
 *     0     the holder of the heap's lock; in each state but ALLOCATED the word is 0
 *     LIVE  nobody, until a free, or the holder of the heap's lock, has claimed the block by an
 *           exchange on the word: to KEPT, with the lock of the freeing thread's magazine held, or
 *           to 0. The holder of the heap's lock may read what a call of the program names.
 *     KEPT  the holder of the magazine's lock (allocator/tcache/tcache.h): its owner, whose next
 *           allocation sets LIVE, or a thread that has the heap's lock, too, takes the block out,
 *           and sets 0
 *
 * A thread that leaves the heap's lock to call the driver may keep records only *in its hand*: on a
 * local list, by a block's `waiting` or a segment's `hand`. A thread that forgets a record while
 * the lock is free (context death, stale address) unlinks it from whatever list it is on, so after
 * taking the lock again a thread looks at its list: a record that is no longer there has died and
 * must not be touched.
 *
 * A block's way, by its states:
 *
 *     NEW -> ALLOCATED, FREE                            of a new segment: served, and the rest
 *     ALLOCATED -> FREE                                 no work uses it any more
 *     ALLOCATED -> STREAM_HELD                          one stream's work has to finish
 *     ALLOCATED -> MULTI_HELD                           that of several streams
 *     ALLOCATED -> MARK_HELD                            work that no stream's mark covers
 *     ALLOCATED -> FLUSHED_HELD -> FREE or held         a magazine's, whose users are asked
 *     STREAM_HELD, MULTI_HELD, MARK_HELD -> FREE        that work has finished
 *     MULTI_HELD -> STREAM_HELD                         one user is left, or all come before the
 *                                                       main stream (deferred/multi_user.c)
 *     STREAM_HELD -> MULTI_HELD                         its memory was registered
 *     STREAM_HELD, MULTI_HELD -> MARK_HELD              no mark of a stream can be had any more
 *     FREE -> STREAM_HELD                               merged with such a one in a quiet space
 *     FREE, STREAM_HELD, MULTI_HELD -> ALLOCATED        handed out; a held one early
 *     any but NEW -> RETIRED                            its segment goes back to the driver
 *     RETIRED -> FREE                                   the driver did not take it
 *     MARK_HELD, RETIRED -> ALLOCATED                   the program's free failed
 *
 * A MARK_HELD block is in exactly one list: a thread's hand, a mark's `blocks`, the space's
 * `unmarked`, or its `graph_held`. A STREAM_HELD block is in the list of its stream, a MULTI_HELD
 * block in that of its set of users; neither is ever in a hand. FREE blocks are in their pool's
 * indexes, the others in those of their stream or set. Neighbouring FREE blocks are always merged,
 * and so are neighbours held by the same stream or the same set (ca_block_is_mergeable).
 *
 * A block that its free left in a magazine is still ALLOCATED here (allocator/tcache/tcache.h);
 * when it comes out, it gets the place that it would have got at its free.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/backoff.h"
#include "allocator/core/driver.h"
#include "allocator/core/callbacks.h"
#include "allocator/core/order_types.h"
#include "allocator/core/stats.h"
#include "allocator/util/arena.h"
#include "allocator/util/list.h"
#include "allocator/util/size_index.h"
#include "allocator/util/slab.h"
#include "allocator/util/tree.h"
#include "config/config.h"

struct ca_registered; /* allocator/block/registered.h */
struct ca_magazine;   /* allocator/tcache/tcache.h */
struct ca_lease;      /* allocator/block/lease.h */
struct ca_told;       /* allocator/told/told.h */
struct ca_tracer;     /* allocator/trace/trace.h */

/* Marks a cold function called from a hot one: noinline keeps its register saves out of the
 * caller. */
#define CA_APART __attribute__((noinline, cold))

/* In a loop that waits for another processor. */
static inline void
ca_cpu_pause(void)
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
#define CA_HANDLE ((uint64_t)20 << 20)       /* mapped memory goes to and fro in pieces of up to */
#define CA_ALIGNED_MIN ((uint64_t)2 << 20)   /* from here a request starts on a boundary of */
#define CA_ALIGNMENT ((uint64_t)64 << 10) /* its segment, which starts on a page (block/pool.c) */
#define CA_SIZE_MAX ((uint64_t)1 << 60)   /* larger requests are not ours */

enum ca_block_state {
	CA_BLOCK_NEW,         /* just made, in no sum and no index */
	CA_BLOCK_ALLOCATED,   /* the program has it */
	CA_BLOCK_MARK_HELD,   /* freed; waits for a context mark, or for the end of a graph */
	CA_BLOCK_STREAM_HELD, /* freed; one stream, or those before it, may still use it; indexed */
	CA_BLOCK_MULTI_HELD,  /* freed; several streams may still use it; indexed */
	CA_BLOCK_FREE,        /* free, finished, indexed */
	CA_BLOCK_RETIRED,     /* free in a retired segment: never handed out again */
	CA_BLOCK_FLUSHED_HELD, /* just out of a magazine, in no index: its users are being asked */
};

/* A block's `quick` word: 0, or its address (512-byte aligned) and one of these. */
#define CA_QUICK_LIVE ((uint64_t)1) /* the program has it, and a magazine may take it */
#define CA_QUICK_KEPT ((uint64_t)2) /* in a magazine */

struct ca_segment;
struct ca_user_set;

/* The users of a block that has several, or another one than its stream; each stream once. */
struct ca_multi_users {
	struct ca_users users;
	union {
		uint64_t birth;          /* ALLOCATED: epoch */
		struct ca_user_set *set; /* MULTI_HELD */
	};
};

/* The place of a free block in an index. */
struct ca_places {
	struct ca_index_node by_size; /* pool->by_size */
	struct ca_block *block;
	struct ca_multi_users
		*multi; /* STREAM_HELD: NULL: its stream is its one user; MULTI_HELD */
};

/*
 * A hit of a magazine touches the last 64 bytes. The first records (RECORDS_APART in api/heap.c)
 * have them in a line of their own. The others lie side by side, every other one on a cache line:
 * so of two neighbours the one has its 64 bytes in a line of their own, the other in two, of which
 * nobody else's hits touch anything. Threads whose blocks' records are neighbours hardly disturb
 * each other.
 */
struct ca_block {
	struct ca_block *prev, *next; /* neighbours in the segment */
	uint64_t address;
	struct ca_segment *segment;
	uint64_t bytes;
	union {
		/* in a list; MARK_HELD, STREAM_HELD, MULTI_HELD: see above */
		struct ca_list waiting;
		/* ALLOCATED, of the last allocation. `quick` tells who may change these two, and
		 * `birth`, `below`, `thread` and `user`: see above. */
		struct {
			_Atomic uint64_t requested; /* bytes */
			_Atomic uint64_t serial;
		};
	};
	/* ALLOCATED: whose unfinished memory it was handed out as; STREAM_HELD: in whose list it
	 * is, and where there; MULTI_HELD: of the first stream of its set. Its one user, if it has
	 * no `multi`. No stream: none. In a magazine: or several, see ca_user_is_multi. */
	struct ca_user user;
	/* NULL in any other state */
	union {
		uint64_t birth;               /* ALLOCATED, the program has it: epoch */
		struct ca_block *below;       /* ALLOCATED, in a magazine: freed before it */
		struct ca_multi_users *multi; /* ALLOCATED, `has_multi`: and when it was born */
		struct ca_places *places;     /* FREE or held: indexed, or about to be */
	};
	/* ALLOCATED: that allocated it; freed: that freed it, 0 if several. See ca_order_thread */
	uint32_t thread;
	union {
		struct {
			uint32_t space : 22;      /* its number */
			uint32_t sync_memops : 1; /* ALLOCATED: set by the program; no magazine
						     either */
			uint32_t has_multi : 1;   /* ALLOCATED: users; no magazine takes it then */
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

/* Blocks, or what were some, by the part of a segment that they begin in: block/address.c. */
enum { CA_SEGMENT_MAP_LOG = 5 };
struct ca_segment_map {
	struct ca_block *at[1 << CA_SEGMENT_MAP_LOG];
};

/* A space's pool of FREE blocks, a stream's of STREAM_HELD ones, or a set's of MULTI_HELD ones. */
struct ca_pool {
	struct ca_index by_size; /* by ca_pool_key */
	uint64_t waiting_bytes;  /* a space's: in MARK_HELD and MULTI_HELD blocks */
	uint64_t owned_bytes;    /* a space's: in STREAM_HELD blocks */
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
	struct ca_index_node by_whole;    /* one block, FREE, not stuck: space->wholes */
	struct ca_registered *registered; /* NULL: nothing of it was ever registered */
	struct ca_segment_map *map;       /* NULL: none was wanted, or there was no memory */
	uint64_t rests_since_ns;
	uint64_t rests_since;        /* heap->serial */
	struct ca_list link;         /* space->segments */
	struct ca_list hand;         /* a thread returning it, or space->due */
	uint64_t serial;             /* `captured`, and its block freed: the block's */
	struct ca_multi_users *left; /* in space->leaving, if several streams may still use it */
	struct ca_space *space;
	struct ca_pool *pool;
	struct ca_block *first; /* lowest block */
	uint64_t address;
	uint64_t bytes;
	uint64_t live;                  /* ALLOCATED blocks; 1 while it is leased */
	struct ca_lease *_Atomic lease; /* NULL: none. Its blocks are the business of that thread */
	struct ca_segment *next_leased;
	bool foreign; /* the program took it from the driver itself */
	bool mapped;  /* an extent of its space's area for the pool: block/extent.c */
	bool retired; /* foreign, exported, poisoned: back to the driver at the last free */
	bool managed; /* managed memory, for want of other */
	unsigned char standing; /* CA_STUCK, CA_RESTS; 0 again when memory of it is handed out */
	bool returning;         /* inside the driver's free: its address may be another's already */
	bool captured;          /* its one block was handed out in a capture (deferred/graph.c) */
};

/* Reserved addresses of a space's pool, into which memory is mapped: block/extent.c. */
struct ca_area {
	uint64_t address;
	uint64_t bytes;    /* 0: none are reserved so far */
	uint64_t spared;   /* bases of free blocks that are about to be grown from: not given */
	uint64_t spared_2; /* back. 0: none */
	/* One a page: a handle begins there. The holder of the lock changes it, or the
	 * thread that has the page's segment in its hand. */
	unsigned char *begins;
	bool rejected; /* there are none to be had, or memory cannot be mapped any more */
	bool no_moves; /* nothing is mapped at two addresses */
	/* Where the driver failed: occasions are requests that need more memory. */
	struct ca_backoff maps, moves;
};

/* By a node of space->wholes. */
static inline struct ca_block *
ca_whole_block(struct ca_index_node *node)
{
	return CA_CONTAINER_OF(node, struct ca_segment, by_whole)->first;
}

/* A mark and the blocks that wait for it. */
struct ca_group {
	struct ca_list link;   /* space->pending, oldest first */
	struct ca_list blocks; /* ca_block.waiting */
	ca_mark mark;
	uint64_t number; /* the device's generation when it was put there */
	uint64_t bound;  /* of the stamps that the mark covers */
	uint64_t thread; /* that freed all the blocks; 0: several */
	bool late;       /* some of the blocks were freed long before the mark was recorded */
};

/* Memory handed out in a capture from which a graph was made. */
struct ca_hold {
	struct ca_list link;  /* heap->graphs */
	uint64_t first, last; /* serials: first < serial <= last */
	_Atomic bool *ended;  /* the last graph that can use it is gone */
};

/* Memory by a call that is not ours to serve, where there is a limit. */
struct ca_charge {
	struct ca_tree_node node; /* heap->charged, by (handle, kind) */
	struct ca_space *space;
	uint64_t bytes; /* requested */
};

/* ---- ALLOCATED blocks by address: block/live_table.c */

/* An entry's bits above the pointer are a part of the hash; a bucket is one cache line. */
enum { CA_BASES_BUCKET = 8, CA_BASES_TAG_SHIFT = 48, CA_BASES_TAG_BITS = 16, CA_BASES_TAG_AT = 20 };

struct ca_bases_table {
	unsigned log;                            /* of the number of places */
	unsigned shift;                          /* of a hash to a place */
	_Alignas(128) _Atomic uint64_t places[]; /* (CA_BASES_SIDE) */
};

enum { CA_BASES_SIZES = 36 };

struct ca_bases {
	struct ca_bases_table *_Atomic table;
	struct ca_arena *arena;
	uint64_t few;  /* fewer are too few for it */
	uint64_t many; /* no more go into it; 0 while others enter blocks without the lock */
	/* all that there ever was, by size: those not in use have given their memory back */
	struct ca_bases_table *tables[CA_BASES_SIZES];
	unsigned sides; /* given to threads */
	/* blocks in the table; far from `table`, which each free of any thread reads */
	uint64_t entered;
};

/* ---- of a device: policy/budget.c */

enum { CA_GIVEN_MAX = 64 };

/* Which free blocks a search may take that would have to be cut. */
enum ca_fit {
	CA_FIT_POLICY, /* those that are not better left whole */
	CA_FIT_CUT,    /* also those that are left whole for a segment to go back */
	CA_FIT_ANY,    /* all: nothing else is left */
};

/* One a device. All zero: nothing has happened so far. */
struct ca_budget {
	uint64_t given[CA_GIVEN_MAX]; /* bytes of segments given back lately; 0: none */
	uint8_t given_next;           /* the entry to write next */
	bool exhausted;          /* the driver had no more, and the program needed most of it */
	bool keeps_up;           /* the device does with the host, when last looked at */
	enum ca_fit fit;         /* of the search that goes on; set within the lock only */
	uint64_t repeated_bytes; /* given back and then asked for again */
	uint64_t exhausted_at;   /* stats.alloc_calls when the driver last had no more */
	uint64_t uncut;          /* allocations with a free block not cut, of what may be */
	uint64_t uncut_for;      /* heap->requests at the last one */
	uint64_t uncut_until;    /* stats.alloc_calls for which `uncut` was last lowered */
	uint64_t idle_at;        /* stats.alloc_calls when the device was last seen idle */
	uint64_t untidy;         /* less reserved bytes need no tidying: it grows */
	struct ca_backoff looks; /* at whether the device becomes idle; at growths */
};

/* ---- the heap */

struct ca_device {
	/* in the file of counts, where there is one */
	struct ca_stats stats; /* figures (not gauges, counters) unused */
	struct ca_order_counts order_counts;
	/* of the process alone */
	_Alignas(64) struct ca_device *next;
	struct ca_counts_page *counts_page; /* NULL: no such file */
	struct ca_space *spaces; /* ca_space.next_on_device: newest first, dead ones included */
	unsigned ordinal;
	unsigned in_flight;       /* driver calls in progress that may bring memory back */
	uint64_t generation;      /* advances whenever memory may have become available */
	uint64_t drainable_bytes; /* in segments without a live block */
	uint64_t total_bytes;     /* of the device; 0: not asked yet (policy/limit.c) */
	uint64_t segments_max;    /* by the limits and by that; 0: not known yet */
	uint64_t taking_bytes;  /* segments being asked of the driver, what is to move, and what is
				   still mapped of dead spaces */
	uint64_t other_bytes;   /* of calls that are not ours to serve, where there is a limit */
	uint64_t managed_bytes; /* in managed segments */
	uint64_t mapped_bytes;  /* in extents */
	uint64_t next_trim;     /* alloc_calls at which trim_every is due (policy/trim.c) */
	uint64_t next_look_ns;  /* when trim_idle_ms looks again */
	uint64_t gc_wanted;     /* bytes that the next free is to give back */
	struct ca_budget budget;
};

enum {
	CA_ATTENTION_ALWAYS = 1, /* they do not serve: dead, poisoned, or segments are due */
	/* a freed block may have a user though no stream was stamped: a hazard ever began, or
	 * more than a network card was seen that restricts reuse to finished memory. Set before
	 * those. */
	CA_ATTENTION_ORDER = 2,
};

struct ca_space {
	struct ca_space *next;           /* heap->spaces */
	struct ca_space *next_on_device; /* device->spaces */
	struct ca_heap *heap;
	struct ca_device *device;
	void *context;
	struct ca_pool pools[2]; /* small, large */
	struct ca_index wholes;  /* by bytes */
	struct ca_list segments;
	struct ca_list due; /* ca_segment.hand: retired segments to be returned outside captures */
	uint64_t due_bound; /* of the stamps of work that may use them */
	uint64_t awaited;   /* unseen work was waited for up to this stamp, as far as it can be */
	struct ca_list pending;        /* ca_group.link */
	struct ca_list unmarked;       /* ca_block.waiting */
	uint64_t unmarked_bound;       /* of the stamps of work that may use them */
	struct ca_list graph_held;     /* ca_block.waiting: freed memory of captures */
	struct ca_list sets;           /* ca_user_set.link */
	struct ca_stream_record *main; /* most memory is asked for: deferred/multi_user.c */
	unsigned main_votes, n_sets;
	unsigned unpaid_looks; /* looks at blocks of a set without streams that requests have to pay
				*/
	uint64_t id;           /* no other space of the process ever had it */
	/* CA_ATTENTION_*: conditions that magazines must look at */
	_Atomic unsigned attention;
	_Atomic uint64_t mark_held_blocks;   /* MARK_HELD */
	_Atomic uint64_t stream_held_blocks; /* STREAM_HELD and MULTI_HELD */
	uint64_t settled;        /* order.progress for which streams' lists were settled */
	uint64_t stuck_segments; /* at least as many as are stuck */
	struct ca_area areas[2]; /* small, large */
	/* ca_segment.hand: addresses of memory that has moved, which its users may still use; each
	 * one RETIRED block, in no sum (block/extent_move.c) */
	struct ca_list leaving;
	uint64_t
		leaving_bytes; /* of memory that goes back with its addresses, reserved till then */
	/* of mapping, beyond its share of the time, at that moment: nothing moves while it is much
	 */
	uint64_t mapping_ns, mapping_at_ns;
	/* the bound up to which only the driver could tell whether work has finished: its free
	 * waits for that, an unmapping does not */
	uint64_t untold;
	uint64_t ending_bytes;      /* dead: in taking_bytes until its memory is unmapped */
	bool keeps_addresses;       /* dead, and the driver did not unmap all of its memory */
	bool is_leaving;            /* a thread unmaps addresses of `leaving` */
	unsigned in_hand;           /* hands of threads with memory of its areas in them */
	uint64_t freed_by;          /* the thread that freed last; 0: none so far */
	struct ca_backoff looks;    /* at what other threads freed; at allocations */
	struct ca_backoff patience; /* waits of frees for what is held up; at frees */
	unsigned waits_failed[2];   /* of ca_held_await_others_locked: [1]: too_large */
	/* Reserved on the device after the last growth that nothing could spare, in bytes; and
	 * growths for a thread while others keep what would do. */
	uint64_t needed_bytes;
	struct ca_backoff spreads;
	unsigned number;        /* from 0, in the order of their making */
	bool multi_thread_free; /* freed_by was another one before */
	/* The cache has grown beyond all reason, since nobody waited for what is freed: frees do */
	_Atomic bool too_large;
	bool dead;
	bool poisoned; /* the driver reports errors for everything: no reuse any more */
	struct ca_order order;
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): by who writes them */
struct ca_heap {
	/* Alone in its cache line: who waits for it reads it again and again. */
	_Alignas(64) struct ca_lock lock; /* lock.h */
	_Alignas(64) _Atomic bool shared; /* ca_heap_share */
	bool plain;                       /* requests are rounded to the grain, and served */
	bool quick;                       /* magazines serve */
	bool limited;                     /* there is a limit, or something relative to one */
	/* memory is short: no search ends before it has looked at all */
	bool searches_all;
	/* extents serve no more while anything else does: ca_expand_end */
	bool mapping_ended;
	struct ca_config config;
	struct ca_driver driver;
	struct ca_arena fixed; /* heap, devices, spaces: survive a fork */
	struct ca_arena records;
	struct ca_objects segment_maps, ranges, segments, groups, users, holds, charges;
	struct ca_tree by_address; /* ca_segment.by_address */
	struct ca_tree charged;    /* struct ca_charge, by (handle, kind): policy/limit.c */
	/* Each free reads these two. */
	_Alignas(64) uint64_t id; /* no other heap of the process ever had it */
	struct ca_bases bases;    /* and its last word is written by each miss, as these are */
	uint64_t serial;          /* of the last allocation */
	uint64_t requests;        /* allocations that no magazine served without the lock */
	struct ca_slabs blocks, places;
	struct ca_magazine *magazines; /* all of them */
	struct ca_magazine *next_idle; /* the one to be looked at; NULL: the first */
	struct ca_lease *leases;       /* that have segments */
	uint64_t contention_until;     /* `requests`: several threads wait for each other */
	struct ca_magazine **magazines_end;
	unsigned further_magazines; /* made for threads that had one */
	struct ca_space *spaces;    /* newest first */
	struct ca_device *devices;
	struct ca_list graphs;        /* ca_hold.link */
	_Atomic bool no_marks;        /* mark_record answered -ENOTSUP */
	bool undecided;               /* memory of a capture was freed that no graph holds so far */
	unsigned finished_only;       /* CA_REASON_* of every space, those to come included */
	unsigned n_spaces;            /* made so far */
	struct ca_told *_Atomic told; /* NULL: no stream-ordered memory is served */
	struct ca_tracer *tracer;     /* NULL: nobody records */
	_Atomic bool at_peak;         /* api/heap_snapshot.h, ca_heap_is_at_peak */
	unsigned had_stream;          /* spaces with ca_order.had_stream */
	bool registers; /* ca_register_begins: a space to come needs exact marks from the start
			 */
	struct ca_heap_hooks hooks; /* constant */
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
	/* signed: a free by another thread may be counted before the allocation */
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
