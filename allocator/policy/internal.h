/* SPDX-License-Identifier: MIT */
/*
 * The files of the policy share this.
 *
 * Everything here wants the heap's lock; a function that takes a space may leave and retake it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/deferred/deferred.h"
#include "allocator/block/block.h"
#include "allocator/core/types.h"
#include "allocator/policy/policy.h"

/* The bytes of `a` beyond `b`. */
static inline uint64_t
ca_excess(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}
static inline uint64_t
ca_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
static inline uint64_t
ca_most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- search.c: free memory */

/* Best fit of the pool that the budget does not keep. */
struct ca_block *ca_search_best_locked(struct ca_space *space, const struct ca_pool *pool,
				       uint64_t bytes);
/* The smaller one; `a` if they are equal. */
static inline struct ca_block *
ca_search_better(struct ca_block *a, struct ca_block *b)
{
	return !a || (b && b->bytes < a->bytes) ? b : a;
}
/* Best fit of what is FREE or STREAM_HELD by the quiet space's stream, once all magazines are
 * empty. */
struct ca_block *ca_search_locked(struct ca_space *space, uint64_t bytes);
/* The same, but while something FREE fits, magazines keep what they have. */
struct ca_block *ca_search_free_locked(struct ca_space *space, uint64_t bytes);
/* Of the same, for a request of up to 1 MiB: best fit of what is too small for the large pool that
 * it lies in. NULL for larger requests, too. */
struct ca_block *ca_search_hole_locked(struct ca_space *space, uint64_t bytes);
/* The best hole of one pool. */
struct ca_block *ca_search_hole_in_locked(const struct ca_space *space, const struct ca_pool *pool,
					  uint64_t bytes);
/* The smallest whole FREE segment for a request that gets a segment of its own; NULL: each is much
 * too large. */
struct ca_block *ca_search_whole_locked(struct ca_space *space, uint64_t segment_bytes);
/* The one stream of a quiet space, whose unfinished memory is as good as FREE. NULL: there is none,
 * or something captures. It stays so until the lock is left. */
static inline const struct ca_stream_record *
ca_search_quiet_locked(struct ca_space *space)
{
	const struct ca_stream_record *quiet = ca_held_quiet_locked(space);

	return quiet && !ca_order_may_capture(space->heap) ? quiet : NULL;
}
/* As ca_search_locked, but only the calling thread's magazine is looked at, and emptied no more
 * than it takes to find one. `quiet`: of now. */
struct ca_block *ca_search_own_locked(struct ca_space *space, const struct ca_stream_record *quiet,
				      uint64_t bytes);
/* As ca_search_locked, but the magazines of all threads, one after the other, are emptied no more
 * than it takes to find one. */
struct ca_block *ca_search_others_locked(struct ca_space *space, uint64_t bytes);
enum {
	/* Of the device: less than 1/5 is left. Never: least capacity +0.1 %, W5a-10k-256 +4.4,
	 * W5a-1k-1024 -2.4, medvar -2.8; 3 and 10: 0 to +0.1 %. (As in budget.c.) */
	CA_BUDGET_TIGHT_SHARE = 5,
};
/* The end of the device's memory, or of the program's limit, is near: holes count. */
bool ca_budget_is_low_otherwise_locked(struct ca_space *space);
static inline bool
ca_budget_is_low_locked(struct ca_space *space)
{
	const struct ca_device *device = space->device;
	uint64_t max = device->segments_max; /* 0: not asked for yet */

	return (device->budget.exhausted ||
		device->stats.reserved_bytes.current + device->other_bytes >
			max - max / CA_BUDGET_TIGHT_SHARE) &&
	       ca_budget_is_low_otherwise_locked(space);
}
/* As ca_search_locked, but nothing is left whole because a segment could go back. */
struct ca_block *ca_budget_find_cut_locked(struct ca_space *space, uint64_t bytes);
/* Looks at what waits, and takes what fits: also what may be exposed of any stream. */
struct ca_block *ca_oom_search_locked(struct ca_space *space, uint64_t bytes, enum ca_fit fit);

/* ---- search_early.c: unfinished memory for the calling thread, and the stream of its last
 * submission */

/* The stream of the last submission takes over blocks whose users it comes after by now. It merges
 * blocks: before anything is found, not after.
 */
void ca_held_take_over_locked(struct ca_space *space);
/* Best fit of what that stream owns, or comes after, and may be exposed to it. */
struct ca_block *ca_search_exposable_locked(struct ca_space *space, uint64_t bytes);
/* The same, if no other stream comes to wait because of it. */
struct ca_block *ca_search_exposable_free_locked(struct ca_space *space, uint64_t bytes);
/* A fit of what any streams use, for which the device is to wait: beyond the slack. */
struct ca_block *ca_search_exposable_late_locked(struct ca_space *space, uint64_t bytes);
/* The block, STREAM_HELD or MULTI_HELD, may be exposed to the calling thread; `freely`: so that
 * nobody comes to wait because of it. */
bool ca_held_may_take_locked(const struct ca_block *block, bool freely);
/* The stream of the calling thread's last submission, if unfinished memory of the space is handed
 * out to it. NULL: there is none. */
struct ca_stream_record *ca_held_last_locked(const struct ca_space *space);
/* A hole (ca_search_hole_locked) that may be exposed at no cost. */
struct ca_block *ca_search_exposable_hole_locked(struct ca_space *space, uint64_t bytes);
/* The block that the host would wait for could be handed out as it is, were it larger. */
bool ca_held_needs_space_locked(struct ca_space *space);
/* Best fit of all that may be exposed of anybody: memory is short. */
struct ca_block *ca_search_exposable_any_locked(struct ca_space *space, uint64_t bytes);

/* ---- gather.c */

/* A free block put together of neighbours, indexed, that fits; NULL: there are none. On what terms
 * they may be exposed: ca_held_may_take_locked. */
struct ca_block *ca_gather_locked(struct ca_space *space, uint64_t bytes, bool freely);

/* ---- alloc.c */

/* An allocation that the calling thread's magazine has no block for, where something is unusual.
 * They keep errno. */
int ca_alloc_otherwise(struct ca_space *space, uint64_t size, uint64_t *ret_address);
int ca_alloc_otherwise_locked(struct ca_space *space, uint64_t size, uint64_t bytes, bool capturing,
			      uint64_t *ret_address);

/* ---- direct.c and alloc.c: the last steps */

/* May the block go to a magazine at its free, for all that its place tells? A small one among large
 * ones may not: it would stay between them when a large request has what is kept of its own kind
 * merged (search.c). */
static inline bool
ca_alloc_is_kept(const struct ca_block *block)
{
	return !ca_registered_overlaps(block) && block->address % CA_GRAIN == 0 &&
	       (block->segment->pool->small || block->bytes > CA_SMALL_MAX);
}

/* The block, in no list and no index, becomes the program's; its birth and users are known, and
 * `go_out` makes it ALLOCATED. `fast`: a magazine may have it. From the last step on a free may
 * claim it without the lock. */
static inline __attribute__((always_inline)) void
ca_alloc_hand_out_locked(struct ca_block *block, uint64_t size, uint64_t serial, uint64_t thread,
			 void (*go_out)(struct ca_block *block), bool fast)
{
	atomic_store_explicit(&block->requested, size, memory_order_relaxed);
	atomic_store_explicit(&block->serial, serial, memory_order_relaxed);
	block->thread = (uint32_t)thread;
	block->sync_memops = false; /* the last owner's */
	go_out(block);
	atomic_store_explicit(&block->quick, fast ? block->address | CA_QUICK_LIVE : 0,
			      memory_order_release);
}

/* ---- hit.c */

/* Takes `block` (FREE, STREAM_HELD or MULTI_HELD, indexed; NULL: NULL) for a request, counted; its
 * unfinished users are exposed. `waited`: the caller settled something before. In no index, for the
 * caller to make ALLOCATED. */
struct ca_block *ca_alloc_hit_locked(struct ca_space *space, struct ca_block *block, uint64_t bytes,
				     bool waited);
/* Takes a whole FREE segment (NULL: NULL) as it is, counted. */
struct ca_block *ca_alloc_hit_whole_locked(struct ca_space *space, struct ca_block *block);
/* Memory that waits in the space. */
uint64_t ca_alloc_waiting_bytes_locked(struct ca_space *space);
/* The bytes that wait are more than reuse_slack. */
bool ca_alloc_waiting_exceeds_slack_locked(struct ca_space *space);
/*
 * Backpressure. A thread that takes memory which another one got back, while more than the slack of
 * its own still waits, makes that other thread take new memory; and so on for ever, if its own
 * stream is the slower one. The driver would have made it wait at each of its frees. So from then
 * on each of its allocations waits for the oldest of them, until no more than the slack is waiting.
 */
extern __thread uint64_t ca_alloc_in_debt
	__attribute__((tls_model("initial-exec"))); /* space->id; 0: none */
static inline void
ca_alloc_note_backpressure_locked(struct ca_space *space, const struct ca_block *block)
{
	if (space->multi_thread_free && block->state == CA_BLOCK_FREE && block->thread &&
	    block->thread != ca_order_thread() && ca_alloc_waiting_exceeds_slack_locked(space))
		ca_alloc_in_debt = space->id;
}

/* ---- release.c: segments go back */

/* A request begins, in a capture or not: noted for a report. */
void ca_oom_begin(bool capturing);
/*
 * While something captures no mark can be recorded, and memory that was freed natively would be
 * free: whole segments without a live block go back, whatever may have used them, once all that
 * their context was given has finished. True: some went back, or became due, which another thread
 * may have given back by now.
 */
bool ca_oom_release_busy_locked(struct ca_space *space, uint64_t bytes,
				struct ca_patience *patience);
/* Spaces whose segments are left alone: a device has no memory for so many contexts. */
enum { CA_SPACES_EXCEPT = 512 };
struct ca_spaces {
	unsigned n;
	const struct ca_space *at[CA_SPACES_EXCEPT];
};
bool ca_spaces_include(const struct ca_spaces *spaces, const struct ca_space *space);
/* Before a segment of the space is offered to the driver: asks whether the space has finished what
 * it was given so far, and puts it among the busy ones if not. False: there are too many of those.
 * Leaves and retakes the lock, so that the segment has to be looked for again. */
bool ca_release_may_begin_locked(struct ca_space *space, struct ca_patience *patience,
				 struct ca_spaces *busy);
/* The smallest whole segment of the device, finished and free, of at least `bytes`; or the largest;
 * NULL: there is none. `except`: NULL, or spaces that do not count. */
struct ca_block *ca_release_candidate_locked(const struct ca_device *device, uint64_t bytes,
					     const struct ca_spaces *except);
/* Gives that block's segment back; or, of an extent, just enough of it. Bytes; 0: nothing. Leaves
 * the lock. */
uint64_t ca_release_block_locked(struct ca_block *block, uint64_t bytes, bool *ret_busy);
/* Something of the device may be given back. */
static inline bool
ca_device_is_drainable(const struct ca_device *device)
{
	return device->drainable_bytes || device->mapped_bytes;
}
/* Bytes that are free or pending in whole segments, or free in whole handles. */
uint64_t ca_release_drainable_locked(const struct ca_device *device);
/* The same of the space and `best` (NULL: none). */
struct ca_block *ca_release_better_locked(struct ca_space *space, struct ca_block *best,
					  uint64_t bytes);
/* Empties all threads' magazines for the device: their blocks count as live till then. */
void ca_oom_clear_magazines_locked(const struct ca_device *device);
/* How much must come back before `bytes` fit, for a segment or another call: first by the limits
 * that the user set. Where the driver says that it has as much, it is in pieces of no use, and all
 * of it is wanted. Leaves and retakes the lock. */
uint64_t ca_release_needed_locked(struct ca_space *space, uint64_t bytes, bool segment);
/* Segments that the driver refused in the last round are offered again. */
void ca_release_reset_rejected_locked(const struct ca_device *device);
/* Gives finished cached segments of the device back, just enough for `bytes`. Returns bytes given
 * back; *ret_busy is set when a capture stood in the way. */
uint64_t ca_release_locked(struct ca_space *space, uint64_t bytes, struct ca_patience *patience,
			   bool *ret_busy);
/* The same, in a new round. */
uint64_t ca_oom_release_locked(struct ca_space *space, uint64_t bytes, bool *ret_busy);
/* Gives back what the driver keeps for nobody (struct ca_driver, pools_trim). Returns the bytes.
 * Leaves and retakes the lock. */
uint64_t ca_release_pools_locked(const struct ca_device *device, uint64_t keep_bytes, bool graphs);
/* The same for a request that the driver has no memory for. True: some went back. */
bool ca_oom_release_pools_locked(struct ca_space *space);
/*
 * Takes what waits in one segment without a live block, all of it freed by the calling thread, or
 * of a graph's by anybody, off its marks and streams, and makes the segment due for return, which
 * waits (deferred/await.c). False: there is none.
 */
bool ca_release_own_locked(struct ca_space *space);

/* ---- oom.c: out of memory */

/* The take by the pool's rule, and the ladder if the driver is out of memory. *ret_block as from
 * the take, or FREE and in no index (a hit, counted). */
int ca_oom_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);

/* Is another round worth it for a request of `bytes`, a segment or another call; 0: not known how
 * many? */
bool ca_oom_goes_on_locked(struct ca_space *space, uint64_t bytes, bool segment,
			   struct ca_rounds *rounds);
/* As ca_reclaim, for a segment or another call. */
bool ca_oom_reclaim_locked(struct ca_space *space, uint64_t bytes, bool segment,
			   struct ca_rounds *rounds);

/* ---- oom_last.c: the end of the ladder */

int ca_oom_last_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);
/* The same for what goes straight through: nothing cached. */
int ca_oom_last_passthrough_locked(struct ca_space *space, uint64_t bytes,
				   struct ca_block **ret_block);

/* ---- expand.c: expandable_segments */

/* The bytes that ca_grow_locked will ask of the driver for a request of `bytes`, where they are not
 * a segment's: then `segment_bytes`. Leaves and retakes the lock. */
uint64_t ca_expand_bytes_locked(struct ca_space *space, uint64_t bytes, uint64_t segment_bytes);
/* Free memory moves to where an extent grows, rather than that the cache outgrows its slack. */
static inline bool
ca_expand_moves(const struct ca_space *space)
{
	return space->heap->driver.range_alias && !space->areas[0].no_moves &&
	       !space->areas[1].no_moves;
}
/* An extent grows for the request. *ret_block is FREE, or handed out early, and in no index.
 * -ENOTSUP: it needs a segment. Else as ca_grow_locked. */
int ca_expand_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block);
/* Nobody grows from the free blocks that a plan counts on. False: there were none. */
bool ca_expand_done_locked(struct ca_space *space);

/* ---- move.c: free memory of extents moves, rather than that the cache outgrows its slack */

/* The growth, for a request of `bytes`, is more than the slack, and memory may move. */
bool ca_move_is_wanted_locked(const struct ca_space *space, const struct ca_growth *growth,
			      uint64_t bytes);
/* There are large extents, and a little more growth is more than the slack. */
bool ca_move_is_near_slack_locked(const struct ca_space *space);
static inline bool
ca_move_is_near_locked(const struct ca_space *space)
{
	return space->areas[1].bytes && ca_move_is_near_slack_locked(space);
}
/* Memory of other streams will do, for which the device waits. */
bool ca_move_may_wait_locked(struct ca_space *space, const struct ca_growth *growth,
			     uint64_t bytes);
/* As ca_extent_grow_locked, with free memory from elsewhere beyond the slack (`all`: as far as
 * there is any), and within the limits that the user set. */
int ca_move_grow_locked(struct ca_space *space, struct ca_growth *growth, uint64_t bytes, bool all);

/* ---- grow.c */

/* As ca_segment_take_locked; CA_DRIVER_OUT_OF_MEMORY, too, where a limit that the user set forbids
 * it: then the driver is not asked. */
int ca_grow_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
		   enum ca_segment_kind kind, struct ca_block **ret_block);
/* Whether the cache has grown beyond all reason (space->too_large). */
bool ca_grow_is_too_large_locked(struct ca_space *space);

/*
 * ---- budget.c: the cache's budget (give_back:early). Segments that nothing uses go back to the
 * driver before the cache outgrows what the program has needed, not only when the driver has
 * nothing left; and while the device is busy, as soon as it is found idle.
 */

/* The free block that a search found for `bytes` (NULL: none), or NULL where it is better left
 * whole: the segment goes back, or the request gets memory of its own. */
struct ca_block *ca_budget_choose_locked(struct ca_space *space, struct ca_block *block,
					 uint64_t bytes);
/* True if the block may be cut for `bytes` all the same. */
bool ca_budget_allows_locked(struct ca_space *space, const struct ca_block *block, uint64_t bytes);
/*
 * Before a segment is taken for a request of `bytes`: gives unused segments back as far as the
 * cache would outgrow the budget. Only while the device has nothing to do, which is looked at for a
 * moment, never waited for; not while anything captures. False: nothing went back, so a block that
 * was left whole for that is to be cut (ca_budget_find_cut_locked).
 */
bool ca_budget_make_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes);
/* The segment to take where one of `segment_bytes` would do: while the device does not keep up, as
 * large as one that was given back and would have served. */
uint64_t ca_budget_restored(const struct ca_space *space, uint64_t segment_bytes);
/* While the device does not keep up, but is idle just now: gives back what is beyond the budget. */
void ca_budget_tidy_locked(struct ca_space *space);
/* False: nothing is to be given back by that, whatever magazines have not counted yet. */
static inline bool
ca_budget_may_tidy(const struct ca_device *device)
{
	return !device->budget.keeps_up &&
	       device->stats.reserved_bytes.current >= device->budget.untidy;
}
/* A segment was taken. */
void ca_budget_taken_locked(struct ca_space *space, uint64_t segment_bytes);
/* The cache has just grown, and nothing that any thread keeps would have served instead. */
void ca_budget_needed_locked(struct ca_space *space);
/* A segment may be taken for a small request rather than what other threads keep: the device has
 * room, and the cache stays within the budget, and has not grown by more than 8 MiB for that. May
 * leave and retake the lock. */
bool ca_budget_spreads_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes);
/* The driver has no segment for `bytes`. */
void ca_budget_rejected_locked(struct ca_space *space, uint64_t bytes);
/* The size to ask of the driver for `bytes` when it has no more than that: whole pages, which it
 * would use in any case, unless a limit that the user set forbids them. */
uint64_t ca_budget_exact(const struct ca_space *space, uint64_t bytes);

/* ---- limit.c: CACHEALLOC_LIMIT, per_process_memory_fraction */

/* Asks the driver how large the device is, where that matters and is not known. Leaves and retakes
 * the lock. */
void ca_limit_update_locked(struct ca_space *space);
/* As struct ca_driver's memory_info. Leaves and retakes the lock. */
int ca_limit_query_locked(struct ca_space *space, uint64_t *ret_free, uint64_t *ret_total);
/* The device, or what the user allows of it, has no room for so many bytes beside the live blocks:
 * natively there would be none either. */
bool ca_limit_excludes_locked(struct ca_space *space, uint64_t bytes, bool segment);
/* `share` billionths of `total`. */
uint64_t ca_limit_share(uint64_t total, uint64_t share);
/* The bytes that the segments of a device may hold, or UINT64_MAX. */
uint64_t ca_limit_of_segments(struct ca_space *space);
/* How much must go back before `bytes` more are allowed, for a segment of ours or another call. */
uint64_t ca_limit_needed_locked(const struct ca_space *space, uint64_t bytes, bool segment);
/* ---- trim.c: automatic trims */

/* Before `bytes` more are asked of the driver: garbage_collection_threshold. Leaves and retakes the
 * lock. */
void ca_auto_trim_growth_locked(struct ca_space *space, uint64_t bytes);
