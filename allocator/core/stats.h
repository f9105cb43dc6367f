/* SPDX-License-Identifier: MIT */
/*
 * Statistics of one device, written once as X-macros: the struct and the JSON (of the library and
 * of cachealloc-replay) derive from them; CONTRIBUTING.md tells what else a new one needs. The
 * names are those of the stats JSON (format_version 1): adding is free, renaming is not.
 */
#pragma once

#include <stdint.h>

/* X(name): counters over the life of the process */
#define CA_STATS_COUNTERS(X)                                                                       \
	X(alloc_calls)        /* successful allocation calls, served or passed through */          \
	X(free_calls)         /* successful frees of memory we track */                            \
	X(cache_hits)         /* allocations served without taking a segment */                    \
	X(driver_alloc_calls) /* segments asked of the driver */                                   \
	X(driver_free_calls)  /* segments given back */                                            \
	X(driver_ns)          /* nanoseconds inside those two */                                   \
	X(ooms)               /* out-of-memory answers that reached the program */                 \
	X(alloc_retries)      /* segment requests repeated after memory was given back */          \
	X(flushes)            /* rounds of giving cached segments back under pressure */           \
	X(order_waits)        /* GPU-side waits inserted */                                        \
	X(order_marks)        /* marks recorded */                                                 \
	X(host_syncs)      /* waits of the host: marks, synchronisations, returns that may wait */ \
	X(settles)         /* host waits for accessors that are not streams */                     \
	X(pdl_stripped)    /* programmatic launches sent without their attribute */                \
	X(order_fallbacks) /* times reuse fell back to finished memory only */                     \
	X(unseen_calls)    /* calls of driver entry points we do not know */                       \
	X(stale_records)   /* segments dropped because the driver handed their memory out anew */  \
	X(passed_alloc_calls) /* allocations that went straight to the driver:                     \
				 ca_alloc_passthrough */                                           \
	X(other_alloc_calls)  /* allocations of the driver's: other entry points, no record */     \
	X(managed_fallbacks)  /* allocations in managed memory, for want of other */               \
	X(trims)              /* segments given back by keys that trim, or by give_back:early */   \
	X(fills)              /* blocks cleared or poisoned */                                     \
	X(fills_skipped)      /* those that could not be: a capture, a stream-ordered free */      \
	X(taken_clean)        /* hits: nobody had used the block since it was last finished */     \
	X(taken_same_stream)  /* hits: the block's one user is the caller's stream */              \
	X(taken_pending_done) /* hits: the block waited and its mark is done */                    \
	X(taken_exposed)      /* hits: unfinished memory of another stream */                      \
	X(exposed_several)    /* of the last two: several streams' */                              \
	X(pinned_alloc_calls) /* page-locked memory given out by pinned:cache */                   \
	X(pinned_cache_hits)  /* of these: memory that had been freed */                           \
	X(async_alloc_calls)  /* stream-ordered memory given out by async:pool */                  \
	X(async_free_calls)   /* frees of it, by either road */                                    \
	X(async_cache_hits)   /* allocations of it without taking a segment */

/* X(name): gauges, each with current, peak and total (sum of all increases) */
#define CA_STATS_GAUGES(X)                                                                         \
	X(requested_bytes)     /* live, as asked for */                                            \
	X(allocated_bytes)     /* live, after rounding */                                          \
	X(active_bytes)        /* live, or freed and not finished: STREAM_, MULTI_ or MARK_HELD */ \
	X(reserved_bytes)      /* held from the driver; exact */                                   \
	X(cached_bytes)        /* free to reuse now */                                             \
	X(pinned_bytes)        /* page-locked, live, as the driver gave it; with pinned:cache */   \
	X(pinned_cached_bytes) /* page-locked, freed and kept */                                   \
	X(async_bytes)         /* stream-ordered, live, in steps of 512; with async:pool */        \
	X(async_reserved_bytes) /* segments of it held from the driver's pools */

/* X(name): plain figures read at the moment of asking */
#define CA_STATS_FIGURES(X)                                                                        \
	X(largest_free_block_bytes)                                                                \
	X(pending_blocks)

/* As many words as struct ca_stats has, in its order, for who reads them elsewhere; the order
 * tracker's have their own place. */
#define CA_STATS_NAME(name) " " #name
#define CA_STATS_GAUGE_NAME(name) " " #name ".current " #name ".peak " #name ".total"
#define CA_STATS_NAMES                                                                             \
	CA_STATS_COUNTERS(CA_STATS_NAME)                                                           \
	CA_STATS_FIGURES(CA_STATS_NAME) " -" CA_STATS_GAUGES(CA_STATS_GAUGE_NAME)

struct ca_gauge {
	uint64_t current;
	uint64_t peak;
	uint64_t total;
};

struct ca_stats {
#define X(name) uint64_t name;
	CA_STATS_COUNTERS(X)
	CA_STATS_FIGURES(X)
#undef X
	uint64_t finished_only_reasons; /* CA_REASON_* of allocator/order/order.h; JSON: their names
					 */
#define X(name) struct ca_gauge name;
	CA_STATS_GAUGES(X)
#undef X
};
