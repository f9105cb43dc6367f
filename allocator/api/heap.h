/* SPDX-License-Identifier: MIT */
/*
 * The caching allocator: one heap a process, one space a context.
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
 * behind that work; while anything captures, only memory never handed out before.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/driver.h"
#include "allocator/core/stats.h"
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
/* Unmaps all metadata. Makes no driver call: what the driver holds stays there. Not thread-safe. */
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
 * `size` bytes (> 0), 512-byte aligned; sizes of 2 MiB and more on a 64 KiB boundary whenever the
 * segment is, and on the segment's own where it is made for the request. > 0: the driver's code
 * (out of memory only after the ladder, allocator/policy/oom.c). -ENODEV: the space is dead;
 * -ENOMEM: no metadata; -E2BIG: larger than 2^60; -EINVAL: `size` is 0. On < 0 nothing was taken
 * and the caller passes the call through to the driver.
 */
int ca_alloc(struct ca_space *space, uint64_t size, uint64_t *ret_address);
/*
 * `size` bytes straight from the driver, exactly as asked for, and back to it at their free; never
 * from the cache and never kept by it. Cached memory is given back before the driver's runs out;
 * limits, oom_retry_ms and oom_fallback apply as to ca_alloc.
 * Results as of ca_alloc.
 */
int ca_alloc_through(struct ca_space *space, uint64_t size, uint64_t *ret_address);
/*
 * Another cache serves this process and takes its memory by ca_alloc_through: from now on each such
 * call gives the device's finished cached memory back first. Thread-safe, without the lock.
 */
void ca_heap_share(struct ca_heap *heap);
/*
 * Tracks [address, address + size) that the program got from the driver itself (pitch,
 * pass-through): never cached, freed by returning it to the driver. `requested` bytes count in the
 * statistics. -ENODEV, -ENOMEM, -EINVAL: as for ca_alloc; the memory stays the program's,
 * untracked.
 */
int ca_adopt(struct ca_space *space, uint64_t address, uint64_t size, uint64_t requested);
/*
 * Frees a live block by its base address. -ENOENT: not ours (hand it to the driver); -EINVAL:
 * inside a segment of ours but not the base of a live block (double or interior free); > 0: the
 * driver's error: a retired block's return failed, or the context is poisoned; the block then stays
 * live. -EBUSY: only with CA_DISABLE_COUNT, from segment_return; the block stays live.
 */
int ca_free(struct ca_heap *heap, uint64_t address);
/* The same for a free that takes effect when `stream` (NULL: not tracked) gets
 * there: until then the stream counts as a user. Natively it waits for nobody: it returns at once
 * whatever waits, and no thread is made to wait for what the memory was last used by. */
int ca_free_async(struct ca_heap *heap, uint64_t address, struct ca_stream *stream);

struct ca_block_info {
	uint64_t address;         /* base of the block */
	uint64_t requested_bytes; /* what the program asked for; 0 if it is not live */
	uint64_t block_bytes;     /* what it got */
	uint64_t serial; /* unique per allocation over the life of the process; 0 if not live */
	struct ca_space *space;
	void *context;      /* as given to ca_space_create */
	bool live;          /* false: cached or pending */
	bool whole_segment; /* the block is a driver allocation of its own */
	bool adopted;
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

/*
 * Graphs. Memory handed out while something captures may be named by the graph that comes of it.
 * Read the serial before the capture begins and after it ended; then, before the driver says that
 * nothing captures any more, tell the heap of the graph: blocks with first < serial <= last are not
 * handed out again after their free until *gone is true (it must stay readable for ever). A capture
 * that ends without a graph need not be told. No driver call. -ENOMEM.
 */
uint64_t ca_graph_serial(struct ca_heap *heap);
int ca_graph_hold(struct ca_heap *heap, uint64_t first, uint64_t last, _Atomic bool *gone);
/* The end of the graph cannot be learned: their segments are retired, as by ca_retire. */
void ca_graph_retire(struct ca_heap *heap, uint64_t first, uint64_t last);

/*
 * The program gave the whole segment at `address` back by a driver call of its own (cuMemFreeAsync
 * while only counting): forget it, counted as a free. -ENOENT: not the base of a live whole segment
 * of ours.
 */
int ca_disown(struct ca_heap *heap, uint64_t address);

/*
 * The out-of-memory ladder for a driver call that is not ours to serve (pitch, arrays, ...): gives
 * memory back so that the driver may find `size` bytes. True: something was given back, try again;
 * false: nothing is left, or a capture is in the way.
 */
bool ca_reclaim(struct ca_space *space, uint64_t size);
/* The program got memory by a call that is not ours to serve: counted, nothing else. */
void ca_note_other_alloc(struct ca_space *space);
/*
 * CACHEALLOC_LIMIT for memory by calls that are not ours to serve. Charge before the call: cached
 * memory is given back where that makes room; false: out of memory. Cancel where the call failed;
 * otherwise keep it by the handle (an address, a handle) that will be freed. Drop before the real
 * free: the bytes that were charged, 0 for none; restore them if that failed.
 */
enum ca_charge_kind {
	CA_CHARGE_ADDRESS,
	CA_CHARGE_PHYSICAL, /* cuMemCreate */
	CA_CHARGE_ARRAY,
	CA_CHARGE_MIPMAP,
};
bool ca_charge(struct ca_space *space, uint64_t bytes);
void ca_charge_cancel(struct ca_space *space, uint64_t bytes);
void ca_charge_keep(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle,
		    uint64_t bytes);
uint64_t ca_charge_drop(struct ca_heap *heap, enum ca_charge_kind kind, uint64_t handle,
			struct ca_space **ret_space);
void ca_charge_restore(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle,
		       uint64_t bytes);
/* What cuMemGetInfo reports becomes what CACHEALLOC_LIMIT leaves, if that is less. */
void ca_limit_info(struct ca_space *space, uint64_t *free_bytes, uint64_t *total_bytes);
/* The smaller limit of segments in bytes, 0: none; *ret_is_limit: it is CACHEALLOC_LIMIT. */
uint64_t ca_limit_allowed(struct ca_space *space, bool *ret_is_limit);
/*
 * Automatic trims (max_cached_mb, trim_idle_ms, trim_every, garbage_collection_threshold) that are
 * due in the space. `may_wait`: the program frees memory of the space by a call for which the
 * driver's own would wait for the device. Otherwise nothing is done while work of the device is
 * unfinished, as far as is known. No effect while anything captures.
 */
void ca_tend(struct ca_space *space, bool may_wait);
/* No work of the space's device is unfinished, as far as is known. */
bool ca_device_is_idle(struct ca_space *space);
/* True if any of those settings is on. */
bool ca_tend_is_wanted(const struct ca_config *config);
/* Counts `n` blocks that were filled (zero, poison), or could not be. */
void ca_note_fill(struct ca_space *space, bool filled);
/* Gives finished cached segments of all devices back, largest first, until at most `keep_bytes`
 * stay cached. Returns bytes given back; 0 while anything captures. May wait for the device. */
uint64_t ca_trim(struct ca_heap *heap, uint64_t keep_bytes);
/* Bytes that are free or pending in whole segments of `space`'s device:
 * what cuMemGetInfo may add to free. */
uint64_t ca_drainable_bytes(struct ca_space *space);

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
