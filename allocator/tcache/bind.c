/* SPDX-License-Identifier: MIT */
/*
 * Whose magazine it is, for which space, and what makes it likely that the next call can do without
 * the heap's lock, which is held here.
 *
 * A thread that ends leaves its magazine as it is: a search for free memory finds the blocks in it,
 * and the magazine itself goes to a new thread once the kernel does not know the old one
 * any more. (A destructor for the thread would need the C library's allocator.)
 */
#include "allocator/tcache/internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/trace/trace.h"

enum {
	SERIALS = 1024,         /* numbers that a magazine takes at a time */
	FOREIGN_CALLS_MAX = 64, /* calls for another space, after which the magazine goes there */
	PROBES_MAX = 16,        /* old magazines looked at for one that has lost its owner */
};

static bool
has_lost_owner(const struct ca_magazine *magazine, long self)
{
	int saved = errno;
	bool lost = magazine->tid == self ||
		    (syscall(SYS_tgkill, getpid(), magazine->tid, 0) && errno == ESRCH);

	errno = saved;
	return lost;
}

/* Some of the magazines are looked at, the next time others: each goes to the end of the list. */
static struct ca_magazine *
inherit_locked(struct ca_heap *heap, long self)
{
	struct ca_magazine *first = heap->magazines, *magazine;
	unsigned probes;

	for (probes = 0; probes < PROBES_MAX && (magazine = heap->magazines); probes++) {
		if (probes && magazine == first)
			return NULL;
		if (magazine->next) {
			heap->magazines = magazine->next;
			magazine->next = NULL;
			*heap->magazines_end = magazine;
			heap->magazines_end = &magazine->next;
		}
		if (has_lost_owner(magazine, self))
			return magazine;
	}
	return NULL;
}

static struct ca_magazine *
make_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine = ca_arena_alloc_aligned(&heap->fixed, sizeof(*magazine),
							      _Alignof(struct ca_magazine));
	struct ca_magazine *each;

	if (!magazine)
		return NULL;
	*heap->magazines_end = magazine;
	heap->magazines_end = &magazine->next;
	if (heap->magazines == magazine)
		return magazine;
	for (each = heap->magazines; each; each = each->next) {
		if (each->shared)
			continue;
		ca_magazine_lock(each);
		ca_magazine_count_held(each); /* there was no bound to that */
		each->shared = true;
		ca_magazine_unlock(each);
	}
	return magazine;
}

static void
bind_locked(struct ca_magazine *magazine, struct ca_space *space)
{
	ca_magazine_lock(magazine);
	if (magazine->space)
		ca_magazine_count_held(magazine);
	magazine->space = space;
	magazine->own_live = ca_block_word(space->number, CA_BLOCK_ALLOCATED);
	ca_magazine_unlock(magazine);
	magazine->foreign_calls = 0;
	ca_own.space = space->id;
	ca_own.heap = space->heap->id;
	ca_own.quick_heap = ca_tracing(space->heap) || !space->heap->plain ? 0 : ca_own.heap;
	ca_own.quick_space = ca_own.quick_heap ? space->id : 0;
}

static struct ca_magazine *
first_own_locked(struct ca_space *space)
{
	struct ca_heap *heap = space->heap;
	long self = syscall(SYS_gettid);
	struct ca_magazine *magazine = inherit_locked(heap, self);

	if (!magazine)
		magazine = make_locked(heap);
	if (!magazine)
		return NULL;
	if (magazine->space)
		ca_magazine_clear_locked(magazine, CA_KEPT_ANY);
	magazine->tid = self;
	ca_magazine_lock(magazine);
	magazine->thread = ca_order_thread();
	ca_magazine_unlock(magazine);
	ca_own.magazine = magazine;
	bind_locked(magazine, space);
	return magazine;
}

/* The calling thread's magazine, if it is for the space, counted. NULL: there is none. */
static struct ca_magazine *
own_locked(struct ca_space *space)
{
	struct ca_magazine *magazine = ca_own.magazine;

	if (ca_own.heap != space->heap->id)
		return first_own_locked(space);
	if (ca_own.space != space->id) {
		if (!magazine->space->dead && ++magazine->foreign_calls < FOREIGN_CALLS_MAX)
			return NULL;
		ca_magazine_clear_locked(magazine, CA_KEPT_ANY);
		bind_locked(magazine, space);
	}
	return magazine;
}

/* Counted, and with a number for an allocation. Whatever is added to the device's sums with the
 * lock comes after this, so that peaks are exact as long as there is one thread. */
static void
refresh_locked(struct ca_heap *heap, struct ca_magazine *magazine)
{
	ca_magazine_count_held(magazine); /* the calling thread's own */
	if (magazine->serial == magazine->serials_end) {
		magazine->serial = heap->serial + 1;
		heap->serial += SERIALS;
		magazine->serials_end = heap->serial + 1;
		magazine->serial_counted = magazine->serial;
	}
}

uint64_t
ca_magazine_serial_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine = ca_own.magazine;
	uint64_t serial;

	if (ca_own.heap != heap->id)
		return ++heap->serial;
	if (magazine->serial == magazine->serials_end || ca_magazine_hits(magazine) ||
	    magazine->counts.frees)
		refresh_locked(heap, magazine);
	serial = magazine->serial++; /* these are their owner's, who is here */
	magazine->serial_counted = magazine->serial;
	return serial;
}

/* ---- making it likely */

/* A stack of the calling thread's own with capacity for a block of that size: another loses it. */
static struct ca_stack *
stack_for_locked(struct ca_magazine *magazine, uint32_t grains)
{
	struct ca_stack *stack;

	stack = ca_stack_for(magazine, grains);
	if (stack)
		return stack;
	ca_magazine_count_held(magazine);
	stack = ca_stack_find(magazine, grains);
	if (stack && ca_stack_depth(stack) >= CA_KEPT_EACH)
		return NULL;
	if (!stack)
		stack = ca_stack_set(magazine, grains) + magazine->evict++ % CA_WAYS;
	if (ca_magazine_capacity(magazine) + CA_KEPT_STEP > CA_KEPT_ALL)
		ca_magazine_clear_locked(magazine, CA_KEPT_ANY);
	else
		ca_blocks_settle_locked(ca_stack_detach_held(magazine, stack));
	stack->grains = grains;
	ca_stack_resize(magazine, stack, CA_KEPT_STEP);
	return stack;
}

/* All that another thread keeps of that size. */
static bool
steal_locked(struct ca_magazine *magazine, uint32_t grains)
{
	struct ca_magazine *other;
	struct ca_stack *stack;

	if (!magazine->shared)
		return false;
	for (other = magazine->space->heap->magazines; other; other = other->next) {
		struct ca_block *top = NULL;
		unsigned depth = 0;

		if (other == magazine || other->space != magazine->space ||
		    !ca_magazine_capacity(other))
			continue;
		ca_magazine_lock(other);
		stack = ca_stack_find(other, grains);
		if (stack && ca_stack_top(stack)) {
			depth = ca_stack_depth(stack);
			top = ca_stack_detach_held(other, stack);
		}
		ca_magazine_unlock(other);
		if (!top)
			continue;
		stack = stack_for_locked(magazine, grains); /* empty */
		if (stack->capacity < depth)
			ca_stack_resize(magazine, stack, depth);
		atomic_store_explicit(&stack->top, top, memory_order_relaxed);
		stack->available = (uint8_t)(stack->capacity - depth);
		return true;
	}
	return false;
}

bool
ca_magazine_prepare_take_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_magazine *magazine = ca_own.magazine;
	uint32_t grains = ca_grains(bytes);
	const struct ca_stack *stack;

	if (ca_own.space != space->id && !(magazine = own_locked(space)))
		return false;
	if (magazine->shared || magazine->serial == magazine->serials_end)
		refresh_locked(space->heap, magazine);
	stack = ca_stack_find(magazine, grains);
	return (stack && ca_stack_top(stack)) || (grains && steal_locked(magazine, grains));
}

bool
ca_magazine_prepare_give_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_magazine *magazine = own_locked(space);

	if (!magazine)
		return false;
	refresh_locked(space->heap, magazine);
	return stack_for_locked(magazine, ca_grains(bytes)) != NULL;
}
