/* SPDX-License-Identifier: MIT */
/*
 * The way of an allocation: best fit of what nobody uses any more (in a quiet space: or only the
 * one stream); else expose what the caller's own stream has not finished with, if nobody comes to
 * wait because of it; else settle what has finished and search again; else, when too much freed
 * memory is waiting, expose what other streams have to be waited for, or let the host wait for the
 * oldest that the caller itself freed; else new memory (oom.c).
 *
 * Blocks that the calling thread has just freed come first (tcache/magazine.c); all this is for the
 * rest.
 *
 * While anything captures, the request gets a segment of its own.
 */
#include "allocator/policy/internal.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/fast.h"
#include "allocator/trace/trace.h"
#include "config/branch.h"
#include "config/mutant.h"

/* Usually the calling thread's magazine has one, and has been counted. */
static inline uint64_t
next_serial(struct ca_heap *heap)
{
	struct ca_magazine *magazine = ca_own.magazine;

	if (ca_own.heap == heap->id && magazine->serial != magazine->serials_end &&
	    !(magazine->counts.hits | magazine->counts.frees))
		return magazine->serial++;
	return ca_magazine_serial_locked(heap);
}

static void
set_allocated(struct ca_block *block)
{
	ca_block_set_state_locked(block, CA_BLOCK_ALLOCATED);
}

static bool
is_fast(const struct ca_block *block, uint64_t rounded)
{
	const struct ca_segment *segment = block->segment;

	return segment->space->heap->quick && !segment->retired &&
	       (CA_MUTANT(CAPTURED_KEPT) || !segment->captured) && !block->has_multi &&
	       ca_grains(rounded) && ca_alloc_is_kept(block);
}

static inline void
hand_out(struct ca_space *space, struct ca_block *block, uint64_t requested, uint64_t rounded)
{
	struct ca_heap *heap = space->heap;
	uint64_t serial = block->segment->captured ? ++heap->serial : next_serial(heap);

	if (__builtin_expect(block->places != NULL, 0))
		ca_block_keep_multi_locked(block, ca_order_birth(&space->order));
	else
		block->birth = ca_order_birth(&space->order);
	ca_alloc_hand_out_locked(block, requested, serial, ca_order_thread(), set_allocated,
				 is_fast(block, rounded));
	CA_COUNT(space, alloc_calls);
}

static bool
waiting_useful(struct ca_space *space, uint64_t bytes)
{
	return ca_held_waiting_bytes_locked(space, ca_pool_for(space, bytes)) >= bytes;
}

/*
 * True when the cache has grown by more than reuse_slack over what the program has: memory that
 * waits, and memory that is free but in pieces that do not fit.
 */
static bool
cache_exceeds_slack(struct ca_space *space)
{
	uint64_t waiting = ca_alloc_waiting_bytes_locked(space);
	uint64_t slack = space->heap->config.reuse_slack_bytes;
	uint64_t cached = space->device->stats.cached_bytes.current;

	if ((int64_t)cached < 0)
		cached = 0; /* another thread's magazine has not counted yet what it gave */
	return waiting > slack || cached > slack - waiting || CA_EXPOSURE_FORCED;
}

/*
 * The cache is large enough, and nothing in it fits as it is: the host waits for what the driver's
 * own free would have waited for. False: that is not to be had. (Nothing is given to the driver's
 * free here: it would wait for work submitted since, which may wait for the caller.)
 */
static bool
shrink_waiting(struct ca_space *space)
{
	return ca_deferred_wait_locked(space, CA_WAIT_LATER) > 0;
}

/* False: nothing more is to be waited for. */
static bool
apply_backpressure(struct ca_space *space)
{
	if (ca_alloc_in_debt != space->id)
		return true;
	if (ca_alloc_waiting_exceeds_slack_locked(space))
		return shrink_waiting(space);
	ca_alloc_in_debt = 0;
	return true;
}

enum {
	/* About as long as a cuMemAlloc. With one thread it never happens: the 44 workloads are the
	 * same without it. */
	MOMENT_LOOKS = 20,
	MOMENT_PAUSE_NS = 50 * 1000,
};

/*
 * Memory that another thread freed may be waiting for the caller's own next submission, so it is
 * never waited for; but most work ends soon. So before the cache grows the caller looks again for a
 * moment, about as long as the driver takes to allocate. Where that was in vain it is tried more
 * and more seldom.
 */
static bool
others_finish(struct ca_space *space, uint64_t bytes)
{
	unsigned looks;

	if (!ca_held_others_wait_locked(space))
		return false;
	if (!ca_backoff_is_due(&space->looks))
		return false;
	for (looks = 0; looks < MOMENT_LOOKS && !space->dead; looks++) {
		ca_outside_pause(space->heap, MOMENT_PAUSE_NS);
		ca_held_look_locked(space);
		if (ca_search_locked(space, bytes)) {
			ca_backoff_succeeded(&space->looks);
			return true;
		}
	}
	ca_backoff_failed(&space->looks);
	return false;
}

/*
 * It is not the order that keeps the oldest block from being handed out: the pieces are too small,
 * as they may be with one stream, where nobody waits. So the host does not wait for them to merge
 * as long as `block` can be cut instead, or the cache has not grown to the slack more than the
 * program ever had. (On W5b, 4 to 8 threads with a stream each, that takes 7,800 host waits instead
 * of 60,000, and waste over live is 40 instead of 30 %. With half of the slack a step of data
 * parallel training waits 118 to 343 times, with all of it never.)
 */
static bool
is_fragmented(struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	const struct ca_stats *stats = &space->device->stats;
	uint64_t most = stats->allocated_bytes.peak, more;

	more = stats->reserved_bytes.current + ca_pool_segment_bytes(&space->heap->config, bytes);
	return (block || more <= most || more - most <= space->heap->config.reuse_slack_bytes) &&
	       ca_held_needs_space_locked(space);
}

/* Beyond the slack, what may be exposed is as good as `block`, which may be NULL: the smaller one,
 * and the host does not wait. NULL: nothing may be exposed. */
static struct ca_block *
or_exposable(struct ca_space *space, struct ca_block *block, uint64_t bytes)
{
	struct ca_block *exposable;

	exposable = ca_search_exposable_locked(space, bytes);
	if (!exposable)
		exposable = ca_search_exposable_late_locked(space, bytes);
	if (!exposable && !block)
		exposable = ca_gather_locked(space, bytes, false);
	if (!exposable && !block)
		exposable = ca_search_hole_locked(space, bytes);
	return exposable ? ca_search_better(exposable, block) : NULL;
}

/* Where that is forced (config/branch.h): unfinished memory rather than any other. */
static struct ca_block *
exposable_by_force(struct ca_space *space, uint64_t bytes)
{
	if (!CA_EXPOSURE_FORCED)
		return NULL;
	ca_held_take_over_locked(space);
	return or_exposable(space, NULL, bytes);
}

/* Memory that costs nobody anything; `block`, NULL or to be cut, if that is smaller. */
static struct ca_block *
or_exposable_free(struct ca_space *space, struct ca_block *block, uint64_t bytes)
{
	struct ca_block *exposable = ca_search_exposable_free_locked(space, bytes);

	return exposable ? ca_search_better(exposable, block) : NULL;
}

/*
 * A thread that has nothing of its own left would take what others keep, which they miss at once,
 * and then take from it. Rather the cache grows a little. NULL: it may not, or cannot. (Two
 * threads, each with a ring of 64 blocks of 12 sizes: of a million requests 20,000 miss their
 * magazine instead of 33,000, and 100 instead of 190 take from the other. 54 instead of 50 MiB are
 * reserved, for one such thread 32.)
 */
static struct ca_block *
spread(struct ca_space *space, uint64_t bytes)
{
	uint64_t segment_bytes = ca_pool_segment_bytes(&space->heap->config, bytes);
	struct ca_block *block = NULL;

	if (ca_own.space != space->id || !ca_own.magazine->shared ||
	    !ca_heap_has_contention_locked(space->heap) || ca_held_any(space) || space->dead ||
	    space->poisoned || !ca_budget_spreads_locked(space, segment_bytes, bytes))
		return NULL;
	if (ca_grow_locked(space, segment_bytes, bytes, CA_SEGMENT_CUT, &block))
		ca_backoff_failed(&space->spreads);
	else
		ca_backoff_succeeded(&space->spreads);
	return block;
}

/*
 * From what was freed, without new memory; NULL when that is not to be had. Before a larger block
 * is cut, what has finished meanwhile is looked at: it may fit as it is. And once the cache is
 * large enough the host waits for the block that would, because cutting another one now leaves
 * pieces that nothing fits into later.
 *
 * Not before that moment are all magazines emptied for it, or they would never serve where there
 * are several streams, of which one has always something unfinished. (A thread that launches after
 * each allocation, a ring of 64 blocks of 96 sizes, two streams: a pair takes 670 ns instead of
 * 1,270, and the heap's lock is taken 1.1 instead of 1.9 times. The workloads reserve as much as
 * before at lags of 0 to 300 us, but for W5b: 0.0, +0.9 and -1.5 % at 0, 20 and 100 us, the mean of
 * 7 seeds.)
 */
static struct ca_block *
reuse(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block, *exposable;
	bool waited = false, waits;

	waits = apply_backpressure(space);
	exposable = exposable_by_force(space, bytes);
	if (exposable)
		return ca_alloc_hit_locked(space, exposable, bytes, false);
	block = ca_search_own_locked(space, ca_search_quiet_locked(space), bytes);
	if (!block && (block = spread(space, bytes)))
		return block;
	if (!block)
		block = ca_search_others_locked(space, bytes);
	if (block && (!ca_held_is_waiting_locked(space) || ca_pool_is_whole(block, bytes)))
		return ca_alloc_hit_locked(space, block, bytes, false);
	ca_leases_end_locked(space->heap);
	if (!ca_held_is_waiting_locked(space))
		return NULL;
	ca_held_take_over_locked(space);
	block = ca_search_free_locked(space, bytes);
	exposable = or_exposable_free(space, block, bytes);
	if (exposable)
		return ca_alloc_hit_locked(space, exposable, bytes, false);
	waited = ca_held_look_locked(space);
	block = ca_search_free_locked(space, bytes);
	if (waiting_useful(space, bytes) && cache_exceeds_slack(space))
		block = ca_search_locked(space, bytes);
	while (waiting_useful(space, bytes) && cache_exceeds_slack(space) &&
	       !(block && ca_pool_is_whole(block, bytes))) {
		exposable = or_exposable(space, block, bytes);
		if (exposable)
			return ca_alloc_hit_locked(space, exposable, bytes, waited);
		if (is_fragmented(space, block, bytes))
			break;
		waits = waits && shrink_waiting(space);
		if (!waits && (block || !others_finish(space, bytes)))
			break;
		waited = true;
		ca_held_take_over_locked(space);
		block = ca_search_locked(space, bytes);
	}
	block = ca_search_free_locked(space, bytes);
	if (!block && ca_held_settle_locked(space))
		block = ca_search_free_locked(space, bytes);
	if (!block)
		block = ca_gather_locked(space, bytes, true);
	return ca_alloc_hit_locked(space, block, bytes, waited);
}

/* A segment of its own: in a capture, in a poisoned context, or when only counting. */
static CA_APART int
take_own(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes,
	 struct ca_block **ret_block)
{
	return ca_grow_locked(space, segment_bytes, bytes, CA_SEGMENT_WHOLE, ret_block);
}

/*
 * Memory that a graph may use gets a segment of its own: a FREE one, or a new one. Where a capture
 * prohibits allocations to the thread, the driver is asked for its answer.
 */
static struct ca_block *
take_whole(struct ca_space *space, uint64_t segment_bytes)
{
	const struct ca_driver *driver = &space->heap->driver;

	if (!driver->capture_allows || !driver->capture_allows(driver->self))
		return NULL;
	return ca_alloc_hit_whole_locked(space, ca_search_whole_locked(space, segment_bytes));
}

/* In a capture. */
static CA_APART int
take_in_capture(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	uint64_t segment_bytes = bytes > CA_SMALL_MAX ? ca_round_up(bytes, CA_PAGE) : bytes;
	struct ca_patience patience = { 0 };
	struct ca_rounds rounds = { 0 };
	int r = 0;

	ca_oom_begin(true);
	do {
		*ret_block = take_whole(space, segment_bytes);
		r = *ret_block ? 0 : take_own(space, segment_bytes, bytes, ret_block);
	} while (r == CA_DRIVER_OUT_OF_MEMORY &&
		 ca_oom_goes_on_locked(space, bytes, true, &rounds) &&
		 (ca_oom_release_pools_locked(space) ||
		  ca_oom_release_busy_locked(space, segment_bytes, &patience)));
	if (!r)
		(*ret_block)->segment->captured = true;
	return r;
}

static int
take(struct ca_space *space, uint64_t size, uint64_t bytes, bool capturing,
     struct ca_block **ret_block)
{
	if (space->dead)
		return -ENODEV;
	if (space->heap->config.disable != CA_DISABLE_OFF)
		return take_own(space, size, size, ret_block);
	if (capturing || ca_budget_may_tidy(space->device))
		ca_leases_end_locked(space->heap);
	if (capturing)
		return take_in_capture(space, bytes, ret_block);
	ca_budget_tidy_locked(space);
	*ret_block = reuse(space, bytes);
	if (*ret_block)
		return 0;
	if (space->poisoned)
		return take_own(space, bytes, bytes, ret_block);
	return ca_oom_take_locked(space, bytes, ret_block);
}

/* The program gets the driver's code. */
static CA_APART void
reject(struct ca_space *space, uint64_t size, int code)
{
	if (code == CA_DRIVER_OUT_OF_MEMORY)
		CA_COUNT(space, ooms);
	if (ca_tracing(space->heap))
		ca_trace_failed(space, size, code);
}

/* The block is the program's, or the program gets the driver's code. */
static inline int
answer(struct ca_space *space, struct ca_block *block, uint64_t size, uint64_t rounded, int r,
       uint64_t *ret_address)
{
	if (r) {
		if (r > 0)
			reject(space, size, r);
		return r;
	}
	hand_out(space, block, size, rounded);
	*ret_address = block->address;
	if (ca_tracing(space->heap))
		ca_trace_alloc_locked(block);
	return 0;
}

/* The calling thread's magazine is for the space, needs nothing, and there is no other. */
static inline bool
has_only_own(const struct ca_space *space)
{
	const struct ca_magazine *magazine = ca_own.magazine;

	return ca_own.space == space->id && !magazine->shared &&
	       magazine->serial != magazine->serials_end;
}

/* Another thread's magazine may have what the caller's has not. */
static bool
take_fast(struct ca_space *space, uint64_t size, uint64_t bytes, uint64_t *ret_address)
{
	const struct ca_heap *heap = space->heap;

	if (heap->config.disable != CA_DISABLE_OFF)
		return false;
	if (!ca_list_empty(&space->due)) {
		/* natively it does not wait, and the driver's free may */
		if (ca_await_query_locked(space, ca_order_space_bound(space)))
			ca_segment_return_due_locked(space, NULL);
	} else if (has_only_own(space)) {
		return false; /* and that was asked just now, without the lock */
	}
	return heap->quick && !space->dead && ca_magazine_prepare_take_locked(space, bytes) &&
	       ca_magazine_take(space, size, bytes, true, ret_address);
}

int
ca_alloc_otherwise_locked(struct ca_space *space, uint64_t size, uint64_t bytes, bool capturing,
			  uint64_t *ret_address)
{
	struct ca_block *block = NULL;
	int saved = errno, r = 0;

	ca_magazine_count_own_locked(space->heap);
	if (capturing || !take_fast(space, size, bytes, ret_address)) {
		r = take(space, size, bytes, capturing, &block);
		r = answer(space, block, size, bytes, r, ret_address);
	}
	errno = saved;
	return r;
}

int
ca_alloc_otherwise(struct ca_space *space, uint64_t size, uint64_t *ret_address)
{
	struct ca_heap *heap = space->heap;
	uint64_t bytes;
	bool capturing;

	if (size - 1 >= CA_SIZE_MAX)
		return size ? -E2BIG : -EINVAL;
	bytes = ca_rounded(heap, size);
	capturing = heap->driver.capturing(heap->driver.self);
	if (!capturing && ca_own.quick_space != space->id &&
	    ca_magazine_take(space, size, bytes, false, ret_address))
		return 0;
	CA_HEAP_LOCKED(heap);
	heap->requests++;
	return ca_alloc_otherwise_locked(space, size, bytes, capturing, ret_address);
}

int
ca_alloc(struct ca_space *space, uint64_t size, uint64_t *ret_address)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_stack *stack = NULL;

	if (!driver->capturing(driver->self) && ca_alloc_quick(space, size, ret_address, &stack))
		return 0;
	if (stack && ca_magazine_take_on(space, size, stack, ret_address))
		return 0;
	return ca_alloc_rest(space, size, ret_address);
}

/*
 * Another cache shares the device, and this one serves no requests any more: cached memory of the
 * time before goes back. The driver's free may wait for all that runs, and a kernel may wait for
 * what the caller does next: so only while the device is known to have nothing to do.
 */
static void
return_cached(struct ca_space *space)
{
	const struct ca_stats *stats = &space->device->stats;
	bool busy = false;

	if (stats->reserved_bytes.current == stats->allocated_bytes.current ||
	    !ca_device_is_idle_locked(space))
		return;
	ca_held_look_locked(space);
	ca_held_settle_locked(space);
	ca_release_reset_rejected_locked(space->device);
	ca_release_locked(space, UINT64_MAX, &(struct ca_patience){ 0 }, &busy);
}

/* The driver's own memory, with the ladder if it has none. */
static int
take_through(struct ca_space *space, uint64_t size, bool capturing, struct ca_block **ret_block)
{
	struct ca_rounds rounds = { 0 };
	int r;

	ca_oom_begin(capturing);
	if (!capturing && atomic_load_explicit(&space->heap->shared, memory_order_relaxed))
		return_cached(space);
	for (;;) {
		r = space->dead ? -ENODEV : take_own(space, size, size, ret_block);
		if (r != CA_DRIVER_OUT_OF_MEMORY)
			return r;
		if (!ca_oom_reclaim_locked(space, size, true, &rounds))
			return capturing ? r
					 : ca_oom_last_passthrough_locked(space, size, ret_block);
		CA_COUNT(space, alloc_retries);
	}
}

int
ca_alloc_passthrough(struct ca_space *space, uint64_t size, uint64_t *ret_address)
{
	struct ca_heap *heap = space->heap;
	struct ca_block *block = NULL;
	bool capturing;
	int r;

	if (!size)
		return -EINVAL;
	if (size > CA_SIZE_MAX)
		return -E2BIG;
	capturing = heap->driver.capturing(heap->driver.self);
	CA_HEAP_LOCKED(heap);
	ca_magazine_count_own_locked(heap);
	r = take_through(space, size, capturing, &block);
	if (!r) {
		block->segment->foreign = true;
		block->segment->retired = true;
		CA_COUNT(space, passed_alloc_calls);
	}
	return answer(space, block, size, size, r, ret_address);
}

int
ca_track_foreign(struct ca_space *space, uint64_t address, uint64_t size, uint64_t requested)
{
	struct ca_block *block;
	int r;

	if (!size || size > CA_SIZE_MAX || address + size < address)
		return -EINVAL;
	CA_HEAP_LOCKED(space->heap);
	ca_magazine_count_own_locked(space->heap);
	r = space->dead ? -ENODEV : ca_segment_enter_locked(space, address, size, &block);
	if (r)
		return r;
	block->segment->foreign = true;
	block->segment->retired = true;
	hand_out(space, block, requested, size);
	if (ca_tracing(space->heap))
		ca_trace_alloc_locked(block);
	return 0;
}

void
ca_note_other_alloc(struct ca_space *space)
{
	CA_HEAP_LOCKED(space->heap);
	CA_COUNT(space, other_alloc_calls);
}
