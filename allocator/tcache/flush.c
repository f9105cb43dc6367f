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
	uint64_t hits = ca_magazine_hits(magazine);
	struct ca_stats *stats;
	struct ca_changes changes;

	if (!(hits | counts->frees))
		return;
	stats = &magazine->space->device->stats;
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
	magazine->serial_counted = magazine->serial;
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
	if (ca_own.heap == heap->id)
		ca_magazine_count_held(ca_own.magazine);
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
ca_stack_resize(struct ca_magazine *magazine, struct ca_stack *stack, unsigned capacity)
{
	unsigned i = (unsigned)(stack - magazine->stacks), more = capacity - stack->capacity;
	uint64_t bit = (uint64_t)1 << i % 64;

	if (capacity)
		magazine->has_capacity[i / 64] |= bit;
	else
		magazine->has_capacity[i / 64] &= ~bit;
	atomic_store_explicit(&magazine->capacity_all, ca_magazine_capacity(magazine) + more,
			      memory_order_relaxed);
	stack->available = (uint8_t)(stack->available + more);
	stack->capacity = (uint8_t)capacity;
}

struct ca_stack *
ca_stack_for(struct ca_magazine *magazine, uint32_t grains)
{
	struct ca_stack *set = ca_stack_set(magazine, grains);
	struct ca_stack *stack = ca_stack_find(magazine, grains);
	unsigned way;

	for (way = 0; !stack && way < CA_WAYS; way++)
		if (!ca_stack_top(&set[way]))
			stack = &set[way];
	if (!stack || stack->capacity - stack->available >= CA_KEPT_EACH ||
	    (!stack->available && ca_magazine_capacity(magazine) + CA_KEPT_STEP > CA_KEPT_ALL))
		return NULL;
	stack->grains = grains;
	if (!stack->available)
		ca_stack_resize(magazine, stack, stack->capacity + CA_KEPT_STEP);
	return stack;
}

/* ---- emptying */

struct ca_block *
ca_stack_detach_held(struct ca_magazine *magazine, struct ca_stack *stack)
{
	struct ca_block *top = ca_stack_top(stack);

	atomic_store_explicit(&stack->top, NULL, memory_order_relaxed);
	stack->available = stack->capacity;
	ca_stack_resize(magazine, stack, 0);
	return top;
}

void
ca_blocks_settle_locked(struct ca_block *block)
{
	while (block) {
		struct ca_block *below = block->below;

		atomic_store_explicit(&block->quick, 0, memory_order_relaxed);
		ca_block_come_out_locked(block);
		if (block->user.stream)
			ca_held_place_kept_locked(block);
		else
			ca_block_settle_locked(block);
		block = below;
	}
}

/* The next stack at or after *at with something of that kind, out of the magazine. NULL: there is
 * none. */
static struct ca_block *
next_detached_held(struct ca_magazine *magazine, enum ca_kept which, unsigned *at)
{
	for (; *at < CA_STACKS; ++*at) {
		uint64_t word = magazine->has_capacity[*at / 64] >> *at % 64;
		struct ca_stack *stack;
		struct ca_block *top;

		if (!word) {
			*at |= 63;
			continue;
		}
		*at += (unsigned)__builtin_ctzll(word);
		stack = &magazine->stacks[*at];
		if (which == CA_KEPT_LARGE && stack->grains <= CA_SMALL_MAX / CA_GRAIN)
			continue;
		top = ca_stack_detach_held(magazine, stack);
		if (top)
			return top;
	}
	return NULL;
}

/* The calling thread's blocks move no more, without a lock of the magazine's. */
static void
clear_held(struct ca_magazine *magazine, enum ca_kept which)
{
	struct ca_block *top;
	unsigned at = 0;

	ca_magazine_count_held(magazine);
	while ((top = next_detached_held(magazine, which, &at)))
		ca_blocks_settle_locked(top);
}

void
ca_magazine_clear_locked(struct ca_magazine *magazine, enum ca_kept which)
{
	struct ca_block *tops[CA_STACKS], *top;
	unsigned n = 0, at = 0, i;

	if (!ca_magazine_capacity(magazine))
		return;
	ca_magazine_lock(magazine);
	ca_magazine_count_held(magazine);
	while ((top = next_detached_held(magazine, which, &at)))
		tops[n++] = top;
	ca_magazine_unlock(magazine);
	for (i = 0; i < n; i++)
		ca_blocks_settle_locked(tops[i]);
}

void
ca_magazines_clear_locked(struct ca_space *space)
{
	struct ca_magazine *magazine;

	for (magazine = space->heap->magazines; magazine; magazine = magazine->next)
		if (magazine->space == space)
			ca_magazine_clear_locked(magazine, CA_KEPT_ANY);
}

void
ca_magazine_clear_own_locked(struct ca_space *space, enum ca_kept which)
{
	if (ca_own.space == space->id && ca_magazine_capacity(ca_own.magazine))
		clear_held(ca_own.magazine, which);
}

void
ca_magazines_look_locked(const struct ca_space *space, uint64_t *ret_used, uint64_t *ret_largest)
{
	struct ca_magazine *magazine;
	uint64_t used = 0, largest = 0;

	for (magazine = space->heap->magazines; magazine; magazine = magazine->next) {
		unsigned i;

		if (magazine->space != space)
			continue;
		ca_magazine_lock(magazine);
		for (i = 0; i < CA_STACKS; i++) {
			const struct ca_block *block = ca_stack_top(&magazine->stacks[i]);

			for (; block; block = block->below) {
				used += block->user.stream != NULL;
				if (!block->user.stream && block->bytes > largest)
					largest = block->bytes;
			}
		}
		ca_magazine_unlock(magazine);
	}
	*ret_used = used;
	*ret_largest = largest;
}
