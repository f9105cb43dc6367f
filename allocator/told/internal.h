/* SPDX-License-Identifier: MIT */
/*
 * The records of allocator/told/told.h. All of it under struct ca_told's lock, but for atomics and
 * what is constant. Functions named *_told want that lock, and make no driver call.
 */
#pragma once

#include "allocator/core/lock.h"
#include "allocator/core/types.h"
#include "allocator/order/order_told.h"
#include "allocator/told/told.h"
#include "allocator/trace/trace.h"

enum ca_told_state {
	CA_TOLD_LIVE,   /* the program has it, or a thread in its hand */
	CA_TOLD_KEPT,   /* by a group as it was freed; still in the table */
	CA_TOLD_FREE,   /* finished */
	CA_TOLD_HELD,   /* one stream may still use it */
	CA_TOLD_SHARED, /* several may */
};

struct ca_told_segment;

struct ca_told_block {
	struct ca_told_block *prev, *next; /* neighbours in the segment */
	struct ca_told_segment *segment;
	uint64_t address, bytes;
	uint64_t requested, serial;   /* LIVE, KEPT; serial 0: in a thread's hand */
	struct ca_told_block *chain;  /* LIVE, KEPT: in told->table */
	struct ca_told_block *below;  /* KEPT: in its stack */
	struct ca_index_node by_size; /* FREE: pool->free; HELD: its group's */
	struct ca_list held; /* KEPT: group->kept; HELD: group->blocks; SHARED: pool->shared */
	struct ca_user user; /* KEPT, HELD */
	struct ca_told_users *users; /* SHARED */
	enum ca_told_state state;
	bool exact; /* KEPT, HELD: a mark is going to cover the user and nothing later */
};

struct ca_told_segment {
	struct ca_tree_node by_address; /* told->segments */
	struct ca_list link;            /* pool->segments */
	struct ca_told_pool *pool;
	struct ca_told_block *first; /* lowest */
	uint64_t address, bytes;
	bool large;      /* of requests beyond 1 MiB */
	bool left_whole; /* a request did not get a part of it, so that it can go back */
};

enum {
	CA_TOLD_STACKS_LOG = 5,
	CA_TOLD_STACK_SHIFT = 64 - CA_TOLD_STACKS_LOG,
	CA_TOLD_STACK_MAX = 32
};

/* KEPT blocks of one group whose last requests were of one size. */
struct ca_told_stack {
	uint64_t bytes; /* of the request, rounded; and CA_TOLD_TRACED */
	struct ca_told_block *top;
	uint64_t n;
	uint64_t unused; /* a place is found by a shift */
};

/* Blocks that one stream may still use; of a record, which may come to stand for another stream
 * when all this has finished. */
struct ca_told_group {
	struct ca_told_group *chain; /* pool->groups */
	struct ca_list link;         /* pool->all_groups */
	struct ca_stream_record *record;
	struct ca_index index[2]; /* small, large: by bytes */
	struct ca_list blocks;    /* smallest stamp first, or nearly so */
	struct ca_list kept;      /* freed after all of `blocks`; oldest first */
	struct ca_told_stack stacks[1 << CA_TOLD_STACKS_LOG];
};

enum { CA_TOLD_GROUPS_LOG = 6, CA_TOLD_TABLE_LOG = 10, CA_TOLD_GIVEN = 16 };

/* The pools of one device together. */
struct ca_told_counts {
	_Alignas(64) uint64_t allocs;
	uint64_t frees, segments_taken_for; /* calls; allocations that took a segment */
	struct ca_gauge used, reserved;     /* bytes */
};

struct ca_told_pool {
	struct ca_told_pool *next; /* told->pools; never unlinked */
	struct ca_told_counts *counts;
	struct ca_told *told;
	void *_Atomic handle;      /* NULL: closed */
	_Atomic unsigned visitors; /* ca_told_pool_enter */
	unsigned ordinal;          /* constant */
	_Atomic unsigned number;   /* of all pools of the heap, from 0 */
	bool retired;              /* ca_told_pool_retire */
	_Atomic bool was_current;  /* ca_told_pool_note_current */
	_Atomic bool allows[CA_TOLD_RULES];
	_Atomic uint64_t threshold; /* bytes */
	_Atomic bool limited;
	struct ca_index free[2]; /* small, large */
	struct ca_told_group *groups[1 << CA_TOLD_GROUPS_LOG];
	struct ca_list all_groups;
	unsigned n_groups;
	struct ca_list shared;
	struct ca_list segments;
	_Atomic unsigned in_hands; /* segments taken out, of any thread */
	uint64_t used_bytes, used_high, segment_bytes;
	uint64_t foreign_bytes; /* that the driver serves beside the segments, when last asked */
	/* told_budget.c */
	uint64_t total_bytes;          /* of the device; 0: not known */
	uint64_t repeated_bytes;       /* asked for again after they had been given back */
	uint64_t given[CA_TOLD_GIVEN]; /* segments given back before a growth; 0: none */
	unsigned given_next;           /* the entry to write next */
	struct ca_backoff looks;       /* before the budget is exceeded */
	bool cuts;                     /* such a one was asked for again */
};

/* One a heap, from its first pool on. */
struct ca_told {
	struct ca_heap *heap;
	_Atomic unsigned slow; /* reasons why no free is quick: reuse:finished or a trace, and
				* those of ca_told_slow_begin */
	_Atomic unsigned lock; /* 0: free; 1: held; 2: held, and perhaps waited for */
	struct ca_arena arena;
	struct ca_objects blocks, segments, users;
	struct ca_tree segment_tree; /* by address */
	struct ca_told_pool *_Atomic pools;
	struct ca_told_block **table; /* LIVE and KEPT blocks by address */
	unsigned table_shift;         /* ca_told_hash */
	unsigned n_pools;
	uint64_t n_tabled;
	uint64_t serial; /* the last one */
	/* Of memory whose users nobody can name, told_poll.c: the number of the next mark of all
	 * contexts, and of the last one that was done. */
	_Atomic uint64_t next_serial, serial_done;
	struct ca_polled_mark polled;
	_Atomic unsigned n_segments;
	_Atomic unsigned n_foreign; /* pools with foreign_bytes */
	_Atomic unsigned n_closed;  /* segments of closed pools */
};

/* A number of 64 - `shift` bits. */
static inline uint64_t
ca_told_hash(uint64_t value, unsigned shift)
{
	return value * UINT64_C(0x9e3779b97f4a7c15) >> shift;
}

static inline struct ca_stream_record *
ca_told_record(const struct ca_stream *stream)
{
	return (struct ca_stream_record *)(uintptr_t)stream; /* it comes first */
}

/* NULL: no pool was opened yet. */
static inline struct ca_told *
ca_told_of(const struct ca_stream *stream)
{
	return atomic_load_explicit(&ca_told_record(stream)->space->heap->told,
				    memory_order_acquire);
}

/* Memory has become that stream's alone: others learn of its end. No lock is held. */
static inline void
ca_told_mark_for_others(struct ca_stream *stream)
{
	if (atomic_load(&ca_told_record(stream)->space->order.candidates) > 1)
		ca_told_mark_own(stream);
}

static inline struct ca_told_block *
ca_told_by_size(struct ca_index_node *node)
{
	return node ? CA_CONTAINER_OF(node, struct ca_told_block, by_size) : NULL;
}

/* ---- told_heap.c */

void ca_told_lock_wait(struct ca_told *told);
void ca_told_lock_wake(struct ca_told *told);

static inline void
ca_told_lock(struct ca_told *told)
{
	unsigned none = 0;

	ca_locks_count_one();
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&told->lock, &none, 1,
								      memory_order_acquire,
								      memory_order_relaxed),
			     0))
		ca_told_lock_wait(told);
}

/* False: it is held, perhaps by the thread itself, which a signal has interrupted. */
static inline bool
ca_told_trylock(struct ca_told *told)
{
	unsigned none = 0;

	ca_locks_count_one();
	if (__builtin_expect(atomic_compare_exchange_strong_explicit(&told->lock, &none, 1,
								     memory_order_acquire,
								     memory_order_relaxed),
			     1))
		return true;
	ca_locks_uncount_one();
	return false;
}

static inline void
ca_told_unlock(struct ca_told *told)
{
	if (__builtin_expect(atomic_exchange_explicit(&told->lock, 0, memory_order_release) == 2,
			     0))
		ca_told_lock_wake(told);
	ca_locks_uncount_one();
}

static inline bool
ca_told_pool_may_wait(const struct ca_told_pool *pool)
{
	return atomic_load_explicit(&pool->allows[CA_TOLD_INTERNAL], memory_order_relaxed);
}

/* Where the groups of that stream begin, and of others of the number in other spaces. */
static inline unsigned
ca_told_group_place(const struct ca_stream_record *record)
{
	return record->index % (1u << CA_TOLD_GROUPS_LOG);
}

/* The open pool with that handle; NULL: there is none. Needs no lock: records stay, and a handle
 * that others open or close meanwhile is no program's. */
static inline struct ca_told_pool *
ca_told_pool_of(const struct ca_told *told, const void *handle)
{
	struct ca_told_pool *pool = atomic_load_explicit(&told->pools, memory_order_acquire);

	while (pool && atomic_load_explicit(&pool->handle, memory_order_acquire) != handle)
		pool = pool->next;
	return handle ? pool : NULL;
}

/* The stream's group; NULL: there is none yet. */
static inline struct ca_told_group *
ca_told_group_find_told(const struct ca_told_pool *pool, const struct ca_stream_record *record)
{
	struct ca_told_group *group = pool->groups[ca_told_group_place(record)];

	while (group && group->record != record)
		group = group->chain;
	return group;
}

/* The same; it is made where there is none. NULL: no memory. */
struct ca_told_group *ca_told_group_told(struct ca_told_pool *pool,
					 struct ca_stream_record *record);

/* A closed and retired pool, for a segment of one whose record was used again. NULL: no memory. */
struct ca_told_pool *ca_told_pool_retired_told(struct ca_told *told, unsigned ordinal);

/* ---- told_block.c */

/* The block at just this address, LIVE or KEPT; NULL: there is none. */
static inline struct ca_told_block *
ca_told_table_find_told(const struct ca_told *told, uint64_t address)
{
	struct ca_told_block *block = told->table[ca_told_hash(address, told->table_shift)];

	while (block && block->address != address)
		block = block->chain;
	return block;
}
/* The segment that holds the address; NULL: none does. */
struct ca_told_segment *ca_told_segment_find_told(const struct ca_told *told, uint64_t address);
/* A segment of one block, LIVE and in no table. NULL: no memory. */
struct ca_told_block *ca_told_segment_enter_told(struct ca_told_pool *pool, uint64_t address,
						 uint64_t bytes, bool large);
/* It has no live block: its records go. */
void ca_told_segment_leave_told(struct ca_told_segment *segment);
/* Not one of a large request's size. */
static inline bool
ca_told_is_shared(const struct ca_told_segment *segment)
{
	return segment->bytes <= segment->pool->told->heap->config.large_segment_size_bytes;
}
/* The segment is one FREE block. */
static inline bool
ca_told_segment_is_idle(const struct ca_told_segment *segment)
{
	return segment->first->state == CA_TOLD_FREE && !segment->first->next;
}
/* A freed block leaves its index and its list: LIVE, in no table. Its users stay as they are. */
void ca_told_detach_told(struct ca_told_block *block);
/* A detached block gets its place by what is unfinished of `users`, merged with neighbours. */
void ca_told_place_told(struct ca_told_block *block, struct ca_told_users *users, bool exact);
/* Takes finished users out. True: none is left. */
bool ca_told_remove_finished_told(const struct ca_told *told, struct ca_told_users *users);
/* The users of a block that is, or was, HELD or SHARED. */
void ca_told_block_users(const struct ca_told_block *block, struct ca_told_users *ret_users);
/* A detached block is cut to `bytes`, as far as that is worth it: the rest gets the place that the
 * users (of the whole) leave it. */
void ca_told_cut_told(struct ca_told_block *block, uint64_t bytes,
		      const struct ca_told_users *users, bool exact);
/* A detached block takes in the one behind it, which is detached, too. */
void ca_told_join_told(struct ca_told_block *block, struct ca_told_block *behind);
/* A block leaves the table. */
void ca_told_table_remove_told(struct ca_told_block *block);
/* A detached block becomes the program's. */
void ca_told_hand_out_told(struct ca_told_block *block, uint64_t size);
/* The program's no more. */
void ca_told_take_back_told(struct ca_told_block *block);

/* All memory that the program gets passes here: the block is in the table, and LIVE from now on. */
static inline void
ca_told_count_out_told(struct ca_told *told, struct ca_told_pool *pool, struct ca_told_block *block,
		       uint64_t size)
{
	uint64_t bytes = ca_round_up(size, CA_GRAIN);

	block->state = CA_TOLD_LIVE;
	block->requested = size;
	block->serial = ++told->serial;
	pool->counts->allocs++;
	ca_gauge_add(&pool->counts->used, bytes);
	pool->used_bytes += bytes;
	if (pool->used_bytes + pool->foreign_bytes > pool->used_high)
		pool->used_high = pool->used_bytes + pool->foreign_bytes;
}

/* All memory that the program frees passes here; of `bytes`, as requested and rounded. */
static inline void
ca_told_count_back_told(struct ca_told_pool *pool, uint64_t bytes)
{
	pool->counts->frees++;
	ca_gauge_sub(&pool->counts->used, bytes);
	pool->used_bytes -= bytes;
}

/* ---- told_gather.c */

/* Freed neighbours become one block of `bytes` at least; NULL: none would do. */
struct ca_told_block *ca_told_gather_told(struct ca_told_pool *pool, const struct ca_stream *stream,
					  uint64_t bytes);

/* ---- told_keep.c */

/* All that is kept gets its place. True: something was. */
bool ca_told_unkeep_group_told(struct ca_told_group *group);
bool ca_told_unkeep_told(struct ca_told_pool *pool);

/* ---- told_budget.c */

/* False: the block is better left whole, for its segment to go back. */
bool ca_told_may_cut_told(const struct ca_told_block *block, uint64_t bytes);
/* A segment came. */
void ca_told_budget_taken_told(struct ca_told_pool *pool, uint64_t bytes);
/* The pool's largest idle segment; NULL: there is none. */
struct ca_told_segment *ca_told_idle_told(struct ca_told_pool *pool);

/* ---- told_free.c */

/* The idle segment (NULL: false) leaves the heap. */
bool ca_told_take_out_told(struct ca_told_segment *segment, struct ca_told_idle *ret_idle);
/* The pools' own counts go with their records. */
void ca_told_hand_after_fork_child(void);

/* ---- told_trace.c; only where ca_tracing(told->heap) */

void ca_told_trace_alloc_told(const struct ca_told_block *block, const struct ca_stream *stream);
/* `stream` NULL: the free named none, or, unless `is_known`, one that is not tracked. */
void ca_told_trace_free_told(const struct ca_told_block *block, const struct ca_stream *stream,
			     bool is_known);
void ca_told_trace_segment_told(const struct ca_told_segment *segment, enum ca_trace_kind kind);
/* The pool as it is now. */
void ca_told_trace_pool(struct ca_told_pool *pool);

/* ---- told_poll.c */

/* Blocks that are known to have finished become FREE. True: something has. */
bool ca_told_settle_told(struct ca_told_pool *pool);
/* The same of one group. */
bool ca_told_settle_group_told(struct ca_told_group *group);
/* Asks about the blocks that wait in the pool. Leaves and retakes the lock. True: something was
 * settled. */
bool ca_told_poll_told(struct ca_told_pool *pool);
