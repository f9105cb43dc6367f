/* SPDX-License-Identifier: MIT */
/*
 * Stream-ordered memory (cuMemAllocAsync): its allocations and frees name a stream, so nothing has
 * to be guessed. A heap of its own beside that of cuMemAlloc: its segments come from the driver's
 * pools, since only such memory outlives its context and is opened to peers by the pool's access
 * alone, and none of them ever changes over.
 *
 * A pool here stands for one of the driver's. The stream that a free names is the memory's one
 * user (order/told.c). Freed memory serves
 *
 *     that stream                 at once
 *     any stream                  when it is known to have finished
 *     a stream that comes after   by the program's events and waits (FOLLOWS)
 *     any stream                  when a mark that is asked for is done (OPPORTUNISTIC)
 *     any stream                  behind a wait that is inserted, once the driver has no memory
 *                                 left (INTERNAL)
 *
 * so far as the pool's three attributes allow the last three. `reuse:finished` leaves the second
 * and the fourth.
 *
 * Thread-safe. One lock for all pools of a heap, which comes before the heap's; none is held in a
 * driver call. No malloc, no stdio, errno kept. Results as in allocator/api/heap.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/order/order.h"

struct ca_heap;
struct ca_told_pool;

enum ca_told_reuse {
	CA_TOLD_FOLLOWS,
	CA_TOLD_OPPORTUNISTIC,
	CA_TOLD_INTERNAL,
	CA_TOLD_RULES,
};

/* A pool of the device `ordinal`, which the driver calls `handle`; all rules allow. Two open pools
 * have different handles. NULL: no memory. */
struct ca_told_pool *ca_told_pool_open(struct ca_heap *heap, void *handle, unsigned ordinal);
/* The program has destroyed it: it serves nothing more, and gives back what becomes idle. */
void ca_told_pool_close(struct ca_told_pool *pool);
/* The driver has not: it serves again. */
void ca_told_pool_open_again(struct ca_told_pool *pool, void *handle);
/* The driver has destroyed it, too, so that nobody names the closed pool any more: its record comes
 * to stand for another pool of the device once it has no segment. */
void ca_told_pool_retire(struct ca_told_pool *pool);
/* It becomes its device's current pool, which threads use without naming it: its record never
 * stands for another one. */
void ca_told_pool_note_current(struct ca_told_pool *pool);
/* The open pool with that handle; NULL: there is none. */
struct ca_told_pool *ca_told_pool_find(struct ca_heap *heap, const void *handle);
/* The device's pool after `pool` (NULL: the first one), closed ones included; NULL: that was the
 * last one. */
struct ca_told_pool *ca_told_pool_next(struct ca_heap *heap, const struct ca_told_pool *pool,
				       unsigned ordinal);
/* NULL: closed. */
void *ca_told_pool_handle(struct ca_told_pool *pool);
/* The same, for a driver call with the handle of a pool that another thread may destroy: the
 * destruction waits for ca_told_pool_leave, which is wanted unless the answer was NULL. Between the
 * two stand only calls that wait for no work, as long as a stream takes more. */
void *ca_told_pool_enter(struct ca_told_pool *pool);
void ca_told_pool_leave(struct ca_told_pool *pool);
/* Waits until no thread is in the pool, which is closed. */
void ca_told_pool_await(struct ca_told_pool *pool);
unsigned ca_told_pool_device(const struct ca_told_pool *pool);
void ca_told_pool_set_reuse(struct ca_told_pool *pool, enum ca_told_reuse reuse, bool allows);
bool ca_told_pool_allows(struct ca_told_pool *pool, enum ca_told_reuse reuse);
/* The device has so many bytes. */
void ca_told_pool_set_total(struct ca_told_pool *pool, uint64_t bytes);
/* The program has set its largest size: no segment is larger than a request needs. */
void ca_told_pool_set_limited(struct ca_told_pool *pool);
bool ca_told_pool_is_limited(const struct ca_told_pool *pool);

/*
 * `size` bytes (> 0), 512-byte aligned, for use in `stream` from now on. -EAGAIN: only with a new
 * segment, or waiting; or, unless `cuts_any`, from an idle segment that is better left whole;
 * -ENOMEM: no metadata; -ENODEV: the pool is closed.
 */
int ca_told_alloc(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size, bool cuts_any,
		  uint64_t *ret_address);
/* The bytes of a segment for such a request; `exact`: no more than the driver would use anyway. */
uint64_t ca_told_segment_bytes(struct ca_told_pool *pool, uint64_t size, bool exact);
/* The same from a segment that the driver has just allocated in `stream`, which becomes the
 * heap's. -ENOMEM, -ENODEV: it does not. */
int ca_told_grow(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t address,
		 uint64_t bytes, uint64_t size, uint64_t *ret_address);
/* The same as ca_told_alloc behind a wait that is put into `stream`. */
int ca_told_alloc_guarded(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size,
			  uint64_t *ret_address);
/* The driver refused the pool a segment, or the program an allocation, with that code. */
void ca_told_note_rejected(struct ca_told_pool *pool, uint64_t bytes, int code);
void ca_told_note_failed(struct ca_told_pool *pool, const struct ca_stream *stream, uint64_t size,
			 int code);
/* The program lets the pool keep so many bytes. */
void ca_told_note_trim(struct ca_told_pool *pool, uint64_t keep_bytes);
/* Memory waits that would serve such a request: it lies side by side, or its segments
 * go back, where the driver has `free_bytes` besides. */
bool ca_told_has_waiting_for(struct ca_told_pool *pool, uint64_t size, uint64_t free_bytes);
/* A number for what is submitted until now. The second asks, without waiting: true when all of that
 * has finished. */
uint64_t ca_told_submitted(struct ca_heap *heap);
bool ca_told_poll_submitted(struct ca_heap *heap, uint64_t number);
/* Asks for all freed memory of the device that waits. True: some has finished. */
bool ca_told_poll_all(struct ca_heap *heap, unsigned ordinal);

/*
 * Frees a live block by its base address, in `stream`; NULL: by a call that names none, so that
 * every stream with unfinished work is a user. -ENOENT: not ours; -EINVAL: inside a segment of
 * ours, but not the base of a live block.
 */
int ca_told_free(struct ca_heap *heap, uint64_t address, struct ca_stream *stream);
/* The same in a stream of which nothing is known: whatever works now is a user. */
int ca_told_free_untracked(struct ca_heap *heap, uint64_t address);

/* From the first to the second, which each thread may call, no free is quick: the caller has to do
 * something in one that is not. A pool was opened before. */
void ca_told_slow_begin(struct ca_heap *heap);
void ca_told_slow_end(struct ca_heap *heap);

struct ca_told_info {
	uint64_t address;   /* base of the block */
	uint64_t requested; /* bytes; 0: not live */
	uint64_t bytes;     /* of the block */
	uint64_t serial;    /* unique per allocation; 0: not live */
	bool live;
};
/* The block that holds `address`. -ENOENT: not ours. */
int ca_told_lookup(struct ca_heap *heap, uint64_t address, struct ca_told_info *ret_info);
/* True if any pool has a segment: then an address may be ours. Needs no lock. */
bool ca_told_any(const struct ca_heap *heap);

/* A segment taken out of the heap, for the caller to give back. */
struct ca_told_idle {
	struct ca_told_pool *pool;
	uint64_t address, bytes;
	unsigned number; /* of the pool, whose record may come to stand for another one */
	bool large;
};
/*
 * Takes an idle segment out of the heap: of `pool` (NULL: of every pool of the device). False:
 * there is none. Finished memory is found only if ca_told_poll_all was called. The second: of any
 * closed pool, and it asks by itself. The third: one that is to go back before `more_bytes` more
 * are asked of the driver (give_back:early). The fourth: the driver did not take it, it is the
 * heap's again. Each segment that a thread takes out is in its hand, where others may wait for it,
 * until the thread calls the last for it: its memory can be had.
 */
bool ca_told_take_idle(struct ca_heap *heap, struct ca_told_pool *pool, unsigned ordinal,
		       struct ca_told_idle *ret_idle);
bool ca_told_take_closed(struct ca_heap *heap, struct ca_told_idle *ret_idle);
bool ca_told_take_surplus(struct ca_told_pool *pool, uint64_t more_bytes,
			  struct ca_told_idle *ret_idle);
void ca_told_put_back(const struct ca_told_idle *idle);
void ca_told_hand_empty(struct ca_told_pool *pool, unsigned segments);
/* Another thread has a segment of that device in its hand. Needs no lock. */
bool ca_told_others_give(const struct ca_heap *heap, unsigned ordinal);
/* `more_bytes` more are beyond the budget, and memory waits of which some may finish in a moment:
 * it is worth a few questions. */
bool ca_told_look_is_due(struct ca_told_pool *pool, uint64_t more_bytes);
/* Memory waits still. */
bool ca_told_look_goes_on(struct ca_told_pool *pool);
/* It was of use if it `served` the request, or something can go back now. */
void ca_told_look_ends(struct ca_told_pool *pool, bool served);
/* A closed pool has a segment. Needs no lock. */
bool ca_told_has_closed(const struct ca_heap *heap);

/* The bytes that the program lets the pool reserve across a synchronisation; UINT64_MAX: any, as
 * long as it has not said. */
void ca_told_pool_set_threshold(struct ca_told_pool *pool, uint64_t bytes);
uint64_t ca_told_pool_threshold(const struct ca_told_pool *pool);

struct ca_told_stats {
	uint64_t used_bytes;    /* live, in steps of 512 */
	uint64_t used_high;     /* of used_bytes and what the driver serves beside */
	uint64_t segment_bytes; /* held from the driver's pool */
};
void ca_told_pool_stats(struct ca_told_pool *pool, struct ca_told_stats *ret_stats);
/* Fills in the async_ fields of a device. */
void ca_told_device_stats(struct ca_heap *heap, unsigned ordinal, struct ca_stats *stats);
/* The driver's pool has `bytes` in use: what is more than the segments it serves by itself. */
void ca_told_pool_note_driver(struct ca_told_pool *pool, uint64_t bytes);
/* It serves some of some pool, as far as is known. Needs no lock. */
bool ca_told_has_foreign(const struct ca_heap *heap);
/* used_high becomes what is used now. */
void ca_told_pool_reset_high(struct ca_told_pool *pool);

enum ca_told_part_kind {
	CA_TOLD_PART_SEGMENT, /* its blocks, which tile it, follow */
	CA_TOLD_PART_LIVE,
	CA_TOLD_PART_WAITS, /* freed; work that is not known to have finished may use it */
	CA_TOLD_PART_FREE,
};

struct ca_told_part {
	uint64_t address, bytes;
	uint64_t requested; /* LIVE: bytes; else 0 */
	enum ca_told_part_kind kind;
	unsigned device; /* ordinal */
	unsigned pool;   /* a number of its own, from 0 */
};

struct ca_told;
/* Between these two nothing moves: the lock of what the first returns, which may be NULL, is held,
 * and the heap's may be taken. */
struct ca_told *ca_told_walk_begin(struct ca_heap *heap);
void ca_told_walk_end(struct ca_told *told);
/* Between them: every segment and every block. */
typedef void ca_told_visit(void *arg, const struct ca_told_part *part);
void ca_told_each_part(const struct ca_told *told, ca_told_visit *visit, void *arg);

/* In a forked child: the parent's memory is forgotten. */
void ca_told_after_fork_child(struct ca_heap *heap);
/* As ca_heap_check. */
int ca_told_check(struct ca_heap *heap, char *ret_reason, size_t size);
