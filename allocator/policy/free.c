/* SPDX-License-Identifier: MIT */
/*
 * The way of a free, and of memory that goes back to the driver without a free.
 *
 * A block that a magazine takes (tcache/magazine.c) never comes here. Any other ordinary block
 * leaves ALLOCATED at once: to FREE if no unfinished work may use it, else to the streams that may
 * (deferred/place.c). If not all of them can be marked it waits for a mark on the context
 * (deferred/context_mark.c), which also serves everything freed earlier that has none yet. In a
 * retired segment the last free is the driver's own, and its error is the program's; others' work
 * on it is waited for (deferred/await.c).
 */
#include "allocator/policy/internal.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/fast.h"
#include "allocator/trace/trace.h"
#include "config/mutant.h"

/* By what its users have finished, without a driver call. False: only a context mark will do. */
static bool
free_to_streams(struct ca_block *block)
{
	struct ca_order *order = &block->segment->space->order;
	struct ca_users inherited, users;

	ca_block_users(block, &inherited);
	ca_block_drop_users_locked(block);
	ca_order_users(order, block->birth, &inherited, &users);
	if (ca_tracing(block->segment->space->heap))
		ca_trace_free_locked(block, &users);
	return ca_held_place_locked(block, &users);
}

static CA_APART int
free_used(struct ca_block *block)
{
	struct ca_space *space = block->segment->space;
	struct ca_list hand;
	struct ca_saved_allocation saved;

	if (ca_graph_keeps_locked(block)) {
		if (ca_tracing(space->heap))
			ca_trace_free_locked(block, &(struct ca_users){ .context = true });
		return 0;
	}
	if (free_to_streams(block))
		return 0;
	block->user.stream = NULL;
	saved = (struct ca_saved_allocation){ block, block->requested, block->serial };
	ca_block_set_state_locked(block, CA_BLOCK_MARK_HELD);
	ca_list_init(&hand);
	ca_list_insert(&hand, &block->waiting);
	ca_list_splice(&hand, &space->unmarked);
	return ca_context_mark_submit_locked(space, &hand, &saved);
}

static int
free_to_cache(struct ca_block *block, uint64_t thread)
{
	struct ca_segment *segment = block->segment;

	block->thread = (uint32_t)thread;
	if (thread && segment->space->freed_by != thread) {
		segment->space->multi_thread_free = segment->space->freed_by != 0;
		segment->space->freed_by = thread;
	}
	/* the usual case needs no list of users */
	if (!block->user.stream && !segment->captured &&
	    ca_order_is_untouched(&segment->space->order, block->birth)) {
		if (ca_tracing(segment->space->heap))
			ca_trace_free_locked(block, NULL);
		ca_block_settle_locked(block);
		return 0;
	}
	/* what is finished beside it is not to become unfinished with it */
	if (segment->mapped && !ca_held_quiet_locked(segment->space))
		ca_held_settle_some_locked(segment->space);
	return free_used(block);
}

/* Only what was submitted while the program had it may use the segment: natively that would be the
 * program's affair and the driver's. */
static bool
is_programs_own(const struct ca_block *block)
{
	return block->segment->foreign ||
	       (!block->prev && !block->next && !block->user.stream && !block->has_multi);
}

/* Others may use the segment: natively their frees would have waited for that. 0: they have
 * finished; -EBUSY: not all; -ENOENT: the segment died meanwhile. */
static int
await_others(struct ca_segment *segment)
{
	struct ca_space *space = segment->space;
	struct ca_list hand;
	bool finished;

	ca_list_init(&hand);
	ca_list_insert(&hand, &segment->hand);
	finished = ca_await_locked(space, ca_order_space_bound(space));
	if (ca_list_empty(&hand))
		return -ENOENT;
	ca_list_remove(&segment->hand);
	return finished ? 0 : -EBUSY;
}

static CA_APART int
free_retired(struct ca_block *block)
{
	struct ca_segment *segment = block->segment;
	struct ca_space *space = segment->space;
	bool counting = space->heap->config.disable != CA_DISABLE_OFF;
	bool own = counting || is_programs_own(block);
	int r;

	ca_block_drop_users_locked(block);
	ca_block_set_state_locked(block, CA_BLOCK_RETIRED);
	if (segment->live)
		return 0;
	if (segment->mapped &&
	    !CA_MUTANT(EXTENT_UNMAPPED_EARLY)) { /* to unmap it waits for nothing */
		ca_segment_make_due_locked(segment);
		return 0;
	}
	r = own ? 0 : await_others(segment);
	if (r == -ENOENT)
		return 0;
	if (!r)
		r = ca_segment_return_locked(segment);
	if (r == -EBUSY && !counting) {
		ca_segment_make_due_locked(segment);
		r = 0;
	}
	if (r)
		ca_block_set_state_locked(block, CA_BLOCK_ALLOCATED);
	return r;
}

static int
free_live(struct ca_block *block, uint64_t thread)
{
	const struct ca_heap *heap = block->segment->space->heap;
	int r;

	if (block->segment->retired || heap->config.disable != CA_DISABLE_OFF) {
		if (ca_tracing(heap)) /* before the driver may give the address to others */
			ca_trace_free_locked(block, NULL);
		return free_retired(block);
	}
	r = free_to_cache(block, thread);
	/* another context's error: no reuse from now on, but the driver may well free the memory */
	return r == -EIO ? free_retired(block) : r;
}

/* Without any marks an allocation waits for what is freed (alloc.c). With several contexts the wait
 * would be for all of them, and the driver's own free waits for one. */
static inline bool
is_without_mark(const struct ca_space *space)
{
	const struct ca_heap *heap = space->heap;

	return !ca_list_empty(&space->unmarked) && !heap->no_marks && !heap->spaces->next;
}

/* Then a free waits as the driver's own does, if more than the slack is waiting. */
static inline bool
is_too_large(const struct ca_space *space)
{
	return atomic_load_explicit(&space->too_large, memory_order_relaxed);
}

enum {
	PATIENT_LOOKS = 1000,
	PATIENT_PAUSE_NS = 100 * 1000,
};

/*
 * A stream with a host function in each round is held up all the time, so that it is never waited
 * for, and the cache would grow to the whole device. Most of these functions need nothing of the
 * caller's. So once the cache is too large a free, which natively would have waited for all, looks
 * until anything finishes: for a tenth of a second at most, and where that was in vain more and
 * more seldom. (400 rounds of 6 MiB, 2 ms of work and a host function, slack 32 MiB: 342 MiB
 * reserved instead of 2,540.)
 */
static void
wait_patiently(struct ca_space *space)
{
	unsigned looks;

	if (!ca_backoff_is_due(&space->patience))
		return;
	for (looks = 0; looks < PATIENT_LOOKS && !space->dead && !space->poisoned; looks++) {
		ca_outside_pause(space->heap, PATIENT_PAUSE_NS);
		if (ca_held_look_locked(space)) {
			ca_backoff_succeeded(&space->patience);
			return;
		}
	}
	ca_backoff_failed(&space->patience);
}

/*
 * A thread that frees the memory of another could run ahead of the device for ever, since that
 * thread never waits for somebody else's free: so this one waits, as the driver's free would have.
 * So does any free where no mark is to be had and work is not seen, of whose end nothing but a wait
 * tells. Later, at an allocation, that wait might be for work that waits for the caller.
 */
static CA_APART void
hold_back(struct ca_space *space, bool waits)
{
	if (!ca_alloc_waiting_exceeds_slack_locked(space)) {
		if (is_too_large(space))
			ca_grow_is_too_large_locked(space);
		return;
	}
	if (is_without_mark(space) && ca_context_mark_wait_locked(space, CA_WAIT_EXACT))
		return;
	if (waits && !ca_deferred_wait_locked(space, CA_WAIT_LATER) && is_too_large(space))
		wait_patiently(space);
}

static CA_APART int
find_live(struct ca_heap *heap, uint64_t address, struct ca_block **ret_block)
{
	*ret_block = ca_block_find_settled_locked(heap, address);
	if (!*ret_block)
		return -ENOENT;
	return (*ret_block)->address == address && ca_block_is_live(*ret_block) ? 0 : -EINVAL;
}

/* `thread` 0: nobody may be made to wait for it. */
static int
free_claimed(struct ca_block *block, uint64_t thread)
{
	struct ca_space *space = block->segment->space;
	uint64_t allocated_by = block->thread;
	int r = free_live(block, thread);

	if (!r)
		CA_COUNT(space, free_calls);
	else if (ca_tracing(space->heap))
		ca_trace_kept_locked(block);
	if (!r && thread &&
	    (allocated_by != thread || is_too_large(space) || is_without_mark(space)))
		hold_back(space, allocated_by != thread || is_too_large(space));
	return r;
}

/* The calling thread's magazine takes the block once there is room, or once there is a magazine. */
static bool
put_to_magazine(struct ca_heap *heap, struct ca_block *block, uint64_t address)
{
	return atomic_load_explicit(&block->quick, memory_order_relaxed) &&
	       ca_magazine_prepare_give_locked(block->segment->space,
					       ca_rounded(heap, ca_block_requested(block))) &&
	       ca_magazine_give(heap, address, true);
}

/* A free that the calling thread's magazine does not take as it is. `thread` 0: no magazine takes
 * it, for that would say whose free it is. */
static __attribute__((noinline)) int
free_as(struct ca_heap *heap, uint64_t address, uint64_t thread)
{
	struct ca_block *block;
	int r = 0;

	CA_HEAP_LOCKED_LEASED(heap);
	if (heap->leases) {
		if (thread && ca_leased_give_locked(heap, address))
			return 0;
		ca_leases_end_locked(heap);
	}
	block = ca_bases_find_locked(&heap->bases, address);
	if (!block || !ca_block_is_live(block))
		r = find_live(heap, address, &block);
	if (r || (thread && put_to_magazine(heap, block, address)))
		return r;
	ca_magazine_count_own_locked(heap);
	return ca_block_claim_locked(block) ? free_claimed(block, thread) : -EINVAL;
}

int
ca_free_rest(struct ca_heap *heap, uint64_t address, const struct ca_block *block)
{
	if (!block && ca_magazine_give(heap, address, false))
		return 0;
	return free_as(heap, address, ca_order_thread());
}

int
ca_free(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block;

	if (ca_free_quick(heap, address, &block) || (block && ca_magazine_give_on(heap, block)))
		return 0;
	return ca_free_rest(heap, address, block);
}

int
ca_free_async(struct ca_heap *heap, uint64_t address, struct ca_stream *stream)
{
	if (stream)
		ca_order_free_in(stream);
	return free_as(heap, address, 0);
}

int
ca_forget_block(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block;

	CA_HEAP_LOCKED(heap);
	block = ca_block_find_settled_locked(heap, address);
	if (!block || block->address != address || !ca_block_is_live(block) || block->prev ||
	    block->next)
		return -ENOENT;
	CA_COUNT(block->segment->space, free_calls);
	ca_segment_forget_locked(block->segment);
	return 0;
}

/* The largest whole FREE segment of the heap. */
static struct ca_block *
largest_whole(struct ca_heap *heap, const struct ca_spaces *except)
{
	struct ca_block *best = NULL;
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		if (!ca_spaces_include(except, space))
			best = ca_release_better_locked(space, best, UINT64_MAX);
	return best;
}

/* The same, of a context that has finished what it was given so far; others are left out. */
static struct ca_block *
largest_returnable(struct ca_heap *heap, struct ca_patience *patience, struct ca_spaces *busy)
{
	struct ca_space *space = NULL;
	struct ca_block *block;

	while ((block = largest_whole(heap, busy)) && block->segment->space != space) {
		space = block->segment->space;
		if (!ca_release_may_begin_locked(space, patience, busy))
			return NULL;
	}
	return block;
}

/* Due segments, if all that the space was given so far has finished. Waits for that only where
 * nothing else tells. */
static uint64_t
trim_due(struct ca_space *space, struct ca_patience *patience)
{
	uint64_t bound = ca_order_space_bound(space);
	bool finished;

	if (ca_list_empty(&space->due))
		return 0;
	finished = space->heap->no_marks ? !ca_await_patiently_locked(space, bound, patience)
					 : ca_await_query_locked(space, bound);
	return finished ? ca_segment_return_due_locked(space, NULL) : 0;
}

static uint64_t
cached_bytes(const struct ca_heap *heap)
{
	const struct ca_device *device;
	uint64_t sum = 0;

	for (device = heap->devices; device; device = device->next)
		sum += device->stats.cached_bytes.current;
	return (int64_t)sum < 0 ? 0 : sum; /* some threads have not counted yet what they gave */
}

uint64_t
ca_trim(struct ca_heap *heap, uint64_t keep_bytes)
{
	struct ca_patience patience = { 0 };
	struct ca_spaces busy = { 0 };
	const struct ca_device *device;
	struct ca_space *space;
	struct ca_block *block;
	uint64_t given = 0;
	bool stopped = false;

	if (heap->driver.capturing(heap->driver.self))
		return 0;
	CA_HEAP_LOCKED(heap);
	ca_magazines_count_locked(heap);
	for (space = heap->spaces; space; space = space->next) {
		ca_magazines_clear_locked(space); /* kept blocks may be finished, too */
		ca_deferred_poll_locked(space);
		ca_extent_leave_locked(space);
		if (heap->no_marks) /* nothing but a wait tells what is finished */
			ca_context_mark_wait_locked(space, CA_WAIT_ANY);
		ca_segment_reset_stuck_locked(space);
		given += trim_due(space, &patience);
	}
	while (!stopped && cached_bytes(heap) > keep_bytes &&
	       (block = largest_returnable(heap, &patience, &busy)))
		given += ca_release_block_locked(block, cached_bytes(heap) - keep_bytes, &stopped);
	for (device = heap->devices; device; device = device->next)
		given += ca_release_pools_locked(device, keep_bytes, false);
	return given;
}

uint64_t
ca_drainable_bytes(struct ca_space *space)
{
	CA_HEAP_LOCKED(space->heap);
	ca_oom_clear_magazines_locked(space->device);
	return ca_release_drainable_locked(space->device);
}
