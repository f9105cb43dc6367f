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
	uint64_t clean = ca_counts_clean(counts);

	ca_counts_merge(&all);
	return (struct ca_changes){
		.requested = { all.requested_taken - all.requested_given, all.requested_peak,
			       all.requested_taken },
		.allocated = { ca_counts_allocated(&all), all.allocated_peak,
			       all.clean_taken + all.used_taken },
		.active = { clean, all.active_peak, all.clean_taken },
		.cached = { 0 - clean, all.cached_peak, all.clean_given },
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

void
ca_stack_resize(struct ca_shelf *shelf, struct ca_stack *stack, unsigned capacity)
{
	unsigned i = (unsigned)(stack - shelf->stacks), more = capacity - stack->capacity;
	uint64_t *word = &shelf->has_capacity[ca_stack_is_large(stack)][i / 64];
	uint64_t bit = (uint64_t)1 << i % 64;

	*word = capacity ? *word | bit : *word & ~bit;
	atomic_store_explicit(&shelf->capacity_all, ca_shelf_capacity(shelf) + more,
			      memory_order_relaxed);
	stack->available = (uint8_t)(stack->available + more);
	stack->capacity = (uint8_t)capacity;
}

struct ca_stack *
ca_stack_for(struct ca_shelf *shelf, uint32_t grains)
{
	struct ca_stack *set = ca_stack_set(shelf, grains);
	struct ca_stack *stack = ca_stack_find(shelf, grains);
	unsigned way, capacity;

	for (way = 0; !stack && way < CA_WAYS; way++)
		if (!ca_stack_top(&set[way]))
			stack = &set[way];
	if (!stack || stack->capacity - stack->available >= CA_KEPT_EACH ||
	    (!stack->available && ca_shelf_capacity(shelf) + CA_KEPT_STEP > CA_KEPT_ALL))
		return NULL;
	if (stack->grains != grains)
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

static bool
is_next_to(const struct ca_block *block, enum ca_block_state state)
{
	return (block->prev && block->prev->state == state) ||
	       (block->next && block->next->state == state);
}

/* A block that has just come out gets its place. Where sums change by that, those of the magazine
 * are counted first. */
static void
settle(struct ca_magazine *magazine, struct ca_block *block)
{
	bool used = block->user.stream, stays = used && ca_held_goes_on_locked(block);

	if (magazine &&
	    ((used && !stays) || is_next_to(block, used ? CA_BLOCK_FREE : CA_BLOCK_STREAM_HELD)))
		ca_magazine_count_held(magazine);
	if (stays)
		ca_block_own_locked(block, block->user, NULL);
	else if (used)
		ca_held_place_kept_locked(block);
	else
		ca_block_settle_locked(block);
}

void
ca_blocks_settle_locked(struct ca_magazine *magazine, struct ca_block *block)
{
	while (block) {
		struct ca_block *below = block->below;

		atomic_store_explicit(&block->quick, 0, memory_order_relaxed);
		ca_block_come_out_locked(block);
		settle(magazine, block);
		block = below;
	}
}

/* It was kept in vain if its stream works on. */
static void
note_unfinished(struct ca_shelf *shelf, const struct ca_block *top)
{
	if (top->user.stream && !ca_user_is_done(&top->user))
		ca_backoff_failed(&shelf->polls);
}

/* The next stack at or after *at that has capacity, and is of that kind. NULL: there is none. */
static struct ca_stack *
next_stack(struct ca_shelf *shelf, enum ca_kept which, unsigned *at)
{
	for (; *at < CA_STACKS; *at = (*at | 63) + 1) {
		uint64_t word = shelf->has_capacity[1][*at / 64];

		if (which == CA_KEPT_ANY)
			word |= shelf->has_capacity[0][*at / 64];
		word >>= *at % 64;
		if (word) {
			*at += (unsigned)__builtin_ctzll(word);
			return &shelf->stacks[*at];
		}
	}
	return NULL;
}

/* The upper blocks of the stack, *limit at most, off it, and off *limit. NULL: it had none. */
static struct ca_block *
detach_some_held(struct ca_shelf *shelf, struct ca_stack *stack, unsigned *limit)
{
	struct ca_block *top = ca_stack_top(stack), *last = top;
	unsigned n;

	if (!top)
		return ca_stack_detach_held(shelf, stack);
	note_unfinished(shelf, top);
	if (ca_stack_depth(stack) <= *limit) {
		*limit -= ca_stack_depth(stack);
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

/*
 * So many of the calling thread's blocks move no more, without a lock of the magazine's. False:
 * there were none. Each time it goes on with the stack behind the last one, so that none is kept
 * for ever because others always come first.
 */
static bool
clear_some_held(struct ca_magazine *magazine, struct ca_shelf *shelf, enum ca_kept which,
		unsigned limit)
{
	unsigned start = shelf->next_cleared, end = CA_STACKS, at = start, left = limit;
	struct ca_stack *stack;

	while (left) {
		stack = next_stack(shelf, which, &at);
		if (stack && at < end) {
			ca_blocks_settle_locked(magazine, detach_some_held(shelf, stack, &left));
			at += left != 0;
		} else if (end > start) { /* and now from the first one on */
			end = start;
			at = 0;
		} else {
			break;
		}
	}
	shelf->next_cleared = (uint8_t)(at % CA_STACKS);
	return left < limit;
}

void
ca_shelf_clear_locked(struct ca_magazine *magazine, struct ca_shelf *shelf)
{
	struct ca_block *tops[CA_STACKS];
	struct ca_stack *stack;
	unsigned n = 0, at = 0, i;

	if (!ca_shelf_capacity(shelf))
		return;
	ca_magazine_lock(magazine);
	ca_magazine_count_held(magazine);
	for (; (stack = next_stack(shelf, CA_KEPT_ANY, &at)); at++) {
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
	unsigned at = shelf->next_cleared;
	struct ca_block *top = NULL;
	struct ca_stack *stack;

	while (!top && ((stack = next_stack(shelf, which, &at)) || shelf->next_cleared)) {
		if (!stack) /* and now from the first one on */
			at = 0;
		shelf->next_cleared = (uint8_t)at;
		if (!stack)
			continue;
		top = ca_stack_top(stack);
		if (top)
			note_unfinished(shelf, top);
		ca_stack_detach_held(shelf, stack);
	}
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

/* More than one stack of sizes above CA_SMALL_MAX has room. */
static bool
has_large_sizes(const struct ca_shelf *shelf)
{
	bool one = false;
	unsigned i;

	for (i = 0; i < CA_STACK_WORDS; i++) {
		uint64_t word = shelf->has_capacity[1][i];

		if (word & (word - 1) || (one && word))
			return true;
		one |= word != 0;
	}
	return false;
}

bool
ca_magazine_clear_some_locked(struct ca_space *space, enum ca_kept which, unsigned limit)
{
	return ca_own.space == space->id && ca_shelf_capacity(ca_own.shelf) &&
	       (which != CA_KEPT_LARGE_SIZES || has_large_sizes(ca_own.shelf)) &&
	       clear_some_held(ca_own.magazine, ca_own.shelf, which, limit);
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
