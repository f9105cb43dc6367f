/* SPDX-License-Identifier: MIT */
/*
 * Magazines as who has the heap's lock sees them: counted and emptied. (bind.c: whose they are.)
 */
#include "allocator/tcache/internal.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/core/counts_file.h"
#include "allocator/deferred/deferred.h"

enum {
	SPINS = 1000,
	YIELDS = 20,
	PAUSE_NS = 50 * 1000,
};

static bool
try(struct ca_magazine *magazine, unsigned who)
{
	unsigned none = 0;

	return !atomic_load_explicit(&magazine->lock, memory_order_relaxed) &&
	       atomic_compare_exchange_strong_explicit(&magazine->lock, &none, who,
						       memory_order_acquire, memory_order_relaxed);
}

/* Its holder is in a few instructions, or is not running. */
void
ca_magazine_wait(struct ca_magazine *magazine, unsigned who)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	int saved = errno;
	unsigned tries = 0;

	while (!try(magazine, who)) {
		tries++;
		ca_cpu_pause();
		if (tries > SPINS + YIELDS)
			/* not nanosleep(): that is a cancellation point */
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
		else if (tries > SPINS)
			sched_yield();
	}
	errno = saved;
}

/* ---- counting */

struct ca_changes
ca_counts_changes(const struct ca_counts *counts)
{
	struct ca_counts all = *counts;

	ca_counts_merge(&all);
	return (struct ca_changes){
		.requested = { all.requested, all.requested_peak, all.requested_total },
		.allocated = { ca_counts_allocated(&all), all.allocated_peak,
			       all.clean_total + all.used_total },
		.active = { all.clean, all.active_peak, all.clean_total },
		.cached = { 0 - all.clean, all.cached_peak, all.clean_total - all.clean },
	};
}

static void
gauge_count(struct ca_gauge *sum, const struct ca_gauge *change)
{
	/* signed, as in ca_gauge_add */
	ca_peak_raise(&sum->peak, sum->current + change->peak);
	sum->current += change->current;
	sum->total += change->total;
}

void
ca_magazine_count_held(struct ca_magazine *magazine)
{
	struct ca_counts *counts = &magazine->counts;
	uint64_t hits = counts->hits;
	struct ca_device *device;
	struct ca_stats *stats;
	struct ca_changes changes;

	if (!(hits | counts->frees))
		return;
	device = magazine->device;
	stats = &device->stats;
	if (device->counts_page)
		ca_counts_update_begin(device->counts_page, stats, sizeof(*stats),
				       magazine->counts_page, counts, sizeof(*counts));
	changes = ca_counts_changes(counts);
	gauge_count(&stats->requested_bytes, &changes.requested);
	gauge_count(&stats->allocated_bytes, &changes.allocated);
	gauge_count(&stats->active_bytes, &changes.active);
	gauge_count(&stats->cached_bytes, &changes.cached);
	stats->alloc_calls += hits;
	stats->cache_hits += hits;
	stats->taken_clean += hits - counts->exposed;
	stats->taken_same_stream += counts->exposed;
	stats->free_calls += counts->frees;
	*counts = (struct ca_counts){ 0 };
	if (device->counts_page)
		ca_counts_update_end(device->counts_page);
}

void
ca_magazines_count_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine;

	/* at one moment: one thread's block that another frees meanwhile is seen in both or none */
	ca_magazines_lock_locked(heap);
	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		ca_magazine_count_held(magazine);
	ca_magazines_unlock_locked(heap);
}

void
ca_magazine_count_own_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine = ca_own.magazine;

	if (ca_own.heap != heap->id)
		return;
	do {
		ca_magazine_count_held(magazine);
		magazine = magazine->sibling;
	} while (magazine != ca_own.magazine);
}

void
ca_magazines_pass_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine;

	for (magazine = heap->magazines; magazine; magazine = magazine->next) {
		ca_magazine_lock(magazine);
		ca_magazine_unlock(magazine);
	}
}

void
ca_magazines_lock_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		ca_magazine_lock(magazine);
}

void
ca_magazines_unlock_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		ca_magazine_unlock(magazine);
}

/* ---- the capacity of stacks */

struct ca_stack *
ca_stack_make(struct ca_shelf *shelf, uint32_t grains, struct ca_stack *stack)
{
	struct ca_stack *set = ca_stack_set(shelf, grains);
	unsigned way, capacity;

	for (way = 0; !stack && way < CA_WAYS; way++)
		if (!ca_stack_top(&set[way]))
			stack = &set[way];
	if (!stack || ca_stack_depth(stack) >= CA_KEPT_EACH ||
	    (!stack->available && ca_shelf_capacity(shelf) + CA_KEPT_STEP > CA_KEPT_ALL))
		return NULL;
	if (stack->grains != grains && stack->capacity)
		ca_stack_resize(shelf, stack, 0);
	stack->grains = grains;
	if (stack->available)
		return stack;
	/* that of a stack that came from another thread is no multiple of a step */
	capacity = stack->capacity + CA_KEPT_STEP;
	ca_stack_resize(shelf, stack, capacity < CA_KEPT_EACH ? capacity : CA_KEPT_EACH);
	return stack;
}

/* ---- emptying */

struct ca_block *
ca_stack_detach_held(struct ca_shelf *shelf, struct ca_stack *stack)
{
	struct ca_block *top = ca_stack_top(stack);

	atomic_store_explicit(&stack->top, NULL, memory_order_relaxed);
	stack->available = stack->capacity;
	ca_stack_resize(shelf, stack, 0);
	return top;
}

/* The block's users are asked for its place. */
static CA_APART void
settle_otherwise(struct ca_magazine *magazine, struct ca_block *block)
{
	if (magazine)
		ca_magazine_count_held(magazine);
	ca_block_come_out_locked(block);
	ca_held_place_kept_locked(block);
}

/* Where sums change by that, those of the magazine are counted first. */
void
ca_blocks_settle_locked(struct ca_magazine *magazine, struct ca_block *block)
{
	struct ca_block *below;
	bool used, simple;

	for (; block; block = below) {
		below = block->below;
		if (__builtin_expect(block->segment->lease != NULL, 0) &&
		    ca_leased_settle_locked(block))
			continue;
		atomic_store_explicit(&block->quick, 0, memory_order_relaxed);
		used = block->user.stream;
		if (__builtin_expect(used && !ca_held_goes_on_locked(block), 0)) {
			settle_otherwise(magazine, block);
			continue;
		}
		simple = !ca_block_is_next_to(block, used ? CA_BLOCK_FREE : CA_BLOCK_STREAM_HELD);
		if (!simple && magazine)
			ca_magazine_count_held(magazine);
		ca_block_put_back_locked(block, simple);
	}
}

/* It was kept in vain if its stream works on. */
static void
note_unfinished(struct ca_shelf *shelf, const struct ca_block *top)
{
	if (top->user.stream && !ca_order_kept_is_done(&shelf->space->order, &top->user))
		ca_backoff_failed(&shelf->polls);
}

/* The upper blocks of a stack that has some, *limit at most, off it, and off *limit. */
static inline struct ca_block *
detach_some_held(struct ca_shelf *shelf, struct ca_stack *stack, struct ca_block *top,
		 unsigned *limit)
{
	unsigned depth = ca_stack_depth(stack), n;
	struct ca_block *last = top;

	note_unfinished(shelf, top);
	if (depth <= *limit) {
		*limit -= depth;
		return ca_stack_detach_held(shelf, stack);
	}
	for (n = 1; n < *limit; n++)
		last = last->below;
	atomic_store_explicit(&stack->top, last->below, memory_order_relaxed);
	last->below = NULL;
	stack->available = (uint8_t)(stack->available + n);
	*limit = 0;
	return top;
}

/* It would merge, or its users or its lease decide what becomes of it. */
static inline bool
is_mergeable(const struct ca_block *block)
{
	return block->user.stream || block->segment->lease ||
	       ca_block_is_next_to(block, CA_BLOCK_FREE);
}

/* Of the upper *looks blocks those that are mergeable, and off *looks those that were looked at.
 * The others stay, in their order. */
static struct ca_block *
detach_mergeable_held(struct ca_shelf *shelf, struct ca_stack *stack, struct ca_block *top,
		      unsigned *looks)
{
	struct ca_block *taken = NULL, *first = NULL, **link = &first, *below;

	note_unfinished(shelf, top);
	for (; top && *looks; top = below) {
		below = top->below;
		--*looks;
		if (is_mergeable(top)) {
			top->below = taken;
			taken = top;
			stack->available++;
		} else {
			*link = top;
			link = &top->below;
		}
	}
	*link = top;
	atomic_store_explicit(&stack->top, first, memory_order_relaxed);
	return taken;
}

/* Of the stacks with blocks of that kind. */
static inline ca_stack_bits
kept_bits(const struct ca_shelf *shelf, enum ca_kept which)
{
	ca_stack_bits large = ca_bits_of(shelf->has_capacity[1]);
	ca_stack_bits small = ca_bits_of(shelf->has_capacity[0]);

	if (which == CA_KEPT_ANY)
		return large | small;
	return which == CA_KEPT_SMALL_MERGEABLE ? small : large;
}

/*
 * So many of the calling thread's blocks move no more, without a lock of the magazine's; `merges`:
 * of so many those that are mergeable. False: there were none. Each time it goes on with the stack
 * behind the last one, so that none is kept for ever because others always come first.
 */
static __attribute__((noinline)) bool
clear_some_held(struct ca_magazine *magazine, struct ca_shelf *shelf, ca_stack_bits bits,
		unsigned limit, bool merges)
{
	unsigned start = shelf->next_cleared, left = limit, at = start;

	for (bits = ca_bits_from(bits, start); bits && left; bits &= bits - 1) {
		struct ca_stack *stack;
		struct ca_block *top;

		at = (start + ca_bits_lowest(bits)) % CA_STACKS;
		stack = &shelf->stacks[at];
		top = ca_stack_top(stack);
		if (top && merges)
			ca_blocks_settle_locked(magazine,
						detach_mergeable_held(shelf, stack, top, &left));
		else if (top)
			ca_blocks_settle_locked(magazine,
						detach_some_held(shelf, stack, top, &left));
		else
			ca_stack_detach_held(shelf, stack);
		at += left || merges;
	}
	shelf->next_cleared = (uint8_t)(at % CA_STACKS);
	return left < limit;
}

void
ca_shelf_clear_locked(struct ca_magazine *magazine, struct ca_shelf *shelf)
{
	struct ca_block *tops[CA_STACKS];
	ca_stack_bits bits;
	unsigned n = 0, i;

	if (!ca_shelf_capacity(shelf))
		return;
	ca_magazine_lock(magazine);
	ca_magazine_count_held(magazine);
	for (bits = kept_bits(shelf, CA_KEPT_ANY); bits; bits &= bits - 1) {
		struct ca_stack *stack = &shelf->stacks[ca_bits_lowest(bits)];

		tops[n] = ca_stack_top(stack);
		if (tops[n])
			note_unfinished(shelf, tops[n++]);
		ca_stack_detach_held(shelf, stack);
	}
	ca_magazine_unlock(magazine);
	for (i = 0; i < n; i++)
		ca_blocks_settle_locked(NULL, tops[i]);
}

/* The blocks of the next stack that has any of that kind. NULL: none has. Stacks without blocks
 * lose their capacity. */
static struct ca_block *
detach_next_held(struct ca_shelf *shelf, enum ca_kept which)
{
	unsigned start = shelf->next_cleared, at = start;
	ca_stack_bits bits = ca_bits_from(kept_bits(shelf, which), start);
	struct ca_block *top = NULL;

	for (; bits && !top; bits &= bits - 1) {
		struct ca_stack *stack;

		at = (start + ca_bits_lowest(bits)) % CA_STACKS;
		stack = &shelf->stacks[at++];
		top = ca_stack_top(stack);
		if (top)
			note_unfinished(shelf, top);
		ca_stack_detach_held(shelf, stack);
	}
	shelf->next_cleared = (uint8_t)(at % CA_STACKS);
	return top;
}

struct ca_shelf *
ca_shelf_of_locked(const struct ca_magazine *magazine, const struct ca_space *space)
{
	struct ca_shelf *shelf = magazine->shelf[space->number % CA_SHELVES];

	return shelf && shelf->space == space ? shelf : NULL;
}

void
ca_magazines_clear_locked(struct ca_space *space)
{
	struct ca_magazine *magazine;
	struct ca_shelf *shelf;

	for (magazine = space->heap->magazines; magazine; magazine = magazine->next) {
		shelf = ca_shelf_of_locked(magazine, space);
		if (shelf)
			ca_shelf_clear_locked(magazine, shelf);
	}
}

bool
ca_magazine_clear_stack_locked(const struct ca_space *space, struct ca_magazine *magazine,
			       enum ca_kept which)
{
	struct ca_shelf *shelf = ca_shelf_of_locked(magazine, space);
	struct ca_block *top;

	if (!shelf || !ca_shelf_capacity(shelf))
		return false;
	ca_magazine_lock(magazine);
	ca_magazine_count_held(magazine);
	top = detach_next_held(shelf, which);
	ca_magazine_unlock(magazine);
	ca_blocks_settle_locked(NULL, top);
	return top != NULL;
}

bool
ca_magazine_clear_some_locked(struct ca_space *space, enum ca_kept which, unsigned limit)
{
	struct ca_shelf *shelf = ca_own.shelf;
	ca_stack_bits bits;

	if (ca_own.space != space->id)
		return false;
	bits = kept_bits(shelf, which);
	return bits &&
	       clear_some_held(ca_own.magazine, shelf, bits, limit,
			       which == CA_KEPT_MERGEABLE || which == CA_KEPT_SMALL_MERGEABLE);
}

void
ca_magazine_clear_idle_locked(const struct ca_space *space)
{
	struct ca_heap *heap = space->heap;
	struct ca_magazine *magazine = heap->next_idle ? heap->next_idle : heap->magazines;
	bool is_idle;

	if (!magazine)
		return;
	heap->next_idle = magazine->next;
	if (magazine == ca_own.magazine)
		return;
	ca_magazine_lock(magazine);
	is_idle = magazine->looked_at == magazine->serial;
	magazine->looked_at = magazine->serial;
	ca_magazine_unlock(magazine);
	if (is_idle)
		ca_magazine_clear_stack_locked(space, magazine, CA_KEPT_ANY);
}

static void
shelf_look(const struct ca_shelf *shelf, uint64_t *used, uint64_t *largest)
{
	unsigned i;

	for (i = 0; i < CA_STACKS; i++) {
		const struct ca_block *block = ca_stack_top(&shelf->stacks[i]);

		for (; block; block = block->below) {
			*used += block->user.stream != NULL;
			if (!block->user.stream && block->bytes > *largest)
				*largest = block->bytes;
		}
	}
}

void
ca_magazines_look_locked(const struct ca_space *space, uint64_t *ret_used, uint64_t *ret_largest)
{
	struct ca_magazine *magazine;
	struct ca_shelf *shelf;

	*ret_used = *ret_largest = 0;
	for (magazine = space->heap->magazines; magazine; magazine = magazine->next) {
		shelf = ca_shelf_of_locked(magazine, space);
		if (!shelf)
			continue;
		ca_magazine_lock(magazine);
		shelf_look(shelf, ret_used, ret_largest);
		ca_magazine_unlock(magazine);
	}
}
