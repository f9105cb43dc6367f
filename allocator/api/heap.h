/* SPDX-License-Identifier: MIT */
/*
 * The caching allocator: one heap a process, one space a context. Allocation, free, limits and
 * trims are declared in allocator/policy/policy.h; graphs and registrations in
 * allocator/deferred/deferred.h; streams and submissions in allocator/order/order.h.
 *
 * Thread-safe throughout. No lock is held while the driver (allocator/core/driver.h) is called, so
 * a callback may enter the heap again. Metadata comes from our own mmap arena
 * (allocator/util/arena.h); no function calls malloc, stdio or exit, or changes errno.
 *
 * Results: 0 done; > 0 the driver's code unchanged; < 0 -errno. Outputs are written only on
 * success.
 *
 * Rule of reuse: memory is handed out again when no work submitted before its free can still touch
 * it (allocator/order/order.h tells whose work that could be), or when all later work is ordered
 * behind that work; while anything captures, only
 * finished memory in segments of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/driver.h"
#include "allocator/core/stats.h"
#include "allocator/deferred/deferred.h"
#include "allocator/policy/policy.h"
#include "config/config.h"

struct ca_heap;
struct ca_stream; /* allocator/order/order.h */
struct ca_space;
struct ca_tracer;

/* `config` and `driver` are copied. -ENOMEM when not even the first chunk could be mapped. */
int ca_heap_create(const struct ca_config *config, const struct ca_driver *driver,
		   struct ca_heap **ret_heap);
/* Every event from now on goes to the tracer (allocator/trace/trace.h), which must outlive the heap
 * or be NULL. Before any other call; the caller drains it. */
void ca_heap_set_tracer(struct ca_heap *heap, struct ca_tracer *tracer);
/* Unmaps all metadata. Makes no driver call: the driver's memory stays there. Not thread-safe. */
void ca_heap_destroy(struct ca_heap *heap);
/* In a forked child, before any other call: locks are remade and every record is dropped without a
 * driver call (the child cannot use the parent's memory). Spaces are dead afterwards. */
void ca_heap_after_fork_child(struct ca_heap *heap);

/*
 * True in a signal handler that interrupted the heap in this thread: every other function here
 * would wait for ever. (A handler may call exit, which writes statistics.)
 */
bool ca_heap_locked_here(void);

/* `context` goes back to the driver functions as it is;
 * `device` is the device's ordinal. -ENOMEM. */
int ca_space_create(struct ca_heap *heap, void *context, unsigned device,
		    struct ca_space **ret_space);
/*
 * The context is gone and the driver has freed its memory: forget every record without driver calls
 * (but mark_drop). Pointers of the space are unknown afterwards. The struct stays valid for ever (a
 * late thread may hold it): ca_alloc on it answers -ENODEV.
 */
void ca_space_kill(struct ca_space *space);

/*
 * Another cache serves this process and takes its memory by ca_alloc_passthrough: from now on each
 * such call gives the device's finished cached memory back first. Thread-safe, without the lock.
 */
void ca_heap_share(struct ca_heap *heap);

struct ca_block_info {
	uint64_t address;         /* base of the block */
	uint64_t requested_bytes; /* the program's request; 0 if it is not live */
	uint64_t block_bytes;     /* the block's */
	uint64_t serial; /* unique per allocation over the life of the process; 0 if not live */
	struct ca_space *space;
	void *context;      /* as given to ca_space_create */
	bool live;          /* false: cached or pending */
	bool mapped;        /* of an extent (expandable_segments): never a whole segment */
	bool whole_segment; /* the block is a driver allocation of its own */
	bool foreign;
	bool sync_memops; /* ca_note_sync_memops */
};
/* The block that holds `address` (base or interior, live or not).
 * -ENOENT: not in a segment of ours. */
int ca_lookup(struct ca_heap *heap, uint64_t address, struct ca_block_info *ret_info);
/*
 * The program has set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the live block that holds `address`, or
 * has cleared it. ca_lookup tells it until the block is freed; the driver's own flag is the whole
 * segment's, and none of the heap's business. -ENOENT: no live block of ours.
 */
int ca_note_sync_memops(struct ca_heap *heap, uint64_t address, bool is_set);
/*
 * The segment that holds `address` was changed or exported for life (IPC, dma-buf, P2P_TOKENS):
 * its free blocks are never handed out again, and it goes back to the driver when its last live
 * block is freed. -ENOENT: not ours.
 */
int ca_retire(struct ca_heap *heap, uint64_t address);

/* Counts `n` blocks that were filled (zero, poison), or could not be. */
void ca_note_fill(struct ca_space *space, bool filled);
/* Sums over the device's spaces, living and dead. `device` as in ca_space_create. */
void ca_heap_stats(struct ca_heap *heap, unsigned device, struct ca_stats *ret_stats);
/* Devices seen so far: ordinals below the returned number may have statistics. */
unsigned ca_heap_device_count(struct ca_heap *heap);

/*
 * Walks every record and checks every invariant (blocks tile their segment, neighbours that could
 * merge are merged, each free block is in exactly one index, sums equal the statistics, ...). 0, or
 * -EUCLEAN with a description in ret_reason (may be NULL).
 */
int ca_heap_check(struct ca_heap *heap, char *ret_reason, size_t size);
