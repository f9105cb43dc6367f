/* SPDX-License-Identifier: MIT */
/*
 * A thread keeps in its magazine the blocks that it freed last: one magazine for each device that
 * it works with, in which each space (context) has a shelf of its own, so that a thread may go from
 * context to context without giving back what it keeps.
 *
 * A block in a magazine is ALLOCATED for everybody who has the heap's lock: its segment counts it
 * as live, it is in no index and merged with nothing. Only its `quick` word and the magazine's own
 * counts tell that the program has freed it. So an allocation and a free that a magazine serves
 * need no lock but the magazine's, which nobody else wants, until somebody looks for free memory
 * and has all magazines emptied first.
 *
 * Locks: the heap's lock may be held when a magazine's is taken, and that when a space's order lock
 * is; never the other way round. Only who has the heap's lock holds two magazines' locks.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/backoff.h"
#include "allocator/core/stats.h"

struct ca_block;
struct ca_heap;
struct ca_lease;
struct ca_space;

enum {
	CA_SETS_LOG = 5,
	CA_WAYS_LOG = 2,
	CA_WAYS = 1 << CA_WAYS_LOG,
	CA_STACKS = CA_WAYS << CA_SETS_LOG,
	CA_STACK_WORDS = CA_STACKS / 64,
	/* Blocks of one size: emptying a stack must not take long. Waste and driver calls of the
	 * 44 workloads are the same with 16. */
	CA_KEPT_EACH = 64,
	/* Blocks in a magazine, all of which a call may have to merge. With 256, 64, 32 (and no
	 * limit to those of one size) a pair among 1,000 live blocks of 32 sizes takes 577, 1,034,
	 * 1,308 instructions instead of 413, and W10d of seed 3 reserves 14 % more. */
	CA_KEPT_ALL = 1024,
	CA_KEPT_STEP = 8, /* a stack gets capacity for so many of them at a time */
	/* Spaces of a device that a thread keeps blocks of; others take turns. A shelf is 2.1 KiB,
	 * made when it is first wanted, and never freed. */
	CA_SHELVES = 64,
	/* Magazines of threads that have one already, in all. Each may be a record of the file of
	 * counts, which has room for 512 (core/counts_file.h). Beyond these a thread has one
	 * magazine, which goes from device to device. */
	CA_FURTHER_MAGAZINES = 128,
};
#define CA_QUICK_MAX ((uint64_t)1 << 40) /* larger requests are looked for elsewhere; bytes */
_Static_assert(CA_STACKS *CA_KEPT_STEP <= CA_KEPT_ALL, "each stack can have some room");

/*
 * Blocks of one size, the latest freed on top, linked by `below`. Its capacity is a
 * number of blocks, of which some are available; that it is not 0 is a bit in the magazine's
 * `has_capacity`. So a hit changes one number, and nothing when a stack becomes empty.
 */
struct ca_stack {
	struct ca_block *_Atomic top; /* its owner may look without the lock */
	uint32_t grains;              /* as asked for, rounded; 0: never used. Its owner's */
	uint8_t available;            /* of it, for more blocks */
	uint8_t capacity;             /* in blocks, those that it has included */
};
_Static_assert(sizeof(struct ca_stack) == 16, "a set is one cache line");

/*
 * The changes that the magazine's hits made to the device's sums since it was last counted there,
 * in bytes, modulo 2^64: what was taken less what was given back, the largest that this came to be
 * (at least 0), or the least (at most 0), and all that was taken.
 *
 * A block that nobody used any more when it was taken, or given, changes allocated, active and
 * (the other way round) cached bytes alike: it is `clean`. One with a user changes the allocated
 * bytes only, `used`; since their peak is of both together, the clean ones' changes are merged into
 * the peaks first.
 */
struct ca_counts {
	uint64_t requested, requested_peak, requested_total;
	uint64_t clean, clean_peak, clean_least, clean_total;
	uint64_t hits, frees;
	uint64_t exposed; /* hits: a stream may go on using the block */
	uint64_t used, used_total;
	uint64_t allocated_peak, active_peak, cached_peak; /* until the last fold */
};
/* The same words, for who reads them in the file. */
#define CA_COUNTS_NAMES                                                                            \
	" requested requested_peak requested_total clean clean_peak clean_least clean_total hits"  \
	" frees exposed used used_total allocated_peak active_peak cached_peak"

/* The part of a magazine that is for one space. Under the magazine's lock, but for what is said. */
struct ca_shelf {
	/* CA_WAYS to a set. First: a hit has an instruction less */
	_Alignas(64) struct ca_stack stacks[CA_STACKS];
	struct ca_space *space; /* NULL: none. Changes under the heap's lock, too */
	uint32_t own_live; /* ca_block.space_and_state of an ALLOCATED block of it; 0: no space */
	_Atomic unsigned
		capacity_all;    /* of its stacks; 0: it keeps nothing. A hint without the lock */
	unsigned evict;          /* the way that makes room next */
	uint8_t next_cleared;    /* the stack that a search empties next */
	struct ca_backoff polls; /* of the driver, for a block that a stream may still use */
	/* bits: stacks whose capacity is not 0, of sizes up to CA_SMALL_MAX and above */
	uint64_t has_capacity[2][CA_STACK_WORDS];
	struct ca_lease *_Atomic lease; /* NULL: there never was one. The owner makes it */
};

/*
 * One a thread and device; after the end of its thread another's. Under its lock, but for what is
 * said.
 */
struct ca_magazine {
	_Alignas(64) struct ca_counts counts; /* in the file of counts, where there is one */
	_Alignas(64) _Atomic unsigned lock;
	bool shared;              /* there are others of the device: counts are added often */
	uint64_t thread;          /* ca_order_thread() of its owner */
	uint64_t serial;          /* the next allocation's, also by the way with the lock */
	uint64_t serials_end;     /* the first that is not its own */
	struct ca_device *device; /* changes under the heap's lock, too */
	struct ca_counts_page *counts_page; /* NULL: no such file */
	struct ca_magazine *sibling;        /* the next of its owner's, a ring. The owner's alone */
	/* under the heap's lock */
	struct ca_magazine *next; /* heap->magazines */
	long tid;                 /* of its owner, as the kernel calls it */
	unsigned foreign_calls;   /* calls of its owner for spaces without a shelf, lately */
	unsigned shelf_count;     /* made so far */
	uint64_t looked_at;       /* `serial`, when another thread looked whether it allocates */
	/* By the number of their space; NULL: not made yet. Changes under the heap's lock, by the
	 * owner, which may look without it. */
	struct ca_shelf *shelf[CA_SHELVES];
	struct ca_shelf first_shelf;
};

/* The calling thread's magazine and shelf: which, and for which heap and space (their `id`s, so
 * that nothing is looked at that is gone). */
struct ca_own {
	struct ca_magazine *magazine;
	struct ca_shelf *shelf;
	/* the same as `heap` and `space`; 0 where each call has more to do (a trace), or sizes have
	 * rules of their own */
	uint64_t quick_heap, quick_space;
	uint64_t heap;  /* 0: none */
	uint64_t space; /* 0: none */
};
extern __thread struct ca_own ca_own __attribute__((tls_model("initial-exec")));

/* ---- without the heap's lock, or with it (`locked`) */

/* A block for `size` bytes, rounded to `bytes`, from the calling thread's magazine. False: not to
 * be had that way. */
bool ca_magazine_take(struct ca_space *space, uint64_t size, uint64_t bytes, bool locked,
		      uint64_t *ret_address);
/* The live block at `address` goes to the calling thread's magazine. False: it does not. */
bool ca_magazine_give(struct ca_heap *heap, uint64_t address, bool locked);

/* The calling thread's next calls are expected to be for that space. */
void ca_magazine_expect(const struct ca_space *space);

/* True in a signal handler that interrupted one of these in this thread. */
bool ca_magazine_is_locked_here(void);

/* ---- leased.c: segments that the calling thread cuts and merges in by itself */

/* A block of the calling thread's leased segments, as ca_magazine_take. Without the heap's lock;
 * then with it, where something that it needs has run out. */
bool ca_leased_take(struct ca_space *space, uint64_t size, uint64_t bytes, uint64_t *ret_address);
bool ca_leased_take_locked(struct ca_space *space, uint64_t size, uint64_t bytes,
			   uint64_t *ret_address);
/* The block was cut for the calling thread, which shares the device with others: from now on it may
 * have the whole segment for itself. */
void ca_leased_want_locked(const struct ca_block *block);
/* A segment that a thread has leased, with so many bytes free in one piece, is the heap's again.
 * False: there is none. */
bool ca_leased_yield_locked(struct ca_space *space, uint64_t bytes);
/* No segment is leased any more. */
void ca_leases_end_locked(struct ca_heap *heap);
/* While segments are leased: makes room in the calling thread's magazine for the block at
 * `address`, and gives it there. False: it does not. */
bool ca_leased_give_locked(struct ca_heap *heap, uint64_t address);

/* ---- under the heap's lock */

/* Makes it likely that the calling thread's magazine can serve a request of that size, or takes a
 * block of it; counts what it did so far. False: it cannot. */
bool ca_magazine_prepare_take_locked(struct ca_space *space, uint64_t bytes);
bool ca_magazine_prepare_give_locked(struct ca_space *space, uint64_t bytes);
/* A number for an allocation, from the calling thread's magazine if it has one, which is counted.
 */
uint64_t ca_magazine_serial_locked(struct ca_heap *heap);
/* All that magazines keep of the space becomes what it would have become at its free. Wherever free
 * memory is looked for. */
void ca_magazines_clear_locked(struct ca_space *space);
enum ca_kept {
	CA_KEPT_ANY,
	CA_KEPT_LARGE, /* above CA_SMALL_MAX */
	/* Of these, which are looked at, those that would merge with a free block beside them, or
	 * that streams use, or that lie in a leased segment. */
	CA_KEPT_MERGEABLE,
	CA_KEPT_SMALL_MERGEABLE, /* the same of those that are not large */
};
/* So many of the calling thread's blocks of that kind, or as many as there are, become what they
 * would have become at their free. Each call goes on with the sizes behind those of the last one.
 * False: there was nothing. */
bool ca_magazine_clear_some_locked(struct ca_space *space, enum ca_kept which, unsigned limit);
/* All blocks of one size, if there are any of that kind, of any thread's magazine. Each call goes
 * on with the size behind that of the last one. False: there was nothing. */
bool ca_magazine_clear_stack_locked(const struct ca_space *space, struct ca_magazine *magazine,
				    enum ca_kept which);
/* The same of the next thread's magazine, if that has allocated nothing since it was looked at in
 * vain. */
void ca_magazine_clear_idle_locked(const struct ca_space *space);
/* Adds what was counted so far to the devices' sums. */
void ca_magazines_count_locked(struct ca_heap *heap);
/* The same for the calling thread's only. */
void ca_magazine_count_own_locked(struct ca_heap *heap);
/* Calls that a magazine serves meanwhile have ended: blocks that they handed out are seen from now
 * on, and all that follow see words that were published before. */
void ca_magazines_pass_locked(struct ca_heap *heap);
/* All of them, so that nothing moves. */
void ca_magazines_lock_locked(struct ca_heap *heap);
void ca_magazines_unlock_locked(struct ca_heap *heap);
/* The space's blocks in magazines: the number of those that a stream may still use, and the bytes
 * of the largest block. */
void ca_magazines_look_locked(const struct ca_space *space, uint64_t *ret_used,
			      uint64_t *ret_largest);
