/* SPDX-License-Identifier: MIT */
/*
 * Magazines as who has the heap's lock sees them: counted and emptied. (owner.c: whose they are.)
 */
#include "allocator/drain.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	SPINS = 1000,
	YIELDS = 20,
	PAUSE_NS = 50 * 1000,
};

/* Its holder is in a few instructions, or is not running. */
void
ca_magazine_wait(struct ca_magazine *magazine)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	int saved = errno;
	unsigned tries = 0;

	while (atomic_load_explicit(&magazine->lock, memory_order_relaxed) ||
	       atomic_exchange_explicit(&magazine->lock, 1, memory_order_acquire)) {
		tries++;
		ca_relax();
		if (tries > SPINS + YIELDS)
			/* not nanosleep(): that is a cancellation point */
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
		else if (tries > SPINS)
			sched_yield();
	}
	errno = saved;
}

/* ---- counting */

static void
gauge_count(struct ca_gauge *sum, struct ca_gauge *change)
{
	/* signed, as in ca_gauge_add */
	if ((int64_t)(sum->current + change->peak) > (int64_t)sum->peak)
		sum->peak = sum->current + change->peak;
	sum->current += change->current;
	sum->total += change->total;
	*change = (struct ca_gauge){ 0 };
}

void
ca_magazine_count_held(struct ca_magazine *magazine)
{
	struct ca_counts *counts = &magazine->counts;
	struct ca_stats *stats = &magazine->space->device->stats;

	if (!(counts->allocs | counts->frees))
		return;
	gauge_count(&stats->requested_bytes, &counts->requested);
	gauge_count(&stats->allocated_bytes, &counts->allocated);
	gauge_count(&stats->active_bytes, &counts->active);
	gauge_count(&stats->cached_bytes, &counts->cached);
	stats->alloc_calls += counts->allocs;
	stats->cache_hits += counts->allocs;
	stats->taken_clean += counts->clean;
	stats->taken_same_stream += counts->allocs - counts->clean;
	stats->free_calls += counts->frees;
	counts->allocs = counts->clean = counts->frees = 0;
}

void
ca_magazines_count_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine;

	/* at one moment: what one thread has and another frees meanwhile is seen in both or none */
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

/* ---- emptying */

struct ca_block *
ca_stack_detach_held(struct ca_magazine *magazine, struct ca_stack *stack)
{
	struct ca_block *top = stack->top;

	ca_magazine_add_kept(magazine, -stack->depth);
	ca_stack_note(magazine, stack, false);
	stack->top = NULL;
	stack->depth = 0;
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
			ca_owned_place_kept_locked(block);
		else
			ca_block_settle_locked(block);
		block = below;
	}
}

/* What the calling thread keeps moves no more, without a lock of the magazine's. */
static void
clear_held(struct ca_magazine *magazine, enum ca_kept which)
{
	unsigned word = which == CA_KEPT_LARGE ? CA_STACK_WORDS / 2 : 0;

	ca_magazine_count_held(magazine);
	for (; word < CA_STACK_WORDS; word++)
		while (magazine->taken[word])
			ca_blocks_settle_locked(
				ca_stack_detach_held(magazine, ca_stack_first(magazine, word)));
}

void
ca_magazine_clear_locked(struct ca_magazine *magazine, enum ca_kept which)
{
	struct ca_block *tops[CA_STACKS];
	unsigned n = 0, word = which == CA_KEPT_LARGE ? CA_STACK_WORDS / 2 : 0, i;

	if (!atomic_load_explicit(&magazine->kept, memory_order_relaxed))
		return;
	ca_magazine_lock(magazine);
	ca_magazine_count_held(magazine);
	for (; word < CA_STACK_WORDS; word++)
		while (magazine->taken[word])
			tops[n++] = ca_stack_detach_held(magazine, ca_stack_first(magazine, word));
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
	if (ca_own.space == space->id &&
	    atomic_load_explicit(&ca_own.magazine->kept, memory_order_relaxed))
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
			const struct ca_block *block = magazine->stacks[i].top;

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
