/* SPDX-License-Identifier: MIT */
/*
 * The decisions between the cache and the driver: allocation, free, limits, trims, and the end of
 * the memory. Results and locks as in allocator/api/heap.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_config;
struct ca_heap;
struct ca_space;
struct ca_stream;

/* ---- allocation and free */

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
int ca_alloc_passthrough(struct ca_space *space, uint64_t size, uint64_t *ret_address);
/*
 * Tracks [address, address + size) that the program got from the driver itself (pitch,
 * pass-through): never cached, freed by returning it to the driver. `requested` bytes count in the
 * statistics. -ENODEV, -ENOMEM, -EINVAL: as for ca_alloc; the memory stays the program's,
 * untracked.
 */
int ca_track_foreign(struct ca_space *space, uint64_t address, uint64_t size, uint64_t requested);
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

/*
 * The program gave the whole segment at `address` back by a driver call of its own (cuMemFreeAsync
 * while only counting): forget it, counted as a free. -ENOENT: not the base of a live whole segment
 * of ours.
 */
int ca_forget_block(struct ca_heap *heap, uint64_t address);

/* ---- memory that goes back */

/* Gives finished cached segments of all devices back, largest first, until at most `keep_bytes`
 * stay cached; and what the driver's pools keep for nobody beyond that. Returns bytes given
 * back; 0 while anything captures. Waits for the device as long as
 * its work goes on, ten seconds after it was last seen to: a context that is held up keeps its
 * segments. */
uint64_t ca_trim(struct ca_heap *heap, uint64_t keep_bytes);
/* Nothing more is mapped (expandable_segments), and mapped memory serves only what cannot be had
 * otherwise: what is free in whole handles goes back, now and before the cache grows. Waits for
 * nothing. */
void ca_expand_end(struct ca_heap *heap);
/* Bytes that are free or pending in whole segments of `space`'s device; cuMemGetInfo may add them
 * to free. */
uint64_t ca_drainable_bytes(struct ca_space *space);

/* The rounds of one call of the program at the end of the memory. Zero-initialised. */
struct ca_rounds {
	unsigned n;
	unsigned late;     /* of them after ten seconds */
	bool over;         /* nothing is left to be given back */
	uint64_t since_ns; /* of the driver's clock */
};
/*
 * The out-of-memory ladder for a driver call that is not ours to serve (pitch, arrays, ...): gives
 * memory back so that the driver may find `size` bytes; 0: not known how many. True: something was
 * given back, try again; false: nothing is left, a capture is in the way, or other threads take all
 * that is given back. NULL for `rounds`: of the latter nothing is known.
 */
bool ca_reclaim(struct ca_space *space, uint64_t size, struct ca_rounds *rounds);
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
void ca_charge_abort(struct ca_space *space, uint64_t bytes);
void ca_charge_keep(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle,
		    uint64_t bytes);
uint64_t ca_charge_drop(struct ca_heap *heap, enum ca_charge_kind kind, uint64_t handle,
			struct ca_space **ret_space);
void ca_charge_restore(struct ca_space *space, enum ca_charge_kind kind, uint64_t handle,
		       uint64_t bytes);
/* The figures of cuMemGetInfo become those that CACHEALLOC_LIMIT leaves, if they are less. */
void ca_limit_info(struct ca_space *space, uint64_t *free_bytes, uint64_t *total_bytes);
enum ca_limit_kind {
	CA_LIMIT_OWN,      /* CACHEALLOC_LIMIT */
	CA_LIMIT_FORCED,   /* the same of a site's file */
	CA_LIMIT_FRACTION, /* per_process_memory_fraction */
};
/* The smallest limit of segments in bytes, 0: none. */
uint64_t ca_limit_allowed(struct ca_space *space, enum ca_limit_kind *ret_kind);
/*
 * Automatic trims (max_cached_mb, trim_idle_ms, trim_every, garbage_collection_threshold) that are
 * due in the space. `may_wait`: the program frees memory of the space by a call for which the
 * driver's own would wait for the device. Otherwise nothing is done while work of the device is
 * unfinished, as far as is known. No effect while anything captures.
 */
void ca_auto_trim(struct ca_space *space, bool may_wait);
/* No work of the space's device is unfinished, as far as is known. */
bool ca_device_is_idle(struct ca_space *space);
/* True if any of those settings is on. */
bool ca_auto_trim_is_wanted(const struct ca_config *config);
/* True if a limit, or what is relative to one, is set. */
bool ca_limit_is_set(const struct ca_config *config);
/* The space is dead: its charges are gone. */
void ca_limit_forget_locked(struct ca_space *space);

/* ---- for a report */

/* The ladder's acts for the calling thread's last request (release.c). */
struct ca_tried {
	unsigned searches;       /* of what is free */
	unsigned attempts;       /* times the driver was asked again */
	unsigned given_segments; /* that went back to the driver */
	uint64_t given_bytes;
	uint64_t pool_bytes;  /* of the driver's pools and graphs, that went back */
	unsigned waits;       /* of the host, for freed memory */
	uint64_t own_changes; /* of the device's generation, that tell the thread nothing */
	bool others;  /* memory that other threads had freed was looked at until patience ended */
	bool capture; /* a stream captures: new memory only */
	bool rejected_by_us; /* by a limit that the user set: the driver was not asked */
};
extern __thread struct ca_tried ca_oom_tried __attribute__((tls_model("initial-exec")));
