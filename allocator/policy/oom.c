/* SPDX-License-Identifier: MIT */
/*
 * The out-of-memory ladder. Each rung is followed by a new search and a new request:
 *
 *   1. unfinished memory of any stream is exposed to the caller where it may be (a search);
 *   2. a segment of exactly the needed size, where the pool's rule asked for more;
 *   3. finished cached segments of the device go back, of any space, just enough: the smallest
 *      that fits alone, or else the largest until their sum does; while there are any. Enough is
 *      what the driver lacks, so that no round gives back more than that and one segment. Before
 *      that the driver is polled until the context has finished what it was given, since its
 *      free would wait for that, and an allocation waits for nothing natively (deferred/await.c);
 *      Then what the driver itself keeps for nobody goes back: graphs' memory, and that of pools
 *      which keep it because this library made them (async:keep);
 *   4. the host waits for the oldest free of the calling thread, own space first, where that is no
 *      wait for later work, and polls where it is; then 3 again; memory that still waits then (of
 *      graphs, of several threads) goes back once all that its context was given has finished;
 *   5. if another thread was inside the driver with memory of ours, or gave some back since this
 *      round began, the round is repeated when that is through; frees of other threads are polled
 *      for some seconds (their work may depend on this thread: never waited for);
 *   6. any hole serves a small request, also one that large requests could use (before, only holes
 *      of no use to these), and a block that was to stay whole (budget.c) serves any;
 *      the driver is asked once more, too: other threads may have freed;
 *   7. if the user wants it, the driver is asked for some time more, and for managed memory;
 *   8. the driver's own code, unchanged.
 *
 * While something captures, no mark of a context can be recorded: the streams' own are polled, and
 * the driver's pools and whole segments without a live block go back, and that is all.
 *
 * So outside captures "out of memory" is answered only when nothing of ours on that device is left
 * to give, but for what other threads' work still uses; or when other threads take all that is
 * given back. Every round but the last gave something back or saw another thread do so, which ends
 * it.
 */
#include "allocator/policy/internal.h"

#include <errno.h>

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/tcache.h"
#include "allocator/told/told.h"

enum {
	/* None of these decides which memory serves: they bound waits for other threads. */
	SETTLE_STEP_NS = 20 * 1000 * 1000,
	SETTLE_STEPS = 500, /* 10 s: then the call that never ends is no longer waited for */
	ROUNDS = 500,
	ROUNDS_LATE = 8, /* after ten seconds, of a call of unknown size: all goes back at once */
	ROUNDS_MAX = 100 * 1000, /* where the clock stands still */
	/* Then it is asked whether the request would have room natively. (A request for more than
	 * the device has, beside two threads that allocate and free 11 to 20 MiB all the time, made
	 * 30,000 rounds of 0.3 ms, each of which gave back what the others took at once.) */
	ROUNDS_UNASKED = 8,
	BUSY_STEPS = 10,
};
/* How much some calls take is the driver's secret: so much goes back in a round, and more in later
 * ones, so that ROUNDS of them are any device's memory. */
static const uint64_t UNKNOWN_STEP = (uint64_t)64 << 20;
enum { ROUNDS_OF_A_STEP = 8 };
static const uint64_t ROUNDS_NS = (uint64_t)SETTLE_STEPS * SETTLE_STEP_NS;

/* Waits for the oldest free of the calling thread on the device, own space first: for what the
 * driver's own free would have waited for, and what needs nothing that the caller has taken since.
 * *ret_foreign is set by work of other contexts. */
static int
wait_on_device(struct ca_space *space, bool *ret_foreign)
{
	struct ca_space *other = space->heap->spaces;
	int r = ca_deferred_wait_locked(space, CA_WAIT_SAFE);

	*ret_foreign = *ret_foreign || r == -EAGAIN;
	for (; (!r || r == -EAGAIN) && other; other = other->next) {
		if (other->device != space->device || other == space)
			continue;
		r = ca_deferred_wait_locked(other, CA_WAIT_SAFE);
		*ret_foreign = *ret_foreign || r == -EAGAIN;
	}
	return r == -EAGAIN ? 0 : r;
}

/* The calling thread freed memory in the space that waits for a stream, or for a mark recorded long
 * after that. */
static bool
has_late(struct ca_space *space)
{
	return ca_held_oldest_locked(space, CA_WAIT_ANY) || ca_context_mark_has_late_locked(space);
}

struct ladder {
	uint64_t bytes; /* of the request; 0: not known */
	bool segment;   /* it may be of that size */
	unsigned busy_steps;
	bool rejected; /* a limit was in the way, and then no more */
	struct ca_patience patience, held_up, foreign;
	bool seen; /* what the calling thread freed was asked for in vain */
};

/*
 * Frees of the calling thread can be told from later work no more, or wait for what somebody else
 * must let go on: the driver is asked, as long as work goes on that was submitted until now. 1:
 * something was settled; 0; -EBUSY: capture.
 */
static int
poll_on_device(struct ca_space *own, struct ladder *ladder)
{
	struct ca_space *space;
	int r = 0;

	for (space = own->heap->spaces; space && !r; space = space->next) {
		bool held_up;

		if (space->device != own->device)
			continue;
		held_up = ca_deferred_is_held_up_locked(space);
		if (!held_up && !has_late(space))
			continue;
		ladder->seen = true;
		r = ca_await_any_locked(space, held_up,
					held_up ? &ladder->held_up : &ladder->patience);
	}
	return r;
}

/* Memory that the calling thread freed waits for other contexts only. `exact`: that was seen in a
 * wait for one of its exact marks. A mark that was recorded later may cover what its own context
 * was given since: once that has finished nothing else is in its way. */
static bool
waits_for_foreign(struct ca_space *space, bool exact)
{
	if (exact && ca_context_mark_has_own_locked(space, CA_WAIT_EXACT))
		return !ca_deferred_is_held_up_locked(space);
	return ca_context_mark_has_own_locked(space, CA_WAIT_ANY) &&
	       ca_order_has_finished(space, ca_order_space_bound(space));
}

/* As above, for what waits for other contexts: natively the program knew the end of that. */
static int
poll_foreign(struct ca_space *own, bool exact, struct ladder *ladder)
{
	struct ca_space *space;
	int r = 0;

	for (space = own->heap->spaces; space && !r; space = space->next) {
		if (space->device != own->device || !waits_for_foreign(space, exact))
			continue;
		ladder->seen = true;
		if (ca_limit_excludes_locked(own, ladder->bytes, ladder->segment))
			return 0;
		r = ca_await_any_locked(space, true, &ladder->foreign);
	}
	return r;
}

/*
 * Waits for the oldest free of the calling thread on the device, or surrenders a segment. 1:
 * something changed; 0: there is nothing; -EBUSY: capture.
 */
static int
wait_locked(struct ca_space *space, struct ladder *ladder)
{
	struct ca_space *other;
	bool foreign = false;
	int r;

	ca_oom_tried.waits++;
	ladder->seen = false;
	r = wait_on_device(space, &foreign);
	if (!r)
		r = poll_on_device(space, ladder);
	if (r)
		return r;
	for (other = space->heap->spaces; other; other = other->next)
		if (other->device == space->device && ca_release_own_locked(other))
			return 1;
	ladder->seen |= foreign;
	return poll_foreign(space, foreign, ladder);
}

/* Steps grow from 20 us to 20 ms. */
static void
settled_wait(struct ca_heap *heap, unsigned step)
{
	ca_outside_pause(heap, step < 10 ? 20000L << step : SETTLE_STEP_NS);
}

/* The words that tell that another thread made a difference. */
struct snapshot {
	uint64_t generation;
	bool unseen; /* a group of the calling thread may have been in another thread's hand */
};

/* The device's generation, but for what the thread itself took to move it, and put back. (As news
 * of each round that would keep it from asking what other threads' memory waits for.) */
static uint64_t
generation_now(const struct ca_device *device)
{
	return device->generation - ca_oom_tried.own_changes;
}

/* On the device, of the calling thread. */
static bool
has_own_group(const struct ca_heap *heap, const struct ca_device *device)
{
	struct ca_space *space;

	for (space = heap->spaces; space; space = space->next)
		if (space->device == device && ca_context_mark_has_own_locked(space, CA_WAIT_ANY))
			return true;
	return false;
}

static bool
is_past(const struct ca_heap *heap, const struct ca_device *device, const struct snapshot *snapshot)
{
	return generation_now(device) != snapshot->generation ||
	       (snapshot->unseen && has_own_group(heap, device));
}

/* Segments would go back, but are used still. Asks. */
static bool
is_due_busy(struct ca_space *space)
{
	if (ca_list_empty(&space->due) || ca_order_has_finished(space, space->due_bound))
		return false;
	if (!ca_await_query_locked(space, space->due_bound))
		return true;
	space->device->generation++;
	return false;
}

/* Memory of the device waits that another thread freed, or that is due. Looks at it, without
 * waiting. */
static bool
others_wait(struct ca_heap *heap, const struct ca_device *device)
{
	struct ca_space *space;
	bool wait = false;

	for (space = heap->spaces; space; space = space->next) {
		if (space->device == device && is_due_busy(space))
			wait = true;
		if (space->device != device || !ca_held_others_wait_locked(space))
			continue;
		wait = true;
		ca_deferred_poll_locked(space);
		if (ca_held_others_wait_locked(space) &&
		    ca_context_mark_query_context_locked(space))
			space->device->generation++;
	}
	return wait;
}

/* Waits while others are inside driver calls that may bring memory, or have freed some that may
 * soon be finished. True: something changed since `moment`. */
static bool
settled_locked(struct ca_heap *heap, const struct ca_device *device,
	       const struct snapshot *snapshot)
{
	unsigned steps;

	for (steps = 0; steps < SETTLE_STEPS; steps++) {
		ca_oom_clear_magazines_locked(device);
		if (is_past(heap, device, snapshot) ||
		    (!ca_outside_others_locked(device) &&
		     !ca_told_others_give(heap, device->ordinal) && !others_wait(heap, device)))
			break;
		settled_wait(heap, steps);
	}
	ca_oom_clear_magazines_locked(device);
	ca_oom_tried.others = steps == SETTLE_STEPS;
	return is_past(heap, device, snapshot);
}

/*
 * The acts of several threads at the end of the memory look like a change to each other, and one
 * may take what another gave back for its own request. So the rounds end where there is no room
 * natively, and after some time, too.
 */
bool
ca_oom_goes_on_locked(struct ca_space *space, uint64_t bytes, bool segment,
		      struct ca_rounds *rounds)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t now = driver->clock_ns(driver->self);
	bool late;

	if (!rounds->n++)
		rounds->since_ns = now;
	if (rounds->n > ROUNDS_UNASKED && ca_limit_excludes_locked(space, bytes, segment))
		return false;
	late = now - rounds->since_ns >= ROUNDS_NS;
	if (!bytes)
		return rounds->n <= ROUNDS && (!late || rounds->late++ < ROUNDS_LATE);
	return rounds->n <= ROUNDS || (!late && rounds->n < ROUNDS_MAX);
}

/* Nothing is left to be given back. But other threads may have freed something since the driver was
 * asked. (Of 110,463 requests of threads that share out a device, by cuMemAlloc and
 * cuMemAllocManaged, 230 were refused, with it 12 of 405,008.) */
static bool
may_repeat_once(struct ca_rounds *rounds)
{
	bool was_over = rounds->over;

	rounds->over = true;
	return !was_over;
}

/*
 * The driver answered "busy". In a capture that ends the waiting. Otherwise a context is dying, and
 * its memory will be free in a moment: true when it is worth another round.
 */
static bool
busy_passes(struct ca_space *space, unsigned *steps)
{
	struct ca_heap *heap = space->heap;
	bool capturing;

	ca_heap_unlock(heap);
	capturing = heap->driver.capturing(heap->driver.self);
	ca_heap_lock(heap);
	if (capturing || (*steps)++ >= BUSY_STEPS)
		return false;
	settled_wait(heap, 10);
	return true;
}

/*
 * Nothing could be given back: is there something to wait for? 1: something changed; 0: no; -EBUSY:
 * capture.
 *
 * A group that another thread has in its hand cannot be seen; when it is put back it can be waited
 * for. But one that was looked at in vain is there all the time: then only the generation counts.
 */
static int
look_again(struct ca_space *space, uint64_t generation, struct ladder *ladder)
{
	struct ca_device *device = space->device;
	struct snapshot snapshot = { .generation = generation };
	int r = wait_locked(space, ladder);

	if (r)
		return r;
	snapshot.unseen = !ladder->seen;
	return settled_locked(space->heap, device, &snapshot);
}

/* Nothing is waited for any more. */
static void
end_patience(struct ladder *ladder)
{
	ladder->patience.over = ladder->held_up.over = ladder->foreign.over = true;
}

/* One round of giving back. True: something may have changed, ask the driver again. `last`: nobody
 * is waited for. */
static bool
round_locked(struct ca_space *space, uint64_t bytes, uint64_t generation, bool last,
	     struct ladder *ladder)
{
	uint64_t lacks = ca_expand_bytes_locked(space, bytes, bytes);
	uint64_t wanted = ca_release_needed_locked(space, lacks, true);
	bool busy = false;
	int r;

	if (last)
		end_patience(ladder);
	ca_extent_leave_locked(space);
	if (ca_release_locked(space, wanted, &ladder->patience, &busy))
		return true;
	/* what was to be grown from is of no use without more */
	if (ca_expand_done_locked(space) &&
	    ca_release_locked(space, wanted, &ladder->patience, &busy))
		return true;
	if (ca_oom_release_pools_locked(space))
		return true;
	if (last)
		return false;
	r = busy ? -EBUSY : look_again(space, generation, ladder);
	if (r >= 0)
		return r > 0;
	if (busy_passes(space, &ladder->busy_steps))
		return true;
	/* a capture began meanwhile: unlike the marks, the driver's free may still be asked */
	return ca_oom_release_busy_locked(space, bytes, &ladder->patience);
}

/* By a limit of the user's, which also counts other threads' requests that may fail. */
static bool
is_rejected(struct ca_space *space, uint64_t bytes)
{
	return space->heap->limited && ca_limit_needed_locked(space, bytes, true);
}

static int
take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	struct ca_device *device = space->device;
	uint64_t segment_bytes = ca_pool_segment_bytes(&space->heap->config, bytes), generation;
	uint64_t exact = ca_budget_exact(space, bytes), expands;
	struct ladder ladder = { .bytes = bytes, .segment = true };
	struct ca_rounds rounds = { 0 };
	bool again = false, rejected;
	int r;

	ca_oom_begin(false);
	ca_magazines_count_locked(space->heap);
	*ret_block = ca_alloc_hit_locked(space, ca_search_hole_locked(space, bytes), bytes, false);
	if (*ret_block)
		return 0;
	expands = ca_expand_bytes_locked(space, bytes, 0);
	if (expands)
		segment_bytes = exact = expands;
	if ((expands && ca_expand_moves(space)) ||
	    !ca_budget_make_locked(space, segment_bytes, bytes))
		*ret_block = ca_alloc_hit_locked(space, ca_budget_find_cut_locked(space, bytes),
						 bytes, false);
	if (*ret_block)
		return 0;
	if (!expands)
		segment_bytes = ca_budget_restored(space, segment_bytes);
	if (space->heap->config.gc_threshold)
		ca_auto_trim_growth_locked(space, segment_bytes);
	generation = generation_now(device);
	r = ca_grow_locked(space, segment_bytes, bytes, CA_SEGMENT_CUT, ret_block);
	if (!r)
		ca_budget_needed_locked(space);
	if (r == CA_DRIVER_OUT_OF_MEMORY) {
		ca_budget_rejected_locked(space, bytes);
		ca_release_reset_rejected_locked(device);
	}

	while (r == CA_DRIVER_OUT_OF_MEMORY) {
		if ((*ret_block = ca_oom_search_locked(space, bytes, CA_FIT_POLICY)))
			return 0;
		if (again)
			CA_COUNT(space, alloc_retries);
		ca_oom_tried.attempts++;
		if (again || segment_bytes != exact) {
			generation = generation_now(device);
			r = ca_grow_locked(space, exact, bytes, CA_SEGMENT_CUT, ret_block);
		}
		if (r != CA_DRIVER_OUT_OF_MEMORY)
			break;
		rejected = is_rejected(space, exact);
		again = round_locked(space, bytes, generation, rounds.over, &ladder) &&
			ca_oom_goes_on_locked(space, bytes, true, &rounds);
		if (!again && rejected && !ladder.rejected && !is_rejected(space, exact))
			again = ladder.rejected = true;
		if (!again)
			again = may_repeat_once(&rounds);
		if (!again)
			return ca_oom_last_take_locked(space, bytes, ret_block);
	}
	return r;
}

int
ca_oom_take_locked(struct ca_space *space, uint64_t bytes, struct ca_block **ret_block)
{
	int r = take_locked(space, bytes, ret_block);

	(void)ca_expand_done_locked(space);
	return r;
}

bool
ca_oom_reclaim_locked(struct ca_space *space, uint64_t bytes, bool segment,
		      struct ca_rounds *rounds)
{
	struct ca_heap *heap = space->heap;
	bool given = false, busy = heap->driver.capturing(heap->driver.self);
	struct ladder ladder = { .bytes = bytes, .segment = segment };
	uint64_t wanted = bytes;

	if (!ca_oom_goes_on_locked(space, bytes, segment, rounds))
		return false;
	if (!bytes)
		wanted = rounds->late ? CA_SIZE_MAX
				      : UNKNOWN_STEP * (1 + rounds->n / ROUNDS_OF_A_STEP);
	if (rounds->over)
		end_patience(&ladder);
	ca_release_reset_rejected_locked(space->device);
	while (!given && !busy) {
		uint64_t generation = generation_now(space->device);
		int r;

		/* memory of captures that have ended may be nobody's by now */
		ca_held_look_locked(space);
		ca_held_settle_locked(space);
		given = ca_release_locked(space, ca_release_needed_locked(space, wanted, segment),
					  &ladder.patience, &busy) > 0;
		given = given || ca_oom_release_pools_locked(space);
		if (given || rounds->over)
			break;
		r = busy ? -EBUSY : look_again(space, generation, &ladder);
		busy = r < 0 && !busy_passes(space, &ladder.busy_steps);
		if (!r || !ca_oom_goes_on_locked(space, bytes, segment, rounds))
			break;
	}
	given = given || ca_oom_release_pools_locked(space);
	if (!given && busy)
		given = ca_oom_release_busy_locked(space, wanted, &ladder.patience);
	return given || may_repeat_once(rounds);
}

bool
ca_reclaim(struct ca_space *space, uint64_t size, struct ca_rounds *rounds)
{
	struct ca_rounds first = { 0 };
	bool given;

	ca_heap_lock(space->heap);
	given = ca_oom_reclaim_locked(space, size, false, rounds ? rounds : &first);
	ca_heap_unlock(space->heap);
	return given && (rounds || !first.over);
}
