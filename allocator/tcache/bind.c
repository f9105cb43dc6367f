/* SPDX-License-Identifier: MIT */
/*
 * Whose magazine it is, for which device and spaces, and what makes it likely that the next call
 * can do without the heap's lock, which is held here in all but the first functions.
 *
 * A thread that ends leaves its magazine as it is: a search for free memory finds the blocks in it,
 * and the magazine itself goes to a new thread once the kernel does not know the old one
 * any more. (A destructor for the thread would need the C library's allocator.)
 */
#include "allocator/tcache/internal.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/core/counts_file.h"
#include "allocator/trace/trace.h"
#include "config/mutant.h"

enum {
	SERIALS = 1024, /* numbers that a magazine takes at a time */
	/* calls for a space without a shelf, after which it gets another's */
	FOREIGN_CALLS_MAX = 64,
	PROBES_MAX = 16, /* old magazines looked at for one that has lost its owner */
};

/* ---- whose turn it is */

static bool
is_quick(const struct ca_heap *heap)
{
	return !ca_tracing(heap) && heap->plain;
}

/* The shelf's space is the one that the thread's next calls are expected to be for. */
static void
use(struct ca_magazine *magazine, struct ca_shelf *shelf)
{
	if (!CA_MUTANT(WRONG_SHELF)) {
		ca_own.magazine = magazine;
		ca_own.shelf = shelf;
	}
	ca_own.space = shelf->space->id;
	ca_own.quick_heap = is_quick(shelf->space->heap) ? ca_own.heap : 0;
	ca_own.quick_space = ca_own.quick_heap ? ca_own.space : 0;
}

bool
ca_own_turn(const struct ca_heap *heap, uint32_t own_live)
{
	unsigned place = (struct ca_block){ .space_and_state = own_live }.space % CA_SHELVES;
	struct ca_magazine *magazine = ca_own.magazine;

	if (ca_own.heap != heap->id)
		return false;
	do {
		struct ca_shelf *shelf = magazine->shelf[place];

		if (shelf && shelf->own_live == own_live) {
			use(magazine, shelf);
			return true;
		}
		magazine = magazine->sibling;
	} while (magazine != ca_own.magazine);
	return false;
}

void
ca_magazine_expect(const struct ca_space *space)
{
	(void)ca_own_turn(space->heap, ca_own_live(space));
}

/* ---- magazines */

/* The calling thread's magazine of that heap which is for the device, or is `wanted`; NULL: it has
 * none. */
static struct ca_magazine *
find_own(const struct ca_heap *heap, const struct ca_device *device,
	 const struct ca_magazine *wanted)
{
	struct ca_magazine *magazine = ca_own.magazine;

	if (ca_own.heap != heap->id)
		return NULL;
	do {
		if (magazine->device == device || magazine == wanted)
			return magazine;
		magazine = magazine->sibling;
	} while (magazine != ca_own.magazine);
	return NULL;
}

static bool
has_lost_owner(const struct ca_heap *heap, const struct ca_magazine *magazine, long self)
{
	int saved = errno;
	bool lost;

	if (magazine->tid == self) /* of a thread before this one, or from before another heap */
		return !find_own(heap, NULL, magazine);
	lost = syscall(SYS_tgkill, getpid(), magazine->tid, 0) && errno == ESRCH;
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
		if (has_lost_owner(heap, magazine, self))
			return magazine;
	}
	return NULL;
}

static struct ca_magazine *
alloc_locked(struct ca_heap *heap)
{
	size_t counted = offsetof(struct ca_magazine, lock);
	struct ca_magazine *magazine =
		ca_counts_file_alloc("magazine" CA_COUNTS_NAMES, 0, counted, sizeof(*magazine));

	_Static_assert(sizeof(struct ca_counts) <= CA_COUNTS_SAVED_PART, "");
	if (!magazine)
		return ca_arena_alloc_aligned(&heap->fixed, sizeof(*magazine),
					      _Alignof(struct ca_magazine));
	magazine->counts_page = ca_counts_file_page(magazine);
	return magazine;
}

static struct ca_magazine *
make_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine = alloc_locked(heap);

	if (!magazine)
		return NULL;
	*heap->magazines_end = magazine;
	heap->magazines_end = &magazine->next;
	return magazine;
}

/* Another one is for that device. */
static bool
share_locked(const struct ca_magazine *magazine, struct ca_device *device, struct ca_heap *heap)
{
	struct ca_magazine *each;
	bool shared = false;

	for (each = heap->magazines; each; each = each->next) {
		if (each == magazine || each->device != device)
			continue;
		shared = true;
		if (each->shared)
			continue;
		ca_magazine_lock(each);
		ca_magazine_count_held(each); /* there was no bound to that */
		each->shared = true;
		ca_magazine_unlock(each);
	}
	return shared;
}

/* The magazine, emptied, is the calling thread's, and for that device. */
static void
move_locked(struct ca_magazine *magazine, struct ca_device *device, struct ca_heap *heap)
{
	unsigned i;

	ca_leases_end_locked(heap);
	for (i = 0; i < CA_SHELVES; i++)
		if (magazine->shelf[i])
			ca_shelf_clear_locked(magazine, magazine->shelf[i]);
	ca_magazine_lock(magazine);
	ca_magazine_count_held(magazine);
	for (i = 0; i < CA_SHELVES; i++) {
		if (!magazine->shelf[i])
			continue;
		magazine->shelf[i]->space = NULL;
		magazine->shelf[i]->own_live = 0;
	}
	magazine->device = device;
	if (magazine->counts_page)
		magazine->counts_page->device = device->ordinal;
	magazine->thread = ca_order_thread();
	ca_magazine_unlock(magazine);
	magazine->shared = share_locked(magazine, device, heap);
	magazine->foreign_calls = 0;
	if (magazine == ca_own.magazine)
		ca_own.space = ca_own.quick_space = ca_own.quick_heap = 0;
}

/* One more for the calling thread: that of a thread that has ended, or a new one. NULL: there is
 * none to be had. */
static struct ca_magazine *
another_locked(struct ca_heap *heap)
{
	bool is_first = ca_own.heap != heap->id;
	long self = syscall(SYS_gettid);
	struct ca_magazine *magazine = inherit_locked(heap, self);

	if (!magazine && (is_first || heap->further_magazines < CA_FURTHER_MAGAZINES)) {
		magazine = make_locked(heap);
		heap->further_magazines += magazine && !is_first;
	}
	if (!magazine)
		return NULL;
	magazine->tid = self;
	magazine->sibling = magazine;
	if (is_first) {
		ca_own.heap = heap->id;
		/* no quick way before it has a shelf, for which there may be no memory */
		ca_own.space = ca_own.quick_space = ca_own.quick_heap = 0;
		ca_own.magazine = magazine;
		ca_own.shelf = &magazine->first_shelf;
	} else {
		magazine->sibling = ca_own.magazine->sibling;
		ca_own.magazine->sibling = magazine;
	}
	return magazine;
}

/* Often enough in vain, of late, for what the magazine keeps to make room. */
static bool
makes_room(struct ca_magazine *magazine)
{
	return ++magazine->foreign_calls >= FOREIGN_CALLS_MAX;
}

/* The calling thread's for the device. NULL: there is none. */
static struct ca_magazine *
magazine_for_locked(struct ca_heap *heap, struct ca_device *device)
{
	struct ca_magazine *magazine = find_own(heap, device, NULL);

	if (magazine)
		return magazine;
	if (ca_own.heap != heap->id || heap->further_magazines < CA_FURTHER_MAGAZINES ||
	    makes_room(ca_own.magazine)) {
		magazine = another_locked(heap);
		if (!magazine && ca_own.heap == heap->id &&
		    heap->further_magazines >= CA_FURTHER_MAGAZINES)
			magazine = ca_own.magazine;
	}
	if (magazine)
		move_locked(magazine, device, heap);
	return magazine;
}

/* ---- shelves */

/* The one at the space's place, which may be another's. NULL: no memory. */
static struct ca_shelf *
shelf_at_locked(struct ca_heap *heap, struct ca_magazine *magazine, unsigned place)
{
	struct ca_shelf *shelf = magazine->shelf[place];

	if (shelf)
		return shelf;
	if (!magazine->shelf_count)
		shelf = &magazine->first_shelf;
	else
		shelf = ca_arena_alloc_aligned(&heap->fixed, sizeof(*shelf),
					       _Alignof(struct ca_shelf));
	if (shelf) {
		magazine->shelf[place] = shelf;
		magazine->shelf_count++;
	}
	return shelf;
}

/* The calling thread gets a shelf for the space. False: it does not. */
static bool
bind_locked(struct ca_space *space)
{
	struct ca_magazine *magazine = magazine_for_locked(space->heap, space->device);
	struct ca_shelf *shelf =
		magazine ? shelf_at_locked(space->heap, magazine, space->number % CA_SHELVES)
			 : NULL;

	if (!shelf)
		return false;
	if (shelf->space && !shelf->space->dead && !makes_room(magazine))
		return false;
	ca_leases_end_locked(space->heap);
	if (shelf->space)
		ca_shelf_clear_locked(magazine, shelf);
	ca_magazine_lock(magazine);
	shelf->space = space;
	shelf->own_live = ca_own_live(space);
	shelf->polls = (struct ca_backoff){ 0 };
	ca_magazine_unlock(magazine);
	magazine->foreign_calls = 0;
	use(magazine, shelf);
	return true;
}

/* It is the turn of the calling thread's shelf for the space. False: there is none. */
static bool
own_locked(struct ca_space *space)
{
	return ca_own.space == space->id || ca_own_turn(space->heap, ca_own_live(space)) ||
	       bind_locked(space);
}

/* ---- counting */

/* Counted, and with a number for an allocation. Whatever is added to the device's sums with the
 * lock comes after this, so that peaks are exact as long as there is one thread. */
void
ca_magazine_refresh_locked(struct ca_heap *heap, struct ca_magazine *magazine)
{
	ca_magazine_count_held(magazine); /* the calling thread's own */
	if (magazine->serial == magazine->serials_end) {
		magazine->serial = heap->serial + 1;
		heap->serial += SERIALS;
		magazine->serials_end = heap->serial + 1;
	}
}

uint64_t
ca_magazine_serial_locked(struct ca_heap *heap)
{
	struct ca_magazine *magazine = ca_own.magazine;

	if (ca_own.heap != heap->id)
		return ++heap->serial;
	if (magazine->serial == magazine->serials_end ||
	    (magazine->counts.hits | magazine->counts.frees))
		ca_magazine_refresh_locked(heap, magazine);
	return magazine->serial++; /* these are their owner's, who is here */
}

/* ---- making it likely */

/* A stack of the calling thread's shelf with capacity for a block of that size: another loses it.
 */
static struct ca_stack *
stack_for_locked(uint32_t grains)
{
	struct ca_magazine *magazine = ca_own.magazine;
	struct ca_shelf *shelf = ca_own.shelf;
	struct ca_stack *stack = ca_stack_for(shelf, grains);

	if (stack)
		return stack;
	ca_magazine_count_held(magazine);
	stack = ca_stack_find(shelf, grains);
	if (stack && ca_stack_depth(stack) >= CA_KEPT_EACH)
		return NULL;
	if (!stack)
		stack = ca_stack_set(shelf, grains) + shelf->evict++ % CA_WAYS;
	if (ca_shelf_capacity(shelf) + CA_KEPT_STEP > CA_KEPT_ALL)
		ca_shelf_clear_locked(magazine, shelf);
	else
		ca_blocks_settle_locked(magazine, ca_stack_detach_held(shelf, stack));
	stack->grains = grains;
	ca_stack_resize(shelf, stack, CA_KEPT_STEP);
	return stack;
}

/* All that another thread keeps of that size. */
static bool
steal_locked(const struct ca_space *space, uint32_t grains)
{
	struct ca_shelf *mine = ca_own.shelf, *shelf;
	struct ca_magazine *other;
	struct ca_stack *stack;

	if (!ca_own.magazine->shared)
		return false;
	for (other = space->heap->magazines; other; other = other->next) {
		struct ca_block *top = NULL;
		unsigned depth = 0;

		shelf = ca_shelf_of_locked(other, space);
		if (!shelf || shelf == mine || !ca_shelf_capacity(shelf))
			continue;
		ca_magazine_lock(other);
		stack = ca_stack_find(shelf, grains);
		if (stack && ca_stack_top(stack)) {
			ca_magazine_count_held(other); /* they were freed before they are taken */
			depth = ca_stack_depth(stack);
			top = ca_stack_detach_held(shelf, stack);
		}
		ca_magazine_unlock(other);
		if (!top)
			continue;
		stack = stack_for_locked(grains); /* empty */
		if (stack->capacity < depth)
			ca_stack_resize(mine, stack, depth);
		atomic_store_explicit(&stack->top, top, memory_order_relaxed);
		stack->available = (uint8_t)(stack->capacity - depth);
		return true;
	}
	return false;
}

bool
ca_magazine_prepare_take_locked(struct ca_space *space, uint64_t bytes)
{
	uint32_t grains = ca_grains(bytes);
	const struct ca_magazine *magazine;
	const struct ca_stack *stack;

	if (!own_locked(space))
		return false;
	magazine = ca_own.magazine;
	if (magazine->shared || magazine->serial == magazine->serials_end)
		ca_magazine_refresh_locked(space->heap, ca_own.magazine);
	stack = ca_stack_find(ca_own.shelf, grains);
	return (stack && ca_stack_top(stack)) || (grains && steal_locked(space, grains));
}

bool
ca_magazine_prepare_give_locked(struct ca_space *space, uint64_t bytes)
{
	if (!own_locked(space))
		return false;
	ca_magazine_refresh_locked(space->heap, ca_own.magazine);
	return stack_for_locked(ca_grains(bytes)) != NULL;
}
